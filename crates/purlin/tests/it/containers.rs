//! Commands in containers, with real engines: Docker and Podman. Images are made here, without a registry.
//!
//! Where an engine cannot run at all, because it is missing or lacks rights, its tests say so and end.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, Start, wait_until};
use crate::directory::Directory;
use crate::project_servers::trust;
use crate::session_worktrees::{say, turn};
use crate::worktrees::git;

const IMAGE: &str = "purlin-test";

/// An engine that works only for this test.
struct Engine {
    program: &'static str,
    env: Vec<(&'static str, String)>,
    daemon: Option<Child>,
    /// Also holds what the engine stores.
    place: Directory,
}

impl Engine {
    /// Starts Docker's daemon, with a socket and data of its own.
    #[expect(clippy::disallowed_methods, reason = "an engine that the program under test uses")]
    fn docker() -> Option<Engine> {
        let place = Directory::outside_of_tmp();
        // A socket's path must be short.
        let socket = Directory::new();
        let host = format!("unix://{}", socket.text("s"));
        let log = std::fs::File::create(place.join("log")).unwrap();
        let mut command = Command::new("dockerd");
        command.args(["--bridge=none", "--iptables=false", "--storage-driver=vfs", "--host"]);
        command.arg(&host).args(["--data-root", &place.text("data")]);
        command.args(["--exec-root", &socket.text("x"), "--pidfile", &socket.text("pid")]);
        let daemon = command.stdout(Stdio::null()).stderr(log).spawn().ok()?;
        let env = vec![("DOCKER_HOST", host)];
        let mut engine = Engine { program: "docker", env, daemon: Some(daemon), place };
        // Removed with the engine.
        std::mem::forget(socket);
        let end = Instant::now() + DEADLINE;
        while !engine.run(&["info", "--format", "{{.ServerVersion}}"], None).status.success() {
            let has_ended = engine.daemon.as_mut()?.try_wait().unwrap().is_some();
            if has_ended || Instant::now() > end {
                let log = std::fs::read_to_string(engine.place.join("log")).unwrap();
                eprintln!("no Docker here: {}", log.lines().last().unwrap_or_default());
                return None;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        engine.import().then_some(engine)
    }

    /// Prepares Podman, with data of its own.
    fn podman() -> Option<Engine> {
        let place = Directory::outside_of_tmp();
        place.write(
            "containers.conf",
            "[engine]\nruntime = \"runc\"\n[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n",
        );
        place.write(
            "storage.conf",
            &format!(
                "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
                place.text("data"),
                place.text("run")
            ),
        );
        let env = vec![
            ("CONTAINERS_CONF", place.text("containers.conf")),
            ("CONTAINERS_STORAGE_CONF", place.text("storage.conf")),
        ];
        let engine = Engine { program: "podman", env, daemon: None, place };
        engine.import().then_some(engine)
    }

    #[expect(clippy::disallowed_methods, reason = "an engine that the program under test uses")]
    fn run(&self, args: &[&str], input: Option<&[u8]>) -> Output {
        let mut command = Command::new(self.program);
        command.args(args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(err) => {
                eprintln!("{}: {err}", self.program);
                return Command::new("false").output().unwrap();
            }
        };
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.unwrap_or_default()).ok();
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args, None);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Makes an image from a static busybox, and tries whether a container runs at all.
    #[expect(clippy::disallowed_methods, reason = "tar packs the image")]
    fn import(&self) -> bool {
        let root = self.place.join("root");
        for directory in ["bin", "tmp", "var", "etc", "proc"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        if std::fs::copy("/bin/busybox", root.join("bin/busybox")).is_err() {
            eprintln!("no static busybox here");
            return false;
        }
        for applet in APPLETS {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        let tar = Command::new("tar").arg("-C").arg(&root).args(["-c", "."]).output().unwrap();
        let imported = self.run(&["import", "-", IMAGE], Some(&tar.stdout));
        let tried = self.run(&["run", "--rm", "--network=none", IMAGE, "/bin/true"], None);
        let works = imported.status.success() && tried.status.success();
        if !works {
            let why = [imported.stderr, tried.stderr].concat();
            eprintln!("no {} here: {}", self.program, String::from_utf8_lossy(&why));
        }
        works
    }

    /// Lists the containers that exist.
    fn containers(&self) -> Vec<String> {
        let text = self.text(&["ps", "-a", "--format", "{{.Names}}"]);
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until no container is left.
    fn expect_none(&self) {
        wait_until("no container is left", DEADLINE, || self.containers().is_empty());
    }

    /// Makes the agent's start with this engine.
    fn agent(&self, script: &str, data: &Path, workspace: &Value) -> Start {
        let mut start = Agent::playing(script).storing_in(data);
        for (name, value) in &self.env {
            start = start.env(name, value);
        }
        start.config(json!({ "workspace": workspace, "permission": { "bash": "allow" } }))
    }

    fn workspace(&self) -> Value {
        json!({ "container": { "image": IMAGE, "engine": self.program, "network": "host" } })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let pid = Pid::from_raw(daemon.id().cast_signed()).unwrap();
            kill_process(pid, Signal::TERM).ok();
            daemon.wait().unwrap();
            let host = self.env[0].1.trim_start_matches("unix://").trim_end_matches("/s");
            std::fs::remove_dir_all(host).ok();
        }
    }
}

const APPLETS: [&str; 27] = [
    "sh", "ls", "cat", "sleep", "grep", "id", "echo", "ps", "kill", "touch", "mkdir", "env", "pwd",
    "mount", "mv", "rm", "readlink", "setsid", "true", "mknod", "chmod", "nc", "ln", "hostname",
    "unshare", "chroot", "nproc",
];

fn project() -> (Directory, PathBuf) {
    let top = Directory::outside_of_tmp();
    top.write("project/file", "content\n");
    top.write("secret", "canary\n");
    let project = top.join("project");
    git(&project, &["init", "-q", "-b", "main"]);
    git(&project, &["add", "."]);
    git(&project, &["commit", "-q", "-m", "first"]);
    (top, project)
}

fn new_session(agent: &mut Agent, cwd: &Path) -> String {
    let params = json!({ "cwd": cwd, "mcpServers": [] });
    agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned()
}

fn bash(command: &str) -> String {
    turn("bash", &json!({ "command": command }))
}

/// Attempts to leave the container or to change what commands must not change. Each prints `ESCAPED` if it works.
fn attempts(top: &Directory) -> Vec<String> {
    let secret = top.text("secret");
    [
        format!("cat {secret}"),
        format!("cat ../secret; cat /proc/1/root{secret}; ls /home/* /root/.ssh"),
        "ln -s ../secret link; cat link".to_owned(),
        "echo x > .git/hooks/post-commit".to_owned(),
        "echo x >> .git/config".to_owned(),
        "mv .git moved".to_owned(),
        "rm -rf .git".to_owned(),
        "mount -t tmpfs none /var".to_owned(),
        "mount -o remount,rw,bind .git".to_owned(),
        "unshare -Urm true".to_owned(),
        "mknod /tmp/disk b 8 0".to_owned(),
        "nc -w 1 127.0.0.1 22; nc -w 1 1.1.1.1 80".to_owned(),
        "ls /var/run/docker.sock || ls /run/podman/podman.sock".to_owned(),
        "echo 1 > /proc/sys/kernel/panic".to_owned(),
        "chroot /proc/1/root true".to_owned(),
    ]
    .map(|attempt| format!("({attempt}) 2>/dev/null && echo ESCAPED"))
    .into()
}

fn commands_run_in_the_container(engine: &Engine) {
    let (top, project) = project();
    let network =
        json!({ "command": "readlink /proc/self/ns/net", "network": true, "reason": "r" });
    let commit = "echo x > .git/made; echo x > .git/hooks/h || echo refused";
    let commit = json!({ "command": commit, "git": true, "reason": "r" });
    let late = json!({ "command": "setsid sleep 4242 & sleep 4243", "timeout": 1000 });
    let script = [
        bash(
            "pwd; cat file; echo new > made; echo kept > /var/state; ls /; readlink /proc/self/ns/net",
        ),
        turn("read", &json!({ "path": "made" })),
        bash("cat /var/state; (setsid sleep 4244 &) ; echo done"),
        turn("bash", &late),
        // Waits until the processes of earlier commands are gone.
        bash("while ps | grep -v grep | grep -q 'sleep 424'; do :; done; echo alone"),
        turn("bash", &network),
        turn("bash", &commit),
        bash(
            "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; ls /sys/class/net",
        ),
    ];
    let attempts = attempts(&top);
    let table: String = attempts.iter().map(|attempt| bash(attempt)).collect();
    let script = script.concat() + &table;
    let mut agent = engine.agent(&script, &top.join("data"), &engine.workspace()).ready();
    let session = new_session(&mut agent, &project);
    assert_eq!(engine.containers(), [""; 0], "it is started before it is needed");
    let first = say(&mut agent, &session, "1");
    assert!(first.contains(&format!("{}\ncontent\n", project.display())), "{first}");
    assert_eq!(std::fs::read_to_string(project.join("made")).unwrap(), "new\n");
    assert!(say(&mut agent, &session, "2").contains("new"), "the tool sees another file");
    assert!(say(&mut agent, &session, "3").contains("kept\ndone"), "another container");
    assert_eq!(engine.containers().len(), 1);
    assert!(say(&mut agent, &session, "4").contains("timeout"), "it was not ended");
    assert!(say(&mut agent, &session, "5").contains("alone"), "a process was left behind");
    let host = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    assert!(!first.contains(&host) && say(&mut agent, &session, "6").contains(&host));
    let committed = say(&mut agent, &session, "7");
    assert!(committed.contains("refused") && project.join(".git/made").exists(), "{committed}");
    let limits = say(&mut agent, &session, "8");
    assert!(limits.contains("2048") && limits.contains("lo\n(exit"), "{limits}");
    for attempt in &attempts {
        let said = say(&mut agent, &session, "escape");
        assert!(!said.contains("\nESCAPED\n") && !said.contains("canary"), "{attempt}: {said}");
    }
    assert!(!project.join(".git/hooks/post-commit").exists() && project.join(".git").is_dir());
    agent.result("session/close", json!({ "sessionId": session }));
    engine.expect_none();
}

fn nothing_is_left_after_a_kill(engine: &Engine) {
    let (top, project) = project();
    let run = json!({ "command": "touch started; sleep 5000", "timeout": 600_000 });
    let script = turn("bash", &run);
    let mut agent = engine.agent(&script, &top.join("data"), &engine.workspace()).ready();
    let session = new_session(&mut agent, &project);
    agent.prompt(&session, "go");
    wait_until("the command runs", DEADLINE, || project.join("started").exists());
    assert_eq!(engine.containers().len(), 1);
    let pid = Pid::from_raw(agent.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    engine.expect_none();
}

/// A small MCP server for a shell, which says where it runs.
const SERVER: &str = r#"
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%[,\}]*}
  case $line in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"where","inputSchema":{"type":"object"}}]}}' ;;
  *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"applets: '$(ls /bin | grep -c .)', key: '$KEY'"}]}}' ;;
  esac
