//! Parses the patch format and applies hunks to a string. Does no IO.
//!
//! A hunk is searched after the previous one: exactly, then ignoring trailing white space, then ignoring white space at both ends,
//! then with typographic characters treated as plain ones. A hunk that matches twice is refused.

use crate::matching::plain_characters;
use crate::text::usual_ending;

/// What a patch does with one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Add { path: String, content: String },
    Delete { path: String },
    Update { path: String, move_to: Option<String>, hunks: Vec<Hunk> },
}

/// Consecutive lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hunk {
    /// A line above, to find it.
    under: Vec<String>,
    lines: Vec<(Mark, String)>,
    /// Whether the last line is the last of the file.
    is_last: bool,
}

/// What a patch does with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Stays,
    Goes,
    Comes,
}

impl Hunk {
    /// Returns the new lines.
    pub(crate) fn added(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|(mark, _)| *mark == Mark::Comes).map(|(_, line)| line.as_str())
    }

    /// Returns the old lines.
    fn old(&self) -> Vec<&str> {
        let old = self.lines.iter().filter(|(mark, _)| *mark != Mark::Comes);
        old.map(|(_, line)| line.as_str()).collect()
    }
}

/// Returns the paths that a patch names, even if it cannot be parsed or applied.
pub(crate) fn paths(patch: &str) -> Vec<String> {
    const STARTS: [&str; 4] =
        ["*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "];
    let path = |line: &str| {
        let path = STARTS.iter().find_map(|start| line.strip_prefix(start))?;
        Some(path.trim().to_owned())
    };
    patch.lines().filter_map(path).collect()
}

/// Parses a patch.
pub(crate) fn parse(patch: &str) -> Result<Vec<Step>, String> {
    let mut lines = patch.trim().lines().peekable();
    // Some models send a whole shell command.
    while lines
        .next_if(|line| line.trim() != "*** Begin Patch" && !line.starts_with("*** "))
        .is_some()
    {}
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        return Err("a patch must begin with the line `*** Begin Patch`".to_owned());
    }
    let mut steps = Vec::new();
    loop {
        let Some(line) = lines.next() else {
            return Err("the patch has no `*** End Patch`".to_owned());
        };
        let line = line.trim_end();
        if line == "*** End Patch" {
            return Ok(steps);
        }
        if let Some(path) = line.strip_prefix("*** Add File: ") {
            let mut content = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('+')) {
                content.push_str(&line[1..]);
                content.push('\n');
            }
            steps.push(Step::Add { path: path.trim().to_owned(), content });
        } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
            steps.push(Step::Delete { path: path.trim().to_owned() });
        } else if let Some(path) = line.strip_prefix("*** Update File: ") {
            let move_to = lines
                .next_if(|line| line.starts_with("*** Move to: "))
                .and_then(|line| line.strip_prefix("*** Move to: "))
                .map(|path| path.trim().to_owned());
            let mut body = Vec::new();
            let ends =
                |line: &str| line.starts_with("*** ") && line.trim_end() != "*** End of File";
            while let Some(line) = lines.next_if(|line| !ends(line)) {
                body.push(line);
            }
            let hunks = hunks(&body)?;
            if hunks.is_empty() && move_to.is_none() {
                return Err(format!("the patch changes nothing in {}", path.trim()));
            }
            steps.push(Step::Update { path: path.trim().to_owned(), move_to, hunks });
        } else if !line.trim().is_empty() {
            return Err(format!("unexpected line `{line}` in the patch"));
        }
    }
}

fn hunks(body: &[&str]) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut now = Hunk::default();
    for line in body {
        if let Some(under) = line.strip_prefix("@@") {
            if !now.lines.is_empty() {
                hunks.push(std::mem::take(&mut now));
            }
            let under = under.trim().trim_end_matches("@@").trim_end();
            // Line numbers of unified diffs are ignored.
            if !under.is_empty() && !under.starts_with('-') {
                now.under.push(under.to_owned());
            }
            continue;
        }
        if line.trim_end() == "*** End of File" {
            now.is_last = true;
            continue;
        }
        let (mark, rest) = match line.as_bytes().first() {
            Some(b'-') => (Mark::Goes, &line[1..]),
            Some(b'+') => (Mark::Comes, &line[1..]),
            Some(b' ') => (Mark::Stays, &line[1..]),
            None => (Mark::Stays, ""),
            Some(_) => {
                return Err(format!("the line `{line}` must begin with a space, `+`, `-` or `@@`"));
            }
        };
        now.lines.push((mark, rest.to_owned()));
    }
    if !now.lines.is_empty() {
        hunks.push(now);
    }
    Ok(hunks)
}

