//! The scripted model, and a clock and journal for tests and for running without a store.
//!
//! The script is the `model` lines of a transcript; `conformance/README.md` describes them.

mod parse;
pub mod tools;

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use futures_util::future::{self, BoxFuture};
use futures_util::{FutureExt, StreamExt, stream};

pub use parse::ScriptError;
use parse::{Answer, Failure, Item};

use crate::ports::event::Event;
use crate::ports::{
    Clock, Editor, FileChange, FileError, Files, Info, Journal, JournalError, Kept, Listing, Model,
    ModelError, ModelEvent, ModelStream, Query, Record, Remembered, Request, Show, State,
};
use crate::turn::undo::Turns;
use crate::words::{ContentId, Message, SessionId, StopReason, ToolCallId, ToolRequest};

/// A model that says what a script says, an answer per request.
#[derive(Debug)]
pub struct ScriptedModel {
    answers: Vec<Answer>,
    is_endless: bool,
    window: Option<u64>,
    /// Which answer comes next, and how many tools were asked for. Held only to step on, never across an await.
    next: Mutex<(usize, usize)>,
}

/// How many tokens a scripted model holds that says nothing of it.
const WINDOW: u64 = 32_000;

impl ScriptedModel {
    /// Reads the `model` lines of a transcript.
    ///
    /// # Errors
    /// Names the line that cannot be understood.
    pub fn parse(text: &str) -> Result<ScriptedModel, ScriptError> {
        let script = parse::parse(text)?;
        Ok(ScriptedModel {
            answers: script.answers,
            is_endless: script.is_endless,
            window: script.window,
            next: Mutex::new((0, 0)),
        })
    }

    /// Returns how many tokens the model says that it holds.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window.unwrap_or(WINDOW)
    }

    fn next_answer(&self) -> (Answer, usize) {
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (at, tools) = *next;
        let index =
            if self.is_endless && !self.answers.is_empty() { at % self.answers.len() } else { at };
        let answer = self.answers.get(index).cloned().unwrap_or_default();
        next.0 = at + 1;
        next.1 = tools + answer.iter().filter(|item| matches!(item, Item::Tool { .. })).count();
        (answer, tools)
    }
}

impl Model for ScriptedModel {
    fn answer(&self, request: Request) -> ModelStream {
        let (answer, mut tools) = self.next_answer();
        let said = last_words(&request);
        let events = stream::iter(answer).flat_map(move |item| {
            if matches!(item, Item::Tool { .. }) {
                tools += 1;
            }
            play(item, tools, &said)
        });
        // Only the first stop counts: the script's own, or the one behind its last line.
        events.chain(stream::iter([Ok(ModelEvent::Stop(StopReason::EndTurn))])).boxed()
    }
}

fn play(item: Item, tool: usize, said: &str) -> ModelStream {
    let once = |event| stream::iter([Ok(event)]).boxed();
    match item {
        Item::Text(text) => once(ModelEvent::Text(text)),
        Item::Thought(text) => once(ModelEvent::Thought(text)),
        Item::Chunks(count, text) => {
            stream::iter((0..count).map(move |_| Ok(ModelEvent::Text(text.clone())))).boxed()
        }
        Item::Echo => once(ModelEvent::Text(said.to_owned())),
        Item::Tool { name, input } => once(ModelEvent::Tool(ToolRequest {
            id: ToolCallId::new(format!("t{tool}")),
            name,
            input,
        })),
        Item::Usage(usage) => once(ModelEvent::Usage(usage)),
        Item::Stop(stop) => once(ModelEvent::Stop(stop)),
        Item::Wait(time) => wait(time),
        Item::Hang => stream::pending().boxed(),
        Item::Fail(failure) => {
            let error = match failure {
                Failure::Auth => {
                    ModelError::AuthNeeded("the provider refused the key; log in again".to_owned())
                }
                Failure::Overloaded => {
                    ModelError::Unavailable("the provider is overloaded; try again".to_owned())
                }
                Failure::Full => ModelError::ContextFull("the conversation is too long".to_owned()),
                Failure::Broken => {
                    ModelError::Failed("the provider's answer made no sense".to_owned())
                }
            };
            stream::iter([Err(error)]).boxed()
        }
        #[expect(
            clippy::panic,
            reason = "the script asks for it, to show that one session's fault stays its own"
        )]
        Item::Panic => stream::once(async { panic!("the script said so") }).boxed(),
    }
}

fn wait(time: Duration) -> ModelStream {
    let empty: ModelStream = stream::empty().boxed();
    tokio::time::sleep(time).map(move |()| empty).flatten_stream().boxed()
}

fn last_words(request: &Request) -> String {
    let last = request.messages.iter().rev().find_map(|message| match &**message {
        Message::User(prompt) => Some(prompt.text()),
        Message::Agent { .. } | Message::ToolResult { .. } => None,
    });
    last.unwrap_or_default()
}

/// The time of the machine, and ids that sort by it.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn fresh_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }
}

/// No files at all. For sessions that take nothing back.
#[derive(Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read<'a>(
        &'a self,
        _: &'a dyn Editor,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, FileError>> {
        future::ready(Err(FileError::Outside(path.to_owned()))).boxed()
    }

    fn replace<'a>(
        &'a self,
        _: &'a dyn Editor,
        path: &'a Path,
        _: Option<[u8; 32]>,
        _: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), FileError>> {
        future::ready(Err(FileError::Outside(path.to_owned()))).boxed()
    }
}

/// A journal that keeps nothing. For programs that have no store.
#[derive(Debug, Default)]
pub struct NoJournal;

impl NoJournal {
    fn none<T: Send + 'static>(&self) -> BoxFuture<'_, Result<T, JournalError>> {
        future::ready(Err(JournalError::NotFound)).boxed()
    }
}

impl Journal for NoJournal {
    fn outlives(&self) -> bool {
        false
    }

    fn problem(&self) -> Option<String> {
        None
    }

    fn create<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a Path,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn find<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<Info, JournalError>> {
        self.none()
    }

    fn load<'a>(
        &'a self,
        _: &'a SessionId,
        _: Option<&'a dyn Editor>,
    ) -> BoxFuture<'a, Result<Remembered, JournalError>> {
        self.none()
    }

    fn begin<'a>(
        &'a self,
        _: &'a SessionId,
        _: Record<'a>,
    ) -> BoxFuture<'a, Result<Kept, JournalError>> {
        future::ready(Ok(Kept::already())).boxed()
    }

    fn keep<'a>(
        &'a self,
        _: &'a SessionId,
        event: Event,
        show: Option<Show>,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        if let Some(show) = show {
            show(event);
        }
        future::ready(Ok(())).boxed()
    }

    fn keep_change<'a>(
        &'a self,
        _: &'a SessionId,
        _: FileChange,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn turns<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<Turns, JournalError>> {
        self.none()
    }

    fn content<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a ContentId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, JournalError>> {
        self.none()
    }

    fn leave<'a>(&'a self, _: &'a SessionId, _: State) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn set_title<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }

    fn list(&self, _: Query) -> BoxFuture<'_, Result<Listing, JournalError>> {
        future::ready(Ok(Listing::default())).boxed()
    }

    fn fork<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        self.none()
    }

    fn delete<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        future::ready(Ok(())).boxed()
    }
}
