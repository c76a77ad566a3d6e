//! What it costs to be seen: the log, spans and a dashboard that watches; `purlin tap`; the dashboard with many agents; and the
//! page of a large trace, with its frames in Chromium.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::agent::{Agent, Script, TEXT_CHUNK};
use super::child::Child;
use super::programs::Programs;
use super::table::{Goal, Row};
use crate::program;

const ROUNDS: usize = 7;
const CHUNKS: usize = 20_000;
/// Through the tap, so that its start does not matter.
const TAPPED_LINES: usize = 200_000;
const PINGS: usize = 2000;
const AGENTS: usize = 50;
const SESSIONS_EACH: usize = 20;
/// How long the dashboard is watched.
const WATCHED: Duration = Duration::from_secs(10);
const TRACE_BYTES: usize = 100_000_000;
const MEGABYTE: f64 = 1_000_000.0;

/// Measures everything.
pub(crate) fn seeing(programs: &Programs) -> Result<Vec<Row>> {
    let mut rows = chunks(programs)?;
    rows.extend(tap(programs)?);
    rows.extend(dashboard(programs)?);
    rows.extend(large_trace(programs)?);
    Ok(rows)
}

/// Who sees an agent.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    /// Nobody: no log file.
    Not,
    /// The log file, which is the default.
    Logged,
    /// The log file and somebody who watches.
    Watched,
    /// The log file and a trace.
    Traced,
}

/// The processor time per chunk, and the anonymous memory after the turn in megabytes.
fn stream(programs: &Programs, seen: Seen) -> Result<(f64, f64)> {
    let script = Script::one_message(CHUNKS)?;
    let data = &script.directory;
    let (off, trace, runtime) = (PathBuf::from("off"), data.join("trace"), data.join("run"));
    let mut environment: Vec<(&str, &Path)> =
        vec![("XDG_STATE_HOME", data), ("XDG_RUNTIME_DIR", &runtime)];
    match seen {
        Seen::Not => environment.push(("PURLIN_LOG_FILE", &off)),
        Seen::Traced => environment.push(("PURLIN_TRACE", &trace)),
        Seen::Logged | Seen::Watched => {}
    }
    let child = Child::start_with(&programs.purlin, &["acp"], data, &environment)?;
    let mut agent = Agent::of(child)?;
    let session = agent.open()?;
    let reader = (seen == Seen::Watched).then(|| watch(&runtime, agent.child.id())).transpose()?;
    let before = agent.child.cpu()?;
    agent.prompt(&session, "go")?;
    agent.drain(1)?;
    let used = agent.child.cpu()? - before;
    let memory = agent.child.memory("RssAnon:")? as f64 / MEGABYTE;
    agent.child.end()?;
    if let Some(reader) = reader {
        let read = reader.join().map_err(|_panic| anyhow::anyhow!("the reader failed"))?;
        anyhow::ensure!(read > 0, "nothing was watched");
    }
    Ok((used.as_secs_f64() * 1e6 / CHUNKS as f64, memory))
}

/// Connects to an agent as the dashboard does, and reads everything. Returns how many bytes there were.
fn watch(runtime: &Path, pid: u32) -> Result<std::thread::JoinHandle<usize>> {
    let socket = runtime.join(format!("purlin/{pid}.sock"));
    let end = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(err) if Instant::now() > end => return Err(err).context("no socket"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    // The first line comes before anything else, so from then on the agent is watched.
    let mut first = [0];
    stream.read_exact(&mut first)?;
    Ok(std::thread::spawn(move || {
        let (mut buffer, mut count) = (vec![0; 64 * 1024], 0);
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            count += read;
        }
        count
    }))
}

