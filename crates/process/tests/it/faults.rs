//! Faults: commands that use up resources, missing programs, killed processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use process::sandbox::{Found, Level, Limits, Sandbox};
use process::{Error, Spec};
use tokio::io::AsyncReadExt;

use crate::place::{Place, run_at, shell};

/// Runs a script at the full level, which must work here.
async fn run(limits: Limits, script: &str) -> (String, Option<i32>) {
    let place = Place::new();
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    assert_eq!(found.level, Level::Full, "{:?}", found.missing);
    run_at(&place, &sandbox, &found, limits, script).await
}

// Fault: T06, T24
#[tokio::test]
async fn fork_bomb_hits_its_limit() {
    let limits = Limits { processes: 40, ..Limits::default() };
    let script = "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done; echo all";
    let (said, code) = run(limits, script).await;
    assert!(said.contains("fork"), "{said}");
    assert!(!said.contains("all"), "{said}");
    assert_ne!(code, Some(0));
}

// Fault: T07
#[tokio::test]
async fn memory_bomb_hits_its_limit_and_is_killed_first() {
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let script = "cat /proc/self/oom_score_adj; head -c 1000000000 /dev/zero | tail; echo code $?";
    let (said, _) = run(limits, script).await;
    assert!(said.starts_with("500\n"), "{said}");
    // As root the kernel counts all processes together, otherwise each of them.
    let is_told = |words: &&str| said.contains(*words);
    assert!(["Killed\ncode 137", "memory exhausted\ncode 1"].iter().any(is_told), "{said}");
}

/// Each process stays below the limit, all together do not: the system kills one, if it can count that (as root).
// Fault: T20
#[tokio::test]
async fn memory_of_all_processes_together_is_limited() {
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let one =
        "head -c 40000000 /dev/zero | (tail -c 40000000; echo code $? >&2) | (sleep 1; wc -c)";
    let script = format!("for i in 1 2 3 4; do {one} & done; wait");
    let (said, _) = run(limits, &script).await;
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(said.contains("code 137"), is_root, "{said}");
    assert_eq!(said.matches("40000000").count() == 4, !is_root, "{said}");
}

// Fault: T16
#[tokio::test]
async fn file_cannot_fill_the_disk() {
    let limits = Limits { file_size: 1 << 20, ..Limits::default() };
    let script = "head -c 9000000 /dev/zero > big; echo; wc -c < big; head -c 9000000 /dev/zero > /tmp/a; \
                  head -c 900000 /dev/zero > /tmp/b; cat /tmp/a /tmp/b | wc -c";
    let (said, _) = run(limits, script).await;
    let sizes: Vec<u64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert_eq!(sizes[0], 1 << 20, "{said}");
    // The private directory as a whole has the same limit.
    assert!(sizes[1] <= 1 << 20, "{said}");
}

// Fault: T17
#[tokio::test]
async fn limits_and_privileges_cannot_be_raised() {
    let script = "ulimit -n 100000 || echo refused; ulimit -Hn; grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status";
    let (said, _) = run(Limits::default(), script).await;
    assert!(said.contains("refused"), "{said}");
    let most: u64 = said.lines().find_map(|line| line.parse().ok()).unwrap();
    assert!(most <= 16 * 1024, "{said}");
    assert!(said.contains("NoNewPrivs:\t1"), "{said}");
    assert!(said.contains("CapEff:\t0000000000000000"), "{said}");
    assert!(said.contains("CapBnd:\t0000000000000000"), "{said}");
}

// Fault: T21
#[tokio::test]
async fn ten_thousand_orphans_are_reaped() {
    let script = "i=0; while [ $i -lt 10000 ]; do (: &); i=$((i+1)); done; grep -l 'State:.Z' /proc/[0-9]*/status | wc -l";
    let (said, code) = run(Limits::default(), script).await;
    assert_eq!(code, Some(0), "{said}");
    let left: u64 = said.lines().last().unwrap().trim().parse().unwrap();
    assert!(left < 100, "{left} zombies");
}

