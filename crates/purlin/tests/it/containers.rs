//! Commands in containers, with real engines: Docker and Podman, as root and without rights.

mod engine;
mod reports;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::{Agent, DEADLINE, wait_until};
use crate::directory::Directory;
use crate::github::files;
use crate::project_servers::trust;
use crate::session_worktrees::{say, turn};
use engine::{APPLETS, Engine};

pub(crate) use engine::User;

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
        // Somebody else on this machine could run these files as us.
        "cp /bin/busybox tool && chmod 4755 tool".to_owned(),
        "touch tool; chmod u+s tool".to_owned(),
        "mknod pipe p -m 4777".to_owned(),
        "cat own/purlin/keys; ls own/purlin | grep .".to_owned(),
    ]
    .map(|attempt| format!("({attempt}) 2>/dev/null && echo ESCAPED"))
    .into()
}

fn commands_run_in_the_container(engine: &Engine) {
    let (top, project) = engine.project();
    // Our own files, in a place where commands could see them.
    top.write("project/own/purlin/keys", "canary\n");
    engine.own(&top);
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
    let mut agent = engine.agent(&script, &project.join("own"), &engine.workspace()).ready();
    let session = new_session(&mut agent, &project);
    assert_eq!(engine.containers(), [""; 0], "it is started before it is needed");
    let first = say(&mut agent, &session, "1");
    assert!(first.contains(&format!("{}\ncontent\n", project.display())), "{first}");
    assert_eq!(std::fs::read_to_string(project.join("made")).unwrap(), "new\n");
    assert!(say(&mut agent, &session, "2").contains("new"), "the tool sees another file");
    let third = say(&mut agent, &session, "3");
    assert!(third.contains("kept\ndone"), "another container: {third}");
    assert_eq!(engine.containers().len(), 1);
    assert!(say(&mut agent, &session, "4").contains("timeout"), "it was not ended");
    assert!(say(&mut agent, &session, "5").contains("alone"), "a process was left behind");
    let host = engine.host_network();
    let network = say(&mut agent, &session, "6");
    assert!(!first.contains(&host) && network.contains(&host), "{host}: {first} {network}");
    let committed = say(&mut agent, &session, "7");
    assert!(committed.contains("refused") && project.join(".git/made").exists(), "{committed}");
    let limits = say(&mut agent, &session, "8");
    assert!(limits.contains("lo\n(exit"), "{limits}");
    assert!(limits.contains("2048") || !engine.has_limits(), "{limits}");
    for attempt in &attempts {
        let said = say(&mut agent, &session, "escape");
        assert!(!said.contains("\nESCAPED\n") && !said.contains("canary"), "{attempt}: {said}");
    }
    assert!(!project.join(".git/hooks/post-commit").exists() && project.join(".git").is_dir());
    let set_uid = files(&project).into_iter().find(|path| {
        let mode = std::os::unix::fs::MetadataExt::mode(&path.symlink_metadata().unwrap());
        mode & 0o4000 != 0
    });
    assert_eq!(set_uid, None);
    agent.result("session/close", json!({ "sessionId": session }));
    engine.expect_none();
}

