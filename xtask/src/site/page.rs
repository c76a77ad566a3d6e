//! One page: Markdown to HTML, with the identifiers that GitHub gives to headings, and links to the other pages.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use serde_json::{Value, json};

/// A parsed page.
#[derive(Debug)]
pub(super) struct Page {
    /// Its path in the repository.
    path: String,
    title: String,
    /// The HTML of its content.
    body: String,
    /// The identifiers of its headings.
    anchors: BTreeSet<String>,
    /// Where it links to: another file and a heading.
    links: Vec<(String, Option<String>)>,
    /// Sections for the search: identifier, heading, text.
    sections: Vec<(String, String, String)>,
}

impl Page {
    /// Parses the page at `path`.
    pub(super) fn parse(path: &str, text: &str) -> Page {
        let mut page = Page {
            path: path.to_owned(),
            title: path.to_owned(),
            body: String::new(),
            anchors: BTreeSet::new(),
            links: Vec::new(),
            sections: vec![(String::new(), String::new(), String::new())],
        };
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut events: Vec<Event<'_>> = Parser::new_ext(text, options).collect();
        let mut heading = None;
        for at in 0..events.len() {
            match &mut events[at] {
                Event::Start(Tag::Heading { .. }) => heading = Some((at, String::new())),
                Event::End(TagEnd::Heading(level)) => {
                    let level = *level;
                    let Some((start, title)) = heading.take() else { continue };
                    let id = page.anchor(&title);
                    if let Event::Start(Tag::Heading { id: place, .. }) = &mut events[start] {
                        *place = Some(id.clone().into());
                    }
                    if level == HeadingLevel::H1 {
                        page.title = title.clone();
                    }
                    page.sections.push((id, title, String::new()));
                }
                Event::Text(text) | Event::Code(text) => match &mut heading {
                    Some((_, title)) => title.push_str(text),
                    None => page.add_text(text),
                },
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    *dest_url = page.link(dest_url);
                }
                // Nothing in our pages is HTML; what looks like it is shown.
                Event::Html(raw) | Event::InlineHtml(raw) => events[at] = Event::Text(raw.clone()),
                _ => {}
            }
        }
        html::push_html(&mut page.body, events.into_iter());
        page
    }

    fn add_text(&mut self, text: &str) {
        if let Some((_, _, section)) = self.sections.last_mut() {
            section.push_str(text);
            section.push(' ');
        }
    }

    /// Makes the identifier of a heading: lower case, no punctuation, hyphens for spaces, and a number if it is taken.
    fn anchor(&mut self, title: &str) -> String {
        let kept = title
            .to_lowercase()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .collect::<String>();
        let id = kept.replace(' ', "-");
        let free =
            (0..).map(|number| if number == 0 { id.clone() } else { format!("{id}-{number}") });
        let id = free.into_iter().find(|id| !self.anchors.contains(id)).unwrap_or_default();
        self.anchors.insert(id.clone());
        id
    }

    /// Notes a link, and returns its address on the site.
    fn link<'a>(&mut self, address: &str) -> CowStr<'a> {
        if address.contains("://") || address.starts_with("mailto:") {
            return address.to_owned().into();
        }
        let (file, heading) = match address.split_once('#') {
            Some((file, heading)) => (file, Some(heading.to_owned())),
            None => (address, None),
        };
        let target = if file.is_empty() { self.path.clone() } else { resolve(&self.path, file) };
        self.links.push((target, heading));
        match address.split_once(".md") {
            Some((start, rest)) => format!("{start}.html{rest}").into(),
            None => address.to_owned().into(),
        }
    }

    /// Lists the links that lead nowhere.
    pub(super) fn faults(
        &self,
        pages: &BTreeMap<String, Page>,
        exists: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let is_right = |(file, heading): &(String, Option<String>)| match (pages.get(file), heading)
        {
            (Some(page), Some(heading)) => page.anchors.contains(heading),
            (Some(_), None) => true,
            (None, _) => exists(file) && !file.ends_with(".md"),
        };
        let bad = self.links.iter().filter(|link| !is_right(link));
        bad.map(|(file, heading)| {
            let heading = heading.as_ref().map(|heading| format!("#{heading}")).unwrap_or_default();
            format!("{}: the link to {file}{heading} leads nowhere", self.path)
        })
        .collect()
    }

    /// Returns the address of the page on the site.
    pub(super) fn address(&self) -> String {
        self.path.replace(".md", ".html")
    }

    /// Returns the directory of the page, with a `/` at the end.
    pub(super) fn directory(&self) -> &str {
        self.path.rfind('/').map_or("", |end| &self.path[..=end])
    }

    /// Returns the title.
    pub(super) fn title(&self) -> String {
        escaped(&self.title)
    }

    /// Returns the way from the page to the root of the site.
    pub(super) fn to_root(&self) -> String {
        "../".repeat(self.path.matches('/').count())
    }

    /// Lists its sections for the search.
    pub(super) fn index(&self) -> Vec<Value> {
        let sections = self
            .sections
            .iter()
            .filter(|(_, heading, text)| !heading.is_empty() || !text.is_empty());
        sections
            .map(|(id, heading, text)| {
                json!([format!("{}#{id}", self.address()), self.title, heading, text.trim()])
            })
            .collect()
    }

    /// Prints the whole page.
    pub(super) fn html(&self, navigation: &str) -> String {
        let (root, title, body) = (self.to_root(), self.title(), &self.body);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} · Purlin</title>\n<link rel=\"stylesheet\" href=\"{root}style.css\">\n<nav><input id=\"search\" type=\"search\" placeholder=\"Search\" aria-label=\"Search\"><ol id=\"found\"></ol>{navigation}</nav>\n<main>\n{body}</main>\n<script>const ROOT = \"{root}\";</script>\n<script src=\"{root}search.js\"></script>\n</html>\n"
        )
    }
}

/// Resolves a relative path in the page at `from`.
fn resolve(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_pages_and_headings_are_found() {
        let text = "# A\n## `b` & c!\n[1](b.md) [2](b.md#x-y) [3](b.md#no) [4](no.md) [5](#b--c) [6](pic.svg) [7](https://x.example/y.md)";
        let pages: BTreeMap<String, Page> = [("docs/a.md", text), ("docs/b.md", "# B\n## X y")]
            .into_iter()
            .map(|(path, text)| (path.to_owned(), Page::parse(path, text)))
            .collect();
        let page = &pages["docs/a.md"];
        let faults = page.faults(&pages, |path| path == "docs/pic.svg");
        assert_eq!(
            faults,
            [
                "docs/a.md: the link to docs/b.md#no leads nowhere",
                "docs/a.md: the link to docs/no.md leads nowhere"
            ]
        );
        let html = page.html("");
        assert!(
            html.contains("<a href=\"b.html#x-y\">") && html.contains("href=\"../style.css\""),
            "{html}"
        );
        assert!(html.contains("href=\"https://x.example/y.md\""), "{html}");
    }

    #[test]
    fn html_in_a_page_is_shown_and_not_run() {
        let html = Page::parse("a.md", "a <script>b</script>\n\n<img src=x>").html("");
        assert!(!html.contains("<script>b") && !html.contains("<img"), "{html}");
    }
}
