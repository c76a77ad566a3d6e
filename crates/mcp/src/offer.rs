//! What a server offers: tools, prompts and resources, up to our limits.
//!
//! Everything here comes from the server and is untrusted: it is cleaned, counted and cut.

use std::collections::HashSet;
use std::sync::Arc;

use rmcp::model::{Prompt, Resource, ServerCapabilities, Tool};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::clean::{clean, clean_line};
use crate::connection::{Failure, Peer};

/// How many tools of one server a model gets.
pub(crate) const MAX_TOOLS: usize = 128;
/// How many prompts and how many resources of one server are used.
const MAX_OTHERS: usize = 256;
/// How many pages of a list are read.
const MAX_PAGES: usize = 64;
/// How long a description may be.
const MAX_DESCRIPTION: usize = 2048;
/// How long the printed schema of an input may be.
const MAX_SCHEMA: usize = 16 * 1024;
/// How long the name of a tool may be for a model.
const MAX_NAME: usize = 64;

/// What a server offers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Offer {
    pub(crate) tools: Vec<Arc<Offered>>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    /// How many tools were omitted: there are too many, or they are invalid.
    pub(crate) omitted: usize,
}

/// A tool as its server describes it, cleaned.
#[derive(Debug, PartialEq)]
pub(crate) struct Offered {
    /// Its name at the server.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
    /// A hash of the original name, description and schema.
    pub(crate) print: String,
}

/// Asks a server for what it offers, as far as it announced it.
pub(crate) async fn list(peer: &Peer, announced: &ServerCapabilities) -> Result<Offer, Failure> {
    let mut offer = Offer::default();
    if announced.tools.is_some() {
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page: Page<Tool> = peer.call("tools/list", &page(cursor)).await?;
            cursor = page.next_cursor.clone();
            let listed = page.items.len();
            let tools = page.fitting();
            offer.omitted += listed - tools.len();
            take_tools(&mut offer, tools);
            if cursor.is_none() {
                break;
            }
        }
    }
    if announced.prompts.is_some() {
        let mut cursor = None;
        while offer.prompts.len() < MAX_OTHERS {
            let page: Page<Prompt> = peer.call("prompts/list", &page(cursor)).await?;
            cursor = page.next_cursor.clone().filter(|_| !page.items.is_empty());
            offer.prompts.extend(page.fitting());
            if cursor.is_none() {
                break;
            }
        }
        offer.prompts.truncate(MAX_OTHERS);
    }
    if announced.resources.is_some() {
        let mut cursor = None;
        while offer.resources.len() < MAX_OTHERS {
            let page: Page<Resource> = peer.call("resources/list", &page(cursor)).await?;
            cursor = page.next_cursor.clone().filter(|_| !page.items.is_empty());
            offer.resources.extend(page.fitting());
            if cursor.is_none() {
                break;
            }
        }
        offer.resources.truncate(MAX_OTHERS);
    }
    Ok(offer)
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    #[serde(alias = "tools", alias = "prompts", alias = "resources")]
    items: Vec<Entry<T>>,
    next_cursor: Option<String>,
}

/// An entry of a list. An invalid one is skipped without affecting the others.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry<T> {
    Fits(T),
    Misfit(IgnoredAny),
}

impl<T> Page<T> {
    fn fitting(self) -> Vec<T> {
        let fitting = |entry| match entry {
            Entry::Fits(item) => Some(item),
            Entry::Misfit(_) => None,
        };
        self.items.into_iter().filter_map(fitting).collect()
    }
}

fn page(cursor: Option<String>) -> Value {
    cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }))
}

fn take_tools(offer: &mut Offer, tools: Vec<Tool>) {
    let room = MAX_TOOLS - offer.tools.len();
    offer.omitted += tools.len().saturating_sub(room);
    offer.tools.extend(tools.into_iter().take(room).map(|tool| Arc::new(tool_in(tool))));
}

