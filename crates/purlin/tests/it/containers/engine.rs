//! Engines that work only for a test: Docker and Podman, with and without the rights of root. Images are made here, without a registry.

#![expect(clippy::disallowed_methods, reason = "engines that the program under test uses")]

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, Start, wait_until};
use crate::directory::Directory;
use crate::worktrees::git;

pub(super) const IMAGE: &str = "purlin-test";
/// The user without rights who runs engines if the tests run as root; `cargo xtask test` makes it.
const USER: &str = "purlin-test";

/// The programs in the image, beside the static busybox itself.
pub(super) const APPLETS: [&str; 30] = [
    "sh", "ls", "cat", "sleep", "grep", "id", "echo", "ps", "kill", "touch", "mkdir", "env", "pwd",
    "mount", "mv", "rm", "readlink", "setsid", "true", "mknod", "chmod", "nc", "ln", "hostname",
    "unshare", "chroot", "nproc", "cp", "dd", "head",
];

/// A user of this machine.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) home: PathBuf,
}

impl User {
    /// Finds the user that the tests use as one without rights. `None` if the tests themselves run without.
    fn without_rights() -> Option<User> {
        if !geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|line| line.starts_with(&format!("{USER}:")));
        let line = line.expect("the user purlin-test exists: `cargo xtask test` makes it as root");
        let words: Vec<&str> = line.split(':').collect();
        Some(User { id: words[2].parse().unwrap(), home: words[5].into() })
    }

    /// Gives everything in a directory to this user.
    pub(crate) fn own(&self, path: &Path) {
        std::os::unix::fs::lchown(path, Some(self.id), Some(self.id)).unwrap();
        if path.is_dir() && !path.is_symlink() {
            std::fs::read_dir(path).unwrap().for_each(|entry| self.own(&entry.unwrap().path()));
        }
    }
}

/// An engine that works only for this test.
pub(super) struct Engine {
    pub(super) program: &'static str,
    pub(super) env: Vec<(&'static str, String)>,
    daemon: Option<Child>,
    /// Who runs it, if it is not us.
    user: Option<User>,
    /// What the agent's program is for this user.
    agent: PathBuf,
    /// Also has what the engine stores.
    pub(super) place: Directory,
}

impl Engine {
    /// Starts Docker's daemon as root, with a socket and data of its own.
    pub(super) fn docker() -> Engine {
        assert!(geteuid().is_root(), "starting Docker needs root; see CONTRIBUTING.md");
        let engine = Engine::new("docker", None);
        let host = format!("unix://{}/s", engine.env_of("XDG_RUNTIME_DIR"));
        let command = Command::new("dockerd");
        engine.with_daemon(command, host)
    }

    /// Starts Docker's daemon without rights, in a user namespace.
    pub(super) fn rootless_docker() -> Engine {
        let engine = Engine::new("docker", User::without_rights());
        let runtime = engine.env_of("XDG_RUNTIME_DIR");
        let mut command = Command::new("rootlesskit");
        command.args(["--net=host", "--copy-up=/etc", "--copy-up=/run"]);
        // The directories of root's Docker, which may have run here, are links now. The network must be one of the new namespace's own.
        let script = "rm -f /run/docker /run/containerd /run/xtables.lock; exec unshare --net dockerd --rootless \"$@\"";
        command.arg(format!("--state-dir={runtime}/kit")).args(["sh", "-c", script, "sh"]);
        engine.with_daemon(command, format!("unix://{runtime}/s"))
    }

