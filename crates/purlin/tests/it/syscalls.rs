//! Kills and failures at exact system calls: `strace` kills the built program, or makes a call fail, at its Nth write, sync,
//! rename or start of a program, for every N.
//!
//! Afterwards the program is started again: everything the client had read must be there, in order and once, files are
//! complete, and the session can be opened. A test run tries some of the places; `cargo xtask crash` tries all of them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::crash::{compare, is_thorough};
use crate::directory::Directory;

/// What the model does, and the user's prompts.
struct Scenario {
    name: &'static str,
    script: &'static str,
    prompts: &'static [&'static str],
}

/// A turn that writes a file, which must never be half-written.
const WRITE: &str = "model text \"I write. \"\nmodel tool write {\"path\":\"FOLDER/a.txt\",\"content\":\"new\"}\nmodel text \"Done.\"\n";

/// The size from which the store uses a separate file.
const LONG: usize = 70_000;

const SCENARIOS: [Scenario; 14] = [
    Scenario { name: "a tool that writes", script: WRITE, prompts: &["go"] },
    Scenario {
        name: "a tool that writes much",
        script: "model tool write {\"path\":\"FOLDER/a.txt\",\"content\":\"LONG\"}\nmodel text \"Done.\"\n",
        prompts: &["go"],
    },
    Scenario {
        name: "words one by one",
        script: "model text \"one \"\nmodel wait 1\nmodel text \"two \"\nmodel wait 1\nmodel text \"three\"\n",
        prompts: &["go"],
    },
    Scenario {
        name: "a command",
        script: "model text \"I run. \"\nmodel tool bash {\"command\":\"echo ran\"}\nmodel text \"Done.\"\n",
        prompts: &["go"],
    },
    Scenario { name: "undone", script: WRITE, prompts: &["go", "/undo"] },
    Scenario { name: "brought back", script: WRITE, prompts: &["go", "/undo", "/redo"] },
    Scenario { name: "one answer", script: "model text \"Hello.\"\n", prompts: &["go"] },
    Scenario {
        name: "thoughts",
        script: "model thought \"Hm. \"\nmodel wait 1\nmodel thought \"Yes. \"\nmodel text \"Yes.\"\n",
        prompts: &["go"],
    },
    Scenario {
        name: "a long answer",
        script: "model chunks 300 \"many words \"\n",
        prompts: &["go"],
    },
    Scenario {
        name: "a plan",
        script: "model tool plan {\"entries\":[\"Look\",\"Leap\"]}\nmodel text \"Planned.\"\n",
        prompts: &["go"],
    },
    Scenario {
        name: "two tools at once",
        script: "model tool plan {\"entries\":[\"Look\"]}\nmodel tool read {\"path\":\"FOLDER/a.txt\"}\nmodel text \"Read.\"\n",
        prompts: &["go"],
    },
    Scenario {
        name: "a model that fails",
        script: "model text \"I beg\"\nmodel fail broken\n",
        prompts: &["go", "/continue"],
    },
    Scenario {
        name: "settings",
        script: "model text \"Hello.\"\n",
        prompts: &["/mode plan", "go", "/mode build"],
    },
    Scenario {
        name: "three turns",
        script: "model text \"One.\"\nmodel end\nmodel text \"Two.\"\nmodel end\nmodel text \"Three.\"\n",
        prompts: &["a", "b", "/rewind 2", "c"],
    },
];

/// Where the program is killed: a write to the journal or to the client, a sync, a rename, the start of a thread or a program.
const PLACES: [&str; 5] = ["pwrite64", "write", "fdatasync", "rename", "clone,clone3,vfork"];

// R: S9, W23
#[test]
fn kill_at_any_system_call_loses_nothing_that_was_shown() {
    let (scenarios, stride) = if is_thorough() { (SCENARIOS.len(), 1) } else { (5, 3) };
    let (mut kills, mut problems) = (0, Vec::new());
    for scenario in &SCENARIOS[..scenarios] {
        for place in PLACES {
            // After the last place the program runs to the end.
            for count in (1..).step_by(stride) {
                let inject = format!("{place}:signal=SIGKILL:when={count}");
                let run = play(scenario, &["-e", &format!("inject={inject}")]);
                run.check_after_restart(&format!("{}, {inject}", scenario.name), &mut problems);
                if run.is_whole {
                    break;
                }
                kills += 1;
            }
        }
    }
    eprintln!("{kills} kills at exact places");
    assert_eq!(problems, Vec::<String>::new());
    assert!(kills > 20, "{kills}");
}

/// More writes than any scenario has.
const PLENTY: usize = 60;

