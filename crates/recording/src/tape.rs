//! The tape: either written or played.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::player::Player;
use crate::recorder::Recorder;

/// A recording that is being made, or one that is being played.
#[derive(Debug, Clone)]
pub enum Tape {
    /// Real ports are asked, and what they return is written.
    Record(Arc<Recorder>),
    /// Nothing outside is asked.
    Play(Arc<Player>),
}

impl Tape {
    /// Tells whether a recording is played.
    #[must_use]
    pub fn is_played(&self) -> bool {
        matches!(self, Tape::Play(_))
    }

    /// Returns a number for a key, counted from 0: it distinguishes several uses of the same key.
    pub(crate) fn ordinal(&self, key: &str) -> u64 {
        match self {
            Tape::Record(recorder) => recorder.ordinal(key),
            Tape::Play(player) => player.ordinal(key),
        }
    }

    /// Does work whose result a session waits for. If it needs no waiting, it needs none in the replay; otherwise the result is
    /// replayed at the same place in the order of all such results.
    pub async fn step<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        work: impl Future<Output = T>,
    ) -> T {
        match self {
            Tape::Record(recorder) => {
                let mut work = pin!(work);
                match futures_util::poll!(&mut work) {
                    Poll::Ready(value) => {
                        recorder.next(key, &Some((&value,)));
                        value
                    }
                    Poll::Pending => {
                        recorder.next(key, &None::<(T,)>);
                        let value = work.await;
                        recorder.step(key, &value);
                        value
                    }
                }
            }
            Tape::Play(player) => match player.next::<Option<(T,)>>(key).flatten() {
                Some((value,)) => value,
                None => player.step(key).await,
            },
        }
    }

    /// Reads a value that may change now and then. Written when it is another than before.
    pub fn state<T: Serialize + DeserializeOwned>(&self, key: &str, read: impl FnOnce() -> T) -> T {
        match self {
            Tape::Record(recorder) => {
                let value = read();
                recorder.state(key, &value);
                value
            }
            Tape::Play(player) => player.state(key).unwrap_or_else(read),
        }
    }

    /// Reads a value that differs each time, such as a fresh id.
    pub fn next<T: Serialize + DeserializeOwned>(&self, key: &str, read: impl FnOnce() -> T) -> T {
        match self {
            Tape::Record(recorder) => {
                let value = read();
                recorder.next(key, &value);
                value
            }
            Tape::Play(player) => player.next(key).unwrap_or_else(read),
        }
    }
}
