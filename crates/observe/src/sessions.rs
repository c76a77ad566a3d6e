//! What is known about the sessions of a process, from its records. The agent keeps it for those who look later, and the
//! dashboard goes on from there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{MessageRecord, Record, SpanRecord};

/// At most this many sessions are known; the one that was quiet for the longest time is forgotten.
const MAX_SESSIONS: usize = 1000;
/// At most this many characters of an error are kept.
const MAX_ERROR: usize = 300;

/// One session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionState {
    /// Its id.
    pub session: String,
    /// Its title, if one was seen.
    pub title: Option<String>,
    /// Its directory.
    pub cwd: Option<String>,
    /// Its mode.
    pub mode: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// Since when a turn runs: milliseconds since 1970.
    pub turn_since: Option<f64>,
    /// Since when the user is asked.
    pub asking_since: Option<f64>,
    /// How many turns have ended.
    pub turns: u64,
    /// How many turns failed.
    pub failed: u64,
    /// Tokens in the context after the last answer.
    pub context: u64,
    /// The size of the context window.
    pub window: Option<u64>,
    /// Input tokens, cached ones included.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// In US dollars.
    pub cost: f64,
    /// The last error, and when it happened.
    pub last_error: Option<(f64, String)>,
    /// When something happened last.
    pub active: f64,
}

/// The sessions of one process.
#[derive(Debug, Clone, Default)]
pub struct Sessions(BTreeMap<String, SessionState>);

impl Sessions {
    /// Continues with what is known already.
    #[must_use]
    pub fn from_states(states: Vec<SessionState>) -> Sessions {
        let states = states.into_iter().take(MAX_SESSIONS);
        Sessions(states.map(|state| (state.session.clone(), state)).collect())
    }

