//! Temporary files that stay behind if the process is killed while it changes a file.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, statat, unlinkat};

/// Younger files are left alone: a process in another container is not visible here, but may be using them.
const YOUNG: Duration = Duration::from_secs(60);

/// Returns the name of the temporary file with this number.
pub(super) fn name(number: u64) -> String {
    format!(".purlin-{}-{number}", std::process::id())
}

/// Returns the process that a temporary file belongs to.
fn owner(name: &[u8]) -> Option<i32> {
    let name = std::str::from_utf8(name).ok()?;
    let (process, number) = name.strip_prefix(".purlin-")?.split_once('-')?;
    number.parse::<u64>().ok()?;
    process.parse().ok()
}

/// Removes the temporary files in a directory whose processes have ended.
pub(super) fn remove(directory: &OwnedFd) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !owner(name.to_bytes()).is_some_and(process::end::has_ended) {
            continue;
        }
        let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let written = UNIX_EPOCH + Duration::from_secs(found.st_mtime.try_into().unwrap_or(0));
        let is_old = SystemTime::now().duration_since(written).is_ok_and(|age| age > YOUNG);
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if is_old
            && is_file
            && let Err(err) = unlinkat(directory, name, AtFlags::empty())
        {
            let name = OsStr::from_bytes(name.to_bytes()).display();
            tracing::debug!("the temporary file {name} could not be removed: {err}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_file_of_a_killed_process_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let own = name(7);
        // No process has the highest id.
        let names = [
            ".purlin-2147483647-0",
            ".purlin-2147483647-1",
            ".purlin-2147483647",
            ".purlin-2147483647-x",
            "purlin-2147483647-0",
            &own,
        ];
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        for name in names {
            let file = std::fs::File::create(directory.path().join(name)).unwrap();
            if name != names[1] {
                file.set_modified(hour_ago).unwrap();
            }
        }
        let opened = std::fs::File::open(directory.path()).unwrap();
        remove(&opened.into());
        let exists = names.map(|name| directory.path().join(name).exists());
        assert_eq!(exists, [false, true, true, true, true, true]);
    }
}
