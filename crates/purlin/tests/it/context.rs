//! What the model sees: instructions, skills, attachments, and a long conversation in a small context window.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::agent::{Agent, text_of};
use crate::directory::Directory;
use crate::models::{CHAT, Fake, ask, updates};

fn write(agent: &Agent, path: &str, text: &str) {
    let path = agent.directory().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Returns the system message of a request in the chat format.
#[test]
fn instructions_and_skills_reach_the_model_when_needed() {
    let fake = Fake::new(
        "tool read {\"filePath\":\"sub/a.txt\"}\ntool read {\"filePath\":\"sub/b.txt\"}\n---\n\
         tool skill {\"name\":\"ship\"}\n---\ntext \"Done.\"",
    );
    let mut agent = fake.agent(CHAT).ready();
    write(&agent, "AGENTS.md", "Top says hello.");
    write(&agent, "sub/CLAUDE.md", "Sub says hello.");
    write(&agent, "house/rules.md", "The rules say hello.");
    write(&agent, "purlin.json", "{ \"instructions\": [\"house/*.md\"] }");
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
    // What differs between projects comes in the first message, so that the system prompt stays the same.
    let notice = &first["messages"][1]["content"].to_string();
    for part in
        ["The user says hello.", "Top says hello.", "The rules say hello.", "- ship: How we ship"]
    {
        assert!(notice.contains(part), "{part}: {notice}");
    }
    assert!(!notice.contains("Sub says") && !notice.contains("Push the button"), "{notice}");
    let all = fake.body(2)["messages"].to_string();
    assert_eq!(all.matches("Sub says hello.").count(), 1, "{all}");
    assert!(all.contains("Push the button."), "{all}");
    let (_, seen) = ask(&mut agent, &session, "/context");
    let shown = text_of(&session, &seen);
    let origin = format!("| instructions | {}/house/rules.md |", agent.directory().display());
    assert!(shown.contains(&origin), "{shown}");
}

#[test]
fn attachments_of_a_client_reach_the_model() {
    let fake = Fake::new("text \"Seen.\"");
    let (mut agent, session) = fake.agent(CHAT).session();
    write(&agent, "given.txt", "what the context file holds");
    let prompt = json!([
        { "type": "text", "text": "Look." },
        { "type": "resource_link", "uri": "file:///w/linked.txt", "name": "linked.txt" },
        { "type": "resource", "resource": { "uri": "file:///w/held.txt", "text": "what it holds" } },
        { "type": "image", "mimeType": "image/png", "data": png(1) },
    ]);
    let params = json!({ "sessionId": session, "prompt": prompt, "contextFiles": ["given.txt"] });
    agent.result("session/prompt", params);
    let body = fake.body(0)["messages"].to_string();
    for part in ["linked.txt", "what it holds", png(1).as_str(), "given.txt"] {
        assert!(body.contains(part), "{part}: {body}");
    }
}

/// Returns a PNG image of this width and one pixel height, in base64.
fn png(width: u32) -> String {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, 2);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![7; width as usize * 6]).unwrap();
    writer.finish().unwrap();
    STANDARD.encode(bytes)
}

/// Returns width and height of a JPEG in base64.
fn jpeg_size(data: &str) -> (u16, u16) {
    let bytes = STANDARD.decode(data).unwrap();
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let number = |at: usize| u16::from_be_bytes([bytes[frame + at], bytes[frame + at + 1]]);
    (number(7), number(5))
}

