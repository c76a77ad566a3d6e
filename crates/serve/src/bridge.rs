//! The bridge: converts between ACP's types and the engine's. Plain functions, no IO.
//!
//! `bridge::update` converts events to updates, `bridge::call` those of tool calls, and `bridge::fit` shortens what is too
//! large. `bridge::options` has modes and models. `bridge::editor` is the client for the engine.

mod call;
pub(crate) mod editor;
pub(crate) mod fit;
mod live;
pub(crate) mod options;
pub(crate) mod size;
pub(crate) mod update;

use std::path::Path;
use std::sync::Arc;

use engine::ports::{Listing, Offers, SessionInfo, State};
use engine::words::{Block, Contents, Media, Prompt, SessionId, StopReason, Usage, iso_8601};
use serde::Serialize;
use serde_json::Value;
use settings::Limits;
use wire::RpcError;
use wire::acp::{fault, file_uri, schema};

use crate::error_table::message_too_large;

/// Reads a prompt, and checks that it is neither empty nor too large. A path instead of an address is relative to the
/// session's directory.
pub(crate) fn prompt_in(
    blocks: Vec<schema::ContentBlock>,
    directory: &Path,
    limits: &Limits,
) -> Result<Prompt, RpcError> {
    if blocks.is_empty() {
        return Err(fault::at("prompt", "'prompt' is empty; send at least one block".to_owned()));
    }
    let parts =
        blocks.into_iter().enumerate().map(|(index, block)| block_in(index, block, directory));
    let (blocks, mut block_meta): (Vec<Block>, Vec<Option<Value>>) =
        parts.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    if block_meta.iter().all(Option::is_none) {
        block_meta.clear();
    }
    if blocks.iter().map(data_length).sum::<u64>() > limits.max_prompt_data_bytes {
        return Err(message_too_large("image and audio data", limits.max_prompt_data_bytes));
    }
    Ok(Prompt { blocks, block_meta })
}

/// Checks the encoded size of a prompt, `_meta` and everything else included. The data of images, audio and other files has
/// a limit of its own.
pub(crate) fn check_prompt_size(
    prompt: &[schema::ContentBlock],
    encoded: usize,
    limit: u64,
) -> Result<(), RpcError> {
    use schema::{ContentBlock, EmbeddedResourceResource as Contained};
    let data = |block: &ContentBlock| match block {
        ContentBlock::Image(image) => image.data.len(),
        ContentBlock::Audio(audio) => audio.data.len(),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            Contained::BlobResourceContents(blob) => blob.blob.len(),
            _ => 0,
        },
        _ => 0,
    };
    let data: usize = prompt.iter().map(data).sum();
    match u64::try_from(encoded.saturating_sub(data)) {
        Ok(text) if text <= limit => Ok(()),
        _ => Err(message_too_large("text and `_meta`", limit)),
    }
}

/// Returns the bytes of data of a block, in base64.
fn data_length(block: &Block) -> u64 {
    match block {
        Block::Image(media) | Block::Audio(media) => media.data.len() as u64,
        Block::Resource { contents: Contents::Blob(data), .. } => data.len() as u64,
        Block::Text(_) | Block::Link { .. } | Block::Resource { .. } => 0,
    }
}

/// Rejects an empty address.
fn refuse_empty(uri: &str, at: &str) -> Result<(), RpcError> {
    if uri.trim().is_empty() {
        return Err(fault::at(at, format!("'{at}' is empty: expected the address of a resource")));
    }
    Ok(())
}

/// Reads a block, and its members that the engine does not know.
fn block_in(
    index: usize,
    block: schema::ContentBlock,
    directory: &Path,
) -> Result<(Block, Option<Value>), RpcError> {
    use schema::EmbeddedResourceResource as Contained;
    Ok(match block {
        schema::ContentBlock::Text(mut text) => {
            let words = std::mem::take(&mut text.text);
            (Block::Text(words), meta(&text, &["text"]))
        }
        schema::ContentBlock::Image(mut image) => {
            let data = std::mem::take(&mut image.data);
            let media = Media { data, mime: image.mime_type.clone() };
            (Block::Image(media), meta(&image, &["data", "mimeType"]))
        }
        schema::ContentBlock::ResourceLink(link) => {
            refuse_empty(&link.uri, &format!("prompt[{index}].uri"))?;
            let meta = meta(&link, &["uri", "name"]);
            (Block::Link { uri: address(link.uri, directory), name: link.name }, meta)
        }
        schema::ContentBlock::Resource(mut resource) => {
            let nothing = schema::BlobResourceContents::new("", "");
            let contained = Contained::BlobResourceContents(nothing);
            let (uri, mime, contents) = match std::mem::replace(&mut resource.resource, contained) {
                Contained::TextResourceContents(text) => {
                    (text.uri, text.mime_type, Contents::Text(text.text))
                }
                Contained::BlobResourceContents(blob) => {
                    (blob.uri, blob.mime_type, Contents::Blob(blob.blob))
                }
                _ => return Err(unsupported(index)),
            };
            refuse_empty(&uri, &format!("prompt[{index}].resource.uri"))?;
            let meta = meta(&resource, &["resource"]);
            (Block::Resource { uri: address(uri, directory), mime, contents }, meta)
        }
        _ => return Err(unsupported(index)),
    })
}

