//! What works: each format's good path, connections that are used again, servers found on this machine.

use std::time::Duration;

use serde_json::Value;

use crate::{CANARY, Fake, PACKAGES};

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
async fn every_format_works_and_uses_its_connection_again() {
    for package in PACKAGES {
        let fake = Fake::new(SCRIPT).await;
        let heard = fake.ask(package).await;
        assert_eq!(heard.error, None, "{package}");
        let seal = match package {
            "@ai-sdk/openai" => r#"end {"id":"rs1","encrypted_content":"SIG"}"#,
            "@ai-sdk/openai-compatible" => r#"end [{"type":"reasoning.encrypted","data":"SIG"}]"#,
            _ => "end SIG",
        };
        let mut lines = heard.lines;
        lines.retain(|line| !line.starts_with("usage "));
        assert_eq!(
            lines,
            [
                "thought Hm.",
                seal,
                "text Hello, größe 🦀",
                r#"tool read {"path":"/a"}"#,
                "tool list {}",
                "stop EndTurn"
            ],
            "{package}"
        );
        assert_eq!(fake.ask(package).await.text(), "again");
        let asked = fake.shared.asked();
        assert_eq!(asked.len(), 2);
        assert!(asked.iter().all(|asked| asked.connection == 0), "{package}: connected twice");
    }
}

#[tokio::test]
async fn usage_counts_the_cache() {
    for package in PACKAGES {
        let fake = Fake::new(SCRIPT).await;
        let heard = fake.ask(package).await;
        assert!(heard.lines.contains(&"usage 20 7 30 0".to_owned()), "{package}: {heard:?}");
    }
}

#[tokio::test]
async fn the_key_goes_into_a_header_and_nowhere_else() {
    for package in PACKAGES {
        let fake = Fake::new("text \"ok\"").await;
        fake.ask(package).await;
        let asked = fake.shared.asked().remove(0);
        assert!(!asked.path.contains(CANARY) && !asked.body.contains(CANARY), "{package}");
        let holders: Vec<&str> = asked
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
        let body: Value = serde_json::from_str(&asked.body).unwrap();
        assert!(body.is_object());
    }
}

#[tokio::test]
async fn bytes_may_be_cut_anywhere() {
    for package in PACKAGES {
        for size in [1, 3, 7] {
            let fake = Fake::new(&format!("slice {size}\n{SCRIPT}")).await;
            let heard = fake.ask(package).await;
            assert_eq!(heard.text(), "Hello, größe 🦀", "{package} by {size}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn a_server_lists_its_models() {
    let fake = Fake::new("").await;
    let config = serde_json::json!({ "ollama": { "options": { "baseURL": fake.url } } });
    let options = providers::Options {
        configured: serde_json::from_value(config).unwrap(),
        ..providers::Options::default()
    };
    let models = options.provider("ollama").ask_models(Duration::from_secs(5)).await.unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!((models[0].id.as_str(), models[0].context_size), ("ollama/fake", 64_000));
}
