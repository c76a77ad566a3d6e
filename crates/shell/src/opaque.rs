//! Opaque commands: those that run what a variable, an option or their input holds. A rule that forbids a program cannot see
//! it there, so such a command is treated as one that cannot be analysed.

use super::prefix::{commands_at, has_subcommand};
use super::programs::{asks_version, xargs_program};
use super::wildcard;
use super::word::Word;
use super::wrappers::{MOST, is_runner, name_of, run_behind};

/// Returns why it is unknown what a command runs; `None` if its words show it.
pub(crate) fn why(words: &[Word], has_input: bool) -> Option<&'static str> {
    const INPUT: &str = "it runs its input";
    let texts = || words.iter().filter_map(Word::as_text);
    let is_alias = |part: &str| part.to_ascii_lowercase().starts_with("alias.");
    let renames = match name_of(words) {
        "alias" | "hash" | "enable" => true,
        "git" => texts().any(|text| text.split('=').any(is_alias)),
        _ => false,
    };
    if renames {
        return Some("it renames programs or commands");
    }
    let computes = "let declare typeset local export readonly unset test wait read printf";
    if computes.split(' ').any(|known| known == name_of(words))
        && texts().any(|text| text.contains("$(") || text.contains('`'))
    {
        return Some("it evaluates text that contains a command");
    }
    if texts().any(|text| OPTIONS.iter().any(|option| text.starts_with(option)))
        || name_of(words) == "env" && texts().any(|text| text.starts_with("-S"))
        || name_of(words) == "make" && texts().any(|text| text.starts_with("--eval"))
        || name_of(words) == "split" && texts().any(|text| text.starts_with("--filter"))
    {
        return Some("it runs the value of an option");
    }
    if reads_script(words, has_input) {
        return Some(INPUT);
    }
    let Some(commands) = commands_at(words) else {
        return Some("it has too many options to find its subcommand");
    };
    if commands.iter().any(|at| words[*at].as_text().is_none() && !is_value(words, *at)) {
        return Some("its subcommand is only known at run time");
    }
    if !is_runner(words) {
        return None;
    }
    if words.len() > MOST {
        return Some("it runs another command and has too many words to find it");
    }
    // Which word begins the inner command depends on the program's options, so every word is tried.
    for start in 0..words.len() {
        let inner = &words[start..];
        let mut is_input = has_input && reads_script(inner, has_input);
        let is_hidden = match name_of(inner) {
            "xargs" => xargs_hides(inner),
            "parallel" if has_input => true,
            name if is_runner(inner) => match runs(inner) {
                Runs::Known(at) => {
                    is_input |= reads_script(&inner[at..], has_input);
                    false
                }
                Runs::Unknown => true,
                Runs::Nothing => {
                    is_input |= has_input && SHELL.split(' ').any(|known| known == name);
                    false
                }
            },
            _ => false,
        };
        if is_hidden {
            return Some("the command inside it is only known at run time");
        }
        if is_input {
            return Some(INPUT);
        }
    }
    None
}

/// Options whose value is run as a command, in any program.
const OPTIONS: [&str; 12] = [
    "--split-string=",
    "--checkpoint-action=",
    "--extcmd=",
    "--upload-pack=",
    "--receive-pack=",
    "--exec=",
    "--call=",
    "--compress-program=",
    "--use-compress-program=",
    "--to-command=",
    "--pre=",
    "--rsh=",
];

/// Variables whose value is run as a command, or says where commands are found. `*` stands for any characters.
const VARIABLES: &str = "GIT_* BASH_ENV ENV PS4 PROMPT_COMMAND *PAGER *EDITOR VISUAL LD_* PATH SHELL LESSOPEN LESSCLOSE IFS \
    PYTHON* NODE_OPTIONS PERL5* RUBYOPT MAKEFLAGS BROWSER RUSTC* CARGO_* npm_config_*";

/// Tells whether a variable may hold a command, by its name or because its value contains one.
pub(crate) fn holds_command(name: &str, value: &str) -> bool {
    let is_known = VARIABLES.split_whitespace().any(|known| wildcard::matches(known, name));
    is_known || value.contains("$(") || value.contains('`')
}

