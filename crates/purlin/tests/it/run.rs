//! `purlin run`: what goes into a prompt, what is allowed, what is printed, and how it exits.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::directory::Directory;

/// A user with a project and a scripted model.
struct User(Directory);

impl User {
    fn new(script: &str) -> User {
        let home = Directory::new();
        std::fs::create_dir(home.join("w")).unwrap();
        std::fs::write(home.join("script"), script).unwrap();
        User(home)
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    fn command(&self, arguments: &[&str]) -> Command {
        // In a session of its own, so that no question reaches the terminal of whoever runs the tests.
        let mut command = Command::new("setsid");
        command.args(["--wait", env!("CARGO_BIN_EXE_purlin"), "run"]).args(arguments);
        command.current_dir(self.0.join("w")).stdin(Stdio::null());
        command.env_clear().env("HOME", &*self.0).env("PATH", "/usr/bin:/bin");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let model = format!("script:{}", self.0.join("script").display());
        self.command(&[&["--model", &model], arguments].concat()).output().unwrap()
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let model = format!("script:{}", self.0.join("script").display());
        let mut command = self.command(&[&["--model", &model], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // The program may end before it has read everything.
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).ok());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    /// Runs a prompt and returns the session as it is stored.
    fn stored(&self, arguments: &[&str], input: &str) -> String {
        let arguments = [arguments, &["--output-format", "json"]].concat();
        let ran = self.run_with_input(&arguments, input);
        let session = object(&ran)["session"].as_str().unwrap().to_owned();
        #[expect(
            clippy::disallowed_methods,
            reason = "the program under test is no child of an agent"
        )]
        let mut export = Command::new(env!("CARGO_BIN_EXE_purlin"));
        export.args(["sessions", "export", &session]).env_clear().env("HOME", &*self.0);
        out(&export.output().unwrap()).to_owned()
    }

