//! File access through the client, where it offers that.

use std::sync::atomic::Ordering;

use engine::ports::Offers;
use serde_json::json;

use crate::desk::{Client, Desk, Outcome};

// R: T1
#[tokio::test]
async fn unsaved_changes_are_read_and_writes_go_through_the_client() {
    let desk = Desk::with(Client::with_files());
    desk.put("a.txt", "saved\n");
    desk.client.open(&desk.at("a.txt"), "unsaved\n");
    let text = desk.call("read", json!({ "filePath": "a.txt" })).await.done();
    assert!(text.contains("unsaved"), "{text}");
    let edit = json!({ "filePath": "a.txt", "oldString": "unsaved", "newString": "changed" });
    desk.call("edit", edit).await.done();
    assert_eq!(desk.client.buffer(&desk.at("a.txt")).as_deref(), Some("changed\n"));
    assert_eq!(desk.bytes("a.txt"), b"saved\n", "never both ways");
    desk.call("write", json!({ "filePath": "new.txt", "content": "x" })).await.done();
    assert_eq!(desk.client.buffer(&desk.at("new.txt")).as_deref(), Some("x"));
    assert!(!desk.at("new.txt").exists());
}

// R: T1
#[tokio::test]
async fn file_that_is_missing_or_empty_is_new_for_a_client_with_empty_text_for_it() {
    let desk = Desk::with(Client { has_empty_for_missing: true, ..Client::with_files() });
    let missing = desk.call("read", json!({ "filePath": "new.txt" })).await.failed();
    assert!(missing.contains("not found"), "{missing}");
    let write = |path: &str| json!({ "filePath": path, "content": "x\n" });
    assert_eq!(desk.call("write", write("new.txt")).await.done(), "Created new.txt");
    desk.put("empty.txt", "");
    desk.call("write", write("empty.txt")).await.done();
    desk.put("empty2.txt", "");
    let edit = json!({ "filePath": "empty2.txt", "oldString": "", "newString": "y\n" });
    desk.call("edit", edit).await.done();
    let patch = "*** Begin Patch\n*** Add File: empty3.txt\n+z\n*** End Patch";
    desk.put("empty3.txt", "");
    desk.call("apply_patch", json!({ "input": patch })).await.done();
    for (path, text) in
        [("new.txt", "x\n"), ("empty.txt", "x\n"), ("empty2.txt", "y\n"), ("empty3.txt", "z\n")]
    {
        assert_eq!(desk.client.buffer(&desk.at(path)).as_deref(), Some(text), "{path}");
    }
    // The client cannot read it, or its buffer was emptied: the content on the disk would be lost.
    desk.put("full.txt", "content\n");
    assert!(desk.call("write", write("full.txt")).await.failed().contains("has not been read"));
}

