//! What servers add to a prompt: their prompts as slash commands, and their resources as attachments.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine::commands::COMMANDS;
use engine::ports::Expanded;
use engine::words::{Block, Prompt, SlashCommand};
use rmcp::model::{GetPromptResult, JsonObject, Prompt as Template, ReadResourceResult, Role};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::clean::{clean, clean_line};
use crate::connection::Failure;
use crate::offer::public_name;
use crate::report;
use crate::server::Server;
use crate::session::SessionServers;
use crate::supervisor::call_error;
use crate::tool::{block_in, resource_in};

/// How long a server may take to return a prompt or a resource. It is short because the user is waiting.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most resources that one prompt can attach.
const MAX_ATTACHED: usize = 16;

/// Returns the prompts of servers as commands.
pub(crate) fn commands(servers: &[Arc<Server>]) -> Vec<SlashCommand> {
    let command = |(name, _, template): (String, Arc<Server>, Template)| {
        let title = template.description.or(template.title).unwrap_or_default();
        let hint = hint(template.arguments.as_deref().unwrap_or_default());
        SlashCommand {
            name: name.into(),
            description: clean_line(&title, 200).into(),
            hint: hint.map(Into::into),
        }
    };
    templates(servers).into_iter().map(command).collect()
}

/// Returns the prompts of all servers with their command names.
fn templates(servers: &[Arc<Server>]) -> Vec<(String, Arc<Server>, Template)> {
    let mut taken: HashSet<String> =
        COMMANDS.iter().map(|command| command.name.to_string()).collect();
    let mut all = Vec::new();
    for server in servers {
        for template in &server.status().offer.prompts {
            let name = public_name(server.name(), &template.name, &mut taken);
            all.push((name, Arc::clone(server), template.clone()));
        }
    }
    all
}

fn hint(arguments: &[rmcp::model::PromptArgument]) -> Option<String> {
    let word = |argument: &rmcp::model::PromptArgument| {
        let name = clean_line(&argument.name, 40);
        if argument.required == Some(true) { format!("<{name}>") } else { format!("[{name}]") }
    };
    let words: Vec<String> = arguments.iter().map(word).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Expands a prompt: answers `/mcp`, fills in a server's prompt, and attaches resources.
pub(crate) async fn expand(session: &SessionServers, prompt: Prompt) -> Expanded {
    let servers = session.servers();
    if let Some((name, arguments)) = prompt.slash_command() {
        if name == "mcp" {
            return Expanded::Answer(report::answer(session, arguments));
        }
        session.wait_for_start().await;
        let known = templates(&servers).into_iter().find(|(command, _, _)| command == name);
        if let Some((_, server, template)) = known {
            return match fill_in(&server, &template, arguments).await {
                Ok(blocks) => Expanded::Prompt(with_rest(blocks, prompt)),
                Err(why) => Expanded::Answer(format!(
                    "The MCP server `{}` could not provide this prompt: {why}",
                    server.name()
                )),
            };
        }
    }
    session.wait_for_start().await;
    Expanded::Prompt(attach(&servers, prompt).await)
}

/// Replaces the first block of a prompt.
fn with_rest(mut blocks: Vec<Block>, prompt: Prompt) -> Prompt {
    let mut block_meta = Vec::new();
    if !prompt.block_meta.is_empty() {
        block_meta.resize(blocks.len(), None);
        block_meta.extend(prompt.block_meta.into_iter().skip(1));
    }
    blocks.extend(prompt.blocks.into_iter().skip(1));
    Prompt { blocks, block_meta }
}

/// Gets a prompt from a server. The words after the command are its arguments.
async fn fill_in(server: &Server, template: &Template, rest: &str) -> Result<Vec<Block>, String> {
    let Some(peer) = server.status().peer else {
        return Err("it is not available".to_owned());
    };
    let names: Vec<&str> =
        template.arguments.iter().flatten().map(|argument| argument.name.as_str()).collect();
    let arguments = arguments(&names, rest);
    let missing = template.arguments.iter().flatten().find(|argument| {
        argument.required == Some(true) && !arguments.contains_key(argument.name.as_str())
    });
    if let Some(missing) = missing {
        return Err(format!("`{}` is missing", clean_line(&missing.name, 40)));
    }
    let mut params = json!({ "name": template.name });
    if !arguments.is_empty() {
        params["arguments"] = Value::Object(arguments);
    }
    let result: GetPromptResult = with_timeout(server, peer.call("prompts/get", &params)).await?;
    let blocks = result.messages.into_iter().map(|message| {
        let (_, block) = block_in(message.content);
        match (message.role, block) {
            (Role::Assistant, Block::Text(text)) => Block::Text(format!("You said: {text}")),
            (_, block) => block,
        }
    });
    Ok(blocks.collect())
}

/// Parses `name=value` pairs and plain words. Words fill the other arguments in order; the last argument takes the rest.
fn arguments(names: &[&str], rest: &str) -> JsonObject {
    let mut given = JsonObject::new();
    let mut left = rest;
    while !left.is_empty() {
        let (word, after) = left.split_once(char::is_whitespace).unwrap_or((left, ""));
        let (name, value, next) = match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => (name, value, after),
            _ => {
                let mut free = names.iter().filter(|name| !given.contains_key(**name));
                let Some(name) = free.next() else {
                    break;
                };
                if free.next().is_none() { (*name, left, "") } else { (*name, word, after) }
            }
        };
        given.insert(name.to_owned(), Value::String(value.to_owned()));
        left = next.trim_start();
    }
    given
}

