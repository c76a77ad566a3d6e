//! `purlin trust`: shows what a project could run, and asks whether to trust it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use engine::words::visible;
use settings::devcontainer::DevContainer;
use settings::project::Part;
use settings::{Directories, DiskReader, Project, Trust, trust};

use crate::env;
use crate::stdout::print;

/// What `purlin trust` does.
#[derive(Debug)]
pub enum TrustCommand {
    /// Show what a project would run, and ask.
    Ask(PathBuf),
    /// List trusted directories.
    List,
    /// Stop trusting a directory.
    Revoke(PathBuf),
}

/// Runs the subcommand.
///
/// # Errors
/// Says what failed.
pub fn run(command: TrustCommand) -> anyhow::Result<ExitCode> {
    let directories = env::directories();
    let data = directories.data.as_deref().context("no data directory; set HOME")?;
    match command {
        TrustCommand::List => {
            let trusted = trust::list(data).map_err(anyhow::Error::msg)?;
            let lines = trusted.iter().map(|directory| {
                let project = Project::read(directory, &directories, &DiskReader);
                let state = match project.trust() {
                    Trust::Trusted => "trusted".to_owned(),
                    Trust::Not(why) => format!("not trusted: {why}"),
                };
                format!("{}  {state}\n", visible(&directory.to_string_lossy()))
            });
            let text: String = lines.collect();
            print(if text.is_empty() { "No trusted folders.\n" } else { &text })?;
        }
        TrustCommand::Revoke(directory) => {
            let directory = trust::real(&directory);
            let mut was_trusted = trust::revoke(data, &directory).map_err(anyhow::Error::msg)?;
            if let Ok(Some(container)) = DevContainer::read(&directory, None, &DiskReader) {
                was_trusted |= trust::revoke(data, &container.file).map_err(anyhow::Error::msg)?;
            }
            if !was_trusted {
                bail!("{} is not trusted", directory.display());
            }
            print(&format!(
                "{} is no longer trusted. Sessions that are open keep its settings until they are opened again.\n",
                visible(&directory.to_string_lossy())
            ))?;
        }
        TrustCommand::Ask(directory) => {
            anyhow::ensure!(directory.is_dir(), "folder not found: {}", directory.display());
            return ask(&directories, data, &trust::real(&directory));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(directories: &Directories, data: &Path, directory: &Path) -> anyhow::Result<ExitCode> {
    let project = Project::read(directory, directories, &DiskReader);
    let container = DevContainer::read(directory, Some(data), &DiskReader);
    let container = container.unwrap_or_else(|problem| {
        eprintln!("{problem}");
        None
    });
    let of_container = container.as_ref().map(|container| &container.part);
    let parts: Vec<&Part> = project.parts().iter().chain(of_container).collect();
    project.unreadable().iter().for_each(|problem| eprintln!("{problem}"));
    if parts.is_empty() {
        print(&format!(
            "{} has no settings that need trust.\n",
            visible(&directory.to_string_lossy())
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text =
        format!("The project in {} would be able to:\n", visible(&directory.to_string_lossy()));
    for part in &parts {
        text.push_str(&format!(
            "  {}\n      {}\n",
            visible(&part.name),
            visible(&part.runs).replace('\n', "\n      ")
        ));
    }
    print(&text)?;
    let is_container_trusted =
        container.as_ref().is_none_or(|container| container.trust == Trust::Trusted);
    if project.is_trusted() && is_container_trusted {
        print("Already trusted.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdin().is_terminal() {
        bail!("trusting a project needs a terminal");
    }
    print("Trust this project until its settings change? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "yes") {
        print("Not trusted.\n")?;
        return Ok(ExitCode::FAILURE);
    }
    if !project.parts().is_empty() {
        trust::add(data, directory, project.parts()).map_err(anyhow::Error::msg)?;
    }
    if let Some(container) = &container {
        let part = std::slice::from_ref(&container.part);
        trust::add(data, &container.file, part).map_err(anyhow::Error::msg)?;
    }
    print("Trusted.\n")?;
    Ok(ExitCode::SUCCESS)
}
