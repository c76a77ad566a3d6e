//! The client where the cursor cannot be moved, and for screen readers: lines in, lines out.

use super::terminal::{Opening, Terminal};
use crate::agent::{DEADLINE, wait_until};

const SCRIPT: &str = r##"
model text "# Plan\n\nI write **one** file.\n"
model tool write {"filePath":"a.txt","content":"new\n"}
model text "The file is written.\n"
model end
model text "You said so.\n"
"##;

/// Waits for the mark of the input.
fn is_ready(terminal: &Terminal) {
    let last = |all: &str| all.lines().rev().find(|line| !line.is_empty()).map(str::to_owned);
    terminal.shows_where("the input", |all| last(all).is_some_and(|line| line.trim() == ">"));
}

// R: C1
#[test]
fn dumb_terminal_gets_lines_in_order() {
    let terminal = Opening::script(SCRIPT).env("TERM=dumb").start();
    terminal.tmux(&["pipe-pane", "cat > raw"]);
    is_ready(&terminal);
    terminal.keys(&["-l", "please write"]);
    terminal.keys(&["Enter"]);
    terminal.answer("Type y, s, a, n, d, or n and a reason, then Enter.", "y");
    terminal.keys(&["Enter"]);
    wait_until("the file is written", DEADLINE, || terminal.path("project/a.txt").exists());
    terminal.shows("The file is written.");
    // Two lines of a paste are one message.
    terminal.tmux(&["set-buffer", "first\nsecond\n"]);
    terminal.tmux(&["paste-buffer", "-r"]);
    terminal.shows("You said so.");
    let all = terminal.all();
    let order = [
        "> please write",
        "Plan",
        "I write one file.",
        "· Write a.txt",
        "Allow \"Write a.txt\"?",
        "✓ Write a.txt",
        "The file is written.",
        "first",
        "You said so.",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|text| all.find(text).unwrap_or_else(|| panic!("{text}:\n{all}")))
        .collect();
    assert!(places.is_sorted(), "{all}");
    assert_eq!(all.matches("You said so.").count(), 1, "{all}");
    terminal.keys(&["C-d"]);
    wait_until("the client ends", DEADLINE, || terminal.has_ended());
    let raw = std::fs::read(terminal.path("raw")).unwrap();
    assert!(!raw.contains(&0x1b), "{}", String::from_utf8_lossy(&raw));
    assert!(
        !raw.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n'),
        "a line was overwritten"
    );
}

// R: C1
#[test]
fn screen_reader_hears_everything_once_and_interrupts() {
    let script = "model text \"It runs.\\n\\nHalf of an ans\"\nmodel hang\nmodel end\nmodel text \"Still here.\\n\"\n";
    let terminal = Opening::args("--model 'script:{home}/play.acp' --screen-reader")
        .file("play.acp", script)
        .start();
    is_ready(&terminal);
    terminal.keys(&["-l", "go"]);
    terminal.keys(&["Enter"]);
    terminal.shows("It runs.");
    terminal.keys(&["C-c"]);
    terminal.shows("Cancelled.");
    is_ready(&terminal);
    terminal.keys(&["-l", "again"]);
    terminal.keys(&["Enter"]);
    terminal.shows("Still here.");
    let all = terminal.all();
    assert_eq!(all.matches("Half of an ans").count(), 1, "{all}");
    terminal.keys(&["C-c"]);
    terminal.shows("Press Ctrl-C again to quit.");
    terminal.keys(&["C-c"]);
    wait_until("the client ends", DEADLINE, || terminal.has_ended());
}