fn chunks(programs: &Programs) -> Result<Vec<Row>> {
    let mut costs: [Vec<f64>; 4] = Default::default();
    let mut memory = Vec::new();
    for _ in 0..ROUNDS {
        let (off, without) = stream(programs, Seen::Not)?;
        let (logged, _) = stream(programs, Seen::Logged)?;
        let (watched, with) = stream(programs, Seen::Watched)?;
        let (traced, _) = stream(programs, Seen::Traced)?;
        for (all, cost) in costs.iter_mut().zip([off, logged, watched, traced]) {
            all.push(cost);
        }
        memory.push(with - without);
    }
    let [off, logged, watched, traced] = costs;
    let row = |what: &str, ours| {
        Row::new(format!("a chunk of 20,000, CPU, {what}"), "µs", ours)
            .beside("all off", off.clone())
    };
    Ok(vec![
        row("log file and spans", logged).goal(Goal::Times(1.1)),
        row("log file, spans and a dashboard", watched).goal(Goal::Times(1.1)),
        row("log file, spans and a trace of all messages", traced),
        Row::new("additional memory with log file, spans and a dashboard", "MB", memory)
            .goal(Goal::AtMost(1.0)),
    ])
}

/// Measures a program that stands before an agent: the processor time per line, and the time that a line takes there and back.
fn before(programs: &Programs, program: &Path, arguments: &[&str]) -> Result<f64> {
    let writer = programs.plain_writer.to_string_lossy();
    let lines = TAPPED_LINES.to_string();
    let arguments = [arguments, &[&writer, "lines", &lines]].concat();
    let mut child = Child::start(program, &arguments, &crate::temporary::directory())?;
    // The copier has started when this arrives; its start is not measured.
    std::thread::sleep(Duration::from_millis(200));
    let cpu = child.cpu()?;
    child.write("go")?;
    child.drain(1)?;
    let used = child.cpu()? - cpu;
    child.end()?;
    Ok(used.as_secs_f64() * 1e6 / TAPPED_LINES as f64)
}

/// Returns the median time of a line to `cat` and back, in milliseconds.
fn ping(program: &Path, arguments: &[&str]) -> Result<f64> {
    let mut child = Child::start(program, arguments, &crate::temporary::directory())?;
    let line =
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "text": TEXT_CHUNK } });
    let line = line.to_string();
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let begin = Instant::now();
        child.write(&line)?;
        child.read()?;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    child.end()?;
    times.sort_by(f64::total_cmp);
    Ok(times[PINGS / 2])
}

fn tap(programs: &Programs) -> Result<Vec<Row>> {
    let trace =
        crate::temporary::directory().join(format!("purlin-bench-tap-{}", std::process::id()));
    let trace_name = trace.to_string_lossy().into_owned();
    let (mut tapped, mut traced, mut copied, mut delay) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        tapped.push(before(programs, &programs.purlin, &["tap", "--"])?);
        traced.push(before(programs, &programs.purlin, &["tap", "--trace", &trace_name, "--"])?);
        copied.push(before(programs, &programs.plain_copier, &[])?);
        // Two messages: there and back.
        let with = ping(&programs.purlin, &["tap", "--trace", &trace_name, "--", "cat"])?;
        delay.push((with - ping(Path::new("cat"), &[])?) / 2.0);
        std::fs::remove_file(&trace).ok();
    }
    Ok(vec![
        Row::new("`tap`, a line, CPU", "µs", tapped)
            .beside("a plain copier", copied.clone())
            .goal(Goal::Times(2.0)),
        Row::new("`tap` with a trace, a line, CPU", "µs", traced).beside("a plain copier", copied),
        Row::new("`tap` with a trace, added to a message", "ms", delay).goal(Goal::AtMost(0.1)),
    ])
}

