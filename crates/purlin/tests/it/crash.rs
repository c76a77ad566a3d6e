//! The program is killed at random moments while it streams and works, started again, and must know what it showed.
//!
//! Everything the client had read must be there: nothing lost, repeated or reordered. The file that a tool writes is old or
//! new, no command is left running, and the session can be opened at once. `cargo xtask crash --runs N` makes more kills.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::wait_until;
use crate::commands;
use crate::directory::Directory;

/// The number of kills in a normal test run.
const RUNS: usize = 200;

// R: S9
#[test]
fn kill_loses_nothing_that_was_shown() {
    let runs = requested_runs().unwrap_or(RUNS);
    let tally = kill_again_and_again(runs, Journal::First);
    eprintln!("attempts: {} kills, {} of them in a turn", tally.kills, tally.cut_short);
    assert_eq!(tally.kills, runs);
    assert_eq!(tally.problems, Vec::<String>::new());
    assert!(tally.cut_short > runs / 4, "too few kills hit a turn that ran: {tally:?}");
}

/// The number of kills that `cargo xtask crash` requests.
fn requested_runs() -> Option<usize> {
    let asked = std::env::var_os("PURLIN_CRASH_RUNS").and_then(|runs| runs.into_string().ok());
    asked.and_then(|runs| runs.parse().ok())
}

/// Returns whether every possible place of a kill is to be tried.
pub(crate) fn is_thorough() -> bool {
    requested_runs().is_some()
}

/// Checks the comparison itself: it must notice the mistake it looks for.
#[test]
fn journal_written_after_sending_is_detected() {
    let tally = kill_again_and_again(8, Journal::Late);
    assert!(tally.problems.iter().any(|problem| problem.contains("lost")), "{tally:?}");
}

#[derive(Clone, Copy, PartialEq)]
enum Journal {
    First,
    Late,
}

#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    /// How many of them hit a running turn.
    cut_short: usize,
    problems: Vec<String>,
}

fn kill_again_and_again(runs: usize, journal: Journal) -> Tally {
    let directory = Directory::new();
    let mark = format!("300.{}", std::process::id());
    std::fs::write(directory.join("script.acp"), script(&mark)).unwrap();
    let allowed = json!({ "bash": "allow", "edit": "allow" });
    let config = json!({ "limits": { "updates_per_minute": 0 }, "permission": allowed });
    std::fs::write(directory.join("user.json"), config.to_string()).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut tally = Tally::default();
    let mut last: Option<(String, Vec<Value>)> = None;
    for run in 0..=runs {
        let mut agent = Agent::start(&directory, journal);
        agent.call("initialize", &json!({ "protocolVersion": 1 }));
        if let Some((session, shown)) = last.take() {
            let (reply, replayed) = agent.call("session/load", &json!({ "sessionId": session }));
            match reply.get("error") {
                Some(error) => tally.problems.push(format!("run {run}: cannot be loaded: {error}")),
                None => {
                    compare(run, &shown, &replayed, &mut |problem| tally.problems.push(problem))
                }
            }
        }
        if run == runs {
            agent.kill();
            break;
        }
        let params = json!({ "cwd": directory.path(), "mcpServers": [] });
        let (reply, _) = agent.call("session/new", &params);
        let session = reply["result"]["sessionId"].as_str().unwrap().to_owned();
        let prompt = [json!({ "type": "text", "text": "go" })];
        agent.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
        let (shown, has_ended) = agent.kill_after(random.below(90), random.below(20_000));
        tally.kills += 1;
        let written = std::fs::read_to_string(directory.join("a.txt")).unwrap_or_default();
        if !["", OLD, NEW].contains(&written.as_str()) {
            tally.problems.push(format!("run {run}: the file is torn: {written:?}"));
        }
        let what = format!("run {run}: the process that a command left behind ends");
        wait_until(&what, Duration::from_secs(6), || !commands::runs(&mark));
        tally.cut_short += usize::from(!has_ended);
        last = Some((session, shown));
    }
    tally
}

/// The content of the file that the turn writes twice.
const OLD: &str = "old\n";
const NEW: &str = "new\n";

