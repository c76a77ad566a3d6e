//! `/pr`, `/issue` and `/review` from end to end: a model over HTTP that follows them, an emulator of GitHub made by others, and a
//! bare repository behind `git http-backend`.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::directory::Directory;
use crate::github::{Emulator, TOKEN, git};
use crate::github_push::{PASSWORD, clone_of, serve};
use crate::models::{CANARY, CHAT, Fake};

/// A turn of the model: tool calls one after the other, then its answer.
fn turn(calls: &[(&str, Value)], text: &str) -> String {
    let call = |(tool, input): &(&str, Value)| format!("tool {tool} {input}\n---\n");
    calls.iter().map(call).collect::<String>() + &format!("text {}\n---\n", json!(text))
}

/// Sends a prompt and allows everything. Returns what was asked for, and everything that was seen.
fn say(agent: &mut Agent, session: &str, text: &str) -> (Vec<String>, String) {
    let turn = agent.prompt(session, text);
    let (mut asked, mut seen) = (Vec::new(), String::new());
    loop {
        let message = agent.next();
        seen += &format!("{message}\n");
        if message["method"] == "session/request_permission" {
            asked.push(message["params"]["toolCall"].to_string());
            let outcome = json!({ "outcome": "selected", "optionId": "once" });
            agent.answer(&message["id"], json!({ "outcome": outcome }));
        } else if message["id"] == turn {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{seen}");
            return (asked, seen);
        }
    }
}

// R: T6
#[test]
fn pr_issue_and_review_are_carried_out_by_the_model() {
    let top = Directory::outside_of_tmp();
    let emulator = Emulator::start(&top);
    git(&top, &["init", "-q", "--bare", "served/octocat/hello.git"]);
    let (port, _) = serve(top.join("served"));
    clone_of(&top, port, PASSWORD);
    let clone = top.join("clone");
    std::fs::write(clone.join("file"), "one\ntwo\n").unwrap();

    let commit = "git switch -q -c fix-it && git -c user.name=u -c user.email=u@example.com commit -qam 'Fix it'";
    let commit = json!({ "command": commit, "git": true, "reason": "to commit" });
    let issue =
        json!({ "action": "create_issue", "title": "It breaks", "body": "After the first line." });
    let pull =
        json!({ "action": "create_pull", "title": "Fix it", "body": "Closes #1", "base": "main" });
    let comment =
        json!({ "action": "review", "number": 2, "event": "comment", "body": "file:2 is fine" });
    let read =
        |action: &str, number: u32| ("github_read", json!({ "action": action, "number": number }));
    let script = [
        turn(&[("github_write", issue)], "Filed."),
        turn(&[read("issue", 1)], "I know the issue."),
        turn(
            &[("bash", json!({ "command": "git diff" })), ("bash", commit), ("github_write", pull)],
            "Created.",
        ),
        turn(&[read("pull", 2), read("diff", 2), ("github_write", comment)], "Reviewed."),
    ];
    let fake = Fake::new(&script.concat());
    let mut config = fake.config(CHAT);
    config["limits"]["max_requests_per_turn"] = json!(20);
    let api = format!("http://localhost:{}", emulator.port);
    config["github"] = json!({ "host": format!("localhost:{port}"), "apiUrl": api });
    let mut agent = Agent::configured(config)
        .env("FAKE_KEY", CANARY)
        .env("GH_ENTERPRISE_TOKEN", TOKEN)
        .env("GIT_CONFIG_GLOBAL", &top.text("gitconfig"))
        .storing_in(&top.join("data"))
        .ready();
    let params = json!({ "cwd": clone, "mcpServers": [] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    say(&mut agent, &session, "File an issue: it breaks after the first line.");

    let (asked, _) = say(&mut agent, &session, "/issue 1 keep it small");
    assert_eq!(asked, Vec::<String>::new());

    let (asked, seen) = say(&mut agent, &session, "/pr commit everything");
    // The diff is asked for, too, because of what this repository configures.
    assert_eq!(asked.len(), 3, "{asked:#?}");
    let tip = git(&clone, &["rev-parse", "fix-it"]);
    let shown = format!("http://localhost:{port}/octocat/hello.git {tip}:refs/heads/fix-it");
    for part in [&*shown, "title: Fix it", "head: fix-it", "base: main", "Closes #1"] {
        assert!(asked[2].contains(part), "{part}: {}", asked[2]);
    }
    let served = top.join("served/octocat/hello.git");
    assert_eq!(git(&served, &["rev-parse", "refs/heads/fix-it"]), tip, "{seen}");
    assert_eq!(git(&served, &["show", "fix-it:file"]), "one\ntwo");

    let (asked, _) = say(&mut agent, &session, "/review 2");
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert!(asked[0].contains("file:2 is fine") && asked[0].contains("COMMENT"), "{}", asked[0]);

    // What the model was sent.
    let all: String = fake.requests().iter().map(|request| request.body.clone()).collect();
    for part in [
        "Work on issue #1 of this repository",
        "keep it small",
        "After the first line.",
        "Create a pull request on GitHub",
        "From the user: commit everything",
        "+two",
        "Review pull request #2 of this repository",
        "Closes #1",
    ] {
        assert!(all.contains(part), "the model was not sent: {part}");
    }
    assert!(!all.contains(TOKEN) && !all.contains(PASSWORD), "the model was sent a secret");

    let usage = say(&mut agent, &session, "/issue soon").1;
    assert!(usage.contains("Usage: `/issue NUMBER`"), "{usage}");
}
