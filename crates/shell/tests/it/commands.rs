//! The command corpus: `data/commands.tsv` has commands and the expected verdict for each.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use shell::{Context, Verdict, needs};

/// A disk without links.
pub(crate) fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
        }
    }
    Some(out)
}

/// Describes a command in the sandbox that starts in the first of these directories.
pub(crate) fn place<'a>(
    roots: &'a [PathBuf],
    writable: &'a [PathBuf],
    real: &'a dyn Fn(&Path) -> Option<PathBuf>,
) -> Context<'a> {
    let (home, is_deceptive) = (Some(Path::new("/home/user")), engine::words::deceives);
    Context {
        cwd: &roots[0],
        roots,
        own: &[],
        home,
        is_sandboxed: true,
        writable,
        real,
        is_deceptive,
    }
}

pub(crate) fn decide(command: &str, is_sandboxed: bool) -> Verdict {
    let roots = [PathBuf::from("/w")];
    let writable = ["/tmp", "/var/tmp", "/dev"].map(PathBuf::from);
    let at = Context { is_sandboxed, ..place(&roots, &writable, &plain) };
    let decisions = needs(command, &at).into_iter().map(|need| need.default);
    decisions.max().unwrap_or(Verdict::Allow)
}

/// Decodes the escapes of the file.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next().unwrap() {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'u' => {
                    let code: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    out.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
                }
                other => out.push(other),
            },
            '⟨' => {
                let inside: String = rest.by_ref().take_while(|c| *c != '⟩').collect();
                let (count, text) = inside.split_once('×').unwrap();
                out.push_str(&unescape(text).repeat(count.parse().unwrap()));
            }
            other => out.push(other),
        }
    }
    out
}

fn verdict_of(word: &str) -> Verdict {
    match word {
        "allow" => Verdict::Allow,
        "ask" => Verdict::Ask,
        "deny" => Verdict::Reject,
        other => panic!("{other}"),
    }
}

pub(crate) fn corpus() -> Vec<(Verdict, &'static str, String)> {
    let lines = include_str!("data/commands.tsv").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.splitn(3, '\t');
            let decision = verdict_of(fields.next().unwrap());
            (decision, fields.next().unwrap(), unescape(fields.next().unwrap()))
        })
        .collect()
}

// R: T2
#[test]
fn every_command_of_the_corpus_gets_its_expected_verdict() {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (expected, category, command) in corpus() {
        let decision = decide(&command, true);
        let count = counts.entry(category).or_default();
        count.0 += 1;
        count.1 += usize::from(decision == Verdict::Allow);
        if decision != expected {
            let start: String = command.chars().take(80).collect();
            wrong.push(format!("{category}: {start:?} is {decision:?}, not {expected:?}"));
        }
    }
    let total: usize = counts.values().map(|count| count.0).sum();
    for (category, (all, allowed)) in &counts {
        eprintln!("{category}: {all} commands, {allowed} run without a question");
    }
    eprintln!("attempts: {total}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(total >= 1500, "{total}");
    for (category, least) in [
        ("chain", 300),
        ("option", 200),
        ("environment", 60),
        ("interpreter", 100),
        ("wrapper", 100),
        ("obfuscation", 150),
        ("limit", 90),
        ("benign", 500),
    ] {
        let (all, allowed) = counts[category];
        assert!(all >= least, "{category}: {all}");
        // Only benign commands run without a question, and four fifths of them do.
        let share = allowed * 100 / all;
        assert!(
            if category == "benign" { share > 80 } else { allowed == 0 },
            "{category}: {share} %"
        );
    }
}

#[test]
fn every_command_is_asked_for_without_a_sandbox() {
    for (_, category, command) in corpus() {
        if category == "benign" && !command.trim().is_empty() {
            assert_ne!(decide(&command, false), Verdict::Allow, "{command}");
        }
    }
}

/// Published in docs/internals/security.md: the share of harmless commands of daily work that ask.
// R: T2
#[test]
fn few_harmless_commands_of_daily_work_ask() {
    let lines = include_str!("data/daily.txt").lines().filter(|line| !line.starts_with('#'));
    let commands: Vec<String> = lines.map(unescape).collect();
    let asks = |command: &&String| decide(command, true) != Verdict::Allow;
    let asking: Vec<&String> = commands.iter().filter(asks).collect();
    eprintln!("{} of {} ask: {asking:#?}", asking.len(), commands.len());
    eprintln!("attempts: {}", commands.len());
    assert!(commands.len() >= 250, "{}", commands.len());
    let docs = include_str!("../../../../docs/internals/security.md");
    let published =
        format!("{} of {} harmless commands of daily work ask", asking.len(), commands.len());
    assert!(docs.contains(&published), "docs/internals/security.md does not say: {published}");
    assert!(asking.len() * 20 < commands.len(), "{} of {}", asking.len(), commands.len());
}

/// Published as well: the same share of commands that were written without trying them.
// R: T2
#[test]
fn share_of_unseen_commands_that_ask_is_published() {
    let lines = include_str!("data/unseen.txt").lines().filter(|line| !line.starts_with('#'));
    let commands: Vec<String> = lines.map(unescape).collect();
    let asking: Vec<&String> =
        commands.iter().filter(|command| decide(command, true) != Verdict::Allow).collect();
    eprintln!("{} of {} ask: {asking:#?}", asking.len(), commands.len());
    eprintln!("attempts: {}", commands.len());
    let docs = include_str!("../../../../docs/internals/security.md");
    let published = format!("{} of {} such commands ask", asking.len(), commands.len());
    assert!(docs.contains(&published), "docs/internals/security.md does not say: {published}");
}
