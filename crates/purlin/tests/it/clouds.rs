//! Azure OpenAI and Amazon Bedrock: the built program with the fake server, which checks signatures and sends real frames.

use fake_model::{ACCESS_KEY, SECRET_KEY};
use serde_json::{Value, json};

use crate::agent::{Agent, Start, text_of};
use crate::models::{BEDROCK, CANARY, Fake, ask, config_at, updates};

const MODEL: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

/// A user of Bedrock whose keys are in the environment.
fn bedrock(fake: &Fake, secret: &str) -> Start {
    let url = fake.url.trim_end_matches("/v1");
    let options =
        json!({ "baseURL": url, "region": "eu-central-1", "retryDelay": 10, "retryTimeout": 60 });
    let config = json!({
        "model": format!("amazon-bedrock/{MODEL}"),
        "limits": { "prompts_per_minute": 0 },
        "provider": { "amazon-bedrock": { "options": options } },
    });
    Agent::configured(config)
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .env("AWS_SESSION_TOKEN", "token/canary==")
}

// R: P6
#[test]
fn bedrock_answers_signed_requests_with_tools() {
    let fake = Fake::new(
        "thought \"Hm.\"\nsignature \"SIG\"\ntext \"größe \"\ntool plan {\"entries\":[\"Look\"]}\nusage 20 7 30 4\n\
         ---\nslice 3\ntext \"Done 🦀.\"",
    );
    let (mut agent, session) = bedrock(&fake, SECRET_KEY).session();
    let (reply, seen) = ask(&mut agent, &session, "Plan.");
    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    assert_eq!(text_of(&session, &seen), "größe Done 🦀.");
    assert_eq!(updates(&seen, "plan").len(), 1);
    assert_eq!(updates(&seen, "usage_update")[0]["used"], 61);
    let asked = fake.requests();
    let path = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream";
    assert_eq!(asked[0].path, path);
    let header = |name: &str| {
        asked[0].headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let authorization = header("authorization").unwrap();
    assert!(authorization.contains("/eu-central-1/bedrock/aws4_request"), "{authorization}");
    assert_eq!(header("x-amz-security-token").unwrap(), "token/canary==");
    let second: Value = serde_json::from_str(&asked[1].body).unwrap();
    let blocks = second["messages"][1]["content"].as_array().unwrap();
    assert_eq!(blocks[0]["reasoningContent"]["reasoningText"]["signature"], "SIG");
    assert_eq!(blocks[2]["toolUse"]["name"], "plan");
}

// R: P6, O1
#[test]
fn bedrock_rejects_a_wrong_secret_which_is_reported_without_it() {
    let fake = Fake::new("text \"never\"\n---\nloop");
    let (mut agent, session) = bedrock(&fake, "wrong-secret-canary").session();
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(reply["error"]["code"], -32000, "{reply}");
    let details = reply["error"]["data"]["details"].as_str().unwrap();
    assert!(
        details.contains("signature") && details.contains("AWS_SECRET_ACCESS_KEY"),
        "{details}"
    );
    assert!(!format!("{reply}{seen:?}").contains("wrong-secret-canary"));
}

// R: P6
#[test]
fn bedrock_recovers_from_throttling_and_broken_frames() {
    for fault in [
        "status 429\nbody \"{\\\"message\\\":\\\"Too many requests\\\"}\"",
        "error throttlingException \"Slow down\"",
        "error internalServerException \"Oops\"",
        "torn \"größe\"\ncut",
        "torn \"half\"\nend",
        "cut",
    ] {
        let fake =
            Fake::new(&format!("{fault}\n---\ntext \"Half \"\n{fault}\n---\ntext \"done.\""));
        // A status is an answer of its own.
        let (mut agent, session) = bedrock(&fake, SECRET_KEY).session();
        let (reply, seen) = ask(&mut agent, &session, "Go.");
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{fault}: {reply}");
        let expected = if fault.starts_with("status") { "done." } else { "Half done." };
        assert_eq!(text_of(&session, &seen), expected, "{fault}");
        assert_eq!(fake.requests().len(), 3, "{fault}");
    }
}

#[test]
fn bedrock_accepts_an_api_key_as_bearer_token() {
    let fake = Fake::new("text \"hi\"");
    let config = config_at(fake.url.trim_end_matches("/v1"), BEDROCK);
    let (mut agent, session) = Agent::configured(config).env("FAKE_KEY", CANARY).session();
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "hi", "{reply}");
    let bearer = ("authorization".to_owned(), format!("Bearer {CANARY}"));
    assert!(fake.requests()[0].headers.contains(&bearer));
}

#[test]
fn azure_is_asked_at_its_own_paths_with_its_own_header() {
    let cases = [
        (json!({}), "/openai/v1/chat/completions"),
        (
            json!({ "apiVersion": "2024-10-21" }),
            "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
        ),
    ];
    for (more, path) in cases {
        let fake = Fake::new("tool plan {\"entries\":[\"Look\"]}\n---\ntext \"hi\"");
        let mut options =
            json!({ "baseURL": fake.url.replace("/v1", "/openai"), "apiKey": CANARY });
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config =
            json!({ "model": "azure/my-gpt", "provider": { "azure": { "options": options } } });
        let (mut agent, session) = Agent::configured(config).session();
        let (reply, seen) = ask(&mut agent, &session, "Go.");
        assert_eq!(text_of(&session, &seen), "hi", "{reply}");
        let asked = &fake.requests()[0];
        assert_eq!(asked.path, path);
        assert!(asked.headers.contains(&("api-key".to_owned(), CANARY.to_owned())));
        assert_eq!(fake.body(0)["model"], "my-gpt");
        assert!(fake.body(0)["max_completion_tokens"].is_u64(), "{}", fake.body(0));
    }
}

#[test]
fn azure_without_a_resource_says_what_to_set() {
    let config = json!({ "model": "azure/my-gpt" });
    let (mut agent, session) = Agent::configured(config).env("AZURE_API_KEY", CANARY).session();
    let (reply, _) = ask(&mut agent, &session, "Go.");
    let details = reply["error"]["data"]["details"].as_str().unwrap();
    assert!(details.contains("AZURE_RESOURCE_NAME"), "{details}");
}
