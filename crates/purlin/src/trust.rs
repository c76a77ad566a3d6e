//! `purlin trust`: shows what a project could run, and asks whether to trust it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use engine::words::visible;
use settings::{Directories, DiskReader, Project, Trust, trust};

use crate::cli::say;
use crate::env;

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
    let directories = env::directories();
    let data =
        directories.data.as_deref().context("there is no folder to keep trust in; set HOME")?;
    match command {
        TrustCommand::List => {
            let trusted = trust::list(data).map_err(anyhow::Error::msg)?;
            let lines = trusted.iter().map(|folder| {
                let project = Project::read(folder, &directories, &DiskReader);
                let state = match project.trust() {
                    Trust::Trusted => "trusted".to_owned(),
                    Trust::Not(why) => format!("inert: {why}"),
                };
                format!("{}  {state}\n", visible(&folder.to_string_lossy()))
            });
            let text: String = lines.collect();
            say(if text.is_empty() { "No folder is trusted.\n" } else { &text })?;
        }
        TrustCommand::Revoke(folder) => {
            let folder = trust::real(&folder);
            let was_trusted = trust::revoke(data, &folder).map_err(anyhow::Error::msg)?;
            if !was_trusted {
                bail!("{} was not trusted", folder.display());
            }
        }
        TrustCommand::Ask(folder) => {
            anyhow::ensure!(folder.is_dir(), "there is no folder {}", folder.display());
            return ask(&directories, data, &trust::real(&folder));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(directories: &Directories, data: &Path, folder: &Path) -> anyhow::Result<ExitCode> {
    let project = Project::read(folder, directories, &DiskReader);
    let parts = project.parts();
    project.unreadable().iter().for_each(|problem| eprintln!("{problem}"));
    if parts.is_empty() {
        say(&format!("Nothing in {} would run by itself.\n", visible(&folder.to_string_lossy())))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text =
        format!("The project in {} could do this:\n", visible(&folder.to_string_lossy()));
    for part in parts {
        text.push_str(&format!(
            "  {}\n      {}\n",
            visible(&part.name),
            visible(&part.runs).replace('\n', "\n      ")
        ));
    }
    say(&text)?;
    if project.is_trusted() {
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
    trust::add(data, folder, parts).map_err(anyhow::Error::msg)?;
    say("Trusted.\n")?;
    Ok(ExitCode::SUCCESS)
}
