//! Every `purlin …` command line in the documentation is one that the program understands.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::*;

/// What stands for a value in the documentation, with a value that is valid there.
const PLACEHOLDERS: [(&str, &str); 7] = [
    ("EDITOR", "zed"),
    ("SHELL", "bash"),
    ("LEVEL", "info"),
    ("DIALECT", "v1"),
    ("NAME=VALUE", "A=1"),
    ("COMMAND", "models"),
    ("N", "1"),
];

/// A command line in a page.
#[derive(Debug)]
struct Line {
    page: PathBuf,
    text: String,
    /// In a block that readers copy. Elsewhere it may be only the name of a command.
    is_whole: bool,
}

// R: Q2
#[test]
fn documented_command_lines_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut lines = Vec::new();
    for page in pages(&root) {
        let text = std::fs::read_to_string(&page).unwrap();
        lines.extend(blocks(&page, &text).chain(spans(&page, &text)));
    }
    let faults: Vec<String> = lines.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    let whole = lines.iter().filter(|line| line.is_whole).count();
    assert!(whole >= 8 && lines.len() >= 100, "{whole} of {} lines were found", lines.len());
}

/// Finds the pages: those of the root and all below `docs`.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut open = vec![root.to_owned()];
    let mut pages = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && (directory != root || path.ends_with("docs")) {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// Lines of blocks that start with a prompt.
fn blocks(page: &Path, text: &str) -> impl Iterator<Item = Line> {
    text.split("```").skip(1).step_by(2).flat_map(str::lines).filter_map(move |line| {
        let line = line.trim().strip_prefix("$ ")?;
        let line = line.split(" #").next().unwrap_or(line);
        let line = line.split(['|', '>', '<']).next().unwrap_or(line).trim();
        (first_word(line) == "purlin").then(|| Line {
            page: page.to_owned(),
            text: line.to_owned(),
            is_whole: true,
        })
    })
}

/// Code inside sentences and tables.
fn spans(page: &Path, text: &str) -> impl Iterator<Item = Line> {
    let prose = text.split("```").step_by(2).collect::<String>();
    let code: Vec<String> = prose.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    code.into_iter()
        .filter(|code| first_word(code) == "purlin" && !code.contains('\n'))
        .map(move |text| Line { page: page.to_owned(), text, is_whole: false })
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Says what is wrong with a line.
fn fault(line: &Line) -> Option<String> {
    let words = words(&line.text);
    let err = Cli::try_parse_from(&words).err()?;
    let is_right = match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        // Only the name of a command, without what it needs.
        ErrorKind::MissingRequiredArgument
        | ErrorKind::InvalidValue
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !line.is_whole,
        _ => false,
    };
    (!is_right).then(|| format!("{}: `{}`: {err}", line.page.display(), line.text))
}

/// Splits a line as a shell does, and puts values for placeholders.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    // Brackets are around what may be omitted, and the first of several alternatives stands for all.
    let known = |word: &String| {
        let word = word.trim_matches(['[', ']']);
        let word = word.split("\\|").next().unwrap_or(word);
        let found = PLACEHOLDERS.iter().find(|(placeholder, _)| word == *placeholder);
        found.map_or(word, |(_, value)| value).to_owned()
    };
    words.iter().filter(|word| !word.is_empty()).map(known).collect()
}