    /// Runs another agent: a shell script that answers each line of its input with one of these.
    fn run_agent(&self, arguments: &[&str], agent: &Path) -> Output {
        let agent = agent.display().to_string();
        self.command(&[arguments, &["--agent", "sh", &agent]].concat()).output().unwrap()
    }
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The object that is printed at the end.
fn object(output: &Output) -> Value {
    let last = out(output).lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{output:?}"))
}

// R: P1
#[test]
fn stdin_is_the_prompt_or_its_context() {
    let user = User::new("model echo\n");
    let output = user.run_with_input(&["-"], "from stdin");
    assert_eq!((out(&output), output.status.code()), ("from stdin\n", Some(0)), "{output:?}");
    assert_eq!(out(&user.run_with_input(&[], "also from stdin")), "also from stdin\n");
    let stored = user.stored(&["explain:"], "a log line");
    assert!(stored.contains("explain:") && stored.contains("a log line"), "{stored}");
    let output = user.run_with_input(&[], " \n");
    assert!(err(&output).contains("the prompt is empty"), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
}

/// A prompt may be longer than an argument can be, and than the window of the model: then it is a file.
#[test]
fn prompt_from_stdin_may_have_any_length() {
    let user = User::new("model window 200000\nmodel text \"Read.\"\nmodel loop\n");
    for repeated in [40_000, 300_000] {
        let long = "long text ".repeat(repeated);
        let output = user.run_with_input(&["-"], &long);
        assert_eq!((out(&output), output.status.code()), ("Read.\n", Some(0)), "{}", err(&output));
    }
}

/// Long input is a file in a directory of its own, which the session has besides the project.
#[test]
fn long_context_from_stdin_is_a_file() {
    let user = User::new("model text \"Read.\"\n");
    let long = "a line of the log\n".repeat(50_000);
    let stored = user.stored(&["explain:"], &long);
    let link = stored.lines().find(|line| line.contains("stdin, 900000 bytes"));
    let link = link.unwrap_or_else(|| panic!("{stored}"));
    let (_, path) = link.split_once("file://").unwrap();
    assert!(!Path::new(path.trim_end_matches(')')).exists(), "removed at the end: {path}");
}

// R: P1
#[test]
fn files_and_images_are_attached() {
    let user = User::new("model echo\n");
    let work = user.0.join("w");
    std::fs::write(work.join("a.txt"), "text of a").unwrap();
    std::fs::write(work.join("b.txt"), "text of b").unwrap();
    std::fs::write(work.join("c.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let stored = user.stored(&["compare @b.txt.", "-f", "a.txt", "--image", "c.png"], "");
    assert!(stored.contains("text of a") && stored.contains("text of b"), "{stored}");
    assert!(stored.contains("*(image)*"), "{stored}");
    for (arguments, words) in [
        (["x", "--file", "none.txt"], "file not found: none.txt"),
        (["x", "--image", "a.txt"], "not a PNG, JPEG, GIF or WebP image"),
    ] {
        let output = user.run(&arguments);
        assert!(err(&output).contains(words), "{output:?}");
        assert_eq!(output.status.code(), Some(2));
    }
}

// R: S6
#[test]
fn session_is_continued_by_directory_or_by_id() {
    let user = User::new("model echo\nmodel loop\n");
    let first = object(&user.run(&["one", "--output-format", "json"]));
    let session = first["session"].as_str().unwrap();
    assert_eq!((&first["text"], &first["stopReason"]), (&json!("one"), &json!("end_turn")));
    let second = object(&user.run(&["-c", "two", "--output-format", "json"]));
    assert_eq!((second["session"].as_str(), &second["text"]), (Some(session), &json!("two")));
    let short = &session[..13];
    let third = object(&user.run(&["--resume", short, "three", "--output-format", "json"]));
    assert_eq!(third["session"], session);
    let none = user.run(&["--resume", "ffff", "x"]);
    assert!(err(&none).contains("session not found: ffff"), "{none:?}");
    assert_eq!(none.status.code(), Some(2));
    std::fs::create_dir(user.0.join("other")).unwrap();
    let other = user.0.join("other").display().to_string();
    let none = user.run(&["-c", "x", "--cwd", &other]);
    assert!(err(&none).contains("no stored session in"), "{none:?}");
}

// R: P1
#[test]
fn final_object_has_usage_cost_and_changed_files() {
    let user = User::new(
        "model usage {\"input\":100,\"output\":20}\n\
         model tool write {\"path\":\"new.txt\",\"content\":\"x\"}\n\
         model text \"Done.\"\n",
    );
    let output = user.run(&["go", "--allow", "edit", "--output-format", "stream-json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["update"]["sessionUpdate"] == "tool_call"), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "result");
    assert_eq!(last["usage"]["inputTokens"], 100, "{last}");
    assert_eq!(last["usage"]["outputTokens"], 20, "{last}");
    assert_eq!(last["filesChanged"], json!([user.0.join("w/new.txt")]), "{last}");
    assert_eq!((&last["text"], &last["exitCode"]), (&json!("Done."), &json!(0)));
    assert!(user.0.join("w/new.txt").exists());
}

const WRITE: &str =
    "model tool write {\"path\":\"new.txt\",\"content\":\"x\"}\nmodel text \"Done.\"\n";

// R: T1, T2
#[test]
fn lists_allow_and_deny() {
    let written = |user: &User| user.0.join("w/new.txt").exists();
    for (arguments, code, is_written) in [
        (&["go"][..], 3, false),
        (&["go", "--allow", "edit"], 0, true),
        (&["go", "--allow", "edit:*.txt,read"], 0, true),
        (&["go", "--allow", "edit:*.md"], 3, false),
        (&["go", "--allow", "all"], 0, true),
        (&["go", "--allow", "all", "--deny", "edit"], 3, false),
        (&["go", "--mode", "accept_edits", "--deny", "edit:new*"], 3, false),
        (&["go", "--mode", "plan", "--allow", "all"], 3, false),
    ] {
        let user = User::new(WRITE);
        let output = user.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_eq!(written(&user), is_written, "{arguments:?}");
    }
    let user = User::new("");
    let output = user.run(&["--allow", "fix the parser"]);
    assert!(err(&output).contains("must be `all`, or tools such as"), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn limits_end_a_run_with_4() {
    let endless = "model tool bash {\"command\":\"ls\"}\nmodel end\nmodel tool bash {\"command\":\"pwd\"}\nmodel loop\n";
    let output = User::new(endless).run(&["go", "--allow", "all", "--max-turns", "3"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(out(&output).contains("its limit of 3 requests"), "{output:?}");
    let paid = User::new("model usage {\"input\":1,\"output\":1}\nmodel text \"a\"\nmodel loop\n");
    // A scripted model has no price.
    let output = paid.run(&["go", "--max-cost", "0.5"]);
    assert!(err(&output).contains("reports no cost"), "{output:?}");
    assert_eq!(output.status.code(), Some(4));
    let output = paid.run(&["go", "--max-cost", "-1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = paid.command(&["go", "--max-turns", "1", "--agent", "x"]).output().unwrap();
    assert!(err(&output).contains("works only with Purlin"), "{output:?}");
}

#[test]
fn colours_are_used_when_asked_for() {
    let user = User::new(WRITE);
    let colored = user.run(&["go", "--allow", "edit", "--color", "always"]);
    assert!(err(&colored).contains("\u{1b}["), "{colored:?}");
    let user = User::new(WRITE);
    let plain = user.run(&["go", "--allow", "edit"]);
    assert!(
        err(&plain).contains("new.txt (+1 -0)") && !err(&plain).contains('\u{1b}'),
        "{plain:?}"
    );
}

/// Writes an agent that answers `initialize`, `session/new` and `session/prompt`, and sends `calls` during the prompt.
fn agent(user: &User, calls: &str) -> std::path::PathBuf {
    let script = format!(
        "read line; echo '{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"protocolVersion\":1,\"agentCapabilities\":{{}}}}}}'\n\
         read line; echo '{{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{{\"sessionId\":\"s\"}}}}'\n\
         read line\n{calls}\n\
         echo '{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{{\"stopReason\":\"end_turn\"}}}}'\nread line\n"
    );
    let path = user.0.join("agent.sh");
    std::fs::write(&path, script).unwrap();
    path
}

/// Sends a call and stores its reply in a file.
fn call(method: &str, params: &Value, reply: &Path) -> String {
    let line = json!({ "jsonrpc": "2.0", "id": 77, "method": method, "params": params });
    format!("echo '{line}'; read line; echo \"$line\" > {}", reply.display())
}

// R: T1
#[test]
fn foreign_agent_gets_files_inside_its_directory_and_writes_are_asked_for() {
    let user = User::new("");
    let (inside, outside) = (user.0.join("w/a.txt"), user.0.join("secret.txt"));
    std::fs::write(&outside, "secret").unwrap();
    let reply = user.0.join("reply");
    let read = |path: &Path| json!({ "sessionId": "s", "path": path });
    let write = json!({ "sessionId": "s", "path": inside, "content": "new" });
    let replied = || std::fs::read_to_string(&reply).unwrap();

    let script = agent(&user, &call("fs/read_text_file", &read(&outside), &reply));
    // Outside the directory the user is asked, and there is no terminal.
    assert_eq!(user.run_agent(&["go"], &script).status.code(), Some(3));
    assert!(replied().contains("-31701") && !replied().contains("secret\""), "{}", replied());

    let script = agent(&user, &call("fs/write_text_file", &write, &reply));
    let output = user.run_agent(&["go"], &script);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(replied().contains("rejected the write") && !inside.exists(), "{}", replied());
    let output = user.run_agent(&["go", "--allow", "edit:*.txt"], &script);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(&inside).unwrap(), "new");
}

/// A reply without `result` and `error`, as JavaScript's `undefined` becomes, is a reply.
// R: W6
#[test]
fn bare_reply_of_an_agent_is_an_empty_result() {
    let user = User::new("");
    let script = agent(&user, "echo '{\"jsonrpc\":\"2.0\",\"id\":77}'; read line");
    let text = std::fs::read_to_string(&script).unwrap();
    std::fs::write(
        &script,
        text.replace("\"id\":3,\"result\":{\"stopReason\":\"end_turn\"}", "\"id\":3"),
    )
    .unwrap();
    let output = user.run_agent(&["go"], &script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(err(&output).contains("session/prompt does not match the protocol"), "{output:?}");
}

#[test]
fn dead_or_silent_agent_is_reported_with_its_last_words() {
    let user = User::new("");
    let script = user.0.join("agent.sh");
    std::fs::write(&script, "echo 'no licence' >&2; exit 7\n").unwrap();
    let output = user.run_agent(&["go"], &script);
    assert!(err(&output).contains("no licence"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
    std::fs::write(&script, "echo 'still starting' >&2; cat > /dev/null\n").unwrap();
    let output = user.run_agent(&["go"], &script);
    assert!(err(&output).contains("did not answer `initialize` within 5 s"), "{output:?}");
    assert!(err(&output).contains("still starting"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}