    fn with_daemon(mut self, mut command: Command, host: String) -> Engine {
        let runtime = self.env_of("XDG_RUNTIME_DIR");
        let log = std::fs::File::create(self.place.join("log")).unwrap();
        command.args(["--bridge=none", "--iptables=false", "--ip6tables=false"]);
        command.args(["--ip-forward=false", "--storage-driver=vfs", "--host", &host]);
        command.args(["--data-root", &self.place.text("data")]);
        command.arg(format!("--exec-root={runtime}/x")).arg(format!("--pidfile={runtime}/pid"));
        self.as_user(&mut command);
        self.daemon = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        self.env.push(("DOCKER_HOST", host));
        let end = Instant::now() + DEADLINE;
        while !self.run(&["info"], None).status.success() {
            let has_ended = self.daemon.as_mut().unwrap().try_wait().unwrap().is_some();
            let log = std::fs::read_to_string(self.place.join("log")).unwrap();
            assert!(!has_ended && Instant::now() < end, "Docker does not run here: {log}");
            std::thread::sleep(Duration::from_millis(100));
        }
        self.import();
        self
    }

    /// Prepares Podman with the rights of the tests, and with data of its own.
    pub(super) fn podman() -> Engine {
        Engine::new("podman", None).with_storage()
    }

    /// Prepares Podman without rights.
    pub(super) fn rootless_podman() -> Engine {
        Engine::new("podman", User::without_rights()).with_storage()
    }

    fn with_storage(mut self) -> Engine {
        let (place, runtime) = (&self.place, self.env_of("XDG_RUNTIME_DIR"));
        // A machine for tests may not have the right to raise limits.
        place.write(
            "containers.conf",
            "[engine]\nruntime = \"runc\"\n[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n",
        );
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{data}\"\nrootless_storage_path = \"{data}\"\nrunroot = \"{runtime}/run\"\n",
            data = place.text("data"),
        );
        place.write("storage.conf", &storage);
        let files = ["containers.conf", "storage.conf"].map(|name| place.text(name));
        self.env.extend(["CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"].into_iter().zip(files));
        self.own(&self.place);
        self.import();
        self
    }

    fn new(program: &'static str, user: Option<User>) -> Engine {
        let place = match &user {
            Some(user) => Directory::below(&user.home),
            None => Directory::outside_of_tmp(),
        };
        // The path of a socket must be short.
        let runtime = Directory::new().kept();
        let mut env = vec![("XDG_RUNTIME_DIR", runtime.to_str().unwrap().to_owned())];
        let mut agent = PathBuf::from(env!("CARGO_BIN_EXE_purlin"));
        if let Some(user) = &user {
            // The directory of the build may be in one that only root can enter.
            let copy = place.join("purlin");
            if std::fs::hard_link(&agent, &copy).is_err() {
                std::fs::copy(&agent, &copy).unwrap();
            }
            agent = copy;
            env.push(("HOME", place.to_str().unwrap().to_owned()));
            user.own(&runtime);
            std::os::unix::fs::chown(&*place, Some(user.id), Some(user.id)).unwrap();
        }
        Engine { program, env, daemon: None, user, agent, place }
    }

    fn env_of(&self, name: &str) -> String {
        self.env.iter().find(|(known, _)| *known == name).unwrap().1.clone()
    }

    fn as_user(&self, command: &mut Command) {
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(&*self.place);
        if let Some(user) = &self.user {
            command.uid(user.id).gid(user.id);
        }
    }

    /// Gives a directory to who runs the engine.
    pub(super) fn own(&self, path: &Path) {
        if let Some(user) = &self.user {
            std::fs::read_dir(path).unwrap().for_each(|entry| {
                let path = entry.unwrap().path();
                // The program is the same file as ours.
                if path != self.agent {
                    user.own(&path);
                }
            });
            std::os::unix::fs::chown(path, Some(user.id), Some(user.id)).unwrap();
        }
    }

