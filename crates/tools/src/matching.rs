//! Finds the text that an edit refers to and replaces it. Does no IO.
//!
//! The text is searched exactly; then line by line ignoring trailing white space; then with a consistently different indentation;
//! then with typographic characters treated as plain ones. Each step must find exactly one match. At last `anchor` looks for the
//! parts that must be right. Bytes around the change stay the same, line endings included.

mod anchor;

use std::collections::BTreeMap;

use crate::text::usual_ending;

pub(crate) use anchor::nearest;

/// Why a search did not find exactly one match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Miss {
    /// No match; these lines look like the first line.
    NotFound(Vec<usize>),
    /// Several matches, beginning at these lines.
    Ambiguous(Vec<usize>),
}

/// Replaces `old` by `new` in a string: once, or everywhere if `all` is set. Returns the text and the number of replacements.
pub(crate) fn replace(
    body: &str,
    old: &str,
    new: &str,
    all: bool,
) -> Result<(String, usize), Miss> {
    let text = Plain::of(body);
    let (old, new) = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    let mut places: Vec<usize> = text.plain.match_indices(&old).map(|(at, _)| at).collect();
    if !all {
        places = overlapping(&text.plain, &old);
    }
    match places.len() {
        0 => {}
        1 => return Ok((text.splice(&[(places[0], places[0] + old.len())], &new), 1)),
        count if all => {
            let regions: Vec<_> = places.iter().map(|at| (*at, at + old.len())).collect();
            return Ok((text.splice(&regions, &new), count));
        }
        _ => return Err(Miss::Ambiguous(places.iter().map(|at| text.line_of(*at)).collect())),
    }
    by_lines(&text, &old, &new).map(|body| (body, 1))
}

/// Returns all matches, even overlapping ones, which are ambiguous. Stops after a few.
fn overlapping(plain: &str, old: &str) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = plain.get(from..).and_then(|rest| rest.find(old)) {
        places.push(from + at);
        if places.len() == 20 {
            break;
        }
        from = plain.ceil_char_boundary(from + at + 1);
    }
    places
}

/// A text with plain line endings, and how to map offsets back to the original.
struct Plain<'a> {
    body: &'a str,
    plain: String,
    /// Offsets in `plain` of line endings that were `\r\n`.
    returns: Vec<usize>,
}

impl<'a> Plain<'a> {
    fn of(body: &'a str) -> Plain<'a> {
        let found = body.match_indices("\r\n").map(|(at, _)| at);
        let returns = found.enumerate().map(|(count, at)| at - count).collect();
        Plain { body, plain: body.replace("\r\n", "\n"), returns }
    }

    /// Maps an offset of `plain` to `body`.
    fn back(&self, at: usize) -> usize {
        at + self.returns.partition_point(|one| *one < at)
    }

    /// Returns the line of an offset, counting from 1.
    fn line_of(&self, at: usize) -> usize {
        self.plain[..at].matches('\n').count() + 1
    }

    /// Replaces each region by `new`. Lines that are the same at both ends of a region are not touched.
    fn splice(&self, regions: &[(usize, usize)], new: &str) -> String {
        let mut out = String::with_capacity(self.body.len() + new.len());
        let mut done = 0;
        for &(from, to) in regions {
            let (head, tail) = same_ends(&self.plain[from..to], new);
            let (from, to) = (self.back(from + head), self.back(to - tail));
            out.push_str(&self.body[done..from]);
            let added = &new[head..new.len() - tail];
            // Usually the line ending need not be found, which is slow with long lines and many matches.
            if self.returns.is_empty() || !added.contains('\n') {
                out.push_str(added);
            } else {
                out.push_str(&added.replace('\n', self.ending_at(from)));
            }
            done = to;
        }
        out.push_str(&self.body[done..]);
        out
    }

    /// Returns the line ending at an offset of `body`.
    fn ending_at(&self, at: usize) -> &'static str {
        match self.body[at..].find('\n') {
            Some(0) if self.body[..at].ends_with('\r') => "\r\n",
            Some(0) => "\n",
            Some(end) if self.body[at..at + end].ends_with('\r') => "\r\n",
            Some(_) => "\n",
            None => usual_ending(self.body),
        }
    }
}