fn tool_in(tool: Tool) -> Offered {
    let raw = tool.description.as_deref().unwrap_or_default();
    let schema = Value::Object((*tool.input_schema).clone());
    let printed = schema.to_string();
    let print = fingerprint(&[&tool.name, raw, &printed]);
    let annotated = tool.annotations.and_then(|annotations| annotations.title);
    let title = tool.title.or(annotated).unwrap_or_else(|| tool.name.to_string());
    let is_object = schema.get("type").is_none_or(|kind| kind == "object");
    Offered {
        title: clean_line(&title, 80),
        description: clean(raw, MAX_DESCRIPTION),
        // A model can still call a tool whose schema is too long; the server reports invalid input.
        schema: if printed.len() > MAX_SCHEMA || !is_object {
            json!({ "type": "object" })
        } else {
            schema
        },
        print,
        name: tool.name.into_owned(),
    }
}

/// Returns a hash of some texts.
pub(crate) fn fingerprint(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the name of a tool for models: server and tool, in characters that every provider accepts, and not used yet.
pub(crate) fn public_name(server: &str, tool: &str, taken: &mut HashSet<String>) -> String {
    let letter = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => character,
        _ => '_',
    };
    let full: String = format!("{server}_{tool}").chars().map(letter).collect();
    let shortened = |room: usize| {
        if full.len() <= room {
            return full.clone();
        }
        let print = fingerprint(&[server, tool]);
        format!("{}_{}", &full[..room - 9], &print[..8])
    };
    let mut name = shortened(MAX_NAME);
    for number in 2.. {
        if taken.insert(name.clone()) {
            break;
        }
        name = format!("{}_{number}", shortened(MAX_NAME - 5));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: M3
    #[test]
    fn names_are_unique_and_valid_for_every_provider() {
        let mut taken = HashSet::from(["read_file".to_owned()]);
        let mut name = |server: &str, tool: &str| public_name(server, tool, &mut taken);
        assert_eq!(name("weather", "get"), "weather_get");
        assert_eq!(name("a_b", "c"), "a_b_c");
        assert_eq!(name("a", "b_c"), "a_b_c_2");
        assert_eq!(name("read", "file"), "read_file_2");
        assert_eq!(name("my server", "do.it!"), "my_server_do_it_");
        let long = name("s", &"x".repeat(300));
        assert_eq!(long.len(), MAX_NAME);
        assert_ne!(long, name("s", &"x".repeat(301)));
    }

    // R: M3
    #[test]
    fn invalid_entry_is_skipped() {
        let listed = json!({ "nextCursor": "2", "tools": [
            { "name": "a", "inputSchema": { "type": "object" } }, { "name": "no schema" }, 7, null,
            { "name": "b", "inputSchema": {}, "description": null },
        ] });
        let page: Page<Tool> = serde_json::from_value(listed).unwrap();
        assert_eq!((page.items.len(), page.next_cursor.as_deref()), (5, Some("2")));
        let names: Vec<String> = page.fitting().iter().map(|tool| tool.name.to_string()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    fn tool(value: Value) -> Offered {
        tool_in(serde_json::from_value(value).unwrap())
    }

    // R: M3
    #[test]
    fn description_is_cleaned_and_cut_and_its_hash_covers_the_whole() {
        let describe = |text: &str| {
            tool(json!({ "name": "t", "description": text, "inputSchema": { "type": "object" } }))
        };
        assert_eq!(describe("safe\u{200b}\u{1b}").description, "safe");
        assert_ne!(describe("safe").print, describe("safe\u{200b}").print);
        let long = "x".repeat(MAX_DESCRIPTION);
        assert!(describe(&format!("{long}1")).description.len() <= MAX_DESCRIPTION + 3);
        assert_ne!(describe(&format!("{long}1")).print, describe(&format!("{long}2")).print);
    }

    // R: M3
    // Fault: M12
    #[test]
    fn recursive_schema_is_unchanged() {
        let schema = json!({
            "type": "object",
            "properties": { "child": { "$ref": "#" } },
        });
        assert_eq!(tool(json!({ "name": "t", "inputSchema": schema })).schema, schema);
        let huge = json!({ "type": "object", "description": "x".repeat(MAX_SCHEMA) });
        assert_eq!(
            tool(json!({ "name": "t", "inputSchema": huge })).schema,
            json!({ "type": "object" })
        );
    }
}
