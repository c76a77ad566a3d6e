//! Models against the fake server, over real HTTP, when everything works.
//!
//! Failures, P01 to P36, are tested with the built program: `crates/purlin/tests/it/faults.rs`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, too, which clippy does not see"
)]

mod good;

use std::sync::Arc;

use engine::ports::{ModelError, ModelEvent, Request};
use engine::words::{Block, Message, ModelId, Prompt, Thinking};
use fake_model::FakeModel;
use futures_util::StreamExt;
use serde_json::json;

/// The formats, by the packages that select them in a config.
const PACKAGES: [&str; 4] =
    ["@ai-sdk/anthropic", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/google"];

/// A key that must appear in a header and nowhere else.
const CANARY: &str = "sk-canary-0123456789";

/// Sends one request and collects the whole answer.
async fn ask(fake: &FakeModel, package: &str) -> Received {
    let config = json!({ "fake": {
        "npm": package,
        "options": { "baseURL": fake.url(), "apiKey": CANARY },
    }});
    let options = providers::Options {
        configured: serde_json::from_value(config).unwrap(),
        ..providers::Options::default()
    };
    let mut stream = options.provider("fake").model("fake").model.answer(request());
    let mut received = Received::default();
    while let Some(event) = stream.next().await {
        received.take(event);
    }
    received
}

/// The events of one answer.
#[derive(Debug, Default)]
struct Received {
    /// A line for each event; neighbouring text is one line.
    lines: Vec<String>,
    error: Option<ModelError>,
}

impl Received {
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
            Ok(ModelEvent::Waiting { reason, .. }) => lines.push(format!("waiting {reason}")),
            Ok(ModelEvent::Notice(what)) => lines.push(format!("notice {what}")),
            Ok(ModelEvent::NotRun(why)) => lines.push(format!("not run: {why}")),
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
        traceparent: None,
    }
}
