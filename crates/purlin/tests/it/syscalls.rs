//! Kills and failures at exact places: `strace` ends the built program, or fails it, at its Nth write, sync, rename or start
//! of a program, for every N there is.
//!
//! Afterwards the program is started again: whatever the client had read must be there, in order and once, files are whole,
//! and the session is free. A test run takes every Nth place of a few scenarios; `cargo xtask crash` takes all of them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::crash::{Folder, compare, is_thorough};

/// What the model does, and what the user asks for.
struct Scenario {
    name: &'static str,
    script: &'static str,
    prompts: &'static [&'static str],
}

/// A turn that writes a file, so that there is something to be torn.
const WRITE: &str = "model text \"I write. \"\nmodel tool write {\"path\":\"FOLDER/a.txt\",\"content\":\"new\"}\nmodel text \"Done.\"\n";

/// As much as a file of its own is made for, in the store.
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
    Scenario { name: "taken back", script: WRITE, prompts: &["go", "/undo"] },
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

/// Where the program is ended: a write to the journal, one to the client, a sync, a rename, the start of a thread or a program.
const PLACES: [&str; 5] = ["pwrite64", "write", "fdatasync", "rename", "clone,clone3,vfork"];

// R: S9, W23
#[test]
fn a_kill_at_any_step_loses_nothing_that_was_shown() {
    let (scenarios, stride) = if is_thorough() { (SCENARIOS.len(), 1) } else { (5, 3) };
    let (mut kills, mut problems) = (0, Vec::new());
    for scenario in &SCENARIOS[..scenarios] {
        for place in PLACES {
            // Past the last place the program lives to the end.
            for count in (1..).step_by(stride) {
                let inject = format!("{place}:signal=SIGKILL:when={count}");
                let run = play(scenario, &["-e", &format!("inject={inject}")]);
                run.look_again(&format!("{}, {inject}", scenario.name), &mut problems);
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

/// More writes than a scenario has.
const PLENTY: usize = 60;

/// D01, D02, D05, D06, D08 (writes), D03 (syncs), made by the kernel at the Nth call and from then on. Every call is
/// answered, and what was shown is there once the disk works again.
// R: S9
#[test]
fn a_disk_that_fails_is_told_and_loses_nothing_that_was_shown() {
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
                    run.look_again(&what, &mut problems);
                    failures += usize::from(run.errors > 0 || run.is_told());
                }
            }
        }
    }
    eprintln!("{failures} failures were told");
    assert_eq!(problems, Vec::<String>::new());
    assert!(failures > 5, "{failures}");
}

/// D07: there are no file handles left for the store. The session lives in memory, and the user is told.
// R: S9
#[test]
fn without_a_file_handle_for_the_store_the_session_lives_in_memory() {
    let fault = "inject=openat:error=EMFILE:when=1+";
    let run = play_on(one_answer(), |folder| {
        let data = folder.join("data/purlin/sessions.db");
        vec!["-e".into(), fault.into(), "-P".into(), data.to_string_lossy().into_owned()]
    });
    assert!(run.is_whole && run.is_told());
    assert_eq!(run.errors, 0);
    assert_eq!(run.shown.iter().filter(|update| update["content"]["text"] == "Hello.").count(), 1);
}

/// D20: a folder that knows no locks, as some on the network. Two programs could not be told apart there, so nothing is
/// kept in it: the session lives in memory, and the user is told.
// R: S9, S11
#[test]
fn d20_where_there_are_no_locks_the_session_lives_in_memory() {
    expect_in_memory("inject=flock:error=ENOLCK:when=1+");
}

/// D24: a rename that would lead to another disk.
// R: S9
#[test]
fn d24_where_nothing_can_be_renamed_the_session_lives_in_memory() {
    expect_in_memory("inject=rename,renameat,renameat2:error=EXDEV:when=1+");
}

fn one_answer() -> &'static Scenario {
    SCENARIOS.iter().find(|scenario| scenario.name == "one answer").unwrap()
}

