//! Each format when everything works; a server that lists its models.

use std::time::Duration;

use fake_model::FakeModel;
use serde_json::Value;

use crate::{CANARY, PACKAGES, ask};

const SCRIPT: &str = r#"
thought "Hm."
signature "SIG"
text "Hello, "
text "größe 🦀"
tool read {"path":"/a"}
tool list {}
usage 20 7 30 0
---
text "again"
"#;

#[tokio::test]
async fn every_format_answers() {
    for package in PACKAGES {
        let fake = FakeModel::start(SCRIPT).unwrap();
        let answer = ask(&fake, package).await;
        assert_eq!(answer.error, None, "{package}");
        let thought_end = match package {
            "@ai-sdk/openai" => r#"end {"id":"rs1","encrypted_content":"SIG"}"#,
            "@ai-sdk/openai-compatible" => r#"end [{"type":"reasoning.encrypted","data":"SIG"}]"#,
            _ => "end SIG",
        };
        let mut lines = answer.lines;
        lines.retain(|line| !line.starts_with("usage "));
        assert_eq!(
            lines,
            [
                "thought Hm.",
                thought_end,
                "text Hello, größe 🦀",
                r#"tool read {"path":"/a"}"#,
                "tool list {}",
                "stop EndTurn"
            ],
            "{package}"
        );
        assert_eq!(ask(&fake, package).await.text(), "again");
        let requests = fake.requests();
        assert_eq!(requests.len(), 2);
        // No connection is kept open on this machine.
        assert_eq!(requests[1].connection, 1, "{package}");
    }
}

#[tokio::test]
async fn usage_includes_the_cache() {
    for package in PACKAGES {
        let fake = FakeModel::start(SCRIPT).unwrap();
        let answer = ask(&fake, package).await;
        assert!(answer.lines.contains(&"usage 20 7 30 0".to_owned()), "{package}: {answer:?}");
    }
}

#[tokio::test]
async fn key_is_sent_in_a_header_only() {
    for package in PACKAGES {
        let fake = FakeModel::start("text \"ok\"").unwrap();
        ask(&fake, package).await;
        let request = fake.requests().remove(0);
        assert!(!request.path.contains(CANARY) && !request.body.contains(CANARY), "{package}");
        let holders: Vec<&str> = request
            .headers
            .iter()
            .filter(|(_, value)| value.contains(CANARY))
            .map(|(name, _)| name.as_str())
            .collect();
        let expected = match package {
            "@ai-sdk/anthropic" => "x-api-key",
            "@ai-sdk/google" => "x-goog-api-key",
            _ => "authorization",
        };
        assert_eq!(holders, [expected], "{package}");
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert!(body.is_object());
    }
}

#[tokio::test]
async fn answer_is_decoded_wherever_the_network_splits_it() {
    for package in PACKAGES {
        for size in [1, 3, 7] {
            let fake = FakeModel::start(&format!("slice {size}\n{SCRIPT}")).unwrap();
            let answer = ask(&fake, package).await;
            assert_eq!(answer.text(), "Hello, größe 🦀", "{package} by {size}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn local_server_lists_its_models() {
    let fake = FakeModel::start("").unwrap();
    let config = serde_json::json!({ "ollama": { "options": { "baseURL": fake.url() } } });
    let options = providers::Options {
        configured: serde_json::from_value(config).unwrap(),
        ..providers::Options::default()
    };
    let models = options.provider("ollama").ask_models(Duration::from_secs(5)).await.unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!((models[0].id.as_str(), models[0].context_size), ("ollama/fake", 64_000));
}

/// llama.cpp has two usual ports. The first place that answers is used.
#[tokio::test]
async fn local_server_is_located_at_the_first_place_that_answers() {
    // Closed at once, so nothing listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = format!("http://{closed}/v1");
    let (first, second) = (FakeModel::start("").unwrap(), FakeModel::start("").unwrap());
    let places = vec![closed, first.url(), second.url()];
    let mut options = providers::Options {
        places: [("llama.cpp".to_owned(), places)].into(),
        ..providers::Options::default()
    };
    let located = providers::locate_local(&options, Duration::from_secs(5)).await;
    assert_eq!(located["llama.cpp"], [first.url()]);
    options.places.extend(located);
    let models = options.provider("llama.cpp").ask_models(Duration::from_secs(5)).await.unwrap();
    assert_eq!(models[0].id.as_str(), "llama.cpp/fake");
    assert_eq!((first.model_list_requests(), second.model_list_requests()), (2, 1));
}