/// D01, D02, D05, D06, D08 (writes) and D03 (syncs) at the Nth system call, once and from then on. Every call of the client is
/// answered, and everything that was shown is there when the disk works again.
// R: S9
#[test]
fn disk_error_is_reported_and_loses_nothing_that_was_shown() {
    let faults = ["pwrite64:error=ENOSPC", "pwrite64:error=EIO", "fdatasync:error=EIO"];
    let more = ["pwrite64:error=EDQUOT", "pwrite64:error=EROFS", "ftruncate:error=EIO"];
    let thorough = is_thorough();
    let (scenarios, stride) = if thorough { (2, 2) } else { (1, 4) };
    let faults = faults.iter().chain(more.iter().filter(|_| thorough));
    let (mut failures, mut problems) = (0, Vec::new());
    for fault in faults {
        for scenario in &SCENARIOS[..scenarios] {
            for tail in ["", "+"] {
                for count in (1..PLENTY).step_by(stride) {
                    let inject = format!("{fault}:when={count}{tail}");
                    let run = play(scenario, &["-e", &format!("inject={inject}")]);
                    let what = format!("{}, {inject}", scenario.name);
                    if !run.is_whole {
                        problems.push(format!("{what}: not every call was answered"));
                    }
                    run.check_after_restart(&what, &mut problems);
                    failures += usize::from(run.errors > 0 || run.is_informed());
                }
            }
        }
    }
    eprintln!("{failures} failures were reported");
    assert_eq!(problems, Vec::<String>::new());
    assert!(failures > 5, "{failures}");
}

/// D07: no file handles are left for the store. The session stays in memory, and the user is informed.
// R: S9
#[test]
fn d07_without_file_handles_the_session_stays_in_memory() {
    let fault = "inject=openat:error=EMFILE:when=1+";
    let run = play_on(one_answer(), |directory| {
        let data = directory.join("data/purlin/sessions.db");
        vec!["-e".into(), fault.into(), "-P".into(), data.to_string_lossy().into_owned()]
    });
    assert!(run.is_whole && run.is_informed());
    assert_eq!(run.errors, 0);
    assert_eq!(run.shown.iter().filter(|update| update["content"]["text"] == "Hello.").count(), 1);
}

/// D20: a directory without locks, as on some network file systems. Two programs could use it at once, so nothing is
/// stored in it: the session stays in memory, and the user is informed.
// R: S9, S11
#[test]
fn d20_without_locks_the_session_stays_in_memory() {
    expect_in_memory("inject=flock:error=ENOLCK:when=1+");
}

/// D24: a rename to another file system fails.
// R: S9
#[test]
fn d24_without_renames_the_session_stays_in_memory() {
    expect_in_memory("inject=rename,renameat,renameat2:error=EXDEV:when=1+");
}

fn one_answer() -> &'static Scenario {
    SCENARIOS.iter().find(|scenario| scenario.name == "one answer").unwrap()
}

fn expect_in_memory(fault: &str) {
    let run = play(one_answer(), &["-e", fault]);
    assert!(run.is_whole && run.is_informed(), "{:?}", run.shown);
    assert_eq!(run.errors, 0);
    assert_eq!(run.shown.iter().filter(|update| update["content"]["text"] == "Hello.").count(), 1);
}

/// The result of a run.
struct Run {
    directory: Directory,
    session: Option<String>,
    /// The updates that the client has read.
    shown: Vec<Value>,
    /// Whether every call was answered.
    is_whole: bool,
    /// How many answers were errors.
    errors: usize,
}

fn play(scenario: &Scenario, strace: &[&str]) -> Run {
    play_on(scenario, |_| strace.iter().map(|word| (*word).to_owned()).collect())
}

fn play_on(scenario: &Scenario, strace: impl FnOnce(&Path) -> Vec<String>) -> Run {
    let directory = Directory::new();
    let script = scenario.script.replace("FOLDER", &directory.to_string_lossy());
    let script = script.replace("LONG", &"x".repeat(LONG));
    std::fs::write(directory.join("script.acp"), script).unwrap();
    std::fs::write(directory.join("a.txt"), "old").unwrap();
    let words = strace(&directory);
    let mut agent = Agent::start(&directory, Some(words));
    let mut run = Run { directory, session: None, shown: Vec::new(), is_whole: false, errors: 0 };
    run.is_whole = talk(&mut agent, scenario, &mut run).is_some();
    agent.end();
    run
}

/// Runs the conversation; `None` if the program ended.
fn talk(agent: &mut Agent, scenario: &Scenario, run: &mut Run) -> Option<()> {
    let fs = json!({ "readTextFile": true, "writeTextFile": true });
    let offers = json!({ "fs": fs, "session": { "notices": {} } });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": offers });
    agent.call("initialize", &hello, &mut run.shown)?;
    let place = json!({ "cwd": run.directory.path(), "mcpServers": [] });
    let made = agent.call("session/new", &place, &mut run.shown)?;
    let Some(session) = made["result"]["sessionId"].as_str() else {
        run.errors += 1;
        return Some(());
    };
    run.session = Some(session.to_owned());
    for prompt in scenario.prompts {
        let prompt = [json!({ "type": "text", "text": prompt })];
        let params = json!({ "sessionId": session, "prompt": prompt });
        let ended = agent.call("session/prompt", &params, &mut run.shown)?;
        run.errors += usize::from(ended.get("error").is_some());
    }
    Some(())
}

