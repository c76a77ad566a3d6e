//! The project's checker: a command whose output names files and lines.

use std::path::Path;
use std::sync::Arc;

use super::{Checker, Diagnostic};
use crate::bash::{Bash, CapturedRun};

/// The most output that is read.
const MAX_OUTPUT: usize = 1024 * 1024;
/// The exit codes of a shell for a program that cannot be run.
const NOT_RUN: [i32; 2] = [126, 127];

/// Runs a checker and returns what it says about a file.
///
/// # Errors
/// Says why there is no result.
pub(super) async fn run(
    checker: &Checker,
    bash: &Arc<Bash>,
    cwd: &Path,
    file: &Path,
    name: &str,
) -> Result<Vec<Diagnostic>, String> {
    let run = CapturedRun {
        on_host: false,
        command: checker.command.clone(),
        args: vec![file.to_string_lossy().into_owned()],
        environment: Vec::new(),
        cwd: cwd.to_owned(),
        input: Vec::new(),
        timeout: checker.timeout,
        limit: MAX_OUTPUT,
        must_be_confined: checker.must_be_confined,
    };
    let ran = bash.run_captured(run).await?;
    if ran.is_late {
        return Err(format!("it took longer than {} seconds", checker.timeout.as_secs()));
    }
    if ran.code.is_some_and(|code| NOT_RUN.contains(&code)) {
        let why = ran.errors.lines().last().unwrap_or("it cannot be run").to_owned();
        return Err(why);
    }
    let absolute = file.to_string_lossy();
    let lines = ran.output.lines().chain(ran.errors.lines());
    Ok(lines.filter_map(|line| parse(line, name, &absolute)).collect())
}

/// Reads a line such as `src/a.rs:1:2: error: text`, `src/a.ts(1,2): error TS1: text` or `/p/a.py:1:2 - error: text`, if it is
/// about this file.
fn parse(line: &str, name: &str, absolute: &str) -> Option<Diagnostic> {
    let line = line.trim_start();
    let line = line.strip_prefix("./").unwrap_or(line);
    let rest = line.strip_prefix(absolute).or_else(|| line.strip_prefix(name))?;
    let (place, message) = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?,
        None => {
            let rest = rest.strip_prefix(':')?;
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(rest.len());
            rest.split_at(end)
        }
    };
    let mut numbers = place.split([':', ',']).filter_map(|number| number.trim().parse().ok());
    let (line, column) = (numbers.next()?, numbers.next().unwrap_or(1));
    let message = message.trim_start_matches([':', '-', ' ']).trim();
    let lower = message.to_ascii_lowercase();
    let is_note = ["note", "info", "hint", "help"].iter().any(|word| lower.starts_with(word));
    if message.is_empty() || is_note {
        return None;
    }
    let is_warning = lower.starts_with("warning");
    let message = message.strip_prefix("error: ").or_else(|| message.strip_prefix("warning: "));
    let message = message.unwrap_or_else(|| line_rest(rest)).to_owned();
    Some(Diagnostic { line, column, is_error: !is_warning, message })
}

/// Returns the text of a line behind its place.
fn line_rest(rest: &str) -> &str {
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || "(),:- ".contains(c)).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_common_checkers_are_read() {
        let read = |line: &str| {
            parse(line, "src/a.rs", "/w/src/a.rs")
                .map(|found| (found.line, found.column, found.is_error, found.message))
        };
        let error = |line, column, text: &str| Some((line, column, true, text.to_owned()));
        assert_eq!(
            read("src/a.rs:3:7: error[E0308]: mismatched types"),
            error(3, 7, "error[E0308]: mismatched types")
        );
        assert_eq!(
            read("src/a.rs:3:7: warning: unused variable: `x`"),
            Some((3, 7, false, "unused variable: `x`".to_owned()))
        );
        assert_eq!(read("src/a.rs(12,5): error TS2322: no"), error(12, 5, "error TS2322: no"));
        assert_eq!(read("  /w/src/a.rs:1:2 - error: bad type"), error(1, 2, "bad type"));
        assert_eq!(read("./src/a.rs:9: undefined: x"), error(9, 1, "undefined: x"));
        for other in [
            "src/b.rs:1:1: error: x",
            "src/a.rs",
            "src/a.rs:x",
            "src/a.rs:1:1: note: see",
            "error: could not compile `a`",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
