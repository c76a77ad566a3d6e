//! `purlin acp --connect URL`: stands between an editor that can only start programs and a server.
//!
//! It passes messages on. When the connection is lost, it connects again, attaches to the open sessions, asks for what it
//! missed by number, and sends unanswered requests again; prompts have a key, so none is answered twice. The editor sees a
//! pause. `shim::state` knows what is needed to continue; this file moves the lines.

mod state;

use std::process::ExitCode;
use std::time::Duration;

use client::remote::{self, Receiver, Sender};
use serve::{Pipes, stdio};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::state::{FromServer, State};
use crate::{env, log, storage};

/// How often a lost connection is tried again before requests fail.
const TRIES: u32 = 3;
/// How long to wait before the second try; twice as long before each further one.
const BACKOFF: Duration = Duration::from_millis(500);
/// How long a session may be busy on another server before its turn is continued on this one. Longer than the lease of a
/// server, so that one that has crashed is waited for.
const PATIENCE: Duration = Duration::from_secs(12);
/// After how long attaching to a session that is busy fails.
const GIVE_UP: Duration = Duration::from_secs(40);
/// How long one step of attaching may take.
const STEP: Duration = Duration::from_secs(60);
/// The longest line of the editor.
const MAX_LINE: usize = 32 * 1024 * 1024;

/// Connects an editor on stdin and stdout to a server, until the editor closes its end.
///
/// # Errors
/// Says what is wrong with the address or the token.
pub(crate) fn run(url: &str, token_file: Option<&std::path::Path>) -> anyhow::Result<ExitCode> {
    log::log_panics();
    let token = token(token_file)?;
    if !url.starts_with("ws://") && !url.starts_with("wss://") {
        anyhow::bail!("`--connect` needs an address that begins with ws:// or wss://");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        let pipes = stdio::pipes(&mut tasks)?;
        Shim { url: url.to_owned(), token, pipes, input: Vec::new(), state: State::default() }
            .serve()
            .await;
        anyhow::Ok(())
    })?;
    log::flush();
    // The reader may still be blocked in a read.
    std::process::exit(0)
}

/// Returns the token for a server, from a file or the environment.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn token(file: Option<&std::path::Path>) -> anyhow::Result<Option<String>> {
    match file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|err| {
                anyhow::anyhow!("cannot read the token: {}: {err}", path.display())
            })?;
            Ok(Some(text.trim().to_owned()))
        }
        None => Ok(env::variable("PURLIN_TOKEN")),
    }
}

struct Shim {
    url: String,
    token: Option<String>,
    pipes: Pipes,
    /// The beginning of a line of the editor.
    input: Vec<u8>,
    state: State,
}

/// A connection to the server.
struct Link {
    sender: Sender,
    receiver: Receiver,
}

/// What woke the shim.
enum Wake {
    Editor(Option<Vec<u8>>),
    Server(Option<String>),
}

/// The editor has closed its end.
struct EditorGone;

impl Shim {
    async fn serve(mut self) {
        let mut link = None;
        loop {
            let wake = match &mut link {
                None => Wake::Editor(self.pipes.input.recv().await),
                Some(Link { receiver, .. }) => tokio::select! {
                    bytes = self.pipes.input.recv() => Wake::Editor(bytes),
                    message = receiver.next() => Wake::Server(message),
                },
            };
            let done = match wake {
                Wake::Editor(None) => break,
                Wake::Editor(Some(bytes)) => self.on_editor(&mut link, &bytes).await,
                Wake::Server(Some(message)) => self.on_server(&message).await,
                Wake::Server(None) => self.on_lost(&mut link).await,
            };
            if done.is_err() {
                break;
            }
        }
        if let Some(mut link) = link {
            link.sender.close().await;
        }
    }