// R: T1
#[tokio::test]
async fn client_without_file_access_is_not_asked() {
    let desk = Desk::new();
    desk.put("a.txt", "one\n");
    desk.call("read", json!({ "filePath": "a.txt" })).await.done();
    let edit = json!({ "filePath": "a.txt", "oldString": "one", "newString": "two" });
    desk.call("edit", edit).await.done();
    assert_eq!(desk.bytes("a.txt"), b"two\n");
    assert_eq!(desk.client.reads.load(Ordering::Relaxed), 0);
    assert_eq!(desk.client.writes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn client_that_lacks_an_announced_method_is_asked_once() {
    let desk = Desk::with(Client { is_incomplete: true, ..Client::with_files() });
    desk.put("a.txt", "one\n");
    for _ in 0..3 {
        desk.call("read", json!({ "filePath": "a.txt" })).await.done();
    }
    for (old, new) in [("one", "two"), ("two", "three")] {
        let edit = json!({ "filePath": "a.txt", "oldString": old, "newString": new });
        desk.call("edit", edit).await.done();
    }
    assert_eq!(desk.bytes("a.txt"), b"three\n");
    assert_eq!(desk.client.reads.load(Ordering::Relaxed), 1);
    assert_eq!(desk.client.writes.load(Ordering::Relaxed), 1);
}

// R: T1
#[tokio::test]
async fn unsaved_changes_are_not_overwritten_on_the_disk() {
    let offers = Offers { read: true, ..Offers::default() };
    let desk = Desk::with(Client { offers, ..Client::default() });
    desk.put("a.txt", "saved\n");
    desk.client.open(&desk.at("a.txt"), "unsaved\n");
    desk.call("read", json!({ "filePath": "a.txt" })).await.done();
    let edit = json!({ "filePath": "a.txt", "oldString": "unsaved", "newString": "x" });
    assert!(desk.call("edit", edit.clone()).await.failed().contains("unsaved changes"));
    assert_eq!(desk.bytes("a.txt"), b"saved\n");
    desk.put("a.txt", "unsaved\n");
    desk.call("edit", edit).await.done();
    assert_eq!(desk.bytes("a.txt"), b"x\n");
}

/// An editor shows invalid bytes as U+FFFD; written back they would be lost.
// R: T1
#[tokio::test]
async fn invalid_bytes_are_not_lost_through_the_client() {
    let desk = Desk::with(Client::with_files());
    desk.put("latin.txt", b"caf\xe9\nb\n");
    desk.client.open(&desk.at("latin.txt"), "caf\u{fffd}\nb\n");
    desk.put("wide.txt", b"\xff\xfea\0\n\0b\0\n\0");
    desk.client.open(&desk.at("wide.txt"), "\u{fffd}\u{fffd}a\0\n\0b\0\n\0");
    desk.put("nul.txt", b"a\0b\n");
    desk.client.open(&desk.at("nul.txt"), "a\0b\n");
    desk.put("mark.txt", "\u{fffd} b\n");
    desk.client.open(&desk.at("mark.txt"), "\u{fffd} b, unsaved\n");
    let edit = |path: &str| json!({ "filePath": path, "oldString": "b", "newString": "B" });
    let whole = desk.call("read", json!({ "filePath": "latin.txt" })).await.done();
    assert!(whole.contains("caf\\xe9") && whole.contains("not a text file"), "{whole}");
    desk.call("read", json!({ "filePath": "latin.txt", "offset": 2 })).await.done();
    assert!(desk.call("edit", edit("latin.txt")).await.failed().contains("not UTF-8"));
    let over = json!({ "filePath": "latin.txt", "content": "x" });
    assert!(desk.call("write", over).await.failed().contains("not UTF-8"));
    desk.call("read", json!({ "filePath": "nul.txt" })).await.done();
    assert!(desk.call("edit", edit("nul.txt")).await.failed().contains("NUL"));
    // Text in another encoding is changed on the disk.
    desk.call("read", json!({ "filePath": "wide.txt" })).await.done();
    desk.call("edit", edit("wide.txt")).await.done();
    assert_eq!(desk.bytes("wide.txt"), b"\xff\xfea\0\n\0B\0\n\0");
    assert_eq!(desk.client.writes.load(Ordering::Relaxed), 0);
    // The character itself is ordinary text.
    desk.call("read", json!({ "filePath": "mark.txt" })).await.done();
    desk.call("edit", edit("mark.txt")).await.done();
    assert_eq!(desk.client.buffer(&desk.at("mark.txt")).unwrap(), "\u{fffd} B, unsaved\n");
}

// R: T1
#[tokio::test]
async fn range_is_requested_as_a_range_and_checked_before_an_edit() {
    let desk = Desk::with(Client::with_files());
    let text: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    desk.client.open(&desk.at("a.txt"), &text);
    let part = json!({ "filePath": "a.txt", "offset": 5, "limit": 3 });
    let shown = desk.call("read", part).await.done();
    assert_eq!(shown, "     5\tline 5\n     6\tline 6\n     7\tline 7\n");
    // The file may change elsewhere, but not where the model has read.
    desk.client.open(&desk.at("a.txt"), &text.replace("line 20", "line twenty"));
    let edit = json!({ "filePath": "a.txt", "oldString": "line 6\n", "newString": "" });
    let over = json!({ "filePath": "a.txt", "content": "x" });
    assert!(desk.call("write", over).await.failed().contains("only part of"));
    desk.client.open(&desk.at("a.txt"), &text.replace("line 5", "line five"));
    assert!(desk.call("edit", edit.clone()).await.failed().contains("changed since it was read"));
    desk.client.open(&desk.at("a.txt"), &text);
    desk.call("edit", edit).await.done();
    assert_eq!(desk.client.buffer(&desk.at("a.txt")).unwrap(), text.replace("line 6\n", ""));
}

// R: W19
#[tokio::test]
async fn files_outside_are_not_requested_from_the_client() {
    let mut desk = Desk::with(Client::with_files());
    let path = desk.top.join("outside.txt");
    std::fs::write(&path, "out\n").unwrap();
    let read = json!({ "filePath": path });
    assert!(matches!(desk.call("read", read.clone()).await, Outcome::Asked(_)));
    desk.goes_out = true;
    desk.call("read", read).await.done();
    let edit = json!({ "filePath": path, "oldString": "out", "newString": "in" });
    desk.call("edit", edit).await.done();
    assert_eq!(std::fs::read(&path).unwrap(), b"in\n");
    assert_eq!(desk.client.reads.load(Ordering::Relaxed), 0);
    assert_eq!(desk.client.writes.load(Ordering::Relaxed), 0);
}
