//! The front matter of a Markdown file: the subset of YAML that agents and commands use.
//!
//! Members, nested objects, lists, quoted strings and block strings. Anything else is read as a string; nothing is an error.

use serde_json::{Map, Value};

/// The deepest nesting that is read.
const DEEPEST: usize = 8;

/// Splits a file into its front matter and its text.
pub fn split(text: &str) -> (Map<String, Value>, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(rest) = text.strip_prefix("---").and_then(end_of_line) else {
        return (Map::new(), text);
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let (head, body) = (&rest[..at], &rest[at + line.len()..]);
            return (parse(head), body.trim_start_matches(['\r', '\n']));
        }
        at += line.len();
    }
    (Map::new(), text)
}

/// Returns the rest after the end of the line, if the line is blank up to there.
fn end_of_line(text: &str) -> Option<&str> {
    let (line, rest) = text.split_once('\n')?;
    line.trim().is_empty().then_some(rest)
}

fn parse(head: &str) -> Map<String, Value> {
    let lines = head.lines().map(Line::new).collect();
    let mut reader = Reader { lines, at: 0 };
    let mut members = Map::new();
    while reader.skip_blanks() {
        let before = reader.at;
        if let Value::Object(more) = reader.block(0, 0) {
            members.extend(more);
        }
        // A line that cannot be read is skipped.
        reader.at = reader.at.max(before + 1);
    }
    members
}

struct Line<'a> {
    indent: usize,
    /// The text without surrounding whitespace.
    text: &'a str,
    raw: &'a str,
}

impl<'a> Line<'a> {
    fn new(raw: &'a str) -> Line<'a> {
        let indent = raw.len() - raw.trim_start_matches([' ', '\t']).len();
        Line { indent, text: raw.trim(), raw }
    }

    fn is_item(&self) -> bool {
        self.text.starts_with("- ") || self.text == "-"
    }

    fn is_blank(&self) -> bool {
        self.text.is_empty() || self.text.starts_with('#')
    }
}

struct Reader<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Skips blank lines and comments; returns whether a line follows.
    fn skip_blanks(&mut self) -> bool {
        while self.lines.get(self.at).is_some_and(Line::is_blank) {
            self.at += 1;
        }
        self.at < self.lines.len()
    }

    /// Reads the list or object that begins here, with lines that are indented at least this far.
    fn block(&mut self, least: usize, depth: usize) -> Value {
        if !self.skip_blanks() || self.lines[self.at].indent < least || depth > DEEPEST {
            return Value::Null;
        }
        let indent = self.lines[self.at].indent;
        if self.lines[self.at].is_item() {
            return self.list(indent);
        }
        let mut members = Map::new();
        while self.skip_blanks() && self.lines[self.at].indent == indent {
            let Some((name, value)) = member(self.lines[self.at].text) else { break };
            self.at += 1;
            let value = match value {
                // The items of a list may have the indentation of its name.
                "" if self.is_at_item(indent) => self.list(indent),
                "" => self.block(indent + 1, depth + 1),
                "|" | "|-" | "|+" => Value::String(self.text(indent, "\n")),
                ">" | ">-" | ">+" => Value::String(self.text(indent, " ")),
                text => scalar(text),
            };
            members.insert(name, value);
        }
        Value::Object(members)
    }

    fn is_at_item(&mut self, indent: usize) -> bool {
        let is_there = self.skip_blanks();
        is_there && self.lines[self.at].indent == indent && self.lines[self.at].is_item()
    }

    fn list(&mut self, indent: usize) -> Value {
        let mut items = Vec::new();
        while self.skip_blanks() && self.lines[self.at].indent == indent {
            let Some(item) = self.lines[self.at].text.strip_prefix('-') else { break };
            items.push(scalar(item.trim()));
            self.at += 1;
        }
        Value::Array(items)
    }

    /// Reads a block string that is indented further than this.
    fn text(&mut self, indent: usize, between: &str) -> String {
        let mut texts: Vec<&'a str> = Vec::new();
        let mut inner = None;
        while let Some(line) = self.lines.get(self.at) {
            if !line.text.is_empty() && line.indent <= indent {
                break;
            }
            let inner = *inner.get_or_insert(line.indent);
            texts.push(line.raw.get(inner.min(line.indent)..).unwrap_or_default().trim_end());
            self.at += 1;
        }
        texts.join(between).trim_end().to_owned()
    }
}

/// Splits `name: value`.
fn member(line: &str) -> Option<(String, &str)> {
    let quoted = line.starts_with(['"', '\'']);
    let (name, rest) = if quoted {
        let quote = &line[..1];
        let (name, rest) = line[1..].split_once(quote)?;
        (name, rest.trim_start().strip_prefix(':')?)
    } else {
        let at = line.find(": ").or_else(|| line.ends_with(':').then(|| line.len() - 1))?;
        (&line[..at], &line[at + 1..])
    };
    let name = name.trim();
    (!name.is_empty()).then(|| (name.to_owned(), rest.trim()))
}

fn scalar(text: &str) -> Value {
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let items = inside.split(',').map(str::trim).filter(|item| !item.is_empty());
        return items.map(plain).collect();
    }
    plain(text)
}

fn plain(text: &str) -> Value {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote)
            && let Some((inside, _)) = rest.rsplit_once(quote)
        {
            return Value::String(inside.to_owned());
        }
    }
    let text = text.split(" #").next().unwrap_or(text).trim_end();
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "" | "~" | "null" => Value::Null,
        number => match number.parse::<serde_json::Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn heads_are_read_as_people_write_them() {
        let text = "---\n\
            description: Reviews: looks closely  # not a word of it\n\
            mode: subagent\n\
            temperature: 0.1\n\
            tools:\n  write: false\n  \"mcp_*\": false\n\
            permission:\n  edit: deny\n  bash:\n    \"git diff *\": allow\n    '*': ask\n\
            list:\n- one\n- 2\n\
            inline: [Read, \"Grep\"]\n\
            prompt: |\n  First.\n\n    Second.\n\
            folded: >-\n  a\n  b\n\
            ---\n\nDo it.\n";
        let (head, body) = split(text);
        assert_eq!(body, "Do it.\n");
        let expected = json!({
            "description": "Reviews: looks closely",
            "mode": "subagent",
            "temperature": 0.1,
            "tools": { "write": false, "mcp_*": false },
            "permission": { "edit": "deny", "bash": { "git diff *": "allow", "*": "ask" } },
            "list": ["one", 2],
            "inline": ["Read", "Grep"],
            "prompt": "First.\n\n  Second.",
            "folded": "a b",
        });
        assert_eq!(Value::Object(head), expected);
    }

    #[test]
    fn file_without_a_head_is_all_text() {
        for text in ["Do it.", "--- not a head", "---\nno end", "", "---"] {
            assert_eq!(split(text), (Map::new(), text));
        }
        assert_eq!(split("---\n---\nx").1, "x");
    }

    proptest! {
        #[test]
        fn body_is_the_end_of_arbitrary_text(text in "(---\n)?([ \t]{0,4}[-a-z\"'\\[\\]|>#:é]{0,9}[: \n]{0,2}){0,30}(\n---\n)?.{0,20}") {
            let (_, body) = split(&text);
            prop_assert!(text.ends_with(body));
        }
    }
}
