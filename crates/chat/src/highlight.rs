//! Colours code: comments, strings, numbers and keywords.
//!
//! A small lexer with a table of languages, no grammars: right for most lines, instant, and never wrong about more than
//! colour. An unknown language gets strings and numbers only.

use crate::style::{Line, Span, Style};

/// A longer line is not coloured.
const MAX_LINE: usize = 4096;

const COMMENT: Style = Style { dim: true, italic: true, ..Style::PLAIN };
const STRING: Style = Style::ansi(2);
const NUMBER: Style = Style::ansi(6);
const KEYWORD: Style = Style::ansi(5);
const ADDED: Style = Style::ansi(2);
const REMOVED: Style = Style::ansi(1);
const HUNK: Style = Style::ansi(6);

/// What a language looks like.
#[derive(Debug)]
struct Language {
    names: &'static [&'static str],
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static str,
    keywords: &'static [&'static str],
}

const PLAIN: Language =
    Language { names: &[], line_comments: &[], block_comment: None, quotes: "\"", keywords: &[] };

#[rustfmt::skip]
const LANGUAGES: &[Language] = &[
    Language { names: &["rust", "rs"], line_comments: &["//"], block_comment: Some(("/*", "*/")), quotes: "\"",
        keywords: &["as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn", "for", "if",
            "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super",
            "trait", "true", "type", "unsafe", "use", "where", "while"] },
    Language { names: &["python", "py"], line_comments: &["#"], block_comment: Some(("\"\"\"", "\"\"\"")), quotes: "\"'",
        keywords: &["and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except", "False",
            "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "None", "nonlocal", "not", "or", "pass", "raise",
            "return", "True", "try", "while", "with", "yield", "match", "case", "self"] },
    Language { names: &["javascript", "js", "jsx", "typescript", "ts", "tsx", "mjs"], line_comments: &["//"], block_comment: Some(("/*", "*/")), quotes: "\"'`",
        keywords: &["as", "async", "await", "break", "case", "catch", "class", "const", "continue", "default", "delete", "do", "else", "enum",
            "export", "extends", "false", "finally", "for", "from", "function", "if", "implements", "import", "in", "instanceof", "interface",
            "let", "new", "null", "of", "private", "public", "readonly", "return", "static", "super", "switch", "this", "throw", "true", "try",
            "type", "typeof", "undefined", "var", "void", "while", "yield"] },
    Language { names: &["go"], line_comments: &["//"], block_comment: Some(("/*", "*/")), quotes: "\"'`",
        keywords: &["break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "false", "for", "func", "go",
            "goto", "if", "import", "interface", "map", "nil", "package", "range", "return", "select", "struct", "switch", "true", "type", "var"] },
    Language { names: &["c", "h", "cpp", "c++", "cc", "hpp", "java", "kotlin", "kt", "cs", "csharp", "c#", "swift", "scala", "dart", "php", "zig"],
        line_comments: &["//"], block_comment: Some(("/*", "*/")), quotes: "\"'",
        keywords: &["abstract", "auto", "bool", "boolean", "break", "case", "catch", "char", "class", "const", "continue", "default", "do",
            "double", "else", "enum", "extends", "false", "final", "finally", "float", "for", "fun", "func", "function", "if", "implements",
            "import", "in", "int", "interface", "let", "long", "namespace", "new", "null", "nullptr", "override", "package", "private",
            "protected", "public", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true",
            "try", "typedef", "union", "unsigned", "using", "val", "var", "virtual", "void", "volatile", "while"] },
    Language { names: &["bash", "sh", "shell", "zsh", "console", "fish"], line_comments: &["#"], block_comment: None, quotes: "\"'",
        keywords: &["case", "do", "done", "elif", "else", "esac", "export", "fi", "for", "function", "if", "in", "local", "return", "then", "until", "while"] },
    Language { names: &["ruby", "rb", "elixir", "ex", "lua", "perl"], line_comments: &["#", "--"], block_comment: None, quotes: "\"'",
        keywords: &["and", "begin", "case", "class", "def", "do", "else", "elsif", "end", "ensure", "false", "for", "function", "if", "in",
            "local", "module", "my", "nil", "not", "or", "rescue", "return", "self", "sub", "then", "true", "unless", "until", "when", "while", "yield"] },
    Language { names: &["sql"], line_comments: &["--"], block_comment: Some(("/*", "*/")), quotes: "'\"",
        keywords: &["SELECT", "FROM", "WHERE", "INSERT", "INTO", "VALUES", "UPDATE", "SET", "DELETE", "CREATE", "TABLE", "INDEX", "JOIN", "LEFT",
            "INNER", "ON", "AND", "OR", "NOT", "NULL", "GROUP", "BY", "ORDER", "LIMIT", "AS", "DROP", "ALTER", "PRIMARY", "KEY", "select",
            "from", "where", "insert", "into", "values", "update", "set", "delete", "create", "table", "index", "join", "left", "inner",
            "on", "and", "or", "not", "null", "group", "by", "order", "limit", "as", "drop", "alter", "primary", "key"] },
    Language { names: &["toml", "yaml", "yml", "ini", "conf", "dockerfile", "make", "makefile", "cmake", "r", "nix"], line_comments: &["#"], block_comment: None,
        quotes: "\"'", keywords: &["true", "false", "null"] },
    Language { names: &["json", "jsonc", "json5"], line_comments: &["//"], block_comment: None, quotes: "\"", keywords: &["true", "false", "null"] },
    Language { names: &["html", "xml", "svg", "vue", "svelte"], line_comments: &[], block_comment: Some(("<!--", "-->")), quotes: "\"'", keywords: &[] },
    Language { names: &["css", "scss", "less"], line_comments: &[], block_comment: Some(("/*", "*/")), quotes: "\"'", keywords: &[] },
    Language { names: &["haskell", "hs", "elm", "ocaml", "ml"], line_comments: &["--"], block_comment: Some(("{-", "-}")), quotes: "\"",
        keywords: &["case", "class", "data", "deriving", "do", "else", "if", "import", "in", "instance", "let", "module", "newtype", "of", "then", "type", "where", "fun", "match", "with", "rec"] },
];

