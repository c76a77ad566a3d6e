//! The dialects: protocols that are called ACP but use other shapes. Their messages are rewritten to v1 and back.
//!
//! Pure functions on JSON, with no IO and no state. A connection recognises its dialect at `initialize` and does not
//! change it. Each dialect is a file here and a table in docs/internals/dialects.md. A member that v1 does not have
//! travels in `_meta.purlin`. Forms that are accepted in every dialect are in `acp::tolerate`.

mod common;
mod container;
mod diff;
mod message_reference;
pub mod print;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use agent_client_protocol_schema::v1::Meta;

use super::{AgentCall, fault, strict, tolerate};
use crate::code::RpcError;

pub use common::{Payload, SessionFacts};

/// A variant of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// ACP version 1, which editors use today. Nothing is rewritten.
    #[default]
    V1,
    /// The "message reference": `filesystem`, `promptTypes`, prompt `content`, `thinking`, plan `description`.
    MessageReference,
    /// An agent in a container: the version is a string, sessions have a `workspaceUri`, updates a `content` and a `status`.
    Container,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 3] = [Dialect::V1, Dialect::MessageReference, Dialect::Container];

    /// Returns the dialect's name in flags and configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::V1 => "v1",
            Dialect::MessageReference => "message-reference",
            Dialect::Container => "container",
        }
    }

    /// Finds a dialect by its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Recognises a client's dialect by the parameters of its `initialize`. In doubt it is v1.
    #[must_use]
    pub fn recognise(params: Option<&RawValue>) -> Dialect {
        Dialect::recognise_with_reason(params).0
    }

    /// Recognises a client's dialect, and returns the reason.
    #[must_use]
    pub fn recognise_with_reason(params: Option<&RawValue>) -> (Dialect, &'static str) {
        let plain = (Dialect::V1, "no sign of another dialect");
        let Some(hello) =
            params.filter(|raw| may_be_other_dialect(raw.get())).and_then(read_if_valid)
        else {
            return plain;
        };
        let InitializeProbe { protocol_version, client_capabilities } = hello;
        let quoted = protocol_version.map_or("", RawValue::get);
        let version = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if version.is_some_and(tolerate::is_dotted_version) {
            return (Dialect::Container, "`protocolVersion` is a dotted version string");
        }
        let offers: CapabilityProbe<'_> =
            client_capabilities.and_then(read_if_valid).unwrap_or_default();
        if offers.fs.is_some() {
            return (Dialect::V1, "`clientCapabilities.fs` is present");
        }
        let flat = [offers.edit_workspace, offers.files_read, offers.files_write];
        if flat.iter().any(Option::is_some) {
            let why = "`clientCapabilities` has `editWorkspace`, `filesRead` or `filesWrite`";
            (Dialect::Container, why)
        } else if offers.filesystem.is_some_and(|files| files.get().starts_with('{')) {
            (Dialect::MessageReference, "`clientCapabilities.filesystem` is an object")
        } else {
            plain
        }
    }

    /// Reads a client's call into its type. V1 is read directly from the line; other dialects are rewritten first.
    ///
    /// # Errors
    /// As [`AgentCall::decode`], and -32602 for a shape that is not part of the dialect.
    pub fn decode_call(
        self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<AgentCall, RpcError> {
        if self == Dialect::V1 {
            return AgentCall::decode(method, params);
        }
        let text = params.map_or("{}", RawValue::get);
        // Typed reading rejects duplicate members and deep nesting, and names the field.
        let Some(value) = strict::object(text) else {
            return AgentCall::decode(method, params);
        };
        fault::reject_null_characters(text)?;
        let value = self.to_v1(method, Payload::Params, Value::Object(value))?;
        let raw = serde_json::value::to_raw_value(&value)
            .map_err(|_| RpcError::of(crate::Code::INTERNAL_ERROR))?;
        AgentCall::decode(method, Some(&raw))
    }

    /// Rewrites a payload of this dialect to v1.
    ///
    /// # Errors
    /// -32602 with what the dialect expects.
    pub fn to_v1(self, method: &str, part: Payload, value: Value) -> Result<Value, RpcError> {
        let Value::Object(mut members) = value else {
            return Ok(value);
        };
        match self {
            Dialect::V1 => {}
            Dialect::MessageReference => message_reference::to_v1(method, part, &mut members)?,
            Dialect::Container => container::to_v1(method, part, &mut members)?,
        }
        Ok(Value::Object(members))
    }

    /// Rewrites a v1 payload to this dialect. `None` if the dialect cannot express it.
    #[must_use]
    pub fn from_v1(self, method: &str, part: Payload, value: Value) -> Option<Value> {
        let Value::Object(mut members) = value else {
            return Some(value);
        };
        let is_expressible = match self {
            Dialect::V1 => true,
            Dialect::MessageReference => message_reference::from_v1(method, part, &mut members),
            Dialect::Container => container::from_v1(method, part, &mut members),
        };
        is_expressible.then_some(Value::Object(members))
    }

    /// Replaces v1's field names in an error with the dialect's names.
    #[must_use]
    pub fn error_out(self, mut error: RpcError) -> RpcError {
        let words = match self {
            Dialect::V1 => return error,
            Dialect::MessageReference => message_reference::FIELD_NAMES,
            Dialect::Container => container::FIELD_NAMES,
        };
        let Some(Value::Object(data)) = &mut error.data else {
            return error;
        };
        if let Some(Value::String(path)) = data.get_mut("path") {
            *path = self.reword(renamed(path, words));
        }
        if let Some(Value::String(details)) = data.get_mut("details") {
            // Every second part is between quotation marks and may be the name of a field.
            let parts = details.split('\'').enumerate().map(|(index, part)| match index % 2 {
                1 => renamed(part, words),
                _ => part.to_owned(),
            });
            let own = self.reword(parts.collect::<Vec<_>>().join("'"));
            // The message ends with the same sentence.
            if let Some(name) = error.message.strip_suffix(details.as_str()) {
                error.message = format!("{name}{own}");
            }
            *details = own;
        }
        error
    }

    /// Replaces v1's wording of what is expected with the dialect's.
    fn reword(self, text: String) -> String {
        let phrases = match self {
            Dialect::V1 => return text,
            Dialect::MessageReference => message_reference::WORDING,
            Dialect::Container => container::WORDING,
        };
        // The type that was sent is that of v1, after the translation.
        let text = text.split(", got ").next().unwrap_or_default().to_owned();
        phrases.iter().fold(text, |text, (v1, own)| text.replace(v1, own))
    }

    /// Returns the answer to a turn that failed. In the message reference it is a result with the stop reason `error` and
    /// the prompt's `meta`; in the other dialects it is the error.
    ///
    /// # Errors
    /// Returns the error itself if the call was invalid rather than the turn, or if the dialect has no such stop reason.
    pub fn turn_failed(self, error: RpcError, meta: Option<Meta>) -> Result<Value, RpcError> {
        match self {
            Dialect::V1 | Dialect::Container => Err(error),
            Dialect::MessageReference => message_reference::turn_failed(error, meta),
        }
    }

    /// Returns the update that begins a turn, if the dialect has one.
    #[must_use]
    pub fn turn_begins(self, session: &str) -> Option<Value> {
        (self == Dialect::Container).then(|| container::status(session, "thinking", Vec::new()))
    }

    /// Returns the update that ends a turn, if the dialect has one. It is sent before the answer.
    #[must_use]
    pub fn turn_ends(self, session: &str, failure: Option<&RpcError>) -> Option<Value> {
        (self == Dialect::Container).then(|| container::turn_ends(session, failure))
    }

    /// Returns whether a client's result for this method differs from v1 and must be rewritten.
    #[must_use]
    pub fn rewrites_result_of(self, method: &str) -> bool {
        self == Dialect::MessageReference && method == "fs/write_text_file"
    }

    /// Returns what the answer to `initialize` contains in addition to v1, if the dialect has flat capabilities.
    #[must_use]
    pub fn agent_facts(self, can_read: bool, can_write: bool, has_github: bool) -> Option<Value> {
        (self == Dialect::Container).then(|| {
            let mut facts = json!({ "agentCapabilities": {
                "editWorkspace": can_write,
                "filesRead": can_read,
                "filesWrite": can_write,
            } });
            if has_github {
                facts["agentCapabilities"]["githubIntegration"] = json!(true);
            }
            facts
        })
    }

    /// Returns what the answer to `session/new`, `session/load`, `session/resume` and `session/fork` contains in addition
    /// to v1.
    #[must_use]
    pub fn session_facts(self, session: SessionFacts<'_>) -> Option<Value> {
        match self {
            Dialect::V1 => None,
            Dialect::MessageReference => Some(json!({ "sessionId": session.id })),
            Dialect::Container => Some(container::session_out(session)),
        }
    }
}

