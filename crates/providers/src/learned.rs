//! What a server tells about a model: the size of its window, and whether its chat template has tools.
//!
//! Servers on this machine or in its network are asked before the first request: llama.cpp has `/props`, Ollama `/api/show`
//! and `/api/ps`, LM Studio `/api/v0/models`, vLLM and others the list of models. Every provider tells the window when a
//! request was too long for it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::ports::Request;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;

use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::http::{self, Post, Timing};

/// How long a server may take to answer a question about a model.
const LIMIT: Duration = Duration::from_millis(500);
/// The window of Ollama for a model that is not loaded and has no setting of its own.
const OLLAMA_WINDOW: u64 = 4_096;
/// A smaller window is no window but a mistake of ours or of the server.
const LEAST_WINDOW: u64 = 256;

/// What is known of a model, shared by all its requests.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Never locked across an await.
    facts: Mutex<Facts>,
    /// Held while the server is asked, so that parallel requests ask once.
    asking: AsyncMutex<()>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Facts {
    /// The window, as the server told it when asked.
    window: Option<u64>,
    /// The window, as a request showed that was too long.
    overflow: Option<u64>,
    /// Whether asking again would bring nothing new.
    is_settled: bool,
    /// Whether the server reports its progress when it reads a prompt.
    has_progress: bool,
    lacks_tools: bool,
    /// Whether the user knows that the template lacks tools.
    was_told: bool,
}

impl Learned {
    /// Returns the size of the window, if the server told it.
    pub(crate) fn window(&self) -> Option<u64> {
        self.facts().window
    }

    /// Returns the size of the window, as a request showed that was too long.
    pub(crate) fn overflow_window(&self) -> Option<u64> {
        self.facts().overflow
    }

    /// Returns whether the server reports its progress when it reads a prompt.
    pub(crate) fn has_progress(&self) -> bool {
        self.facts().has_progress
    }

    /// Asks the server, once it is known that it is nearby. Returns at once if nothing is left to learn.
    pub(crate) async fn ask(&self, endpoint: &Endpoint, name: &str) {
        if self.facts().is_settled {
            return;
        }
        let _asking = self.asking.lock().await;
        if self.facts().is_settled {
            return;
        }
        let found = find(endpoint, name).await;
        self.change(|facts| {
            facts.window = found.window.or(facts.window);
            facts.is_settled = found.is_settled;
            facts.has_progress = found.has_progress;
            facts.lacks_tools = found.lacks_tools;
        });
    }

    /// Learns from the message about a request that was too long.
    pub(crate) fn overflow(&self, message: &str) {
        if let Some(window) = window_in(message) {
            tracing::info!("the context window has {window} tokens");
            self.change(|facts| facts.overflow = Some(window));
        }
    }

    /// Returns what to tell the user if the template lacks tools, once.
    pub(crate) fn tell_missing_tools(&self) -> Option<String> {
        let mut notice = None;
        self.change(|facts| {
            if facts.lacks_tools && !std::mem::replace(&mut facts.was_told, true) {
                notice = Some(NO_TOOLS.to_owned());
            }
        });
        notice
    }

