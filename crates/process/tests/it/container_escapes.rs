//! Every escape attempt again, in a container of a real Docker, as root without capabilities: the worst case.
//!
//! Needs root and Docker, which `cargo xtask test` installs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::escapes::{am_root, run_in};

const IMAGE: &str = "escape";
/// Far longer than anything should take: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(120);

/// Attempts that may succeed, depending on the engine. They affect only the container; see docs/internals/containers.md.
const MAY_WORK: [&str; 11] =
    ["E134", "E34", "E36", "E37", "E63", "E64", "E65", "E68", "E69", "E74", "E92"];

struct Docker {
    daemon: Child,
    host: String,
    _place: tempfile::TempDir,
}

impl Docker {
    fn start() -> Option<Docker> {
        let removed_on_drop = tempfile::tempdir().unwrap();
        let place = removed_on_drop.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name).to_str().unwrap().to_owned();
        let host = format!("unix://{}", at("s"));
        let log = std::fs::File::create(place.join("log")).unwrap();
        let mut command = Command::new("dockerd");
        command.args(["--bridge=none", "--iptables=false", "--storage-driver=vfs", "--host"]);
        command.arg(&host).args(["--data-root", &at("data"), "--exec-root", &at("x")]);
        command.args(["--pidfile", &at("pid")]).stdout(Stdio::null()).stderr(log);
        let Ok(daemon) = command.spawn() else {
            eprintln!("no Docker here");
            return None;
        };
        let mut docker = Docker { daemon, host, _place: removed_on_drop };
        let end = Instant::now() + DEADLINE;
        while !docker.run(&["info"], &[]) {
            if docker.daemon.try_wait().unwrap().is_some() || Instant::now() > end {
                eprintln!("Docker does not run here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let works = docker.import(&place) && docker.run(&["run", "--rm", IMAGE, "/bin/true"], &[]);
        if !works {
            eprintln!("Docker runs no container here");
        }
        works.then_some(docker)
    }

    fn run(&self, args: &[&str], input: &[u8]) -> bool {
        let mut command = Command::new("docker");
        command.args(args).env("DOCKER_HOST", &self.host);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return false };
        child.stdin.take().unwrap().write_all(input).ok();
        child.wait().unwrap().success()
    }

    /// Makes an image of a static busybox and the libraries of the attempts.
    fn import(&self, place: &Path) -> bool {
        let root = place.join("root");
        for directory in ["bin", "tmp", "var/tmp", "etc", "proc", "root"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        if std::fs::copy("/bin/busybox", root.join("bin/busybox")).is_err() {
            return false;
        }
        for applet in ["sh", "grep", "true", "cat", "ls", "kill"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        let listed = Command::new("ldd").arg(env!("CARGO_BIN_EXE_escape")).output().unwrap().stdout;
        let listed = String::from_utf8(listed).unwrap();
        for path in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            let inside: PathBuf = root.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
            std::fs::copy(path, inside).unwrap();
        }
        let tar = Command::new("tar").arg("-C").arg(&root).args(["-c", "."]).output().unwrap();
        self.run(&["import", "-", IMAGE], &tar.stdout)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.daemon.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        self.daemon.wait().unwrap();
    }
}

// R: T7
#[test]
fn nothing_escapes_from_a_container() {
    assert!(am_root(), "starting Docker needs root");
    let docker = Docker::start().expect("Docker runs: `cargo xtask test` installs it as root");
    let found = run_in("container", true, &[("DOCKER_HOST", &docker.host), ("IMAGE", IMAGE)]);
    assert_eq!(found.changed, Vec::<String>::new(), "something outside changed");
    assert_eq!(found.visitors, "0", "a listener was reached");
    let open = found.verdicts.iter().filter(|(_, (_, verdict))| verdict == "open");
    let others: Vec<_> = open.filter(|(id, _)| !MAY_WORK.contains(&id.as_str())).collect();
    assert!(others.is_empty(), "other attempts work: {others:#?}");
    assert!(found.verdicts.len() >= 80);
    eprintln!("attempts: {}", found.verdicts.len());
}
