//! Searches: ignored files, binary files, encodings, secrets, links, and limits. Patches of several files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use serde_json::json;

use crate::desk::{Client, Desk};

fn tree() -> Desk {
    let desk = Desk::new();
    desk.put("src/a.rs", "fn main() {\n    needle();\n}\n");
    desk.put("src/deep/b.rs", "// Needle\n");
    desk.put("docs/c.md", "needle in text\n");
    desk.put(".github/d.yml", "needle: yes\n");
    desk.put(".gitignore", "target/\n*.log\n");
    desk.put("target/e.rs", "needle\n");
    desk.put("f.log", "needle\n");
    desk.put(".git/config", "needle\n");
    desk.put(".env", "KEY=needle\n");
    desk.put("server.pem", "needle\n");
    desk.put("binary", b"needle\0needle\n");
    let wide: Vec<u8> = std::iter::once(0xfeff)
        .chain("needle, wide\n".encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    desk.put("wide.txt", wide);
    std::fs::write(desk.top.join("outside.txt"), "needle outside\n").unwrap();
    symlink(desk.top.join("outside.txt"), desk.at("link.txt")).unwrap();
    symlink(&desk.top, desk.at("up")).unwrap();
    desk
}

#[tokio::test]
async fn grep_finds_what_ripgrep_would_and_no_secrets() {
    let desk = tree();
    let found = desk.call("grep", json!({ "pattern": "needle" })).await.done();
    let expected = ".github/d.yml\n  1: needle: yes\ndocs/c.md\n  1: needle in text\nsrc/a.rs\n  2:     needle();\n\
                    wide.txt\n  1: needle, wide\n";
    assert_eq!(found, expected);
    let input = json!({ "pattern": "NEEDLE", "-i": true, "glob": "*.rs", "path": "src", "-C": 1 });
    let found = desk.call("grep", input).await.done();
    let expected =
        "src/a.rs\n  1- fn main() {\n  2:     needle();\n  3- }\nsrc/deep/b.rs\n  1: // Needle\n";
    assert_eq!(found, expected);
    assert_eq!(desk.call("grep", json!({ "pattern": "no such" })).await.done(), "No matches");
    assert!(desk.call("grep", json!({ "pattern": "(" })).await.failed().contains("pattern"));
}

#[tokio::test]
async fn glob_and_list_show_names_from_the_working_directory() {
    let desk = tree();
    let found = desk.call("glob", json!({ "pattern": "*.rs" })).await.done();
    let mut names: Vec<&str> = found.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["src/a.rs", "src/deep/b.rs"]);
    let found = desk.call("glob", json!({ "pattern": "deep/*", "path": "src" })).await.done();
    assert_eq!(found, "src/deep/b.rs\n");
    let listed = desk.call("list", json!({ "ignore": ["*.pem"] })).await.done();
    let expected = ".env\n.github/\n.gitignore\nbinary\ndocs/\nlink.txt\nsrc/\nup\nwide.txt\n";
    assert_eq!(listed, expected);
    let listed = desk.call("list", json!({ "path": "src", "depth": 2 })).await.done();
    assert_eq!(listed, "a.rs\ndeep/\ndeep/b.rs\n");
}

#[tokio::test]
async fn long_results_are_cut_with_a_note() {
    let desk = Desk::new();
    desk.put("many", "needle\n".repeat(300));
    desk.put("long", format!("needle {}\n", "x".repeat(10_000)));
    for number in 0..600 {
        desk.put(&format!("files/{number}.txt"), "");
    }
    let found = desk.call("grep", json!({ "pattern": "needle" })).await.done();
    assert!(found.contains("301 matches; 51 more lines"), "{found}");
    assert!(found.lines().all(|line| line.len() < 500));
    assert!(desk.call("glob", json!({ "pattern": "*.txt" })).await.done().contains("(400 more"));
    assert!(desk.call("list", json!({ "path": "files" })).await.done().contains("(100 more"));
    desk.put("lines", "x\n".repeat(5000));
    let text = desk.call("read", json!({ "filePath": "lines" })).await.done();
    assert!(text.ends_with("(lines 1 to 2000 of 5000; use `offset` for more)"), "{}", text.len());
    let text = desk.call("read", json!({ "filePath": "lines", "offset": "4999" })).await.done();
    assert_eq!(text, "  4999\tx\n  5000\tx\n");
    let why = desk.call("read", json!({ "filePath": "lines", "offset": 6000 })).await.failed();
    assert!(why.contains("5000 lines"), "{why}");
}

