//! `purlin acp --record` and `purlin replay`: a recording of everything that sessions depended on, and its replay.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use engine::hub::HubOptions;
use recording::{Masks, OUTPUT, Player, Recorder, Tape};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serve::{ClientKeys, Pipes};
use settings::{Config, Limits, Settings};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;

use crate::{assemble, stdout};

/// How secrets are masked in recordings.
const MASKS: Masks = Masks { message: observe::mask::mask, text: observe::mask::mask_text };

/// A replay that makes no progress for this long, and longer than the recorded process waited, is another one.
const STALLED: Duration = Duration::from_secs(10);

/// What a replay must know from the beginning.
#[derive(Serialize, Deserialize)]
struct Header {
    version: String,
    dialect: Option<String>,
    cwd: PathBuf,
    limits: Limits,
    has_preferences: bool,
}

/// Begins a recording of a connection: wraps what its sessions share.
///
/// # Errors
/// Says what cannot be written.
pub(crate) fn begin(
    directory: &Path,
    dialect: Option<Dialect>,
    config: &Config,
    hub: &mut HubOptions,
) -> anyhow::Result<Tape> {
    let header = Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        dialect: dialect.map(|dialect| dialect.name().to_owned()),
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        limits: config.limits.clone(),
        has_preferences: hub.preferences.is_some(),
    };
    let recorder = Recorder::new(directory, MASKS, &json!(header));
    let recorder = recorder.with_context(|| format!("cannot record to {}", directory.display()))?;
    let tape = Tape::Record(Arc::new(recorder));
    hub.clock = tape.clock(Arc::clone(&hub.clock));
    hub.journal = tape.journal(Arc::clone(&hub.journal));
    hub.preferences = hub.preferences.take().map(|preferences| tape.preferences(preferences));
    let models = Arc::clone(&hub.models);
    let find = hub
        .find_models
        .take()
        .unwrap_or_else(|| Arc::new(move || Box::pin(std::future::ready(Arc::clone(&models)))));
    hub.find_models = Some(tape.models(find));
    Ok(tape)
}

/// The arguments of `purlin replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Directory of the recording
    directory: PathBuf,
    /// Write the output of the replay to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Plays a recording. Exits with 1 if the output differs.
///
/// # Errors
/// Says what cannot be read or written.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let player = Player::open(directory, MASKS);
    let player = player.with_context(|| format!("no recording in {}", directory.display()))?;
    let player = Arc::new(player);
    let header: Header = player.header().context("the recording has no readable beginning")?;
    let expected = directory.join(OUTPUT);
    let expected = std::fs::File::open(&expected)
        .with_context(|| format!("cannot read {}", expected.display()))?;
    let copy = args.output.as_ref().map(|path| {
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
    });
    let compare = Compare {
        expected: BufReader::new(expected),
        copy: copy.transpose()?,
        lines: 0,
        difference: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let recorded_by = header.version.clone();
    let compare = runtime.block_on(play(Arc::clone(&player), header, compare))?;
    let report = compare.report(&player, &recorded_by)?;
    stdout::print(&report.text)?;
    Ok(report.code)
}

