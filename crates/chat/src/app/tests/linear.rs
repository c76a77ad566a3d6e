//! The client without a cursor: what is typed and printed, in order.

use expect_test::{Expect, expect};
use serde_json::json;

use super::desk::{Desk, chunk, permission};
use crate::app::{Command, Event};

impl Desk {
    fn line(&mut self, text: &str) {
        self.app.handle(Event::Line(text.to_owned()), self.now());
    }

    /// Everything that was printed since the last check. What was printed never changes.
    fn check_lines(&mut self, expected: &Expect) {
        let lines = self.app.take_lines();
        let text: String =
            lines.iter().map(|line| line.text().trim_end().to_owned() + "\n").collect();
        expected.assert_eq(&text);
    }

    fn tell(&mut self, update: serde_json::Value) {
        let notification = json!({ "sessionId": "s1", "update": update });
        let event = Event::Update(serde_json::from_value(notification).unwrap());
        self.app.handle(event, self.now());
    }
}

// R: C1
#[test]
fn everything_is_printed_when_it_happens() {
    let mut desk = Desk::linear();
    desk.check_lines(&expect![[r#"
        Agent 1.0  /project
        Type a prompt, or a command: /sessions, /model, /mode, /quit
    "#]]);
    desk.line("build it");
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("build it".to_owned())));
    // The terminal shows what was typed.
    desk.check_lines(&expect![""]);
    desk.tell(json!({ "sessionUpdate": "plan", "entries": [{ "content": "make", "priority": "high", "status": "in_progress" }] }));
    desk.tell(json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "make", "kind": "execute", "status": "in_progress" }));
    desk.tell(chunk("It runs.\n\n"));
    desk.check_lines(&expect![[r#"
        Plan 0/1
          ▶ make

        · $ make

        It runs.
    "#]]);
    desk.tell(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "built" } }] }),
    );
    desk.check_lines(&expect![[r#"

        ✓ $ make
          built
    "#]]);
    desk.line("and \\");
    assert_eq!(desk.commands(), []);
    desk.line("test it");
    assert!(desk.commands().contains(&Command::Steer("and \ntest it".to_owned())));
}

// R: C1
#[test]
fn question_is_printed_once_and_answered_with_a_line() {
    let mut desk = Desk::linear();
    desk.line("go");
    desk.app.take_lines();
    desk.app.handle(Event::Asked(7, permission()), desk.now());
    desk.check_lines(&expect![[r#"
        Allow "make install > log"?
        │ make install > log
          y Allow once
          s Always allow `make` in this session
        › n Reject
        Type y, s, n, or n and a reason, then Enter.
    "#]]);
    desk.commands();
    desk.line("y");
    assert_eq!(desk.commands(), [], "typed before it could be read");
    desk.app.take_lines();
    desk.wait(1000);
    desk.line("yes please");
    desk.line("");
    assert_eq!(desk.commands(), []);
    desk.app.take_lines();
    desk.line("n use the other target");
    let commands = desk.commands();
    let reason = "use the other target";
    let is_it = |command: &Command| matches!(command, Command::AnswerWithReason(7, _, said) if said == reason);
    assert!(commands.iter().any(is_it), "{commands:?}");
}

#[test]
fn lists_have_numbers() {
    let mut desk = Desk::linear();
    desk.app.take_lines();
    desk.line("/mode");
    desk.check_lines(&expect![[r#"
        Mode
        1. Build
        2. Plan
        Type a number, a text to search, or an empty line to close.
    "#]]);
    desk.line("pl");
    desk.check_lines(&expect![[r#"
        Mode
        1. Plan
        Type a number, a text to search, or an empty line to close.
    "#]]);
    desk.commands();
    desk.line("1");
    assert!(matches!(desk.commands()[..], [Command::SetMode(_)]));
    desk.line("/mode");
    desk.line("");
    assert!(!desk.commands().iter().any(|command| matches!(command, Command::SetMode(_))));
    desk.line("hello");
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("hello".to_owned())));
}
