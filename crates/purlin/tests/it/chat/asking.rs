//! An agent that wants a log-in and answers: its program on our terminal, its forms in our client.

use super::terminal::Opening;

const ASKING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/asking.mjs");

// R: C1, C3
#[test]
fn log_in_on_the_terminal_then_forms() {
    let terminal = Opening::args(&format!("--agent \"node '{ASKING}' {{home}}/state\"")).start();
    terminal.shows("Authentication required");
    terminal.shows("› Enter a password");
    terminal.keys(&["Enter"]);
    terminal.shows("The password:");
    terminal.keys(&["-l", "wrong"]);
    terminal.keys(&["Enter"]);
    terminal.shows("Logging in failed (exit status: 1).");
    std::fs::remove_file(terminal.path("state")).unwrap();
    terminal.send("/login");
    terminal.shows_where("the list", |all| all.matches("› Enter a password").count() == 1);
    terminal.keys(&["Enter"]);
    terminal.shows_where("the second question", |all| all.matches("The password:").count() == 2);
    terminal.keys(&["-l", "right"]);
    terminal.keys(&["Enter"]);
    terminal.shows_where("the input", |all| {
        all.lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .is_some_and(|line| line.trim() == ">")
    });

    terminal.send("go");
    terminal.shows("What shall I create?");
    terminal.keys(&["-l", "ab"]);
    terminal.keys(&["Enter"]);
    terminal.shows("Name: at least 3 characters.");
    terminal.keys(&["-l", "c"]);
    terminal.keys(&["Enter"]);
    terminal.shows("› Library");
    terminal.keys(&["Down", "Enter"]);
    terminal.shows("› [ ] tests");
    terminal.keys(&["Space", "Down", "Down", "Space"]);
    terminal.shows("› [x] bench");
    terminal.keys(&["Enter"]);
    terminal.shows("https://example.org/confirm");
    terminal.keys(&["Up", "Enter"]);
    terminal.shows("The page: accept.");
    let all = terminal.all().replace('\n', "");
    let content = r#"{"a_name":"abc","b_kind":"bin","c_parts":["tests","bench"]}"#;
    let expected = format!("{{\"action\":\"accept\",\"content\":{content}}}");
    assert!(all.contains(&expected), "{all}");
}
