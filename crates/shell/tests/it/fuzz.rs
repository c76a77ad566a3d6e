//! Fuzz target: the parser against a real bash. No program that bash would run may be missing among the needs.
//!
//! Bash gets an empty search path, so every program is unknown to it, and a function prints its name. Inputs with other words than
//! the few of the language, or with a slash, are not given to it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use shell::{NeedKind, needs};

use crate::commands::{place, plain};

const WORDS: [&str; 44] = [
    "zza",
    "zzb",
    "zzc",
    " ",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "(",
    ")",
    "{ ",
    "; }",
    "$(",
    "`",
    "'",
    "\"",
    "<<zzx\n",
    "\nzzx\n",
    "<(",
    "if ",
    "then ",
    "else ",
    "fi",
    "for ",
    " in ",
    "do ",
    "done",
    "case ",
    "esac",
    ";;",
    "$'",
    "#",
    "!",
    "=",
    "$zza",
    "${zza}",
    "echo ",
    "true",
    "<<<",
    "[[ ",
    " ]]",
    "function ",
];
const KNOWN: &str =
    "zza zzb zzc zzx if then else elif fi for in do done case esac echo true function x";

/// Tells whether an input can be given to bash without harm: it writes no file, spells no other name and does not last.
fn is_safe(text: &str) -> bool {
    let mut names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_known = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_digit())
            || KNOWN.split(' ').any(|known| known == name)
    };
    text.is_ascii()
        && !text.contains(['/', '>', '\\', '~', '*', '?', '\0', '%'])
        && names.all(is_known)
}

#[expect(clippy::disallowed_methods, reason = "a real shell is what the parser is compared with")]
fn run_by_bash(text: &str) -> Vec<String> {
    let prelude = "command_not_found_handle() { printf 'ran %s\\n' \"$1\" >&7; }; PATH=\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("bash");
    let script = format!("exec 7>>\"$0\"; {prelude}{text}");
    command.args(["--noprofile", "--norc", "-c", &script]).arg(file.path()).env_clear();
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap();
    let said = std::fs::read_to_string(file.path()).unwrap();
    said.lines().filter_map(|line| line.strip_prefix("ran ")).map(str::to_owned).collect()
}

// R: T2
#[test]
fn fuzz_shell() {
    let roots = [PathBuf::from("/w")];
    fuzzing::run("shell", &WORDS, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let needs = needs(text, &place(&roots, &[], &plain));
        if !is_safe(text) || needs.iter().any(|need| need.is_opaque) {
            return;
        }
        for name in run_by_bash(text) {
            let is_found = needs.iter().any(|need| {
                let mut words = need.subject.split([' ', '=']);
                need.kind == NeedKind::Run && words.any(|word| word == name)
            });
            assert!(is_found, "bash runs {name:?} in {text:?}, and the needs are {needs:?}");
        }
    });
}
