//! Plays a recording: returns what was written, in the order in which it was written.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::ENTRIES;
use crate::recorder::{Masks, count};

/// How often the other tasks of a replay may run before a step. Nothing in a replay waits for the outside, so that is
/// enough for all that they can do without it.
const SETTLE: usize = 32;

/// Plays a recording.
pub struct Player {
    state: Mutex<State>,
    /// The number of steps that were played.
    position: watch::Sender<u64>,
    masks: Masks,
}

#[derive(Default)]
struct State {
    steps: VecDeque<Step>,
    next: HashMap<String, VecDeque<Value>>,
    /// Values with the number of steps before them.
    states: HashMap<String, VecDeque<(u64, Value)>>,
    ordinals: HashMap<String, u64>,
    problem: Option<String>,
    /// What the dispatcher waits for.
    awaited: Option<String>,
    /// The keys that somebody waits for.
    asked: BTreeMap<String, usize>,
    /// When the last step was recorded, in milliseconds.
    at: u64,
}

struct Step {
    key: String,
    at: u64,
    value: Value,
}

/// One line of a recording.
#[derive(Deserialize)]
struct Entry {
    step: Option<String>,
    next: Option<String>,
    state: Option<String>,
    #[serde(default)]
    at: u64,
    #[serde(default)]
    value: Value,
}

impl Player {
    /// Reads a recording.
    ///
    /// # Errors
    /// Says what cannot be read. A last line that was cut off is ignored: the process may have been killed.
    pub fn open(directory: &Path, masks: Masks) -> std::io::Result<Player> {
        let mut state = State::default();
        let mut position = 0;
        for line in BufReader::new(std::fs::File::open(directory.join(ENTRIES))?).lines() {
            let Ok(entry) = serde_json::from_str::<Entry>(&line?) else { break };
            let Entry { step, next, state: changed, at, value } = entry;
            if let Some(key) = step {
                state.steps.push_back(Step { key, at, value });
                position += 1;
            } else if let Some(key) = next {
                state.next.entry(key).or_default().push_back(value);
            } else if let Some(key) = changed {
                state.states.entry(key).or_default().push_back((position, value));
            }
        }
        Ok(Player { state: Mutex::new(state), position: watch::Sender::new(0), masks })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn masks(&self) -> Masks {
        self.masks
    }

    pub(crate) fn ordinal(&self, key: &str) -> u64 {
        count(&mut self.lock().ordinals, key)
    }

    /// Returns what the program wrote at the beginning.
    pub fn header<T: DeserializeOwned>(&self) -> Option<T> {
        self.state("header")
    }

    /// Tells whether the recorded process ended by itself, rather than in the middle.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.lock().states.contains_key("end")
    }

    /// Tells whether everything was played.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.lock().steps.is_empty()
    }

    /// Returns how many steps were played; changes with each.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.position.subscribe()
    }

    /// Describes the step that is expected next.
    #[must_use]
    pub fn expected(&self) -> Option<String> {
        let state = self.lock();
        if let Some(awaited) = &state.awaited {
            return Some(awaited.clone());
        }
        let step = state.steps.front()?;
        let value = step.value.to_string();
        let end = value.floor_char_boundary(300);
        Some(format!("{} {}", step.key, &value[..end]))
    }

    /// Lists what is asked for instead.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.lock().asked.keys().cloned().collect()
    }

    /// Returns how long the recorded process waited for the step that is expected next.
    #[must_use]
    pub fn recorded_wait(&self) -> Duration {
        let state = self.lock();
        let next = state.steps.front().map_or(state.at, |step| step.at);
        Duration::from_millis(next.saturating_sub(state.at))
    }

    /// Says what is waited for beside the next step; `None` for nothing.
    pub fn set_awaited(&self, awaited: Option<String>) {
        self.lock().awaited = awaited;
    }

    /// Ends the replay if nothing more is recorded for this key, unless the recording ends here.
    pub(crate) fn must_have(&self, key: &str) {
        let state = self.lock();
        let has_more = state.next.get(key).is_some_and(|values| !values.is_empty())
            || state.steps.iter().any(|step| step.key == key);
        if !has_more && !state.steps.is_empty() && state.states.contains_key("end") {
            drop(state);
            self.fail(format!("something is asked for that the recording does not have: {key}"));
        }
    }

    /// Waits until it is this key's turn, and until all has happened that the steps before it lead to.
    async fn reach(&self, key: &str) {
        let mut position = self.position.subscribe();
        loop {
            position.borrow_and_update();
            if self.lock().steps.front().is_some_and(|step| step.key == key) {
                break;
            }
            if position.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        // Only this task can continue with the steps, so the others run until they wait for something.
        for _ in 0..SETTLE {
            tokio::task::yield_now().await;
        }
    }

    /// Returns why the replay cannot continue.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// Ends the replay for this reason.
    pub fn fail(&self, problem: String) {
        self.lock().problem.get_or_insert(problem);
        self.position.send_modify(|_| {});
    }

    /// Waits until it is this key's turn, and returns its value. Never returns if it is not in the recording.
    pub async fn step<T: DeserializeOwned>(&self, key: &str) -> T {
        let _asking = Asking::new(self, key);
        loop {
            self.reach(key).await;
            if let Some(value) = self.take(key) {
                return value;
            }
            if self.problem().is_some() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes the value of the next step, if it has this key.
    fn take<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let step = {
            let mut state = self.lock();
            if state.problem.is_some() {
                return None;
            }
            if state.steps.front()?.key != key {
                return None;
            }
            let step = state.steps.pop_front()?;
            state.at = step.at;
            step
        };
        match serde_json::from_value(step.value) {
            Ok(value) => {
                self.position.send_modify(|position| *position += 1);
                Some(value)
            }
            Err(err) => {
                self.fail(format!("the recording has an unreadable step {key}: {err}"));
                None
            }
        }
    }

    pub(crate) fn next<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let value = self.lock().next.get_mut(key)?.pop_front()?;
        serde_json::from_value(value).ok()
    }

    pub(crate) fn state<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let position = *self.position.borrow();
        let mut state = self.lock();
        let values = state.states.get_mut(key)?;
        while values.get(1).is_some_and(|(from, _)| *from <= position) {
            values.pop_front();
        }
        serde_json::from_value(values.front()?.1.clone()).ok()
    }
}

/// Says that a key is waited for, until it is dropped.
struct Asking<'a> {
    player: &'a Player,
    key: &'a str,
}

impl<'a> Asking<'a> {
    fn new(player: &'a Player, key: &'a str) -> Asking<'a> {
        *player.lock().asked.entry(key.to_owned()).or_default() += 1;
        Asking { player, key }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.player.lock();
        if let Some(count) = state.asked.get_mut(self.key) {
            *count -= 1;
            if *count == 0 {
                state.asked.remove(self.key);
            }
        }
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Player")
    }
}