done
"#;

fn server_runs_in_the_container(engine: &Engine) {
    let (top, project) = project();
    let server = json!({ "command": ["/bin/sh", "-c", SERVER], "container": true,
        "environment": { "KEY": "value" } });
    let mut agent = engine
        .agent(&turn("s_where", &json!({})), &top.join("data"), &engine.workspace())
        .config(json!({ "workspace": engine.workspace(), "mcp": { "s": server } }))
        .ready();
    let session = new_session(&mut agent, &project);
    wait_until("the server runs", DEADLINE, || {
        // Not more often: prompts are limited.
        std::thread::sleep(Duration::from_secs(2));
        say(&mut agent, &session, "/mcp").contains("1 tool")
    });
    let said = say(&mut agent, &session, "where");
    let expected = format!("applets: {}, key: value", APPLETS.len() + 1);
    assert!(said.contains(&expected), "{said}");
    drop(agent);
    engine.expect_none();
}

/// Makes an image with the libraries that the program needs, to build the agent's image from.
#[expect(clippy::disallowed_methods, reason = "ldd lists the libraries")]
fn import_base(engine: &Engine) {
    let root = engine.place.join("root");
    let listed = Command::new("ldd").arg(env!("CARGO_BIN_EXE_purlin")).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.map(PathBuf::from) {
        let inside = root.join(path.strip_prefix("/").unwrap());
        std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
        std::fs::copy(&path, inside).unwrap();
    }
    std::fs::create_dir_all(root.join("usr/local/bin")).unwrap();
    let tar = Command::new("tar").arg("-C").arg(&root).args(["-c", "."]).output().unwrap();
    assert!(engine.run(&["import", "-", "purlin-base"], Some(&tar.stdout)).status.success());
}

