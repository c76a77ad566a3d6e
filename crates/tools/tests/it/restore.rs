//! Restoring files for undo, redo and rewind: only if they have the expected content, and with owner, mode, links and attributes.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use engine::ports::{Content, FileError, Files as _};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use tools::Files;

use crate::desk::{Client, Desk};

pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Content::new(bytes.to_vec()).hash()
}

async fn replace(
    desk: &Desk,
    path: &Path,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(), FileError> {
    let (from, to) =
        (from.map(|text| hash(text.as_bytes())), to.map(|text| text.as_bytes().to_vec()));
    Files::replace(&desk.files, &desk.client, path, from, to).await
}

// R: T5, W19
#[tokio::test]
async fn file_that_changed_in_the_meantime_is_not_touched() {
    for client in [Client::default(), Client::with_files()] {
        let desk = Desk::with(client);
        let path = desk.at("a");
        for (now, from, to) in [
            (Some("mine"), Some("old"), Some("new")),
            (Some("mine"), Some("old"), None),
            (Some("mine"), None, Some("new")),
            (None, Some("old"), Some("new")),
        ] {
            match now {
                Some(now) => desk.put("a", now),
                None => std::fs::remove_file(&path).unwrap(),
            }
            match now.filter(|_| desk.client.offers.read) {
                Some(now) => desk.client.open(&path, now),
                None => drop(desk.client.buffers.lock().unwrap().remove(&path)),
            }
            let replaced = replace(&desk, &path, from, to).await;
            assert_eq!(replaced, Err(FileError::Changed), "{now:?} {from:?}");
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), now);
        }
    }
}

#[tokio::test]
async fn unsaved_text_in_the_editor_is_what_is_compared() {
    let desk = Desk::with(Client::with_files());
    let path = desk.at("a");
    desk.put("a", "saved");
    desk.client.open(&path, "unsaved");
    let read = desk.files.read(&desk.client, &path).await.unwrap();
    assert_eq!(read.as_deref(), Some(&b"unsaved"[..]));
    assert_eq!(replace(&desk, &path, Some("saved"), Some("new")).await, Err(FileError::Changed));
    replace(&desk, &path, Some("unsaved"), Some("new")).await.unwrap();
    assert_eq!(desk.client.buffer(&path).as_deref(), Some("new"));
    // A removal is made on the disk, which has other content than the editor.
    let removed = replace(&desk, &path, Some("new"), None).await.unwrap_err().to_string();
    assert!(removed.contains("unsaved changes"), "{removed}");
    assert_eq!(desk.bytes("a"), b"saved");
}

/// An editor may drop a byte order mark and change line endings.
#[tokio::test]
async fn line_ends_of_the_editor_do_not_prevent_a_removal() {
    let desk = Desk::with(Client::with_files());
    let path = desk.at("a");
    desk.put("a", "\u{feff}one\r\ntwo\r\n");
    desk.client.open(&path, "one\ntwo\n");
    replace(&desk, &path, Some("one\ntwo\n"), None).await.unwrap();
    assert!(!path.exists());
}

// Fault: F11
#[tokio::test]
async fn restored_file_has_its_names_owner_mode_and_attributes() {
    let desk = Desk::new();
    for name in ["a", "linked"] {
        desk.put(name, "old");
        let path = desk.at(name);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
        setxattr(&path, "user.note", b"kept", XattrFlags::empty()).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
        }
    }
    std::fs::hard_link(desk.at("linked"), desk.at("other")).unwrap();
    for name in ["a", "linked"] {
        let before = desk.at(name).metadata().unwrap();
        for (from, to) in [("old", "new"), ("new", "old")] {
            replace(&desk, &desk.at(name), Some(from), Some(to)).await.unwrap();
            assert_eq!(desk.bytes(name), to.as_bytes());
        }
        let now = desk.at(name).metadata().unwrap();
        let rights = |data: &std::fs::Metadata| (data.uid(), data.gid(), data.mode(), data.nlink());
        assert_eq!(rights(&now), rights(&before), "{name}");
        let mut value = [0; 16];
        let length = getxattr(desk.at(name), "user.note", &mut value).unwrap();
        assert_eq!(&value[..length], b"kept", "{name}");
    }
    replace(&desk, &desk.at("linked"), Some("old"), Some("new")).await.unwrap();
    assert_eq!(desk.bytes("other"), b"new", "the other name shows the same file");
}

// R: T5
#[tokio::test]
async fn nothing_outside_the_directories_is_restored() {
    let desk = Desk::new();
    std::fs::write(desk.top.join("outside"), "old").unwrap();
    symlink(desk.top.join("outside"), desk.at("link")).unwrap();
    std::fs::create_dir_all(desk.at("own")).unwrap();
    desk.put("own/config", "old");
    let outside = FileError::Outside;
    for (path, error) in [
        (desk.top.join("outside"), outside(desk.top.join("outside"))),
        (desk.at("link"), FileError::Redirected(desk.top.join("outside").canonicalize().unwrap())),
        (desk.at("own/config"), outside(desk.at("own/config"))),
    ] {
        let read = desk.files.read(&desk.client, &path).await;
        assert_eq!(read, Err(error.clone()));
        let replaced = replace(&desk, &path, Some("old"), Some("new")).await;
        assert_eq!(replaced, Err(error));
    }
    assert_eq!(std::fs::read(desk.top.join("outside")).unwrap(), b"old");
}

// R: W19
#[tokio::test]
async fn link_to_another_file_of_the_project_is_not_followed() {
    for client in [Client::default(), Client::with_files()] {
        let desk = Desk::with(client);
        for directory in ["d", ".git/hooks"] {
            std::fs::create_dir_all(desk.at(directory)).unwrap();
        }
        desk.put(".git/config", "old");
        symlink(desk.at(".git/config"), desk.at("notes")).unwrap();
        std::fs::remove_dir(desk.at("d")).unwrap();
        symlink(desk.at(".git/hooks"), desk.at("d")).unwrap();
        let of_file = replace(&desk, &desk.at("notes"), Some("old"), Some("new")).await;
        assert!(matches!(of_file, Err(FileError::Redirected(_))), "{of_file:?}");
        let of_directory = replace(&desk, &desk.at("d/pre-commit"), None, Some("new")).await;
        assert!(matches!(of_directory, Err(FileError::Redirected(_))), "{of_directory:?}");
        assert_eq!(std::fs::read_to_string(desk.at(".git/config")).unwrap(), "old");
        assert!(!desk.at(".git/hooks/pre-commit").exists());
    }
}
