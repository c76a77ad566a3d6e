//! Checks stored sessions without changing them, for `purlin doctor`.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

/// How many kinds of damage are listed.
const MAX_LISTED: usize = 3;

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// What is wrong with the database, if anything.
    pub damage: Option<String>,
    /// Remarks about damaged files that a recovery left.
    pub remarks: Vec<String>,
}

/// Checks the sessions in a data directory.
#[must_use]
pub fn check(directory: &Path) -> Check {
    let path = directory.join("sessions.db");
    let shown = path.display();
    let is_there = path.symlink_metadata().is_ok();
    let damage = match (is_there, path.metadata()) {
        (false, _) => None,
        (true, Ok(found)) if found.is_file() => {
            let what = match damage(&path) {
                Ok(found) => found.join("; "),
                Err(err) => err.to_string(),
            };
            let text =
                || format!("{shown} is damaged and will be recovered by the next session: {what}");
            (!what.is_empty()).then(text)
        }
        (true, Ok(_)) => {
            Some(format!("{shown} is not a regular file, so sessions are not stored. Move it away"))
        }
        // The next session creates what a link leads to, if it can.
        (true, Err(err)) if err.kind() == std::io::ErrorKind::NotFound => None,
        (true, Err(err)) => {
            Some(format!("{shown} cannot be read, so sessions are not stored: {err}"))
        }
    };
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let is_left = |path: &Path| {
        let name =
            path.file_name().and_then(|name| name.to_str()?.strip_prefix("sessions.db.damaged-"));
        name.is_some_and(|stamp| stamp.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let left = entries.map(|entry| entry.path()).filter(|path| is_left(path));
    let remark = |path: PathBuf| {
        format!(
            "{} was damaged and what could be read was recovered. Delete it if you do not need it",
            path.display()
        )
    };
    Check { damage, remarks: left.map(remark).collect() }
}

fn damage(path: &Path) -> rusqlite::Result<Vec<String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    let mut query = connection.prepare(&format!("PRAGMA quick_check({MAX_LISTED})"))?;
    let rows = query.query_map([], |row| row.get::<_, String>(0))?;
    let found = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().filter(|line| line != "ok").collect())
}
