//! Commands in the background: `bash` starts them, `bash_output` reads them, `bash_kill` ends them. They end with the session.
//!
//! Each has a task, which owns the process and its unread output. Dropping the tasks kills the processes; if we are killed, the
//! sandbox or the guard ends them.

mod tools;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::ports::{Output, ToolCx, ToolError};
use engine::words::{Block, ExitStatus, ToolContent};
use futures_util::FutureExt;
use process::guard::{Guard, Watched};
use process::sandbox::{Found, Level, SharedDirectory};
use process::{Child, Tail};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::before::Before;
use super::output::Plain;
use super::run::{DRAIN, GRACE, exit_status, read};
use super::watch::ended_because;
use super::{Bash, Input, not_run};

pub use tools::tools;

/// How many may run at the same time.
const MOST_RUNNING: usize = 8;
/// How many are remembered after their end.
const MOST_ENDED: usize = 32;
/// How many bytes of unread output are held. The beginning of more is dropped.
const UNREAD: usize = 512 * 1024;

/// The commands of a session in the background.
#[derive(Debug, Default)]
pub(super) struct Background {
    state: Mutex<State>,
    /// For commands that no sandbox ends with us.
    guard: Guard,
}

#[derive(Debug, Default)]
struct State {
    started: usize,
    commands: Vec<Arc<Command>>,
    /// Dropping it drops the processes.
    tasks: JoinSet<()>,
}

/// A command in the background.
#[derive(Debug)]
pub(super) struct Command {
    id: String,
    /// The command itself, for titles.
    words: String,
    unread: Mutex<Unread>,
    /// What the user must know about it and was not told yet.
    warnings: Mutex<Vec<String>>,
    /// Wakes its task to end it.
    end: Notify,
    progress: watch::Sender<Progress>,
}

/// How far a command is. Changes with every output.
#[derive(Debug, Clone, Default, PartialEq)]
struct Progress {
    bytes: u64,
    /// Once it has ended: its exit status, or why it did not run.
    ended: Option<Result<ExitStatus, String>>,
}

/// Output that was not read yet, without control characters.
#[derive(Debug)]
struct Unread {
    plain: Plain,
    tail: Tail,
    total: usize,
}

impl Command {
    fn new(id: String, words: String) -> Command {
        let unread = Unread { plain: Plain::default(), tail: Tail::new(UNREAD), total: 0 };
        let (unread, progress) = (Mutex::new(unread), watch::Sender::default());
        let (warnings, end) = (Mutex::default(), Notify::new());
        Command { id, words, unread, warnings, end, progress }
    }

    fn is_running(&self) -> bool {
        self.progress.borrow().ended.is_none()
    }

    fn push(&self, bytes: &[u8]) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let text = unread.plain.push(bytes);
        unread.tail.push(text.as_bytes());
        unread.total += text.len();
        drop(unread);
        self.progress.send_modify(|progress| progress.bytes += bytes.len() as u64);
    }

    /// Takes the output since the last time.
    fn take(&self) -> String {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::mem::replace(&mut unread.tail, Tail::new(UNREAD)).text();
        match std::mem::take(&mut unread.total) - text.len() {
            0 => text,
            dropped => format!("… {dropped} bytes of older output were dropped …\n{text}"),
        }
    }
}

impl Background {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Result<Arc<Command>, ToolError> {
        let state = self.state();
        let found = state.commands.iter().find(|command| command.id == id.trim());
        found.cloned().ok_or_else(|| {
            let known: Vec<&str> = state.commands.iter().map(|command| &*command.id).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            ToolError::Model(format!("no command `{id}` in the background; there are: {known}"))
        })
    }

    /// Takes what the user must know about commands that have ended.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        let state = self.state();
        let take = |command: &Arc<Command>| {
            std::mem::take(&mut *command.warnings.lock().unwrap_or_else(PoisonError::into_inner))
        };
        state.commands.iter().flat_map(take).collect()
    }

    /// Fails if no further command may be started.
    fn check_room(&self) -> Result<(), ToolError> {
        let state = self.state();
        let running: Vec<&str> = state
            .commands
            .iter()
            .filter(|command| command.is_running())
            .map(|command| &*command.id)
            .collect();
        match running.len() < MOST_RUNNING {
            true => Ok(()),
            false => Err(not_run(format!(
                "{MOST_RUNNING} commands already run in the background ({}). End one with `bash_kill`",
                running.join(", ")
            ))),
        }
    }

    fn add(&self, words: &str, run: impl FnOnce(Arc<Command>) -> BoxedRun) -> Arc<Command> {
        let mut state = self.state();
        while state.tasks.try_join_next().is_some() {}
        let ended = state.commands.iter().filter(|command| !command.is_running()).count();
        if ended > MOST_ENDED
            && let Some(oldest) = state.commands.iter().position(|command| !command.is_running())
        {
            state.commands.remove(oldest);
        }
        state.started += 1;
        let command = Arc::new(Command::new(format!("bg{}", state.started), words.to_owned()));
        state.commands.push(Arc::clone(&command));
        state.tasks.spawn(run(Arc::clone(&command)));
        command
    }
}