// R: P1
#[test]
fn large_image_is_scaled_down_for_the_model_and_stored_unchanged() {
    let fake = Fake::new("text \"Seen.\"\n---\nloop");
    let data = Directory::new();
    let start = fake.agent(CHAT).storing_in(&data);
    let (mut agent, session) = start.session();
    let (large, broken) = (png(4000), "iVBORw0KGgo=");
    let prompt = json!([
        { "type": "text", "text": "Look." },
        { "type": "image", "mimeType": "image/png", "data": large },
        { "type": "image", "mimeType": "image/png", "data": broken },
    ]);
    agent.take_seen();
    let id = agent.call("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
    assert_eq!(agent.reply(id)["result"]["stopReason"], "end_turn");
    let seen = agent.take_seen();
    let notice = updates(&seen, "agent_thought_chunk")[0]["content"]["text"].to_string();
    assert!(notice.contains("An image was not sent to the model: it is a damaged PNG"), "{notice}");

    let message = fake.body(0)["messages"][1]["content"].clone();
    let is_picture = |block: &Value| block["type"] == "image_url";
    let at = message.as_array().unwrap().iter().position(is_picture).unwrap();
    let url = message[at]["image_url"]["url"].as_str().unwrap();
    let sent = url.strip_prefix("data:image/jpeg;base64,").unwrap();
    assert_eq!(jpeg_size(sent), (2000, 1));
    let instead = message[at + 1]["text"].as_str().unwrap();
    assert!(instead.contains("it is a damaged PNG"), "{instead}");

    // The next request has the same image, the user gets no second notice, and the history has the original.
    let (_, seen) = ask(&mut agent, &session, "And?");
    assert_eq!(fake.body(1)["messages"][1]["content"], message);
    assert!(updates(&seen, "agent_thought_chunk").is_empty());
    agent.take_seen();
    let cwd = agent.directory().to_owned();
    agent.result("session/load", json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
    let seen = agent.take_seen();
    let shown = updates(&seen, "user_message_chunk");
    let stored: Vec<&Value> = shown.iter().map(|update| &update["content"]["data"]).collect();
    assert!(stored.contains(&&json!(large)) && stored.contains(&&json!(broken)));
}

/// The context window of the model in the long conversation, in tokens.
const WINDOW: usize = 32_000;

// R: Q3
#[test]
fn conversation_of_500_turns_fits_a_small_window() {
    let fake = Fake::new(
        "tool read {\"filePath\":\"notes.txt\"}\n---\ntext \"An answer that says a little. \"\n---\nloop",
    );
    let mut config = fake.config(CHAT);
    config["provider"]["fake"]["models"]["fake"]["limit"] =
        json!({ "context": WINDOW, "output": 4_000 });
    let data = Directory::new();
    let (mut agent, session) = Agent::configured(config.clone()).storing_in(&data).session();
    write(&agent, "notes.txt", &"A line of notes.\n".repeat(400));
    let words = "Some words that fill the window, as people's words do. ".repeat(30);
    for turn in 0..500 {
        let (reply, _) = ask(&mut agent, &session, &format!("Message {turn}. {words}"));
        assert_eq!(reply["result"]["stopReason"], "end_turn", "{turn}: {reply}");
    }
    let asked = fake.requests();
    let summaries = asked.iter().filter(|asked| asked.body.contains("Write the summary now."));
    assert!(summaries.count() > 10);
    let longest = asked.iter().map(|asked| asked.body.len()).max().unwrap();
    // The server always reports 15 tokens, so only our own estimate can leave space for the answer.
    assert!(longest / 4 + 4_000 <= WINDOW, "{longest} bytes");
    assert!(asked.last().unwrap().body.contains("Message 499."));
    let directory = agent.directory().to_owned();
    agent.close_input();
    agent.wait(crate::agent::DEADLINE);

    // After a restart the model still sees the summary instead of the whole conversation.
    let mut agent = Agent::configured(config).storing_in(&data).ready();
    let params = json!({ "sessionId": session, "cwd": directory, "mcpServers": [] });
    agent.result("session/resume", params);
    ask(&mut agent, &session, "Once more.");
    let last = fake.requests().last().unwrap().body.clone();
    assert!(last.contains("was compacted") && last.len() / 4 + 4_000 <= WINDOW);
}

#[test]
fn cost_and_context_are_shown_also_after_a_restart() {
    let fake = Fake::new("text \"Hi.\"\nusage 100 10 0 0\n---\nloop");
    let data = Directory::new();
    let config = fake.config(CHAT);
    let (mut agent, session) = Agent::configured(config.clone()).storing_in(&data).session();
    write(&agent, "AGENTS.md", "Be kind.");
    ask(&mut agent, &session, "Hello.");
    let (_, seen) = ask(&mut agent, &session, "/context");
    let text = text_of(&session, &seen);
    let origin = format!("| instructions | {}/AGENTS.md |", agent.directory().display());
    for part in [origin.as_str(), "are in use (", "| tools | read, ", "1 of the user, 1 answers"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    agent.close_input();
    agent.wait(crate::agent::DEADLINE);
    let mut agent = Agent::configured(config).storing_in(&data).ready();
    let cwd = agent.directory().to_owned();
    agent.result("session/resume", json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
    let (_, seen) = ask(&mut agent, &session, "/cost");
    let text = text_of(&session, &seen);
    assert!(text.contains("| `fake/fake` | 1 | 100 | 0 | 0 | 10 | $120.0000 |"), "{text}");
}
