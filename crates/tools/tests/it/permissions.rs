//! What a call needs permission for, and what a permanent answer covers.

use std::path::PathBuf;

use engine::permission::policy::Policy;
use engine::permission::rules::{Rule, Source};
use engine::permission::{Access, Decision, PermissionKey};
use serde_json::json;
use tools::bash::Requirement;

use crate::desk::{Desk, Outcome};

fn asked(outcome: Outcome) -> Vec<(String, Option<String>)> {
    match outcome {
        Outcome::Asked(asked) => {
            asked.into_iter().map(|one| (one.key.to_string(), one.always)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Permission to edit does not include the files that decide what git runs.
// R: T2
#[tokio::test]
async fn edits_in_git_directories_need_a_separate_permission() {
    let desk = Desk::new();
    desk.put("sub/.git/config", "[core]\n");
    let patch = "*** Begin Patch\n*** Add File: .git/hooks/pre-commit\n+id\n*** End Patch";
    for (tool, input, place) in [
        (
            "write",
            json!({ "filePath": ".git/hooks/pre-commit", "content": "id" }),
            ".git/hooks/pre-commit",
        ),
        ("write", json!({ "filePath": "new/.git", "content": "gitdir: /evil" }), "new/.git"),
        ("apply_patch", json!({ "patchText": patch }), ".git/hooks/pre-commit"),
    ] {
        let asked = asked(desk.call(tool, input).await);
        assert_eq!(asked, [("git".to_owned(), Some(place.to_owned()))], "{tool}");
    }
    desk.call("read", json!({ "filePath": "sub/.git/config" })).await.done();
    let edit =
        json!({ "filePath": "sub/.git/config", "oldString": "[core]", "newString": "[alias]" });
    assert_eq!(asked(desk.call("edit", edit).await)[0].0, "git");
    assert_eq!(desk.bytes("sub/.git/config"), b"[core]\n");
}

// R: T2
#[tokio::test]
async fn permanent_answer_outside_covers_only_that_directory() {
    let desk = Desk::new();
    std::fs::create_dir_all(desk.top.join("other")).unwrap();
    std::fs::write(desk.top.join("other/x"), "x").unwrap();
    let directory = desk.top.join("other").display().to_string();
    let rule = Some(format!("{directory}/*"));
    for (tool, input) in [
        ("read", json!({ "filePath": format!("{directory}/x") })),
        ("list", json!({ "path": directory })),
        ("grep", json!({ "path": directory, "pattern": "x" })),
    ] {
        let asked = asked(desk.call(tool, input).await);
        assert_eq!(asked[0], ("external_directory".to_owned(), rule.clone()), "{tool}");
    }
    assert_eq!(asked(desk.call("list", json!({ "path": "/" })).await)[0].1, None);
}

/// Permission to read a directory outside does not allow writing there; a rule that forbids applies to both.
// R: T2
#[tokio::test]
async fn change_outside_needs_permission_for_the_exact_path() {
    let mut desk = Desk::new();
    desk.goes_out = true;
    let place = |name: &str| desk.top.join(name).display().to_string();
    let patch = format!("*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch", place("b"));
    for (tool, input, place) in [
        ("write", json!({ "filePath": place("a"), "content": "x" }), place("a")),
        ("apply_patch", json!({ "patchText": patch }), place("b")),
    ] {
        let mut access = Vec::new();
        desk.call_after(tool, input, |intent| access.clone_from(&intent.access)).await.done();
        assert_eq!(access[0], Access::ask(PermissionKey::WriteOutside, &*place), "{tool}");
        let rule = |key: &str, pattern: &str, decision| Rule {
            key: key.to_owned(),
            pattern: pattern.to_owned(),
            decision,
            source: Source::User,
        };
        let directory = desk.top.join("*").display().to_string();
        let edit = rule("edit", "*", Decision::Allow);
        let judge =
            |rules: &[Rule]| Policy::new(rules.to_vec(), Vec::new(), None).judge(&access).decision;
        let read = rule("external_directory", &directory, Decision::Allow);
        assert_eq!(judge(&[read, edit.clone()]), Decision::Ask, "{tool}");
        let here = rule("write_outside", &place, Decision::Allow);
        assert_eq!(judge(&[here.clone(), edit.clone()]), Decision::Allow, "{tool}");
        for key in ["external_directory", "edit"] {
            let deny = rule(key, &directory, Decision::Reject);
            assert_eq!(judge(&[here.clone(), edit.clone(), deny]), Decision::Reject, "{key}");
        }
    }
}

/// A rule that was saved for a bare name does not match a program that runs what it reads.
// R: T2
#[test]
fn saved_rule_does_not_match_a_program_that_runs_its_input() {
    let rule = |pattern: &str| Rule {
        key: "bash".to_owned(),
        pattern: pattern.to_owned(),
        decision: Decision::Allow,
        source: Source::Stored,
    };
    let policy = Policy::new(vec![rule("sh"), rule("python3"), rule("psql")], Vec::new(), None);
    let roots = [PathBuf::from("/no/such/work")];
    let place = shell::Context {
        cwd: &roots[0],
        roots: &roots,
        own: &[],
        home: None,
        is_sandboxed: true,
        writable: &[],
        real: &shell::real,
        is_deceptive: engine::words::deceives,
    };
    for (command, expected) in [
        ("echo x | sh", Decision::Ask),
        ("python3 <<'E'\nx\nE", Decision::Ask),
        ("psql", Decision::Allow),
    ] {
        let needs = shell::needs(command, &place).into_iter();
        let access: Vec<Access> = needs.map(|need| Requirement::from(need).access).collect();
        assert_eq!(policy.judge(&access).decision, expected, "{command}");
    }
}

#[tokio::test]
async fn replaced_file_keeps_its_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let desk = Desk::new();
    desk.put("a.txt", "one\n");
    setxattr(desk.at("a.txt"), "user.note", b"kept", XattrFlags::empty()).unwrap();
    desk.call("read", json!({ "filePath": "a.txt" })).await.done();
    let edit = json!({ "filePath": "a.txt", "oldString": "one", "newString": "two" });
    desk.call("edit", edit).await.done();
    let mut value = [0; 16];
    let length = getxattr(desk.at("a.txt"), "user.note", &mut value).unwrap();
    assert_eq!((desk.bytes("a.txt").as_slice(), &value[..length]), (&b"two\n"[..], &b"kept"[..]));
}

#[tokio::test]
async fn command_output_is_readable_without_permission_and_not_writable() {
    let desk = Desk::new();
    let outputs = desk.top.join("outputs/s");
    std::fs::create_dir_all(&outputs).unwrap();
    std::fs::write(outputs.join("t1.txt"), "line\n").unwrap();
    std::fs::write(desk.top.join("outputs/other"), "line\n").unwrap();
    let path = outputs.join("t1.txt");
    assert!(desk.call("read", json!({ "filePath": path })).await.done().contains("line"));
    assert!(
        desk.call("grep", json!({ "path": path, "pattern": "line" })).await.done().contains("line")
    );
    let write = desk.call("write", json!({ "filePath": path, "content": "x" })).await.failed();
    assert!(write.contains("no tool may access"), "{write}");
    assert!(matches!(
        desk.call("read", json!({ "filePath": desk.top.join("outputs/other") })).await,
        Outcome::Asked(_)
    ));
}