fn expect_in_memory(fault: &str) {
    let run = play(one_answer(), &["-e", fault]);
    assert!(run.is_whole && run.is_told(), "{:?}", run.shown);
    assert_eq!(run.errors, 0);
    assert_eq!(run.shown.iter().filter(|update| update["content"]["text"] == "Hello.").count(), 1);
}

/// What came of a run.
struct Run {
    folder: Folder,
    session: Option<String>,
    /// The updates that the client read.
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
    let folder = Folder::new("syscalls");
    let script = scenario.script.replace("FOLDER", &folder.0.to_string_lossy());
    let script = script.replace("LONG", &"x".repeat(LONG));
    std::fs::write(folder.0.join("script.acp"), script).unwrap();
    std::fs::write(folder.0.join("a.txt"), "old").unwrap();
    let words = strace(&folder.0);
    let mut agent = Agent::start(&folder.0, Some(words));
    let mut run = Run { folder, session: None, shown: Vec::new(), is_whole: false, errors: 0 };
    run.is_whole = talk(&mut agent, scenario, &mut run).is_some();
    agent.end();
    run
}

/// Holds the conversation; `None` where the program ended.
fn talk(agent: &mut Agent, scenario: &Scenario, run: &mut Run) -> Option<()> {
    let fs = json!({ "readTextFile": true, "writeTextFile": true });
    let offers = json!({ "fs": fs, "session": { "notices": {} } });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": offers });
    agent.call("initialize", &hello, &mut run.shown)?;
    let place = json!({ "cwd": run.folder.0, "mcpServers": [] });
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
    /// Whether the user was told that nothing is kept.
    fn is_told(&self) -> bool {
        self.shown.iter().any(|update| update["sessionUpdate"] == "notice")
    }

    /// Starts the program again, with nothing in its way, and compares.
    fn look_again(&self, what: &str, problems: &mut Vec<String>) {
        let file = std::fs::read_to_string(self.folder.0.join("a.txt")).unwrap();
        if !["old", "new"].contains(&file.as_str()) {
            problems.push(format!("{what}: the file is torn: {file:?}"));
        }
        let mut agent = Agent::start(&self.folder.0, None);
        let mut replayed = Vec::new();
        agent.call("initialize", &json!({ "protocolVersion": 1 }), &mut replayed).unwrap();
        if let Some(session) = &self.session {
            let params = json!({ "sessionId": session });
            let reply = agent.call("session/load", &params, &mut replayed).unwrap();
            match reply.get("error") {
                // Where the store could not be opened, the session lived in memory, and the user knew.
                Some(error) if error["code"] == -31900 && self.is_told() => {}
                Some(error) => problems.push(format!("{what}: cannot be loaded: {error}")),
                None => compare(0, &self.shown, &replayed, &mut |problem| {
                    problems.push(format!("{what}: {problem}"));
                }),
            }
        } else {
            let params = json!({ "cwd": self.folder.0, "mcpServers": [] });
            let reply = agent.call("session/new", &params, &mut replayed).unwrap();
            if reply.get("error").is_some() {
                problems.push(format!("{what}: no session can be made: {reply}"));
            }
        }
        agent.end();
    }
}

/// The program, under `strace` or alone.
pub(crate) struct Agent {
    child: Child,
    input: ChildStdin,
    pub(crate) output: BufReader<ChildStdout>,
    last_id: u64,
    /// Files that the client was asked to write.
    files: HashMap<String, String>,
}

impl Agent {
    pub(crate) fn start(folder: &Path, strace: Option<Vec<String>>) -> Agent {
        Agent::start_in(folder, strace, &folder.join("data"))
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    pub(crate) fn start_in(folder: &Path, strace: Option<Vec<String>>, data: &Path) -> Agent {
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
        command.arg(format!("script:{}", folder.join("script.acp").display()));
        command.env("XDG_DATA_HOME", data).env("HOME", folder);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn().expect("strace is needed: run cargo xtask test");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let files = HashMap::new();
        Agent { child, input, output: BufReader::new(output), last_id: 0, files }
    }

    /// Calls, serves what the program asks for, and returns its answer; `None` if it ended.
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
        // A program that has ended does not read; what it said before is still to be had.
        drop(writeln!(self.input, "{call}"));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as editors do.
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
