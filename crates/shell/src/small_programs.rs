//! Programs with rules of their own that need no table: pagers, `read`, the old form of `tar`.

use super::known::Known;
use super::word::Word;

/// Tells whether a word makes `tar` list an archive, in the form without a dash.
pub(crate) fn is_old_list(word: &Word) -> bool {
    let text = word.as_text().unwrap_or_default();
    text.contains('t') && text.ends_with('f') && text.bytes().all(|byte| b"tvzjJf".contains(&byte))
}

/// Analyses a pager: without a terminal it prints files. Its options and what begins with `+` can run commands.
pub(crate) fn pager(words: &[Word]) -> Result<Known, String> {
    let is_path = |word: &Word| word.as_text().is_some_and(|text| !text.starts_with(['-', '+']));
    match words.iter().all(is_path) {
        true => Ok(Known::reading(words.iter().cloned())),
        false => Err("options of a pager can run commands".to_owned()),
    }
}

/// Analyses `read`, which sets variables: those of scripts have lower-case names, others can change what programs do.
pub(crate) fn read(words: &[Word]) -> Result<Known, String> {
    let is_own = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && !name.ends_with("_proxy")
    };
    let texts: Option<Vec<&str>> = words.iter().map(Word::as_text).collect();
    match texts.as_deref() {
        Some([first, names @ ..]) if *first == "-r" && names.iter().all(|name| is_own(name)) => {}
        Some(names) if !names.is_empty() && names.iter().all(|name| is_own(name)) => {}
        _ => return Err("it may set a variable that changes what programs do".to_owned()),
    }
    Ok(Known::default())
}