/// Colours the lines of one piece of code, in order.
#[derive(Debug, Clone)]
pub struct Highlighter {
    language: &'static Language,
    is_diff: bool,
    is_in_comment: bool,
}

impl Highlighter {
    /// Starts with a language as it is written after a fence, or the extension of a file.
    #[must_use]
    pub fn new(language: &str) -> Highlighter {
        let name = language.trim().to_ascii_lowercase();
        let known = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()));
        Highlighter {
            language: known.unwrap_or(&PLAIN),
            is_diff: matches!(name.as_str(), "diff" | "patch"),
            is_in_comment: false,
        }
    }

    /// Returns the spans of the next line.
    pub fn line(&mut self, line: &str) -> Vec<Span> {
        if self.is_diff {
            let style = match line.as_bytes().first() {
                Some(b'+') => ADDED,
                Some(b'-') => REMOVED,
                Some(b'@') => HUNK,
                _ => Style::PLAIN,
            };
            return vec![Span::new(line, style)];
        }
        if line.len() > MAX_LINE {
            return vec![Span::plain(line)];
        }
        let mut spans = Line::default();
        let mut rest = line;
        while !rest.is_empty() {
            let (length, style) = self.token(rest);
            let (token, after) = rest.split_at(length);
            spans.push(Span::new(token, style));
            rest = after;
        }
        spans.spans().to_vec()
    }

    /// Returns the length and the style of the token at the start. Never 0.
    fn token(&mut self, rest: &str) -> (usize, Style) {
        if let Some((open, close)) = self.language.block_comment {
            let from = if self.is_in_comment {
                0
            } else if rest.starts_with(open) {
                open.len()
            } else {
                usize::MAX
            };
            if let Some(body) = rest.get(from..) {
                let end = body.find(close).map(|at| from + at + close.len());
                self.is_in_comment = end.is_none();
                return (end.unwrap_or(rest.len()), COMMENT);
            }
        }
        if self.language.line_comments.iter().any(|mark| rest.starts_with(mark)) {
            return (rest.len(), COMMENT);
        }
        let Some(first) = rest.chars().next() else { return (rest.len(), Style::PLAIN) };
        if self.language.quotes.contains(first) {
            return (string_length(rest, first), STRING);
        }
        let is_word = |char: char| char.is_alphanumeric() || char == '_';
        if !is_word(first) {
            return (first.len_utf8(), Style::PLAIN);
        }
        let is_number = first.is_ascii_digit();
        let ends = |char: char| !(is_word(char) || is_number && char == '.');
        let length = rest.find(ends).unwrap_or(rest.len());
        let style = if is_number {
            NUMBER
        } else if self.language.keywords.contains(&&rest[..length]) {
            KEYWORD
        } else {
            Style::PLAIN
        };
        (length, style)
    }
}

/// Returns the length of a string that starts with this quote; it ends with the line at the latest.
fn string_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if char == quote => return at + char.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn styled(language: &str, lines: &[&str]) -> Vec<(String, Style)> {
        let mut highlighter = Highlighter::new(language);
        let spans = lines.iter().flat_map(|line| highlighter.line(line));
        spans
            .filter(|span| span.style() != Style::PLAIN)
            .map(|span| (span.text().to_owned(), span.style()))
            .collect()
    }

    #[test]
    fn comments_strings_numbers_and_keywords_are_coloured() {
        let spans = styled("rust", &["let x = \"a\\\"b\"; // c", "/* d", "e */ 1.5"]);
        let expected = [
            ("let", KEYWORD),
            ("\"a\\\"b\"", STRING),
            ("// c", COMMENT),
            ("/* d", COMMENT),
            ("e */", COMMENT),
            ("1.5", NUMBER),
        ];
        assert_eq!(spans, expected.map(|(text, style)| (text.to_owned(), style)));
        assert_eq!(styled("diff", &["+a", " b"]), [("+a".to_owned(), ADDED)]);
    }

    proptest! {
        #[test]
        fn text_stays_the_same(line in "\\PC{0,60}", language in "(rust|python|html|none)") {
            let spans = Highlighter::new(&language).line(&line);
            let text: String = spans.iter().map(Span::text).collect();
            let kept: String = line.chars().filter(|char| crate::clean::is_harmless(*char)).collect();
            prop_assert_eq!(text, kept);
        }
    }
}
