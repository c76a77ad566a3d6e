//! The client with agents that die, say nothing, or talk nonsense.

use super::terminal::{Opening, Terminal};
use crate::agent::{DEADLINE, wait_until};

const ODD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/odd.mjs");

fn open(what: &str, moment: &str) -> Terminal {
    let agent = format!("node '{ODD}' {what} '{moment}' {{home}}/state");
    Opening::args(&format!("--agent \"{agent}\"")).start()
}

/// Has a turn with the agent.
fn converse(terminal: &Terminal, prompt: &str) {
    terminal.send(prompt);
    terminal.shows(&format!("You said {prompt}."));
    terminal.answer("y Allow it", "y");
    terminal.shows_where("the end of the turn", |all| {
        let (_, after) = all.rsplit_once(&format!("You said {prompt}.")).unwrap_or_default();
        after.contains("Counted.") && !after.contains("Working")
    });
}

// R: C2
#[test]
fn agent_killed_at_any_moment_of_its_start_is_started_again() {
    for moment in ["start", "initialize", "initialized", "session/new"] {
        let terminal = open("die", moment);
        terminal.shows(&format!("last words at {moment}"));
        terminal.shows("SIGKILL");
        converse(&terminal, "hello");
        let all = terminal.all();
        assert_eq!(all.matches("last words").count(), 1, "{moment}:\n{all}");
    }
}

// R: C2
#[test]
fn agent_killed_at_any_moment_of_a_turn_continues_the_session() {
    for moment in
        ["prompt", "text", "half a line", "tool call", "question", "answer", "end of turn"]
    {
        let terminal = open("die", moment);
        terminal.shows("odd 1");
        terminal.send("first");
        if ["answer", "end of turn"].contains(&moment) {
            terminal.answer("y Allow it", "y");
        }
        terminal.shows("Continue the turn");
        terminal.keys(&["Down", "Enter"]);
        converse(&terminal, "second");
        let all = terminal.all();
        let expected = usize::from(moment != "prompt");
        assert_eq!(all.matches("You said first.").count(), expected, "{moment}:\n{all}");
        assert_eq!(all.matches("Connected again.").count(), 1, "{moment}:\n{all}");
    }
}

// R: C2
#[test]
fn agent_killed_between_turns_keeps_the_unsent_text() {
    let terminal = open("die", "after the turn");
    terminal.shows("odd 1");
    terminal.send("first");
    terminal.answer("y Allow it", "y");
    terminal.shows("Connected again.");
    terminal.keys(&["-l", "not sent"]);
    terminal.shows("> not sent");
    let all = terminal.all();
    assert_eq!(all.matches("Counted.").count(), 1, "{all}");
}

// R: C2
#[test]
fn nonsense_is_skipped_and_never_reaches_the_terminal() {
    let terminal = open("nonsense", "_");
    terminal.shows("odd 1");
    converse(&terminal, "first");
    converse(&terminal, "second");
    let all = terminal.all();
    assert!(!all.contains("NOT FOR THIS SESSION"), "{all}");
    assert!(!all.contains("xxxxxxxx"), "{all}");
    assert!(!terminal.tmux(&["display-message", "-p", "#{pane_title}"]).contains("owned"));
}

// R: C2
#[test]
fn silent_agent_is_reported_and_the_user_can_quit() {
    let terminal = open("silent", "_");
    terminal.keys(&["-l", "typed meanwhile"]);
    terminal.shows("> typed meanwhile");
    terminal.shows("has not answered `initialize` within 5 s");
    // The first one clears the input.
    for _ in 0..3 {
        terminal.keys(&["C-c"]);
    }
    wait_until("the client ends", DEADLINE, || terminal.has_ended());
}