type BoxedRun = futures_util::future::BoxFuture<'static, ()>;

impl Bash {
    /// Starts a command in the background.
    pub(super) async fn start(
        self: &Arc<Self>,
        cx: &ToolCx<'_>,
        input: &Input,
        found: &Found,
        before: Before,
    ) -> Result<Output, ToolError> {
        self.background.check_room()?;
        self.warn(cx, None).await?;
        let spec = self.spec_of(cx.cwd, &input.command);
        let profile = self.profile_of(input).await?;
        let spawned = cx.or_cancelled(self.spawn(&spec, &profile, found)).await?;
        let child = match spawned {
            Ok(child) => child,
            Err(err) => return Err(self.not_run(&err, "").await),
        };
        let is_guarded = found.level == Level::None || !cfg!(target_os = "linux");
        let watched = is_guarded.then(|| self.background.guard.watch(&child));
        let temporary = self.temporary();
        let command = self.background.add(&input.command, move |command| {
            Box::pin(run(command, before, temporary, watched, child))
        });
        let id = &command.id;
        let text = format!(
            "Started in the background as `{id}`. Read its output with `bash_output`, end it with `bash_kill`. It ends with \
             the session."
        );
        let content = Some(vec![ToolContent::Block(Block::Text(text.clone()))]);
        Ok(Output { text, content, raw: Some(json!({ "id": id })) })
    }
}

/// Runs a command to its end. Parameters are dropped from the last to the first: the process before what it needs.
async fn run(
    command: Arc<Command>,
    before: Before,
    _temporary: Option<Arc<SharedDirectory>>,
    _watched: Option<Watched>,
    mut child: Child,
) {
    let mut pipe = child.stdout.take();
    let mut buffer = vec![0; 16 * 1024];
    let mut kill_at: Option<Instant> = None;
    let mut again = before.again();
    let created_again = async {
        match &mut again {
            Some(again) => again.wait().await,
            None => std::future::pending().await,
        }
    };
    let mut created_again = std::pin::pin!(created_again.fuse());
    let status = loop {
        let next = kill_at.unwrap_or_else(Instant::now);
        tokio::select! {
            read = read(&mut pipe, &mut buffer) => command.push(&buffer[..read]),
            status = child.wait() => break status,
            () = command.end.notified() => {
                child.terminate();
                kill_at = Some(Instant::now() + GRACE);
            }
            path = &mut created_again => {
                command.push(format!("\n({})\n", ended_because(&path)).as_bytes());
                command.end.notify_one();
            }
            () = sleep_until(next), if kill_at.is_some() => {
                child.kill();
                kill_at = Some(Instant::now() + GRACE);
            }
        }
    };
    let rest = async {
        while pipe.is_some() {
            let read = read(&mut pipe, &mut buffer).await;
            command.push(&buffer[..read]);
        }
    };
    // A timeout is no error here.
    timeout(DRAIN, rest).await.ok();
    match before.check().await {
        Ok(after) => {
            command.push(after.note().unwrap_or_default().as_bytes());
            let mut warnings = command.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.extend(after.left_behind.warning());
        }
        Err(err) => tracing::error!("what a command left behind could not be checked: {err}"),
    }
    let ended = status.map(exit_status).map_err(|err| err.to_string());
    command.progress.send_modify(|progress| progress.ended = Some(ended));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_output_is_bounded_and_read_once() {
        let command = Command::new("bg1".to_owned(), "x".to_owned());
        command.push(b"one\n");
        command.push(b"two\x1b[0m\n");
        assert_eq!(command.take(), "one\ntwo\n");
        assert_eq!(command.take(), "");
        for _ in 0..3 {
            command.push(&vec![b'x'; UNREAD]);
        }
        command.push(b"end\n");
        let text = command.take();
        assert!(text.len() < UNREAD + 100 && text.ends_with("xend\n"), "{}", text.len());
        assert!(text.starts_with(&format!("… {} bytes of older output", 2 * UNREAD + 4)));
    }
}