// Fault: T18
#[tokio::test]
async fn command_does_not_run_without_its_helper() {
    let place = Place::new();
    let helper = place.copy(env!("CARGO_BIN_EXE_escape"));
    let sandbox = Sandbox::new(helper.clone(), place.0.join("scratch"));
    let found = sandbox.found().await;
    assert_eq!(found.level, Level::Full, "{:?}", found.missing);
    // One that was missing at the start cannot restrict a command, and that is reported.
    std::fs::remove_file(&helper).unwrap();
    let sandbox = Sandbox::new(helper, place.0.join("scratch"));
    let spec = shell(&place.work(), "touch ran");
    let refused = sandbox.spawn(&spec, &place.profile(Limits::default()), &found);
    assert!(matches!(refused, Err(Error::NoHelper { .. })), "{refused:?}");
    assert!(!place.work().join("ran").exists());
    let now = sandbox.found().await;
    assert_eq!(now.level, Level::None);
    assert_eq!(now.missing.len(), 3, "{:?}", now.missing);
    assert!(!sandbox.suits_terminal(&[]));
}

/// Our program may lie in the session's directory (`node_modules/.bin`, `target`), where a command can replace it.
// R: T7
#[tokio::test]
async fn replaced_helper_is_not_started() {
    for level in [Level::Full, Level::Kernel, Level::Limits] {
        let place = Place::new();
        let helper = place.work().join("helper");
        std::fs::copy(env!("CARGO_BIN_EXE_escape"), &helper).unwrap();
        let sandbox = Sandbox::new(helper.clone(), place.0.join("scratch")).at_most(level);
        let found = sandbox.found().await;
        assert_eq!(found.level, level, "{:?}", found.missing);
        let replace = "printf '#!/bin/sh\\ntouch %s/../escaped\\n' \"$PWD\" > new; chmod 755 new; mv -f new helper; \
                       grep -c '#!/bin/sh' helper";
        let (said, code) = run_at(&place, &sandbox, &found, Limits::default(), replace).await;
        assert_eq!((said.trim(), code), ("1", Some(0)), "{level}");
        let script = "touch ../direct 2>/dev/null; touch ran; echo restricted";
        let (said, _) = run_at(&place, &sandbox, &found, Limits::default(), script).await;
        assert_eq!(said.trim(), "restricted", "{level}");
        assert!(place.work().join("ran").exists() && !place.0.join("escaped").exists(), "{level}");
        assert_eq!(place.0.join("direct").exists(), level == Level::Limits);
        let mut free = sandbox.spawn_free(&shell(&place.work(), "echo free")).unwrap();
        assert!(free.wait().await.unwrap().success());
        assert!(!place.0.join("escaped").exists(), "{level}");
        assert!(!sandbox.suits_terminal(&[place.work()]));
    }
}

/// Bubblewrap gets the helper by its path, so it cannot be replaced there.
// R: T7
#[tokio::test]
async fn helper_is_protected_where_bubblewrap_mounts_it() {
    let place = Place::new();
    let helper = place.work().join("helper");
    std::fs::copy(env!("CARGO_BIN_EXE_escape"), &helper).unwrap();
    let sandbox = Sandbox::new(helper, place.0.join("scratch"));
    let sandbox = sandbox.with_bubblewrap("/usr/bin/bwrap".into());
    let found = sandbox.found().await;
    assert_eq!(found.level, Level::Full, "{:?}", found.missing);
    let script = "echo x > new; mv -f new helper || echo refused; echo x > helper || echo refused";
    let (said, _) = run_at(&place, &sandbox, &found, Limits::default(), script).await;
    assert_eq!(said.matches("refused").count(), 2, "{said}");
}

// Fault: T18
#[tokio::test]
async fn helper_that_does_not_restrict_is_not_trusted() {
    let place = Place::new();
    let helper = place.copy("/bin/true");
    let sandbox = Sandbox::new(helper, place.0.join("scratch"));
    assert_eq!(sandbox.found().await.level, Level::None);
    // Even one that worked when it was tried.
    let found = Found { level: Level::Kernel, missing: Vec::new(), bubblewrap: None };
    let spec = shell(&place.work(), "touch ran");
    let mut child = sandbox.spawn(&spec, &place.profile(Limits::default()), &found).unwrap();
    assert!(matches!(child.wait().await, Err(Error::NotConfined)));
}

