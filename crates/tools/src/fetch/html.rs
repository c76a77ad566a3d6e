//! Converts a page to Markdown: headings, links, lists and code; everything else as plain text. Does no IO and never fails, since a
//! page may be anything.

use reqwest::Url;

/// Elements whose content is skipped.
const SKIPPED: [&str; 8] =
    ["script", "style", "noscript", "svg", "template", "iframe", "head", "canvas"];

/// Elements that begin a new line.
const BLOCKS: [&str; 28] = [
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "nav",
    "aside",
    "ul",
    "ol",
    "dl",
    "dt",
    "dd",
    "table",
    "tr",
    "form",
    "fieldset",
    "blockquote",
    "figure",
    "figcaption",
    "hr",
    "address",
    "details",
    "summary",
    "body",
    "html",
    "title",
];

/// Converts a page to text.
pub(crate) fn to_markdown(page: &str, base: &Url) -> String {
    let mut out = Page {
        text: String::with_capacity(page.len() / 4),
        base,
        links: Vec::new(),
        is_code: false,
    };
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        out.words(&rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let Some(tag) = Tag::read(rest) else {
            out.words("<");
            rest = &rest[1..];
            continue;
        };
        rest = &rest[tag.length..];
        if !tag.is_end && SKIPPED.contains(&tag.name.as_str()) {
            if tag.name == "head" {
                rest = title(rest, &mut out);
            }
            rest = behind_end(rest, &tag.name);
            continue;
        }
        out.tag(&tag);
    }
    out.words(rest);
    tidy(&out.text)
}

/// Adds the title from the head.
fn title<'a>(head: &'a str, out: &mut Page<'_>) -> &'a str {
    let lower = head.to_ascii_lowercase();
    let end = lower.find("</head").unwrap_or(head.len());
    if let Some(from) =
        lower[..end].find("<title").and_then(|at| Some(at + lower[at..end].find('>')? + 1))
    {
        let to = lower[from..end].find('<').map_or(end, |at| from + at);
        out.text.push_str("# ");
        out.words(&head[from..to]);
        out.text.push('\n');
    }
    &head[end..]
}

fn behind_end<'a>(rest: &'a str, name: &str) -> &'a str {
    let end = format!("</{name}");
    let at =
        rest.as_bytes().windows(end.len()).position(|at| at.eq_ignore_ascii_case(end.as_bytes()));
    let Some(at) = at else {
        return "";
    };
    rest[at..].find('>').map_or("", |close| &rest[at + close + 1..])
}

struct Tag {
    name: String,
    is_end: bool,
    href: Option<String>,
    length: usize,
}

impl Tag {
    /// Parses a tag at the start of a string, if any.
    fn read(text: &str) -> Option<Tag> {
        let inner = &text[1..];
        let is_end = inner.starts_with('/');
        let inner = if is_end { &inner[1..] } else { inner };
        let first = inner.chars().next()?;
        if !first.is_ascii_alphabetic() && first != '!' && first != '?' {
            return None;
        }
        let name_end =
            inner.find(|c: char| c.is_whitespace() || c == '>' || c == '/').unwrap_or(inner.len());
        let name = inner[..name_end].to_ascii_lowercase();
        let end = end_of(inner)?;
        let href = (name == "a").then(|| attribute(&inner[name_end..end], "href")).flatten();
        Some(Tag { name, is_end, href, length: 1 + usize::from(is_end) + end + 1 })
    }
}

/// Finds the `>` of a tag, ignoring those in quotes.
fn end_of(inner: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in inner.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    // An unclosed quote: the first `>` ends the tag.
    inner.find('>')
}

fn attribute(text: &str, name: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let at = lower.find(&format!("{name}="))?;
    let value = &text[at + name.len() + 1..];
    let value = match value.as_bytes().first()? {
        quote @ (b'"' | b'\'') => value[1..].split(char::from(*quote)).next()?,
        _ => value.split(char::is_whitespace).next()?,
    };
    Some(entities(value))
}

