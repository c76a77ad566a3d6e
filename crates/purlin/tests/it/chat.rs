//! The terminal client in a real terminal.

mod asking;
mod faults;
mod foreign;
mod plain;
mod remote;
mod terminal;

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{DEADLINE, wait_until};
use terminal::{Opening, Terminal, processes_with};

const SCRIPT: &str = r#"
model text "I will write **one** file.\n"
model tool write {"filePath":"a.txt","content":"new\n"}
model text "| a | b |\n|---|---|\n| 1 | 2 |\n\nThe file is written.\n"
model end
model text "Half of an ans"
model hang
model end
model text "Still here.\n"
"#;

fn start(script: &str) -> Terminal {
    let terminal = Opening::script(script).start();
    terminal.shows("Build ·");
    terminal
}

// R: C1, C2
#[test]
fn conversation_in_a_real_terminal() {
    let terminal = start(SCRIPT);
    terminal.tmux(&["set-buffer", "please\nwrite"]);
    terminal.tmux(&["paste-buffer", "-p"]);
    terminal.shows("  write");
    terminal.keys(&["Enter"]);
    terminal.shows("y Allow once");
    terminal.tmux(&["resize-window", "-x", "90", "-y", "30"]);
    terminal.answer("y Allow once", "y");
    wait_until("the file is written", DEADLINE, || terminal.path("project/a.txt").exists());
    terminal.shows("The file is written.");
    terminal.shows("1 │ 2");
    let all = terminal.all();
    for once in [
        "> please",
        "I will write one file.",
        "✓ Write a.txt",
        "The file is written.",
        "Allow \"Write",
    ] {
        let expected = usize::from(once != "Allow \"Write");
        assert_eq!(all.matches(once).count(), expected, "{once}:\n{all}");
    }

    terminal.send("go on");
    terminal.shows("Half of an ans");
    terminal.keys(&["not sent"]);
    kill_process(Pid::from_raw(terminal.agent()).unwrap(), Signal::KILL).unwrap();
    terminal.shows("Continue the turn");
    terminal.keys(&["Down", "Enter"]);
    terminal.shows("> not sent");
    let all = terminal.all();
    assert_eq!(all.matches("Half of an ans").count(), 1, "{all}");
    assert_eq!(all.matches("SIGKILL").count(), 1, "{all}");
}

// R: C1
#[test]
fn terminal_resized_there_and_back_keeps_every_line() {
    // Fills the screen. When tmux wraps lines it scrolls others away, even if there are empty rows below: of what is drawn at the
    // bottom, a copy may be there that no program can reach. Nothing else may change.
    let items: String = (10..40).map(|item| format!("- item {item}\\n")).collect();
    let terminal = start(&SCRIPT.replacen("\"I will", &format!("\"{items}\\nI will"), 1));
    terminal.send("please write");
    terminal.shows("y Allow once");
    for there in [&["40"][..], &["50", "90"], &["60", "45", "70"]] {
        for columns in there.iter().chain(&["80"]) {
            terminal.tmux(&["resize-window", "-x", columns, "-y", "24"]);
        }
        // Gives the client the time to do it wrong. What it did is seen after one more size, in which it cuts the footer.
        std::thread::sleep(Duration::from_millis(800));
        terminal.tmux(&["resize-window", "-x", "30", "-y", "24"]);
        let lines = ["> please write", "item 10", "item 38", "item 39", "I will write one file."];
        terminal.shows_where("each line once", |all| {
            let is_cut = |line: &str| line.starts_with("Build") && line.ends_with('…');
            lines.iter().all(|line| all.matches(line).count() == 1)
                && all.contains("Allow \"Write a.txt\"?")
                && all.lines().any(is_cut)
        });
    }
}

// R: C1
#[test]
fn suspended_client_gives_the_terminal_back_and_continues() {
    let terminal = Opening::script(SCRIPT).in_shell().start();
    terminal.shows("Build ·");
    terminal.keys(&["-l", "not sent"]);
    terminal.shows("> not sent");
    terminal.keys(&["C-z"]);
    // The shell says which job was stopped, and takes commands.
    let last = |all: &str| all.lines().rev().find(|line| !line.is_empty()).map(str::to_owned);
    terminal.shows_where("the shell", |all| last(all).is_some_and(|line| line == "shell>"));
    terminal.keys(&["-l", "stty -a | grep -o -w icanon"]);
    terminal.keys(&["Enter"]);
    terminal.shows("\nicanon");
    terminal.keys(&["-l", "fg"]);
    terminal.keys(&["Enter"]);
    terminal.shows_where("the client", |all| {
        let (_, after) = all.rsplit_once("fg").unwrap_or_default();
        after.contains("> not sent") && after.contains("Build ·")
    });
    terminal.keys(&["C-c"]);
    terminal.keys(&["C-d"]);
    terminal.shows_where("the shell", |all| last(all).is_some_and(|line| line == "shell>"));
    wait_until("the agent ends", DEADLINE, || terminal.processes().is_empty());
}

// R: C1
#[test]
fn model_hears_why_something_was_rejected() {
    let script = r#"
model tool write {"filePath":"one.txt","content":"1\n"}
model end
model echo
"#;
    let terminal = start(script);
    terminal.send("write");
    terminal.answer("y Allow once", "N");
    terminal.shows("No, because:");
    terminal.keys(&["-l", "use two.txt"]);
    terminal.keys(&["Enter"]);
    terminal.shows_where("the model's echo", |all| all.lines().any(|line| line == "use two.txt"));
    terminal.shows_where("the reason, once", |all| all.matches("> use two.txt").count() == 1);
    assert!(!terminal.path("project/one.txt").exists());
}

// R: C1
#[test]
fn rewind_offers_the_messages_of_our_agent() {
    let script = r#"
model tool write {"filePath":"one.txt","content":"1\n"}
model text "One is written.\n"
model end
model tool write {"filePath":"two.txt","content":"2\n"}
model text "Two is written.\n"
"#;
    let terminal = start(script);
    for (name, said) in [("one", "One is written."), ("two", "Two is written.")] {
        terminal.send(&format!("write {name}"));
        terminal.answer("y Allow once", "y");
        terminal.shows(said);
        terminal.shows_where("the end of the turn", |all| !all.contains("Working"));
    }
    terminal.send("/rewind");
    terminal.shows("› write two");
    terminal.keys(&["Down"]);
    terminal.shows("› write one");
    terminal.keys(&["Enter"]);
    wait_until("both are gone", DEADLINE, || {
        !terminal.path("project/one.txt").exists() && !terminal.path("project/two.txt").exists()
    });
}

// R: C1
#[test]
fn closed_terminal_leaves_nothing_running() {
    let terminal = start(SCRIPT);
    let home = terminal.directory.path().to_owned();
    terminal.agent();
    assert_eq!(terminal.processes().len(), 2, "{:?}", terminal.processes());
    drop(terminal);
    wait_until("nothing is left", DEADLINE, || processes_with(&home).is_empty());
}

#[test]
fn killed_client_leaves_nothing_running() {
    let terminal = start(SCRIPT);
    let agent = terminal.agent();
    let client = terminal.processes().into_iter().find(|(pid, _)| *pid != agent).unwrap().0;
    kill_process(Pid::from_raw(client).unwrap(), Signal::KILL).unwrap();
    wait_until("nothing is left", DEADLINE, || terminal.processes().is_empty());
}
