//! What a command sees of the file tree at the full level, made by us or by bubblewrap.

use std::path::PathBuf;

use process::sandbox::{Level, Profile};

use crate::place::{Place, run_with, shell};

/// Runs a script both ways in a directory of the place, and asserts that it prints the same.
async fn assert_says(place: &Place, cwd: &str, profile: &Profile, script: &str, says: &str) {
    for sandbox in [place.sandbox(), place.sandbox().with_bubblewrap("/usr/bin/bwrap".into())] {
        let found = sandbox.found().await;
        assert_eq!(found.level, Level::Full, "{:?}", found.missing);
        let spec = shell(&place.0.join(cwd), script);
        let (said, _) = run_with(&sandbox, &found, &spec, profile).await;
        let said = said.replace(&*place.0.to_string_lossy(), "P");
        assert_eq!(said, says, "by {:?}", found.bubblewrap);
    }
}

// R: T7
#[tokio::test]
async fn directory_around_a_hidden_path_cannot_be_moved() {
    let place = Place::new();
    std::fs::create_dir_all(place.work().join(".config/gh")).unwrap();
    std::fs::write(place.work().join(".config/gh/token"), "secret").unwrap();
    std::fs::write(place.work().join(".netrc"), "secret").unwrap();
    let hidden = vec![place.work().join(".config/gh"), place.work().join(".netrc")];
    let profile = Profile { hidden, ..Profile::writing_to(vec![place.work()]) };
    let script = "mv .config other; mv .netrc net; rm -r .config/gh; cat .config/gh/token; cat .netrc; echo new > .config/new";
    let says = "mv: cannot move '.config' to 'other': Device or resource busy\n\
                mv: cannot move '.netrc' to 'net': Device or resource busy\n\
                rm: cannot remove '.config/gh': Device or resource busy\n\
                cat: .config/gh/token: No such file or directory\n\
                cat: .netrc: Permission denied\n";
    assert_says(&place, "work", &profile, script, says).await;
    let secret = std::fs::read(place.work().join(".config/gh/token")).unwrap();
    assert_eq!(secret, b"secret");
    assert_eq!(std::fs::read(place.work().join(".config/new")).unwrap(), b"new\n");
}

/// A copy in its place would be a repository with a configuration that the command can change.
// R: T7
#[tokio::test]
async fn directory_around_a_protected_path_cannot_be_moved() {
    let place = Place::new();
    std::fs::create_dir_all(place.work().join("vendor/repo/.git")).unwrap();
    let protected = vec![place.work().join("vendor/repo/.git")];
    let profile = Profile { protected, ..Profile::writing_to(vec![place.work()]) };
    let script = "mv vendor other; mv vendor/repo other; ls -d vendor/repo/.git; rm -r other";
    let says = "mv: cannot move 'vendor' to 'other': Device or resource busy\n\
                mv: cannot remove 'vendor/repo/.git': Device or resource busy\nvendor/repo/.git\n";
    assert_says(&place, "work", &profile, script, says).await;
}

// R: T7
#[tokio::test]
async fn workspace_in_a_hidden_directory_is_visible_and_its_siblings_are_not() {
    let place = Place::new();
    std::fs::create_dir_all(place.0.join("vault/deep/ws/.git")).unwrap();
    std::fs::write(place.0.join("vault/secret"), "secret").unwrap();
    let at = |path: &str| place.0.join("vault").join(path);
    let profile = Profile {
        hidden: vec![place.0.join("vault")],
        protected: vec![at("deep/ws/.git")],
        private: Vec::new(),
        temporary: None,
        ..Profile::writing_to(vec![at("deep/ws")])
    };
    let script = "pwd; ls ../.. ; echo in > file && touch .git/hook; cat file";
    let says =
        "P/vault/deep/ws\ndeep\ntouch: cannot touch '.git/hook': Read-only file system\nin\n";
    assert_says(&place, "vault/deep/ws", &profile, script, says).await;
    assert!(at("secret").exists() && at("deep/ws/file").exists());
}

