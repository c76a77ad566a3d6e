//! The dialects: other systems that say "ACP" and differ in shape, rewritten to v1 and back.
//!
//! Pure functions on JSON, with no IO and no state: a connection recognises its dialect at `initialize` and keeps
//! it. The forms that are understood in every dialect are in `acp::tolerate`. Each dialect is a file here, and
//! docs/internals/dialects.md is its table. What a dialect says and v1 has no place for travels in `_meta.purlin`.

mod block;
mod container;
mod diff;
mod message_reference;
pub mod print;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::schema::Meta;
use super::{AgentCall, fault, strict, tolerate};
use crate::code::RpcError;

pub(super) use block::to_v1 as block_to_v1;

/// A way to speak the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// ACP version 1, as editors speak it today. Nothing is rewritten.
    #[default]
    V1,
    /// The message reference: `filesystem`, `promptTypes`, prompt `content`, `thinking`, plan `description`.
    MessageReference,
    /// The agent in a container: version as a text, `workspaceUri`, updates with `content` and `status`.
    Container,
}

/// Which half of an exchange: what is asked or told, or what is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The parameters of a call or a note.
    Params,
    /// The result of a call.
    Result,
}

/// The member of `_meta` that holds what v1 has no place for.
pub const META: &str = "purlin";

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 3] = [Dialect::V1, Dialect::MessageReference, Dialect::Container];

    /// Returns the name by which a flag or a configuration asks for it.
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

    /// Recognises a client by the parameters of its `initialize`; whatever is not clear is v1.
    #[must_use]
    pub fn recognise(params: Option<&RawValue>) -> Dialect {
        Dialect::recognise_why(params).0
    }

    /// Recognises a client, and says by what.
    #[must_use]
    pub fn recognise_why(params: Option<&RawValue>) -> (Dialect, &'static str) {
        let plain = (Dialect::V1, "nothing of the other dialects is in it");
        let Some(hello) = params.filter(|raw| may_be_other(raw.get())).and_then(read_part) else {
            return plain;
        };
        let Hello { protocol_version, client_capabilities } = hello;
        let quoted = protocol_version.map_or("", RawValue::get);
        let version = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if version.is_some_and(tolerate::is_dotted_version) {
            return (Dialect::Container, "`protocolVersion` is a text with dots");
        }
        let offers: Signs<'_> = client_capabilities.and_then(read_part).unwrap_or_default();
        if offers.fs.is_some() {
            return (Dialect::V1, "`clientCapabilities.fs` is there");
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

    /// Reads a client's call into its type. V1 goes straight from the line; the others are rewritten first.
    ///
    /// # Errors
    /// As [`AgentCall::decode`], and -32602 for a shape that the dialect does not have.
    pub fn decode_call(
        self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<AgentCall, RpcError> {
        if self == Dialect::V1 {
            return AgentCall::decode(method, params);
        }
        let text = params.map_or("{}", RawValue::get);
        // What is nested too deeply or given twice is refused by typed reading, with its place.
        let Some(value) = strict::object(text) else {
            return AgentCall::decode(method, params);
        };
        fault::refuse_null_characters(text)?;
        let value = self.to_v1(method, Part::Params, Value::Object(value))?;
        let raw = serde_json::value::to_raw_value(&value)
            .map_err(|_| RpcError::of(crate::Code::INTERNAL_ERROR))?;
        AgentCall::decode(method, Some(&raw))
    }

    /// Rewrites what a client of this dialect says, or is told, to v1.
    ///
    /// # Errors
    /// -32602 that says what the dialect has in that place.
    pub fn to_v1(self, method: &str, part: Part, value: Value) -> Result<Value, RpcError> {
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

    /// Rewrites v1 to what a client of this dialect is told, or says. `None` where it has no words for it.
    #[must_use]
    pub fn from_v1(self, method: &str, part: Part, value: Value) -> Option<Value> {
        let Value::Object(mut members) = value else {
            return Some(value);
        };
        let can_be_said = match self {
            Dialect::V1 => true,
            Dialect::MessageReference => message_reference::from_v1(method, part, &mut members),
            Dialect::Container => container::from_v1(method, part, &mut members),
        };
        can_be_said.then_some(Value::Object(members))
    }

    /// Names the fields of an error as the dialect names them.
    #[must_use]
    pub fn error_out(self, mut error: RpcError) -> RpcError {
        let words = match self {
            Dialect::V1 => return error,
            Dialect::MessageReference => message_reference::WORDS,
            Dialect::Container => container::WORDS,
        };
        let Some(Value::Object(data)) = &mut error.data else {
            return error;
        };
        if let Some(Value::String(path)) = data.get_mut("path") {
            *path = self.phrased(renamed(path, words));
        }
        if let Some(Value::String(details)) = data.get_mut("details") {
            // Every second part stands between quotation marks, and may be the name of a field.
            let parts = details.split('\'').enumerate().map(|(index, part)| match index % 2 {
                1 => renamed(part, words),
                _ => part.to_owned(),
            });
            *details = self.phrased(parts.collect::<Vec<_>>().join("'"));
        }
        error
    }

    /// Says what the dialect expects in the place of what v1 expects.
    fn phrased(self, text: String) -> String {
        let phrases = match self {
            Dialect::V1 => return text,
            Dialect::MessageReference => message_reference::PHRASES,
            Dialect::Container => container::PHRASES,
        };
        phrases.iter().fold(text, |text, (v1, own)| text.replace(v1, own))
    }

    /// Answers a turn that failed: in the message reference with the stop reason `error` and with `meta`, which came
    /// with the prompt; elsewhere with the error.
    ///
    /// # Errors
    /// Returns the error, where it is one of the call and not of the turn, or the dialect has no other way.
    pub fn turn_failed(self, error: RpcError, meta: Option<Meta>) -> Result<Value, RpcError> {
        match self {
            Dialect::V1 | Dialect::Container => Err(error),
            Dialect::MessageReference => message_reference::turn_failed(error, meta),
        }
    }

    /// Returns the update that begins a turn, in the dialect that has one.
    #[must_use]
    pub fn turn_begins(self, session: &str) -> Option<Value> {
        (self == Dialect::Container).then(|| container::status(session, "thinking", Vec::new()))
    }

    /// Returns the update that ends a turn, in the dialect that has one. It goes out before the answer.
    #[must_use]
    pub fn turn_ends(self, session: &str, failure: Option<&RpcError>) -> Option<Value> {
        (self == Dialect::Container).then(|| container::turn_ends(session, failure))
    }

    /// Tells whether a client's result for this method has a form of its own, so that it must be rewritten.
    #[must_use]
    pub fn rewrites_result_of(self, method: &str) -> bool {
        self == Dialect::MessageReference && method == "fs/write_text_file"
    }

    /// Returns what the answer to `initialize` tells beside v1, in the dialect with flat capabilities.
    #[must_use]
    pub fn agent_facts(self, can_read: bool, can_write: bool) -> Option<Value> {
        (self == Dialect::Container).then(|| {
            json!({ "agentCapabilities": {
                "editWorkspace": can_write,
                "filesRead": can_read,
                "filesWrite": can_write,
            } })
        })
    }

    /// Returns what the answer to `session/new`, `session/load` and their like tells beside v1.
    #[must_use]
    pub fn session_facts(self, session: SessionFacts<'_>) -> Option<Value> {
        match self {
            Dialect::V1 => None,
            Dialect::MessageReference => Some(json!({ "sessionId": session.id })),
            Dialect::Container => Some(container::session_out(session)),
        }
    }
}

/// Tells whether a text has a word that only other dialects use, so that v1 is not read twice.
fn may_be_other(text: &str) -> bool {
    let tells = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    let version_is_text = || {
        let after = text.split("\"protocolVersion\"").skip(1);
        let value =
            |after: &str| Some(after.trim_start().strip_prefix(':')?.trim_start().starts_with('"'));
        after.filter_map(value).any(|is_text| is_text)
    };
    tolerate::OTHER_OFFERS.iter().any(|word| tells(word)) || version_is_text()
}

/// What `initialize` shows of a dialect.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hello<'a> {
    #[serde(borrow)]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow)]
    client_capabilities: Option<&'a RawValue>,
}

/// The capabilities that tell dialects apart.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Signs<'a> {
    fs: Option<IgnoredAny>,
    #[serde(borrow)]
    filesystem: Option<&'a RawValue>,
    edit_workspace: Option<IgnoredAny>,
    files_read: Option<IgnoredAny>,
    files_write: Option<IgnoredAny>,
}

/// Reads what is there, if it fits.
fn read_part<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// What is known of a session that was opened.
#[derive(Debug)]
pub struct SessionFacts<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its working folder.
    pub folder: &'a str,
    /// Whether the mode it is in may change anything.
    pub may_change: bool,
    /// When it began, in milliseconds since 1970.
    pub created_ms: u64,
    /// What time it is now.
    pub now_ms: u64,
    /// The branch its folder is on.
    pub branch: Option<String>,
    /// What was said in it, as lists of blocks, where that is known.
    pub history: Option<Value>,
    /// The files that it changed, where that is known.
    pub modified: Option<Value>,
}

