//! `sed` and its scripts: only commands that print and edit text, none that write, read or run.

use super::known::Known;
use super::options::{Options, sort};
use super::word::Word;

const OPTIONS: Options = Options {
    flags: "nErsuz",
    valued: "el",
    long: "quiet silent regexp-extended separate unbuffered null-data expression= line-length= posix",
    others: false,
};

/// Analyses a call of `sed`.
pub(crate) fn analyse(words: &[Word]) -> Result<Known, String> {
    let mut sorted = sort(words, &OPTIONS)?;
    let mut scripts: Vec<String> = sorted.values.iter().map(|(_, value)| value.clone()).collect();
    if !sorted.has(&["e", "expression"]) {
        let Some(first) = sorted.operands.first().and_then(|word| word.as_text()) else {
            return Err("its script is only known at run time".to_owned());
        };
        scripts = vec![first.to_owned()];
        sorted.operands.remove(0);
    }
    match scripts.iter().find(|script| !is_safe(script)) {
        Some(script) => Err(format!("the script `{script}` may do more than print")),
        None => Ok(Known::reading(sorted.operands.into_iter().cloned())),
    }
}

/// Tells whether a script only prints and edits text.
fn is_safe(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';', '{', '}']);
        if rest.is_empty() {
            return true;
        }
        match command(rest) {
            Some(next) => rest = next,
            None => return false,
        }
    }
}

/// Reads one command; returns what follows it.
fn command(text: &str) -> Option<&str> {
    let mut rest = address(text)?;
    if let Some(second) = rest.strip_prefix(',') {
        let second = second.trim_start_matches([' ', '+', '~']);
        let after = address(second)?;
        if after.len() == second.len() {
            return None;
        }
        rest = after;
    }
    let rest = rest.trim_start_matches([' ', '!']);
    let name = rest.chars().next()?;
    let after = &rest[name.len_utf8()..];
    let after = match name {
        '{' => return Some(after),
        'p' | 'd' | 'D' | 'P' | 'n' | 'N' | 'h' | 'H' | 'g' | 'G' | 'x' | '=' | 'z' => after,
        'q' | 'Q' | 'l' => after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' '),
        's' | 'y' => {
            let delimiter = after.chars().next().filter(|c| "/|#,:@%!".contains(*c))?;
            let after = until(&after[1..], delimiter, name == 's')?;
            let after = until(after, delimiter, false)?;
            let flags = if name == 's' { "gpiIm0123456789" } else { "" };
            after.trim_start_matches(|c: char| flags.contains(c))
        }
        _ => return None,
    };
    let after = after.trim_start_matches(' ');
    (after.is_empty() || after.starts_with([';', '\n', '}'])).then_some(after)
}

/// Reads an address if there is one; returns what follows it.
fn address(text: &str) -> Option<&str> {
    if let Some(after) = text.strip_prefix('/') {
        return Some(until(after, '/', true)?.trim_start_matches(['I', 'M']));
    }
    if let Some(after) = text.strip_prefix('$') {
        return Some(after);
    }
    Some(text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '~'))
}

/// Returns what follows the next delimiter. Versions of sed differ on a delimiter inside `[…]`, so that is refused.
fn until(text: &str, delimiter: char, is_regex: bool) -> Option<&str> {
    let mut characters = text.char_indices();
    let mut brackets = 0_i32;
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => {
                let (_, next) = characters.next()?;
                if next == '\n' {
                    return None;
                }
            }
            '\n' => return None,
            _ if character == delimiter => {
                let is_clear = !is_regex || brackets == 0;
                return is_clear.then(|| &text[index + delimiter.len_utf8()..]);
            }
            '[' => brackets += 1,
            ']' => brackets = (brackets - 1).max(0),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_only_print() {
        let safe = [
            "1,20p",
            "5p",
            "$p",
            "/foo/p",
            "/foo/,/bar/p",
            "10,+5p",
            "s/a/b/",
            "s/a/b/g;s/c/d/",
            "s|/a|/b|g",
            "/^#/d",
            "2q",
            "1~2p",
            "/x/!d",
            "$!N",
            "s/[0-9]*//g",
            "/a/{p;d}",
            "1d;$d",
            "=",
            "s/\\/a/b/",
            "y/abc/xyz/",
            "s/a/b/2p",
            "/a/I,/b/Ip",
            "",
        ];
        for script in safe {
            assert!(is_safe(script), "{script}");
        }
    }

    #[test]
    fn scripts_that_may_do_more() {
        let unsafe_ = [
            "w out",
            "1w out",
            "s/a/b/w out",
            "s/a/b/e",
            "s/a/b/ge",
            "e",
            "1e id",
            "r /etc/passwd",
            "R x",
            "W x",
            "a text",
            "i text",
            "c text",
            "/a/w x",
            "s/a/b/;w x",
            "p;e",
            "1,w x",
            "b",
            "t",
            ": a",
            "F",
            "s/[/]x/w y/",
            "s/a/b",
            "s",
            "/a",
            "sxaxbxw",
            "\\%a%w x",
            "s/a/b\\\nc/",
            "p\nw x",
            "{w x}",
            "1,2 e",
            "v",
            "#x",
        ];
        for script in unsafe_ {
            assert!(!is_safe(script), "{script}");
        }
    }
}
