//! `purlin setup`: adds Purlin to the settings of an editor, or prints what to add.
//!
//! Shows the change and asks before it writes. What the file says otherwise, comments and formatting included, stays as
//! it is. `setup::editors` is the table of editors, `setup::file` makes and writes the change.

mod editors;
mod file;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use crate::env;
use crate::stdout::print;
use editors::{EDITORS, Editor, Homes, Launch, Setting};
use file::Change;

/// The arguments of `purlin setup`.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// The editor; without it, all supported editors are listed
    #[arg(value_parser = editor_name)]
    editor: Option<&'static Editor>,
    /// Change this settings file instead of the editor's default one
    #[arg(long, value_name = "FILE", requires = "editor")]
    file: Option<PathBuf>,
    /// Write the change without asking
    #[arg(long, requires = "editor")]
    yes: bool,
}

fn editor_name(name: &str) -> Result<&'static Editor, String> {
    let found = EDITORS.iter().find(|editor| editor.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = EDITORS.iter().map(|editor| editor.name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// Runs `purlin setup`.
pub(crate) fn run(args: SetupArgs) -> anyhow::Result<ExitCode> {
    let homes = homes();
    let launch =
        Launch::of(&std::env::current_exe().context("the path of this program is unknown")?);
    let Some(editor) = args.editor else {
        return print(&list(&homes, &launch)).map(|()| ExitCode::SUCCESS);
    };
    match &editor.setting {
        Setting::Code { place, snippet } => {
            if args.file.is_some() {
                bail!(
                    "{} is configured in code; add the text that `purlin setup {}` prints",
                    editor.title,
                    editor.name
                );
            }
            print(&format!("{place}:\n\n{}\n{}\n", snippet(&launch), editor.then))?;
            Ok(ExitCode::SUCCESS)
        }
        Setting::File { place, key, entry } => {
            let file = match args.file {
                Some(file) => file,
                None => place(&homes).with_context(|| {
                    format!(
                        "the settings file of {} is unknown; name it with `--file FILE`",
                        editor.title
                    )
                })?,
            };
            let change = Change::plan(&file, key, &entry(&launch))?;
            apply(editor, &change, args.yes)
        }
    }
}

/// Shows the change, asks, and writes it.
fn apply(editor: &Editor, change: &Change, is_agreed: bool) -> anyhow::Result<ExitCode> {
    if change.is_done() {
        print(&format!("Purlin is already in {}.\n{}\n", change.file().display(), editor.then))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&change.shown())?;
    if !is_agreed {
        if !std::io::stdin().is_terminal() {
            bail!("nothing was changed: run this in a terminal, or add `--yes`");
        }
        print("Write this change? [y/N] ")?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "yes") {
            print("Nothing was changed.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    change.write()?;
    print(&format!("Saved. {}\n", editor.then))?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the editors, and which of them start Purlin.
fn list(homes: &Homes, launch: &Launch) -> String {
    let mut text = String::new();
    for editor in &EDITORS {
        let state = match &editor.setting {
            Setting::Code { .. } => "prints what to add".to_owned(),
            Setting::File { place, key, entry } => match place(homes) {
                None => "needs --file FILE".to_owned(),
                Some(file) => state(&file, key, &entry(launch)),
            },
        };
        text.push_str(&format!("{:<14}  {:<30}  {state}\n", editor.name, editor.title));
    }
    text.push_str("\nRun `purlin setup EDITOR`. It shows the change and asks before it writes.\n");
    text
}

fn state(file: &Path, key: &str, entry: &serde_json::Value) -> String {
    match Change::plan(file, key, entry) {
        Ok(change) if change.is_done() => format!("set up in {}", file.display()),
        Ok(_) => format!("would change {}", file.display()),
        Err(err) => format!("{err:#}"),
    }
}

fn homes() -> Homes {
    let directories = env::directories();
    // Our own directory is inside the one for the settings of all programs.
    let config = directories.config.as_deref().and_then(Path::parent).map(Path::to_owned);
    Homes { home: directories.home, config }
}
