//! Races: links are swapped in and out while files are read and written.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use engine::ports::Files as _;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use crate::desk::{Desk, Outcome};
use crate::restore::hash;

/// The least number of swaps in each test.
const SWAPS: usize = 100_000;

/// Swaps two names until stopped, and at least so often.
struct Swapper {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Swapper {
    fn start(a: PathBuf, b: PathBuf) -> Swapper {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) || counted.load(Ordering::Relaxed) < SWAPS {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Swapper { stop, count, thread }
    }

    fn is_warm(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= SWAPS
    }

    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.count.load(Ordering::Relaxed)
    }
}

fn desk() -> Desk {
    let desk = Desk::new();
    std::fs::create_dir(desk.top.join("outside")).unwrap();
    std::fs::write(desk.top.join("outside/file"), "SECRET\n").unwrap();
    desk
}

/// Asserts that nothing outside has changed.
fn check_outside(desk: &Desk) {
    let names = std::fs::read_dir(desk.top.join("outside")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"], "something was made outside");
    assert_eq!(std::fs::read(desk.top.join("outside/file")).unwrap(), b"SECRET\n");
}

// R: W19
#[tokio::test]
async fn directory_that_turns_into_a_link_leaks_nothing() {
    let desk = desk();
    desk.put("d/file", "inside\n");
    symlink(desk.top.join("outside"), desk.at("link")).unwrap();
    let swapper = Swapper::start(desk.at("d"), desk.at("link"));
    let (mut calls, mut done) = (0, 0);
    while !swapper.is_warm() || calls < 1000 {
        let new = json!({ "filePath": format!("d/new-{}", calls % 50), "content": "PWNED\n" });
        let tries = [
            ("write", new),
            ("read", json!({ "filePath": "d/file" })),
            ("grep", json!({ "path": "d", "pattern": "SECRET" })),
            ("edit", json!({ "filePath": "d/file", "oldString": "S", "newString": "PWNED" })),
        ];
        for (tool, input) in tries {
            calls += 1;
            if let Outcome::Done(text) = desk.call(tool, input).await {
                assert!(!text.contains("SECRET"), "{tool}: {text}");
                done += 1;
            }
        }
        check_outside(&desk);
    }
    let swaps = swapper.end();
    check_outside(&desk);
    assert!(done > 0, "no call went through, so nothing was shown");
    eprintln!("attempts: {swaps} swaps, {calls} calls, {done} went through, 0 crossings");
}

// R: W19
#[tokio::test]
async fn file_that_turns_into_a_link_is_not_written_through() {
    let desk = desk();
    desk.put("a", "inside\n");
    symlink(desk.top.join("outside/file"), desk.at("link")).unwrap();
    let swapper = Swapper::start(desk.at("a"), desk.at("link"));
    let (mut calls, mut done) = (0, 0);
    while !swapper.is_warm() || calls < 1000 {
        calls += 2;
        if let Outcome::Done(text) = desk.call("read", json!({ "filePath": "a" })).await {
            assert!(!text.contains("SECRET"), "{text}");
        }
        let content = format!("PWNED {calls}\n");
        let write = json!({ "filePath": "a", "content": content });
        if let Outcome::Done(_) = desk.call("write", write).await {
            done += 1;
        }
        check_outside(&desk);
    }
    let swaps = swapper.end();
    check_outside(&desk);
    eprintln!("attempts: {swaps} swaps, {calls} calls, {done} writes went through, 0 crossings");
}

/// Undo and redo alternate while a directory, then a file, is exchanged with a link that leads outside.
// R: T5, W19
#[tokio::test]
async fn restored_file_is_not_written_through_a_link() {
    let mut done = 0;
    for (real, link, target) in [("d", "link", "outside"), ("d/file", "d/link", "outside/file")] {
        let desk = desk();
        desk.put("d/file", "before\n");
        symlink(desk.top.join(target), desk.at(link)).unwrap();
        // The file outside has the expected content, so only its location distinguishes the two.
        std::fs::write(desk.top.join("outside/file"), "before\n").unwrap();
        let swapper = Swapper::start(desk.at(real), desk.at(link));
        let (path, editor) = (desk.at("d/file"), &desk.client);
        let mut calls = 0;
        while !swapper.is_warm() || calls < 1000 {
            calls += 1;
            for (from, to) in [("before\n", "after\n"), ("after\n", "before\n")] {
                let (from, to) = (Some(hash(from.as_bytes())), Some(to.as_bytes().to_vec()));
                done += usize::from(desk.files.replace(editor, &path, from, to).await.is_ok());
                if let Ok(Some(now)) = desk.files.read(editor, &path).await {
                    assert!(now == b"before\n" || now == b"after\n");
                }
                // A new file.
                let new = path.with_file_name(format!("new-{}", calls % 50));
                let content = b"new\n";
                if desk.files.replace(editor, &new, None, Some(content.to_vec())).await.is_ok() {
                    let expected = Some(hash(content));
                    drop(desk.files.replace(editor, &new, expected, None).await);
                }
            }
            let outside = std::fs::read(desk.top.join("outside/file")).unwrap();
            assert_eq!(outside, b"before\n", "written through the link");
            assert_eq!(std::fs::read_dir(desk.top.join("outside")).unwrap().count(), 1);
        }
        let swaps = swapper.end();
        eprintln!(
            "{real}: attempts: {swaps} swaps, {calls} rounds, {done} went through, 0 crossings"
        );
    }
    assert!(done > 0, "no call went through, so nothing was shown");
}
