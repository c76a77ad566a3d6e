//! The traits that the outside implements: model, tools, editor, files, journal, clock, and the values they exchange.

mod answers;
mod clock;
mod editor;
mod error;
mod event;
mod form;
mod instructions;
mod journal;
mod model;
mod no_journal;
mod preferences;
mod reply;
mod settings;
mod span;
mod tool;
mod toolbox;

pub use answers::{AnswerStore, Denied, NothingDenied};
pub use clock::{Clock, SystemClock};
pub use editor::{Editor, EditorError, Offers, TerminalCommand, TerminalOutput};
pub use error::{Error, JournalError};
pub use event::{CompactionStatus, DisplayPermit, Event, Place, Severity};
pub use form::{Form, FormAnswer, Page};
pub use instructions::{
    InstructionFile, InstructionSource, Instructions, MAX_INSTRUCTION_FILE, NoInstructions, Skill,
};
pub use journal::{
    Content, EventPage, FileChange, FileError, Files, Journal, Listing, PendingWrite, PromptEnd,
    PromptKind, Query, Record, SessionInfo, State, StoredSession,
};
pub use model::{Adopt, Model, ModelError, ModelEvent, ModelStream, Request, Schema, ToolSpec};
pub use no_journal::NoJournal;
pub use preferences::Preferences;
pub use reply::Reply;
pub use settings::{ModelChoice, Settings};
pub use span::{OpenSpan, Span, SpanEnd, SpanFacts, SpanKind, SpanScope, Spans};
pub use tool::{
    ChildTask, Helper, Intent, Outline, Output, PlanResult, Planned, Tool, ToolCx, ToolError,
    ToolHost, Wait,
};
pub use toolbox::{Expanded, Extension, ExtensionContext, IsolatedTurn, Toolbox, TurnOverrides};
