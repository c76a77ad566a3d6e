//! Untrusted text on its way to a client that renders Markdown: an image in it would be fetched, a comment would hide a part of it.

use super::visible;

/// Puts text into a code fence that is longer than any in the text, so that clients do not render it.
#[must_use]
pub fn fenced(text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// Puts the text of a file or a page into a code fence, with deceptive characters escaped. Line ends of Windows are none.
#[must_use]
pub fn code_block(text: &str) -> String {
    fenced(&visible(&text.replace("\r\n", "\n")))
}

/// Returns text as it is if Markdown has nothing to render in it that fetches, links or hides; otherwise fenced.
#[must_use]
pub fn inert(text: &str) -> String {
    if has_markup(text) { fenced(text) } else { text.to_owned() }
}

/// Like [`inert`], for a title: one line becomes a code span.
#[must_use]
pub fn inert_title(title: &str) -> String {
    match (has_markup(title), title.contains('\n')) {
        (true, false) => code_span(title),
        (true, true) => fenced(title),
        (false, _) => title.to_owned(),
    }
}

/// Tells whether Markdown would render something in a text that fetches, links or hides: an image, a link, HTML, an open fence.
#[must_use]
pub fn has_markup(text: &str) -> bool {
    let is_tag = |(at, _): (usize, &str)| {
        let next = text[at + 1..].chars().next();
        next.is_some_and(|next| next.is_ascii_alphabetic() || "!/?".contains(next))
    };
    ["![", "](", "][", "]:", "```", "~~~"].iter().any(|mark| text.contains(mark))
        || text.match_indices('<').any(is_tag)
}

/// Puts one line of text into a code span that it cannot end.
#[must_use]
pub fn code_span(text: &str) -> String {
    let ticks = "`".repeat(longest_run(text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// Returns the length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for byte in text.bytes() {
        run = if byte == b'`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// The longest run of blanks that is shown as it is.
const MOST_BLANKS: usize = 40;

/// Replaces long runs of blanks by their number: what follows them would be out of sight.
#[must_use]
pub fn count_blanks(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let is_same = |other: char| match character {
            '\n' => other == '\n',
            _ => other.is_whitespace() && other != '\n',
        };
        let run = match character.is_whitespace() {
            true => rest.find(|other| !is_same(other)).unwrap_or(rest.len()),
            false => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let (part, after) = rest.split_at(run);
        let count = part.chars().count();
        match (character.is_whitespace() && count > MOST_BLANKS, character) {
            (true, '\n') => shown.push_str(&format!("\n⟨{count} line ends⟩\n")),
            (true, _) => shown.push_str(&format!(" ⟨{count} blanks⟩ ")),
            (false, _) => shown.push_str(part),
        }
        rest = after;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn fence_is_longer_than_any_in_the_text() {
        assert_eq!(fenced("a"), "```\na\n```");
        assert_eq!(fenced("```\n"), "````\n```\n````");
        assert_eq!(code_block("a\r\n\u{1b}[2J\rb"), "```\na\n\\u{1b}[2J\\u{d}b\n```");
        assert_eq!(code_span("a"), "`a`");
        assert_eq!(code_span("a`b``c"), "```a`b``c```");
        assert_eq!(code_span("`"), "`` ` ``");
    }

    // R: T2
    #[test]
    fn only_text_with_markup_is_fenced() {
        for plain in ["exit 1", "a [x] b", "1 < 2", "cat < file", "x `y` z", "* a\n# b", "a <- b"] {
            assert_eq!(inert(plain), plain);
        }
        for markup in [
            "![x](http://e/?d)",
            "![x][y]",
            "[a](b)",
            "[a]: b",
            "<img src=x>",
            "a <!-- b --> c",
            "</b>",
            "~~~",
        ] {
            assert_eq!(inert(markup), format!("```\n{markup}\n```"));
        }
    }

    // R: T2
    #[test]
    fn title_with_markup_is_code() {
        assert_eq!(inert_title("Read a.rs"), "Read a.rs");
        assert_eq!(inert_title("Read ![](http://e)"), "`Read ![](http://e)`");
        assert_eq!(inert_title("ls `x` <!-- ; rm -->"), "``ls `x` <!-- ; rm -->``");
        assert_eq!(inert_title("a\n\n<img src=x>"), "```\na\n\n<img src=x>\n```");
    }

    // R: T2
    #[test]
    fn long_runs_of_blanks_are_counted() {
        let spaces = " ".repeat(370);
        assert_eq!(count_blanks(&format!("ls{spaces}; rm x")), "ls ⟨370 blanks⟩ ; rm x");
        assert_eq!(count_blanks(&format!("ls{}rm", "\t\u{2003}".repeat(99))), "ls ⟨198 blanks⟩ rm");
        assert_eq!(count_blanks(&format!("ls{}rm", "\n".repeat(50))), "ls\n⟨50 line ends⟩\nrm");
        let usual = format!("if a {{\n{}b\n\n}}\n", " ".repeat(40));
        assert_eq!(count_blanks(&usual), usual);
    }
}
