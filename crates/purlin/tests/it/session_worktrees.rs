//! Sessions in git worktrees of their own: `"workspace": "worktree"` and `/worktree`, with a real git.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{Agent, Start};
use crate::directory::Directory;
use crate::worktrees::git;

/// A repository with one commit, and a place for the agent's data.
fn repository() -> Directory {
    // Commands have their own `/tmp`, so the repository would be missing there.
    let top = Directory::outside_of_tmp();
    top.write("main/sub/file", "one\n");
    let main = top.join("main");
    git(&main, &["init", "-q", "-b", "main"]);
    git(&main, &["add", "."]);
    git(&main, &["commit", "-q", "-m", "first"]);
    top
}

fn new_session(agent: &mut Agent, cwd: &Path) -> String {
    let params = json!({ "cwd": cwd, "mcpServers": [] });
    agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned()
}

/// Sends a prompt, allows everything, and returns what was said and printed.
pub(crate) fn say(agent: &mut Agent, session: &str, text: &str) -> String {
    let turn = agent.prompt(session, text);
    let mut said = String::new();
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": "selected", "optionId": "once" });
            agent.answer(&message["id"], json!({ "outcome": outcome }));
        } else if message["id"] == turn {
            return said;
        }
        let update = &message["params"]["update"];
        said += update["content"][0]["content"]["text"].as_str().unwrap_or_default();
        said += update["content"]["text"].as_str().unwrap_or_default();
    }
}

fn commit_of(name: &str) -> Value {
    let command = format!(
        "echo {name} > {name} && git add {name} && git -c user.name=u -c user.email=u@example.com commit -qm {name} && pwd"
    );
    json!({ "command": command, "git": true, "reason": "to commit" })
}

/// A turn of the scripted model: one tool call, then the end.
pub(crate) fn turn(tool: &str, input: &Value) -> String {
    format!("model tool {tool} {input}\nmodel end\nmodel text \"done\"\nmodel end\n")
}

fn playing(script: &str, top: &Directory) -> Start {
    Agent::playing(script).storing_in(&top.join("share"))
}

// R: T7, S6
#[test]
fn sessions_work_in_worktrees_of_their_own_and_are_merged() {
    let top = repository();
    let main = top.join("main");
    let script = [
        turn("bash", &commit_of("a")),
        turn("bash", &commit_of("b")),
        turn("write", &json!({ "path": "loose", "content": "not committed\n" })),
        turn("bash", &json!({ "command": "pwd; ls" })),
    ];
    let start = playing(&script.concat(), &top).config(json!({ "workspace": "worktree" }));
    let mut agent = start.ready();
    let (first, second) =
        (new_session(&mut agent, &main), new_session(&mut agent, &main.join("sub")));
    let one = say(&mut agent, &first, "go");
    let two = say(&mut agent, &second, "go");
    assert!(one.contains("purlin-worktrees/main/") && two.contains("/sub\n"), "{one}\n{two}");
    assert_eq!(git(&main, &["status", "--porcelain"]), "");
    assert_eq!(git(&main, &["rev-list", "--count", "HEAD"]), "1");
    assert_eq!(git(&main, &["worktree", "list"]).lines().count(), 3);

    // What is not committed is never lost.
    say(&mut agent, &first, "write");
    for command in ["/worktree merge", "/worktree remove"] {
        let refused = say(&mut agent, &first, command);
        assert!(refused.contains("uncommitted changes: `?? loose`"), "{refused}");
    }
    assert_eq!(git(&main, &["worktree", "list"]).lines().count(), 3);

    let merged = say(&mut agent, &second, "/worktree merge");
    assert!(merged.contains("Merged 1 commit of") && merged.contains("into `main`"), "{merged}");
    assert_eq!(std::fs::read_to_string(main.join("sub/b")).unwrap(), "b\n");
    assert_eq!(git(&main, &["worktree", "list"]).lines().count(), 2);
    let here = say(&mut agent, &second, "where");
    assert!(here.contains(&format!("{}\n", main.join("sub").display())), "{here}");
}