// Fault: T19
#[tokio::test]
async fn level_drops_without_bubblewrap() {
    let place = Place::new();
    let bubblewrap = place.copy("/usr/bin/bwrap");
    let sandbox = place.sandbox().with_bubblewrap(bubblewrap.clone());
    let found: Arc<Found> = sandbox.found().await;
    assert_eq!((found.level, found.bubblewrap.as_deref()), (Level::Full, Some(&*bubblewrap)));
    std::fs::remove_file(&bubblewrap).unwrap();
    let spec = shell(&place.work(), "touch ran");
    let refused = sandbox.spawn(&spec, &place.profile(Limits::default()), &found);
    assert!(matches!(refused, Err(Error::NoSuchProgram { .. })), "{refused:?}");
    assert!(!place.work().join("ran").exists());
    let now = sandbox.found().await;
    assert!(now.level < Level::Full, "{now:?}");
    let (said, _) =
        run_at(&place, &sandbox, &now, Limits::default(), "touch ran && echo $TMPDIR").await;
    assert!(place.work().join("ran").exists());
    let temporary = PathBuf::from(said.trim());
    assert!(temporary.starts_with(place.0.join("scratch")), "{said}");
    assert!(!temporary.exists(), "a temporary folder outlives its command");
}

// Fault: T25
#[tokio::test]
async fn program_that_is_still_being_written_is_retried() {
    let place = Place::new();
    let program = place.copy("/bin/true");
    let writer = std::fs::OpenOptions::new().append(true).open(&program).unwrap();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(writer);
    });
    let mut child = process::spawn(&Spec::new(&program, place.work())).unwrap();
    assert!(child.wait().await.unwrap().success());
    later.join().unwrap();
}

// R: T7
#[tokio::test]
async fn protected_link_is_refused() {
    let place = Place::new();
    std::fs::create_dir(place.0.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.0.join("elsewhere"), place.work().join(".git")).unwrap();
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    let mut profile = place.profile(Limits::default());
    profile.protected = vec![place.work().join(".git")];
    let refused = sandbox.spawn(&shell(&place.work(), "true"), &profile, &found);
    assert!(matches!(refused, Err(Error::Unprotected { .. })), "{refused:?}");
}

/// Even without a PID namespace a command leaves no process behind, however it hides.
// Fault: T05
#[tokio::test]
async fn process_with_its_own_session_does_not_outlive_the_command() {
    for (level, word) in [(Level::Kernel, "73301"), (Level::Limits, "73302")] {
        let place = Place::new();
        let sandbox = place.sandbox().at_most(level);
        let found = sandbox.found().await;
        assert_eq!(found.level, level, "{:?}", found.missing);
        let script = format!(
            "(setsid sh -c 'setsid sleep {word} & setsid sleep {word} &' &); sleep 0.3; exit 4"
        );
        let (said, code) = run_at(&place, &sandbox, &found, Limits::default(), &script).await;
        assert_eq!(code, Some(4), "{said}");
        assert!(!runs(word), "level {level}");
        // Also when it is killed.
        let spec = shell(&place.work(), &format!("setsid sleep {word} & echo ready; sleep {word}"));
        let mut child = sandbox.spawn(&spec, &place.profile(Limits::default()), &found).unwrap();
        let mut line = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut line).await.unwrap();
        child.kill();
        child.wait().await.unwrap();
        assert!(!runs(word), "level {level}");
    }
}

/// Killed at any moment, the agent leaves no process behind, neither one that ignores SIGTERM nor one with its own session.
// R: W23
// Fault: M15
#[test]
fn nothing_outlives_a_killed_agent_at_any_level() {
    for (level, word) in [("L3", "73311"), ("L2", "73312"), ("L1", "73313"), ("free", "73314")] {
        let place = Place::new();
        let script = format!(
            "trap '' TERM HUP INT; setsid -f sleep {word}; (setsid sleep {word} &); sleep {word} & sleep {word}"
        );
        for millis in (0..30).step_by(3).chain([150]) {
            let mut agent = std::process::Command::new(env!("CARGO_BIN_EXE_escape"))
                .args(["hold", level])
                .arg(place.work())
                .arg(&script)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 3];
            std::io::Read::read_exact(agent.stdout.as_mut().unwrap(), &mut line).unwrap();
            std::thread::sleep(Duration::from_millis(millis));
            agent.kill().unwrap();
            agent.wait().unwrap();
            // 200 ms are promised, but the machine may be busy.
            std::thread::sleep(Duration::from_millis(200));
            let end = std::time::Instant::now() + Duration::from_millis(400);
            while runs(word) && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!runs(word), "level {level}, killed after {millis} ms");
        }
    }
}

