//! How the guide answers: which tools it asks for, and what it says of their results. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::question::{Git, Question};
use super::{Done, outline, project};
use crate::count::count;

/// What the guide does next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Asks for these tools: name and input.
    Ask(Vec<(&'static str, Value)>),
    /// Says this; it is done.
    Say(String),
}

/// Lines of a file that are shown.
const LINES: usize = 80;
/// Places that are listed of each kind.
const PLACES: usize = 10;
/// Names that are listed.
const NAMES: usize = 60;

/// What can be asked, for those who ask that.
pub(super) const ABILITIES: &str = "I can answer, from this folder and without a model:\n\
- what this project is, and how it is built and tested\n\
- where something is: \"where is `main`?\", \"who uses `Config`?\"\n\
- what a file says or is made of: \"show README.md\", \"outline src/main.rs\", \"list src/\"\n\
- where a text stands: \"find 'not found'\"; what is noted as to do: \"show TODOs\"\n\
- how things stand in git: \"git status\", \"what changed?\", \"the last commits\"\n\
\n\
I cannot explain, plan or change code: that takes a model. `/tour` shows what working with one is like; `/help` lists the commands.";

/// Decides what to do next, given what was done so far.
pub(super) fn next(question: &Question, rounds: &[Vec<Done>]) -> Next {
    match question {
        Question::Abilities => {
            Next::Say(format!("I am the guide that is built into Purlin. {ABILITIES}"))
        }
        Question::Connect => Next::Say(connect()),
        Question::Project | Question::Build => about(question, rounds),
        Question::Folder(path) => folder(path.as_deref(), rounds),
        Question::Show(path, lines) => {
            file(path, rounds, *lines, |path, text| show(path, text, *lines))
        }
        Question::Outline(path) => file(path, rounds, None, outline::words),
        Question::Where(what) => place(what, rounds),
        Question::Find(what) => find(what, rounds),
        Question::Git(part) => git(*part, rounds),
        Question::Todos => todos(rounds),
        Question::Work => {
            Next::Say(format!("That takes a model, and none is connected. {ABILITIES}"))
        }
        Question::Unknown => {
            Next::Say(format!("I did not understand that, or it takes a model. {ABILITIES}"))
        }
    }
}

fn connect() -> String {
    "Any of these connects a model; the next session uses it:\n\
     - a key that Purlin keeps: `purlin auth login anthropic`, or `openai`, `google`, `openrouter`\n\
     - a key in the environment: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY` or `OPENROUTER_API_KEY`\n\
     - a server on this machine: Ollama, LM Studio, llama.cpp or vLLM, found by itself while it runs\n\
     - any other: `provider` in `purlin.json`\n\
     \n\
     `purlin models` lists what can be used, and says why the rest cannot."
        .to_owned()
}

/// The project: its folder, then what describes it, then words.
fn about(question: &Question, rounds: &[Vec<Done>]) -> Next {
    let Some(first) = rounds.first() else {
        return Next::Ask(vec![("list", json!({ "path": "." }))]);
    };
    let names = lines_of(first);
    let wanted = project::sources(&names);
    if rounds.len() == 1 && !wanted.is_empty() {
        let read = |name: &String| ("read", json!({ "filePath": name, "limit": 120 }));
        return Next::Ask(wanted.iter().map(read).collect());
    }
    if let Some(refusal) = refusal(first) {
        return Next::Say(refusal);
    }
    let sources = rounds.get(1).map_or(&[][..], Vec::as_slice);
    let files: Vec<(String, String)> = sources
        .iter()
        .filter(|done| !done.failed)
        .map(|done| (path_of(done), plain(&done.text).join("\n")))
        .collect();
    Next::Say(match question {
        Question::Build => project::how_to(&files),
        _ => project::words(&names, &files),
    })
}

fn folder(path: Option<&str>, rounds: &[Vec<Done>]) -> Next {
    let Some(done) = rounds.first() else {
        return Next::Ask(vec![("list", json!({ "path": path.unwrap_or(".") }))]);
    };
    if let Some(refusal) = refusal(done) {
        return Next::Say(refusal);
    }
    let names = lines_of(done);
    let shown = names.iter().take(NAMES).map(|name| format!("- `{name}`\n")).collect::<String>();
    let more = more(names.len(), NAMES);
    let place = path.map_or("This folder".to_owned(), |path| format!("`{path}`"));
    Next::Say(match names.len() {
        0 => format!("{place} has nothing in it, or nothing that git does not ignore."),
        number => {
            let entries = count(number, "entry", "entries");
            format!("{place} has {entries}:\n\n{shown}{more}")
        }
    })
}

/// A file: read it; where there is none, look for one of that name and read that.
fn file(
    path: &str,
    rounds: &[Vec<Done>],
    lines: Option<(u32, u32)>,
    words: impl Fn(&str, &[String]) -> String,
) -> Next {
    let read = |path: &str| match lines {
        Some((first, last)) => {
            ("read", json!({ "filePath": path, "offset": first, "limit": last - first + 1 }))
        }
        None => ("read", json!({ "filePath": path })),
    };
    let Some(last) = rounds.last().and_then(|round| round.last()) else {
        return Next::Ask(vec![read(path)]);
    };
    match (rounds.len(), last.failed) {
        (1 | 3, false) => Next::Say(words(&path_of(last), &plain(&last.text))),
        (1, true) => {
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
            Next::Ask(vec![("glob", json!({ "pattern": format!("*{}*", glob_safe(name)) }))])
        }
        (2, false) => match names_in(&last.text).first() {
            Some(found) => Next::Ask(vec![read(found)]),
            None => Next::Say(format!("There is no file `{path}` here, nor one with such a name.")),
        },
        _ => Next::Say(refused(last)),
    }
}

fn show(path: &str, text: &[String], lines: Option<(u32, u32)>) -> String {
    let first = lines.map_or(1, |(first, _)| first);
    let shown = text.iter().take(LINES).map(|line| format!("{line}\n")).collect::<String>();
    let fence = if shown.contains("```") { "````" } else { "```" };
    let more = match text.len() {
        all if all > LINES => format!(
            "\n({} more; \"show lines {}-{} of {path}\" shows the next.)",
            count(all - LINES, "line", "lines"),
            first as usize + LINES,
            first as usize + 2 * LINES - 1
        ),
        _ => String::new(),
    };
    let from = lines.map_or(String::new(), |(first, last)| format!(", lines {first} to {last}"));
    format!("`{path}`{from}:\n\n{fence}\n{shown}{fence}{more}")
}

/// A name: where it is defined, files that are called so, and where it is mentioned.
fn place(what: &str, rounds: &[Vec<Done>]) -> Next {
    let Some(last) = rounds.last() else {
        return Next::Ask(searches(what));
    };
    let [defined, files, mentioned] = &last[..] else {
        return Next::Say(last.iter().find(|done| done.failed).map_or_else(nothing, refused));
    };
    let (definitions, names, mentions) =
        (places_in(&defined.text), names_in(&files.text), places_in(&mentioned.text));
    let longest = what.split(' ').max_by_key(|word| word.len()).unwrap_or(what);
    if definitions.is_empty() && names.is_empty() && mentions.is_empty() {
        if rounds.len() == 1 && longest != what {
            return Next::Ask(searches(longest));
        }
        if let Some(failed) = last.iter().find(|done| done.failed) {
            return Next::Say(refused(failed));
        }
        return Next::Say(format!(
            "Nothing here is called `{what}`, and nothing mentions it. (What git ignores is left out.)"
        ));
    }
    let mut words = String::new();
    if rounds.len() > 1 {
        words
            .push_str(&format!("Nothing fits `{what}`; this is what there is of `{longest}`.\n\n"));
    }
    section(&mut words, "Defined", &definitions);
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    section(&mut words, "Files of that name", &names);
    let elsewhere: Vec<String> =
        mentions.iter().filter(|place| !definitions.contains(place)).cloned().collect();
    section(&mut words, &format!("Mentioned {}", spread(&mentions)), &elsewhere);
    Next::Say(words)
}

/// The three searches for a name.
fn searches(what: &str) -> Vec<(&'static str, Value)> {
    const KINDS: &str =
        "fn|struct|enum|trait|type|const|static|mod|class|def|function|interface|func|impl";
    let words: Vec<String> = what.split(' ').map(escape).collect();
    let name = words.join(r"[\s_:./-]*");
    // Who writes a capital means it.
    let ignore_case = !what.chars().any(char::is_uppercase);
    let definition = format!(r"\b({KINDS})\s+{name}\b");
    let file = what.split(' ').map(glob_safe).collect::<Vec<_>>().join("*");
    vec![
        ("grep", json!({ "pattern": definition, "ignoreCase": ignore_case })),
        ("glob", json!({ "pattern": format!("*{file}*") })),
        ("grep", json!({ "pattern": name, "ignoreCase": ignore_case })),
    ]
}

fn find(what: &str, rounds: &[Vec<Done>]) -> Next {
    let Some(done) = rounds.first() else {
        let ignore_case = !what.chars().any(char::is_uppercase);
        return Next::Ask(vec![(
            "grep",
            json!({ "pattern": escape(what), "ignoreCase": ignore_case }),
        )]);
    };
    if let Some(refusal) = refusal(done) {
        return Next::Say(refusal);
    }
    let found = places_in(done.first().map_or("", |done| &done.text));
    if found.is_empty() {
        return Next::Say(format!("`{what}` stands nowhere here. (What git ignores is left out.)"));
    }
    let mut words = String::new();
    section(&mut words, &format!("`{what}` stands {}", spread(&found)), &found);
    Next::Say(words)
}

fn todos(rounds: &[Vec<Done>]) -> Next {
    let Some(done) = rounds.first() else {
        return Next::Ask(vec![("grep", json!({ "pattern": r"\b(TODO|FIXME|XXX|HACK)\b" }))]);
    };
    if let Some(refusal) = refusal(done) {
        return Next::Say(refusal);
    }
    let found = places_in(done.first().map_or("", |done| &done.text));
    if found.is_empty() {
        return Next::Say("No file here has a TODO, FIXME, XXX or HACK in it.".to_owned());
    }
    let mut words = String::new();
    section(&mut words, &format!("{} notes of what is to do", found.len()), &found);
    Next::Say(words)
}

fn git(part: Git, rounds: &[Vec<Done>]) -> Next {
    const STATUS: &str = "git status --short --branch";
    let commands: &[&str] = match part {
        Git::State => &[STATUS, "git log --oneline -n 5"],
        Git::Log => &["git log --oneline -n 15"],
        Git::Changes => &[STATUS, "git diff --stat HEAD"],
    };
    let Some(done) = rounds.first() else {
        return Next::Ask(
            commands.iter().map(|command| ("bash", json!({ "command": command }))).collect(),
        );
    };
    if let Some(failed) = done.iter().find(|done| done.failed) {
        return Next::Say(refused(failed));
    }
    if done.iter().any(|done| done.text.contains("not a git repository")) {
        return Next::Say("This folder is in no git repository.".to_owned());
    }
    let mut words = String::new();
    for (command, done) in commands.iter().zip(done) {
        let output = output_of(&done.text);
        match *command {
            STATUS => words.push_str(&status(output)),
            command => words.push_str(&format!("`{command}` says:\n\n```\n{output}\n```\n\n")),
        }
    }
    Next::Say(words)
}

/// What a command printed, without the remark on how it ended.
fn output_of(text: &str) -> &str {
    let text = text.trim_end();
    text.strip_suffix("(exit code 0)").unwrap_or(text).trim_end()
}

/// Words what `git status --short --branch` prints.
fn status(output: &str) -> String {
    let mut lines = output.lines();
    let head = lines.next().unwrap_or_default().trim_start_matches("## ");
    let branch = head.strip_prefix("No commits yet on ").unwrap_or(head);
    let branch = branch.split("...").next().unwrap_or(branch);
    let changed: Vec<String> =
        lines.filter(|line| line.len() > 3).map(|line| format!("`{}`", line.trim())).collect();
    let mut words = match head {
        head if head.starts_with("HEAD (no branch)") => "No branch is checked out.".to_owned(),
        _ => format!("The branch is `{branch}`."),
    };
    match changed.len() {
        0 => words.push_str(" Nothing is changed since the last commit.\n\n"),
        number => {
            words.push('\n');
            let files = count(number, "file is", "files are");
            section(&mut words, &format!("{files} changed or new"), &changed);
            words.push('\n');
        }
    }
    words
}

/// Adds a list with its title; nothing for an empty one.
fn section(words: &mut String, title: &str, entries: &[String]) {
    if entries.is_empty() {
        return;
    }
    let shown = entries.iter().take(PLACES).map(|entry| format!("- {entry}\n")).collect::<String>();
    words.push_str(&format!("{title}:\n{shown}{}", more(entries.len(), PLACES)));
}

fn more(all: usize, shown: usize) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        rest => format!("- and {rest} more\n"),
    }
}

