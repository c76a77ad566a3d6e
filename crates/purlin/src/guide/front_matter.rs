//! Front matter: the lines between `---` at the top of a Markdown file, `key: value` each.

/// Splits a file into the values of its front matter and the text behind it.
pub(super) fn split(text: &str) -> (Vec<(String, String)>, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(rest) =
        text.strip_prefix("---").and_then(|rest| rest.trim_start_matches('\r').strip_prefix('\n'))
    else {
        return (Vec::new(), text);
    };
    let mut values: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        at += line.len();
        let line = line.trim_end();
        if line == "---" {
            return (values, &rest[at..]);
        }
        let is_more = line.starts_with([' ', '\t']);
        match (line.split_once(':'), values.last_mut()) {
            // A value may go on in lines that are set in.
            (_, Some((_, value))) if is_more => {
                value.push(' ');
                value.push_str(line.trim());
            }
            (Some((key, value)), _) if !is_more => {
                values.push((key.trim().to_owned(), plain(value.trim())));
            }
            _ => {}
        }
    }
    // Without its end it is no front matter.
    (Vec::new(), text)
}

/// Takes quotes off a value; the marks of a block stand for what follows.
fn plain(value: &str) -> String {
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    match value {
        ">" | "|" | ">-" | "|-" => String::new(),
        value => quoted('"').or_else(|| quoted('\'')).unwrap_or(value).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_read_and_the_text_is_what_follows() {
        let (values, body) =
            split("---\nname: \"a\"\ndescription: >\n  one\n  two\n# note\n---\nBody\n");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(values, [pair("name", "a"), pair("description", " one two")]);
        assert_eq!(body, "Body\n");
        assert_eq!(split("Body\n---\n"), (Vec::new(), "Body\n---\n"));
        assert_eq!(split("---\nname: a\n"), (Vec::new(), "---\nname: a\n"));
    }

    proptest! {
        #[test]
        fn any_text_is_split_without_loss_of_its_body(text in "(---\n)?[ a:\n'\"-]{0,40}(---\n)?.{0,20}") {
            let (_, body) = split(&text);
            prop_assert!(text.ends_with(body));
        }
    }
}