/// Programs that start a shell if no command is given.
const SHELL: &str = "sudo doas nsenter unshare busybox fakeroot proot firejail nix-shell poetry pipenv systemd-run screen tmux setpriv capsh";

/// Tells whether a word is certainly the value of the option before it.
fn is_value(words: &[Word], at: usize) -> bool {
    const VALUED: [&str; 8] =
        ["-C", "-c", "-f", "-H", "--prefix", "--git-dir", "--work-tree", "--manifest-path"];
    words[at - 1].as_text().is_some_and(|option| VALUED.contains(&option))
}

/// What a program that runs other programs runs.
enum Runs {
    /// The program at this index of its words.
    Known(usize),
    /// Something that is only known at run time.
    Unknown,
    /// Nothing that its words name.
    Nothing,
}

fn runs(words: &[Word]) -> Runs {
    /// For these programs every word may be part of the command.
    const ANY: &str = "eval trap ssh watch parallel su runuser flock chroot taskset chrt script coproc tmux screen at batch";
    let name = name_of(words);
    // In a container it cannot reach the machine.
    if matches!(name, "docker" | "podman" | "kubectl") {
        return Runs::Known(0);
    }
    let is_any = ANY.split(' ').any(|known| known == name);
    if is_any && words.iter().any(|word| word.as_text().is_none()) {
        return Runs::Unknown;
    }
    // A word directly after an option may be its value.
    let mut is_value = false;
    for (at, word) in words.iter().enumerate().skip(run_behind(words).unwrap_or(1)) {
        // `find` replaces `{}` by a file name.
        let Some(text) = word.as_text().filter(|text| !text.contains("{}")) else {
            return Runs::Unknown;
        };
        let is_option = text.starts_with('-');
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        let is_other = text.contains('=') || matches!(text, "run" | "exec");
        if !is_option && !is_value && !is_number && !is_other {
            return Runs::Known(at);
        }
        is_value = is_option && text != "--" && !text.contains('=');
    }
    Runs::Nothing
}

/// Tells whether the input of `xargs` decides what is run: it is appended to its words or replaces one of them.
fn xargs_hides(words: &[Word]) -> bool {
    let Some(start) = xargs_program(&words[1..]).map(|start| start + 1) else {
        return false;
    };
    let inner = &words[start..];
    let Some(program) = inner[0].as_text() else { return true };
    let text = |word: &Word| word.as_text().unwrap_or_default().to_owned();
    let replaces = words[1..start].iter().map(text).any(|option| {
        option.starts_with("-I") || option.starts_with("-i") || option.starts_with("--replace")
    });
    let is_replaced =
        program.contains("{}") || words[1..start].iter().any(|word| text(word).ends_with(program));
    let is_runner = is_runner(inner);
    let hides_what = inner.len() == 1
        || (replaces
            && !is_replaced
            && inner[1..].iter().any(|word| {
                words[1..start].iter().any(|option| text(option).ends_with(&text(word)))
            }));
    (has_subcommand(program) && hides_what)
        || replaces && (is_replaced || is_runner)
        || is_runner && !matches!(runs(inner), Runs::Known(_))
}