// R: T7, S6
#[test]
fn session_moves_to_a_worktree_and_back_and_finds_it_again_in_the_next_process() {
    let top = repository();
    let main = top.join("main");
    let first = turn("write", &json!({ "path": "sub/new", "content": "two\n" }));
    let mut agent = playing(&first, &top).ready();
    let session = new_session(&mut agent, &main);
    std::fs::write(main.join("sub/other"), "of the user\n").unwrap();
    let begun = say(&mut agent, &session, "/worktree fix-login");
    assert!(begun.contains("branch `purlin/fix-login`"), "{begun}");
    assert!(begun.contains("One uncommitted change"), "{begun}");
    let worktree = top.join("share/purlin-worktrees/main/fix-login");
    say(&mut agent, &session, "go");
    assert_eq!(std::fs::read_to_string(worktree.join("sub/new")).unwrap(), "two\n");
    assert!(!main.join("sub/new").exists());
    drop(agent);

    let second = turn("bash", &json!({ "command": "pwd" }));
    let mut agent = playing(&second, &top).ready();
    let params = json!({ "sessionId": session, "cwd": main, "mcpServers": [] });
    agent.result("session/load", params);
    let here = say(&mut agent, &session, "where");
    assert!(here.contains(worktree.to_str().unwrap()), "{here}");
    let state = say(&mut agent, &session, "/worktree");
    assert!(state.contains("1 uncommitted changes, 0 commits"), "{state}");
    let kept = say(&mut agent, &session, "/worktree keep");
    assert!(kept.contains("works in the project again"), "{kept}");
    assert_eq!(std::fs::read_to_string(worktree.join("sub/new")).unwrap(), "two\n");
    let unknown = say(&mut agent, &session, "/worktree merge");
    assert!(unknown.contains("has no worktree"), "{unknown}");
}

/// A filter of the repository runs when git checks files out. It can do no more than a command.
// R: T7
#[test]
fn filter_of_a_hostile_repository_runs_in_the_sandbox() {
    let top = repository();
    let (main, stolen) = (top.join("main"), top.join("stolen"));
    let steal = format!("sh -c 'cat; echo inside >&2; touch {}'", stolen.display());
    std::fs::write(main.join(".gitattributes"), "* filter=evil\n").unwrap();
    git(&main, &["add", "."]);
    git(&main, &["commit", "-q", "-m", "attributes"]);
    git(&main, &["config", "filter.evil.smudge", &steal]);
    // Outside the sandbox it works, so it is an attack.
    git(&main, &["worktree", "add", "-q", "../plain"]);
    std::fs::remove_file(&stolen).unwrap();

    let mut agent = playing("model end\n", &top).ready();
    let session = new_session(&mut agent, &main);
    let begun = say(&mut agent, &session, "/worktree evil");
    assert!(begun.contains("now works in"), "{begun}");
    assert!(!stolen.exists(), "the repository ran a program outside the sandbox");
}