/// Applies hunks in order. Other lines keep every byte.
pub(crate) fn apply(body: &str, hunks: &[Hunk]) -> Result<String, String> {
    let lines: Vec<&str> = body.split_inclusive('\n').collect();
    let bare: Vec<&str> = lines.iter().map(|line| without_ending(line)).collect();
    let usual = usual_ending(body);
    let mut out = String::with_capacity(body.len());
    let mut done = 0;
    for hunk in hunks {
        let at = place(&bare, hunk, done)?;
        let ending = lines.get(at).map_or(usual, |line| ending_of(line, usual));
        out.push_str(&lines[done..at].concat());
        done = at;
        for (mark, line) in &hunk.lines {
            match mark {
                Mark::Goes => done += 1,
                Mark::Stays => {
                    out.push_str(lines[done]);
                    done += 1;
                }
                Mark::Comes => {
                    // Only the last line of a file may lack a line ending.
                    if !out.is_empty() && !out.ends_with('\n') {
                        out.push_str(ending);
                    }
                    out.push_str(line);
                    out.push_str(ending);
                }
            }
        }
    }
    out.push_str(&lines[done..].concat());
    Ok(with_final(out, body))
}

/// Keeps a final line ending if there was one.
fn with_final(mut out: String, body: &str) -> String {
    if !body.is_empty() && !body.ends_with('\n') && out.ends_with('\n') {
        out.pop();
        if out.ends_with('\r') {
            out.pop();
        }
    }
    out
}

fn without_ending(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

fn ending_of<'a>(line: &'a str, usual: &'a str) -> &'a str {
    let ending = &line[without_ending(line).len()..];
    if ending.is_empty() { usual } else { ending }
}

/// How lines are compared, the strictest first.
const MANNERS: [fn(&str, &str) -> bool; 4] = [
    |line, wanted| line == wanted,
    |line, wanted| line.trim_end() == wanted.trim_end(),
    |line, wanted| line.trim() == wanted.trim(),
    |line, wanted| plain_characters(line.trim()) == plain_characters(wanted.trim()),
];

/// Finds a hunk, from line `from` on.
fn place(lines: &[&str], hunk: &Hunk, from: usize) -> Result<usize, String> {
    let mut from = from;
    for under in &hunk.under {
        let found = MANNERS.iter().find_map(|same| {
            lines[from..].iter().position(|line| same(line, under)).map(|at| from + at + 1)
        });
        from = found.ok_or_else(|| format!("line `{under}` not found"))?;
    }
    let old = hunk.old();
    if old.is_empty() {
        // Only new lines: after the named line, else at the end.
        return Ok(if hunk.under.is_empty() { lines.len() } else { from });
    }
    let fits = |at: usize, same: &fn(&str, &str) -> bool| {
        at + old.len() <= lines.len()
            && old.iter().zip(&lines[at..]).all(|(wanted, line)| same(line, wanted))
    };
    for same in &MANNERS {
        if hunk.is_last {
            let at = lines.len().saturating_sub(old.len());
            if at >= from && fits(at, same) {
                return Ok(at);
            }
        }
        let found: Vec<usize> = (from..lines.len()).filter(|at| fits(*at, same)).take(2).collect();
        match found.as_slice() {
            [] => {}
            [at] => return Ok(*at),
            // After a named line the first match is meant.
            [at, _] if !hunk.under.is_empty() => return Ok(*at),
            [first, second, ..] => {
                return Err(format!(
                    "the lines from `{}` occur twice (lines {} and {}); add context lines, or `@@` and a line above",
                    first_words(&old),
                    first + 1,
                    second + 1
                ));
            }
        }
    }
    let first = first_words(&old);
    Err(format!("the lines from `{first}` were not found; read the file again"))
}

fn first_words<'a>(lines: &[&'a str]) -> &'a str {
    lines.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or("")
}

#[cfg(test)]
mod tests;