fn nothing_is_left_after_a_kill(engine: &Engine) {
    let (top, project) = engine.project();
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

/// While one container starts, the others are paused. Neither the end of the agent nor that of the turn may leave them so.
fn nothing_stays_paused(engine: &Engine) {
    let (top, project) = engine.project();
    // Waits before it starts a container, as long as there is a file.
    let (hold, held) = (top.text("hold"), top.text("held"));
    let slow = top.text("docker-slow");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = run ] && [ -e {hold} ]; then touch {held}; while [ -e {hold} ]; do sleep 0.1; done; fi\nexec docker \"$@\"\n"
    );
    std::fs::write(&slow, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&slow, mode).unwrap();
    let mut workspace = engine.workspace();
    workspace["container"]["engine"] = json!(slow);
    let network = json!({ "command": "echo with network", "network": true, "reason": "r" });
    let script = bash("echo first") + &turn("bash", &network) + &bash("echo again");
    let paused = || engine.text(&["ps", "--filter", "status=paused", "--format", "{{.Names}}"]);
    for is_killed in [false, true] {
        let start = engine.agent(&script, &top.join("data"), &workspace);
        let config = json!({ "workspace": workspace, "permission": { "bash": "allow", "network": "allow" } });
        let mut agent = start.config(config).ready();
        let session = new_session(&mut agent, &project);
        assert!(say(&mut agent, &session, "1").contains("first"));
        std::fs::write(&hold, "").unwrap();
        let turn = agent.prompt(&session, "2");
        wait_until("the second container starts", DEADLINE, || Path::new(&held).exists());
        assert_eq!(paused().lines().count(), 1);
        if is_killed {
            let pid = Pid::from_raw(agent.pid().cast_signed()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        } else {
            agent.note("session/cancel", json!({ "sessionId": session }));
            assert_eq!(agent.reply(turn)["result"]["stopReason"], "cancelled");
        }
        wait_until("the first container is resumed", DEADLINE, || paused().is_empty());
        std::fs::remove_file(&hold).unwrap();
        std::fs::remove_file(&held).unwrap();
        if !is_killed {
            // The model first says what it would have said in the turn that was cancelled.
            say(&mut agent, &session, "3");
            let said = say(&mut agent, &session, "4");
            assert!(said.contains("again"), "{said}");
            agent.result("session/close", json!({ "sessionId": session }));
        }
        engine.expect_none();
    }
}

/// A small MCP server for a shell, which says where it runs.
const SERVER: &str = r#"
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%[,\}]*}
  case $line in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"where","inputSchema":{"type":"object"}}]}}' ;;
  *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"applets: '$(ls /bin | grep -c .)', key: '$KEY' '$(cat own/purlin/keys 2>/dev/null)$( (echo x > .git/hooks/evil) 2>/dev/null && echo ESCAPED)'"}]}}' ;;
  esac
done
"#;

fn server_runs_in_the_container(engine: &Engine) {
    let (top, project) = engine.project();
    // Our own files, in a place where commands could see them.
    top.write("project/own/purlin/keys", "canary\n");
    engine.own(&top);
    let server = json!({ "command": ["/bin/sh", "-c", SERVER], "container": true,
        "environment": { "KEY": "value" } });
    let look =
        "grep -l KEY=value /proc/[0-9]*/environ && echo SEEN; cat own/purlin/keys; echo looked";
    let look = json!({ "command": look, "network": true, "reason": "r" });
    let script = turn("s_where", &json!({})) + &turn("bash", &look);
    let mut agent = engine
        .agent(&script, &project.join("own"), &engine.workspace())
        .config(json!({ "workspace": engine.workspace(), "mcp": { "s": server } }))
        .ready();
    let session = new_session(&mut agent, &project);
    wait_until("the server runs", DEADLINE, || {
        // Not more often: prompts are limited.
        std::thread::sleep(Duration::from_secs(2));
        let said = say(&mut agent, &session, "/mcp");
        assert!(!said.contains("failed"), "{said}");
        said.contains("1 tool")
    });
    let said = say(&mut agent, &session, "where");
    let expected = format!("applets: {}, key: value", APPLETS.len() + 1);
    assert!(said.contains(&expected), "{said}");
    assert!(!said.contains("canary") && !said.contains("ESCAPED"), "{said}");
    let said = say(&mut agent, &session, "look");
    assert!(said.contains("looked") && !said.contains("SEEN"), "{said}");
    assert!(!said.contains("canary"), "{said}");
    assert_eq!(engine.containers().len(), 2, "a command shares the container of a server");
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
    engine.import_from(&root, "purlin-base");
}