/// Returns the members of a block that the engine does not know.
fn meta(block: &impl Serialize, known: &[&str]) -> Option<Value> {
    let Ok(Value::Object(mut members)) = serde_json::to_value(block) else { return None };
    members.retain(|key, value| !known.contains(&key.as_str()) && !value.is_null());
    (!members.is_empty()).then_some(Value::Object(members))
}

/// Returns the address of a file that is given by its path.
fn address(uri: String, directory: &Path) -> String {
    let is_path =
        uri.starts_with('/') || uri.split('/').next().is_some_and(|first| !first.contains(':'));
    if uri.is_empty() || !is_path {
        return uri;
    }
    file_uri::encode(&directory.join(uri).to_string_lossy())
}

fn unsupported(index: usize) -> RpcError {
    let path = format!("prompt[{index}].type");
    fault::at(
        &path,
        format!("'{path}' is not supported; see promptCapabilities in the answer to initialize"),
    )
}

/// Reads the id of a session.
pub(crate) fn session_in(id: &schema::SessionId) -> SessionId {
    SessionId::new(Arc::clone(&id.0))
}

/// Converts a block.
pub(crate) fn block_out(block: Block) -> schema::ContentBlock {
    match block {
        Block::Text(text) => schema::ContentBlock::Text(schema::TextContent::new(text)),
        Block::Image(media) => {
            schema::ContentBlock::Image(schema::ImageContent::new(media.data, media.mime))
        }
        Block::Audio(media) => {
            schema::ContentBlock::Audio(schema::AudioContent::new(media.data, media.mime))
        }
        Block::Link { uri, name } => {
            schema::ContentBlock::ResourceLink(schema::ResourceLink::new(name, uri))
        }
        Block::Resource { uri, mime, contents } => {
            let resource = match contents {
                Contents::Text(text) => schema::EmbeddedResourceResource::TextResourceContents(
                    schema::TextResourceContents::new(text, uri).mime_type(mime),
                ),
                Contents::Blob(blob) => schema::EmbeddedResourceResource::BlobResourceContents(
                    schema::BlobResourceContents::new(blob, uri).mime_type(mime),
                ),
            };
            schema::ContentBlock::Resource(schema::EmbeddedResource::new(resource))
        }
    }
}

/// Converts a block, and adds the members that the engine does not know.
pub(crate) fn block_with(block: Block, meta: Option<Value>) -> schema::ContentBlock {
    let block = block_out(block);
    let Some(Value::Object(meta)) = meta else { return block };
    let Ok(Value::Object(mut members)) = serde_json::to_value(&block) else { return block };
    for (key, value) in meta {
        members.entry(key).or_insert(value);
    }
    serde_json::from_value(Value::Object(members)).unwrap_or(block)
}

/// Converts a stop reason.
pub(crate) fn stop_out(stop: StopReason) -> schema::StopReason {
    match stop {
        StopReason::EndTurn => schema::StopReason::EndTurn,
        StopReason::MaxTokens => schema::StopReason::MaxTokens,
        StopReason::MaxTurnRequests => schema::StopReason::MaxTurnRequests,
        StopReason::Refusal => schema::StopReason::Refusal,
        StopReason::Cancelled => schema::StopReason::Cancelled,
    }
}

/// Converts the tokens of a turn; `None` if the model reported none.
pub(crate) fn usage_out(usage: &Usage) -> Option<schema::Usage> {
    if *usage == Usage::default() {
        return None;
    }
    let some = |tokens: u64| Some(tokens).filter(|tokens| *tokens > 0);
    let total = schema::Usage::new(usage.total(), usage.input, usage.output);
    let cached = total.cached_read_tokens(some(usage.cache_read));
    Some(cached.cached_write_tokens(some(usage.cache_write)))
}

/// Converts a list of sessions.
pub(crate) fn listing_out(listing: Listing) -> schema::ListSessionsResponse {
    let sessions = listing.sessions.into_iter().map(info_out).collect();
    schema::ListSessionsResponse::new(sessions).next_cursor(listing.next)
}

fn info_out(info: SessionInfo) -> schema::SessionInfo {
    let state = match info.state {
        State::Active => "active",
        State::Paused => "paused",
        State::Completed => "completed",
        State::Error => "error",
    };
    let mut meta = schema::Meta::new();
    meta.insert("state".to_owned(), state.into());
    meta.insert("createdAt".to_owned(), iso_8601(info.created).into());
    schema::SessionInfo::new(schema::SessionId::new(info.id.to_shared()), info.cwd)
        .title(info.title)
        .updated_at(iso_8601(info.updated))
        .meta(meta)
}

/// The members of `_meta` by which clients say that they show the output of running commands.
const LIVE: [&str; 2] = ["terminal_output", "terminal-output"];

/// Reads what a client offers.
pub(crate) fn offers_in(request: &schema::InitializeRequest) -> Offers {
    let client = &request.client_capabilities;
    let session = client.session.as_ref();
    let elicitation = client.elicitation.as_ref();
    Offers {
        read: client.fs.read_text_file,
        write: client.fs.write_text_file,
        terminal: client.terminal,
        form: elicitation.is_some_and(|elicitation| elicitation.form.is_some()),
        page: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
        live: client.meta.as_ref().is_some_and(|meta| {
            LIVE.iter().any(|name| meta.get(*name).is_some_and(|value| value == true))
        }),
        notices: session.is_some_and(|session| session.notices.is_some()),
        compaction: session.is_some_and(|session| session.compaction.is_some()),
        // Clients have sent their name for as long as there are later updates.
        later_updates: request.client_info.is_some(),
    }
}
