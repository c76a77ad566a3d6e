//! The client on a terminal emulator: events in, what a person sees out, scrollback included.

mod connection;
mod desk;
mod linear;
mod rewind;

use expect_test::expect;
use serde_json::json;
use wire::acp::schema;

use super::{Command, Event};
use crate::keys::{Input, Key, KeyCode};
use desk::{Desk, chunk, permission};

// R: C1
#[test]
fn conversation_is_printed_once_and_in_order() {
    let mut desk = Desk::open(60, 24);
    desk.send("Fix the **bug**");
    desk.update(json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "Where is it?\nHm." } }));
    desk.update(chunk("# Plan\n\nI look at `src`:\n\n- first\n- sec"));
    desk.check(&expect![[r#"
        Agent 1.0  /project
        ? shows keys, / commands, @ files

        > Fix the **bug**

        ∴ Thought for 0s: Where is it?

        Plan

        I look at src:

        • first
        • sec

        ⠋ Working 0s · Esc cancels
        >
        Build · main
    "#]]);
    desk.update(chunk("ond\n"));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Edit a.rs", "kind": "edit", "status": "in_progress",
        "content": [{ "type": "diff", "path": "/project/a.rs", "oldText": "one\ntwo\n", "newText": "one\n2\n" }] }));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t2", "title": "make", "kind": "execute", "status": "in_progress" }));
    desk.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t2", "_meta": { "terminal_output": { "data": "building\u{1b}[31m 1\r building 2" } } }));
    desk.update(json!({ "sessionUpdate": "plan", "entries": [
        { "content": "look", "priority": "high", "status": "completed" }, { "content": "change", "priority": "high", "status": "in_progress" }] }));
    desk.check_live(&expect![[r#"

        ⠋ Edit a.rs +1 -1
        ⠋ $ make
           building 2

        Plan 1/2
          ☑ look
          ▶ change

        ⠋ Working 0s · Esc cancels
        >
        Build · main
    "#]]);
    desk.update(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed" }),
    );
    desk.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t2", "status": "completed", "rawOutput": { "exitCode": 2 },
        "content": [{ "type": "content", "content": { "type": "text", "text": "no rule\n" } }] }));
    desk.update(chunk("Done."));
    desk.event(Event::TurnEnded(Ok(schema::StopReason::EndTurn)));
    desk.check(&expect![[r#"
        Agent 1.0  /project
        ? shows keys, / commands, @ files

        > Fix the **bug**

        ∴ Thought for 0s: Where is it?

        Plan

        I look at src:

        • first
        • second

        ✓ Edit a.rs +1 -1
          1  one
          2 -two
          2 +2
        ✗ $ make (exit code 2)
          no rule

        Done.

        Plan 1/2
          ☑ look
          ▶ change

        >
        Build · main
    "#]]);
}

#[test]
fn permission_is_asked_with_everything_that_matters() {
    let mut desk = Desk::open(60, 30);
    desk.send("go");
    desk.event(Event::Asked(1, permission()));
    desk.check_live(&expect![[r#"

        ? Waiting for you
        Allow "make install > log"?
        │ make install > log
          y Allow once
          s Always allow `make` in this session
        › n Reject
          N No, with a reason   Esc No
        Build · main
    "#]]);
    desk.pass(1000);
    desk.press(KeyCode::Char('y'));
    desk.check_commands(&["Answer(1, Selected(SelectedPermissionOutcome { option_id: PermissionOptionId(\"once\"), meta: None }))"]);
}

#[test]
fn typing_goes_on_when_a_question_comes() {
    let mut desk = Desk::open(60, 30);
    desk.send("go");
    desk.type_text("wh");
    desk.event(Event::Asked(1, permission()));
    // Still typing: these are no answers.
    desk.type_text("y not");
    desk.check_commands(&["Bell(\"Question: make install > log\")"]);
    desk.pass(1000);
    desk.press(KeyCode::Char('n'));
    assert!(matches!(
        desk.commands()[..],
        [Command::Answer(1, schema::RequestPermissionOutcome::Selected(_))]
    ));
    desk.check_live(&expect![[r#"
        
        ⠇ Working 1s · Esc cancels
        > why not
        Build · main
    "#]]);
}

#[test]
fn cancel_answers_open_questions() {
    let mut desk = Desk::open(60, 30);
    desk.send("go");
    desk.event(Event::Asked(1, permission()));
    desk.event(Event::Asked(2, permission()));
    desk.commands();
    desk.app.cancel();
    desk.check_commands(&["Cancel", "Answer(1, Cancelled)", "Answer(2, Cancelled)"]);
    desk.event(Event::TurnEnded(Ok(schema::StopReason::Cancelled)));
    assert!(desk.all().contains(&"Cancelled.".to_owned()));
}

#[test]
fn escape_cancels_and_two_interrupts_quit() {
    let mut desk = Desk::open(60, 30);
    desk.send("go");
    desk.press(KeyCode::Esc);
    desk.check_commands(&["Cancel"]);
    desk.event(Event::TurnEnded(Ok(schema::StopReason::Cancelled)));
    desk.key(Key::ctrl('c'));
    desk.check_commands(&[]);
    desk.key(Key::ctrl('c'));
    desk.check_commands(&["Quit"]);
}

#[test]
fn prompts_steer_or_wait() {
    let mut desk = Desk::open(60, 30);
    desk.send("go");
    desk.type_text("also this");
    desk.press(KeyCode::Enter);
    assert!(desk.commands().contains(&Command::Steer("also this".to_owned())));
    desk.type_text("later");
    desk.press(KeyCode::Tab);
    desk.check_live(&expect![[r#"
        
        ⠋ Working 0s · Esc cancels
        ⋯ later
        >
        Build · main
    "#]]);
    desk.event(Event::TurnEnded(Ok(schema::StopReason::EndTurn)));
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("later".to_owned())));
}

#[test]
fn commands_and_files_are_completed() {
    let mut desk = Desk::open(60, 30);
    desk.type_text("/se");
    assert!(desk.live_text().contains("› sessions  Open, fork or delete a session"));
    desk.press(KeyCode::Enter);
    desk.check_commands(&["SaveHistory(\"\\\"/sessions \\\"\\n\")", "List"]);
    desk.type_text("see @mai");
    assert!(desk.commands().contains(&Command::FindFiles));
    desk.event(Event::Files(vec!["src/main.rs".to_owned(), "README.md".to_owned()]));
    desk.press(KeyCode::Tab);
    desk.type_text("now");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.commands().last(), Some(&Command::Prompt("see @src/main.rs now".to_owned())));
}

#[test]
fn twenty_columns_are_enough() {
    let mut desk = Desk::open(20, 16);
    desk.send("a prompt that is longer than the screen");
    desk.update(chunk(
        "An answer that wraps, with 中文字符 and a [link](https://e.org/a/very/long/path).\n\n",
    ));
    desk.event(Event::Asked(1, permission()));
    desk.check(&expect![[r#"
        Agent 1.0  /project
        ? shows keys, /
        commands, @ files

        > a prompt that is
          longer than the
          screen

        An answer that
        wraps, with 中文字符
        and a link
        (https://e.org/a/ver
        y/long/path).

        ? Waiting for you
        Allow "make install
          > log"?
        │ make install > log
          y Allow once
          s Always allow
            `make` in this
            session
        › n Reject
          N No, with a reas…
        Build · main
    "#]]);
}

#[test]
fn nothing_of_an_agent_controls_the_terminal() {
    let mut desk = Desk::open(40, 20);
    let evil = "a\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}b\rc";
    desk.event(Event::Input(Input::Paste(evil.to_owned())));
    desk.press(KeyCode::Enter);
    desk.update(chunk(&format!("{evil}\n\n```\n{evil}\n```\n")));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": evil, "title": evil, "kind": "execute", "status": "failed",
        "content": [{ "type": "content", "content": { "type": "text", "text": evil } }, { "type": "diff", "path": evil, "oldText": evil, "newText": "x" }] }));
    desk.update(json!({ "sessionUpdate": "session_info_update", "title": evil }));
    let mut question = permission();
    question.options[0].name = evil.to_owned();
    question.tool_call.fields.title = Some(evil.to_owned());
    desk.event(Event::Asked(1, question));
    assert!(
        !desk.raw.contains("owned") && !desk.raw.contains("[2J") && !desk.raw.contains('\u{202e}'),
        "{:?}",
        desk.raw
    );
    for command in desk.commands() {
        if let Command::Title(text) | Command::Bell(text) = command {
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}

#[test]
fn unfolding_shows_what_was_cut() {
    let mut desk = Desk::open(40, 20);
    desk.send("go");
    let output: String = (1..=30).map(|line| format!("line {line}\n")).collect();
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "seq", "kind": "execute", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": output } }] }));
    assert!(!desk.all().contains(&"line 5".to_owned()));
    desk.key(Key::ctrl('o'));
    assert!(desk.all().contains(&"line 5".to_owned()));
}

#[test]
fn output_of_our_terminals_is_shown_with_its_call() {
    let mut desk = Desk::open(40, 20);
    desk.send("go");
    desk.event(Event::Written(schema::TerminalId::new("t1"), "early\n".to_owned()));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "make", "kind": "execute", "status": "in_progress",
        "content": [{ "type": "terminal", "terminalId": "t1" }] }));
    desk.event(Event::Written(schema::TerminalId::new("t1"), "late\n".to_owned()));
    desk.update(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed" }),
    );
    let all = desk.all().join("\n");
    assert!(all.contains("✓ $ make\n  early\n  late"), "{all}");
}

// R: C1
#[test]
fn calls_of_a_subagent_are_below_the_call_that_started_it() {
    let mut desk = Desk::open(40, 20);
    desk.send("go");
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Look (explore)", "kind": "think", "status": "in_progress" }));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t1/t2", "title": "Read a", "kind": "read", "status": "completed" }));
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "x", "title": "Read b", "kind": "read", "status": "in_progress",
        "_meta": { "claudeCode": { "parentToolUseId": "t1" } } }));
    desk.check_live(&expect![[r#"

        ⠋ Look (explore)
          ✓ Read a
          ⠋ Read b

        ⠋ Working 0s · Esc cancels
        >
        Build · main
    "#]]);
    desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t9", "title": "Other", "kind": "read", "status": "completed" }));
    desk.update(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "x", "status": "completed" }),
    );
    desk.update(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "Found it." } }] }),
    );
    let all = desk.all().join("\n");
    let expected = "✓ Look (explore)\n  ✓ Read a\n  ✓ Read b\n  Found it.\n✓ Other";
    assert!(all.contains(expected), "{all}");
}

#[test]
fn what_is_folded_is_bounded() {
    let mut desk = Desk::open(40, 20);
    desk.send("go");
    for call in 0..5 {
        let output = "line\n".repeat(6000);
        desk.update(json!({ "sessionUpdate": "tool_call", "toolCallId": format!("t{call}"), "title": "seq", "kind": "read", "status": "completed",
            "content": [{ "type": "content", "content": { "type": "text", "text": output } }] }));
    }
    desk.key(Key::ctrl('o'));
    desk.key(Key::ctrl('o'));
    assert!(desk.all().join("\n").contains("Nothing is folded."));
}

// R: C1
#[test]
fn message_added_to_the_turn_is_shown_once() {
    let message = json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "and b" } });
    for is_repeated_first in [false, true] {
        let mut desk = Desk::open(40, 20);
        desk.send("do a");
        desk.send("and b");
        let added = || Event::Steered(Ok(true), "and b".to_owned());
        if is_repeated_first {
            desk.update(message.clone());
            desk.event(added());
        } else {
            desk.event(added());
            desk.update(message.clone());
        }
        desk.update(chunk("Both.\n\n"));
        let all = desk.all().join("\n");
        assert_eq!(all.matches("> and b").count(), 1, "{all}");
    }
}