/// The agent itself in a container, as an editor starts it, in all dialects.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn agent_runs_in_a_container(engine: &Engine) {
    import_base(engine);
    let (top, project) = engine.project();
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
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut call = |method: &str, params: Value| {
            let call =
                json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params });
            writeln!(input, "{call}").unwrap();
            let mut answers =
                lines.by_ref().map(|line| serde_json::from_str::<Value>(&line).unwrap());
            let answer =
                answers.find(|message| message["id"] == method && message["method"].is_null());
            let answer = answer.unwrap_or_else(|| panic!("{dialect}: no answer to {method}"));
            assert!(answer["error"].is_null(), "{dialect}: {answer}");
            answer["result"].clone()
        };
        let params = json!({ "protocolVersion": version, "clientCapabilities": {} });
        let answer = call("initialize", params);
        assert_eq!(answer["agentInfo"]["name"], "Claude Code Container", "{dialect}: {answer}");
        let is_container = dialect == "container";
        let uri = format!("file://{cwd}");
        let params = match is_container {
            true => json!({ "workspaceUri": uri, "mode": "development" }),
            false => json!({ "cwd": cwd, "mcpServers": [] }),
        };
        let session = call("session/new", params)["sessionId"].clone();
        let text = if is_container { "content" } else { "text" };
        let blocks = json!([{ "type": "text", text: "go" }]);
        let prompt = if dialect == "v1" { "prompt" } else { "content" };
        let answer = call("session/prompt", json!({ "sessionId": session, prompt: blocks }));
        assert_eq!(answer["stopReason"], "end_turn", "{dialect}: {answer}");
        let made = std::fs::read_to_string(project.join("made")).unwrap();
        assert_eq!(made, "y\n", "{dialect}");
        std::fs::remove_file(project.join("made")).unwrap();
        // The end of its input ends the agent, and the engine removes the container.
        drop(input);
        assert!(child.wait().unwrap().success(), "{dialect}");
    }
    // Sessions are on the volume.
    let list = ["run", "--network", "none", "--", cwd, "sessions", "list"];
    let listed = String::from_utf8(program(&list).output().unwrap().stdout).unwrap();
    assert_eq!(listed.lines().filter(|line| line.contains("go")).count(), 3, "{listed}");
    let doctor = ["run", "--network", "none", "--", cwd, "doctor"];
    let doctor = String::from_utf8(program(&doctor).output().unwrap().stdout).unwrap();
    assert!(doctor.contains("sandbox: "), "{doctor}");
    eprintln!("{doctor}");
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
    let engine = Engine::docker();
    commands_run_in_the_container(&engine);
    nothing_is_left_after_a_kill(&engine);
    described_container_is_used_when_trusted(&engine);
    server_runs_in_the_container(&engine);
    limits_are_enforced(&engine);
    nothing_stays_paused(&engine);
}

// R: T7, D1, D2, D3
#[test]
fn agent_itself_runs_in_docker_and_speaks_all_dialects() {
    agent_runs_in_a_container(&Engine::docker());
}

// R: T7
#[test]
fn commands_run_in_podman_and_nothing_escapes_or_stays() {
    let engine = Engine::podman();
    commands_run_in_the_container(&engine);
    nothing_is_left_after_a_kill(&engine);
    described_container_is_used_when_trusted(&engine);
    server_runs_in_the_container(&engine);
}

// R: T7
#[test]
fn commands_run_in_podman_without_rights() {
    let engine = Engine::rootless_podman();
    commands_run_in_the_container(&engine);
    nothing_is_left_after_a_kill(&engine);
}

// R: T7
#[test]
fn commands_run_in_docker_without_rights() {
    let engine = Engine::rootless_docker();
    commands_run_in_the_container(&engine);
    nothing_is_left_after_a_kill(&engine);
}

