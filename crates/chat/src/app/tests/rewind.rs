//! `/rewind` with a list, and prompts that wait for the agent.

use serde_json::json;

use super::desk::{Desk, chunk};
use crate::app::{Command, Event};
use crate::keys::KeyCode;
use wire::acp::schema::StopReason;

fn open() -> Desk {
    let mut desk = Desk::open(60, 24);
    desk.update(json!({ "sessionUpdate": "available_commands_update", "availableCommands": [
        { "name": "rewind", "description": "Go back", "input": { "hint": "number" } }] }));
    desk
}

// R: C1
#[test]
fn messages_to_go_back_to_are_chosen_from_a_list() {
    let mut desk = open();
    desk.type_text("/rewind");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("/rewind".to_owned())));
    desk.update(chunk("`/rewind` with a number undoes:\n- 1: First\n- 2: Sec"));
    desk.update(chunk("ond, 1 file\n"));
    desk.event(Event::TurnEnded(Ok(StopReason::EndTurn)));
    let live = desk.live_text();
    assert!(live.contains("Undo this message"), "{live}");
    assert!(live.find("Second, 1 file") < live.find("First"), "the last first:\n{live}");
    assert!(!desk.all().join("\n").contains("with a number"), "{live}");
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("/rewind 1".to_owned())));
}

#[test]
fn answer_that_is_no_list_of_messages_is_shown() {
    let mut desk = open();
    desk.send("/rewind");
    desk.update(chunk("No messages to go back to."));
    desk.event(Event::TurnEnded(Ok(StopReason::EndTurn)));
    assert!(desk.all().join("\n").contains("No messages to go back to."));
}

// R: C2
#[test]
fn prompt_sent_while_the_agent_starts_waits_for_it() {
    let mut desk = Desk::closed(60, 24);
    desk.commands();
    desk.type_text("hello");
    desk.press(KeyCode::Enter);
    assert!(!desk.commands().iter().any(|command| matches!(command, Command::Prompt(_))));
    assert!(desk.live_text().contains("⋯ hello"), "{}", desk.live_text());
    desk.connect("s1", false);
    assert!(desk.commands().contains(&Command::Prompt("hello".to_owned())));
}
