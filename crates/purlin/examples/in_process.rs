//! Runs a part of the program N times in this process, so that `cargo xtask bench` can measure it from outside.
//!
//! `in_process PART N` prints `ready`, waits for a line on stdin, does the work, prints `done`, and waits for the end
//! of stdin. Its input is the same in every run, so that instructions can be counted. `in_process PART N idle` only
//! prepares the work; the benchmark subtracts its instructions.

#![expect(clippy::print_stdout, reason = "no protocol runs on this program's stdout")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use engine::script::ScriptedModel;
use process::Spec;
use process::container::{ContainerOptions, Containers, Engine, Image};
use process::sandbox::{Level, Profile, Sandbox, secret_places};
use purlin::assemble;
use serde::Deserialize;
use serde_json::value::RawValue;
use serve::Pipes;
use settings::{Config, Directories, Limits, Settings};
use tokio::sync::mpsc;
use wire::acp::{AgentCall, schema};
use wire::line::{Line, LineDecoder};
use wire::{Incoming, Peer, SizeLimits, rpc};

/// About as much as a streaming client reads at once.
const READ: usize = 64 * 1024;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (part, count, is_idle) = match words.as_slice() {
        [part, count] => (*part, count, false),
        [part, count, "idle"] => (*part, count, true),
        _ => anyhow::bail!(
            "usage: in_process inbound|inbound-plain|skip|encode|outbound|spawn|sandbox|container=HOST N [idle]"
        ),
    };
    let count = count.parse().context("N must be a whole number")?;
    match part {
        "inbound" => measure(is_idle, prompts(count), |bytes| inbound(&bytes)),
        "inbound-plain" => measure(is_idle, prompts(count), |bytes| inbound_plain(&bytes)),
        "skip" => measure(is_idle, long_line(count), |bytes| skip(&bytes)),
        "encode" => measure(is_idle, count, encode),
        "outbound" => measure(is_idle, streaming_options(count)?, outbound),
        "spawn" => measure(is_idle, Level::None, |level| commands(level, count)),
        "sandbox" => measure(is_idle, Level::Full, |level| commands(level, count)),
        part if part.starts_with("container=") => {
            let host = part.trim_start_matches("container=");
            measure(is_idle, Contained::start(host)?, |contained| {
                contained.run(count)?;
                // It ends with this process, after the time was measured.
                std::mem::forget(contained);
                Ok(())
            })
        }
        other => anyhow::bail!("unknown part `{other}`"),
    }
}

/// Does the work after a line on stdin, then waits until its CPU time was read.
fn measure<T>(
    is_idle: bool,
    prepared: T,
    work: impl FnOnce(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    println!("ready");
    lines.next().transpose()?;
    if is_idle {
        black_box(prepared);
    } else {
        work(prepared)?;
    }
    println!("done");
    lines.next().transpose()?;
    Ok(())
}

/// Returns this many prompts, one after the other, as a client writes them.
fn prompts(count: usize) -> Vec<u8> {
    let mut lines = String::new();
    for id in 0..count {
        lines.push_str(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"01890a5d-ac96-774b-bcce-b302099a8057","prompt":[{{"type":"text","text":"What does the function `feed` in line.rs do, and why does it \"drain\" first?\nPlease be brief."}},{{"type":"resource_link","uri":"file:///home/me/project/src/line.rs","name":"line.rs"}}]}}}}"#
        ));
        lines.push('\n');
    }
    lines.into_bytes()
}

/// Reads messages as Purlin does: lines, envelope, matching of ids, typed parameters.
fn inbound(bytes: &[u8]) -> anyhow::Result<()> {
    let mut peer = Peer::new(SizeLimits::default());
    for read in bytes.chunks(READ) {
        peer.feed(read);
        while let Some(incoming) = peer.poll_event() {
            let Incoming::Call { id, method, params } = incoming else {
                anyhow::bail!("not a call: {incoming:?}");
            };
            let call = AgentCall::decode(&method, params);
            black_box(call.map_err(|error| anyhow::anyhow!("{error:?}"))?);
            peer.close(&id);
        }
    }
    Ok(())
}