/// As root each command has its own control groups, which are removed when it has ended. Those of a killed agent are removed by the
/// next agent.
// Fault: T06
#[tokio::test]
async fn no_group_is_left_behind() {
    let place = Place::new();
    let mut agent = std::process::Command::new(env!("CARGO_BIN_EXE_escape"))
        .args(["hold", "L3"])
        .arg(place.work())
        .arg("echo started; sleep 100")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 3];
    std::io::Read::read_exact(agent.stdout.as_mut().unwrap(), &mut line).unwrap();
    let maker = format!("confine-{}-", agent.id());
    assert!(until(|| groups(&maker) > 0 || !has_groups()), "no command is limited");
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(until(|| members(&maker) == 0), "processes of a killed agent are left");
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    assert_eq!(groups(&maker), 0, "groups of a killed agent are left");
    let (said, code) = run_at(&place, &sandbox, &found, Limits::default(), "echo here").await;
    assert_eq!((said.as_str(), code), ("here\n", Some(0)));
    assert_eq!(groups(&format!("confine-{}-", std::process::id())), 0, "our own groups are left");
}

fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    holds()
}

/// Tells whether commands get control groups here: as root, if the system has them.
fn has_groups() -> bool {
    let controllers = ["pids/cgroup.procs", "cgroup.subtree_control"];
    rustix::process::geteuid().is_root()
        && controllers.iter().any(|file| Path::new("/sys/fs/cgroup").join(file).exists())
}

/// Returns the control groups of an agent.
fn directories_of(maker: &str) -> Vec<PathBuf> {
    let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"];
    let entries = parents.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let is_of = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(maker);
    entries.filter(is_of).map(|entry| entry.path()).collect()
}

fn groups(maker: &str) -> usize {
    directories_of(maker).len()
}

/// Returns how many processes are in them.
fn members(maker: &str) -> usize {
    let read = |directory: &PathBuf| std::fs::read_to_string(directory.join("cgroup.procs")).ok();
    directories_of(maker).iter().filter_map(read).map(|list| list.lines().count()).sum()
}

fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default())
        .any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

/// A terminal of the client starts our helper with its own environment, which the command does not see.
// R: T3
#[tokio::test]
async fn command_in_a_client_terminal_is_restricted_and_does_not_see_its_environment() {
    for level in [Level::Full, Level::Kernel] {
        let place = Place::new();
        let sandbox = place.sandbox().at_most(level);
        let found = sandbox.found().await;
        assert_eq!(found.level, level, "{:?}", found.missing);
        let outside = place.0.join("outside");
        let script = format!("echo in > file; echo out > {}; env; exit 3", outside.display());
        let spec = shell(&place.work(), &script).env("SHOWN", "yes");
        let profile = place.profile(Limits::default());
        let started = sandbox.for_terminal(&spec, &profile, &found).unwrap();
        let mut command = std::process::Command::new(&started.program);
        command.args(&started.args).current_dir("/").env("SECRET_TOKEN", "x");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}{:?}", output.stderr);
        assert_eq!(std::fs::read_to_string(place.work().join("file")).unwrap(), "in\n");
        assert!(!outside.exists(), "level {level}");
        assert!(said.contains("SHOWN=yes") && !said.contains("SECRET_TOKEN"), "{said}");
        // What was started cannot be started again or cancelled; what was cancelled cannot be started.
        assert_eq!(command.output().unwrap().status.code(), Some(125));
        assert!(!started.cancel());
        let started = sandbox.for_terminal(&spec, &profile, &found).unwrap();
        assert!(started.cancel());
        let mut command = std::process::Command::new(&started.program);
        assert_eq!(command.args(&started.args).output().unwrap().status.code(), Some(125));
    }
    let place = Place::new();
    let sandbox = place.sandbox().at_most(Level::Limits);
    let found = sandbox.found().await;
    let spec = shell(&place.work(), "id");
    let started = sandbox.for_terminal(&spec, &place.profile(Limits::default()), &found).unwrap();
    assert!(started.args.iter().all(|word| word != "id"), "{:?}", started.args);
    let mut command = std::process::Command::new(&started.program);
    let said = command.args(&started.args).output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&said).starts_with("uid="));
}
