//! Servers on this machine: where they are found, what they tell about their models, and how long they may take.

use serde_json::{Value, json};

use crate::agent::{Agent, text_of};
use crate::models::{CHAT, Fake, ask, config_at, updates};

/// The configuration of a user whose local model has no limits set.
fn config(fake: &Fake) -> Value {
    let mut config = config_at(&fake.url, CHAT);
    config["provider"]["fake"]["models"] = json!({ "fake": {} });
    config
}

fn notices(seen: &[Value]) -> String {
    let thoughts = updates(seen, "agent_thought_chunk").into_iter();
    thoughts.filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// Asks once and returns the window that the client is shown.
fn window(documents: &str) -> (Value, Fake) {
    let fake = Fake::new(&format!("{documents}\ntext \"hi\"\n---\nloop"));
    let (mut agent, session) = Agent::configured(config(&fake)).session();
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "hi", "{reply}");
    (updates(&seen, "usage_update")[0]["size"].clone(), fake)
}

// R: P6
#[test]
fn window_is_read_from_every_kind_of_server() {
    let cases = [
        r#"document /props 200 {"default_generation_settings":{"n_ctx":9000},"chat_template":"{% if tools %}"}"#,
        r#"document /v1/models 200 {"data":[{"id":"fake","meta":{"n_ctx":9000,"n_ctx_train":32768}}]}"#,
        r#"document /v1/models 200 {"data":[{"id":"fake","max_model_len":9000}]}"#,
        r#"document /api/v0/models 200 {"data":[{"id":"fake","max_context_length":32768,"loaded_context_length":9000}]}"#,
        "document /api/show 200 {\"model_info\":{\"qwen2.context_length\":32768},\"capabilities\":[\"tools\"]}\n\
         document /api/ps 200 {\"models\":[{\"name\":\"fake\",\"context_length\":9000}]}",
    ];
    for documents in cases {
        let (size, fake) = window(documents);
        assert_eq!(size, 9000, "{documents}");
        // The first request stays within it.
        let limit = fake.body(0)["max_tokens"].as_u64().unwrap();
        assert!(limit < 9000, "{documents}: {limit}");
    }
    // Ollama does not tell the window of a model that is not loaded; its default is small.
    let (size, _) = window(
        r#"document /api/show 200 {"model_info":{"qwen2.context_length":32768},"capabilities":["tools"]}"#,
    );
    assert_eq!(size, 4096);
}

/// A prompt longer than the window is refused with words before it is sent.
#[test]
fn long_prompt_is_refused_if_the_window_is_small() {
    let props = r#"document /props 200 {"default_generation_settings":{"n_ctx":4096},"chat_template":"tools"}"#;
    let fake = Fake::new(&format!("{props}\ntext \"hi\"\n---\nloop"));
    let (mut agent, session) = Agent::configured(config(&fake)).session();
    let (reply, _) = ask(&mut agent, &session, &"a long word ".repeat(2_000));
    assert!(reply.to_string().contains("the context window of `fake/fake` has 4096"), "{reply}");
    assert!(fake.requests().is_empty());
}

// R: P6
#[test]
fn window_is_learned_from_a_request_that_was_too_long() {
    let full = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9999,"n_ctx":6000}}"#;
    let fake = Fake::new(&format!(
        "text \"One.\"\n---\nstatus 400\nbody {}\n---\ntext \"What was.\"\n---\ntext \"Two.\"",
        Value::from(full)
    ));
    let (mut agent, session) = Agent::configured(config(&fake)).session();
    ask(&mut agent, &session, "First.");
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "Two.", "{reply}");
    assert_eq!(updates(&seen, "usage_update").last().unwrap()["size"], 6000);
    assert!(fake.body(3)["max_tokens"].as_u64().unwrap() < 6000);
}

