//! `awk` and its programs: only those that compute and print.

use super::known::Known;
use super::options::{Options, sort};
use super::word::Word;

const OPTIONS: Options =
    Options { flags: "", valued: "Fv", long: "field-separator= assign=", others: false };

/// What writes, reads or runs something. It must be spelled out, since awk has no escapes in names.
const REFUSED: [&str; 13] = [
    "system", "getline", "|", ">", "@", "close", "fflush", "ARGV", "ARGC", "ENVIRON", "PROCINFO",
    "SYMTAB", "FUNCTAB",
];

/// Analyses a call of `awk`.
pub(crate) fn analyse(words: &[Word]) -> Result<Known, String> {
    let sorted = sort(words, &OPTIONS)?;
    let Some((program, files)) = sorted.operands.split_first() else {
        return Err("its program is only known at run time".to_owned());
    };
    let Some(text) = program.as_text() else {
        return Err("its program is only known at run time".to_owned());
    };
    // Comparisons are so common that they are distinguished from output redirections.
    let text = without_comparisons(text);
    if let Some(word) = REFUSED.iter().find(|word| text.contains(**word)) {
        return Err(format!("its program contains `{word}`, which may do more than print"));
    }
    let is_file = |word: &&&Word| word.as_text().is_none_or(|text| !is_assignment(text));
    Ok(Known::reading(files.iter().filter(is_file).map(|word| (*word).clone())))
}

/// Tells whether an operand sets a variable rather than naming a file.
fn is_assignment(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_name)
    })
}

/// Removes `>=`, and `>` before a number if nothing is printed before it: `$3 > 5 {…}` compares, `print > 5` writes.
fn without_comparisons(program: &str) -> String {
    let program = program.replace(">=", "  ").replace("||", "  ");
    if program.contains("print") && program.find("print") < program.rfind('>') {
        return program;
    }
    let mut out = String::new();
    let mut rest = program.as_str();
    while let Some((before, after)) = rest.split_once('>') {
        out.push_str(before);
        if !after.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            out.push('>');
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(program: &str, more: &[&str]) -> bool {
        let words: Vec<Word> =
            std::iter::once(program).chain(more.iter().copied()).map(Word::text).collect();
        analyse(&words).is_ok()
    }

    #[test]
    fn programs_that_only_print() {
        let safe = [
            "{print $1}",
            "NR==1",
            "/foo/",
            "{sum+=$1} END {print sum}",
            "$3 > 5",
            "$3 >= 5 {print $1}",
            "length > 80",
            "!seen[$0]++",
            "$1 > 2 || $2 > 3 {print}",
            "BEGIN {FS=\":\"} {print $NF}",
            "{printf \"%s\\n\", $1}",
        ];
        for program in safe {
            assert!(is_known(program, &["file"]), "{program}");
        }
    }

    #[test]
    fn programs_that_may_do_more() {
        let unsafe_ = [
            "BEGIN{system(\"id\")}",
            "{print > \"x\"}",
            "{print >> \"x\"}",
            "{print | \"sh\"}",
            "\"id\" | getline",
            "{getline < \"/etc/passwd\"}",
            "@load \"x\"",
            "{print $1 > 5}",
            "BEGIN{ARGV[1]=\"/etc/shadow\"}",
            "{print \"a\" > $1}",
            "@include \"x\"",
            "{printf \"x\" > 1}",
            "$1 > 5 {print > 6}",
        ];
        for program in unsafe_ {
            assert!(!is_known(program, &[]), "{program}");
        }
        assert!(!is_known("-f", &["x.awk"]));
        assert!(!is_known("-i", &["inplace", "{print}"]));
    }
}