    /// Takes a record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Span(span) => self.span(span),
            Record::Message(message) => {
                let Some(id) = &message.session else { return };
                let update = message.message.as_ref().map(|message| &message["params"]["update"]);
                let title = update.and_then(|update| update["title"].as_str()).filter(|_| {
                    update.is_some_and(|update| update["sessionUpdate"] == "session_info_update")
                });
                let state = self.state(id);
                state.active = message.time as f64;
                if let Some(title) = title {
                    state.title = Some(title.chars().take(MAX_ERROR).collect());
                }
            }
            Record::Dialect { .. } | Record::Lost { .. } | Record::Process { .. } => {}
        }
    }

    /// Takes what an agent without spans reports about a session: tokens, cost, mode and model.
    pub(crate) fn report(&mut self, message: &MessageRecord) {
        let (Some(id), Some(content)) = (&message.session, &message.message) else { return };
        let (update, result) = (&content["params"]["update"], &content["result"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let state = self.state(id);
        match update["sessionUpdate"].as_str() {
            Some("usage_update") => {
                state.context = update["used"].as_u64().unwrap_or_default();
                state.window = update["size"].as_u64();
                let in_dollars = update["cost"]["currency"] == "USD";
                state.cost =
                    update["cost"]["amount"].as_f64().filter(|_| in_dollars).unwrap_or(state.cost);
            }
            Some("current_mode_update") => state.mode = text(&update["currentModeId"]),
            _ => {}
        }
        state.mode = text(&result["modes"]["currentModeId"]).or(state.mode.take());
        state.model = text(&result["models"]["currentModelId"]).or(state.model.take());
        let used = |name: &str| result["usage"][name].as_u64().unwrap_or_default();
        state.tokens_in +=
            used("inputTokens") + used("cachedReadTokens") + used("cachedWriteTokens");
        state.tokens_out += used("outputTokens");
        state.cwd = text(&content["params"]["cwd"]).or(state.cwd.take());
    }

    fn span(&mut self, span: &SpanRecord) {
        let Some(id) = &span.session else { return };
        let state = self.state(id);
        let now = span.time + span.duration_ms.unwrap_or_default();
        state.active = state.active.max(now);
        let has_ended = span.duration_ms.is_some();
        match span.kind.as_str() {
            "turn" => {
                state.cwd = span.cwd.clone().or(state.cwd.take());
                state.mode = span.mode.clone().or(state.mode.take());
                state.model = span.model.clone().or(state.model.take());
                state.turn_since = (!has_ended).then_some(span.time);
                if has_ended {
                    state.asking_since = None;
                    state.turns += 1;
                    state.failed += u64::from(span.end.as_deref() == Some("failed"));
                }
            }
            "permission" => state.asking_since = (!has_ended).then_some(span.time),
            "model" if has_ended => {
                state.tokens_in += span.tokens_in + span.cache_read + span.cache_write;
                state.tokens_out += span.tokens_out;
                state.cost += span.cost.unwrap_or_default();
                let used = span.tokens_in + span.cache_read + span.cache_write + span.tokens_out;
                if used > 0 {
                    state.context = used;
                    state.window = span.window;
                }
            }
            _ => {}
        }
        if let Some(error) = &span.error {
            let text = format!("{}: {error}", span.kind).chars().take(MAX_ERROR).collect();
            state.last_error = Some((now, text));
        }
    }

    fn state(&mut self, id: &str) -> &mut SessionState {
        if !self.0.contains_key(id) && self.0.len() >= MAX_SESSIONS {
            let quiet = self.0.values().min_by(|a, b| a.active.total_cmp(&b.active));
            let quiet = quiet.map(|state| state.session.clone()).unwrap_or_default();
            self.0.remove(&quiet);
        }
        let fresh = || SessionState { session: id.to_owned(), ..SessionState::default() };
        self.0.entry(id.to_owned()).or_insert_with(fresh)
    }

    /// Returns all of them.
    pub fn states(&self) -> impl Iterator<Item = &SessionState> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(kind: &str, time: f64, duration_ms: Option<f64>) -> SpanRecord {
        let (kind, session) = (kind.to_owned(), Some("s1".to_owned()));
        SpanRecord { time, kind, session, duration_ms, ..SpanRecord::default() }
    }

    // R: O3
    #[test]
    fn health_of_a_session_follows_its_spans() {
        let mut sessions = Sessions::default();
        let mut apply = |span: SpanRecord| sessions.apply(&Record::Span(Box::new(span)));
        apply(SpanRecord { mode: Some("plan".to_owned()), ..span("turn", 10.0, None) });
        apply(SpanRecord { tokens_in: 90, window: Some(200), ..span("model", 11.0, Some(5.0)) });
        apply(span("permission", 17.0, None));
        let state = sessions.states().next().unwrap().clone();
        assert_eq!((state.turn_since, state.asking_since), (Some(10.0), Some(17.0)));
        assert_eq!(
            (state.context, state.window, state.mode.as_deref()),
            (90, Some(200), Some("plan"))
        );
        let failed = SpanRecord {
            end: Some("failed".to_owned()),
            error: Some("HTTP 400".to_owned()),
            ..span("turn", 10.0, Some(20.0))
        };
        sessions.apply(&Record::Span(Box::new(failed)));
        let state = sessions.states().next().unwrap();
        assert_eq!(
            (state.turn_since, state.asking_since, state.turns, state.failed),
            (None, None, 1, 1)
        );
        assert_eq!(state.last_error, Some((30.0, "turn: HTTP 400".to_owned())));
    }

    #[test]
    fn number_of_sessions_is_bounded() {
        let mut sessions = Sessions::default();
        for number in 0..MAX_SESSIONS + 10 {
            let record = SpanRecord {
                session: Some(format!("s{number}")),
                ..span("turn", number as f64, None)
            };
            sessions.apply(&Record::Span(Box::new(record)));
        }
        assert_eq!(sessions.states().count(), MAX_SESSIONS);
        assert!(sessions.states().all(|state| state.session != "s0"));
    }
}