/// The hooks leave a mark in the working tree, where the sandbox would let them.
// R: T7
#[test]
fn hooks_do_not_run_when_a_worktree_is_made_merged_and_removed() {
    let top = repository();
    let main = top.join("main");
    for name in ["post-checkout", "pre-merge-commit", "commit-msg", "post-merge", "pre-commit"] {
        let hook = main.join(".git/hooks").join(name);
        let text = format!("#!/bin/sh\ntouch \"$(git rev-parse --show-toplevel)/ran-{name}\"\n");
        std::fs::write(&hook, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&hook, mode).unwrap();
    }
    git(&main, &["config", "core.hooksPath", main.join(".git/hooks").to_str().unwrap()]);
    for (name, value) in [("user.name", "u"), ("user.email", "u@example.com")] {
        git(&main, &["config", name, value]);
    }
    // With git alone they run.
    git(&main, &["worktree", "add", "-q", "../plain"]);
    assert!(top.join("plain/ran-post-checkout").exists(), "the hook is none");

    let mut agent = playing("model end\n", &top).ready();
    let session = new_session(&mut agent, &main);
    let begun = say(&mut agent, &session, "/worktree quiet");
    assert!(begun.contains("now works in"), "{begun}");
    let worktree = top.join("share/purlin-worktrees/main/quiet");
    let no_hooks = ["-c", "core.hooksPath=/dev/null"];
    for (tree, name) in [(&worktree, "theirs"), (&main, "ours")] {
        std::fs::write(tree.join(name), "new\n").unwrap();
        git(tree, &[&no_hooks[..], &["add", name]].concat());
        git(tree, &[&no_hooks[..], &["commit", "-q", "-m", name]].concat());
    }
    let merged = say(&mut agent, &session, "/worktree merge");
    assert!(merged.contains("Merged 1 commit of `purlin/quiet` into `main`"), "{merged}");
    let entries = std::fs::read_dir(&main).unwrap().map(|entry| entry.unwrap().file_name());
    let ran: Vec<_> = entries.filter(|name| name.to_string_lossy().starts_with("ran-")).collect();
    assert!(ran.is_empty() && main.join("theirs").exists(), "{ran:?}");
}

/// What is committed but on no branch would be as lost as what is not committed.
// R: T7
#[test]
fn commits_that_no_branch_has_are_not_removed() {
    let top = repository();
    let main = top.join("main");
    let mut agent = playing("model end\n", &top).ready();
    let session = new_session(&mut agent, &main);
    say(&mut agent, &session, "/worktree away");
    let worktree = top.join("share/purlin-worktrees/main/away");
    git(&worktree, &["checkout", "-q", "--detach"]);
    std::fs::write(worktree.join("lost"), "work\n").unwrap();
    git(&worktree, &["add", "lost"]);
    git(&worktree, &["commit", "-q", "-m", "away"]);
    let refused = say(&mut agent, &session, "/worktree remove");
    assert!(refused.contains("commits in it are on no branch, as many as 1"), "{refused}");
    let refused = say(&mut agent, &session, "/worktree merge");
    assert!(refused.contains("has no branch checked out, and not `purlin/away`"), "{refused}");
    assert!(worktree.join("lost").exists());

    git(&worktree, &["checkout", "-q", "-b", "found"]);
    let removed = say(&mut agent, &session, "/worktree remove");
    assert!(removed.contains("Removed the worktree"), "{removed}");
    assert_eq!(git(&main, &["show", "found:lost"]), "work");
}

// R: T7
#[test]
fn conflict_changes_nothing_and_folder_without_repository_says_so() {
    let top = repository();
    let main = top.join("main");
    let change = "echo theirs > sub/file && git -c user.name=u -c user.email=u@example.com commit -qam theirs";
    let input = json!({ "command": change, "git": true, "reason": "to commit" });
    let mut agent = playing(&turn("bash", &input), &top)
        .config(json!({ "workspace": { "worktree": true } }))
        .ready();
    let session = new_session(&mut agent, &main);
    say(&mut agent, &session, "go");
    std::fs::write(main.join("sub/file"), "ours\n").unwrap();
    git(&main, &["commit", "-qam", "ours"]);
    let refused = say(&mut agent, &session, "/worktree merge");
    assert!(refused.contains("changed the same lines of `sub/file`"), "{refused}");
    assert_eq!(git(&main, &["status", "--porcelain"]), "");
    let removed = say(&mut agent, &session, "/worktree remove");
    assert!(removed.contains("commits are still on the branch `purlin/"), "{removed}");
    let plain = Directory::new();
    let plain = new_session(&mut agent, &plain);
    assert!(say(&mut agent, &plain, "/worktree").contains("Unknown command"), "it is offered");
}
