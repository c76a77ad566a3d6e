//! Sessions whose repository is outside their directory: in a subdirectory, and in a worktree.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::directory::Directory;
use crate::permissions::tree;

#[expect(clippy::disallowed_methods, reason = "a real git is what the sandbox must let work")]
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command.args(["-c", "user.name=u", "-c", "user.email=u@example.com"]).args(args);
    let output =
        command.current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs commands with and without permission to change `.git`. Returns their output and the permission requests.
fn commit(data: &Path, cwd: &Path, inputs: &[Value]) -> (String, String) {
    let line = |input: &Value| format!("model tool bash {input}\nmodel end\n");
    let script: String = inputs.iter().map(line).collect();
    let mut agent = Agent::playing(&script).storing_in(data).ready();
    let params = json!({ "cwd": cwd, "mcpServers": [] });
    let session = agent.result("session/new", params)["sessionId"].as_str().unwrap().to_owned();
    let turn = agent.prompt(&session, "go");
    let (mut said, mut asked) = (String::new(), String::new());
    loop {
        let message = agent.next();
        if message["method"] == "session/request_permission" {
            asked += &message["params"]["toolCall"].to_string();
            let outcome = json!({ "outcome": "selected", "optionId": "once" });
            agent.answer(&message["id"], json!({ "outcome": outcome }));
        } else if message["id"] == turn {
            return (said, asked);
        }
        let update = &message["params"]["update"];
        said += update["content"][0]["content"]["text"].as_str().unwrap_or_default();
    }
}

/// The `.git` of a session may be outside its directory: above it, or where a worktree's file points to.
// R: T2, T7
#[test]
fn commit_in_a_subdirectory_and_in_a_worktree_needs_permission() {
    // Commands have their own `/tmp`, so the rest of the repository would be missing there.
    let top = Directory::outside_of_tmp();
    let (data, main) = (top.join("data"), top.join("main"));
    std::fs::create_dir_all(main.join("sub")).unwrap();
    std::fs::write(main.join("sub/file"), "one\n").unwrap();
    git(&main, &["init", "-q", "-b", "main"]);
    git(&main, &["add", "."]);
    git(&main, &["commit", "-q", "-m", "first"]);
    git(&main, &["worktree", "add", "-q", "../tree"]);
    let name = "git -c user.name=u -c user.email=u@example.com";
    let change = format!(
        "echo more >> $(ls -d sub/file file 2>/dev/null) && {name} commit -qam changed; echo status $?"
    );
    let attack = "d=$(git rev-parse --git-common-dir); echo id > $d/hooks/post-commit; git config alias.x '!id'; \
                  echo x > $d/refs/heads/evil; mv $d $d.old; rm -rf $d; echo attacked";
    for cwd in [main.join("sub"), top.join("tree")] {
        let before =
            [git(&cwd, &["rev-parse", "HEAD"]), git(&main, &["config", "--list", "--local"])];
        let hooks = tree(&main.join(".git/hooks"));
        let (said, _) =
            commit(&data, &cwd, &[json!({ "command": attack }), json!({ "command": change })]);
        assert!(said.contains("attacked") && !said.contains("status 0"), "{said}");
        assert_eq!(
            [git(&cwd, &["rev-parse", "HEAD"]), git(&main, &["config", "--list", "--local"])],
            before
        );
        assert!(!main.join(".git/refs/heads/evil").exists());
        git(&cwd, &["checkout", "-q", "."]);

        let with_git =
            |command: &str| json!({ "command": command, "git": true, "reason": "to commit" });
        let (said, asked) = commit(
            &data,
            &cwd,
            &[
                with_git(&change),
                with_git(
                    "echo id > $(git rev-parse --git-common-dir)/hooks/x; git config alias.x '!id'",
                ),
            ],
        );
        assert!(said.contains("status 0"), "{said}");
        let place = format!("Needs to change {}: to commit", main.join(".git").display());
        assert!(asked.contains(&place), "{asked}");
        assert_ne!(git(&cwd, &["rev-parse", "HEAD"]), before[0]);
        assert_eq!(git(&main, &["config", "--list", "--local"]), before[1]);
        assert_eq!(tree(&main.join(".git/hooks")), hooks);
        assert_eq!(git(&cwd, &["status", "--porcelain"]), "");
    }
}

/// Permission to change `.git` is for the history, not for hooks: `.git` cannot be moved away and replaced either.
// R: T2, T7
#[test]
fn permission_for_git_does_not_permit_replacing_hooks() {
    let top = Directory::new();
    let (data, main) = (top.join("data"), top.join("main"));
    std::fs::create_dir_all(&main).unwrap();
    git(&main, &["init", "-q", "-b", "main"]);
    let before = tree(&main.join(".git/hooks"));
    let attack = "mv .git g2 && cp -r g2 .git && echo id > .git/hooks/pre-commit; echo status $?";
    let input = json!({ "command": attack, "git": true, "reason": "to commit" });
    let (said, _) = commit(&data, &main, &[input]);
    assert!(said.contains("status 1"), "{said}");
    assert_eq!(tree(&main.join(".git/hooks")), before);
}

/// A session in a directory that contains our own data, such as the home directory, sees everything but that data.
// R: T7
#[test]
fn our_own_data_is_hidden_inside_a_session_directory() {
    let top = Directory::new();
    let data = top.join("data");
    std::fs::create_dir_all(data.join("purlin")).unwrap();
    std::fs::write(data.join("purlin/auth.json"), "{ \"canary\": \"a key\" }").unwrap();
    std::fs::write(top.join("seen"), "a file").unwrap();
    let read = json!({ "command": "cat seen data/purlin/auth.json; grep -r canary data" });
    let (said, _) = commit(&data, &top, &[read]);
    assert!(said.contains("a file") && !said.contains("a key"), "{said}");
    let inside = json!({ "command": "cat auth.json; ls" });
    let (said, _) = commit(&data, &data.join("purlin"), &[inside]);
    assert!(!said.contains("a key"), "{said}");
}
