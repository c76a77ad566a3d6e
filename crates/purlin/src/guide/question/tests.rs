//! Questions as people put them.

use super::*;

fn check(question: &Question, ways: &[&str]) {
    for way in ways {
        assert_eq!(&read(way), question, "{way}");
    }
}

#[test]
fn the_project_is_asked_about_in_many_ways() {
    check(
        &Question::Project,
        &[
            "what is this project?",
            "What's this project about?",
            "describe the codebase",
            "Can you explain this repo?",
            "Please summarize this repository",
            "tell me about this project",
            "give me an overview of the project",
            "what does this project do",
            "what is this?",
            "overview",
            "What language is it written in?",
        ],
    );
    check(
        &Question::Build,
        &[
            "how do I build this?",
            "how can I run the tests",
            "What do I run to test this project?",
            "how to install this project",
        ],
    );
}

#[test]
fn places_are_asked_for() {
    let place = |what: &str| Question::Where(what.to_owned());
    check(
        &place("Ladder"),
        &[
            "where is Ladder?",
            "Where is the struct Ladder defined",
            "what is `Ladder`",
            "who uses Ladder",
            "Which file defines Ladder?",
            "Ladder",
        ],
    );
    check(
        &place("run_turn"),
        &[
            "where is run_turn()",
            "what does run_turn do?",
            "find the definition of run_turn",
            "can you locate run_turn for me",
        ],
    );
    check(&place("permission policy"), &["where is the permission policy?"]);
    let text = |what: &str| Question::Find(what.to_owned());
    check(
        &text("no such session"),
        &[
            "find \"no such session\"",
            "search for 'no such session'",
            "grep `no such session` in all files",
        ],
    );
    check(
        &text("retry"),
        &["find retry", "search for the word retry", "look for retry in the code"],
    );
}

#[test]
fn files_and_folders_are_shown() {
    let show = |path: &str, lines| Question::Show(path.to_owned(), lines);
    check(
        &show("src/main.rs", None),
        &[
            "show src/main.rs",
            "show me src/main.rs",
            "src/main.rs",
            "please open `src/main.rs`",
            "what is in src/main.rs?",
            "cat src/main.rs",
        ],
    );
    check(
        &show("a.py", Some((10, 20))),
        &["show lines 10-20 of a.py", "show a.py lines 10 to 20", "Print lines 10–20 in a.py"],
    );
    check(&show("README", None), &["show README", "read the README"]);
    let outline = Question::Outline("src/a.ts".to_owned());
    check(
        &outline,
        &[
            "outline src/a.ts",
            "which functions are in src/a.ts?",
            "what does src/a.ts do",
            "explain src/a.ts",
            "summarize src/a.ts please",
        ],
    );
    check(
        &Question::Folder(None),
        &[
            "list files",
            "ls",
            "what files are there?",
            "show the directory tree",
            "show me the structure",
        ],
    );
    check(&Question::Folder(Some("src/".into())), &["ls src/", "what is in src/"]);
    check(
        &Question::Folder(Some("crates".into())),
        &["list the files in crates", "ls crates", "what files are in the crates folder?"],
    );
}

#[test]
fn git_and_notes_are_asked_for() {
    check(
        &Question::Git(Git::State),
        &["git status", "what branch am I on?", "what is the git state", "which branch is this"],
    );
    check(
        &Question::Git(Git::Changes),
        &["what changed?", "show uncommitted changes", "git diff", "What have I changed"],
    );
    check(
        &Question::Git(Git::Log),
        &["git log", "show the last commits", "what are the recent commits?"],
    );
    check(&Question::Todos, &["what is left to do?", "show TODOs", "find todos", "any FIXMEs?"]);
}

#[test]
fn what_it_can_do_and_what_not() {
    check(
        &Question::Abilities,
        &[
            "",
            "hi",
            "Hello!",
            "help",
            "what can you do?",
            "who are you?",
            "Are you a model?",
            "help me",
        ],
    );
    check(
        &Question::Connect,
        &[
            "how do I connect a model?",
            "how can I use Claude?",
            "which model is this using?",
            "how do I set my API key",
            "can I use ollama",
        ],
    );
    check(
        &Question::Work,
        &[
            "add a test for the parser",
            "Fix the bug in src/main.rs",
            "Could you refactor this?",
            "write a README",
            "Why is it slow?",
        ],
    );
    check(
        &Question::Unknown,
        &["is the moon made of cheese", "what should we have for dinner tonight"],
    );
    assert_eq!(read(&"x".repeat(5000)), Question::Unknown);
}

proptest::proptest! {
    #[test]
    fn any_words_are_read(text in "\\PC{0,200}") {
        read(&text);
    }
}