/// Reads messages with the least work: serde for the envelope and for the parameters of complete lines.
fn inbound_plain(bytes: &[u8]) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        method: &'a str,
        #[serde(borrow)]
        params: &'a RawValue,
    }
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let envelope: Envelope<'_> = serde_json::from_slice(line)?;
        anyhow::ensure!(envelope.method == "session/prompt", "not a prompt");
        black_box(envelope.id);
        black_box(serde_json::from_str::<schema::PromptRequest>(envelope.params.get())?);
    }
    Ok(())
}

/// Returns one line of this many bytes, which is too long for any method.
fn long_line(bytes: usize) -> Vec<u8> {
    let mut line = br#"{"jsonrpc":"2.0","method":"initialize","params":{"text":""#.to_vec();
    line.extend("words that never end, ".bytes().cycle().take(bytes));
    line.extend_from_slice(b"\"},\"id\":1}\n");
    line
}

fn skip(bytes: &[u8]) -> anyhow::Result<()> {
    let mut decoder = LineDecoder::new(SizeLimits::default());
    let mut skipped = 0;
    for read in bytes.chunks(READ) {
        decoder.feed(read);
        while let Some(line) = decoder.next_line() {
            skipped += usize::from(matches!(line, Line::TooLong(_)));
        }
    }
    anyhow::ensure!(skipped == 1, "the line was not skipped");
    Ok(())
}

/// Encodes typed updates as lines, into a reused buffer.
fn encode(count: usize) -> anyhow::Result<()> {
    let session: Arc<str> = "01890a5d-ac96-774b-bcce-b302099a8057".into();
    let mut line = Vec::new();
    for _ in 0..count {
        let text = schema::TextContent::new("some twenty bytes of text ");
        let chunk = schema::ContentChunk::new(schema::ContentBlock::Text(text));
        let notification = schema::SessionNotification::new(
            schema::SessionId::new(Arc::clone(&session)),
            schema::SessionUpdate::AgentMessageChunk(chunk),
        );
        line.clear();
        rpc::print_note(&mut line, "session/update", &notification)?;
        black_box(&line);
    }
    Ok(())
}

/// Returns the options for a model that sends this many chunks. They cannot be joined: text and thoughts alternate.
fn streaming_options(chunks: usize) -> anyhow::Result<serve::Options> {
    let pair =
        "model text \"some twenty bytes of text \"\nmodel thought \"some twenty bytes of text \"\n";
    let model = ScriptedModel::parse(&pair.repeat(chunks / 2))?;
    let mut hub = assemble::hub_options(None)?;
    hub.models = assemble::scripted(model)?;
    let limits = Limits { updates_per_minute: 0, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let settings = Settings::new(config, Vec::new(), Directories::default());
    Ok(serve::Options {
        hub,
        dialect: None,
        cwd: tempfile::env::temp_dir(),
        stop: Default::default(),
        workspaces: assemble::workspaces(settings, std::env::current_exe()?, true),
        keys: None,
        watcher: None,
        tape: None,
    })
}

/// Runs the smallest command this many times, one after the other, with the sandbox of this level.
fn commands(level: Level, count: usize) -> anyhow::Result<()> {
    let us = std::env::current_exe()?;
    let directories =
        us.parent().and_then(Path::parent).context("the program is beside the examples")?;
    let work = tempfile::env::temp_dir().join(format!("in-process-{}", std::process::id()));
    std::fs::create_dir_all(&work)?;
    let sandbox = Sandbox::new(directories.join("purlin"), work.clone()).at_most(level);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let found = sandbox.found().await;
        anyhow::ensure!(found.level == level, "{level} does not work here: {:?}", found.missing);
        let profile = Profile {
            protected: vec![work.join(".git")],
            hidden: secret_places(&purlin::env::directories().home.unwrap_or_default()),
            ..Profile::writing_to(vec![work.clone()])
        };
        for _ in 0..count {
            let mut child = sandbox.spawn(&Spec::new("/bin/true", &work), &profile, &found)?;
            anyhow::ensure!(child.wait().await?.success(), "the command failed");
        }
        Ok(())
    })?;
    Ok(std::fs::remove_dir_all(&work)?)
}