/// Starts 50 agents with 20 sessions each, of which five stream, and a page that asks every second.
fn dashboard(programs: &Programs) -> Result<Vec<Row>> {
    // Twenty chunks a second, for longer than the measurement.
    let chunks = format!("model text \"{TEXT_CHUNK}\"\nmodel wait 50\n").repeat(4000);
    let script = Script::write(&chunks)?;
    let data = script.directory.clone();
    let runtime = data.join("run");
    let environment: [(&str, &Path); 2] =
        [("XDG_STATE_HOME", &data), ("XDG_RUNTIME_DIR", &runtime)];
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        let child = Child::start_with(&programs.purlin, &["acp", "--forget"], &data, &environment)?;
        let mut agent = Agent::of(child)?;
        let mut session = String::new();
        for _ in 0..SESSIONS_EACH {
            session = agent.open()?;
            // Known to the dashboard are sessions with something to see.
            agent.prompt(&session, "/cost")?;
            agent.drain(1)?;
        }
        if number < 5 {
            agent.prompt(&session, "go")?;
        }
        agents.push(agent);
    }
    let mut watching = Watching::start(programs, &environment)?;
    let state = watching.ask()?;
    let seen = state["session_count"].as_u64().unwrap_or_default();
    anyhow::ensure!(seen as usize >= AGENTS * SESSIONS_EACH, "only {seen} sessions are seen");
    let before = watching.cpu()?;
    let begin = Instant::now();
    while begin.elapsed() < WATCHED {
        watching.ask()?;
        std::thread::sleep(Duration::from_secs(1));
    }
    let used = (watching.cpu()? - before) / begin.elapsed().as_secs_f64() * 100.0;
    let frames = in_browser(&["dashboard", &watching.url])?;
    Ok(vec![
        Row::new("dashboard, 50 agents, 1,000 sessions, of a core", "%", vec![used])
            .goal(Goal::AtMost(5.0)),
        Row::new(
            "its page, all work of a second, drawn once",
            "ms",
            vec![number(&frames, "second")?],
        )
        .goal(Goal::AtMost(16.0)),
        Row::new("its page, work per frame, p95", "ms", vec![number(&frames, "p95")?])
            .goal(Goal::AtMost(16.0)),
        Row::new("its page, work per frame, longest", "ms", vec![number(&frames, "max")?]),
    ])
}

/// The dashboard.
struct Watching {
    process: std::process::Child,
    url: String,
    /// Open, because it says more than its address.
    _errors: BufReader<ChildStderr>,
}

impl Watching {
    #[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
    fn start(programs: &Programs, environment: &[(&str, &Path)]) -> Result<Watching> {
        let mut process = Command::new(&programs.purlin)
            .arg("dashboard")
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()?;
        let errors = process.stderr.take().context("no stderr")?;
        let mut url = String::new();
        let mut errors = BufReader::new(errors);
        errors.read_line(&mut url)?;
        // Every socket is found within a second.
        std::thread::sleep(Duration::from_secs(3));
        Ok(Watching { process, url: url.trim().to_owned(), _errors: errors })
    }

