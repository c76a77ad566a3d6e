//! The formats of requests and answers, and what they share. Pure.
//!
//! Each format is a file with `encode` and a `Decoder`. `fault` classifies HTTP status codes.

pub(crate) mod anthropic_messages;
pub(crate) mod bedrock_converse;
mod common;
pub(crate) mod gemini;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
mod surrogates;
mod text_calls;

use engine::ports::Request;

use crate::fault::Fault;
use crate::sigv4::percent_encode;
use common::IdGenerator;
use surrogates::Surrogates;
use text_calls::TextCalls;

pub(crate) use common::{Events, Target};
pub(crate) use text_calls::NOT_RUN;

/// The format of a provider's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Anthropic Messages: `POST /messages`.
    AnthropicMessages,
    /// OpenAI Responses: `POST /responses`.
    OpenAiResponses,
    /// OpenAI Chat Completions: `POST /chat/completions`, which most other providers support.
    OpenAiChat,
    /// The same at Azure OpenAI, with its own paths.
    AzureChat,
    /// Google Gemini: `POST /models/…:streamGenerateContent`.
    Gemini,
    /// Amazon Bedrock Converse: `POST /model/…/converse-stream`.
    BedrockConverse,
}

impl Format {
    /// Returns the path to append to the base URL. `version`: of Azure's older interface.
    pub(crate) fn path(self, model: &str, version: Option<&str>) -> String {
        match self {
            Format::AnthropicMessages => "/messages".to_owned(),
            Format::OpenAiResponses => "/responses".to_owned(),
            Format::OpenAiChat => "/chat/completions".to_owned(),
            Format::AzureChat => match version {
                Some(version) => {
                    let model = percent_encode(model);
                    format!("/deployments/{model}/chat/completions?api-version={version}")
                }
                None => "/v1/chat/completions".to_owned(),
            },
            Format::Gemini => format!("/models/{model}:streamGenerateContent?alt=sse"),
            Format::BedrockConverse => {
                format!("/model/{}/converse-stream", percent_encode(model))
            }
        }
    }

    /// Returns the body of a request.
    pub(crate) fn encode(
        self,
        request: &Request,
        target: &Target<'_>,
    ) -> serde_json::Result<Vec<u8>> {
        match self {
            Format::AnthropicMessages => anthropic_messages::encode(request, target),
            Format::OpenAiResponses => openai_responses::encode(request, target),
            Format::OpenAiChat | Format::AzureChat => openai_chat::encode(request, target),
            Format::Gemini => gemini::encode(request, target),
            Format::BedrockConverse => bedrock_converse::encode(request, target),
        }
    }

    /// Creates the decoder for the answer to a request.
    pub(crate) fn decoder(self, request: &Request) -> Decoder {
        // Generated ids must differ from all earlier ones in the conversation.
        let ids = IdGenerator::new(request.messages.len());
        let inner = match self {
            Format::AnthropicMessages => Inner::AnthropicMessages(Default::default()),
            Format::OpenAiResponses => Inner::OpenAiResponses(Default::default()),
            Format::OpenAiChat | Format::AzureChat => {
                Inner::OpenAiChat(openai_chat::Decoder::new(ids, TextCalls::new(request)))
            }
            Format::Gemini => Inner::Gemini(gemini::Decoder::new(ids)),
            Format::BedrockConverse => Inner::BedrockConverse(bedrock_converse::Decoder::new(ids)),
        };
        Decoder { inner, surrogates: Surrogates::default() }
    }
}

/// Decodes the events of one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    inner: Inner,
    surrogates: Surrogates,
}

#[derive(Debug)]
enum Inner {
    AnthropicMessages(anthropic_messages::Decoder),
    OpenAiResponses(openai_responses::Decoder),
    OpenAiChat(openai_chat::Decoder),
    Gemini(gemini::Decoder),
    BedrockConverse(bedrock_converse::Decoder),
}

impl Decoder {
    /// Decodes the data of one event. Unknown events are ignored.
    pub(crate) fn decode(&mut self, data: &str, out: &mut Events) -> Result<(), Fault> {
        let data = &*self.surrogates.join(data);
        match &mut self.inner {
            Inner::AnthropicMessages(decoder) => decoder.decode(data, out),
            Inner::OpenAiResponses(decoder) => decoder.decode(data, out),
            Inner::OpenAiChat(decoder) => decoder.decode(data, out),
            Inner::Gemini(decoder) => decoder.decode(data, out),
            Inner::BedrockConverse(decoder) => decoder.decode(data, out),
        }
    }

    /// Handles the end of the stream: an answer without a stop reason was cut off.
    pub(crate) fn finish(&mut self, out: &mut Events) -> Result<(), Fault> {
        match &mut self.inner {
            Inner::AnthropicMessages(_) | Inner::OpenAiResponses(_) => Err(Fault::CutOff),
            Inner::OpenAiChat(decoder) => decoder.finish(out),
            Inner::Gemini(decoder) => decoder.finish(out),
            Inner::BedrockConverse(decoder) => decoder.finish(out),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
