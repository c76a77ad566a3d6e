//! The bridge: ACP's types to the engine's words and back. Plain functions, no IO.
//!
//! `bridge::update` turns events into updates; `bridge::editor` is the client as the engine sees it;
//! `bridge::dialect` prints in the client's dialect.

pub(crate) mod dialect;
pub(crate) mod editor;
pub(crate) mod update;

use std::sync::Arc;

use engine::modes::MODES;
use engine::ports::{Info, Listing, Offers, State};
use engine::session::Settings;
use engine::stamp::iso_8601;
use engine::words::{Block, Contents, Media, Prompt, StopReason, Thinking};
use wire::acp::models::{ModelInfo, ModelState};
use wire::acp::{fault, schema};
use wire::{Code, RpcError};

use crate::limits::Limits;

/// Reads a prompt, and checks what the schema cannot: that it is not empty and not too large.
pub(crate) fn prompt_in(
    blocks: Vec<schema::ContentBlock>,
    limits: &Limits,
) -> Result<Prompt, RpcError> {
    if blocks.is_empty() {
        return Err(fault::at("prompt", "'prompt' is empty; send at least one block".to_owned()));
    }
    let blocks: Vec<Block> = blocks
        .into_iter()
        .enumerate()
        .map(|(index, block)| block_in(index, block))
        .collect::<Result<_, _>>()?;
    let (text, data) =
        blocks.iter().map(sizes).fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
    if text > limits.max_prompt_bytes {
        return Err(too_large("text", limits.max_prompt_bytes));
    }
    if data > limits.max_prompt_data_bytes {
        return Err(too_large("image and audio data", limits.max_prompt_data_bytes));
    }
    Ok(Prompt { blocks })
}

fn too_large(what: &str, limit: u64) -> RpcError {
    RpcError::new(Code::INVALID_REQUEST, "Message too large")
        .details(format!("the {what} of a prompt may have {limit} bytes"))
        .with("kind", "message_too_large".into())
        .with("limit", limit.into())
}

/// Text bytes and data bytes of a block.
fn sizes(block: &Block) -> (u64, u64) {
    let size = |text: &str| text.len() as u64;
    match block {
        Block::Text(text) => (size(text), 0),
        Block::Image(media) | Block::Audio(media) => (0, size(&media.data)),
        Block::Link { uri, name } => (size(uri) + size(name), 0),
        Block::Resource { uri, contents: Contents::Text(text), .. } => (size(uri) + size(text), 0),
        Block::Resource { uri, contents: Contents::Blob(data), .. } => (size(uri), size(data)),
    }
}

fn block_in(index: usize, block: schema::ContentBlock) -> Result<Block, RpcError> {
    Ok(match block {
        schema::ContentBlock::Text(text) => Block::Text(text.text),
        schema::ContentBlock::Image(image) => {
            Block::Image(Media { data: image.data, mime: image.mime_type })
        }
        schema::ContentBlock::ResourceLink(link) => Block::Link { uri: link.uri, name: link.name },
        schema::ContentBlock::Resource(resource) => match resource.resource {
            schema::EmbeddedResourceResource::TextResourceContents(text) => Block::Resource {
                uri: text.uri,
                mime: text.mime_type,
                contents: Contents::Text(text.text),
            },
            schema::EmbeddedResourceResource::BlobResourceContents(blob) => Block::Resource {
                uri: blob.uri,
                mime: blob.mime_type,
                contents: Contents::Blob(blob.blob),
            },
            _ => return Err(unsupported(index)),
        },
        _ => return Err(unsupported(index)),
    })
}

fn unsupported(index: usize) -> RpcError {
    let path = format!("prompt[{index}].type");
    fault::at(&path, format!("'{path}' is of a kind that initialize did not offer"))
}

/// Writes a block.
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

/// Writes why a turn ended.
pub(crate) fn stop_out(stop: StopReason) -> schema::StopReason {
    match stop {
        StopReason::EndTurn => schema::StopReason::EndTurn,
        StopReason::MaxTokens => schema::StopReason::MaxTokens,
        StopReason::MaxTurnRequests => schema::StopReason::MaxTurnRequests,
        StopReason::Refusal => schema::StopReason::Refusal,
        StopReason::Cancelled => schema::StopReason::Cancelled,
    }
}

/// Writes a list of sessions.
pub(crate) fn listing_out(listing: Listing) -> schema::ListSessionsResponse {
    let sessions = listing.sessions.into_iter().map(info_out).collect();
    schema::ListSessionsResponse::new(sessions).next_cursor(listing.next)
}

fn info_out(info: Info) -> schema::SessionInfo {
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

/// Reads what a client offers. What it does not name it does not offer.
pub(crate) fn offers_in(client: &schema::ClientCapabilities) -> Offers {
    let session = client.session.as_ref();
    let elicitation = client.elicitation.as_ref();
    Offers {
        read: client.fs.read_text_file,
        write: client.fs.write_text_file,
        terminal: client.terminal,
        form: elicitation.is_some_and(|elicitation| elicitation.form.is_some()),
        page: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
        notices: session.is_some_and(|session| session.notices.is_some()),
        compaction: session.is_some_and(|session| session.compaction.is_some()),
    }
}

/// Writes the modes, for clients that read only these.
pub(crate) fn modes_out(settings: &Settings) -> schema::SessionModeState {
    let modes = MODES.iter().map(|mode| {
        schema::SessionMode::new(schema::SessionModeId::new(mode.id), mode.name)
            .description(mode.description.to_owned())
    });
    schema::SessionModeState::new(
        schema::SessionModeId::new(settings.mode.to_shared()),
        modes.collect(),
    )
}

/// Writes the models, for clients that read only these.
pub(crate) fn models_out(settings: &Settings) -> ModelState {
    let models = settings.models.iter().map(|choice| ModelInfo {
        model_id: choice.id.to_string(),
        name: choice.name.clone(),
        description: None,
    });
    ModelState { current_model_id: settings.model.to_string(), available_models: models.collect() }
}

/// Writes mode and model as config options: always the complete list.
pub(crate) fn options_out(settings: &Settings) -> Vec<schema::SessionConfigOption> {
    let value = |id: &str| schema::SessionConfigValueId::new(Arc::from(id));
    let modes: Vec<_> = MODES
        .iter()
        .map(|mode| {
            schema::SessionConfigSelectOption::new(value(mode.id), mode.name)
                .description(mode.description.to_owned())
        })
        .collect();
    let models: Vec<_> = settings
        .models
        .iter()
        .map(|choice| {
            schema::SessionConfigSelectOption::new(value(choice.id.as_str()), choice.name.clone())
        })
        .collect();
    let mut options = vec![
        schema::SessionConfigOption::select("mode", "Mode", value(settings.mode.as_str()), modes)
            .category(schema::SessionConfigOptionCategory::Mode),
        schema::SessionConfigOption::select(
            "model",
            "Model",
            value(settings.model.as_str()),
            models,
        )
        .category(schema::SessionConfigOptionCategory::Model),
    ];
    if settings.choice().is_some_and(|choice| choice.can_think) {
        let levels: Vec<_> = Thinking::ALL
            .iter()
            .map(|(_, id, name)| schema::SessionConfigSelectOption::new(value(id), *name))
            .collect();
        let now = value(settings.thinking.id());
        options.push(
            schema::SessionConfigOption::select("thinking", "Thinking", now, levels)
                .category(schema::SessionConfigOptionCategory::ThoughtLevel),
        );
    }
    options
}