/// Says why there is no answer, if the round's only call did not work.
fn refusal(round: &[Done]) -> Option<String> {
    match round {
        [] => Some(nothing()),
        [done, ..] if done.failed => Some(refused(done)),
        _ => None,
    }
}

fn refused(done: &Done) -> String {
    let why =
        done.text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason was given");
    format!("I could not look: `{}` says: {why}", done.name)
}

fn nothing() -> String {
    "I could not look: the tools gave no answer.".to_owned()
}

fn path_of(done: &Done) -> String {
    done.input["filePath"].as_str().unwrap_or_default().to_owned()
}

/// The lines of a file, without the numbers that `read` puts before them and without its remarks.
fn plain(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let (number, rest) = line.split_once('\t')?;
        number.trim().parse::<u32>().ok().map(|_| rest.to_owned())
    };
    text.lines().filter_map(line).collect()
}

fn lines_of(round: &[Done]) -> Vec<String> {
    round.iter().flat_map(|done| names_in(&done.text)).collect()
}

/// The names that `list` and `glob` print, without their remarks.
fn names_in(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('('))
        .map(str::to_owned)
        .collect()
}

/// The places that `grep` prints, as `file:line` with the line's text.
fn places_in(text: &str) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut file = "";
    let mut places = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("  ") else {
            file = line;
            continue;
        };
        let Some((number, said)) = rest.split_once(": ") else { continue };
        let said = said.trim().replace('`', "'");
        let cut: String = said.chars().take(WIDTH).collect();
        let more = if cut.len() < said.len() { " …" } else { "" };
        places.push(format!("`{file}:{number}` {cut}{more}"));
    }
    places
}

