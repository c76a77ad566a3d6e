//! `/tour`: a transcript that shows what a turn is like, in a temporary directory.
//!
//! `tour/tour.acp` is played by the scripted model; tools, permissions, journal and protocol are the real ones. Nothing in
//! the user's project is touched, and the session's own model does not see it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Expanded, Extension, IsolatedTurn, ModelChoice, Toolbox};
use engine::script::ScriptedModel;
use engine::words::{ModelId, Prompt, SessionId, SlashCommand};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serve::Workspaces;
use serve::workspace::MakeExtension;

use crate::{env, storage};

/// What the tour says and does. `{directory}` stands for its directory.
const TRANSCRIPT: &str = include_str!("tour/tour.acp");
/// The file of the tour.
const FILE: (&str, &str) = (
    "greet.sh",
    "#!/bin/sh\n# Greets whoever is named.\nname=${1:-world}\necho \"Helo, $name!\"\n",
);

/// Gives every session the command `/tour`.
#[must_use]
pub fn extension() -> MakeExtension {
    Box::new(|workspaces, session| {
        Arc::new(Tour { workspaces: Arc::clone(workspaces), session: session.clone() })
    })
}

struct Tour {
    workspaces: Arc<Workspaces>,
    session: SessionId,
}

impl Tour {
    fn begin(&self) -> anyhow::Result<IsolatedTurn> {
        let directory = Scratch::new()?;
        let cwd = directory.0.clone();
        let name = cwd.file_name().map(|name| name.to_string_lossy().into_owned());
        let script = TRANSCRIPT.replace("{directory}", &cwd.to_string_lossy());
        // The directory's name differs from tour to tour, so the ids of calls do.
        let model = ScriptedModel::parse(&script)?.with_id_prefix(name.unwrap_or_default() + "-");
        let tools = self.workspaces.open_bare(&self.session, &cwd);
        Ok(IsolatedTurn {
            cwd,
            model: ModelChoice {
                id: ModelId::new("purlin/tour"),
                name: "Tour (a script, not a model)".to_owned(),
                context_size: 1_000_000,
                price: None,
                can_think: false,
                profile: None,
                model: Arc::new(model),
            },
            toolbox: Arc::new(Toolbox::new(tools, vec![Arc::new(directory)])),
        })
    }
}

impl Extension for Tour {
    fn commands(&self) -> Vec<SlashCommand> {
        let description = "Show what a turn is like, in a temporary folder".into();
        vec![SlashCommand { name: "tour".into(), description, hint: None }]
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        let expanded = match prompt.slash_command() {
            Some(("tour", "")) => match self.begin() {
                Ok(tour) => Expanded::Isolated(tour),
                Err(err) => Expanded::Answer(format!("The tour cannot start: {err:#}.")),
            },
            _ => Expanded::Prompt(prompt),
        };
        future::ready(expanded).boxed()
    }
}

/// A directory with the file of the tour. It is removed with the tour's toolbox, which it is part of.
struct Scratch(PathBuf);

impl Extension for Scratch {}

impl Scratch {
    fn new() -> std::io::Result<Scratch> {
        let parent = env::temporary().canonicalize()?;
        remove_stale(&parent);
        let path = parent.join(format!("{NAME}{}-{}", std::process::id(), storage::fresh_id()));
        // Fails if it exists: then it would not be ours to remove.
        std::fs::create_dir(&path)?;
        let directory = Scratch(path);
        let (name, text) = FILE;
        std::fs::write(directory.0.join(name), text)?;
        Ok(directory)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("the folder of the tour was not removed: {}: {err}", self.0.display());
        }
    }
}

/// What the names of tour directories start with; the id of their process follows.
const NAME: &str = "purlin-tour-";

/// After how long a directory is stale for sure.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes the directories of tours whose process was killed.
fn remove_stale(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(NAME)) else { continue };
        let owner = rest.split('-').next().and_then(|pid| pid.parse().ok());
        let age = entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed());
        let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > OLD));
        if is_old || owner.is_some_and(process::end::has_ended) {
            // The directory of another user cannot be removed, and is theirs.
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn directory_of_a_killed_tour_is_removed_by_the_next() {
        let parent = env::temporary().join(format!("tours-{}", std::process::id()));
        let own = format!("{NAME}{}-x", std::process::id());
        // No process has the highest id.
        let names =
            [own.as_str(), "purlin-tour-2147483647-x", "purlin-tours", "other-2147483647-x"];
        names.iter().for_each(|name| std::fs::create_dir_all(parent.join(name)).unwrap());
        remove_stale(&parent);
        let exists = names.map(|name| parent.join(name).exists());
        assert_eq!(exists, [true, false, true, true]);
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