    /// Asks for what the page shows, as the page does.
    fn ask(&mut self) -> Result<Value> {
        let rest = self.url.strip_prefix("http://").context("no address")?;
        let (host, token) = rest.split_once("/?token=").context("no token")?;
        let mut stream = TcpStream::connect(host)?;
        let head = format!(
            "GET /state HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        serde_json::from_str(body).context("the state is not JSON")
    }

    /// Returns its processor time in seconds.
    fn cpu(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.process.id()))?;
        let nanos = stat.split(' ').next().context("schedstat is empty")?.parse::<f64>()?;
        Ok(nanos / 1e9)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Makes the page of a trace of 100 MB, and opens it.
#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
fn large_trace(programs: &Programs) -> Result<Vec<Row>> {
    let directory =
        crate::temporary::directory().join(format!("purlin-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let (trace, page) = (directory.join("trace.jsonl"), directory.join("page.html"));
    write_trace(&trace)?;
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let begin = Instant::now();
        let mut process = Command::new(&programs.purlin)
            .arg("trace")
            .arg(&trace)
            .arg("--html")
            .arg(&page)
            .spawn()?;
        let mut peak = 0.0;
        while process.try_wait()?.is_none() {
            peak = peak_memory(process.id()).unwrap_or(peak);
            std::thread::sleep(Duration::from_millis(5));
        }
        times.push(begin.elapsed().as_secs_f64());
        memory.push(peak / MEGABYTE);
    }
    let shown = in_browser(&["trace", &format!("file://{}", page.display())])?;
    std::fs::remove_dir_all(&directory)?;
    Ok(vec![
        Row::new("page of a trace of 100 MB", "s", times).goal(Goal::AtMost(5.0)),
        Row::new("the same, peak memory", "MB", memory).goal(Goal::AtMost(256.0)),
        Row::new(
            "the same, until it is shown in Chromium",
            "s",
            vec![number(&shown, "shown")? / 1000.0],
        )
        .goal(Goal::AtMost(5.0)),
        Row::new("the same, heap of the page", "MB", vec![number(&shown, "heap")? / MEGABYTE])
            .goal(Goal::AtMost(256.0)),
        Row::new(
            "the same, work per frame while scrolling, p95",
            "ms",
            vec![number(&shown, "p95")?],
        )
        .goal(Goal::AtMost(16.0)),
    ])
}

/// Returns the most memory that a process has had so far.
fn peak_memory(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

/// Writes a trace like that of a long day: turns with chunks, tools and spans, in ten sessions.
fn write_trace(file: &Path) -> Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(file)?);
    let mut written = 0;
    let mut time = 1_700_000_000_000_u64;
    let mut line = |value: Value| -> Result<usize> {
        let text = value.to_string();
        writeln!(out, "{text}")?;
        Ok(text.len() + 1)
    };
    let mut turn = 0;
    while written < TRACE_BYTES {
        turn += 1;
        let session = format!("01890a5d-ac96-774b-bcce-b30209900{:03}", turn % 10);
        let begin = time;
        let message = |time: u64, direction: &str, message: Value| {
            json!({ "time": time, "direction": direction, "bytes": message.to_string().len(), "method": message["method"],
                "id": message.get("id"), "session": session, "message": message })
        };
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "Do the next thing." }] });
        written += line(message(
            time,
            "in",
            json!({ "jsonrpc": "2.0", "id": turn, "method": "session/prompt", "params": params }),
        ))?;
        for _ in 0..60 {
            time += 20;
            let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": TEXT_CHUNK } });
            let params = json!({ "sessionId": session, "update": update });
            written += line(message(
                time,
                "out",
                json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }),
            ))?;
        }
        let call = format!("call-{turn}");
        for (kind, status) in [("tool_call", "pending"), ("tool_call_update", "completed")] {
            time += 30;
            let content = json!([{ "type": "content", "content": { "type": "text", "text": TEXT_CHUNK.repeat(40) } }]);
            let update = json!({ "sessionUpdate": kind, "toolCallId": call, "title": "Read src/main.rs", "status": status, "content": content });
            let params = json!({ "sessionId": session, "update": update });
            written += line(message(
                time,
                "out",
                json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }),
            ))?;
        }
        let span = |kind: &str, number: u64, from: u64, to: u64| {
            json!({ "time": from as f64, "span": format!("{:016x}", turn * 8 + number), "parent": (number > 0).then(|| format!("{:016x}", turn * 8)),
                "kind": kind, "name": if kind == "tool" { "read" } else { kind }, "session": session, "duration_ms": (to - from) as f64, "end": "completed" })
        };
        written += line(span("model", 1, begin, begin + 1200))?;
        written += line(span("tool", 2, begin + 1200, time))?;
        written += line(span("turn", 0, begin, time))?;
        let mut reply = message(
            time,
            "out",
            json!({ "jsonrpc": "2.0", "id": turn, "result": { "stopReason": "end_turn" } }),
        );
        reply["method"] = json!("session/prompt");
        reply["duration_ms"] = json!(time - begin);
        written += line(reply)?;
        time += 500;
    }
    out.flush()?;
    Ok(())
}

/// Runs the script that looks at a page in Chromium, and returns what it measured.
#[expect(clippy::disallowed_methods, reason = "xtask sees none of our crates")]
fn in_browser(arguments: &[&str]) -> Result<Value> {
    let script = program::root().join("crates/purlin/tests/pages/measure.mjs");
    let output =
        Command::new("node").arg(script).args(arguments).stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the browser failed: run `cargo xtask test` once");
    serde_json::from_slice(&output.stdout).context("the browser measured nothing")
}

fn number(measured: &Value, name: &str) -> Result<f64> {
    measured[name].as_f64().with_context(|| format!("no {name} in {measured}"))
}
