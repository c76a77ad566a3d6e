//! `purlin tap`: stands between an editor and any ACP agent, passes every byte on unchanged, and records the messages.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use observe::Tap;
use process::{Child, Guard, Spec};
use tokio::time::timeout;

use crate::acp::Signals;
use crate::observer;

/// The size of a read.
const READ: usize = 64 * 1024;
/// How long the agent may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// The arguments of `purlin tap`.
#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// Record every message in this file, with secrets masked; view it with `purlin trace FILE`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The agent and its arguments
    #[arg(required = true, last = true, value_name = "AGENT")]
    agent: Vec<String>,
}

/// Runs the agent until it ends. Returns its exit code.
///
/// # Errors
/// Says why the agent cannot be started, or the trace cannot be written.
pub(crate) fn run(args: &TapArgs) -> anyhow::Result<ExitCode> {
    let name = args.agent.first().map(String::as_str).unwrap_or_default();
    let tap = observer::tap_of(name, args.trace.as_deref())?;
    let socket = observer::listen(&tap);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(pass_on(&args.agent, &tap))?;
    tap.end();
    observer::remove(socket);
    // The thread that reads our input may wait forever.
    std::process::exit(code)
}

async fn pass_on(agent: &[String], tap: &Tap) -> anyhow::Result<i32> {
    let (program, arguments) = agent.split_first().context("name an agent to run")?;
    let mut signals = Signals::listen()?;
    let spec = Spec::new(program, std::env::current_dir()?).args(arguments);
    let mut child = process::spawn(&spec)?;
    let guard = Guard::default();
    let watched = guard.watch(&child);
    let outputs = connect(&mut child, tap)?;
    let status = tokio::select! {
        status = child.wait() => status?,
        () = signals.next() => end(&mut child).await?,
    };
    drop(watched);
    // What the agent wrote before it ended is still in the pipes.
    tokio::task::spawn_blocking(move || outputs.into_iter().for_each(|copy| drop(copy.join())))
        .await?;
    Ok(status.code().unwrap_or(1))
}

async fn end(child: &mut Child) -> anyhow::Result<std::process::ExitStatus> {
    child.terminate();
    if let Ok(status) = timeout(GRACE, child.wait()).await {
        return Ok(status?);
    }
    child.kill();
    Ok(child.wait().await?)
}

/// Starts the threads that copy. Returns those for what the agent writes.
fn connect(child: &mut Child, tap: &Tap) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        anyhow::bail!("the agent has no pipes");
    };
    let stdin = File::from(stdin.into_owned_fd()?);
    let stdout = File::from(stdout.into_owned_fd()?);
    let stderr = File::from(stderr.into_owned_fd()?);
    let inbound = tap.inbound(std::io::stdin());
    // Dropping its end of the pipe is the end of the agent's input.
    thread("in", move || copy(inbound, stdin))?;
    let outbound = tap.outbound(std::io::stdout());
    Ok(vec![
        thread("out", move || copy(stdout, outbound))?,
        thread("err", move || copy(stderr, std::io::stderr()))?,
    ])
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024);
    Ok(thread.spawn(work)?)
}

/// Copies until one side ends. Each read is written at once.
fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; READ];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            Err(err) => {
                tracing::debug!("a pipe ended: {err}");
                return;
            }
        }
    }
}