#[tokio::test]
async fn patch_changes_all_files_or_none() {
    let desk = Desk::new();
    desk.put("a.txt", "one\ntwo\n");
    desk.put("old.txt", "gone\n");
    desk.put("move.txt", "here\n");
    for name in ["a.txt", "old.txt", "move.txt"] {
        desk.call("read", json!({ "filePath": name })).await.done();
    }
    let bad = "*** Begin Patch\n*** Add File: new.txt\n+new\n*** Update File: a.txt\n-three\n+3\n*** End Patch";
    let why = desk.call("apply_patch", json!({ "patchText": bad })).await.failed();
    assert!(why.contains("does not match a.txt"), "{why}");
    assert!(!desk.at("new.txt").exists());
    let good = "*** Begin Patch\n*** Add File: new.txt\n+new\n*** Update File: a.txt\n one\n-two\n+2\n\
                *** Delete File: old.txt\n*** Update File: move.txt\n*** Move to: sub/there.txt\n-here\n+there\n*** End Patch";
    let done = desk.call("apply_patch", json!({ "patchText": good })).await.done();
    let expected = "new.txt is new\na.txt is changed\nold.txt is deleted\nsub/there.txt is new\nmove.txt is deleted";
    assert_eq!(done, expected);
    assert_eq!(desk.bytes("a.txt"), b"one\n2\n");
    assert_eq!(desk.bytes("sub/there.txt"), b"there\n");
    assert!(!desk.at("old.txt").exists() && !desk.at("move.txt").exists());
    let out = "*** Begin Patch\n*** Add File: ../out.txt\n+x\n*** End Patch";
    let asked = desk.call("apply_patch", json!({ "patchText": out })).await;
    assert!(matches!(asked, crate::desk::Outcome::Asked(_)), "{asked:?}");
}

/// Whenever it fails: while the user is asked, in the editor, on the disk.
#[tokio::test]
async fn failed_patch_leaves_every_file_unchanged() {
    let patch = "*** Begin Patch\n*** Update File: a\n-one\n+1\n*** Add File: new\n+n\n*** Update File: b\n-one\n+1\n\
                 *** End Patch";
    let patch = json!({ "patchText": patch });
    let desk = Desk::new();
    let again = async || {
        for name in ["a", "b"] {
            desk.put(name, "one\n");
            desk.call("read", json!({ "filePath": name })).await.done();
        }
    };
    again().await;
    let late = desk.call_after("apply_patch", patch.clone(), |_| desk.put("b", "one\nuser\n"));
    let why = late.await.failed();
    assert!(why.contains("b has changed since") && why.ends_with(". No file was changed"), "{why}");
    assert_eq!((desk.bytes("a"), desk.bytes("b")), (b"one\n".to_vec(), b"one\nuser\n".to_vec()));
    assert!(!desk.at("new").exists());
    // `b` cannot be written, which shows only when it is tried.
    again().await;
    let lock = |mode| std::fs::set_permissions(desk.at("b"), PermissionsExt::from_mode(mode));
    let late = desk.call_after("apply_patch", patch.clone(), |_| lock(0o444).unwrap());
    let why = late.await.failed();
    assert_eq!(why, "b is read-only. Reverted: a, new");
    assert_eq!((desk.bytes("a"), desk.bytes("b")), (b"one\n".to_vec(), b"one\n".to_vec()));
    assert!(!desk.at("new").exists());
    lock(0o644).unwrap();
    desk.call("apply_patch", patch).await.done();
}

#[tokio::test]
async fn file_with_unsaved_changes_is_not_moved() {
    let desk = Desk::with(Client::with_files());
    desk.put("a", "saved\n");
    desk.client.open(&desk.at("a"), "unsaved\n");
    desk.call("read", json!({ "filePath": "a" })).await.done();
    let patch = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n-unsaved\n+1\n*** End Patch";
    let why = desk.call("apply_patch", json!({ "patchText": patch })).await.failed();
    assert!(why.contains("unsaved changes"), "{why}");
    assert_eq!(desk.client.buffer(&desk.at("b")), None);
}

#[tokio::test]
async fn placeholders_are_refused() {
    let desk = Desk::new();
    let content = "fn a() {}\n// ... rest of the code ...\n";
    let why = desk.call("write", json!({ "filePath": "a.rs", "content": content })).await.failed();
    assert!(why.contains("`// ... rest of the code ...`"), "{why}");
    assert!(!desk.at("a.rs").exists());
    desk.put("b.rs", content);
    desk.call("read", json!({ "filePath": "b.rs" })).await.done();
    let keep = json!({ "filePath": "b.rs", "content": content.replace("fn a", "fn b") });
    desk.call("write", keep).await.done();
}

