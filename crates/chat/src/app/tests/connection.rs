//! The connection: lost, restored, given up; logging in; sessions that cannot be opened.

use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use wire::acp::schema;

use super::desk::{Desk, chunk};
use crate::app::{Command, Continued, Event, Failure, OpenHow};
use crate::keys::KeyCode;

fn lost() -> Event {
    Event::Lost {
        reason: "The connection to the agent was lost (signal: 9 (SIGKILL)).\nlast words"
            .to_owned(),
        can_retry: true,
    }
}

fn connect_after(milliseconds: u64) -> Command {
    let id = schema::SessionId::new("s1");
    let session = Some(Continued { id, is_shown: true, last_seq: None });
    Command::Connect { after: Duration::from_millis(milliseconds), session }
}

// R: C2
#[test]
fn lost_connection_is_restored_without_repeating_what_was_shown() {
    let mut desk = Desk::open(60, 24);
    desk.send("go");
    desk.update(chunk("First. Sec"));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "Read a", "status": "completed" }));
    desk.type_text("not sent");
    desk.event(lost());
    assert_eq!(desk.commands(), [connect_after(500)]);
    // The agent sends the history again, and more than was shown before.
    desk.update(json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "go" } }));
    desk.update(chunk("First"));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "Read a", "status": "completed" }));
    desk.update(chunk(". Second, and new."));
    desk.connect("s1", true);
    desk.check(&expect![[r#"
        Agent 1.0  /project
        ? shows keys, / commands, @ files

        > go

        First. Sec

        ✓ Read a

        ✗ The connection to the agent was lost (signal: 9
        (SIGKILL)).
          last words
        Reconnecting, attempt 1 of 3…

        ond, and new.

        Connected again. The session continues.

        The connection was lost during a turn
        › Continue the turn
          Leave it
        Enter chooses, Esc leaves it
        Build · main
    "#]]);
    desk.press(KeyCode::Enter);
    assert!(matches!(desk.commands()[..], [Command::Prompt(_)]));
    desk.event(Event::TurnEnded(Ok(schema::StopReason::EndTurn)));
    assert!(desk.live_text().contains("> not sent"));
}

// R: C2
#[test]
fn three_attempts_are_made_and_enter_tries_again() {
    let mut desk = Desk::open(60, 24);
    desk.type_text("not sent");
    desk.event(lost());
    desk.event(lost());
    desk.event(lost());
    assert_eq!(desk.commands(), [connect_after(500), connect_after(1000), connect_after(2000)]);
    desk.event(lost());
    assert_eq!(desk.commands(), []);
    desk.check_live(&expect![[r#"

        ✗ Not connected. Enter tries again
        > not sent
        Build · main
    "#]]);
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands(), [connect_after(0)]);
    desk.connect("s1", true);
    // Enter did not send the text; the next one does.
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("not sent".to_owned())));
}

// R: C4
#[test]
fn agent_that_cannot_be_used_is_reported_at_once() {
    let mut desk = Desk::closed(60, 24);
    desk.commands();
    desk.event(Event::Lost {
        reason: "the agent supports version 2 of the protocol, not 1".to_owned(),
        can_retry: false,
    });
    assert_eq!(desk.commands(), []);
    assert!(desk.live_text().contains("Not connected. Enter tries again"));
}

// R: C4
#[test]
fn authentication_is_asked_for() {
    let mut desk = Desk::closed(60, 24);
    desk.connect("s1", false);
    let failure = Failure { text: "Authentication required".to_owned(), code: Some(-32000) };
    desk.event(Event::NotOpened(failure));
    desk.commands();
    desk.check_live(&expect![[r#"

        No session. Enter opens one
        Log in
        › API key
        Enter chooses, Esc closes, type to search
        Build · main
    "#]]);
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands(), [Command::Authenticate(schema::AuthMethodId::new("key"))]);
}

// R: C4
#[test]
fn session_that_fails_can_be_started_again() {
    let mut desk = Desk::open(60, 24);
    desk.event(lost());
    desk.commands();
    desk.event(Event::NotOpened(Failure {
        text: "Session s1 not found".to_owned(),
        code: Some(-32002),
    }));
    assert!(desk.all().iter().any(|line| line.contains("Session s1 not found")));
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands(), [Command::Open(OpenHow::New)]);
}

#[test]
fn agent_that_ignores_a_cancel_can_be_restarted() {
    let mut desk = Desk::open(60, 24);
    desk.send("go");
    desk.press(KeyCode::Esc);
    desk.pass(11_000);
    assert!(desk.live_text().contains("Not cancelled yet. Ctrl-C restarts the agent"));
    desk.commands();
    desk.key(crate::keys::Key::ctrl('c'));
    assert_eq!(desk.commands(), [Command::Kill]);
}

// R: C2
#[test]
fn turn_on_a_server_goes_on_without_us() {
    let mut desk = Desk::closed(60, 24);
    desk.is_remote = true;
    desk.connect("s1", false);
    let numbered = |desk: &mut Desk, seq: u64, text: &str| {
        let notification =
            json!({ "sessionId": "s1", "update": chunk(text), "_meta": { "seq": seq } });
        desk.event(Event::Update(serde_json::from_value(notification).unwrap()));
    };
    desk.send("go");
    numbered(&mut desk, 4, "First. ");
    desk.event(lost());
    let session = Continued { id: schema::SessionId::new("s1"), is_shown: true, last_seq: Some(4) };
    let after = Duration::from_millis(500);
    assert_eq!(desk.commands(), [Command::Connect { after, session: Some(session) }]);
    // What was missed, and something that was shown.
    numbered(&mut desk, 4, "First. ");
    numbered(&mut desk, 5, "Second.\n\n");
    desk.connect("s1", true);
    assert_eq!(desk.commands(), [Command::PromptAgain]);
    numbered(&mut desk, 6, "Third.\n\n");
    desk.event(Event::TurnEnded(Ok(schema::StopReason::EndTurn)));
    let all = desk.all().join("\n");
    for once in ["First.", "Second.", "Third."] {
        assert_eq!(all.matches(once).count(), 1, "{all}");
    }
    assert!(!all.contains("Continue the turn"), "{all}");
}

// R: C1, C3
#[test]
fn what_an_agent_says_about_a_session_before_it_is_open_is_not_lost() {
    let mut desk = Desk::closed(60, 24);
    let commands = |name: &str| json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": name, "description": "" }] });
    desk.update(commands("first"));
    desk.update(chunk("Welcome.\n\n"));
    desk.connect("s1", false);
    assert!(desk.all().join("\n").contains("Welcome."));
    desk.type_text("/firs");
    assert!(desk.live_text().contains("› first"), "{}", desk.live_text());
    // The same while another session is loaded, whose history is shown meanwhile.
    desk.key(crate::keys::Key::ctrl('u'));
    desk.event(Event::Sessions(Ok(serde_json::from_value(
        json!([{ "sessionId": "s2", "cwd": "/project" }]),
    )
    .unwrap())));
    desk.press(KeyCode::Enter);
    let of_other =
        |update| serde_json::from_value(json!({ "sessionId": "s2", "update": update })).unwrap();
    desk.event(Event::Update(of_other(commands("second"))));
    desk.event(Event::Update(of_other(chunk("History.\n\n"))));
    desk.connect("s2", true);
    desk.type_text("/sec");
    assert!(desk.live_text().contains("› second"), "{}", desk.live_text());
    let all = desk.all().join("\n");
    assert_eq!(all.matches("History.").count(), 1, "{all}");
}
