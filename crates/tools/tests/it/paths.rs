//! Paths in every spelling, through every tool: each is inside, asked for, or refused.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::desk::{Desk, Outcome};

/// The expected result of a spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Inside.
    In,
    /// Outside, which needs permission.
    Out,
    /// Not a valid path.
    No,
}

use Verdict::{In, No, Out};

/// Spellings relative to the working directory. Each is tried as it is, and after the directory's absolute path.
const BELOW: [(&str, Verdict); 62] = [
    ("a.txt", In),
    ("./a.txt", In),
    ("././a.txt", In),
    (".//a.txt", In),
    ("src//b.txt", In),
    ("src/./b.txt", In),
    ("src/../a.txt", In),
    ("src/deep/../../a.txt", In),
    ("none/../a.txt", In),
    ("a.txt/", In),
    ("a.txt/.", In),
    ("src/b.txt/../../a.txt", In),
    ("new.txt", In),
    ("new/folder/file.txt", In),
    (" ", In),
    ("a.txt ", In),
    ("a.txt.", In),
    ("A.TXT", In),
    ("...", In),
    (".../x", In),
    ("..a", In),
    ("a..", In),
    ("$HOME/x", In),
    ("${HOME}/x", In),
    ("%2e%2e/outer.txt", In),
    ("..%2fouter.txt", In),
    ("\\..\\outer.txt", In),
    ("C:\\outer.txt", In),
    ("a\nb", In),
    ("a\tb", In),
    ("caf\u{e9}", In),
    ("cafe\u{301}", In),
    ("\u{202e}txt", In),
    ("\u{ff0e}\u{ff0e}/outer.txt", In),
    ("*", In),
    ("[a]", In),
    ("-rf", In),
    ("link-in", In),
    ("link-folder/b.txt", In),
    ("link-absolute/b.txt", In),
    ("link-folder/../a.txt", In),
    ("chain-in", In),
    ("hard.txt", In),
    (".git/config", In),
    ("sub/.git", In),
    ("..", Out),
    ("../outer.txt", Out),
    ("../w-evil/x.txt", Out),
    ("src/../../outer.txt", Out),
    ("./../outer.txt", Out),
    ("..//outer.txt", Out),
    (".././outer.txt", Out),
    ("../w/../outer.txt", Out),
    ("../../../../../../../../etc/passwd", Out),
    ("link-out", Out),
    ("link-up/outer.txt", Out),
    ("link-up/new.txt", Out),
    ("link-root/etc/passwd", Out),
    ("chain-out", Out),
    ("link-evil/x.txt", Out),
    ("loop", No),
    ("dangling", No),
];

/// Absolute spellings. `TOP` is the directory above the working directory.
const WHOLE: [(&str, Verdict); 30] = [
    ("", No),
    ("~", No),
    ("~/.ssh/id_rsa", No),
    ("file:///etc/passwd", No),
    ("file://TOP/outer.txt", No),
    ("https://example.com/x", No),
    ("a\0b", No),
    ("TOP/w/a.txt\0/../../outer.txt", No),
    ("dangling-in", No),
    ("loop/x", No),
    ("chain-41", No),
    ("/", Out),
    ("//", Out),
    ("/etc/passwd", Out),
    ("//etc//passwd", Out),
    ("/./etc/../etc/passwd", Out),
    ("/proc/self/root/etc/passwd", Out),
    ("/proc/self/environ", No),
    ("/dev/null", Out),
    ("/dev/fd/0/x", Out),
    ("TOP/outer.txt", Out),
    ("TOP/w-evil/x.txt", Out),
    ("TOP/wx", Out),
    ("TOP/W/a.txt", Out),
    ("TOP", Out),
    ("TOP/w/../w-evil/x.txt", Out),
    ("TOP/w", In),
    ("TOP/w/", In),
    ("TOP/link-to-w/a.txt", In),
    ("TOP/w-evil/../w/a.txt", In),
];

fn tree() -> Desk {
    let desk = Desk::new();
    let top = desk.top.clone();
    desk.put("a.txt", "inside\n");
    desk.put("src/b.txt", "inside\n");
    desk.put("src/deep/c.txt", "inside\n");
    desk.put(".git/config", "inside\n");
    // A `.git` file of a worktree or submodule is an ordinary file here.
    desk.put("sub/.git", format!("gitdir: {}\n", top.join("w-evil").display()));
    std::fs::hard_link(desk.at("a.txt"), desk.at("hard.txt")).unwrap();
    std::fs::create_dir(top.join("w-evil")).unwrap();
    std::fs::write(top.join("outer.txt"), "SECRET\n").unwrap();
    std::fs::write(top.join("w-evil/x.txt"), "SECRET\n").unwrap();
    let links: [(PathBuf, &str); 11] = [
        ("src/b.txt".into(), "link-in"),
        ("src".into(), "link-folder"),
        (desk.at("src"), "link-absolute"),
        ("../outer.txt".into(), "link-out"),
        ("..".into(), "link-up"),
        ("/proc/self/root".into(), "link-root"),
        (top.join("w-evil"), "link-evil"),
        ("loop".into(), "loop"),
        ("../none".into(), "dangling"),
        ("none".into(), "dangling-in"),
        ("link-out".into(), "chain-0"),
    ];
    for (to, name) in links {
        symlink(to, desk.at(name)).unwrap();
    }
    for number in 1..=41 {
        symlink(format!("chain-{}", number - 1), desk.at(&format!("chain-{number}"))).unwrap();
    }
    symlink("chain-20", desk.at("chain-out")).unwrap();
    symlink("link-in", desk.at("chain-in")).unwrap();
    symlink(desk.at(""), top.join("link-to-w")).unwrap();
    desk
}