/// Says how often something was found, and in how many files.
fn spread(places: &[String]) -> String {
    let files: BTreeSet<&str> = places.iter().filter_map(|place| place.split(':').next()).collect();
    let (times, files) = (places.len(), files.len());
    format!("{} in {}", count(times, "time", "times"), count(files, "file", "files"))
}

/// Makes a text a regular expression that fits it alone.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Takes out what has a meaning in globs.
fn glob_safe(text: &str) -> String {
    text.chars()
        .filter(|character| character.is_alphanumeric() || "._-".contains(*character))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(name: &str, text: &str, failed: bool) -> Done {
        Done {
            name: name.to_owned(),
            input: json!({ "filePath": "a.rs" }).into(),
            text: text.to_owned(),
            failed,
        }
    }

    fn said(next: Next) -> String {
        match next {
            Next::Say(text) => text,
            Next::Ask(calls) => panic!("it asks for {calls:?}"),
        }
    }

    #[test]
    fn a_place_is_told_with_its_file_and_line() {
        let question = Question::Where("main".to_owned());
        let Next::Ask(calls) = next(&question, &[]) else { panic!("it must look first") };
        assert_eq!(calls.len(), 3);
        let found = "src/a.rs\n  3: fn main() {\n";
        let all = "src/a.rs\n  3: fn main() {\nsrc/b.rs\n  9: main();\n";
        let round = vec![
            done("grep", found, false),
            done("glob", "(no file fits)", false),
            done("grep", all, false),
        ];
        let words = said(next(&question, &[round]));
        assert_eq!(
            words,
            "Defined:\n- `src/a.rs:3` fn main() {\nMentioned 2 times in 2 files:\n- `src/b.rs:9` main();\n"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_looked_for() {
        let question = Question::Show("main.rs".to_owned(), None);
        let missing = vec![done("read", "error -31700: there is no file main.rs", true)];
        let Next::Ask(calls) = next(&question, std::slice::from_ref(&missing)) else {
            panic!("it must look")
        };
        assert_eq!(calls[0].0, "glob");
        let nowhere = vec![done("glob", "(no file fits)", false)];
        let words = said(next(&question, &[missing.clone(), nowhere]));
        assert!(words.contains("no file `main.rs`"), "{words}");
        let there = vec![done("glob", "src/main.rs\n", false)];
        let Next::Ask(calls) = next(&question, &[missing, there]) else { panic!("it must read") };
        assert_eq!(calls[0].1["filePath"], "src/main.rs");
    }

    #[test]
    fn what_did_not_work_is_said() {
        let refused = vec![done("bash", "the user did not allow this", true)];
        let words = said(next(&Question::Git(Git::Log), &[refused]));
        assert!(words.contains("the user did not allow this"), "{words}");
        let none = vec![done(
            "bash",
            "fatal: not a git repository (or any parent)\n(exit code 128)",
            false,
        )];
        assert!(said(next(&Question::Git(Git::Log), &[none])).contains("no git repository"));
    }

    #[test]
    fn git_is_worded() {
        assert_eq!(
            status("## main...origin/main [ahead 1]\n M a.rs\n?? b.rs"),
            "The branch is `main`.\n2 files are changed or new:\n- `M a.rs`\n- `?? b.rs`\n\n"
        );
        assert!(status("## dev").contains("Nothing is changed"));
    }

    #[test]
    fn a_text_is_searched_for_as_it_is() {
        assert_eq!(escape("a.b(c)"), r"a\.b\(c\)");
        assert_eq!(glob_safe("**/a*.rs"), "a.rs");
    }
}