/// Returns how many bytes of whole lines two texts share at the start, and then at the end.
fn same_ends(old: &str, new: &str) -> (usize, usize) {
    let length = |pairs: &mut dyn Iterator<Item = (&str, &str)>| -> usize {
        pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum()
    };
    let lines = |text| str::split_inclusive(text, '\n');
    let head = length(&mut lines(old).zip(lines(new)));
    let (old, new) = (&old[head..], &new[head..]);
    (head, length(&mut lines(old).rev().zip(lines(new).rev())))
}

/// How lines are compared that are not equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Ignores trailing white space.
    Ends,
    /// Ignores white space at both ends, if the indentation differs consistently.
    Indentation,
    /// Treats typographic characters as plain ones.
    Typography,
}

impl Comparison {
    fn same(self, line: &str, wanted: &str) -> bool {
        match self {
            Comparison::Ends => line.trim_end() == wanted.trim_end(),
            Comparison::Indentation => line.trim() == wanted.trim(),
            Comparison::Typography => plain_characters(line) == plain_characters(wanted),
        }
    }
}

/// Replaces typographic characters by the plain ones that models write.
pub(crate) fn plain_characters(line: &str) -> String {
    let plain = |character: char| match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    };
    line.trim_end().chars().map(plain).collect()
}

fn by_lines(text: &Plain<'_>, old: &str, new: &str) -> Result<String, Miss> {
    let lines: Vec<&str> =
        text.plain.strip_suffix('\n').unwrap_or(&text.plain).split('\n').collect();
    let takes_ending = old.ends_with('\n');
    let wanted: Vec<&str> = old.strip_suffix('\n').unwrap_or(old).split('\n').collect();
    let is_blank = wanted.iter().all(|line| line.trim().is_empty());
    if is_blank || wanted.len() > lines.len() {
        return Err(Miss::NotFound(Vec::new()));
    }
    for comparison in [Comparison::Ends, Comparison::Indentation, Comparison::Typography] {
        let mut found = Vec::new();
        for (at, window) in lines.windows(wanted.len()).enumerate() {
            let is_same =
                window.iter().zip(&wanted).all(|(line, wanted)| comparison.same(line, wanted));
            if is_same && let Some(indents) = Indents::between(&wanted, window) {
                found.push((at, indents));
            }
        }
        match found.as_slice() {
            [] => {}
            [(at, indents)] => {
                let from: usize = lines[..*at].iter().map(|line| line.len() + 1).sum();
                let window = &lines[*at..at + wanted.len()];
                let length: usize = window.iter().map(|line| line.len() + 1).sum();
                let to = from + length - usize::from(!takes_ending);
                let mut new = fit(window, &wanted, new, indents);
                // A file without a final line ending stays without one.
                if to > text.plain.len() && new.ends_with('\n') {
                    new.pop();
                }
                return Ok(text.splice(&[(from, to.min(text.plain.len()))], &new));
            }
            several => {
                return Err(Miss::Ambiguous(several.iter().map(|(at, _)| at + 1).collect()));
            }
        }
    }
    let new_lines: Vec<&str> = match new {
        "" => Vec::new(),
        new => new.strip_suffix('\n').unwrap_or(new).split('\n').collect(),
    };
    if let Some(changes) = anchor::find(&lines, &wanted, &new_lines) {
        return Ok(change_lines(text, &lines, &changes));
    }
    let first = wanted.iter().map(|line| line.trim()).find(|line| !line.is_empty());
    let like = lines.iter().enumerate().filter(|(_, line)| Some(line.trim()) == first);
    Err(Miss::NotFound(like.map(|(at, _)| at + 1).take(3).collect()))
}

