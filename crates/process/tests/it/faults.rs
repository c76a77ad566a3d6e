//! What a command does to itself and to the machine, and what is missing when it is to be run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use process::sandbox::{Found, Level, Limits, Sandbox};
use process::{Error, Spec};
use tokio::io::AsyncReadExt;

use crate::place::{Place, run_at, shell};

/// Runs a script to its end at the strongest level, which must be the strongest there is.
async fn run(name: &str, limits: Limits, script: &str) -> (String, Option<i32>) {
    let place = Place::new(name);
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    assert_eq!(found.level, Level::Full, "{:?}", found.missing);
    run_at(&place, &sandbox, &found, limits, script).await
}

// Fault: T06, T24
#[tokio::test]
async fn a_fork_bomb_runs_into_its_limit() {
    let limits = Limits { processes: 40, ..Limits::default() };
    let script = "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done; echo all";
    let (said, code) = run("forks", limits, script).await;
    assert!(said.contains("fork"), "{said}");
    assert!(!said.contains("all"), "{said}");
    assert_ne!(code, Some(0));
}

// Fault: T07
#[tokio::test]
async fn a_memory_bomb_runs_into_its_limit_and_goes_before_others() {
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let script = "cat /proc/self/oom_score_adj; head -c 1000000000 /dev/zero | tail; echo code $?";
    let (said, _) = run("memory", limits, script).await;
    assert!(said.starts_with("500\n"), "{said}");
    // What it is refused first depends on who counts: the kernel for all processes of root's, or for each.
    let is_told = |words: &&str| said.contains(*words);
    assert!(["Killed\ncode 137", "memory exhausted\ncode 1"].iter().any(is_told), "{said}");
}

/// Each process stays below the limit, all together do not: the system kills one, where it can count that (as root).
// Fault: T20
#[tokio::test]
async fn memory_that_processes_use_together_is_limited_by_a_kill() {
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let one =
        "head -c 40000000 /dev/zero | (tail -c 40000000; echo code $? >&2) | (sleep 1; wc -c)";
    let script = format!("for i in 1 2 3 4; do {one} & done; wait");
    let (said, _) = run("together", limits, &script).await;
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(said.contains("code 137"), is_root, "{said}");
    assert_eq!(said.matches("40000000").count() == 4, !is_root, "{said}");
}

// Fault: T16
#[tokio::test]
async fn a_file_cannot_fill_the_disk() {
    let limits = Limits { file_size: 1 << 20, ..Limits::default() };
    let script = "head -c 9000000 /dev/zero > big; echo; wc -c < big; head -c 9000000 /dev/zero > /tmp/a; \
                  head -c 900000 /dev/zero > /tmp/b; cat /tmp/a /tmp/b | wc -c";
    let (said, _) = run("disk", limits, script).await;
    let sizes: Vec<u64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert_eq!(sizes[0], 1 << 20, "{said}");
    // The private folder as a whole has the same limit.
    assert!(sizes[1] <= 1 << 20, "{said}");
}

// Fault: T17
#[tokio::test]
async fn limits_and_privileges_cannot_be_raised() {
    let script = "ulimit -n 100000 || echo refused; ulimit -Hn; grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status";
    let (said, _) = run("limits", Limits::default(), script).await;
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
    let (said, code) = run("orphans", Limits::default(), script).await;
    assert_eq!(code, Some(0), "{said}");
    let left: u64 = said.lines().last().unwrap().trim().parse().unwrap();
    assert!(left < 100, "{left} zombies");
}

