//! The vocabulary: ids, messages, tool calls, permission, modes, history. Plain values and pure text functions.
//!
//! Imports no other directory of the engine. The traits that the outside implements are in `ports`.

pub(crate) mod access;
mod agents;
mod bill;
mod history;
mod hook;
mod ids;
mod markdown;
mod message;
mod modes;
mod nearest;
pub mod pattern;
pub(crate) mod permission_key;
mod pictures;
mod profile;
mod provider_config;
pub(crate) mod rule;
mod secret;
mod slash_command;
mod stamp;
mod tool_call;
mod turns;
mod usage;
mod visible;

pub use access::saved_words;
pub(crate) use access::{Access, Answer, Choice, Decision, Question, describe};
pub(crate) use agents::BUILT_IN_HELPERS;
pub use agents::{Agent, Restrictions, Role};
pub use bill::Bill;
pub use history::{Cut, History};
pub(crate) use history::{SUMMARY_HEAD, after_summary_head, estimate, tokens_of, trim};
pub use hook::{HookOutcome, Moment};
pub use ids::{ContentId, MessageId, ModeId, ModelId, SessionId, TerminalId, ToolCallId};
pub use markdown::{code_block, code_span, count_blanks, fenced, has_markup, inert, inert_title};
pub(crate) use message::OPENING_END;
pub use message::{
    Block, Contents, Media, Message, Prompt, Seal, Thought, ToolRequest, decoded_length,
};
pub use modes::{MODES, Mode, is_built_in};
pub use nearest::{distance, nearest};
pub(crate) use permission_key::PermissionKey;
pub use pictures::{pictures_in, pictures_message};
pub use profile::Profile;
pub use provider_config::{ConnectionConfig, ModelConfig, ModelOptions, ProviderConfig};
pub(crate) use rule::{AskFloor, Rule, Source};
pub use secret::Secret;
pub use slash_command::SlashCommand;
pub use stamp::iso_8601;
pub use tool_call::{
    ExitStatus, Live, Location, PlanEntry, PlanStatus, Priority, ToolCall, ToolContent,
    ToolFailure, ToolKind, ToolStatus, ToolUpdate,
};
pub use turns::{Change, PastTurn, Turns};
pub use usage::{Price, StopReason, Thinking, TurnReport, Usage};
pub use visible::{deceives, one_line, visible};
