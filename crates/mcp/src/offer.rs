//! What a server offers: tools, prompts and resources, up to our limits.
//!
//! The server is not trusted: its texts are cleaned, and their number and length are limited.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rmcp::model::{Prompt, Resource, ServerCapabilities, Tool};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::clean::{clean, clean_line};
use crate::connection::{Failure, Peer};

/// The most tools of one server that are listed to a model.
pub(crate) const MAX_TOOLS: usize = 128;
/// The most prompts, and the most resources, of one server.
const MAX_OTHERS: usize = 256;
/// The most pages of a list that are read.
const MAX_PAGES: usize = 64;
/// The maximum length of a description, in bytes.
const MAX_DESCRIPTION: usize = 2048;
/// The maximum length of an input schema as JSON, in bytes.
const MAX_SCHEMA: usize = 16 * 1024;
/// The maximum length of a tool name. Model providers accept no longer ones.
const MAX_NAME: usize = 64;

/// What a server offers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Offer {
    pub(crate) tools: Vec<Arc<ToolInfo>>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    /// The number of tools that were omitted, because there are too many or they are invalid.
    pub(crate) omitted: usize,
}

/// A tool as its server describes it, cleaned.
#[derive(Debug, PartialEq)]
pub(crate) struct ToolInfo {
    /// Its name on the server.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
    /// A hash of the original name, description and schema: it changes when one of them does.
    pub(crate) fingerprint: String,
}

/// Lists everything a server offers. Requests only what its capabilities announce.
pub(crate) async fn list(peer: &Peer, capabilities: &ServerCapabilities) -> Result<Offer, Failure> {
    let mut offer = Offer::default();
    if capabilities.tools.is_some() {
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page: Page<Tool> = peer.call("tools/list", &page(cursor)).await?;
            cursor = page.next_cursor.clone();
            let listed = page.items.len();
            let tools = page.valid();
            offer.omitted += listed - tools.len();
            add_tools(&mut offer, tools);
            if cursor.is_none() {
                break;
            }
        }
    }
    if capabilities.prompts.is_some() {
        let mut cursor = None;
        while offer.prompts.len() < MAX_OTHERS {
            let page: Page<Prompt> = peer.call("prompts/list", &page(cursor)).await?;
            cursor = page.next_cursor.clone().filter(|_| !page.items.is_empty());
            offer.prompts.extend(page.valid());
            if cursor.is_none() {
                break;
            }
        }
        offer.prompts.truncate(MAX_OTHERS);
    }
    if capabilities.resources.is_some() {
        let mut cursor = None;
        while offer.resources.len() < MAX_OTHERS {
            let page: Page<Resource> = peer.call("resources/list", &page(cursor)).await?;
            cursor = page.next_cursor.clone().filter(|_| !page.items.is_empty());
            offer.resources.extend(page.valid());
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

/// An entry of a list. An invalid one is skipped; the others are still used.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry<T> {
    Valid(T),
    Invalid(IgnoredAny),
}

impl<T> Page<T> {
    fn valid(self) -> Vec<T> {
        let valid = |entry| match entry {
            Entry::Valid(item) => Some(item),
            Entry::Invalid(_) => None,
        };
        self.items.into_iter().filter_map(valid).collect()
    }
}

fn page(cursor: Option<String>) -> Value {
    cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }))
}

fn add_tools(offer: &mut Offer, tools: Vec<Tool>) {
    let remaining = MAX_TOOLS - offer.tools.len();
    offer.omitted += tools.len().saturating_sub(remaining);
    offer.tools.extend(tools.into_iter().take(remaining).map(|tool| Arc::new(tool_in(tool))));
}

fn tool_in(tool: Tool) -> ToolInfo {
    let raw = tool.description.as_deref().unwrap_or_default();
    let schema = Value::Object((*tool.input_schema).clone());
    let printed = schema.to_string();
    let fingerprint = fingerprint(&[&tool.name, raw, &printed]);
    let annotated = tool.annotations.and_then(|annotations| annotations.title);
    let title = tool.title.or(annotated).unwrap_or_else(|| tool.name.to_string());
    let is_object = schema.get("type").is_none_or(|kind| kind == "object");
    ToolInfo {
        title: clean_line(&title, 80),
        description: clean(raw, MAX_DESCRIPTION),
        // A tool whose schema is too long can still be called: the server's errors tell the model what is wrong.
        schema: if printed.len() > MAX_SCHEMA || !is_object {
            json!({ "type": "object" })
        } else {
            schema
        },
        fingerprint,
        name: tool.name.into_owned(),
    }
}

