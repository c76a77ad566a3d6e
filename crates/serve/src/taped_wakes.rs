//! The wakes of the dispatcher, recorded and played.
//!
//! What the client gets depends on the order in which the dispatcher wakes, on how many events it finds then, and on
//! the time, since text is merged and paced. So each wake is written with its time, and a replay repeats exactly these wakes.

use std::fmt::Write;
use std::time::Duration;

use engine::Event;
use recording::{Player, Recorder, Tape};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::dispatcher::{Channels, Dispatcher};
use crate::outlet::FromSession;
use crate::wake::Wake;

/// The key of all wakes.
const KEY: &str = "wake";

/// Records wakes, or plays recorded ones.
pub(super) struct TapedWakes {
    tape: Tape,
    begun: Instant,
    /// What sessions sent in a replay, before its wake.
    pool: Vec<(String, FromSession)>,
}

/// A wake as it is written.
#[derive(Serialize, Deserialize)]
struct WakeValue {
    /// Microseconds since the beginning.
    now: u64,
    why: Why,
}

#[derive(Serialize, Deserialize)]
enum Why {
    Lines(String),
    /// Bytes that are not UTF-8, in hexadecimal.
    Bytes(String),
    Stop,
    Sessions {
        abandoned: Vec<u64>,
        sent: Vec<String>,
    },
    Abandoned(u64),
    Written(bool),
    Time(u64),
}

impl TapedWakes {
    pub(super) fn new(tape: Tape) -> TapedWakes {
        TapedWakes { tape, begun: Instant::now(), pool: Vec::new() }
    }

    /// Takes lines that are sent to the client.
    pub(super) fn sent(&self, lines: &[u8]) {
        if let Tape::Record(recorder) = &self.tape {
            recorder.sent(lines);
        }
    }

    /// Waits for the next wake, and sets the time of the connection.
    pub(super) async fn next_wake(
        &mut self,
        dispatcher: &mut Dispatcher,
        channels: &mut Channels,
        events: &mut Vec<FromSession>,
        end: Option<Instant>,
    ) -> Wake {
        match self.tape.clone() {
            Tape::Record(recorder) => loop {
                let wake = dispatcher.real_wake(channels, events, end).await;
                let Some(wake) = whole_lines(&recorder, wake) else { continue };
                dispatcher.connection.now = Instant::now();
                let since = dispatcher.connection.now.saturating_duration_since(self.begun);
                let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
                // The replay has the time in whole microseconds.
                dispatcher.connection.now = self.begun + Duration::from_micros(now);
                recorder.step(KEY, &WakeValue { now, why: why(&recorder, &wake, events) });
                return wake;
            },
            Tape::Play(player) => {
                let WakeValue { now, why } = player.step(KEY).await;
                dispatcher.connection.now = self.begun + Duration::from_micros(now);
                self.play(&player, why, channels, events).await
            }
        }
    }

    /// Makes a wake happen again: waits until all that it brought is there.
    async fn play(
        &mut self,
        player: &Player,
        why: Why,
        channels: &mut Channels,
        events: &mut Vec<FromSession>,
    ) -> Wake {
        match why {
            Why::Lines(lines) => Wake::Bytes(lines.into_bytes()),
            Why::Bytes(digits) => Wake::Bytes(from_hex(&digits)),
            Why::Stop => Wake::Stop,
            Why::Time(progress) => Wake::Time(progress),
            Why::Written(false) => Wake::Written(Err(std::io::ErrorKind::BrokenPipe.into())),
            Why::Written(true) => {
                player.set_awaited(Some("the client reads a batch".to_owned()));
                let written = channels.pipes.written.recv().await;
                player.set_awaited(None);
                Wake::Written(written.unwrap_or_else(|| Ok(Vec::new())))
            }
            Why::Abandoned(number) => {
                player.set_awaited(Some(format!("our call {number} is abandoned")));
                while channels.abandoned_calls.recv().await.is_some_and(|it| it != number) {}
                player.set_awaited(None);
                Wake::Abandoned(number)
            }
            Why::Sessions { abandoned, sent } => {
                for label in sent {
                    events.push(self.take(player, label, channels).await);
                }
                while channels.abandoned_calls.try_recv().is_ok() {}
                Wake::Sessions(abandoned)
            }
        }
    }

