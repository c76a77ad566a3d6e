//! Models against the fake server, over real HTTP: each format's good path.
//!
//! What goes wrong, P01 to P36, is tested with the built program: `crates/purlin/tests/it/faults.rs`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

#[path = "../../examples/fake_model/script.rs"]
mod script;
#[path = "../../examples/fake_model/server.rs"]
mod server;
#[path = "../../examples/fake_model/speak.rs"]
mod speak;

mod good;

use std::sync::Arc;

use engine::ports::{ModelError, ModelEvent, Request};
use engine::words::{Block, Message, ModelId, Prompt, Thinking};
use futures_util::StreamExt;
use serde_json::json;
use tokio::task::JoinSet;

/// The formats by the packages that stand for them in a config.
const PACKAGES: [&str; 4] =
    ["@ai-sdk/anthropic", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/google"];

/// A key that must turn up nowhere but in a header.
const CANARY: &str = "sk-canary-0123456789";

/// A fake server that runs until it is dropped.
struct Fake {
    url: String,
    shared: Arc<server::Shared>,
    _task: JoinSet<()>,
}

impl Fake {
    async fn new(text: &str) -> Fake {
        let shared = server::Shared::new(script::parse(text).unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(server::serve(listener, Arc::clone(&shared)));
        Fake { url: format!("http://{address}/v1"), shared, _task: task }
    }

    /// Asks, and hears the answer to its end.
    async fn ask(&self, package: &str) -> Heard {
        let config = json!({ "fake": {
            "npm": package,
            "options": { "baseURL": self.url, "apiKey": CANARY },
        }});
        let options = providers::Options {
            configured: serde_json::from_value(config).unwrap(),
            ..providers::Options::default()
        };
        let mut stream = options.provider("fake").model("fake").model.answer(request());
        let mut heard = Heard::default();
        while let Some(event) = stream.next().await {
            heard.take(event);
        }
        heard
    }
}

/// What came of a request.
#[derive(Debug, Default)]
struct Heard {
    /// A line for each event; neighbouring text is one line.
    lines: Vec<String>,
    error: Option<ModelError>,
}

impl Heard {
    fn text(&self) -> String {
        let texts = self.lines.iter().filter_map(|line| line.strip_prefix("text "));
        texts.collect::<Vec<_>>().join("")
    }

    fn take(&mut self, event: Result<ModelEvent, ModelError>) {
        let lines = &mut self.lines;
        match event {
            Ok(ModelEvent::Text(text)) => match lines.last_mut() {
                Some(last) if last.starts_with("text ") => last.push_str(&text),
                _ => lines.push(format!("text {text}")),
            },
            Ok(ModelEvent::Thought(text)) => lines.push(format!("thought {text}")),
            Ok(ModelEvent::ThoughtEnd(seal)) => {
                lines.push(format!("end {}", seal.map(|seal| seal.data).unwrap_or_default()));
            }
            Ok(ModelEvent::Waiting(why)) => lines.push(format!("waiting {why}")),
            Ok(ModelEvent::Tool(call)) => lines.push(format!("tool {} {}", call.name, call.input)),
            Ok(ModelEvent::Usage(usage)) => {
                lines.retain(|line| !line.starts_with("usage "));
                lines.push(format!(
                    "usage {} {} {} {}",
                    usage.input, usage.output, usage.cache_read, usage.cache_write
                ));
            }
            Ok(ModelEvent::Stop(stop)) => lines.push(format!("stop {stop:?}")),
            Err(error) => self.error = Some(error),
        }
    }
}

fn request() -> Request {
    let prompt = Prompt::from(vec![Block::Text("Say something.".to_owned())]);
    Request {
        model: ModelId::new("fake/fake"),
        instructions: "Be brief.".into(),
        messages: vec![Arc::new(Message::User(prompt))],
        tools: Vec::new(),
        thinking: Thinking::Default,
    }
}