/// A program that runs a script, and which of its options say where the script is.
struct Interpreter {
    /// Names, without a version number.
    names: &'static str,
    /// Letters followed by the script or its name.
    script: &'static str,
    /// Letters with any other value.
    valued: &'static str,
    /// Letters that make it read its input even with a script.
    input: &'static str,
    /// Long options: `name` is followed by a script, `name=` by any other value.
    long: &'static str,
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: "sh bash dash zsh ksh mksh ash rbash fish csh tcsh nu pwsh xonsh elvish",
        script: "c",
        valued: "oO",
        input: "s",
        long: "command rcfile= init-file= init-command=",
    },
    Interpreter {
        names: "python pypy ipython",
        script: "cm",
        valued: "WX",
        input: "i",
        long: "check-hash-based-pycs=",
    },
    Interpreter {
        names: "node nodejs bun deno tsx ts-node",
        script: "ep",
        valued: "rC",
        input: "i",
        long: "eval print require= import= loader= experimental-loader= conditions= env-file= preload= config=",
    },
    Interpreter { names: "ruby jruby irb", script: "e", valued: "IrCEFKTWx", input: "", long: "" },
    Interpreter { names: "perl", script: "eE", valued: "IMm", input: "", long: "" },
    Interpreter {
        names: "php",
        script: "rfBRFE",
        valued: "dcz",
        input: "a",
        long: "run file process-begin process-code process-file process-end define= php-ini= zend-extension=",
    },
    Interpreter { names: "lua luajit", script: "e", valued: "l", input: "i", long: "" },
    Interpreter {
        names: "R Rscript",
        script: "ef",
        valued: "gd",
        input: "",
        long: "file expr gui= debugger=",
    },
    Interpreter { names: "osascript", script: "e", valued: "ls", input: "i", long: "" },
    Interpreter {
        names: "julia elixir iex guile",
        script: "eEc",
        valued: "pLJtSr",
        input: "i",
        long: "eval print",
    },
    Interpreter { names: "tclsh wish expect", script: "c", valued: "", input: "", long: "" },
    Interpreter { names: "source .", script: "", valued: "", input: "", long: "" },
];

/// Programs that can run commands from their input, whatever their arguments.
const RUNS_INPUT: &str = "at batch ed ex vi vim nvim bc dc gdb lldb sqlite3 psql mysql mariadb crontab su ssh chroot script runuser newgrp sg";

/// Tells whether a program runs its input.
fn reads_script(words: &[Word], has_input: bool) -> bool {
    let name = name_of(words);
    if RUNS_INPUT.split(' ').any(|known| known == name) {
        return has_input;
    }
    let is_input =
        |text: &str| matches!(text, "" | "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0");
    if matches!(name, "make" | "gmake" | "awk" | "gawk" | "mawk" | "sed") {
        let texts: Vec<&str> = words.iter().filter_map(Word::as_text).collect();
        let is_joined = |text: &&str| matches!(*text, "-f-" | "-f/dev/stdin" | "--file=-");
        let is_apart = |pair: &[&str]| matches!(pair[0], "-f" | "--file") && is_input(pair[1]);
        return has_input && (texts.windows(2).any(is_apart) || texts.iter().any(is_joined));
    }
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let bare = if bare.is_empty() { name } else { bare };
    let is_named = |row: &&Interpreter| row.names.split(' ').any(|known| known == bare);
    let Some(row) = INTERPRETERS.iter().find(is_named) else {
        return false;
    };
    let is_version = |word: &Word| matches!(word.as_text(), Some("--version" | "--help"));
    if words.len() == 2 && is_version(&words[1]) || asks_version(name, &words[1..]) {
        return false;
    }
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        // It may be the script or an option. `source` may get a pipe.
        let Some(text) = word.as_text() else { return has_input || row.script.is_empty() };
        if is_input(text) {
            return true;
        }
        if matches!((bare, text), ("deno" | "bun", "run")) {
            continue;
        }
        if text == "--" {
            return rest.next().is_none_or(|word| word.as_text().is_some_and(is_input));
        }
        if let Some(long) = text.strip_prefix("--") {
            let (long, has_value) =
                long.split_once('=').map_or((long, false), |(long, _)| (long, true));
            let known = row.long.split(' ').find(|known| known.trim_end_matches('=') == long);
            match known {
                Some(known) if known.ends_with('=') && !has_value => drop(rest.next()),
                Some(known) if !known.ends_with('=') => return false,
                Some(_) | None => {}
            }
        } else if let Some(letters) = text.strip_prefix(['-', '+']) {
            for (index, letter) in letters.char_indices() {
                if row.input.contains(letter) {
                    return true;
                }
                if row.script.contains(letter) {
                    return false;
                }
                if row.valued.contains(letter) {
                    if index + 1 == letters.len() {
                        rest.next();
                    }
                    break;
                }
            }
        } else {
            return false;
        }
    }
    true
}
