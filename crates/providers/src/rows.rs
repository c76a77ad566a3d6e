//! The table of known providers: base URLs, formats, environment variables for keys.
//!
//! A provider with a known format needs only a row here or an entry in the user's config, never a new file.

use crate::format::Format;

/// A known provider.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) format: Format,
    pub(crate) base_url: &'static str,
    /// Environment variables that may contain its key; the first that is set applies. Empty: it needs no key.
    pub(crate) variables: &'static [&'static str],
    /// Prefixes of model names. The default model is the newest that matches the first prefix.
    pub(crate) prefer: &'static [&'static str],
    /// The same for small tasks such as titles. Empty: no cheap model is known.
    pub(crate) small: &'static [&'static str],
}

/// Every row, in the order in which they are tried.
pub(crate) const ROWS: [Row; 8] = [
    Row {
        id: "anthropic",
        name: "Anthropic",
        format: Format::AnthropicMessages,
        base_url: "https://api.anthropic.com/v1",
        variables: &["ANTHROPIC_API_KEY"],
        prefer: &["claude-sonnet-", "claude-"],
        small: &["claude-haiku-"],
    },
    Row {
        id: "openai",
        name: "OpenAI",
        format: Format::OpenAiResponses,
        base_url: "https://api.openai.com/v1",
        variables: &["OPENAI_API_KEY"],
        prefer: &["gpt-5.4", "gpt-5", "gpt-"],
        small: &["gpt-5.4-nano", "gpt-5-nano", "gpt-4.1-nano"],
    },
    Row {
        id: "google",
        name: "Google",
        format: Format::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"],
        prefer: &["gemini-3.5", "gemini-3", "gemini-"],
        small: &["gemini-3.1-flash-lite", "gemini-2.5-flash-lite"],
    },
    Row {
        id: "openrouter",
        name: "OpenRouter",
        format: Format::OpenAiChat,
        base_url: "https://openrouter.ai/api/v1",
        variables: &["OPENROUTER_API_KEY"],
        prefer: &["anthropic/claude-sonnet-", "openai/gpt-5"],
        small: &["google/gemini-2.5-flash-lite", "anthropic/claude-haiku-"],
    },
    Row {
        id: "ollama",
        name: "Ollama",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:11434/v1",
        variables: &[],
        prefer: &["qwen3-coder", "qwen", "gpt-oss", "devstral"],
        small: &[],
    },
    Row {
        id: "lmstudio",
        name: "LM Studio",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:1234/v1",
        variables: &[],
        prefer: &["qwen/qwen3-coder", "qwen", "openai/gpt-oss"],
        small: &[],
    },
    Row {
        id: "llama.cpp",
        name: "llama.cpp",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:8080/v1",
        variables: &[],
        prefer: &[],
        small: &[],
    },
    Row {
        id: "vllm",
        name: "vLLM",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:8000/v1",
        variables: &[],
        prefer: &[],
        small: &[],
    },
];

impl Row {
    /// Returns whether it runs on the user's machine and needs no key.
    pub(crate) fn is_local(&self) -> bool {
        self.variables.is_empty()
    }

    pub(crate) fn find(id: &str) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.id == id)
    }
}

/// Returns the format for a package name in OpenCode's config.
pub(crate) fn format_of_package(package: &str) -> Option<Format> {
    match package {
        "@ai-sdk/anthropic" => Some(Format::AnthropicMessages),
        "@ai-sdk/openai" => Some(Format::OpenAiResponses),
        "@ai-sdk/google" => Some(Format::Gemini),
        "@ai-sdk/openai-compatible" | "@openrouter/ai-sdk-provider" => Some(Format::OpenAiChat),
        _ => None,
    }
}
