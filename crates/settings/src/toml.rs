//! Reads TOML: tables, dotted keys, strings of all four kinds, numbers, booleans, arrays and inline tables. Dates are strings.
//!
//! Anything else is an error with its line: a file that is read only in part could lose a restriction.

use serde_json::{Map, Number, Value};

/// The deepest nesting of arrays and inline tables.
const DEEPEST: usize = 32;

/// Why a text is not TOML: the line, and the reason.
pub(crate) type Wrong = (usize, String);

/// Parses a text.
pub(crate) fn parse(text: &str) -> Result<Map<String, Value>, Wrong> {
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    let mut root = Map::new();
    let mut table: Vec<String> = Vec::new();
    loop {
        reader.skip_blank_lines()?;
        if reader.rest.is_empty() {
            return Ok(root);
        }
        let line = reader.line;
        let failed = |why: &str| (line, why.to_owned());
        if let Some(rest) = reader.rest.strip_prefix("[[") {
            reader.rest = rest;
            table = reader.key()?;
            reader.expect("]]")?;
            let (last, front) = table.split_last().ok_or_else(|| failed("an empty name"))?;
            let parent = enter(&mut root, front).ok_or_else(|| failed("not a table"))?;
            let list = parent.entry(last.clone()).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(items) = list else { return Err(failed("not an array of tables")) };
            items.push(Value::Object(Map::new()));
        } else if let Some(rest) = reader.rest.strip_prefix('[') {
            reader.rest = rest;
            table = reader.key()?;
            reader.expect("]")?;
            enter(&mut root, &table).ok_or_else(|| failed("not a table"))?;
        } else {
            let key = reader.key()?;
            reader.expect("=")?;
            let value = reader.value(0)?;
            let inside = enter(&mut root, &table).ok_or_else(|| failed("not a table"))?;
            insert(inside, &key, value).ok_or_else(|| failed("the same name twice"))?;
        }
        reader.end_of_line()?;
    }
}

/// Returns the table at a path; creates what is missing. Of an array of tables, the last one.
fn enter<'a>(
    root: &'a mut Map<String, Value>,
    path: &[String],
) -> Option<&'a mut Map<String, Value>> {
    let mut table = root;
    for name in path {
        let inner = table.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
        table = match inner {
            Value::Object(table) => table,
            Value::Array(items) => items.last_mut()?.as_object_mut()?,
            _ => return None,
        };
    }
    Some(table)
}