/// A container that runs already.
struct Contained {
    runtime: tokio::runtime::Runtime,
    containers: Containers,
    work: PathBuf,
}

impl Contained {
    fn start(host: &str) -> anyhow::Result<Contained> {
        // Beside the socket: the benchmark removes that directory.
        let socket = Path::new(host.trim_start_matches("unix://"));
        let work = socket.parent().context("the host is a socket")?.join("work");
        std::fs::create_dir_all(&work)?;
        let environment = [("DOCKER_HOST".into(), host.into())];
        let search = ["/usr/bin", "/usr/local/bin", "/bin"].map(PathBuf::from);
        let containers = Containers::new(ContainerOptions {
            engines: Engine::find(Some("docker"), &search, &environment),
            images: vec![Image::Named("purlin-bench".to_owned())],
            network: None,
            memory: "1g".to_owned(),
            cpus: None,
            processes: 100,
            user: None,
            environment: BTreeMap::new(),
            mounts: Vec::new(),
            aliases: Vec::new(),
            run_args: Vec::new(),
            after_create: Vec::new(),
            scratch: work.join("scratch"),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let contained = Contained { runtime, containers, work };
        contained.run(1)?;
        Ok(contained)
    }

    fn run(&self, count: usize) -> anyhow::Result<()> {
        let profile = Profile::writing_to(vec![self.work.join("project")]);
        std::fs::create_dir_all(self.work.join("project"))?;
        let spec = Spec::new("/bin/true", self.work.join("project"));
        self.runtime.block_on(async {
            for _ in 0..count {
                let mut child = self.containers.spawn(&spec, &profile, &[]).await?;
                anyhow::ensure!(child.wait().await?.success(), "the command failed");
            }
            Ok(())
        })
    }
}

/// Runs the whole output path, from the model's chunks to batches of lines, on one thread and without a pipe.
fn outbound(options: serve::Options) -> anyhow::Result<()> {
    let (to_agent, input) = mpsc::channel(4);
    let (output, from_agent) = mpsc::channel(1);
    let (return_buffer, written) = mpsc::channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let client = client(to_agent, from_agent, return_buffer);
        let ((), outcome) = tokio::join!(
            serve::serve(Pipes { input, output, written, progress: Default::default() }, options),
            client
        );
        outcome
    })
}

/// Opens a session, sends one prompt, and reads all lines until it is answered.
async fn client(
    to_agent: mpsc::Sender<Vec<u8>>,
    mut from_agent: mpsc::Receiver<Vec<u8>>,
    return_buffer: mpsc::Sender<std::io::Result<Vec<u8>>>,
) -> anyhow::Result<()> {
    let open = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/new\",\"params\":{\"cwd\":\"/tmp\",\"mcpServers\":[]}}\n";
    to_agent.send(open.as_bytes().to_vec()).await?;
    while let Some(batch) = from_agent.recv().await {
        let text = std::str::from_utf8(&batch)?;
        if text.contains("\"stopReason\"") {
            break;
        }
        if let Some((_, rest)) = text.split_once("\"result\":{\"sessionId\":\"")
            && let Some((session, _)) = rest.split_once('"')
        {
            let prompt = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/prompt\",\"params\":{{\"sessionId\":\"{session}\",\"prompt\":[{{\"type\":\"text\",\"text\":\"go\"}}]}}}}\n"
            );
            to_agent.send(prompt.into_bytes()).await?;
        }
        return_buffer.send(Ok(batch)).await?;
    }
    Ok(())
}
