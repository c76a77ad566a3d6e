//! A language server: started for the first file that it is for, restarted if it ends, ended with the session.
//!
//! `connection` speaks the protocol.

mod connection;
mod frame;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use process::Tail;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Diagnostic, LanguageServer};
use crate::bash::Bash;

/// How often a server is started in a session. One that keeps ending is not started again.
const MOST_STARTS: u32 = 3;
/// How much longer than its own time limits a server's task may take.
const SPARE: Duration = Duration::from_secs(5);
/// The most bytes of its error output that are held.
const MOST_ERRORS: usize = 4 * 1024;

/// A file to look at.
struct Job {
    /// Its URI.
    uri: String,
    text: String,
    /// Gets the diagnostics, or why there are none.
    reply: oneshot::Sender<Result<Vec<Diagnostic>, String>>,
}

/// A language server of a session.
pub(super) struct Server {
    options: LanguageServer,
    state: Mutex<State>,
}

struct State {
    starts: u32,
    /// When its task has ended, the receiver is gone. One job at a time: tools that edit run one after the other.
    jobs: Option<mpsc::Sender<Job>>,
    /// Dropping it kills the server.
    task: JoinSet<()>,
    /// The end of its error output.
    errors: Arc<Mutex<Tail>>,
}

impl Server {
    pub(super) fn new(options: LanguageServer) -> Server {
        let errors = Arc::new(Mutex::new(Tail::new(MOST_ERRORS)));
        let state = State { starts: 0, jobs: None, task: JoinSet::new(), errors };
        Server { options, state: Mutex::new(state) }
    }

    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    pub(super) fn is_for(&self, file: &Path) -> bool {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        self.options.extensions.iter().any(|end| name.ends_with(end.as_str()))
    }

    pub(super) fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs = None;
        state.task = JoinSet::new();
    }

    /// Returns the diagnostics of a file with this text.
    ///
    /// # Errors
    /// Says why there are none.
    pub(super) async fn diagnose(
        &self,
        bash: &Arc<Bash>,
        cwd: &Path,
        file: &Path,
        text: String,
    ) -> Result<Vec<Diagnostic>, String> {
        let jobs = match self.running() {
            Some(jobs) => jobs,
            None => self.start(bash, cwd).await?,
        };
        let (reply, answer) = oneshot::channel();
        let gone = || self.last_words();
        let work = async {
            let job = Job { uri: connection::uri_of(file), text, reply };
            jobs.send(job).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        // The task has its own time limits, for the start and for the file; this one is for a task that hangs.
        timeout(2 * self.options.timeout + SPARE, work).await.unwrap_or_else(|_| {
            self.stop();
            Err("it does not answer and was ended".to_owned())
        })
    }

    /// Says that the server has ended, with the last line of its error output.
    fn last_words(&self) -> String {
        let errors = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let errors = state.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.text()
        };
        let command = self.options.command.join(" ");
        match errors.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => format!("{command} ended: {}", line.trim()),
            None => format!("{command} ended"),
        }
    }

    fn running(&self) -> Option<mpsc::Sender<Job>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.clone().filter(|jobs| !jobs.is_closed())
    }

    async fn start(&self, bash: &Arc<Bash>, cwd: &Path) -> Result<mpsc::Sender<Job>, String> {
        let LanguageServer { command, environment, must_be_confined, .. } = &self.options;
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.starts >= MOST_STARTS {
                return Err(format!("it was started {MOST_STARTS} times and ended each time"));
            }
            state.starts += 1;
        }
        let child = bash.spawn_server(cwd, command, environment, *must_be_confined).await?;
        // When it is full, the next edit waits for the one before.
        let (sender, jobs) = mpsc::channel(1);
        let errors = Arc::new(Mutex::new(Tail::new(MOST_ERRORS)));
        let connection =
            connection::Connection::new(child, cwd, &self.options, Arc::clone(&errors))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.jobs, state.errors) = (Some(sender.clone()), errors);
        state.task = JoinSet::new();
        state.task.spawn(connection.run(jobs));
        Ok(sender)
    }
}
