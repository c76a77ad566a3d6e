//! File faults: encodings, links, pipes, concurrent changes. Each has its id, F01 to F26.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::desk::{Client, Desk, Outcome};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "filePath": path, "oldString": old, "newString": new })
}

/// Reads a file, makes an edit, and returns the new content.
async fn edited(before: &[u8], old: &str, new: &str) -> Result<Vec<u8>, String> {
    let desk = Desk::new();
    desk.put("a", before);
    desk.call("read", json!({ "filePath": "a" })).await.done();
    match desk.call("edit", edit("a", old, new)).await {
        Outcome::Done(_) => Ok(desk.bytes("a")),
        Outcome::Failed(why) => {
            assert_eq!(desk.bytes("a"), before, "refused and changed all the same");
            Err(why)
        }
        Outcome::Asked(asked) => panic!("{asked:?}"),
    }
}

fn wide(text: &str) -> Vec<u8> {
    std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

#[tokio::test]
async fn f01_bytes_that_are_not_utf_8_are_shown_and_not_edited() {
    let desk = Desk::new();
    desk.put("a", b"caf\xe9\n");
    let text = desk.call("read", json!({ "filePath": "a" })).await.done();
    assert!(text.contains("caf\\xe9") && text.contains("not a text file"), "{text}");
    assert!(edited(b"caf\xe9\n", "caf", "x").await.unwrap_err().contains("not UTF-8"));
    let over = json!({ "filePath": "a", "content": "x" });
    assert!(desk.call("write", over).await.failed().contains("not UTF-8"));
}

#[tokio::test]
async fn f02_utf_16_stays_utf_16() {
    assert_eq!(
        edited(&wide("one\r\nzwölf\r\n"), "zwölf", "zwei").await,
        Ok(wide("one\r\nzwei\r\n"))
    );
}

#[tokio::test]
async fn f03_a_byte_order_mark_stays() {
    let (before, after) = ("\u{feff}one\n".as_bytes(), "\u{feff}two\n".as_bytes());
    assert_eq!(edited(before, "one", "two").await.as_deref(), Ok(after));
    let desk = Desk::new();
    desk.put("a", before);
    desk.call("read", json!({ "filePath": "a" })).await.done();
    desk.call("write", json!({ "filePath": "a", "content": "two\n" })).await.done();
    assert_eq!(desk.bytes("a"), after);
}

#[tokio::test]
async fn f04_line_endings_of_windows_stay() {
    assert_eq!(
        edited(b"a\r\nb\r\n", "a\nb", "a\nx\ny").await.as_deref(),
        Ok(&b"a\r\nx\r\ny\r\n"[..])
    );
    let desk = Desk::new();
    desk.put("a", "a\r\nb\r\n");
    desk.call("read", json!({ "filePath": "a" })).await.done();
    desk.call("write", json!({ "filePath": "a", "content": "c\nd\n" })).await.done();
    assert_eq!(desk.bytes("a"), b"c\r\nd\r\n");
}

#[tokio::test]
async fn f05_mixed_line_endings_stay_mixed() {
    let after = edited(b"a\r\nb\nc\r\nd\n", "b\nc", "B\nc").await;
    assert_eq!(after.as_deref(), Ok(&b"a\r\nB\nc\r\nd\n"[..]));
}

#[tokio::test]
async fn f06_lone_returns_stay() {
    assert_eq!(edited(b"a\rb\rc", "b", "x").await.as_deref(), Ok(&b"a\rx\rc"[..]));
}

#[tokio::test]
async fn f07_a_missing_last_newline_stays_missing() {
    assert_eq!(edited(b"a\nb", "b", "c").await.as_deref(), Ok(&b"a\nc"[..]));
}

#[tokio::test]
async fn f08_nul_means_binary() {
    assert!(edited(b"a\0b", "a", "x").await.unwrap_err().contains("NUL"));
}

#[tokio::test]
async fn f09_a_byte_too_many_is_shown_in_part_and_not_changed() {
    let desk = Desk::new();
    desk.put("fits", "x".repeat(10 * 1024 * 1024));
    desk.put("long", "x".repeat(10 * 1024 * 1024 + 1));
    desk.call("read", json!({ "filePath": "fits" })).await.done();
    let shown = desk.call("read", json!({ "filePath": "long" })).await.done();
    assert!(shown.len() < 3000 && shown.contains("the file has 11 MB"), "{shown}");
    let why = desk.call("edit", edit("long", "a", "b")).await.failed();
    assert!(why.starts_with("long is too large (11 MB; the limit is 10 MB)"), "{why}");
    let why = desk.call("read", json!({ "filePath": "none" })).await.failed();
    assert_eq!(why, "none not found");
}

#[tokio::test]
async fn f10_a_huge_sparse_file_is_not_read() {
    let desk = Desk::new();
    std::fs::File::create(desk.at("sparse")).unwrap().set_len(1 << 30).unwrap();
    assert!(desk.call("read", json!({ "filePath": "sparse" })).await.failed().contains("1024 MB"));
    assert!(desk.call("edit", edit("sparse", "a", "b")).await.failed().contains("1024 MB"));
}

#[tokio::test]
async fn f11_a_link_inside_is_followed_and_stays_a_link() {
    let desk = Desk::new();
    desk.put("real/a", "one\n");
    symlink("real/a", desk.at("link")).unwrap();
    symlink(desk.at("real"), desk.at("folder")).unwrap();
    desk.call("read", json!({ "filePath": "link" })).await.done();
    desk.call("edit", edit("link", "one", "two")).await.done();
    desk.call("edit", edit("folder/a", "two", "three")).await.done();
    assert_eq!(desk.bytes("real/a"), b"three\n");
    assert!(desk.at("link").symlink_metadata().unwrap().is_symlink());
}

#[tokio::test]
async fn f12_a_link_to_the_outside_asks_for_where_it_leads() {
    let desk = Desk::new();
    let secret = desk.top.join("secret");
    std::fs::write(&secret, "s").unwrap();
    symlink(&secret, desk.at("link")).unwrap();
    let Outcome::Asked(asked) = desk.call("read", json!({ "filePath": "link" })).await else {
        panic!("read without asking");
    };
    assert_eq!(asked[0].key.as_str(), "external_directory");
    assert_eq!(asked[0].subject, secret.to_string_lossy());
    assert_eq!(asked[0].always, Some(desk.top.join("*").to_string_lossy().into_owned()));
    let over = json!({ "filePath": "link", "content": "x" });
    // It was not read; otherwise it would need permission.
    assert!(desk.call("write", over).await.failed().contains("has not been read"));
    assert_eq!(std::fs::read(&secret).unwrap(), b"s");
}

#[tokio::test]
async fn f13_loop_of_links_is_refused() {
    let desk = Desk::new();
    symlink("b", desk.at("a")).unwrap();
    symlink("a", desk.at("b")).unwrap();
    for (tool, field) in [("read", "filePath"), ("list", "path"), ("grep", "path")] {
        let why = desk.call(tool, json!({ field: "a", "pattern": "x" })).await.failed();
        assert!(why.contains("broken link"), "{tool}: {why}");
    }
}

#[tokio::test]
async fn f14_nothing_is_written_through_a_dangling_link() {
    let desk = Desk::new();
    symlink(desk.top.join("none"), desk.at("out")).unwrap();
    symlink("none", desk.at("in")).unwrap();
    for name in ["out", "in"] {
        let write = json!({ "filePath": name, "content": "x" });
        assert!(desk.call("write", write).await.failed().contains("broken link"));
    }
    assert!(!desk.top.join("none").exists() && !desk.at("none").exists());
}

#[tokio::test]
async fn f15_a_file_with_two_names_keeps_both() {
    let desk = Desk::new();
    desk.put("a", "one\n");
    std::fs::hard_link(desk.at("a"), desk.at("b")).unwrap();
    desk.call("read", json!({ "filePath": "a" })).await.done();
    desk.call("edit", edit("a", "one", "a longer text")).await.done();
    assert_eq!(desk.bytes("b"), b"a longer text\n");
    desk.call("edit", edit("a", "a longer text", "x")).await.done();
    assert_eq!((desk.bytes("a"), desk.bytes("b")), (b"x\n".to_vec(), b"x\n".to_vec()));
}

#[tokio::test]
async fn f16_f17_f18_pipes_sockets_and_devices_are_refused_at_once() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let mut desk = Desk::new();
    desk.goes_out = true;
    mknodat(CWD, desk.at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(desk.at("socket")).unwrap();
    for (path, what) in [("pipe", "a pipe"), ("socket", "a socket"), ("/dev/zero", "a device")] {
        for (tool, input) in [
            ("read", json!({ "filePath": path })),
            ("write", json!({ "filePath": path, "content": "x" })),
            ("edit", edit(path, "a", "b")),
            ("grep", json!({ "pattern": "x", "path": path })),
            ("list", json!({ "path": path })),
        ] {
            assert!(desk.call(tool, input).await.failed().contains(what), "{tool} {path}");
        }
    }
    desk.put("a", "needle\n");
    let found = desk.call("grep", json!({ "pattern": "needle" })).await.done();
    assert!(found.starts_with("a\n"), "{found}");
}

#[tokio::test]
async fn f19_a_directory_is_no_file() {
    let desk = Desk::new();
    desk.put("folder/a", "");
    for (tool, input) in [
        ("read", json!({ "filePath": "folder" })),
        ("write", json!({ "filePath": "folder", "content": "x" })),
        ("edit", edit("folder", "a", "b")),
    ] {
        assert!(desk.call(tool, input).await.failed().contains("is a folder"), "{tool}");
    }
}

#[tokio::test]
async fn f20_an_unreadable_file_says_so() {
    let mut desk = Desk::new();
    desk.goes_out = true;
    desk.put("a", "x");
    std::fs::set_permissions(desk.at("a"), PermissionsExt::from_mode(0o000)).unwrap();
    // Root can read everything except a few files of the kernel.
    let is_root = std::fs::File::open(desk.at("a")).is_ok();
    let path = if is_root { "/proc/sys/vm/compact_memory" } else { "a" };
    let why = desk.call("read", json!({ "filePath": path })).await.failed();
    assert!(why.contains("permission denied"), "{why}");
}

#[tokio::test]
async fn f21_a_read_only_file_stays_and_rights_are_kept() {
    let desk = Desk::new();
    desk.put("locked", "one");
    desk.put("script", "one");
    std::fs::set_permissions(desk.at("locked"), PermissionsExt::from_mode(0o444)).unwrap();
    std::fs::set_permissions(desk.at("script"), PermissionsExt::from_mode(0o4751)).unwrap();
    for name in ["locked", "script"] {
        desk.call("read", json!({ "filePath": name })).await.done();
    }
    assert!(desk.call("edit", edit("locked", "one", "two")).await.failed().contains("read-only"));
    assert_eq!(desk.bytes("locked"), b"one");
    desk.call("edit", edit("script", "one", "two")).await.done();
    let mode = std::fs::metadata(desk.at("script")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o4751);
}

#[tokio::test]
async fn moved_file_keeps_its_mode_and_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let desk = Desk::new();
    desk.put("script", "one\n");
    std::fs::set_permissions(desk.at("script"), PermissionsExt::from_mode(0o751)).unwrap();
    // Not every file system has attributes.
    let has = setxattr(desk.at("script"), "user.k", b"v", XattrFlags::empty()).is_ok();
    desk.call("read", json!({ "filePath": "script" })).await.done();
    let patch = "*** Begin Patch\n*** Update File: script\n*** Move to: bin/script\n-one\n+two\n*** End Patch";
    desk.call("apply_patch", json!({ "patchText": patch })).await.done();
    assert_eq!(desk.bytes("bin/script"), b"two\n");
    let mode = std::fs::metadata(desk.at("bin/script")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
    // It was read completely, so it may be overwritten in its new place.
    desk.call("write", json!({ "filePath": "bin/script", "content": "three\n" })).await.done();
    let mut value = [0; 1];
    assert!(
        !has || getxattr(desk.at("bin/script"), "user.k", &mut value).is_ok_and(|_| &value == b"v")
    );
}

/// The target would be removed, and the link would stay broken.
#[tokio::test]
async fn link_is_neither_deleted_nor_moved_in_place_of_its_target() {
    let desk = Desk::new();
    desk.put("real/a", "one\n");
    symlink("real/a", desk.at("link")).unwrap();
    symlink("real", desk.at("folder")).unwrap();
    desk.call("read", json!({ "filePath": "link" })).await.done();
    for step in ["*** Delete File: link", "*** Update File: link\n*** Move to: b\n-one\n+two"] {
        let patch = format!("*** Begin Patch\n{step}\n*** End Patch");
        let why = desk.call("apply_patch", json!({ "patchText": patch })).await.failed();
        assert!(why.contains("link is a link to real/a"), "{why}");
    }
    assert!(desk.at("link").exists());
    let patch = "*** Begin Patch\n*** Delete File: folder/a\n*** End Patch";
    desk.call("apply_patch", json!({ "patchText": patch })).await.done();
    assert!(!desk.at("real/a").exists());
}

// Fault: F22, T15
#[tokio::test]
async fn f22_a_file_that_changed_since_it_was_read_is_left_alone() {
    let desk = Desk::new();
    desk.put("a", "one\n");
    assert!(
        desk.call("edit", edit("a", "one", "two")).await.failed().contains("has not been read")
    );
    desk.call("read", json!({ "filePath": "a" })).await.done();
    desk.put("a", "one and more\n");
    let why = desk.call("edit", edit("a", "one", "two")).await.failed();
    assert!(why.contains("has changed since it was read"), "{why}");
    let over = json!({ "filePath": "a", "content": "x" });
    assert!(desk.call("write", over).await.failed().contains("has changed since"));
    // Even while the user is asked.
    desk.call("read", json!({ "filePath": "a" })).await.done();
    let late = desk.call_after("edit", edit("a", "one", "two"), |_| desk.put("a", "one, late\n"));
    assert!(late.await.failed().contains("has changed since"));
    assert_eq!(desk.bytes("a"), b"one, late\n");
    let new = json!({ "filePath": "new", "content": "x" });
    let late = desk.call_after("write", new, |_| desk.put("new", "theirs"));
    assert!(late.await.failed().contains("has changed since"));
    assert_eq!(desk.bytes("new"), b"theirs");
}

/// On the disk and through a client.
// Fault: T15
#[tokio::test]
async fn unread_content_is_not_overwritten() {
    let text: String = (1..=5000).map(|line| format!("line {line}\n")).collect();
    for client in [Client::default(), Client::with_files()] {
        let desk = Desk::with(client);
        desk.put("a", &text);
        desk.client.open(&desk.at("a"), &text);
        let read = |offset: u32, limit: u32| {
            desk.call("read", json!({ "filePath": "a", "offset": offset, "limit": limit }))
        };
        let over = || desk.call("write", json!({ "filePath": "a", "content": "x\n" }));
        // A failed read shows nothing.
        assert!(read(6000, 5).await.failed().contains("5000 lines"));
        assert!(over().await.failed().contains("has not been read"));
        read(100, 10).await.done();
        assert!(over().await.failed().contains("only part of"));
        // A change of the read part does not show the rest.
        desk.call("edit", edit("a", "line 105\n", "LINE 105\n")).await.done();
        assert!(over().await.failed().contains("only part of"));
        desk.call("edit", edit("a", "line 106\n", "LINE 106\n")).await.done();
        // At most 2000 lines are shown, with or without a limit.
        desk.call("read", json!({ "filePath": "a" })).await.done();
        assert!(over().await.failed().contains("only part of"));
        read(4000, 2000).await.done();
        assert!(over().await.failed().contains("only part of"));
        read(1900, 2100).await.done();
        over().await.done();
        // The model knows what it wrote, even after it reads a part again.
        read(1, 1).await.done();
        desk.call("write", json!({ "filePath": "a", "content": "y\n" })).await.done();
    }
}

#[tokio::test]
async fn cut_line_is_not_read_and_a_second_read_replaces_the_first() {
    let desk = Desk::new();
    desk.put("long", format!("one\n{}\n", "x".repeat(3000)));
    desk.call("read", json!({ "filePath": "long" })).await.done();
    let over = json!({ "filePath": "long", "content": "x" });
    assert!(desk.call("write", over).await.failed().contains("only part of"));
    desk.call("edit", edit("long", "one", "two")).await.done();
    desk.put("a", "1\n2\n3\n");
    desk.call("write", json!({ "filePath": "b", "content": "1\n2\n3\n" })).await.done();
    for name in ["a", "b"] {
        desk.call("read", json!({ "filePath": name, "limit": 1 })).await.done();
        desk.put(name, "one\n2\n3\n");
        assert!(desk.call("edit", edit(name, "2", "two")).await.failed().contains("has changed"));
        desk.call("read", json!({ "filePath": name, "limit": 2 })).await.done();
        desk.call("edit", edit(name, "2", "two")).await.done();
    }
}

#[tokio::test]
async fn failed_call_has_a_title() {
    let desk = Desk::new();
    desk.put("a", "one\none\n");
    let patch = |step: &str| json!({ "patchText": format!("*** Begin Patch\n{step}\n-one\n+1") });
    let absolute = desk.at("a").to_string_lossy().into_owned();
    for (tool, input, title, files) in [
        ("edit", edit("a", "one", "two"), "Edit a", &["a"][..]),
        ("edit", edit(&absolute, "one", "two"), "Edit a", &["a"]),
        ("write", json!({ "file_path": "./sub/../a", "content": "" }), "Write ./sub/../a", &["a"]),
        ("apply_patch", patch("*** Update File: a"), "Patch a", &["a"]),
        (
            "apply_patch",
            patch("*** Delete File: b\n*** Update File: a\n*** Move to: c"),
            "Patch b and 2 more",
            &["b", "a", "c"],
        ),
        ("apply_patch", json!({ "patchText": "nothing" }), "Patch", &[]),
        ("read", json!({ "filePath": "~/a" }), "Read ~/a", &[]),
    ] {
        let outcome = desk.call_after(tool, input, |intent| {
            assert_eq!(intent.title, title);
            let named: Vec<_> = intent.locations.iter().map(|at| at.path.clone()).collect();
            assert_eq!(named, files.iter().map(|file| desk.at(file)).collect::<Vec<_>>());
        });
        outcome.await.failed();
    }
}

#[tokio::test]
async fn f23_replaced_file_is_compared_by_content() {
    let desk = Desk::new();
    desk.put("a", "one\n");
    desk.call("read", json!({ "filePath": "a" })).await.done();
    desk.put("b", "one\n");
    std::fs::rename(desk.at("b"), desk.at("a")).unwrap();
    desk.call("edit", edit("a", "one", "two")).await.done();
    desk.put("b", "other two\n");
    std::fs::rename(desk.at("b"), desk.at("a")).unwrap();
    assert!(desk.call("edit", edit("a", "two", "x")).await.failed().contains("has changed"));
}

#[tokio::test]
async fn f24_the_time_of_a_change_does_not_matter() {
    let desk = Desk::new();
    desk.put("a", "one\n");
    let before = std::fs::metadata(desk.at("a")).unwrap();
    desk.call("read", json!({ "filePath": "a" })).await.done();
    desk.put("a", "One\n");
    let file = std::fs::File::options().write(true).open(desk.at("a")).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let after = std::fs::metadata(desk.at("a")).unwrap();
    assert_eq!((before.mtime_nsec(), before.len()), (after.mtime_nsec(), after.len()));
    assert!(desk.call("edit", edit("a", "One", "x")).await.failed().contains("has changed"));
}

#[tokio::test]
async fn f25_every_name_that_can_be_written_works() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let desk = Desk::new();
    let deep = format!("{}/x", vec!["d".repeat(250); 14].join("/"));
    let names = [
        "a\nb",
        "a\tb\u{1b}[31m",
        "-rf",
        " ",
        "ü\u{202e}",
        "$HOME",
        "a\\b",
        "*",
        &"n".repeat(255),
        &deep,
    ];
    for name in names {
        let write = json!({ "filePath": format!("./{name}"), "content": "one" });
        desk.call_after("write", write, |intent| {
            assert!(!intent.title.contains(['\n', '\u{1b}', '\u{202e}']), "{:?}", intent.title);
        })
        .await
        .done();
        desk.call("edit", edit(&format!("./{name}"), "one", "two")).await.done();
        assert_eq!(desk.bytes(name), b"two", "{name:?}");
    }
    let long = json!({ "filePath": "n".repeat(256), "content": "x" });
    assert!(matches!(desk.call("write", long).await, Outcome::Failed(_)));
    let long = json!({ "filePath": "d/".repeat(2100), "content": "x" });
    assert!(matches!(desk.call("write", long).await, Outcome::Failed(_)));
    std::fs::write(desk.at("").join(OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    assert!(desk.call("list", json!({})).await.done().contains("caf\\xe9"));
}

/// How often the user saves the file.
const SAVES: usize = 300;

#[tokio::test]
async fn f26_what_the_user_saves_during_a_write_is_never_lost() {
    let desk = Desk::new();
    desk.put("a", "v0\nx\n");
    let (path, beside) = (desk.at("a"), desk.top.join("beside"));
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tries);
    // Saves during every second attempt, at any moment.
    let saver = std::thread::spawn(move || {
        for version in 1..=SAVES {
            while seen.load(Ordering::Relaxed) < 2 * version {
                std::hint::spin_loop();
            }
            for _ in 0..version * 7919 % 100_000 {
                std::hint::spin_loop();
            }
            std::fs::write(&beside, format!("v{version}\nx\n")).unwrap();
            std::fs::rename(&beside, &path).unwrap();
        }
    });
    let mut done = 0;
    while !saver.is_finished() {
        desk.call("read", json!({ "filePath": "a" })).await.done();
        tries.fetch_add(1, Ordering::Relaxed);
        let edit = edit("a", "x\n", "x\nx\n");
        if matches!(desk.call("edit", edit).await, Outcome::Done(_)) {
            done += 1;
        }
    }
    saver.join().unwrap();
    let text = String::from_utf8(desk.bytes("a")).unwrap();
    assert!(text.starts_with(&format!("v{SAVES}\n")), "{text}");
    assert!(done > 0, "no edit went through, so nothing was shown");
    let left: Vec<_> =
        std::fs::read_dir(desk.at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["a"], "temporary files are left");
    eprintln!("{done} edits went through");
}