/// Returns what is at a key of `_meta.purlin`.
#[must_use]
pub fn stowed<'a>(meta: Option<&'a Meta>, key: &str) -> Option<&'a Value> {
    meta?.get(META)?.get(key)
}

/// Takes something out of `_meta.purlin`; what is empty then goes, too.
pub fn take_stowed(meta: &mut Option<Meta>, key: &str) -> Option<Value> {
    let members = meta.as_mut()?;
    let own = members.get_mut(META)?.as_object_mut()?;
    let taken = own.remove(key);
    if own.is_empty() {
        members.remove(META);
    }
    if members.is_empty() {
        *meta = None;
    }
    taken
}

/// Adds facts to `_meta.purlin`, from where [`Dialect::from_v1`] takes them to the places they have in a dialect.
#[must_use]
pub fn with_facts(meta: Option<Meta>, facts: Option<Value>) -> Option<Meta> {
    let Some(Value::Object(facts)) = facts else {
        return meta;
    };
    let mut meta = meta.unwrap_or_default();
    let mut own = take_object(&mut meta, META);
    own.extend(facts);
    meta.insert(META.to_owned(), Value::Object(own));
    Some(meta)
}

/// Moves a member into `_meta.purlin`, where v1 has no place for it.
pub(super) fn stow(members: &mut Map<String, Value>, key: &str) {
    if let Some(value) = members.remove(key) {
        put_into_meta(members, key, value);
    }
}

