//! The time that a command in a running container takes, beside `docker exec` alone.

#![expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]

use std::io::Write;
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::child::Child;
use super::programs::Programs;
use super::table::{Goal, Row};

const ROUNDS: usize = 7;
const COMMANDS: usize = 10;
/// The name of the image; `in_process` knows it, too.
const IMAGE: &str = "purlin-bench";
/// The container for `docker exec` alone.
const PLAIN: &str = "plain";

/// Measures `true` in a container that runs already, in wall time: the work is done by the engine.
pub(crate) fn container(programs: &Programs) -> Result<Vec<Row>> {
    crate::needs::containers()?;
    let docker = Docker::start()?;
    let (mut ours, mut plain, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (with, without) = (docker.through_purlin(programs)?, docker.alone()?);
        ours.push(with);
        plain.push(without);
        more.push(with - without);
    }
    Ok(vec![
        Row::new("`true` in a running container", "ms", ours).beside("`docker exec`", plain),
        Row::new("what Purlin adds", "ms", more).goal(Goal::AtMost(60.0)),
    ])
}

/// A Docker of our own.
struct Docker {
    daemon: Process,
    host: String,
    place: std::path::PathBuf,
}

impl Docker {
    fn start() -> Result<Docker> {
        let place = crate::temporary::directory().join(format!("docker-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let at = |name: &str| place.join(name).display().to_string();
        let host = format!("unix://{}", at("s"));
        let mut command = Command::new("dockerd");
        command.args(["--bridge=none", "--iptables=false", "--ip6tables=false"]);
        command.args(["--storage-driver=vfs", "--host", &host, "--data-root", &at("data")]);
        command.args(["--exec-root", &at("x"), "--pidfile", &at("pid")]);
        let daemon = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let daemon = daemon.context("cannot start dockerd, which needs root")?;
        let docker = Docker { daemon, host, place };
        let end = Instant::now() + Duration::from_secs(60);
        while docker.run(&["info"], &[]).is_err() {
            ensure!(Instant::now() < end, "dockerd does not answer; it needs root");
            std::thread::sleep(Duration::from_millis(100));
        }
        docker.import()?;
        let forever = ["run", "-d", "--network=none", "--name", PLAIN, IMAGE, "/bin/sleep", "9999"];
        docker.run(&forever, &[])?;
        Ok(docker)
    }

    fn run(&self, args: &[&str], input: &[u8]) -> Result<()> {
        let mut command = Command::new("docker");
        command.args(args).env("DOCKER_HOST", &self.host);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        child.stdin.take().context("it has an input")?.write_all(input)?;
        ensure!(child.wait()?.success(), "docker {} failed", args.join(" "));
        Ok(())
    }

    /// Makes the image from a static busybox.
    fn import(&self) -> Result<()> {
        let root = self.place.join("root");
        for directory in ["bin", "tmp", "var/tmp"] {
            std::fs::create_dir_all(root.join(directory))?;
        }
        std::fs::copy("/bin/busybox", root.join("bin/busybox"))?;
        for applet in ["sh", "true", "sleep", "grep"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet))?;
        }
        let tar = Command::new("tar").arg("-C").arg(&root).args(["-c", "."]).output()?;
        self.run(&["import", "-", IMAGE], &tar.stdout)
    }

    /// Returns the milliseconds per command in a container of Purlin's.
    fn through_purlin(&self, programs: &Programs) -> Result<f64> {
        let arguments = [&format!("container={}", self.host), &COMMANDS.to_string()];
        let mut child =
            Child::start(&programs.in_process, &arguments.map(String::as_str), &self.place)?;
        child.read()?;
        let start = Instant::now();
        child.write("go")?;
        child.read()?;
        let took = start.elapsed();
        child.end()?;
        Ok(took.as_secs_f64() * 1e3 / COMMANDS as f64)
    }

    /// Returns the milliseconds per `docker exec`.
    fn alone(&self) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..COMMANDS {
            self.run(&["exec", PLAIN, "/bin/true"], &[])?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3 / COMMANDS as f64)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        drop(self.run(&["rm", "-f", PLAIN], &[]));
        // The daemon ends its containers and its children when it is asked to end.
        let id = self.daemon.id().to_string();
        drop(Command::new("kill").arg(id).status());
        drop(self.daemon.wait());
        drop(std::fs::remove_dir_all(&self.place));
    }
}
