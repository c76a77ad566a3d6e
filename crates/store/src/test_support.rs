//! Servers for tests, each with a temporary directory: PostgreSQL, from Debian's programs, on a Unix socket; and Durable
//! Objects, on workerd from npm. They end with the test's process.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "it is part of tests: it starts a server, and a test fails if that is not possible"
)]

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::words::Secret;
use postgres::{Client, NoTls};
use tempfile::TempDir;

use crate::postgres::Server;

/// A running server. It ends when this is dropped, and with the test's process.
pub struct Cluster {
    directory: TempDir,
    server: Option<Child>,
    databases: AtomicUsize,
}

impl Cluster {
    /// Makes a new cluster and starts its server.
    pub fn start() -> Cluster {
        let directory = TempDir::new().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        if let Some((user, group)) = account() {
            chown(&data, Some(user), Some(group)).unwrap();
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        let made = program("initdb", directory.path())
            .args([
                "--username=test",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut cluster = Cluster { directory, server: None, databases: AtomicUsize::new(0) };
        cluster.restart();
        cluster
    }

    /// Starts the server, again if it was killed.
    pub fn restart(&mut self) {
        self.kill();
        let started = program("postgres", self.directory.path())
            .arg("-D")
            .arg(self.directory.path().join("data"))
            .arg("-k")
            .arg(self.directory.path())
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=16MB"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.server = Some(started.unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while Client::connect(&self.url(""), NoTls).is_err() {
            assert!(Instant::now() < deadline, "the server did not start");
            // Another process has to come up, so it is polled.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server and its processes at once, without a checkpoint: the next start recovers as after a crash.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let id = rustix::process::Pid::from_child(&server);
            rustix::process::kill_process(id, rustix::process::Signal::QUIT).unwrap();
            server.wait().unwrap();
        }
    }

    /// Returns the URL of the server, with further parameters.
    pub fn url(&self, parameters: &str) -> String {
        let socket = self.directory.path().to_string_lossy().replace('/', "%2F");
        format!("postgres://test@{socket}/postgres{parameters}")
    }

    /// Makes an empty schema and returns a URL that uses it.
    pub fn empty_url(&self) -> String {
        let name = format!("s{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut client = Client::connect(&self.url(""), NoTls).unwrap();
        client.batch_execute(&format!("CREATE SCHEMA {name}")).unwrap();
        self.url(&format!("?options=-csearch_path%3D{name}"))
    }

    /// Makes an empty schema and returns the server that uses it.
    pub fn empty_database(&self) -> Server {
        Server::new(Secret::new(self.empty_url()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the user and the group that the server runs as if we are root, which it refuses to run as.
fn account() -> Option<(u32, u32)> {
    let is_root = rustix::process::geteuid().is_root();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with("postgres:")).filter(|_| is_root)?;
    let mut numbers = line.split(':').skip(2).map(|number| number.parse().unwrap());
    Some((numbers.next().unwrap(), numbers.next().unwrap()))
}

/// Returns the newest installed version of one of the server's programs.
fn installed(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is needed; `cargo xtask test` installs it");
    let newest = versions.map(|version| version.unwrap().path()).max().unwrap();
    newest.join("bin").join(name)
}

fn program(name: &str, directory: &Path) -> Command {
    let program = installed(name);
    let mut command = Command::new("setpriv");
    command.current_dir(directory).args(["--pdeathsig", "KILL"]);
    if let Some((user, group)) = account() {
        command.args([
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".to_owned(),
        ]);
    }
    command.arg("--").arg(program);
    command
}

/// The Worker of `deploy/durable-objects` on workerd.
pub struct Workerd {
    directory: TempDir,
    server: Option<Child>,
    port: u16,
}

/// The token of the Worker in tests.
const TOKEN: &str = "token-for-tests";

impl Workerd {
    /// Starts it without sessions.
    #[must_use]
    pub fn start() -> Workerd {
        let directory = TempDir::new().unwrap();
        // Another process may take the port until it is used; then the start fails, and so does the test.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut workerd = Workerd { directory, server: None, port };
        workerd.restart();
        workerd
    }

    /// Kills it and starts it again with what it has stored.
    pub fn restart(&mut self) {
        self.kill();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = root
            .join("deploy/durable-objects/node_modules/@cloudflare/workerd-linux-64/bin/workerd");
        assert!(program.exists(), "workerd is needed; `cargo xtask test` installs it");
        let started = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .arg("serve")
            .arg(root.join("deploy/durable-objects/workerd.capnp"))
            .arg("--directory-path")
            .arg(format!("disk={}", self.directory.path().display()))
            .arg("--socket-addr")
            .arg(format!("http=127.0.0.1:{}", self.port))
            .env("TOKEN", TOKEN)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.server = Some(started.unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "workerd did not start");
            // Another process has to come up, so it is polled.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Returns its URL, with the token.
    #[must_use]
    pub fn url(&self) -> Secret {
        Secret::new(format!("http://:{TOKEN}@127.0.0.1:{}", self.port))
    }
}

impl Drop for Workerd {
    fn drop(&mut self) {
        self.kill();
    }
}