impl Run {
    /// Returns whether the user was informed that nothing is stored.
    fn is_informed(&self) -> bool {
        self.shown.iter().any(|update| update["sessionUpdate"] == "notice")
    }

    /// Starts the program again without faults, and compares.
    fn check_after_restart(&self, what: &str, problems: &mut Vec<String>) {
        let file = std::fs::read_to_string(self.directory.join("a.txt")).unwrap();
        if !["old", "new"].contains(&file.as_str()) {
            problems.push(format!("{what}: the file is torn: {file:?}"));
        }
        let mut agent = Agent::start(&self.directory, None);
        let mut replayed = Vec::new();
        agent.call("initialize", &json!({ "protocolVersion": 1 }), &mut replayed).unwrap();
        if let Some(session) = &self.session {
            let params = json!({ "sessionId": session });
            let reply = agent.call("session/load", &params, &mut replayed).unwrap();
            match reply.get("error") {
                // If the store could not be opened, the session stayed in memory, and the user was informed.
                Some(error) if error["code"] == -31900 && self.is_informed() => {}
                Some(error) => problems.push(format!("{what}: cannot be loaded: {error}")),
                None => compare(0, &self.shown, &replayed, &mut |problem| {
                    problems.push(format!("{what}: {problem}"));
                }),
            }
        } else {
            let params = json!({ "cwd": self.directory.path(), "mcpServers": [] });
            let reply = agent.call("session/new", &params, &mut replayed).unwrap();
            if reply.get("error").is_some() {
                problems.push(format!("{what}: no session can be made: {reply}"));
            }
        }
        agent.end();
    }
}

/// The program, with or without `strace`.
pub(crate) struct Agent {
    child: Child,
    input: ChildStdin,
    pub(crate) output: BufReader<ChildStdout>,
    last_id: u64,
    /// Files that the agent wrote through the client.
    files: HashMap<String, String>,
}

impl Agent {
    pub(crate) fn start(directory: &Path, strace: Option<Vec<String>>) -> Agent {
        Agent::start_in(directory, strace, &directory.join("data"))
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    pub(crate) fn start_in(directory: &Path, strace: Option<Vec<String>>, data: &Path) -> Agent {
        let program = env!("CARGO_BIN_EXE_purlin");
        let mut command = match strace {
            Some(words) => {
                let mut command = Command::new("strace");
                command.args(["-f", "-qqq", "-o", "/dev/null"]).args(words).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg("acp").arg("--model");
        command.arg(format!("script:{}", directory.join("script.acp").display()));
        command.env("XDG_DATA_HOME", data).env("HOME", directory);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn().expect("strace is needed: run cargo xtask test");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let files = HashMap::new();
        Agent { child, input, output: BufReader::new(output), last_id: 0, files }
    }

    /// Calls, answers the program's own calls, and returns the reply; `None` if the program ended.
    pub(crate) fn call(
        &mut self,
        method: &str,
        params: &Value,
        shown: &mut Vec<Value>,
    ) -> Option<Value> {
        self.send(method, params);
        loop {
            let mut line = Vec::new();
            self.output.read_until(b'\n', &mut line).unwrap();
            if !line.ends_with(b"\n") {
                return None;
            }
            let message: Value = serde_json::from_slice(&line).unwrap();
            match message.get("method").and_then(Value::as_str) {
                None if message["id"] == self.last_id => return Some(message),
                Some("session/update") => shown.push(message["params"]["update"].clone()),
                Some(method) if message.get("id").is_some() => {
                    let answer = self.serve(method, &message["params"]);
                    let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer });
                    drop(writeln!(self.input, "{reply}"));
                }
                Some(_) | None => {}
            }
        }
    }

    /// Calls without waiting.
    pub(crate) fn send(&mut self, method: &str, params: &Value) {
        self.last_id += 1;
        let call =
            json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        // A program that has ended does not read, but its earlier output can still be read.
        drop(writeln!(self.input, "{call}"));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, as editors do.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn serve(&mut self, method: &str, params: &Value) -> Value {
        let path = params["path"].as_str().unwrap_or_default().to_owned();
        match method {
            "fs/read_text_file" => {
                let known = self.files.get(&path).cloned();
                json!({ "content": known.unwrap_or_else(|| std::fs::read_to_string(&path).unwrap()) })
            }
            "fs/write_text_file" => {
                let content = params["content"].as_str().unwrap().to_owned();
                std::fs::write(&path, &content).unwrap();
                self.files.insert(path, content);
                json!({})
            }
            "session/request_permission" => {
                json!({ "outcome": { "outcome": "selected", "optionId": "once" } })
            }
            other => panic!("the agent asks for {other}"),
        }
    }

    /// Closes its input and waits for its end.
    pub(crate) fn end(mut self) {
        drop(self.input);
        self.child.wait().unwrap();
    }
}