fn calls(path: &str) -> [(&'static str, Value); 5] {
    [
        ("read", json!({ "filePath": path })),
        ("write", json!({ "filePath": path, "content": "PWNED\n" })),
        ("edit", json!({ "filePath": path, "oldString": "SECRET", "newString": "PWNED" })),
        ("list", json!({ "path": path })),
        ("grep", json!({ "path": path, "pattern": "SECRET|x|:" })),
    ]
}

/// Returns the names and contents of all files outside the working directory.
fn outside(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for directory in [top.to_owned(), top.join("w-evil")] {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            found.push((entry.path(), bytes));
        }
    }
    found.sort();
    found
}

/// Checks the result of a call. A tool may also refuse a file for another reason (not found, a directory, not read).
fn check(desk: &Desk, spelling: &str, verdict: Verdict, tool: &str, outcome: &Outcome) {
    let tell = || format!("{tool} {spelling:?} ({verdict:?}): {outcome:?}");
    match (verdict, outcome) {
        (No, Outcome::Failed(_)) | (In, Outcome::Failed(_)) => {}
        (In, Outcome::Done(text)) => assert!(!text.contains("SECRET"), "{}", tell()),
        (Out, Outcome::Asked(asked)) => {
            let first = &asked[0];
            let writes = matches!(tool, "write" | "edit");
            let key = if writes { "write_outside" } else { "external_directory" };
            assert_eq!(first.key.as_str(), key, "{}", tell());
            let subject = Path::new(&first.subject);
            assert!(!subject.starts_with(desk.at("")), "{}", tell());
        }
        // Files in .git need a separate permission.
        (In, Outcome::Asked(asked)) if spelling.contains(".git") => {
            assert_eq!(asked[0].key.as_str(), "git", "{}", tell());
        }
        // An edit of an unread file, or a listing of a file, fails before permission is needed.
        (Out, Outcome::Failed(_)) if tool != "read" => {}
        _ => panic!("{}", tell()),
    }
}

// R: W19
#[tokio::test]
async fn every_spelling_through_every_tool_stays_inside_or_asks() {
    let below = BELOW.iter().flat_map(|(path, verdict)| {
        [((*path).to_owned(), *verdict), (format!("TOP/w/{path}"), *verdict)]
    });
    let whole = WHOLE.iter().map(|(path, verdict)| ((*path).to_owned(), *verdict));
    let spellings: Vec<(String, Verdict)> = below.chain(whole).collect();
    assert!(spellings.len() >= 120, "{} spellings", spellings.len());
    let mut count = 0;
    for (spelling, verdict) in &spellings {
        let desk = tree();
        let before = outside(&desk.top);
        let path = spelling.replace("TOP", &desk.top.to_string_lossy());
        for (tool, input) in calls(&path) {
            let outcome = desk.call(tool, input).await;
            // For searches and lists an empty path is the working directory.
            let verdict =
                if path.is_empty() && matches!(tool, "list" | "grep") { In } else { *verdict };
            check(&desk, spelling, verdict, tool, &outcome);
            count += 1;
        }
        assert_eq!(outside(&desk.top), before, "{spelling:?} changed something outside");
    }
    eprintln!("{} spellings, attempts: {count}, 0 crossings", spellings.len());
}

// R: W19
#[test]
fn client_is_never_asked_for_a_file_outside() {
    let desk = tree();
    let scope = tools::scope::Scope::new(vec![desk.at("")]);
    let mut count = 0;
    for (spelling, verdict) in BELOW {
        let path = desk.at("").join(spelling);
        let checked = scope.check(&path);
        assert_eq!(checked.is_ok(), verdict == In, "{spelling:?}: {checked:?}");
        if let Ok(path) = checked {
            assert!(path.starts_with(desk.at("")), "{spelling:?}: {path:?}");
            count += 1;
        }
    }
    assert!(count > 40);
    assert!(scope.check(Path::new("a.txt")).is_err(), "a client wants absolute paths");
}

#[tokio::test]
async fn recreated_directory_is_still_the_working_directory() {
    let desk = Desk::new();
    desk.put("a", "one");
    desk.call("read", json!({ "filePath": "a" })).await.done();
    std::fs::remove_dir_all(desk.at("")).unwrap();
    assert!(desk.call("read", json!({ "filePath": "a" })).await.failed().contains("not found"));
    std::fs::create_dir(desk.at("")).unwrap();
    desk.call("write", json!({ "filePath": "a", "content": "two" })).await.done();
    assert_eq!(desk.bytes("a"), b"two");
}