fn insert(table: &mut Map<String, Value>, key: &[String], value: Value) -> Option<()> {
    let (last, front) = key.split_last()?;
    let table = enter(table, front)?;
    if table.contains_key(last) {
        return None;
    }
    table.insert(last.clone(), value);
    Some(())
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, why: &str) -> Result<T, Wrong> {
        Err((self.line, why.to_owned()))
    }

    fn advance(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    /// Skips a comment up to the end of its line.
    fn skip_comment(&mut self) {
        if self.rest.starts_with('#') {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.rest = &self.rest[end..];
        }
    }

    /// Skips spaces, comments and line ends.
    fn skip_blank_lines(&mut self) -> Result<(), Wrong> {
        loop {
            self.skip_spaces();
            self.skip_comment();
            let end = self.rest.len() - self.rest.trim_start_matches(['\r', '\n']).len();
            if end == 0 {
                return Ok(());
            }
            self.advance(end);
        }
    }

    fn end_of_line(&mut self) -> Result<(), Wrong> {
        self.skip_spaces();
        self.skip_comment();
        if self.rest.is_empty() || self.rest.starts_with(['\r', '\n']) {
            return Ok(());
        }
        self.fail("unexpected text at the end of the line")
    }

    fn expect(&mut self, mark: &str) -> Result<(), Wrong> {
        self.skip_spaces();
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.fail(&format!("expected `{mark}`")),
        }
    }

    /// Reads a dotted key.
    fn key(&mut self) -> Result<Vec<String>, Wrong> {
        let mut parts = Vec::new();
        loop {
            self.skip_spaces();
            let part = if self.rest.starts_with(['"', '\'']) {
                self.string()?
            } else {
                let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let end = self.rest.find(|c: char| !is_bare(c)).unwrap_or(self.rest.len());
                if end == 0 {
                    return self.fail("expected a name");
                }
                let part = self.rest[..end].to_owned();
                self.advance(end);
                part
            };
            parts.push(part);
            self.skip_spaces();
            match self.rest.strip_prefix('.') {
                Some(rest) => self.rest = rest,
                None => return Ok(parts),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Wrong> {
        self.skip_spaces();
        if depth > DEEPEST {
            return self.fail("nested too deeply");
        }
        match self.rest.chars().next() {
            Some('"' | '\'') => Ok(Value::String(self.string()?)),
            Some('[') => self.array(depth),
            Some('{') => self.inline_table(depth),
            _ => self.plain(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Wrong> {
        self.advance(1);
        let mut items = Vec::new();
        loop {
            self.skip_blank_lines()?;
            if self.rest.starts_with(']') {
                self.advance(1);
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.skip_blank_lines()?;
            match self.rest.chars().next() {
                Some(',') => self.advance(1),
                Some(']') => {}
                _ => return self.fail("expected `,` or `]`"),
            }
        }
    }

    fn inline_table(&mut self, depth: usize) -> Result<Value, Wrong> {
        self.advance(1);
        let mut table = Map::new();
        loop {
            self.skip_blank_lines()?;
            if self.rest.starts_with('}') {
                self.advance(1);
                return Ok(Value::Object(table));
            }
            let key = self.key()?;
            self.expect("=")?;
            let value = self.value(depth + 1)?;
            if insert(&mut table, &key, value).is_none() {
                return self.fail("the same name twice");
            }
            self.skip_blank_lines()?;
            match self.rest.chars().next() {
                Some(',') => self.advance(1),
                Some('}') => {}
                _ => return self.fail("expected `,` or `}`"),
            }
        }
    }

    /// Reads a number, a boolean or a date.
    fn plain(&mut self) -> Result<Value, Wrong> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-_.:".contains(c);
        let end = self.rest.find(|c: char| !is_plain(c)).unwrap_or(self.rest.len());
        let text = self.rest[..end].to_owned();
        self.advance(end);
        let digits = text.replace('_', "");
        match text.as_str() {
            "true" => return Ok(Value::Bool(true)),
            "false" => return Ok(Value::Bool(false)),
            _ => {}
        }
        if let Ok(number) = digits.trim_start_matches('+').parse::<i64>() {
            return Ok(Value::Number(number.into()));
        }
        let float = digits.parse::<f64>().ok().and_then(Number::from_f64);
        match float {
            Some(number) => Ok(Value::Number(number)),
            None if text.starts_with(|c: char| c.is_ascii_digit()) => Ok(Value::String(text)),
            None => self.fail("expected a value"),
        }
    }

    fn string(&mut self) -> Result<String, Wrong> {
        for (mark, escapes) in [("\"\"\"", true), ("'''", false)] {
            if self.rest.starts_with(mark) {
                self.advance(3);
                let first = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
                if let Some(first) = first {
                    self.advance(self.rest.len() - first.len());
                }
                return self.until(mark, escapes, true);
            }
        }
        let mark = if self.rest.starts_with('"') { "\"" } else { "'" };
        self.advance(1);
        self.until(mark, mark == "\"", false)
    }

    /// Reads a string up to its end.
    fn until(&mut self, mark: &str, escapes: bool, has_lines: bool) -> Result<String, Wrong> {
        let mut text = String::new();
        loop {
            if self.rest.starts_with(mark) {
                self.advance(mark.len());
                return Ok(text);
            }
            let Some(letter) = self.rest.chars().next() else {
                return self.fail("a string has no end");
            };
            if letter == '\n' && !has_lines {
                return self.fail("a string has no end");
            }
            self.advance(letter.len_utf8());
            match letter {
                '\\' if escapes => self.escape(&mut text)?,
                letter => text.push(letter),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Wrong> {
        let Some(letter) = self.rest.chars().next() else {
            return self.fail("a string has no end");
        };
        self.advance(letter.len_utf8());
        let digits = match letter {
            'u' => 4,
            'U' => 8,
            'b' | 't' | 'n' | 'f' | 'r' | 'e' | '"' | '\\' => {
                text.push(match letter {
                    'b' => '\u{8}',
                    't' => '\t',
                    'n' => '\n',
                    'f' => '\u{c}',
                    'r' => '\r',
                    'e' => '\u{1b}',
                    other => other,
                });
                return Ok(());
            }
            // A line end after a backslash: white space is skipped.
            letter if letter.is_whitespace() => {
                let skipped = self.rest.len() - self.rest.trim_start().len();
                self.advance(skipped);
                return Ok(());
            }
            _ => return self.fail("an unknown escape in a string"),
        };
        let code = self.rest.get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
        let Some(letter) = code.and_then(char::from_u32) else {
            return self.fail("an unknown escape in a string");
        };
        text.push(letter);
        self.advance(digits);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_read_as_people_write_them() {
        let text = r#"
            model = "gpt-5" # the model
            approval_policy = 'on-request'
            n = 1_000
            f = 0.5
            day = 2026-11-18T07:00:00Z
            [mcp_servers.docs]
            command = "npx"
            args = [
                "-y", # quiet
                "docs\u0041\tx",
            ]
            env = { "API_KEY" = "k", nested.deep = true }
            [mcp_servers."with space"]
            enabled = false
            text = """
two \
   lines"""
            raw = '''C:\x'''
            [[list]]
            a = 1
            [[list]]
            a = 2
        "#;
        let expected = json!({
            "model": "gpt-5", "approval_policy": "on-request", "n": 1000, "f": 0.5,
            "day": "2026-11-18T07:00:00Z",
            "mcp_servers": {
                "docs": { "command": "npx", "args": ["-y", "docsA\tx"],
                    "env": { "API_KEY": "k", "nested": { "deep": true } } },
                "with space": { "enabled": false, "text": "two lines", "raw": "C:\\x" },
            },
            "list": [{ "a": 1 }, { "a": 2 }],
        });
        assert_eq!(Value::Object(parse(text).unwrap()), expected);
    }

    #[test]
    fn mistake_is_an_error_with_its_line() {
        for (text, line) in [
            ("a = ", 1),
            ("a = 1\nb", 2),
            ("a = 1\n\na = 2", 3),
            ("[x", 1),
            ("a = \"x", 1),
            ("a = [1 2]", 1),
            ("a = 1 b = 2", 1),
            ("a = 1\n[a.b]", 2),
            ("a = nonsense", 1),
            ("a = \"\\q\"", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{text}");
        }
        assert!(parse("").unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_read_or_refused(text in "([a-z.\\[\\]{}=\"',# \n0-9\\\\-]|é){0,80}") {
            if let Err((line, _)) = parse(&text) {
                prop_assert!(line <= text.matches('\n').count() + 1);
            }
        }

        #[test]
        fn strings_are_read_back(text in "\\PC{0,20}") {
            let quoted = format!("a = {}", Value::String(text.clone()));
            let read = parse(&quoted).unwrap();
            prop_assert_eq!(read["a"].as_str(), Some(text.as_str()));
        }
    }
}
