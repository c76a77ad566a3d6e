//! What the model sees: instructions, skills, what a client attaches, and how a long conversation stays inside the window.

use serde_json::{Value, json};

use crate::agent::{Agent, text_of};
use crate::models::{CHAT, Fake, ask};

fn write(agent: &Agent, path: &str, text: &str) {
    let path = agent.folder().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// What a request in the chat format tells the model first.
fn system(body: &Value) -> &str {
    body["messages"][0]["content"].as_str().unwrap()
}

// R: P4
#[test]
fn instructions_and_skills_reach_the_model_when_they_are_due() {
    let fake = Fake::new(
        "tool read {\"filePath\":\"sub/a.txt\"}\ntool read {\"filePath\":\"sub/b.txt\"}\n---\n\
         tool skill {\"name\":\"ship\"}\n---\ntext \"Done.\"",
    );
    let mut agent = fake.agent(CHAT).ready();
    write(&agent, "AGENTS.md", "Top says hello.");
    write(&agent, "sub/CLAUDE.md", "Sub says hello.");
    write(&agent, "sub/a.txt", "a");
    write(&agent, "sub/b.txt", "b");
    write(&agent, ".config/purlin/CLAUDE.md", "The user says hello.");
    let skill = "---\nname: ship\ndescription: How we ship\n---\nPush the button.";
    write(&agent, ".claude/skills/ship/SKILL.md", skill);
    let session = agent.open();
    let (reply, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(reply["result"]["stopReason"], "end_turn", "{reply}");
    assert_eq!(text_of(&session, &seen), "Done.");
    let first = fake.body(0);
    let told = system(&first);
    for part in ["The user says hello.", "Top says hello.", "- ship: How we ship", "- Tools: read,"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("Sub says") && !told.contains("Push the button"), "{told}");
    let all = fake.body(2)["messages"].to_string();
    assert_eq!(all.matches("Sub says hello.").count(), 1, "{all}");
    assert!(all.contains("Push the button."), "{all}");
}

#[test]
fn what_a_client_attaches_reaches_the_model() {
    let fake = Fake::new("text \"Seen.\"");
    let (mut agent, session) = fake.agent(CHAT).session();
    write(&agent, "given.txt", "what the context file holds");
    let prompt = json!([
        { "type": "text", "text": "Look." },
        { "type": "resource_link", "uri": "file:///w/linked.txt", "name": "linked.txt" },
        { "type": "resource", "resource": { "uri": "file:///w/held.txt", "text": "what it holds" } },
        { "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" },
    ]);
    let params = json!({ "sessionId": session, "prompt": prompt, "contextFiles": ["given.txt"] });
    agent.result("session/prompt", params);
    let body = fake.body(0)["messages"].to_string();
    for part in ["linked.txt", "what it holds", "iVBORw0KGgo=", "given.txt"] {
        assert!(body.contains(part), "{part}: {body}");
    }
}