#[test]
fn template_without_tools_is_reported_once() {
    let documents = [
        r#"document /props 200 {"default_generation_settings":{"n_ctx":32768},"chat_template":"{% for message in messages %}"}"#,
        r#"document /props 200 {"default_generation_settings":{"n_ctx":32768},"chat_template":"tools","chat_template_caps":{"supports_tools":false}}"#,
        r#"document /api/show 200 {"model_info":{"a.context_length":32768},"parameters":"num_ctx 32768","capabilities":["completion"]}"#,
    ];
    for document in documents {
        let fake = Fake::new(&format!("{document}\ntext \"hi\"\n---\nloop"));
        let (mut agent, session) = Agent::configured(config(&fake)).session();
        let (_, seen) = ask(&mut agent, &session, "Go.");
        assert!(notices(&seen).contains("has no tools"), "{document}: {}", notices(&seen));
        let (_, seen) = ask(&mut agent, &session, "Again.");
        assert!(!notices(&seen).contains("has no tools"), "{document}");
    }
}

/// A server that counts far fewer tokens than the tools have has dropped them.
#[test]
fn tools_that_were_dropped_are_noticed_by_the_counted_tokens() {
    let measure = Fake::new("text \"hi\"\n---\nloop");
    let (mut agent, session) = Agent::configured(config(&measure)).session();
    ask(&mut agent, &session, "Go.");
    let body = measure.body(0);
    let (all, tools) = (body.to_string().len(), body["tools"].to_string().len());
    let (without, with) = ((all - tools) / 4, all / 4);
    for (counted, is_told) in [(without, true), (with, false)] {
        let fake = Fake::new(&format!("text \"hi\"\nusage {counted} 1 0 0\n---\nloop"));
        let (mut agent, session) = Agent::configured(config(&fake)).session();
        let (_, seen) = ask(&mut agent, &session, "Go.");
        assert_eq!(notices(&seen).contains("has no tools"), is_told, "{counted} of {all}");
        let (_, seen) = ask(&mut agent, &session, "Again.");
        assert!(!notices(&seen).contains("has no tools"));
    }
}

#[test]
fn llama_server_reports_how_much_of_the_prompt_it_has_read() {
    let props = r#"document /props 200 {"default_generation_settings":{"n_ctx":32768},"chat_template":"tools"}"#;
    let progress = |done: u64| {
        let event = json!({ "choices": [], "prompt_progress": { "total": 9000, "cache": 0, "processed": done, "time_ms": 1 } });
        format!("raw {}", Value::from(format!("data: {event}\n\n")))
    };
    let fake = Fake::new(&format!(
        "{props}\n{}\nwait 2200\n{}\n{}\ntext \"hi\"",
        progress(512),
        progress(2048),
        progress(4096)
    ));
    let mut config = config(&fake);
    config["provider"]["fake"]["options"]["chunkTimeout"] = json!(60_000);
    let (mut agent, session) = Agent::configured(config).session();
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "hi", "{reply}");
    // Quick progress is not shown, and not every step of slow progress.
    let notices = notices(&seen);
    assert!(notices.starts_with("fake is reading the prompt: "), "{notices}");
    assert!(notices.ends_with(" of 9000 tokens\n") && notices.lines().count() == 1, "{notices}");
    assert_eq!(fake.body(0)["return_progress"], true);
}

#[test]
fn server_that_tells_nothing_is_used_as_it_is() {
    let fake = Fake::new("document /v1/models 200 {\"data\":[]}\ntext \"hi\"\n---\nloop");
    let (mut agent, session) = Agent::configured(config(&fake)).session();
    for _ in 0..2 {
        let (_, seen) = ask(&mut agent, &session, "Go.");
        assert_eq!(text_of(&session, &seen), "hi");
        assert_eq!(notices(&seen), "");
    }
    assert_eq!(fake.body(0)["return_progress"], Value::Null);
    assert_eq!(fake.model_list_requests(), 1, "it is asked once");
}

// R: P6
#[test]
fn llama_server_is_found_where_its_variable_says() {
    let fake = Fake::new("text \"hi\"");
    let port = fake.url.rsplit(':').next().unwrap().trim_end_matches("/v1").to_owned();
    let mut agent = Agent::configured(json!({})).env("LLAMA_ARG_PORT", &port).ready();
    let params = json!({ "cwd": agent.directory(), "mcpServers": [] });
    let opened = agent.result("session/new", params);
    assert_eq!(opened["models"]["currentModelId"], "llama.cpp/fake");
}