    async fn on_editor(&mut self, link: &mut Option<Link>, bytes: &[u8]) -> Result<(), EditorGone> {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if line.is_empty() {
                continue;
            }
            let Some(line) = self.state.take_from_editor(&line, storage::fresh_id) else {
                continue;
            };
            if link.is_none() {
                // The request that is sent now is among those that are sent again.
                self.on_lost(link).await?;
                continue;
            }
            let Some(Link { sender, .. }) = link else { continue };
            if sender.send(&line).await.is_err() {
                self.on_lost(link).await?;
            }
        }
        if self.input.len() > MAX_LINE {
            tracing::error!("a line of the editor is longer than {MAX_LINE} bytes");
            return Err(EditorGone);
        }
        Ok(())
    }

    async fn on_server(&mut self, message: &str) -> Result<(), EditorGone> {
        match self.state.take_from_server(message) {
            FromServer::Pass(line) => self.write(line).await,
            FromServer::Own(..) | FromServer::Drop => Ok(()),
        }
    }

    /// Connects again. After the last try, all open requests fail; the next one tries again.
    async fn on_lost(&mut self, link: &mut Option<Link>) -> Result<(), EditorGone> {
        *link = None;
        for line in self.state.lost() {
            self.write(line).await?;
        }
        let mut why = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                sleep(jittered(BACKOFF * 2u32.pow(attempt - 1))).await;
            }
            match self.attach().await {
                Ok(Ok(new)) => {
                    *link = Some(new);
                    return Ok(());
                }
                Ok(Err(EditorGone)) => return Err(EditorGone),
                Err(err) => why = err,
            }
            tracing::warn!("try {} of {TRIES} failed: {why}", attempt + 1);
        }
        for line in self.state.fail(&why) {
            self.write(line).await?;
        }
        Ok(())
    }

    /// Connects, attaches to all sessions, and sends unanswered requests again.
    async fn attach(&mut self) -> Result<Result<Link, EditorGone>, String> {
        let opened = remote::open(&self.url, self.token.as_deref()).await;
        let (sender, receiver) = opened.map_err(|err| err.to_string())?;
        let mut link = Link { sender, receiver };
        let Some(initialize) = self.state.initialize() else {
            return self.send_again(link).await;
        };
        if let Err(gone) = self.ask(&mut link, &initialize).await?.map(drop) {
            return Ok(Err(gone));
        }
        for session in self.state.open_sessions() {
            let begun = Instant::now();
            while let Some(resume) = self.state.resume(&session, begun.elapsed() > PATIENCE) {
                match self.ask(&mut link, &resume).await? {
                    Err(gone) => return Ok(Err(gone)),
                    Ok(None) => break,
                    Ok(Some(code)) if code == state::BUSY && begun.elapsed() < GIVE_UP => {
                        sleep(jittered(BACKOFF)).await;
                    }
                    Ok(Some(code)) => {
                        tracing::warn!(session, code, "the session cannot be continued");
                        self.state.forget(&session);
                        break;
                    }
                }
            }
        }
        self.send_again(link).await
    }

    async fn send_again(&mut self, mut link: Link) -> Result<Result<Link, EditorGone>, String> {
        for line in self.state.unanswered() {
            link.sender.send(&line).await.map_err(|err| err.to_string())?;
        }
        Ok(Ok(link))
    }

    /// Sends a request of our own and waits for its answer; everything else is passed on. Returns the code of an error.
    async fn ask(
        &mut self,
        link: &mut Link,
        request: &str,
    ) -> Result<Result<Option<i64>, EditorGone>, String> {
        link.sender.send(request).await.map_err(|err| err.to_string())?;
        let end = Instant::now() + STEP;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let received = timeout(left, link.receiver.next()).await;
            let Ok(Some(message)) = received else {
                return Err("the connection was lost again".to_owned());
            };
            match self.state.take_from_server(&message) {
                FromServer::Own(code) => return Ok(Ok(code)),
                FromServer::Drop => {}
                FromServer::Pass(line) => {
                    if let Err(gone) = self.write(line).await {
                        return Ok(Err(gone));
                    }
                }
            }
        }
    }

    /// Writes a line to the editor.
    async fn write(&mut self, mut line: String) -> Result<(), EditorGone> {
        line.push('\n');
        self.pipes.output.send(line.into_bytes()).await.map_err(|_| EditorGone)?;
        match self.pipes.written.recv().await {
            Some(Ok(_)) => Ok(()),
            Some(Err(_)) | None => Err(EditorGone),
        }
    }
}

/// Returns a time around the given one, so that many clients do not come back at once.
fn jittered(time: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    // Each state is seeded by the system's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish() % 1_000;
    time / 2 + time * u32::try_from(random).unwrap_or(0) / 1_000
}