/// Plays the recording to its end, or until it cannot continue.
async fn play(player: Arc<Player>, header: Header, compare: Compare) -> anyhow::Result<Compare> {
    let tape = Tape::Play(Arc::clone(&player));
    let mut hub = assemble::hub_options(None)?;
    hub.clock = tape.clock(Arc::clone(&hub.clock));
    hub.journal = tape.played_journal();
    hub.preferences = header.has_preferences.then(|| tape.played_preferences());
    let models = Arc::clone(&hub.models);
    hub.find_models =
        Some(tape.models(Arc::new(move || Box::pin(std::future::ready(Arc::clone(&models))))));
    let config = Config { limits: header.limits, ..Config::default() };
    // Nothing of this machine is used: workspaces come from the recording.
    let settings = Settings::new(config, Vec::new(), settings::Directories::default());
    let (pipes, batches, written) = pipes();
    let options = serve::Options {
        hub,
        dialect: header.dialect.as_deref().and_then(Dialect::from_name),
        cwd: header.cwd,
        stop: CancellationToken::new(),
        workspaces: assemble::workspaces(settings, PathBuf::new(), false),
        keys: Some(Arc::new(NoKeys)),
        watcher: None,
        tape: Some(tape),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(serve::serve(pipes, options));
    let mut reader = JoinSet::new();
    let watched = Arc::clone(&player);
    reader.spawn(async move { compare.all(batches, written, &watched).await });
    let mut progress = player.progress();
    loop {
        let wait = STALLED + player.recorded_wait();
        let is_over = player.problem().is_some() || (player.is_done() && !player.has_end());
        tokio::select! {
            _ = tasks.join_next() => break,
            () = tokio::task::yield_now(), if is_over => {
                settle().await;
                break;
            }
            moved = tokio::time::timeout(wait, progress.changed()) => if moved.is_err() {
                let expected = player.expected().unwrap_or_else(|| "the end".to_owned());
                let asked = player.asked().join("\n  ");
                player.fail(format!("this did not happen again:\n  {expected}\nInstead, this is waited for:\n  {asked}"));
                break;
            },
        }
    }
    // The connection's end of the pipe must be gone before the reader sees the end.
    tasks.shutdown().await;
    reader.join_next().await.context("nothing was compared")?.context("the comparison failed")
}

/// Lets everything happen that needs no further step.
async fn settle() {
    for _ in 0..256 {
        tokio::task::yield_now().await;
    }
}

/// Makes the pipes of a client that only reads: what it sent is in the recording.
#[expect(clippy::type_complexity, reason = "two ends of two channels")]
fn pipes() -> (Pipes, mpsc::Receiver<Vec<u8>>, mpsc::Sender<std::io::Result<Vec<u8>>>) {
    // One batch at a time, as with a real client.
    let (to_writer, batches) = mpsc::channel(1);
    let (to_ack, written) = mpsc::channel(1);
    let (_, input) = mpsc::channel(1);
    let progress = Arc::new(AtomicU64::new(0));
    (Pipes { input, output: to_writer, written, progress }, batches, to_ack)
}

/// Keys of the client, of which a replay has none.
struct NoKeys;

impl ClientKeys for NoKeys {
    fn give(&self, _: &str, _: &str) {}

    fn forget(&self) {}
}

/// Compares the output with the recorded one, line by line.
struct Compare {
    expected: BufReader<std::fs::File>,
    copy: Option<std::fs::File>,
    lines: u64,
    difference: Option<Difference>,
}

/// The first line that differs.
struct Difference {
    line: u64,
    expected: Option<String>,
    found: Option<String>,
}

struct Report {
    text: String,
    code: ExitCode,
}

impl Compare {
    /// Compares every batch, and acknowledges it as a client that reads at once.
    async fn all(
        mut self,
        mut batches: mpsc::Receiver<Vec<u8>>,
        written: mpsc::Sender<std::io::Result<Vec<u8>>>,
        player: &Player,
    ) -> Compare {
        while let Some(batch) = batches.recv().await {
            if let Err(err) = self.batch(&batch) {
                player.fail(err.to_string());
            } else if self.difference.is_some() {
                player.fail("the output differs".to_owned());
            }
            if written.send(Ok(Vec::new())).await.is_err() {
                break;
            }
        }
        self
    }

    fn batch(&mut self, batch: &[u8]) -> std::io::Result<()> {
        if let Some(copy) = &mut self.copy {
            copy.write_all(batch)?;
        }
        for line in batch.split_inclusive(|byte| *byte == b'\n') {
            if self.difference.is_some() {
                return Ok(());
            }
            self.lines += 1;
            let found = String::from_utf8_lossy(line);
            // The recorded lines are masked.
            let found = format!("{}\n", MASKS.line(found.trim_end_matches('\n')));
            let expected = self.next_expected()?;
            if expected.as_deref() != Some(found.as_str()) {
                let found = Some(found);
                self.difference = Some(Difference { line: self.lines, expected, found });
            }
        }
        Ok(())
    }

    fn next_expected(&mut self) -> std::io::Result<Option<String>> {
        let mut line = Vec::new();
        self.expected.read_until(b'\n', &mut line)?;
        Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
    }

    fn report(mut self, player: &Player, version: &str) -> anyhow::Result<Report> {
        if self.difference.is_none()
            && player.problem().is_none()
            && let Some(expected) = self.next_expected()?
        {
            let line = self.lines + 1;
            self.difference = Some(Difference { line, expected: Some(expected), found: None });
        }
        let different = |text: String| Ok(Report { text, code: ExitCode::from(1) });
        if let Some(Difference { line, expected, found }) = &self.difference {
            let show = |line: &Option<String>| match line {
                Some(line) => line.trim_end().to_owned(),
                None => "(nothing)".to_owned(),
            };
            let (expected, found) = (show(expected), show(found));
            return different(format!(
                "Line {line} of the output differs (recorded by version {version}).\n- {expected}\n+ {found}\n"
            ));
        }
        if let Some(problem) = player.problem() {
            let lines = self.lines;
            return different(format!("The first {lines} lines are identical. Then {problem}\n"));
        }
        let lines = self.lines;
        let text = match player.has_end() {
            true => format!("Identical: {lines} lines\n"),
            false => format!("Identical: {lines} lines, up to where the recording was cut off\n"),
        };
        Ok(Report { text, code: ExitCode::SUCCESS })
    }
}