/// Attaches resources: replaces links to them, and adds those that the text mentions as `@server:uri`.
async fn attach(servers: &[Arc<Server>], prompt: Prompt) -> Prompt {
    let mut changed = Prompt::default();
    let has_meta = !prompt.block_meta.is_empty();
    let mut block_meta = prompt.block_meta.into_iter();
    let mut remaining = MAX_ATTACHED;
    for block in prompt.blocks {
        let meta = block_meta.next().flatten();
        let wanted: Vec<(Arc<Server>, String)> = match &block {
            Block::Link { uri, .. } => owner(servers, uri).into_iter().collect(),
            Block::Text(text) => mentions(servers, text),
            Block::Image(_) | Block::Audio(_) | Block::Resource { .. } => Vec::new(),
        };
        if !matches!(block, Block::Link { .. }) || wanted.is_empty() {
            changed.blocks.push(block);
            changed.block_meta.push(meta);
        }
        for (server, uri) in wanted.into_iter().take(remaining) {
            remaining -= 1;
            match read(&server, &uri).await {
                Ok(contents) => changed.blocks.extend(contents),
                Err(why) => changed.blocks.push(Block::Text(format!(
                    "[could not read {} from the MCP server `{}`: {why}]",
                    clean_line(&uri, 200),
                    server.name()
                ))),
            }
            changed.block_meta.resize(changed.blocks.len(), None);
        }
    }
    if !has_meta {
        changed.block_meta.clear();
    }
    changed
}

/// Finds the server that lists a resource.
fn owner(servers: &[Arc<Server>], uri: &str) -> Option<(Arc<Server>, String)> {
    let lists = |server: &&Arc<Server>| {
        server.status().offer.resources.iter().any(|resource| resource.uri == uri)
    };
    servers.iter().find(lists).map(|server| (Arc::clone(server), uri.to_owned()))
}

/// Finds `@server:uri` in a text.
fn mentions(servers: &[Arc<Server>], text: &str) -> Vec<(Arc<Server>, String)> {
    let mention = |word: &str| {
        let (name, uri) = word.strip_prefix('@')?.split_once(':')?;
        let server = servers.iter().find(|server| server.name() == name)?;
        uri.contains(':')
            .then(|| (Arc::clone(server), uri.trim_end_matches(['.', ',', ';']).to_owned()))
    };
    text.split_whitespace().filter_map(mention).collect()
}

async fn read(server: &Server, uri: &str) -> Result<Vec<Block>, String> {
    let Some(peer) = server.status().peer else {
        return Err("it is not available".to_owned());
    };
    let params = json!({ "uri": uri });
    let result: ReadResourceResult =
        with_timeout(server, peer.call("resources/read", &params)).await?;
    Ok(result.contents.into_iter().map(resource_in).collect())
}

async fn with_timeout<T>(
    server: &Server,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, String> {
    match timeout(TIMEOUT, work).await {
        Ok(done) => done.map_err(|err| clean(&call_error(server, &err).to_string(), 400)),
        Err(_) => Err(format!("it did not answer within {} s", TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_the_command_fill_the_arguments_in_order() {
        let read = |rest: &str| {
            let mut given: Vec<String> = arguments(&["city", "style"], rest)
                .into_iter()
                .map(|(name, value)| format!("{name}={}", value.as_str().unwrap()))
                .collect();
            given.sort();
            given.join(" ")
        };
        assert_eq!(read(""), "");
        assert_eq!(read("Bern"), "city=Bern");
        assert_eq!(read("Bern  in two words"), "city=Bern style=in two words");
        assert_eq!(read("style=dry New York"), "city=New York style=dry");
        assert_eq!(read("style=a city=b more"), "city=b style=a");
    }
}