// Fault: T18
#[tokio::test]
async fn without_its_helper_a_command_does_not_run() {
    let place = Place::new("helper");
    let helper = place.copy(env!("CARGO_BIN_EXE_escape"));
    let sandbox = Sandbox::new(helper.clone(), place.0.join("scratch"));
    let found = sandbox.found().await;
    assert_eq!(found.level, Level::Full, "{:?}", found.missing);
    std::fs::remove_file(&helper).unwrap();
    let spec = shell(&place.work(), "touch ran");
    let refused = sandbox.spawn(&spec, &place.profile(Limits::default()), &found);
    assert!(matches!(refused, Err(Error::NoHelper { .. })), "{refused:?}");
    assert!(!place.work().join("ran").exists());
    // Nothing is left that could hold a command back, and that is what is found.
    let now = sandbox.found().await;
    assert_eq!(now.level, Level::None);
    assert_eq!(now.missing.len(), 3, "{:?}", now.missing);
}

// Fault: T18
#[tokio::test]
async fn a_helper_that_does_not_restrict_is_not_believed() {
    let place = Place::new("liar");
    let helper = place.copy("/bin/true");
    let sandbox = Sandbox::new(helper, place.0.join("scratch"));
    assert_eq!(sandbox.found().await.level, Level::None);
    // Also one that worked when it was tried.
    let found = Found { level: Level::Kernel, missing: Vec::new(), bubblewrap: None };
    let spec = shell(&place.work(), "touch ran");
    let mut child = sandbox.spawn(&spec, &place.profile(Limits::default()), &found).unwrap();
    assert!(matches!(child.wait().await, Err(Error::NotConfined)));
}

// Fault: T19
#[tokio::test]
async fn without_bubblewrap_the_level_drops() {
    let place = Place::new("bubblewrap");
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
async fn a_program_that_is_still_being_written_is_waited_for() {
    let place = Place::new("busy");
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
async fn a_protected_link_is_refused() {
    let place = Place::new("link");
    std::fs::create_dir(place.0.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.0.join("elsewhere"), place.work().join(".git")).unwrap();
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    let mut profile = place.profile(Limits::default());
    profile.protected = vec![place.work().join(".git")];
    let refused = sandbox.spawn(&shell(&place.work(), "true"), &profile, &found);
    assert!(matches!(refused, Err(Error::Unprotected { .. })), "{refused:?}");
}

/// Without a process table of its own a command still leaves nobody behind, however it hides.
// Fault: T05
#[tokio::test]
async fn a_session_of_its_own_does_not_outlive_a_command_at_any_level() {
    for (level, word) in [(Level::Kernel, "73301"), (Level::Limits, "73302")] {
        let place = Place::new(&format!("left-{word}"));
        let sandbox = place.sandbox().at_most(level);
        let found = sandbox.found().await;
        assert_eq!(found.level, level, "{:?}", found.missing);
        let script = format!(
            "(setsid sh -c 'setsid sleep {word} & setsid sleep {word} &' &); sleep 0.3; exit 4"
        );
        let (said, code) = run_at(&place, &sandbox, &found, Limits::default(), &script).await;
        assert_eq!(code, Some(4), "{said}");
        assert!(!runs(word), "level {level}");
        // And when it is killed.
        let spec = shell(&place.work(), &format!("setsid sleep {word} & echo ready; sleep {word}"));
        let mut child = sandbox.spawn(&spec, &place.profile(Limits::default()), &found).unwrap();
        let mut line = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut line).await.unwrap();
        child.kill();
        child.wait().await.unwrap();
        assert!(!runs(word), "level {level}");
    }
}

/// Killed at any moment, the agent leaves nothing behind: not what ignores requests, not what made a session of its own.
// R: W23
// Fault: M15
#[test]
fn nothing_outlives_a_killed_agent_at_any_level() {
    for (level, word) in [("L3", "73311"), ("L2", "73312"), ("L1", "73313"), ("free", "73314")] {
        let place = Place::new(&format!("killed-{word}"));
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
            // Promised are 200 ms, in which some may only just begin; the machine may be busy.
            std::thread::sleep(Duration::from_millis(200));
            let end = std::time::Instant::now() + Duration::from_millis(400);
            while runs(word) && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!runs(word), "level {level}, killed after {millis} ms");
        }
    }
}

