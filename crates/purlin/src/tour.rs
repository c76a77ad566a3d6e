//! `/tour`: a conversation that shows what a turn is like, in a folder made for it.
//!
//! The words are written down here, in [`words`]; tools, permissions, journal and protocol are the real ones. Nothing of
//! the user's project is touched, and the session's own model hears nothing of it.

mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::commands::SlashCommand;
use engine::ports::{AnyTool, Model, ModelEvent, ModelStream, Request, Tools};
use engine::scene::Scene;
use engine::session::ModelChoice;
use engine::words::{Message, ModelId, Prompt, SessionId, StopReason, ToolCallId, ToolRequest};
use futures_util::{FutureExt, StreamExt, stream};
use serve::Workspaces;
use serve::workspace::Wrap;
use tokio::sync::Notify;

use crate::assemble;

/// How long the tour waits for the user to stop its last command.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives every session the command `/tour`.
#[must_use]
pub fn wrap() -> Wrap {
    Box::new(|workspaces, own, session| {
        let (workspaces, session) = (Arc::clone(workspaces), session.clone());
        Arc::new(TourGuide { own, workspaces, session })
    })
}

/// The tools of a session, and the way to the tour.
struct TourGuide {
    own: Arc<dyn Tools>,
    workspaces: Arc<Workspaces>,
    session: SessionId,
}

impl TourGuide {
    fn begin(&self) -> Result<Scene, String> {
        let folder = Scratch::new().map_err(|err| {
            format!("The tour needs a folder for temporary files, and there is none: {err}")
        })?;
        let cwd = folder.0.clone();
        let last_command = Arc::new(Notify::new());
        let model = Player { cwd: cwd.clone(), last_command: Arc::clone(&last_command) };
        // An answer for good is good for the tour: it is about a folder that is gone afterwards.
        let (tools, policy) = self.workspaces.open_bare(&self.session, &cwd);
        let stop = async move {
            last_command.notified().await;
            tokio::time::sleep(PATIENCE).await;
        };
        Ok(Scene {
            tools: Arc::new(OnScratch { tools, _folder: folder }),
            cwd,
            model: ModelChoice {
                id: ModelId::new("purlin/tour"),
                name: "Tour (written down, not a model)".to_owned(),
                context_size: 1_000_000,
                price: None,
                can_think: false,
                model: Arc::new(model),
            },
            policy,
            stop: stop.boxed(),
            last_words: words::LAST.to_owned(),
        })
    }
}

impl Tools for TourGuide {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        self.own.now()
    }

    fn inner(&self) -> Option<&dyn Tools> {
        Some(&*self.own)
    }

    fn commands(&self) -> Vec<SlashCommand> {
        let mut commands = self.own.commands();
        commands.push(SlashCommand {
            name: "tour".into(),
            description: "Show what a turn is like, in a folder made for it".into(),
            hint: None,
        });
        commands
    }

    fn scene(&self, prompt: &Prompt) -> Option<Result<Scene, String>> {
        let is_tour = prompt.text().trim() == "/tour";
        is_tour.then(|| self.begin())
    }
}

/// The tools of the tour, which take its folder away when they are dropped.
struct OnScratch {
    tools: Arc<dyn Tools>,
    _folder: Scratch,
}

impl Tools for OnScratch {
    fn now(&self) -> Arc<[Arc<dyn AnyTool>]> {
        self.tools.now()
    }

    fn inner(&self) -> Option<&dyn Tools> {
        Some(&*self.tools)
    }
}

/// A folder with the files of the tour, for as long as this lives.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Scratch> {
        let place = std::env::temp_dir().canonicalize()?;
        clear(&place);
        let path = place.join(format!("{NAME}{}-{}", std::process::id(), assemble::fresh_id()));
        // Fails where something is there already: it would not be ours to remove.
        std::fs::create_dir(&path)?;
        let folder = Scratch(path);
        std::fs::write(folder.0.join(words::FILE), words::TEXT)?;
        Ok(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("the folder of the tour is left behind: {}: {err}", self.0.display());
        }
    }
}

/// What the folders of tours begin with; the number of their process follows.
const NAME: &str = "purlin-tour-";

/// After how long a folder is left behind for sure.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes the folders of tours whose process was killed.
fn clear(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(NAME)) else { continue };
        let owner = rest.split('-').next().and_then(|pid| pid.parse().ok());
        let age = entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed());
        let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > OLD));
        if is_old || owner.is_some_and(is_dead) {
            // One of another user's stays, and is theirs.
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(unix)]
fn is_dead(process: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(process);
    // Refused for those of others, which live.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_dead(_process: i32) -> bool {
    false
}

/// Says what [`words`] has for the next step. How far the tour is, the history tells.
struct Player {
    cwd: PathBuf,
    last_command: Arc<Notify>,
}

impl Model for Player {
    fn answer(&self, request: Request) -> ModelStream {
        let results: Vec<Option<String>> = request
            .messages
            .iter()
            .filter_map(|message| match &**message {
                Message::ToolResult { text, failed, .. } => Some(failed.then(|| text.clone())),
                Message::User(_) | Message::Agent { .. } => None,
            })
            .collect();
        let step = words::step(&results, &self.cwd);
        let mut events = vec![ModelEvent::Text(step.text)];
        if let Some((name, input)) = step.call {
            if step.is_last {
                self.last_command.notify_one();
            }
            let id = ToolCallId::new(format!("{}-{}", name_of(&self.cwd), results.len() + 1));
            events.push(ModelEvent::Tool(ToolRequest {
                id,
                name: name.to_owned(),
                input: input.into(),
            }));
        }
        events.push(ModelEvent::Stop(StopReason::EndTurn));
        stream::iter(events.into_iter().map(Ok)).boxed()
    }
}

/// The folder's name differs from tour to tour, so ids made of it do.
fn name_of(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_a_killed_tour_left_is_cleared_away_by_the_next() {
        let place = std::env::temp_dir().join(format!("tours-{}", std::process::id()));
        let own = format!("{NAME}{}-x", std::process::id());
        // No process has the highest number there is.
        let names =
            [own.as_str(), "purlin-tour-2147483647-x", "purlin-tours", "other-2147483647-x"];
        names.iter().for_each(|name| std::fs::create_dir_all(place.join(name)).unwrap());
        clear(&place);
        let is_there = names.map(|name| place.join(name).exists());
        assert_eq!(is_there, [true, false, true, true]);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
