//! Finds the place of an edit by the parts that must be right, when the whole text is not in the file. Pure.
//!
//! - Lines that were left out: `...` in the old and in the new text stands for the same lines of the file, which stay.
//! - Context that is not as in the file: only the lines that the edit removes must be there, exactly, once, and beside enough
//!   of the context. Only they are replaced, so a line that the model remembers wrongly stays as it is in the file.

/// What is replaced: a range of lines, and the new lines.
pub(super) type LineChange<'a> = (std::ops::Range<usize>, Vec<&'a str>);

/// A removed line with at least this many letters and digits shows that the place is right.
const TELLING: usize = 6;

/// Finds what an edit replaces. `None` if that is not certain.
pub(super) fn find<'a>(
    lines: &[&str],
    old: &[&'a str],
    new: &[&'a str],
) -> Option<Vec<LineChange<'a>>> {
    if old.iter().any(|line| is_gap(line)) {
        return without_gaps(lines, old, new);
    }
    by_removed_lines(lines, old, new).map(|change| vec![change])
}

/// Tells whether a line stands for lines that were left out.
fn is_gap(line: &str) -> bool {
    let text = line.trim().trim_start_matches(['#', '/', '*', '-', '<', '!']).trim();
    let text = text.trim_end_matches(['*', '/', '-', '>']).trim();
    text == "..." || text == "…"
}

/// Finds the segments between the gaps: each must be in the file once, in this order.
fn without_gaps<'a>(
    lines: &[&str],
    old: &[&'a str],
    new: &[&'a str],
) -> Option<Vec<LineChange<'a>>> {
    let old: Vec<&[&str]> = old.split(|line| is_gap(line)).collect();
    let new: Vec<&[&'a str]> = new.split(|line| is_gap(line)).collect();
    if old.len() != new.len() || old.iter().any(|segment| !is_telling(segment)) {
        return None;
    }
    let mut changes = Vec::new();
    let mut end = 0;
    for (old, new) in old.iter().zip(new) {
        let at = only_place(lines, old)?;
        if at < end {
            return None;
        }
        end = at + old.len();
        changes.push((at..end, new.to_vec()));
    }
    Some(changes)
}

/// Finds the lines that the edit removes.
fn by_removed_lines<'a>(
    lines: &[&str],
    old: &[&'a str],
    new: &[&'a str],
) -> Option<LineChange<'a>> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count().min(rest);
    let removed = &old[head..old.len() - tail];
    if !is_telling(removed) {
        return None;
    }
    let at = only_place(lines, removed)?;
    // The same lines of context, where they would be in the file.
    let same = |line: &str, at: Option<usize>| {
        at.and_then(|at| lines.get(at)).is_some_and(|there| there.trim_end() == line.trim_end())
    };
    let before = (0..head).map(|index| same(old[index], (at + index).checked_sub(head)));
    let after = (0..tail)
        .map(|index| same(old[old.len() - tail + index], Some(at + removed.len() + index)));
    let context: Vec<bool> = before.chain(after).collect();
    let right = context.iter().filter(|is_same| **is_same).count();
    if right == 0 || right * 2 < context.len() {
        return None;
    }
    Some((at..at + removed.len(), new[head..new.len() - tail].to_vec()))
}

/// Tells whether lines are unlikely to match by chance.
fn is_telling(lines: &[&str]) -> bool {
    let letters = |line: &&str| line.chars().filter(|c| c.is_alphanumeric()).count();
    lines.iter().any(|line| letters(line) >= TELLING)
}

/// Returns where these lines are, if they are in one place only. Trailing white space is ignored.
fn only_place(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let is_same = |window: &[&str]| {
        window.iter().zip(wanted).all(|(line, wanted)| line.trim_end() == wanted.trim_end())
    };
    let mut places = lines.windows(wanted.len()).enumerate().filter(|(_, window)| is_same(window));
    let (at, _) = places.next()?;
    places.next().is_none().then_some(at)
}

/// Returns the lines of a text that are most like the wanted ones: the number of the first, and the lines.
pub(crate) fn nearest(body: &str, wanted: &str) -> Option<(usize, String)> {
    let lines: Vec<&str> = body.lines().collect();
    let wanted: Vec<&str> = wanted.trim_matches('\n').lines().collect();
    let count = wanted.len().min(lines.len()).clamp(1, MAX_NEAR);
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let wanted: Vec<Vec<String>> = wanted.iter().take(count).map(|line| words(line)).collect();
    let all: usize = wanted.iter().map(Vec::len).sum();
    let like = |window: &[&str]| -> usize {
        let both = window.iter().zip(&wanted);
        both.map(|(line, wanted)| {
            let there = words(line);
            wanted.iter().filter(|word| there.contains(word)).count()
        })
        .sum()
    };
    let windows = lines.windows(count).take(MAX_WINDOWS).enumerate();
    let (score, at) = windows
        .map(|(at, window)| (like(window), at))
        .max_by_key(|(score, at)| (*score, std::cmp::Reverse(*at)))?;
    (score * 2 >= all.max(1)).then(|| (at + 1, lines[at..at + count].join("\n")))
}

/// How many lines are shown of the nearest text.
const MAX_NEAR: usize = 12;
/// How many places of a file are compared.
const MAX_WINDOWS: usize = 20_000;