/// The agent itself in a container, as an editor starts it, in all dialects.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn agent_runs_in_a_container(engine: &Engine) {
    import_base(engine);
    let (top, project) = project();
    top.write("project/script.acp", &bash("id -u; touch /usr/x || echo read-only; echo y > made"));
    let program = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
        command.arg("container").args(args).env("XDG_DATA_HOME", top.join("data"));
        command.env("XDG_CONFIG_HOME", top.join("config")).env_remove("DOCKER_HOST");
        command.envs(engine.env.iter().map(|(name, value)| (name, value)));
        command.env("PURLIN_AGENT_NAME", "Claude Code Container");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    let built = program(&["build", "--base", "purlin-base", "--packages", ""]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let script = format!("script:{}", project.join("script.acp").display());
    let cwd = project.to_str().unwrap();
    for (dialect, version) in
        [("v1", json!(1)), ("message-reference", json!(1)), ("container", json!("0.3.1"))]
    {
        let run = ["run", "--network", "none", "--", cwd, "acp", "--model", &script];
        let mut command = program(&run);
        command.args(["--dialect", dialect, "--allow", "all"]);
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let params = json!({ "protocolVersion": version, "clientCapabilities": {} });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        writeln!(input, "{call}").unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let answer: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        let name = &answer["result"]["agentInfo"]["name"];
        assert_eq!(name, "Claude Code Container", "{dialect}: {answer}");
        // The end of its input ends the agent, and the engine removes the container.
        drop(input);
        assert!(child.wait().unwrap().success(), "{dialect}");
    }
    let agent = [env!("CARGO_BIN_EXE_purlin"), "container", "run", "--network", "none", "--", cwd];
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(["run", "go", "--cwd", cwd, "--allow", "all", "--agent"]).args(agent);
    command.args(["acp", "--model", &script]).env("XDG_DATA_HOME", top.join("data"));
    command.envs(engine.env.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("read-only") && text.contains("done"), "{text}");
    assert_eq!(std::fs::read_to_string(project.join("made")).unwrap(), "y\n");
    engine.expect_none();
}

