//! An agent in this process, assembled as the program does it, with the model lines of a transcript as its model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::transcript::Transcript;
use serve::Pipes;
use settings::{Config, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;

/// The client's ends of the pipes to a running agent. The agent ends when this is dropped.
pub(crate) struct Agent {
    pub(crate) input: DuplexStream,
    pub(crate) output: DuplexStream,
    _tasks: JoinSet<()>,
}

/// Starts an agent that works in `work`. It stores its sessions in `data`, if there is such a directory.
pub(crate) fn start(transcript: &Transcript, work: &Path, data: Option<PathBuf>) -> Agent {
    let (agent_in, input) = duplex(64 * 1024);
    let (output, agent_out) = duplex(64 * 1024);
    let mut tasks = JoinSet::new();
    let pipes = pipes(agent_in, agent_out, &mut tasks);
    tasks.spawn(serve::serve(pipes, options(transcript, work, data)));
    Agent { input, output, _tasks: tasks }
}

fn options(transcript: &Transcript, work: &Path, data: Option<PathBuf>) -> serve::Options {
    let model = engine::script::ScriptedModel::parse(&transcript.script(work)).unwrap();
    let config = transcript.config().cloned();
    let directories = purlin::env::directories();
    let read = |config| Config::from_value(config, directories.home.as_deref());
    let (config, problems) = config.map_or_else(Default::default, read);
    let mut hub = purlin::assemble::hub_options(None).unwrap();
    hub.models = purlin::assemble::scripted(model).unwrap();
    if let Some(data) = &data {
        hub.journal = Arc::new(purlin::storage::store_in(
            store::Location::Directory(data.clone()),
            &config.limits,
        ));
    }
    let dialect = config.dialect.as_deref().and_then(Dialect::from_name);
    let settings = Settings { answers: data, ..Settings::new(config, problems, directories) };
    let helper = env!("CARGO_BIN_EXE_purlin").into();
    serve::Options {
        hub,
        dialect,
        cwd: work.to_owned(),
        stop: CancellationToken::new(),
        workspaces: purlin::assemble::workspaces(settings, helper, true),
        keys: None,
        watcher: None,
        tape: None,
    }
}

/// Connects two in-memory pipes to the agent's channels.
fn pipes(mut input: DuplexStream, mut output: DuplexStream, tasks: &mut JoinSet<()>) -> Pipes {
    let (to_agent, from_client) = mpsc::channel(4);
    let (to_writer, mut batches) = mpsc::channel::<Vec<u8>>(1);
    let (to_ack, written) = mpsc::channel(1);
    tasks.spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok(count) = input.read(&mut buffer).await {
            if count == 0 || to_agent.send(buffer[..count].to_vec()).await.is_err() {
                return;
            }
        }
    });
    tasks.spawn(async move {
        while let Some(batch) = batches.recv().await {
            let done = output.write_all(&batch).await.map(|()| batch);
            if to_ack.send(done).await.is_err() {
                return;
            }
        }
    });
    Pipes { input: from_client, output: to_writer, written, progress: Default::default() }
}