/// Numbered words, so that each missing one is noticed, with tool calls between them. A command leaves a process behind that
/// sleeps for `mark` seconds.
fn script(mark: &str) -> String {
    let leave = format!("sleep {mark} >/dev/null 2>&1 & echo left; sleep 0.05; echo done");
    let tools = [
        json!({ "entries": ["Look", "Leap"] }),
        json!({ "path": "a.txt", "content": OLD }),
        json!({ "command": leave }),
        json!({ "path": "a.txt", "content": NEW }),
    ];
    let mut lines = String::new();
    for answer in 0..5 {
        for word in 0..40 {
            lines.push_str(&format!("model text \"{} \"\n", answer * 40 + word));
            if word % 10 == 9 {
                lines.push_str("model wait 1\n");
            }
        }
        if let Some(input) = tools.get(answer) {
            let tool = ["plan", "write", "bash", "write"][answer];
            lines.push_str(&format!("model tool {tool} {input}\n"));
        }
    }
    // Every session of a process starts at the beginning of the script.
    lines.push_str("model loop\n");
    lines
}

/// Checks that the replay has everything that was shown, in order. Events that were stored but not yet shown may follow.
pub(crate) fn compare(
    run: usize,
    shown: &[Value],
    replayed: &[Value],
    report: &mut dyn FnMut(String),
) {
    let (shown, replayed) = (joined(shown), joined(replayed));
    let said: String = replayed.iter().filter_map(text_of).collect();
    let numbers: Vec<usize> =
        said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if !numbers.iter().copied().eq(0..numbers.len()) {
        report(format!("run {run}: words are doubled, missing or out of order: {said}"));
    }
    for (index, update) in shown.iter().enumerate() {
        let is_last = index + 1 == shown.len();
        let is_there = match (replayed.get(index), text_of(update)) {
            (Some(found), Some(text)) if is_last => {
                found["messageId"] == update["messageId"]
                    && text_of(found).is_some_and(|found| found.starts_with(text))
            }
            (Some(found), _) => found == update,
            (None, _) => false,
        };
        if !is_there {
            report(format!(
                "run {run}: lost: update {index} was shown as {update}, and is stored as {:?}",
                replayed.get(index)
            ));
            return;
        }
    }
}

/// Leaves out updates that are not part of the conversation, and joins neighbouring chunks of a message.
fn joined(updates: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for update in updates {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        if !["agent_message_chunk", "tool_call", "tool_call_update", "plan"].contains(&kind) {
            continue;
        }
        if let (Some(last), Some(text)) = (out.last_mut(), text_of(update))
            && last["messageId"] == update["messageId"]
            && let Some(before) = text_of(last)
        {
            last["content"]["text"] = json!(format!("{before}{text}"));
            continue;
        }
        out.push(update.clone());
    }
    out
}

fn text_of(update: &Value) -> Option<&str> {
    (update["sessionUpdate"] == "agent_message_chunk")
        .then(|| update["content"]["text"].as_str())?
}

struct Agent {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Agent {
    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    fn start(directory: &Path, journal: Journal) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
        command.arg("acp").arg("--config").arg(directory.join("user.json"));
        command.arg("--model").arg(format!("script:{}", directory.join("script.acp").display()));
        command.env("XDG_DATA_HOME", directory.join("data"));
        if journal == Journal::Late {
            command.env("PURLIN_TEST_LATE_JOURNAL", "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Agent { child, input, output: BufReader::new(output), last_id: 0 }
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.last_id += 1;
        let id = self.last_id;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{call}").unwrap();
    }

    /// Calls and returns the reply with the updates before it.
    fn call(&mut self, method: &str, params: &Value) -> (Value, Vec<Value>) {
        self.send(method, params);
        let mut updates = Vec::new();
        loop {
            let message = self.read().expect("the agent ended");
            if message["id"] == self.last_id {
                return (message, updates);
            }
            updates.push(message["params"]["update"].clone());
        }
    }

    /// Reads a line. An incomplete line does not count as read.
    fn read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        self.output.read_until(b'\n', &mut line).unwrap();
        line.ends_with(b"\n").then(|| serde_json::from_slice(&line).unwrap())
    }

    /// Reads this many lines, spins a little, kills the program, and reads what it had sent.
    fn kill_after(mut self, lines: u64, spins: u64) -> (Vec<Value>, bool) {
        let mut seen = Vec::new();
        let mut has_ended = false;
        while (seen.len() as u64) < lines && !has_ended {
            let message = self.read().expect("the agent ended by itself");
            has_ended = message["id"] == self.last_id;
            seen.push(message);
        }
        (0..spins).for_each(|_| std::hint::spin_loop());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while let Some(message) = self.read() {
            has_ended |= message["id"] == self.last_id;
            seen.push(message);
        }
        let updates = seen.into_iter().map(|message| message["params"]["update"].clone());
        (updates.collect(), has_ended)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A random sequence that is the same in every run of the test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
