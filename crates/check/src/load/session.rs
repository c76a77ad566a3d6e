//! What one session does in a load test, and what is counted of its updates.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use client::Caller;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Kind, Scenario};
use crate::error::Error;
use crate::profile::Profile;

/// How long a slow reader waits before the next update.
pub(super) const SLOW_READER: Duration = Duration::from_millis(5);

/// One turn that has ended.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) took: Duration,
    /// Until the first text.
    pub(super) first: Option<Duration>,
    pub(super) failure: Option<String>,
}

/// What a session has to do.
pub(super) struct Work {
    pub(super) caller: Caller,
    pub(super) session: String,
    pub(super) index: usize,
    pub(super) scenario: Scenario,
    pub(super) counts: std::sync::Arc<Counts>,
}

impl Work {
    /// Runs all turns of the session.
    pub(super) async fn run(self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for turn in 0..self.scenario.turns {
            // Marked: in scenarios with files, every answer of the model is for one session and turn.
            let text = format!("load-{}-{turn}: go", self.index);
            turns.push(self.turn(&text).await);
        }
        turns
    }

    async fn turn(&self, text: &str) -> Turn {
        let start = Instant::now();
        let mut texts = self.counts.texts(&self.session);
        let before = texts.as_ref().map_or(0, |texts| *texts.borrow());
        let params =
            json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": text }] });
        let mut first = None;
        let mut is_cancelled = false;
        let mut answer = std::pin::pin!(self.caller.call::<Value>("session/prompt", &params));
        let answer = loop {
            let Some(texts) = texts.as_mut().filter(|_| first.is_none()) else {
                break answer.await;
            };
            tokio::select! {
                answer = &mut answer => break answer,
                changed = texts.changed() => {
                    if changed.is_ok() && *texts.borrow() > before {
                        first = Some(start.elapsed());
                        if self.scenario.kind == Kind::Cancel {
                            is_cancelled = true;
                            let note = json!({ "sessionId": self.session });
                            self.caller.notify("session/cancel", &note).await.ok();
                        }
                    }
                }
            }
        };
        let failure = match &answer {
            Err(err) => Some(err.to_string().lines().next().unwrap_or_default().to_owned()),
            Ok(result) if is_cancelled && result["stopReason"] != "cancelled" => {
                Some(format!("a cancelled turn ended with {}", result["stopReason"]))
            }
            Ok(result) if !is_cancelled && result["stopReason"] != "end_turn" => {
                Some(format!("a turn ended with {}", result["stopReason"]))
            }
            Ok(_) => None,
        };
        Turn { took: start.elapsed(), first, failure }
    }
}

/// Counts updates and text by session.
#[derive(Debug, Default)]
pub(super) struct Counts {
    updates: AtomicU64,
    bytes: AtomicU64,
    sessions: Mutex<HashMap<String, watch::Sender<u64>>>,
}

/// The part of an update that is counted.
#[derive(Deserialize)]
struct Seen<'a> {
    #[serde(rename = "sessionId", borrow)]
    session: std::borrow::Cow<'a, str>,
    update: Value,
}

impl Counts {
    pub(super) fn add_session(&self, id: &str) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(id.to_owned(), watch::channel(0).0);
    }

    pub(super) fn texts(&self, id: &str) -> Option<watch::Receiver<u64>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(id).map(watch::Sender::subscribe)
    }

    pub(super) fn count(&self, raw: &str) {
        self.updates.fetch_add(1, Ordering::Relaxed);
        let Ok(seen) = serde_json::from_str::<Seen<'_>>(raw) else { return };
        if seen.update["sessionUpdate"] != "agent_message_chunk" {
            return;
        }
        let text = seen.update["content"]["text"].as_str().map_or(0, str::len);
        self.bytes.fetch_add(text as u64, Ordering::Relaxed);
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(texts) = sessions.get(&*seen.session) {
            texts.send_modify(|count| *count += 1);
        }
    }

    pub(super) fn totals(&self) -> (u64, u64) {
        (self.updates.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Returns a chunk of about this size. Its words differ from those of other chunks: agents stop a model that repeats itself.
fn chunk(size: usize) -> String {
    let mut text = String::with_capacity(size + 16);
    let mut number = 0;
    while text.len() < size.max(1) {
        text += &format!("{{n}}.{number} ");
        number += 1;
    }
    text
}

/// Returns what the model says in a scenario.
pub(super) fn script(profile: &Profile, scenario: Scenario, file: &Path) -> Result<String, Error> {
    let text = Value::from(chunk(scenario.size));
    let mut script = "side \"A title\"\n".to_owned();
    match scenario.kind {
        Kind::Plain | Kind::SlowReader => {
            script += &format!("loop\nchunks {} {text}\n", scenario.chunks);
        }
        Kind::Cancel => {
            script += &format!("loop\nchunks {} {text}\nhang\n", scenario.chunks.clamp(1, 10))
        }
        Kind::Files => {
            let values = json!({ "path": file });
            let read = profile.tool_step("read", &values).map_err(Error::Load)?;
            for session in 0..scenario.sessions {
                for turn in 0..scenario.turns {
                    let mark = format!("when \"load-{session}-{turn}:\"\n");
                    script += &format!("{mark}{read}\n---\n{mark}text \"has been read\"\n---\n");
                }
            }
        }
    }
    Ok(script)
}