/// Returns whether the JSON has a word that only other dialects use. Without one, v1 is not parsed a second time.
fn may_be_other_dialect(text: &str) -> bool {
    let contains = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    let version_is_string = || {
        let after = text.split("\"protocolVersion\"").skip(1);
        let value =
            |after: &str| Some(after.trim_start().strip_prefix(':')?.trim_start().starts_with('"'));
        after.filter_map(value).any(|is_string| is_string)
    };
    tolerate::OTHER_DIALECT_WORDS.iter().any(|word| contains(word)) || version_is_string()
}

/// The parts of `initialize` that show the dialect.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeProbe<'a> {
    #[serde(borrow)]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow)]
    client_capabilities: Option<&'a RawValue>,
}

/// The capabilities that differ between dialects.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct CapabilityProbe<'a> {
    fs: Option<IgnoredAny>,
    #[serde(borrow)]
    filesystem: Option<&'a RawValue>,
    edit_workspace: Option<IgnoredAny>,
    files_read: Option<IgnoredAny>,
    files_write: Option<IgnoredAny>,
}

/// Reads a value, or returns `None` if it has another shape.
fn read_if_valid<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Replaces the first name of a path with its name in the dialect.
fn renamed(path: &str, words: &[(&str, &str)]) -> String {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (first, rest) = path.split_at(end);
    match words.iter().find(|(v1, _)| *v1 == first) {
        Some((_, own)) => format!("{own}{rest}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests;