    pub(super) fn run(&self, args: &[&str], input: Option<&[u8]>) -> Output {
        let mut command = Command::new(self.program);
        self.as_user(command.args(args));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("`cargo xtask test` installs the engines as root");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.unwrap_or_default()).ok();
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    pub(super) fn text(&self, args: &[&str]) -> String {
        let output = self.run(args, None);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Makes an image from a static busybox, and tries whether a container runs at all.
    fn import(&self) {
        let root = self.place.join("root");
        for directory in ["bin", "tmp", "var", "etc", "proc"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        // Whoever the user inside is.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(root.join("var"), mode).unwrap();
        std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("a static busybox");
        for applet in APPLETS {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        self.import_from(&root, IMAGE);
        let tried = self.run(&["run", "--rm", "--network=none", IMAGE, "/bin/true"], None);
        let why = String::from_utf8_lossy(&tried.stderr);
        assert!(tried.status.success(), "{} does not run here: {why}", self.program);
    }

    /// Makes an image from a directory.
    pub(super) fn import_from(&self, root: &Path, image: &str) {
        let tar = Command::new("tar").arg("-C").arg(root).args(["-c", "."]).output().unwrap();
        let imported = self.run(&["import", "-", image], Some(&tar.stdout));
        let why = String::from_utf8_lossy(&imported.stderr);
        assert!(imported.status.success(), "{}: {why}", self.program);
    }

    /// Returns what containers on the network of the host see.
    pub(super) fn host_network(&self) -> String {
        let look = ["/bin/readlink", "/proc/self/ns/net"];
        let run = ["run", "--rm", "--network=host", IMAGE];
        self.text(&[&run[..], &look].concat()).trim().to_owned()
    }

    /// Ends the processes that were started for this engine, which are about to lose its directory.
    fn end_users_of_place(&self) {
        let place = self.place.text("data");
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(id) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&words).contains(&place) {
                kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).ok();
            }
        }
    }

    /// Lists the containers that exist.
    pub(super) fn containers(&self) -> Vec<String> {
        let text = self.text(&["ps", "-a", "--format", "{{.Names}}"]);
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until no container is left.
    pub(super) fn expect_none(&self) {
        wait_until("no container is left", DEADLINE, || self.containers().is_empty());
    }

    /// Tells whether it can limit memory and processes here.
    pub(super) fn has_limits(&self) -> bool {
        match self.program {
            "podman" => {
                let text = self.text(&["info", "--format", "{{.Host.CgroupControllers}}"]);
                text.contains("memory") && text.contains("pids")
            }
            _ => {
                self.text(&["info", "--format", "{{.MemoryLimit}}{{.PidsLimit}}"]).trim()
                    == "truetrue"
            }
        }
    }

    /// Makes the agent's start with this engine.
    pub(super) fn agent(&self, script: &str, data: &Path, workspace: &Value) -> Start {
        let mut start = Agent::playing(script).storing_in(data);
        for (name, value) in &self.env {
            start = start.env(name, value);
        }
        if let Some(user) = &self.user {
            start = start.run_by(user, &self.agent);
        }
        start.config(json!({ "workspace": workspace, "permission": { "bash": "allow" } }))
    }

    pub(super) fn workspace(&self) -> Value {
        json!({ "container": { "image": IMAGE, "engine": self.program, "network": "host" } })
    }

    /// Makes a git repository, beside a file that commands must not see. It belongs to who runs the engine.
    pub(super) fn project(&self) -> (Directory, PathBuf) {
        let top = match &self.user {
            Some(user) => Directory::below(&user.home),
            None => Directory::outside_of_tmp(),
        };
        top.write("project/file", "content\n");
        top.write("secret", "canary\n");
        std::fs::create_dir(top.join("data")).unwrap();
        let project = top.join("project");
        git(&project, &["init", "-q", "-b", "main"]);
        git(&project, &["add", "."]);
        git(&project, &["commit", "-q", "-m", "first"]);
        self.own(&top);
        (top, project)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let pid = Pid::from_raw(daemon.id().cast_signed()).unwrap();
            kill_process(pid, Signal::TERM).ok();
            daemon.wait().unwrap();
        }
        if self.program == "podman" {
            // Ends the process that keeps the user's namespace, and what still cleans up.
            self.run(&["system", "migrate"], None);
            self.end_users_of_place();
        }
        std::fs::remove_dir_all(self.env_of("XDG_RUNTIME_DIR")).ok();
    }
}