// R: T7
#[test]
fn commands_run_in_docker_and_nothing_escapes_or_stays() {
    let engine = Engine::docker().expect("Docker runs: `cargo xtask test` installs it as root");
    commands_run_in_the_container(&engine);
    nothing_is_left_after_a_kill(&engine);
    described_container_is_used_when_trusted(&engine);
    server_runs_in_the_container(&engine);
}

// R: T7, D1, D2, D3
#[test]
fn agent_itself_runs_in_docker_and_speaks_all_dialects() {
    let engine = Engine::docker().expect("Docker runs: `cargo xtask test` installs it as root");
    agent_runs_in_a_container(&engine);
}

// R: T7
#[test]
fn commands_run_in_podman_and_nothing_escapes_or_stays() {
    let engine = Engine::podman().expect("Podman runs: `cargo xtask test` installs it as root");
    commands_run_in_the_container(&engine);
    nothing_is_left_after_a_kill(&engine);
}

fn described_container_is_used_when_trusted(engine: &Engine) {
    let (top, project) = project();
    top.write("project/.devcontainer/Dockerfile", "FROM purlin-test\nRUN echo built > /built\n");
    top.write("project/.devcontainer/tool/install.sh", "echo \"tool $VERSION\" > /tool\n");
    let described = json!({
        "build": { "dockerfile": "Dockerfile" },
        "features": { "./tool": { "version": "7" } },
        "containerEnv": { "COLOUR": "blue" },
        "workspaceFolder": "/workspaces/project",
        "postCreateCommand": "echo created > /var/created",
        "runArgs": ["--privileged"],
    });
    top.write("project/.devcontainer/devcontainer.json", &described.to_string());
    let look = "cat /built /tool /var/created /workspaces/project/file; echo $COLOUR";
    let workspace = json!({ "devcontainer": true, "container": { "engine": engine.program } });
    let data = top.join("data");
    let mut agent = engine.agent(&bash(look), &data, &workspace).ready();
    let session = new_session(&mut agent, &project);
    let untrusted = say(&mut agent, &session, "look");
    assert!(untrusted.contains("is not used") && !untrusted.contains("built\n"), "{untrusted}");
    drop(agent);

    let shown = trust(&data, &project);
    assert!(shown.contains("RUN echo built") && shown.contains("Trusted."), "{shown}");
    let script = bash(look) + &turn("read", &json!({ "path": "/workspaces/project/file" }));
    let mut agent = engine.agent(&script, &data, &workspace).ready();
    let session = new_session(&mut agent, &project);
    let said = say(&mut agent, &session, "look");
    assert!(said.contains("built\ntool 7\ncreated\ncontent\nblue\n"), "{said}");
    assert!(said.contains("`runArgs` is not used"), "{said}");
    assert!(say(&mut agent, &session, "read").contains("content"), "the path is not translated");
}
