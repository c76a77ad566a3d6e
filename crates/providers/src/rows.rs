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
    /// Empty: it depends on the user's resource or region.
    pub(crate) base_url: &'static str,
    /// Other base URLs of a local server.
    pub(crate) other_urls: &'static [&'static str],
    /// Environment variables that may contain its key; the first that is set applies. Empty: it needs no key.
    pub(crate) variables: &'static [&'static str],
    /// Prefixes of model names. The default model is the newest that matches the first prefix.
    pub(crate) prefer: &'static [&'static str],
    /// The same for small tasks such as titles. Empty: no cheap model is known.
    pub(crate) small: &'static [&'static str],
}

/// Every row, in the order in which they are tried.
pub(crate) const ROWS: [Row; 10] = [
    Row {
        id: "anthropic",
        name: "Anthropic",
        format: Format::AnthropicMessages,
        base_url: "https://api.anthropic.com/v1",
        other_urls: &[],
        variables: &["ANTHROPIC_API_KEY"],
        prefer: &["claude-sonnet-", "claude-"],
        small: &["claude-haiku-"],
    },
    Row {
        id: "openai",
        name: "OpenAI",
        format: Format::OpenAiResponses,
        base_url: "https://api.openai.com/v1",
        other_urls: &[],
        variables: &["OPENAI_API_KEY"],
        prefer: &["gpt-5.4", "gpt-5", "gpt-"],
        small: &["gpt-5.4-nano", "gpt-5-nano", "gpt-4.1-nano"],
    },
    Row {
        id: "google",
        name: "Google",
        format: Format::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        other_urls: &[],
        variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"],
        prefer: &["gemini-3.5", "gemini-3", "gemini-"],
        small: &["gemini-3.1-flash-lite", "gemini-2.5-flash-lite"],
    },
    Row {
        id: "openrouter",
        name: "OpenRouter",
        format: Format::OpenAiChat,
        base_url: "https://openrouter.ai/api/v1",
        other_urls: &[],
        variables: &["OPENROUTER_API_KEY"],
        prefer: &["anthropic/claude-sonnet-", "openai/gpt-5"],
        small: &["google/gemini-2.5-flash-lite", "anthropic/claude-haiku-"],
    },
    Row {
        id: "azure",
        name: "Azure OpenAI",
        format: Format::AzureChat,
        base_url: "",
        other_urls: &[],
        variables: &["AZURE_API_KEY", "AZURE_OPENAI_API_KEY"],
        prefer: &[],
        small: &[],
    },
    Row {
        id: "amazon-bedrock",
        name: "Amazon Bedrock",
        format: Format::BedrockConverse,
        base_url: "",
        other_urls: &[],
        variables: &["AWS_BEARER_TOKEN_BEDROCK"],
        prefer: &[],
        small: &[],
    },
    Row {
        id: "ollama",
        name: "Ollama",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:11434/v1",
        other_urls: &[],
        variables: &[],
        prefer: &["qwen3-coder", "qwen", "gpt-oss", "devstral"],
        small: &[],
    },
    Row {
        id: "lmstudio",
        name: "LM Studio",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:1234/v1",
        other_urls: &[],
        variables: &[],
        prefer: &["qwen/qwen3-coder", "qwen", "openai/gpt-oss"],
        small: &[],
    },
    Row {
        id: "llama.cpp",
        name: "llama.cpp",
        format: Format::OpenAiChat,
        // The default port of current versions; older ones use the other.
        base_url: "http://127.0.0.1:9931/v1",
        other_urls: &["http://127.0.0.1:8080/v1"],
        variables: &[],
        prefer: &[],
        small: &[],
    },
    Row {
        id: "vllm",
        name: "vLLM",
        format: Format::OpenAiChat,
        base_url: "http://127.0.0.1:8000/v1",
        other_urls: &[],
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
        "@ai-sdk/azure" => Some(Format::AzureChat),
        "@ai-sdk/amazon-bedrock" => Some(Format::BedrockConverse),
        "@ai-sdk/openai-compatible" | "@openrouter/ai-sdk-provider" => Some(Format::OpenAiChat),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_servers_are_looked_for_at_their_usual_ports() {
        let ports = |id: &str| {
            let row = Row::find(id).unwrap();
            let urls = std::iter::once(&row.base_url).chain(row.other_urls);
            urls.map(|url| url.split(':').nth(2).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(ports("llama.cpp"), ["9931/v1", "8080/v1"]);
        assert_eq!(ports("ollama"), ["11434/v1"]);
        assert_eq!(ports("lmstudio"), ["1234/v1"]);
        assert_eq!(ports("vllm"), ["8000/v1"]);
    }
}
