//! Trust: what a project's files could run is inert until the user has seen it and said yes.
//!
//! Trust is bound to the folder and to the content of what would run, and kept outside the workspace. A change asks again.
//! Nothing here trusts by itself: only `purlin trust`, on a terminal, after showing the literal commands.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use engine::visible::visible;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cli::say;
use crate::project::{self, Part};
use crate::{env, kept};

/// Whether what a project could run may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The user has seen exactly this and said yes, or there is nothing to run.
    Trusted,
    /// It is inert; why, in words.
    Not(String),
}

/// One folder that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trusted {
    folder: PathBuf,
    /// The hash of all that would run.
    hash: String,
}

/// Tells whether the user trusts these parts of a folder's project.
#[must_use]
pub fn check(folder: &Path, parts: &[Part]) -> Trust {
    match env::data_folder() {
        Some(data) => check_in(&data, folder, parts),
        None if parts.is_empty() => Trust::Trusted,
        None => Trust::Not("there is no folder to keep trust in".to_owned()),
    }
}

fn check_in(data: &Path, folder: &Path, parts: &[Part]) -> Trust {
    if parts.is_empty() {
        return Trust::Trusted;
    }
    let trusted: Vec<Trusted> = match kept::read(&data.join("trust.json")) {
        Ok(trusted) => trusted,
        Err(err) => return Trust::Not(err),
    };
    let folder = real(folder);
    match trusted.iter().find(|trusted| trusted.folder == folder) {
        Some(trusted) if trusted.hash == hash(parts) => Trust::Trusted,
        Some(_) => Trust::Not("it changed since you trusted it".to_owned()),
        None => Trust::Not("you have not trusted this folder".to_owned()),
    }
}

fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

fn hash(parts: &[Part]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        for field in [&part.name, &part.runs] {
            hasher.update((field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What `purlin trust` is asked to do.
#[derive(Debug)]
pub enum TrustCommand {
    /// Show what a folder could run, and ask.
    Ask(PathBuf),
    /// List the folders that are trusted.
    List,
    /// Trust a folder no longer.
    Revoke(PathBuf),
}

/// Does what was asked.
///
/// # Errors
/// Says what could not be done.
pub fn run(command: TrustCommand) -> anyhow::Result<ExitCode> {
    let data = env::data_folder().context("there is no folder to keep trust in; set HOME")?;
    let file = data.join("trust.json");
    match command {
        TrustCommand::List => {
            let trusted: Vec<Trusted> = kept::read(&file).map_err(anyhow::Error::msg)?;
            let lines = trusted.iter().map(|trusted| {
                let (parts, _) = project::parts(&trusted.folder);
                let state = match check_in(&data, &trusted.folder, &parts) {
                    Trust::Trusted => "trusted".to_owned(),
                    Trust::Not(why) => format!("inert: {why}"),
                };
                format!("{}  {state}\n", visible(&trusted.folder.to_string_lossy()))
            });
            let text: String = lines.collect();
            say(if text.is_empty() { "No folder is trusted.\n" } else { &text })?;
        }
        TrustCommand::Revoke(folder) => {
            let folder = real(&folder);
            let mut was_there = false;
            kept::change::<Vec<Trusted>>(&file, |all| {
                let before = all.len();
                all.retain(|trusted| trusted.folder != folder);
                was_there = all.len() < before;
            })
            .map_err(anyhow::Error::msg)?;
            if !was_there {
                bail!("{} was not trusted", folder.display());
            }
        }
        TrustCommand::Ask(folder) => {
            anyhow::ensure!(folder.is_dir(), "there is no folder {}", folder.display());
            return ask(&data, &real(&folder));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(data: &Path, folder: &Path) -> anyhow::Result<ExitCode> {
    let (parts, problems) = project::parts(folder);
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    if parts.is_empty() {
        say(&format!("Nothing in {} would run by itself.\n", visible(&folder.to_string_lossy())))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text =
        format!("The project in {} could do this:\n", visible(&folder.to_string_lossy()));
    for part in &parts {
        text.push_str(&format!(
            "  {}\n      {}\n",
            visible(&part.name),
            visible(&part.runs).replace('\n', "\n      ")
        ));
    }
    say(&text)?;
    if check_in(data, folder, &parts) == Trust::Trusted {
        say("You trust it already.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdin().is_terminal() {
        bail!("there is no terminal to ask on, and nothing is trusted without asking");
    }
    say("Trust it, until it changes? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "yes") {
        say("Not trusted.\n")?;
        return Ok(ExitCode::FAILURE);
    }
    let new = Trusted { folder: folder.to_owned(), hash: hash(&parts) };
    kept::change::<Vec<Trusted>>(&data.join("trust.json"), |all| {
        all.retain(|trusted| trusted.folder != new.folder);
        all.push(new);
    })
    .map_err(anyhow::Error::msg)?;
    say("Trusted.\n")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_bound_to_the_folder_and_to_what_would_run() {
        let data = std::env::temp_dir().join(format!("purlin-trust-{}", std::process::id()));
        let part = |runs: &str| Part { name: "MCP server x".to_owned(), runs: runs.to_owned() };
        let (here, there) = (std::env::temp_dir(), PathBuf::from("/"));
        let parts = [part("node x.js")];
        assert_eq!(check_in(&data, &here, &[]), Trust::Trusted);
        let unknown = Trust::Not("you have not trusted this folder".to_owned());
        assert_eq!(check_in(&data, &here, &parts), unknown);
        let new = Trusted { folder: real(&here), hash: hash(&parts) };
        kept::change::<Vec<Trusted>>(&data.join("trust.json"), |all| all.push(new)).unwrap();
        assert_eq!(check_in(&data, &here, &parts), Trust::Trusted);
        assert_eq!(check_in(&data, &there, &parts), unknown);
        let changed = Trust::Not("it changed since you trusted it".to_owned());
        assert_eq!(check_in(&data, &here, &[part("node y.js")]), changed);
        assert_eq!(check_in(&data, &here, &[part("node x.js"), part("z")]), changed);
        std::fs::remove_dir_all(&data).unwrap();
    }
}