/// Returns a short hash of strings.
pub(crate) fn fingerprint(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the names that tools of more than one server would have.
pub(crate) fn shared_names<'a>(tools: impl Iterator<Item = (&'a str, &'a str)>) -> HashSet<String> {
    let mut owners: HashMap<String, &str> = HashMap::new();
    let mut shared = HashSet::new();
    for (server, tool) in tools {
        let name = plain_name(server, tool);
        if *owners.entry(name.clone()).or_insert(server) != server {
            shared.insert(name);
        }
    }
    shared
}

/// Returns server and tool in characters that every provider accepts.
fn plain_name(server: &str, tool: &str) -> String {
    let letter = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => character,
        _ => '_',
    };
    format!("{server}_{tool}").chars().map(letter).collect()
}

/// Returns a unique tool name for the model: server and tool. If another tool has that name, or it is too long, it ends with a hash
/// of both, so it does not depend on which server is ready first.
pub(crate) fn public_name(server: &str, tool: &str, taken: &mut HashSet<String>) -> String {
    let full = plain_name(server, tool);
    let hash = fingerprint(&[server, tool]);
    let with_suffix =
        |suffix: &str| format!("{}_{suffix}", &full[..full.len().min(MAX_NAME - 1 - suffix.len())]);
    let mut name = if full.len() <= MAX_NAME { full.clone() } else { with_suffix(&hash[..8]) };
    for number in 1.. {
        if taken.insert(name.clone()) {
            break;
        }
        // A number is needed only for a server that lists the same tool twice.
        name = match number {
            1 => with_suffix(&hash[..8]),
            _ => with_suffix(&format!("{}_{number}", &hash[..8])),
        };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: M3
    #[test]
    fn tool_names_are_unique_and_accepted_by_every_provider() {
        let mut taken = HashSet::from(["read_file".to_owned()]);
        let mut name = |server: &str, tool: &str| public_name(server, tool, &mut taken);
        assert_eq!(name("weather", "get"), "weather_get");
        assert_eq!(name("a_b", "c"), "a_b_c");
        let hashed = |server: &str, tool: &str| {
            format!("{server}_{tool}_{}", &fingerprint(&[server, tool])[..8])
        };
        assert_eq!(name("a", "b_c"), hashed("a", "b_c"));
        assert_eq!(name("a", "b_c"), hashed("a", "b_c") + "_2");
        assert_eq!(name("read", "file"), hashed("read", "file"));
        assert_eq!(name("my server", "do.it!"), "my_server_do_it_");
        let long = name("s", &"x".repeat(300));
        assert_eq!(long.len(), MAX_NAME);
        assert_ne!(long, name("s", &"x".repeat(301)));
    }

    // R: M2
    #[test]
    fn name_of_two_servers_belongs_to_neither() {
        let tools = [("a", "b_c"), ("a_b", "c"), ("a", "d"), ("a", "d"), ("a", "d!"), ("x", "y")];
        assert_eq!(shared_names(tools.into_iter()), HashSet::from(["a_b_c".to_owned()]));
    }

    // R: M3
    #[test]
    fn invalid_list_entry_is_skipped_and_the_others_are_used() {
        let listed = json!({ "nextCursor": "2", "tools": [
            { "name": "a", "inputSchema": { "type": "object" } }, { "name": "no schema" }, 7, null,
            { "name": "b", "inputSchema": {}, "description": null },
        ] });
        let page: Page<Tool> = serde_json::from_value(listed).unwrap();
        assert_eq!((page.items.len(), page.next_cursor.as_deref()), (5, Some("2")));
        let names: Vec<String> = page.valid().iter().map(|tool| tool.name.to_string()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    fn tool(value: Value) -> ToolInfo {
        tool_in(serde_json::from_value(value).unwrap())
    }

    // R: M3
    #[test]
    fn description_is_cleaned_and_cut_but_hashed_in_full() {
        let describe = |text: &str| {
            tool(json!({ "name": "t", "description": text, "inputSchema": { "type": "object" } }))
        };
        assert_eq!(describe("safe\u{200b}\u{1b}").description, "safe");
        assert_ne!(describe("safe").fingerprint, describe("safe\u{200b}").fingerprint);
        let long = "x".repeat(MAX_DESCRIPTION);
        assert!(describe(&format!("{long}1")).description.len() <= MAX_DESCRIPTION + 3);
        assert_ne!(
            describe(&format!("{long}1")).fingerprint,
            describe(&format!("{long}2")).fingerprint
        );
    }

    // R: M3
    // Fault: M12
    #[test]
    fn recursive_schema_is_unchanged_and_a_huge_one_is_replaced() {
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