/// Puts something into `_meta.purlin`.
pub(super) fn put_into_meta(members: &mut Map<String, Value>, key: &str, value: Value) {
    let mut meta = take_object(members, "_meta");
    let mut own = take_object(&mut meta, META);
    own.insert(key.to_owned(), value);
    meta.insert(META.to_owned(), Value::Object(own));
    members.insert("_meta".to_owned(), Value::Object(meta));
}

/// Takes the object at a key out, or an empty one.
fn take_object(members: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match members.remove(key) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// Moves every member that v1 does not have into `_meta.purlin`.
fn stow_unknown(members: &mut Map<String, Value>, known: &[&str]) {
    let unknown: Vec<String> = members
        .keys()
        .filter(|key| !known.contains(&key.as_str()) && *key != "_meta")
        .cloned()
        .collect();
    unknown.iter().for_each(|key| stow(members, key));
}

/// Moves everything back out of `_meta.purlin`; a member that is there already stays.
fn lift(members: &mut Map<String, Value>) {
    let Some(Value::Object(meta)) = members.get_mut("_meta") else { return };
    let Some(Value::Object(stowed)) = meta.remove(META) else { return };
    if meta.is_empty() {
        members.remove("_meta");
    }
    for (key, value) in stowed {
        members.entry(key).or_insert(value);
    }
}

/// Refuses a prompt that is given twice, in v1's name and in the dialect's, and not alike.
fn only_one_prompt(members: &mut Map<String, Value>) -> Result<(), RpcError> {
    if members.contains_key("prompt")
        && let Some(content) = members.remove("content")
        && members.get("prompt") != Some(&content)
    {
        let details = "'content' and `prompt` are both given and differ; send one of them";
        return Err(fault::at("content", details.to_owned()));
    }
    Ok(())
}

/// Gives the first name of a path its name in the dialect.
fn renamed(path: &str, words: &[(&str, &str)]) -> String {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (first, rest) = path.split_at(end);
    match words.iter().find(|(v1, _)| *v1 == first) {
        Some((_, own)) => format!("{own}{rest}"),
        None => path.to_owned(),
    }
}

/// Renames a member, if the new name is free.
fn rename(members: &mut Map<String, Value>, from: &str, to: &str) {
    if members.contains_key(to) {
        return;
    }
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}

/// The members that the parameters of each method have in v1; `None` for methods that are left alone.
fn known_params(method: &str) -> Option<&'static [&'static str]> {
    Some(match method {
        "initialize" => &["protocolVersion", "clientCapabilities", "clientInfo"],
        "authenticate" => &["methodId", "credentials"],
        "session/new" => &["cwd", "mcpServers", "additionalDirectories"],
        "session/prompt" => &["sessionId", "prompt", "messageId"],
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