/// As root each command has groups of its own, which are removed when it has ended. Those of an agent that was killed are
/// removed by the next one.
// Fault: T06
#[tokio::test]
async fn no_group_is_left_behind() {
    let place = Place::new("groups");
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
    assert!(until(|| groups(&maker) > 0 || !has_groups()), "nobody is limited");
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(until(|| members(&maker) == 0), "processes of a killed agent are left");
    let sandbox = place.sandbox();
    let found = sandbox.found().await;
    assert_eq!(groups(&maker), 0, "groups of a killed agent are left");
    let (said, code) = run_at(&place, &sandbox, &found, Limits::default(), "echo here").await;
    assert_eq!((said.as_str(), code), ("here\n", Some(0)));
    assert_eq!(groups(&format!("confine-{}-", std::process::id())), 0, "groups of ours are left");
}

fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    holds()
}

/// Whether commands get groups here: as root, where the system has them.
fn has_groups() -> bool {
    let controllers = ["pids/cgroup.procs", "cgroup.subtree_control"];
    rustix::process::geteuid().is_root()
        && controllers.iter().any(|file| Path::new("/sys/fs/cgroup").join(file).exists())
}

/// The groups of an agent.
fn folders_of(maker: &str) -> Vec<PathBuf> {
    let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"];
    let entries = parents.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let is_of = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(maker);
    entries.filter(is_of).map(|entry| entry.path()).collect()
}

fn groups(maker: &str) -> usize {
    folders_of(maker).len()
}

/// How many processes are in them.
fn members(maker: &str) -> usize {
    let read = |folder: &PathBuf| std::fs::read_to_string(folder.join("cgroup.procs")).ok();
    folders_of(maker).iter().filter_map(read).map(|list| list.lines().count()).sum()
}

fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default())
        .any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

/// Somebody else's terminal starts our helper, with that terminal's environment and input, and nothing gets out.
// R: T3
#[tokio::test]
async fn a_command_in_a_terminal_of_others_is_restricted_and_sees_none_of_its_environment() {
    for level in [Level::Full, Level::Kernel] {
        let place = Place::new(&format!("terminal-{level}"));
        let sandbox = place.sandbox().at_most(level);
        let found = sandbox.found().await;
        assert_eq!(found.level, level, "{:?}", found.missing);
        let outside = place.0.join("outside");
        let script = format!("echo in > file; echo out > {}; env; exit 3", outside.display());
        let spec = shell(&place.work(), &script).env("SHOWN", "yes");
        let profile = place.profile(Limits::default());
        let started = sandbox.for_terminal(&spec, &profile, &found, "the title").unwrap();
        let mut command = std::process::Command::new(&started.program);
        command.args(&started.args).current_dir("/").env("SECRET_TOKEN", "x");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}{:?}", output.stderr);
        assert_eq!(std::fs::read_to_string(place.work().join("file")).unwrap(), "in\n");
        assert!(!outside.exists(), "level {level}");
        assert!(said.contains("SHOWN=yes") && !said.contains("SECRET_TOKEN"), "{said}");
        // What was read once cannot be started again, nor taken back; what was taken back cannot be started.
        assert_eq!(command.output().unwrap().status.code(), Some(125));
        assert!(!started.take_back());
        let started = sandbox.for_terminal(&spec, &profile, &found, "the title").unwrap();
        assert!(started.take_back());
        let mut command = std::process::Command::new(&started.program);
        assert_eq!(command.args(&started.args).output().unwrap().status.code(), Some(125));
    }
    let place = Place::new("terminal-none");
    let sandbox = place.sandbox().at_most(Level::Limits);
    let found = sandbox.found().await;
    let spec = shell(&place.work(), "id");
    let refused = sandbox.for_terminal(&spec, &place.profile(Limits::default()), &found, "id");
    assert!(matches!(refused, Err(Error::NotConfined)));
}
