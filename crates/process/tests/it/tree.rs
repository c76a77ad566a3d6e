//! What a command sees of the file tree at the strongest level, whoever makes it: we, or bubblewrap.

use std::path::PathBuf;

use process::sandbox::{Level, Profile};

use crate::place::{Place, run_with, shell};

/// Runs a script both ways in a folder of the place, and asserts that it says the same.
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
async fn what_is_around_a_hidden_place_cannot_be_moved_away() {
    let place = Place::new("moved");
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
    let kept = std::fs::read(place.work().join(".config/gh/token")).unwrap();
    assert_eq!(kept, b"secret");
    assert_eq!(std::fs::read(place.work().join(".config/new")).unwrap(), b"new\n");
}

/// A copy in its place would be a repository whose configuration the command can change.
// R: T7
#[tokio::test]
async fn what_is_around_a_protected_place_cannot_be_moved_away() {
    let place = Place::new("around");
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
async fn a_workspace_in_a_hidden_folder_is_there_and_its_neighbours_are_not() {
    let place = Place::new("within");
    std::fs::create_dir_all(place.0.join("vault/deep/ws/.git")).unwrap();
    std::fs::write(place.0.join("vault/secret"), "secret").unwrap();
    let at = |path: &str| place.0.join("vault").join(path);
    let profile = Profile {
        hidden: vec![place.0.join("vault")],
        protected: vec![at("deep/ws/.git")],
        private: Vec::new(),
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
async fn where_everything_may_be_written_the_rest_of_the_profile_holds() {
    let place = Place::new("all");
    std::fs::create_dir_all(place.0.join("vault")).unwrap();
    std::fs::write(place.0.join("vault/secret"), "secret").unwrap();
    let profile = Profile {
        hidden: vec![place.0.join("vault")],
        private: Vec::new(),
        ..Profile::writing_to(vec![PathBuf::from("/")])
    };
    let script = "echo out > ../beside; cat ../vault/secret; ls /run; echo $(($(ls -d /proc/[0-9]* | wc -l) < 9))";
    let says = "cat: ../vault/secret: No such file or directory\n1\n";
    // Bubblewrap leaves itself in `/run`.
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    let spec = shell(&place.work(), script);
    assert_eq!(run_with(&sandbox, &found, &spec, &profile).await.0, says);
    assert_eq!(std::fs::read(place.0.join("beside")).unwrap(), b"out\n");
}