    /// Takes what a session sent, whatever others sent before it.
    async fn take(
        &mut self,
        player: &Player,
        label: String,
        channels: &mut Channels,
    ) -> FromSession {
        loop {
            if let Some(at) = self.pool.iter().position(|(known, _)| *known == label) {
                player.set_awaited(None);
                return self.pool.remove(at).1;
            }
            let others: Vec<&str> = self.pool.iter().map(|(label, _)| label.as_str()).collect();
            player.set_awaited(Some(format!("{label}; waiting: {}", others.join(", "))));
            match channels.from_sessions.recv().await {
                Some(sent) => self.pool.push((label_of(&sent), sent)),
                None => std::future::pending().await,
            }
        }
    }
}

/// Removes from a wake what is not a whole line yet; `None` if nothing is left.
fn whole_lines(recorder: &Recorder, wake: Wake) -> Option<Wake> {
    match wake {
        Wake::Bytes(bytes) => {
            let lines = recorder.whole_lines(&bytes);
            (!lines.is_empty()).then_some(Wake::Bytes(lines))
        }
        // What follows the last line comes first; the end comes again.
        Wake::Stop => match recorder.last_bytes() {
            rest if rest.is_empty() => Some(Wake::Stop),
            rest => Some(Wake::Bytes(rest)),
        },
        wake => Some(wake),
    }
}

fn why(recorder: &Recorder, wake: &Wake, events: &[FromSession]) -> Why {
    match wake {
        Wake::Bytes(bytes) => match recorder.mask_lines(bytes) {
            Some(lines) => Why::Lines(lines),
            None => Why::Bytes(to_hex(bytes)),
        },
        Wake::Stop => Why::Stop,
        Wake::Sessions(abandoned) => Why::Sessions {
            abandoned: abandoned.clone(),
            sent: events.iter().map(label_of).collect(),
        },
        Wake::Abandoned(number) => Why::Abandoned(*number),
        Wake::Written(written) => Why::Written(written.is_ok()),
        Wake::Time(progress) => Why::Time(*progress),
    }
}

/// Names what a session sent, so that a replay finds it again. Whether it is the same is seen in the output.
fn label_of(sent: &FromSession) -> String {
    match sent {
        FromSession::Event { session, event, .. } => format!("{} of {session}", label(event)),
        FromSession::Line { session, .. } => format!("line of {session}"),
        FromSession::Call { session, call, .. } => {
            format!("{} {} of {session}", call.method, call.number)
        }
        FromSession::Finish(id, _) => format!("answer to {id}"),
    }
}

fn label(event: &Event) -> String {
    match event {
        Event::User { message, .. } => format!("user message {message}"),
        Event::Text { message, .. } => format!("text {message}"),
        Event::Thought { message, .. } => format!("thought {message}"),
        Event::Block { message, .. } => format!("block {message}"),
        Event::ToolCall(call) => format!("tool call {}", call.id),
        Event::ToolUpdate(id, _) => format!("tool update {id}"),
        Event::Plan(_) => "plan".to_owned(),
        Event::Commands(_) => "commands".to_owned(),
        Event::Mode(_) => "mode".to_owned(),
        Event::Settings(_) => "settings".to_owned(),
        Event::Info { .. } => "info".to_owned(),
        Event::Usage { .. } => "usage".to_owned(),
        Event::Notice { .. } => "notice".to_owned(),
        Event::Compaction { id, .. } => format!("compaction {id}"),
        Event::CompactionSummary { id, .. } => format!("summary {id}"),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        // Writing to a string cannot fail.
        write!(digits, "{byte:02x}").ok();
        digits
    })
}

fn from_hex(digits: &str) -> Vec<u8> {
    let digit = |at: usize| digits.get(at..at + 2);
    let bytes = (0..digits.len()).step_by(2).filter_map(digit);
    bytes.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}