/// A command that uses too much ends; the next one runs.
fn limits_are_enforced(engine: &Engine) {
    let (top, project) = engine.project();
    let mut workspace = engine.workspace();
    workspace["container"]["memory"] = json!("64m");
    workspace["container"]["processes"] = json!(40);
    workspace["container"]["cpus"] = json!(0.5);
    let quota = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null";
    let script = [
        bash("dd if=/dev/zero of=/dev/null bs=400M count=1; echo code $?"),
        bash("i=0; while [ $i -lt 200 ]; do sleep 4245 & i=$((i+1)); done; echo all of them"),
        bash("while ps | grep -v grep | grep -q 'sleep 4245'; do :; done; echo alone"),
        bash(quota),
    ];
    let mut agent = engine.agent(&script.concat(), &top.join("data"), &workspace).ready();
    let session = new_session(&mut agent, &project);
    let memory = say(&mut agent, &session, "1");
    assert!(memory.contains("code 137"), "{memory}");
    let processes = say(&mut agent, &session, "2");
    assert!(processes.contains("can't fork") && !processes.contains("all of"), "{processes}");
    let after = say(&mut agent, &session, "3");
    assert!(after.contains("alone"), "{after}");
    let cpus = say(&mut agent, &session, "4");
    assert!(cpus.contains("50000"), "{cpus}");
    assert_eq!(engine.containers().len(), 1, "the container was started again");
}

fn described_container_is_used_when_trusted(engine: &Engine) {
    let (top, project) = engine.project();
    top.write("project/.devcontainer/Dockerfile", "FROM purlin-test\nRUN echo built > /built\n");
    top.write("project/.devcontainer/tool/install.sh", "echo \"tool $VERSION\" > /tool\n");
    let described = json!({
        "build": { "dockerfile": "Dockerfile" },
        "features": { "./tool": { "version": "7" } },
        "containerEnv": { "COLOUR": "blue" },
        "workspaceFolder": "/workspaces/project",
        "postCreateCommand": "echo created > /var/created; touch ran-on-create",
        "runArgs": ["--privileged"],
        // The same rules apply under another name, and the host is not reached in other words.
        "mounts": [
            "type=bind,source=${localWorkspaceFolder},target=/other",
            format!("type=volume,source=v,target=/h,volume-opt=type=none,volume-opt=o=bind,volume-opt=device={}", top.display()),
        ],
    });
    top.write("project/.devcontainer/devcontainer.json", &described.to_string());
    let look = "cat /built /tool /var/created /workspaces/project/file; echo $COLOUR; cat /other/file; \
                echo x > /other/.git/hooks/post-commit || echo refused; ls /h";
    let workspace = json!({ "devcontainer": true, "container": { "engine": engine.program } });
    let data = top.join("data");
    let mut agent = engine.agent(&bash(look), &data, &workspace).ready();
    let session = new_session(&mut agent, &project);
    let untrusted = say(&mut agent, &session, "look");
    assert!(untrusted.contains("is not used") && !untrusted.contains("built\n"), "{untrusted}");
    assert!(engine.containers().is_empty() && !project.join("ran-on-create").exists());
    let images = engine.text(&["images"]);
    assert!(!images.contains("devcontainer"), "it was built before it was trusted: {images}");
    drop(agent);

    let shown = trust(&data, &project);
    assert!(shown.contains("RUN echo built") && shown.contains("Trusted."), "{shown}");
    // Trust is for the text that was shown, whatever is in the file when the image is built.
    let script = bash(look)
        + &turn("read", &json!({ "path": "/workspaces/project/file" }))
        + &turn("read", &json!({ "path": "/other/file" }));
    let mut agent = engine.agent(&script, &data, &workspace).ready();
    let session = new_session(&mut agent, &project);
    top.write("project/.devcontainer/Dockerfile", "FROM purlin-test\nRUN echo evil > /built\n");
    let said = say(&mut agent, &session, "look");
    assert!(said.contains("built\ntool 7\ncreated\ncontent\nblue\ncontent\n"), "{said}");
    assert!(said.contains("refused") && !project.join(".git/hooks/post-commit").exists(), "{said}");
    assert!(said.contains("/h: No such file") && !said.contains("secret\n"), "{said}");
    assert!(project.join("ran-on-create").exists());
    assert!(said.contains("`runArgs` is not used"), "{said}");
    for _ in 0..2 {
        let read = say(&mut agent, &session, "read");
        assert!(read.contains("content"), "the path is not translated: {read}");
    }
}