struct Page<'a> {
    text: String,
    base: &'a Url,
    links: Vec<Option<String>>,
    is_code: bool,
}

impl Page<'_> {
    fn tag(&mut self, tag: &Tag) {
        match (tag.name.as_str(), tag.is_end) {
            ("br", _) => self.text.push('\n'),
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", false) => {
                let level = usize::from(tag.name.as_bytes()[1] - b'0');
                self.text.push_str(&format!("\n\n{} ", "#".repeat(level)));
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", true) => self.text.push_str("\n\n"),
            ("li", false) => self.text.push_str("\n- "),
            ("pre", false) => {
                self.text.push_str("\n\n```\n");
                self.is_code = true;
            }
            ("pre", true) => {
                self.text.push_str("\n```\n\n");
                self.is_code = false;
            }
            ("code", _) if !self.is_code => self.text.push('`'),
            ("td" | "th", true) => self.text.push_str(" | "),
            ("a", false) => {
                let href = tag.href.as_deref().filter(|href| !href.starts_with('#'));
                let href = href.and_then(|href| self.base.join(href).ok());
                let href = href.filter(|href| matches!(href.scheme(), "http" | "https"));
                if href.is_some() {
                    self.text.push('[');
                }
                self.links.push(href.map(|href| href.to_string()));
            }
            ("a", true) => {
                if let Some(Some(href)) = self.links.pop() {
                    self.text.push_str(&format!("]({href})"));
                }
            }
            (name, _) if BLOCKS.contains(&name) => self.text.push_str("\n\n"),
            _ => {}
        }
    }

    fn words(&mut self, text: &str) {
        let text = entities(text);
        if self.is_code {
            self.text.push_str(&text);
            return;
        }
        for (index, word) in text.split(char::is_whitespace).enumerate() {
            let is_open = self.text.ends_with([' ', '\n']) || self.text.is_empty();
            if index > 0 && !is_open {
                self.text.push(' ');
            }
            self.text.push_str(word);
        }
    }
}

/// Decodes common entities.
fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(12).position(|byte| byte == b';');
        match end.and_then(|end| Some((end, entity(&rest[1..end])?))) {
            Some((end, character)) => {
                out.push(character);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code)
            .filter(|character| !character.is_control() || *character == '\n');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "copy" => '©',
        "times" => '×',
        "rarr" => '→',
        "larr" => '←',
        "middot" => '·',
        "bull" => '•',
        _ => return None,
    })
}

/// Removes repeated empty lines, and trailing white space outside code.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 1;
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line == "```";
        let line = if is_code { line } else { line.trim() };
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 || is_code {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn markdown(page: &str) -> String {
        to_markdown(page, &Url::parse("https://example.com/a/").unwrap())
    }

    #[test]
    fn page_becomes_markdown() {
        let page = "<!doctype html><html><head><title>A &amp; B</title><style>x{}</style></head><body>\
            <h2>Head</h2><p>Some  <b>bold</b>\n text<br>more</p><!-- no > --><ul><li>one</li><li><a href='b?x=1'>two</a></ul>\
            <pre>a  &lt; b\n  c</pre><script>if (a < b) { x('</p>') }</script><p>1 < 2 &copy; &#8364; &nope;</p></body></html>";
        let expected = "# A & B\n\n## Head\n\nSome bold text\nmore\n\n- one\n- [two](https://example.com/a/b?x=1)\n\n```\n\
            a  < b\n  c\n```\n\n1 < 2 © € &nope;\n";
        assert_eq!(markdown(page).trim_end(), expected.trim_end());
    }

    proptest! {
        #[test]
        fn arbitrary_page_causes_no_panic(page in any::<String>()) {
            drop(markdown(&page));
        }

        #[test]
        fn arbitrary_tags_cause_no_panic(page in "(<|</|>|a|pre|script|head|title| href=|\"|'|&|#x|;|é|!--|--){0,40}") {
            drop(markdown(&page));
        }
    }
}
