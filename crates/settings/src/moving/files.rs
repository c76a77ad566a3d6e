//! The rows of what other agents have in files of their own: instructions, rules, agents, slash commands and skills of the user.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Row, State};
use crate::custom::agents::{self, Agents};
use crate::custom::commands::{self, Author};
use crate::custom::files::{self, Found, Sort};
use crate::custom::{Additions, front_matter};
use crate::{Directories, ReadText, instructions};

/// What is in a directory that has no counterpart here, with what to do instead.
const OTHER_DIRECTORIES: [(&str, &str); 9] = [
    ("mode", "put its files into `agent` with `mode: primary`"),
    ("modes", "put its files into `agent` with `mode: primary`"),
    ("plugin", "use hooks or an MCP server"),
    ("plugins", "use hooks or an MCP server"),
    ("tool", "use an MCP server"),
    ("tools", "use an MCP server"),
    ("themes", ""),
    ("output-styles", "use an agent with `mode: primary`"),
    ("prompts", "put its files into `~/.config/purlin/commands`"),
];

/// Lists what becomes of the user's files of OpenCode, Claude Code and Codex. `own` is what the configuration adds, which comes first.
pub fn rows(own: &Additions, directories: &Directories, reader: &dyn ReadText) -> Vec<Row> {
    let Directories { opencode_config, claude, codex, .. } = directories;
    let tops: Vec<&PathBuf> = [opencode_config, claude, codex].into_iter().flatten().collect();
    let mut rows = instructions_of(directories, &tops);
    if let Some(claude) = claude {
        rows.extend(
            files::markdown_in(&claude.join("rules")).iter().map(|file| taken(file, "rules")),
        );
    }
    rows.extend(agents_of(own, directories, reader));
    rows.extend(commands_of(own, directories, reader));
    rows.extend(skills_of(directories, &tops));
    for (top, (name, instead)) in
        tops.iter().flat_map(|top| OTHER_DIRECTORIES.iter().map(move |other| (top, other)))
    {
        let directory = top.join(name);
        let has_files =
            std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
        if has_files {
            rows.push(Row::new(
                &shown(&directory),
                format!("{name}/"),
                State::NotSupported,
                *instead,
            ));
        }
    }
    rows
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn taken(path: &Path, setting: &str) -> Row {
    Row::new(&shown(path), setting, State::Taken, "")
}

/// Of several files with instructions for all projects, one is used.
fn instructions_of(directories: &Directories, tops: &[&PathBuf]) -> Vec<Row> {
    let all = directories.config.iter().chain(tops.iter().copied());
    let mut found = all.filter_map(|top| instructions::file_in(top));
    let Some(used) = found.next() else { return Vec::new() };
    let row = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match *file == used {
            true => taken(file, &name),
            false => {
                let note = format!("{} is used instead", used.display());
                Row::new(&shown(file), name, State::NotSupported, note)
            }
        }
    };
    let is_ours = directories.config.as_ref().is_some_and(|ours| used.starts_with(ours));
    let rest: Vec<PathBuf> = found.collect();
    std::iter::once(&used).filter(|_| !is_ours).chain(&rest).map(row).collect()
}

/// Returns the files of one sort: ours first, which take precedence, then the others'. Whether one is ours is the flag.
fn in_order(
    directories: &Directories,
    sort: Sort,
    reader: &dyn ReadText,
    rows: &mut Vec<Row>,
) -> Vec<(bool, Found)> {
    let Directories { config, opencode_config, claude, .. } = directories;
    let tops = [(config, true, false), (opencode_config, false, false), (claude, false, true)];
    let mut all = Vec::new();
    for (top, is_ours, is_claude) in tops {
        let mut problems = Vec::new();
        let Some(top) = top else { continue };
        let found = files::read_top((Path::new(""), top), is_claude, sort, reader, &mut problems);
        all.extend(found.into_iter().map(|file| (is_ours, file)));
        let unread = problems.into_iter().filter(|_| !is_ours);
        rows.extend(unread.map(|why| Row::new(&shown(top), "a file", State::NotSupported, why)));
    }
    all
}

/// Says what became of a file, from whether it was added and what is wrong with it.
fn row_of(file: &Found, setting: String, is_new: bool, problems: &[String]) -> Row {
    let prefix = format!("`{}`", file.shown);
    let words = problems.iter().map(|problem| problem.strip_prefix(&prefix).unwrap_or(problem));
    let words: Vec<&str> = words.map(|word| word.trim_start_matches(':').trim()).collect();
    let (state, note) = match (is_new, words.is_empty()) {
        (true, true) => (State::Taken, String::new()),
        (true, false) => (State::Changed, words.join("; ")),
        (false, false) => (State::NotSupported, words.join("; ")),
        (false, true) => (State::NotSupported, "another one has the name".to_owned()),
    };
    Row::new(&file.shown, setting, state, note)
}

fn agents_of(own: &Additions, directories: &Directories, reader: &dyn ReadText) -> Vec<Row> {
    let (mut rows, mut all) = (Vec::new(), Agents::new());
    let home = directories.home.as_deref();
    agents::of_config(&own.agent, home, &mut all, &mut Vec::new());
    for (is_ours, file) in in_order(directories, Sort::Agents, reader, &mut rows) {
        let (before, mut problems) = (all.len(), Vec::new());
        agents::of_file(&file, home, &mut all, &mut problems);
        if !is_ours {
            rows.push(row_of(&file, format!("agent {}", file.name), all.len() > before, &problems));
        }
    }
    rows
}

fn commands_of(own: &Additions, directories: &Directories, reader: &dyn ReadText) -> Vec<Row> {
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    commands::of_config(&own.command, Author::User, &mut all, &mut Vec::new());
    for (is_ours, file) in in_order(directories, Sort::Commands, reader, &mut rows) {
        let (before, mut problems) = (all.len(), Vec::new());
        commands::of_file(&file, Author::User, &mut all, &mut problems);
        if !is_ours {
            let setting = format!("command /{}", file.name);
            rows.push(row_of(&file, setting, all.len() > before, &problems));
        }
    }
    rows
}

/// Skills of the same name: the first is used.
fn skills_of(directories: &Directories, tops: &[&PathBuf]) -> Vec<Row> {
    let (mut rows, mut names) = (Vec::new(), BTreeSet::new());
    for top in directories.config.iter().chain(tops.iter().copied()) {
        let is_ours = directories.config.as_ref() == Some(top);
        for file in instructions::skills::files_in(top) {
            let folder = file.parent().and_then(Path::file_name).unwrap_or_default();
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let (head, _) = front_matter::split(&text);
            let name = head.get("name").and_then(serde_json::Value::as_str);
            let name = name.map_or_else(|| folder.to_string_lossy().into_owned(), str::to_owned);
            let setting = format!("skill {name}");
            let is_new = names.insert(name);
            if !is_ours && is_new {
                rows.push(taken(&file, &setting));
            } else if !is_ours {
                rows.push(Row::new(
                    &shown(&file),
                    setting,
                    State::NotSupported,
                    "another one has the name",
                ));
            }
        }
    }
    rows
}