/// Replaces ranges of lines.
fn change_lines(text: &Plain<'_>, lines: &[&str], changes: &[anchor::LineChange<'_>]) -> String {
    let start = |line: usize| -> usize { lines[..line].iter().map(|line| line.len() + 1).sum() };
    let mut body = text.body.to_owned();
    // From the end, so that earlier offsets stay right.
    for (range, new) in changes.iter().rev() {
        let now = Plain::of(&body);
        let (from, to) = (start(range.start), start(range.end).min(now.plain.len()));
        let mut new: String = new.iter().flat_map(|line| [*line, "\n"]).collect();
        if to == now.plain.len() && !now.plain.ends_with('\n') {
            new.pop();
        }
        body = now.splice(&[(from, to)], &new);
    }
    body
}

/// Adapts the new text to the file: unchanged lines stay as they are in the file, others get its indentation.
fn fit(window: &[&str], wanted: &[&str], new: &str, indents: &Indents) -> String {
    let lines: Vec<&str> = new.split('\n').collect();
    let ends_open = new.ends_with('\n');
    let count = lines.len() - usize::from(ends_open);
    let lines = &lines[..count];
    let head = wanted.iter().zip(lines).take_while(|(a, b)| a == b).count();
    let rest = wanted.len().min(count) - head;
    let tail = wanted.iter().rev().zip(lines.iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = tail.min(rest);
    let mut out: Vec<String> = Vec::with_capacity(count);
    out.extend(window[..head].iter().map(|line| (*line).to_owned()));
    out.extend(lines[head..count - tail].iter().map(|line| indents.apply(line)));
    out.extend(window[window.len() - tail..].iter().map(|line| (*line).to_owned()));
    let mut text = out.join("\n");
    if ends_open {
        text.push('\n');
    }
    text
}

/// Maps the indentation of an edit to that of the file.
#[derive(Debug)]
struct Indents(BTreeMap<String, String>);

impl Indents {
    /// Compares line by line; `None` if the mapping is ambiguous.
    fn between(wanted: &[&str], lines: &[&str]) -> Option<Indents> {
        let mut known = BTreeMap::new();
        for (wanted, line) in wanted.iter().zip(lines) {
            if wanted.trim().is_empty() {
                continue;
            }
            let (from, to) = (indent(wanted).to_owned(), indent(line).to_owned());
            if known.insert(from, to.clone()).is_some_and(|before| before != to) {
                return None;
            }
        }
        Some(Indents(known))
    }

    fn apply(&self, line: &str) -> String {
        if line.trim().is_empty() {
            return line.to_owned();
        }
        let from = indent(line);
        format!("{}{}", self.stands_for(from), &line[from.len()..])
    }

    fn stands_for(&self, from: &str) -> String {
        if let Some(to) = self.0.get(from) {
            return to.clone();
        }
        // Deeper than a known indentation: that one, and the rest in the file's style.
        let shorter = self.0.iter().filter(|(known, _)| from.starts_with(known.as_str()));
        if let Some((known, to)) = shorter.max_by_key(|(known, _)| known.len()) {
            return format!("{to}{}", self.translate(&from[known.len()..]));
        }
        // Less deep than a known indentation: the difference is removed.
        let longer = self.0.iter().filter(|(known, _)| known.starts_with(from));
        let less = longer.min_by_key(|(known, _)| known.len()).and_then(|(known, to)| {
            to.strip_suffix(&self.translate(&known[from.len()..])).map(str::to_owned)
        });
        less.unwrap_or_else(|| from.to_owned())
    }

    /// Converts spaces to tabs or tabs to spaces, as the known pairs do.
    fn translate(&self, more: &str) -> String {
        let is_all = |text: &str, one: char| !text.is_empty() && text.chars().all(|c| c == one);
        for (from, to) in &self.0 {
            if is_all(from, ' ') && is_all(to, '\t') && is_all(more, ' ') {
                let unit = from.len() / to.len();
                if unit > 0 && more.len().is_multiple_of(unit) {
                    return "\t".repeat(more.len() / unit);
                }
            }
            if is_all(from, '\t') && is_all(to, ' ') && is_all(more, '\t') {
                return " ".repeat(more.len() * to.len() / from.len());
            }
        }
        more.to_owned()
    }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;
