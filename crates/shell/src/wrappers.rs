//! Programs that run other programs: transparent wrappers, and the commands in the arguments of all others.

use super::options::{Options, sort};
use super::word::Word;

/// What a transparent wrapper runs.
pub(crate) struct Unwrapped {
    /// The command.
    pub(crate) words: Vec<Word>,
    /// The variables that are set for it.
    pub(crate) variables: Vec<(String, Word)>,
}

/// A command in the arguments of another.
pub(crate) enum Inside {
    /// As words.
    Words(Vec<Word>),
    /// As the text of a shell command.
    Script(String),
}

/// Unwraps a wrapper that only sets limits, priorities or variables; `None` for everything else.
pub(crate) fn unwrap(words: &[Word]) -> Option<Unwrapped> {
    let (first, rest) = words.split_first()?;
    let mut variables = Vec::new();
    let start = match first.as_text()? {
        "time" => usize::from(rest.first()?.as_text()? == "-p"),
        "env" => {
            let assigned = rest.iter().map_while(assignment);
            variables.extend(assigned);
            variables.len()
        }
        "command" | "builtin" => 0,
        "timeout" => {
            const OPTIONS: Options = Options {
                flags: "fpv",
                valued: "ks",
                long: "preserve-status foreground kill-after= signal= verbose",
                others: false,
            };
            // The first operand is the time.
            behind_options(rest, &OPTIONS)? + 1
        }
        "nice" => behind_options(
            rest,
            &Options { flags: "#", valued: "n", long: "adjustment=", others: false },
        )?,
        "ionice" => {
            behind_options(rest, &Options { flags: "t", valued: "cn", long: "", others: false })?
        }
        "stdbuf" => behind_options(
            rest,
            &Options { flags: "", valued: "ioe", long: "input= output= error=", others: false },
        )?,
        _ => return None,
    };
    let inner = rest.get(start..)?;
    let program = inner.first()?.as_text()?;
    if program.starts_with('-') || program.is_empty() {
        return None;
    }
    Some(Unwrapped { words: inner.to_vec(), variables })
}

fn assignment(word: &Word) -> Option<(String, Word)> {
    let (name, value) = word.as_text()?.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name.to_owned(), Word::text(value)))
}

/// Returns the index of the first operand.
fn behind_options(words: &[Word], options: &Options) -> Option<usize> {
    (0..=words.len()).find(|end| {
        let is_operand = words
            .get(*end)
            .is_some_and(|word| word.as_text().is_some_and(|text| !text.starts_with('-')));
        let sorted = sort(&words[..*end], options);
        is_operand && sorted.is_ok_and(|sorted| sorted.operands.is_empty())
    })
}

/// Programs whose arguments are, or may contain, a command.
const RUNNERS: &str = "sudo doas su env timeout time nice ionice nohup setsid xargs parallel exec command builtin eval trap \
    coproc ssh docker podman kubectl watch strace ltrace gdb unshare nsenter chroot chrt taskset flock entr script busybox \
    toybox stdbuf caffeinate systemd-run bwrap firejail fakeroot proot sh bash dash zsh ksh fish ash rbash npx bunx pnpx uvx \
    dlx mise direnv nix-shell nix poetry uv pipenv bundle dotenv cross-env hyperfine perf valgrind expect at batch runuser \
    pkexec socat nc ncat tmux screen setarch linux32 linux64 prlimit setpriv capsh dbus-run-session xvfb-run faketime chpst \
    runcon sg newgrp unbuffer rlwrap chronic mapfile readarray complete compgen bind ld.so ld-linux-x86-64.so.2 \
    ld-linux-aarch64.so.1";

/// The most words that are tried one by one.
pub(crate) const MOST: usize = 200;

/// Tells whether the arguments of a program are, or may contain, a command.
pub(crate) fn is_runner(words: &[Word]) -> bool {
    let name = name_of(words);
    RUNNERS.split_whitespace().any(|known| known == name) || run_behind(words).is_some()
}

/// Returns the name of a program, without its directory.
pub(crate) fn name_of(words: &[Word]) -> &str {
    let name = words.first().and_then(Word::as_text).unwrap_or_default();
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// Returns the index of the inner command, for programs that run one only after a certain word such as `exec`.
pub(crate) fn run_behind(words: &[Word]) -> Option<usize> {
    let is_told: fn(&str) -> bool = match name_of(words) {
        "find" | "fd" | "fdfind" => |text| {
            text.starts_with("-exec")
                || text.starts_with("-ok")
                || matches!(text, "-x" | "-X" | "--exec" | "--exec-batch")
        },
        "npm" | "pnpm" | "yarn" | "bun" => |text| matches!(text, "exec" | "x" | "dlx"),
        "git" => |text| matches!(text, "run" | "foreach" | "-x" | "--exec"),
        _ => return None,
    };
    let at = words.iter().skip(1).position(|word| word.as_text().is_some_and(is_told));
    at.map(|at| at + 2)
}

/// Finds the commands in the arguments of a program that runs others. Which word begins the command depends on the program's
/// options, so every word is tried; the results are only used for rules that forbid.
pub(crate) fn inside(words: &[Word]) -> Vec<Inside> {
    if !is_runner(words) {
        return Vec::new();
    }
    let name = name_of(words);
    let mut found = Vec::new();
    let first = run_behind(words).unwrap_or(1);
    // An inner shell may split what is one word for us.
    let reads_on =
        matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "fish" | "ash" | "rbash" | "su");
    for start in first..words.len().min(MOST) {
        let Some(text) = words[start].as_text() else { continue };
        let is_script = text.contains(|c: char| {
            c.is_whitespace() || ";|&$`<>".contains(c) || reads_on && "\\'\"{*?[~".contains(c)
        });
        if is_script {
            found.push(Inside::Script(text.to_owned()));
        } else if !text.starts_with('-') && !text.is_empty() {
            let end =
                words[start..].iter().position(|word| matches!(word.as_text(), Some(";" | "+")));
            let end = end.map_or(words.len(), |end| start + end);
            if end > start {
                found.push(Inside::Words(words[start..end].to_vec()));
            }
        }
    }
    if matches!(name, "eval" | "ssh" | "watch") {
        let all: Option<Vec<&str>> = words[1..].iter().map(Word::as_text).collect();
        found.extend(all.map(|texts| Inside::Script(texts.join(" "))));
    }
    found
}