// R: T7
#[tokio::test]
async fn writable_root_still_has_hidden_and_protected_paths() {
    let place = Place::new();
    std::fs::create_dir_all(place.0.join("vault")).unwrap();
    std::fs::write(place.0.join("vault/secret"), "secret").unwrap();
    let profile = Profile {
        hidden: vec![place.0.join("vault")],
        private: Vec::new(),
        temporary: None,
        ..Profile::writing_to(vec![PathBuf::from("/")])
    };
    let script = "echo out > ../beside; cat ../vault/secret; ls /run; echo $(($(ls -d /proc/[0-9]* | wc -l) < 9))";
    let says = "cat: ../vault/secret: No such file or directory\n1\n";
    // Bubblewrap mounts our helper in `/run`.
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    let spec = shell(&place.work(), script);
    assert_eq!(run_with(&sandbox, &found, &spec, &profile).await.0, says);
    assert_eq!(std::fs::read(place.0.join("beside")).unwrap(), b"out\n");
}

/// A command as root must not break a device for everybody else.
// R: T7
#[tokio::test]
async fn devices_can_be_used_but_not_changed() {
    let place = Place::new();
    let profile = Profile::writing_to(vec![place.work()]);
    let script = "echo x > /dev/null && head -c 2 /dev/zero | wc -c; chmod 600 /dev/full 2>&1 | grep -c 'Read-only file system'; \
                  touch -c /dev/null 2>&1 | grep -c 'Read-only file system'; echo in > /dev/shm/file && cat /dev/shm/file";
    // Bubblewrap mounts its devices so that root can.
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    let (said, _) = run_with(&sandbox, &found, &shell(&place.work(), script), &profile).await;
    assert_eq!(said, "2\n1\n1\nin\n");
}

/// The first command removes the link that led to a secret, the second looks for its target.
// R: T7
#[tokio::test]
async fn target_of_a_link_stays_hidden_after_the_link_is_removed() {
    let place = Place::new();
    std::fs::create_dir_all(place.work().join("dots/ssh")).unwrap();
    std::fs::write(place.work().join("dots/ssh/key"), "secret").unwrap();
    std::os::unix::fs::symlink("dots/ssh", place.work().join(".ssh")).unwrap();
    let hidden = vec![place.work().join(".ssh")];
    let profile = Profile { hidden, ..Profile::writing_to(vec![place.work()]) };
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    for (script, says) in [
        ("rm .ssh && echo gone", "gone\n"),
        ("cat dots/ssh/key", "cat: dots/ssh/key: No such file or directory\n"),
    ] {
        let spec = shell(&place.work(), script);
        assert_eq!(run_with(&sandbox, &found, &spec, &profile).await.0, says);
    }
}

// R: T7
#[tokio::test]
async fn directory_that_was_replaced_by_a_link_is_refused() {
    let place = Place::new();
    let profile = Profile::writing_to(vec![place.work()]);
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    std::fs::create_dir(place.0.join("elsewhere")).unwrap();
    std::fs::remove_dir(place.work()).unwrap();
    std::os::unix::fs::symlink("elsewhere", place.work()).unwrap();
    let refused = sandbox.spawn(&shell(&place.work(), "touch file"), &profile, &found);
    assert!(matches!(refused, Err(process::Error::Moved { .. })), "{refused:?}");
}

/// The helper may be killed at any moment of its start; nothing continues without it.
// R: T7
#[tokio::test]
async fn command_does_not_outlive_a_helper_that_is_killed_while_it_starts() {
    let place = Place::new();
    let work = place.work();
    let marker = format!("{}.{}", 3_000 + std::process::id(), std::process::id());
    let helper = env!("CARGO_BIN_EXE_escape");
    let space = ["space", work.to_str().unwrap(), "network", "own", "size", "1000000"];
    for delay in 0..80 {
        let mut child = std::process::Command::new(helper)
            .args(["__confine"])
            .args(space)
            .args(["exec", "/bin/sleep", &marker])
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_micros(150 * delay));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let is_left = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| line.windows(marker.len()).any(|part| part == marker.as_bytes()))
            .count()
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while is_left() > 0 {
        assert!(std::time::Instant::now() < end, "{} are left", is_left());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