    /// Compares the tokens that the server counted with the request: a template without tools drops them silently.
    pub(crate) fn check_count(&self, request: &Request, counted: u64) -> Option<String> {
        if request.tools.is_empty() {
            return None;
        }
        let all = request.tokens();
        let tools: usize = request
            .tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.schema.text().len())
            .sum();
        let rest = all.saturating_sub(tools as u64 * 3 / 10);
        // The estimate is rough, and some servers count nothing.
        let is_without = counted <= rest + rest / 5 && counted < all / 5 * 3 && counted > rest / 3;
        if is_without {
            self.change(|facts| facts.lacks_tools = true);
        }
        self.tell_missing_tools()
    }

    fn facts(&self) -> Facts {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

const NO_TOOLS: &str = "The chat template of this model has no tools, so the model cannot read or change files. Choose a model \
                        that supports tools; llama-server also needs `--jinja`";

/// Asks a server everything at the same time. What does not exist is answered at once.
async fn find(endpoint: &Endpoint, name: &str) -> Facts {
    let root = endpoint.base_url.trim_end_matches('/').trim_end_matches("/v1");
    let show = json!({ "model": name }).to_string().into_bytes();
    let (props, shown, loaded, listed) = tokio::join!(
        get(endpoint, format!("{root}/props")),
        post(endpoint, format!("{root}/api/show"), show),
        get(endpoint, format!("{root}/api/ps")),
        get(endpoint, format!("{root}/api/v0/models")),
    );
    if let Some(facts) = props.as_ref().and_then(of_llama) {
        return facts;
    }
    if let Some(facts) = shown.as_ref().and_then(|shown| of_ollama(shown, loaded.as_ref(), name)) {
        return facts;
    }
    if let Some(facts) = listed.as_ref().and_then(|list| of_lm_studio(list, name)) {
        return facts;
    }
    let key = endpoint.key.as_ref().map(|key| (key, endpoint.key_header()));
    match http::get(&endpoint.url("/models"), key, &endpoint.headers.0, LIMIT).await {
        // It does not run, or is too busy to answer.
        Err(Fault::Unreachable(_) | Fault::Lost(_) | Fault::TimedOut(_)) => Facts::default(),
        Err(_) => Facts { is_settled: true, ..Facts::default() },
        Ok(document) => {
            let list = serde_json::from_slice(&document.body).unwrap_or_default();
            let settled = Facts { is_settled: true, ..Facts::default() };
            of_list(&list, name).unwrap_or(settled)
        }
    }
}

async fn get(endpoint: &Endpoint, url: String) -> Option<Value> {
    let key = endpoint.key.as_ref().map(|key| (key, endpoint.key_header()));
    let document = http::get(&url, key, &endpoint.headers.0, LIMIT).await.ok()?;
    serde_json::from_slice(&document.body).ok()
}

async fn post(endpoint: &Endpoint, url: String, body: Vec<u8>) -> Option<Value> {
    let key = endpoint.key.as_ref().map(|key| (key, endpoint.key_header()));
    let post = Post { url: &url, key, headers: &endpoint.headers.0, own: &[], body };
    let timing = Timing { first_byte: LIMIT, idle: LIMIT, ..Timing::default() };
    let mut body = http::post(post, timing).await.ok()?;
    serde_json::from_slice(&body.read_all(LIMIT).await.ok()?).ok()
}

/// Reads `/props` of llama.cpp.
fn of_llama(props: &Value) -> Option<Facts> {
    let window = props["default_generation_settings"]["n_ctx"].as_u64();
    let template = props["chat_template"].as_str();
    if window.is_none() && template.is_none() {
        return None;
    }
    let has_tools = props["chat_template_caps"]["supports_tools"].as_bool();
    let has_tools = has_tools.or(template.map(|template| template.contains("tools")));
    Some(Facts {
        window: window.filter(|window| *window >= LEAST_WINDOW),
        is_settled: true,
        has_progress: true,
        lacks_tools: has_tools == Some(false),
        ..Facts::default()
    })
}

/// Reads `/api/show` and `/api/ps` of Ollama. Only a loaded model has a known window, unless its own settings say it.
fn of_ollama(shown: &Value, loaded: Option<&Value>, name: &str) -> Option<Facts> {
    let info = shown["model_info"].as_object()?;
    let trained = info.iter().find(|(key, _)| key.ends_with(".context_length"));
    let trained = trained.and_then(|(_, length)| length.as_u64());
    let parameters = shown["parameters"].as_str().unwrap_or_default();
    let set = parameters.lines().find_map(|line| line.strip_prefix("num_ctx")?.trim().parse().ok());
    let running = loaded.and_then(|loaded| loaded["models"].as_array()).into_iter().flatten();
    let running = running.filter(|model| model["name"] == name || model["model"] == name);
    let running = running.filter_map(|model| model["context_length"].as_u64()).next();
    let window = running.or(set).unwrap_or(OLLAMA_WINDOW);
    let abilities = shown["capabilities"].as_array();
    let lacks_tools = abilities.is_some_and(|abilities| !abilities.contains(&json!("tools")));
    Some(Facts {
        window: Some(trained.map_or(window, |trained| trained.min(window))),
        is_settled: running.is_some(),
        lacks_tools,
        ..Facts::default()
    })
}

/// Reads `/api/v0/models` of LM Studio.
fn of_lm_studio(list: &Value, name: &str) -> Option<Facts> {
    let model = list["data"].as_array()?.iter().find(|model| model["id"] == name)?;
    let most = model["max_context_length"].as_u64()?;
    let loaded = model["loaded_context_length"].as_u64();
    let abilities = model["capabilities"].as_array();
    let lacks_tools = abilities.is_some_and(|abilities| !abilities.contains(&json!("tool_use")));
    Some(Facts {
        // A model is loaded with 4,096 tokens unless the user chose otherwise.
        window: Some(loaded.unwrap_or(OLLAMA_WINDOW.min(most))),
        is_settled: loaded.is_some(),
        lacks_tools,
        ..Facts::default()
    })
}

/// Reads a list of models: vLLM, llama.cpp and others put the window there.
fn of_list(list: &Value, name: &str) -> Option<Facts> {
    let models = list["data"].as_array()?;
    let model = models.iter().find(|model| model["id"] == name).or(models.first())?;
    let members = [&model["meta"]["n_ctx"], &model["max_model_len"], &model["context_length"]];
    let window = members.into_iter().find_map(Value::as_u64);
    Some(Facts {
        window: window.filter(|window| *window >= LEAST_WINDOW),
        is_settled: true,
        ..Facts::default()
    })
}

/// Finds the size of the window in the message about a request that was too long.
fn window_in(message: &str) -> Option<u64> {
    const BEFORE: [&str; 5] = [
        "maximum context length is ",
        "available context size (",
        "context size: ",
        "tokens allowed (",
        "maximum context length of ",
    ];
    let digits = |text: &str| -> Option<u64> {
        let text = text.trim_start();
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != ',');
        text[..end.unwrap_or(text.len())].replace(',', "").parse().ok()
    };
    let found = BEFORE.iter().find_map(|words| digits(message.split_once(words)?.1));
    // "prompt is too long: 210000 tokens > 200000 maximum"
    let found = found.or_else(|| digits(message.split_once(" tokens > ")?.1));
    found.filter(|window| *window >= LEAST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_read_from_messages_of_all_servers() {
        let cases = [
            (
                "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                4096,
            ),
            ("the request exceeds the available context size (context size: 4096)", 4096),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000",
                8192,
            ),
            ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)",
                1_048_576,
            ),
            ("maximum context length of 32,768 tokens", 32_768),
        ];
        for (message, window) in cases {
            assert_eq!(window_in(message), Some(window), "{message}");
        }
        for message in
            ["too long", "maximum context length is 0", "maximum context length is", "tokens > x"]
        {
            assert_eq!(window_in(message), None, "{message}");
        }
    }

    #[test]
    fn llama_server_tells_window_and_template() {
        let props = json!({
            "default_generation_settings": { "n_ctx": 4096 },
            "chat_template": "{% for message in messages %}",
        });
        let facts = of_llama(&props).unwrap();
        assert_eq!((facts.window, facts.lacks_tools), (Some(4096), true));
        assert!(facts.is_settled && facts.has_progress);
        let mut props = props;
        props["chat_template_caps"] = json!({ "supports_tools": true });
        assert!(!of_llama(&props).unwrap().lacks_tools);
        assert_eq!(of_llama(&json!({ "error": "not found" })), None);
    }

    #[test]
    fn ollama_tells_the_window_of_a_loaded_model() {
        let shown = json!({
            "model_info": { "general.architecture": "qwen2", "qwen2.context_length": 32_768 },
            "capabilities": ["completion", "tools"],
        });
        let facts = of_ollama(&shown, None, "qwen").unwrap();
        assert_eq!((facts.window, facts.is_settled, facts.lacks_tools), (Some(4096), false, false));
        let loaded = json!({ "models": [{ "name": "other", "context_length": 1 }, { "name": "qwen", "context_length": 8192 }] });
        let facts = of_ollama(&shown, Some(&loaded), "qwen").unwrap();
        assert_eq!((facts.window, facts.is_settled), (Some(8192), true));
        let mut shown = shown;
        shown["parameters"] = json!("stop \"x\"\nnum_ctx                16384");
        shown["capabilities"] = json!(["completion"]);
        let facts = of_ollama(&shown, None, "qwen").unwrap();
        assert_eq!((facts.window, facts.lacks_tools), (Some(16_384), true));
        assert_eq!(of_ollama(&json!({ "error": "model not found" }), None, "qwen"), None);
    }

    #[test]
    fn lists_of_lm_studio_vllm_and_llama_server_have_the_window() {
        let studio = json!({ "data": [{ "id": "a", "max_context_length": 32_768, "loaded_context_length": 10_000, "capabilities": ["tool_use"] }, { "id": "b", "max_context_length": 2_048 }] });
        let facts = of_lm_studio(&studio, "a").unwrap();
        assert_eq!(
            (facts.window, facts.is_settled, facts.lacks_tools),
            (Some(10_000), true, false)
        );
        let facts = of_lm_studio(&studio, "b").unwrap();
        assert_eq!((facts.window, facts.is_settled), (Some(2_048), false));
        for model in [
            json!({ "id": "m", "max_model_len": 9_000 }),
            json!({ "id": "m", "meta": { "n_ctx": 9_000, "n_ctx_train": 40_000 } }),
        ] {
            let facts = of_list(&json!({ "data": [model] }), "m").unwrap();
            assert_eq!(facts.window, Some(9_000));
        }
        assert_eq!(of_list(&json!({ "data": [] }), "m"), None);
    }
}