/// Not even with permission: the rules themselves are there.
// R: W19
#[tokio::test]
async fn no_tool_accesses_our_own_files() {
    let desk = Desk::new();
    desk.put("own/rules.json", "secret\n");
    desk.put("a.txt", "secret\n");
    let edit = json!({ "filePath": "own/rules.json", "oldString": "secret", "newString": "x" });
    let patch = "*** Begin Patch\n*** Delete File: own/rules.json\n*** End Patch";
    let calls = [
        ("read", json!({ "filePath": "own/rules.json" })),
        ("read", json!({ "filePath": "own/../own/./rules.json" })),
        ("write", json!({ "filePath": "own/new.json", "content": "x" })),
        ("edit", edit),
        ("apply_patch", json!({ "patchText": patch })),
        ("list", json!({ "path": "own" })),
        ("grep", json!({ "pattern": "secret", "path": "own" })),
    ];
    for (tool, input) in calls {
        let why = desk.call(tool, input).await.failed();
        assert!(why.contains("no tool may access"), "{tool}: {why}");
    }
    let found = desk.call("grep", json!({ "pattern": "secret" })).await.done();
    assert!(found.contains("a.txt") && !found.contains("rules"), "{found}");
    let listed = desk.call("glob", json!({ "pattern": "**" })).await.done();
    assert!(listed.contains("a.txt") && !listed.contains("rules"), "{listed}");
}

/// Our environment has keys in it, so permission to read /proc does not include this process.
// R: W19
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_tool_accesses_proc_of_this_process() {
    let mut desk = Desk::new();
    desk.goes_out = true;
    symlink("/proc/self", desk.at("self")).unwrap();
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let (us, thread) =
        (std::process::id(), thread.file_name().unwrap().to_str().unwrap().to_owned());
    for path in [
        "/proc/self/environ".to_owned(),
        "/proc/thread-self/environ".to_owned(),
        "/proc/self/task/../environ".to_owned(),
        format!("/proc/{us}/environ"),
        format!("/proc/{thread}/environ"),
        "self/environ".to_owned(),
    ] {
        let directory = path.replace("/environ", "");
        for (tool, input) in [
            ("read", json!({ "filePath": path })),
            ("write", json!({ "filePath": path, "content": "x" })),
            ("grep", json!({ "pattern": "PATH", "path": path })),
            ("list", json!({ "path": directory })),
            ("glob", json!({ "pattern": "*", "path": directory })),
        ] {
            let why = desk.call(tool, input).await.failed();
            assert!(why.contains("no tool may access"), "{tool} {path}: {why}");
        }
    }
    let listed = desk.call("list", json!({ "path": "/proc" })).await.done();
    assert!(listed.contains("1/") && !listed.lines().any(|line| line == format!("{us}/")));
    desk.call("read", json!({ "filePath": "/proc/1/comm" })).await.done();
}

/// As in a session in the home directory: paths that are hidden from commands need permission.
// R: T2
#[tokio::test]
async fn hidden_paths_need_permission() {
    let desk = Desk::new();
    desk.put(".kube/config", "needle\n");
    desk.put(".kube/cache/deep", "needle\n");
    desk.put(".history", "needle\n");
    desk.put(".kubelet", "needle\n");
    symlink(".kube/config", desk.at("link")).unwrap();
    let found = desk.call("grep", json!({ "pattern": "needle" })).await.done();
    assert_eq!(found, ".kubelet\n  1: needle\n");
    for (tool, input) in [
        ("read", json!({ "filePath": ".kube/config" })),
        ("read", json!({ "filePath": "link" })),
        ("read", json!({ "filePath": ".kube/../.kube/cache/deep" })),
        ("read", json!({ "filePath": ".history" })),
        ("grep", json!({ "pattern": "needle", "path": ".kube" })),
        ("grep", json!({ "pattern": "needle", "path": ".kube/cache" })),
        ("grep", json!({ "pattern": "needle", "path": "link" })),
    ] {
        let asked = desk.call(tool, input.clone()).await;
        assert!(matches!(asked, crate::desk::Outcome::Asked(_)), "{tool} {input}: {asked:?}");
    }
    let named = desk.call("glob", json!({ "pattern": "**/*" })).await;
    let said = format!("{named:?}");
    assert!(
        said.contains(".kubelet") && !said.contains(".kube/") && !said.contains("history"),
        "{said}"
    );
    // A command file of the project cannot include it in a prompt either.
    let scope =
        tools::scope::Scope::new(vec![desk.at("")]).with_hidden(Arc::new([desk.at(".kube")]));
    for (path, is_free) in [(".kube/config", false), ("link", false), (".kubelet", true)] {
        assert_eq!(tools::read_freely(&scope, path, 100).await.is_some(), is_free, "{path}");
    }
}
