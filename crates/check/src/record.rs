//! The record of one case: its messages, paired and ordered for the rules.

use std::collections::{HashMap, HashSet};

use client::LogEntry;
use serde_json::Value;

/// What happened in one case.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// All messages in order. Several messages in one raw line are one entry each.
    pub(crate) messages: Vec<Message>,
    /// The client's calls by id.
    pub(crate) calls: HashMap<String, ClientCall>,
    /// Whether the client sent a list of messages.
    pub(crate) has_batch: bool,
}

/// A message and who sent it.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its place in the log of the case.
    pub(crate) at: usize,
    pub(crate) from_agent: bool,
    pub(crate) value: Value,
}

/// A call of the client.
#[derive(Debug)]
pub(crate) struct ClientCall {
    /// `None` for a message that is no valid call but has an id.
    pub(crate) method: Option<String>,
    pub(crate) params: Value,
}

impl Record {
    pub(crate) fn new(log: &[LogEntry]) -> Record {
        let mut record = Record::default();
        for (at, entry) in log.iter().enumerate() {
            if entry.from_agent {
                record.push(at, true, entry.message.clone());
                continue;
            }
            match &entry.message {
                Value::String(raw) => {
                    for value in raw.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                        record.push_sent(at, value);
                    }
                }
                value => record.push_sent(at, value.clone()),
            }
        }
        record
    }

    fn push(&mut self, at: usize, from_agent: bool, value: Value) {
        self.messages.push(Message { at, from_agent, value });
    }

    fn push_sent(&mut self, at: usize, value: Value) {
        if let Value::Array(items) = value {
            self.has_batch = true;
            return items.into_iter().for_each(|item| self.push_sent(at, item));
        }
        let is_reply = value.get("result").is_some() || value.get("error").is_some();
        if let Some(id) = value.get("id").filter(|_| !is_reply) {
            let method = value["method"].as_str().map(str::to_owned);
            let call = ClientCall { method, params: value["params"].clone() };
            self.calls.insert(id.to_string(), call);
        }
        self.push(at, false, value);
    }

    /// Returns the agent's messages.
    pub(crate) fn sent(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| message.from_agent)
    }

    /// Returns the agent's calls: requests to the client.
    pub(crate) fn agent_calls(&self) -> impl Iterator<Item = (&Message, &str)> {
        let methods = self.sent().filter_map(|message| {
            message.value.get("id")?;
            Some((message, message.value.get("method")?.as_str()?))
        });
        methods.into_iter()
    }

    /// Returns the updates of sessions: the message and its `update`.
    pub(crate) fn updates(&self) -> impl Iterator<Item = (&Message, &Value)> {
        let updates = self.sent().filter(|message| message.value["method"] == "session/update");
        updates.map(|message| (message, &message.value["params"]["update"]))
    }

    /// Returns the agent's results with the method that they answer.
    pub(crate) fn results(&self) -> impl Iterator<Item = (&Message, &str, &Value)> {
        self.sent().filter_map(|message| {
            message.value.get("method").is_none().then_some(())?;
            let result = message.value.get("result")?;
            let call = self.calls.get(&message.value.get("id")?.to_string())?;
            Some((message, call.method.as_deref()?, result))
        })
    }

    /// Returns the client's capabilities when a message was sent.
    pub(crate) fn capabilities(&self, at: usize) -> &Value {
        let before = self.messages.iter().take_while(|message| message.at <= at);
        let initialize = before
            .filter(|message| !message.from_agent && message.value["method"] == "initialize")
            .last();
        initialize.map_or(&Value::Null, |message| &message.value["params"]["clientCapabilities"])
    }

    /// Returns the ids of sessions that the client knows up to a message: created, or named by the client.
    pub(crate) fn known_sessions(&self, at: usize) -> HashSet<&str> {
        let before = self.messages.iter().take_while(|message| message.at <= at);
        let ids = before.filter_map(|message| {
            let place = if message.from_agent { "/result/sessionId" } else { "/params/sessionId" };
            message.value.pointer(place)?.as_str()
        });
        ids.collect()
    }
}
