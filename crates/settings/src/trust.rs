//! Trust: what a project could run is inert until the user has seen it and agreed.
//!
//! Trust belongs to a directory and to the content of what would run, and is stored outside the workspace. A change needs a
//! new answer. Nothing here trusts by itself: only `purlin trust` does, on a terminal, after it showed the literal commands.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::project::Part;
use crate::{ReadText, answer_store};

/// Whether the user trusts a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The user trusts exactly these settings, or nothing needs trust.
    Trusted,
    /// The user does not; why.
    Not(String),
}

/// One trusted directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trusted {
    #[serde(rename = "folder")]
    directory: PathBuf,
    /// The hash of everything that needs trust.
    hash: String,
}

/// The largest trust store that is read.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Tells whether the user trusts these parts of a project, by the store in the data directory.
pub(crate) fn check(
    data: Option<&Path>,
    directory: &Path,
    parts: &[Part],
    reader: &dyn ReadText,
) -> Trust {
    if parts.is_empty() {
        return Trust::Trusted;
    }
    let Some(data) = data else {
        return Trust::Not("no data directory to store trust in".to_owned());
    };
    let file = file_in(data);
    let text = reader.read_text(&file, LARGEST);
    let text = text.map_err(|why| format!("cannot read {}: {why}", file.display()));
    let trusted: Vec<Trusted> = match text {
        Ok(Some(text)) => match answer_store::parse(&file, &text) {
            Ok(trusted) => trusted,
            Err(why) => return Trust::Not(why),
        },
        Ok(None) => Vec::new(),
        Err(why) => return Trust::Not(why),
    };
    let directory = real(directory);
    match trusted.iter().find(|trusted| trusted.directory == directory) {
        Some(trusted) if trusted.hash == hash(parts) => Trust::Trusted,
        Some(_) => Trust::Not("settings changed since you trusted them".to_owned()),
        None => Trust::Not("folder not trusted".to_owned()),
    }
}

/// Returns the directories that are trusted as they were.
///
/// # Errors
/// Says why the store cannot be read.
pub fn list(data: &Path) -> Result<Vec<PathBuf>, String> {
    let trusted: Vec<Trusted> = answer_store::read(&file_in(data))?;
    Ok(trusted.into_iter().map(|trusted| trusted.directory).collect())
}

/// Trusts these parts of a project, until they change.
///
/// # Errors
/// Says why the store cannot be written.
pub fn add(data: &Path, directory: &Path, parts: &[Part]) -> Result<(), String> {
    let new = Trusted { directory: real(directory), hash: hash(parts) };
    answer_store::change::<Vec<Trusted>>(&file_in(data), |all| {
        all.retain(|trusted| trusted.directory != new.directory);
        all.push(new);
    })
}

/// Stops trusting a directory. Tells whether it was trusted.
///
/// # Errors
/// Says why the store cannot be written.
pub fn revoke(data: &Path, directory: &Path) -> Result<bool, String> {
    let directory = real(directory);
    let mut was_trusted = false;
    answer_store::change::<Vec<Trusted>>(&file_in(data), |all| {
        let before = all.len();
        all.retain(|trusted| trusted.directory != directory);
        was_trusted = all.len() < before;
    })?;
    Ok(was_trusted)
}

fn file_in(data: &Path) -> PathBuf {
    data.join("trust.json")
}

/// Returns a directory with links followed.
#[must_use]
pub fn real(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

fn hash(parts: &[Part]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        for field in [&part.name, &part.runs] {
            hasher.update((field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskReader;

    #[test]
    fn trust_belongs_to_the_directory_and_to_what_would_run() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_owned();
        let part = |runs: &str| Part { name: "MCP server x".to_owned(), runs: runs.to_owned() };
        let check =
            |directory: &Path, parts: &[Part]| check(Some(&data), directory, parts, &DiskReader);
        let (here, there) = (tempfile::env::temp_dir(), PathBuf::from("/"));
        let parts = [part("node x.js")];
        assert_eq!(check(&here, &[]), Trust::Trusted);
        let unknown = Trust::Not("folder not trusted".to_owned());
        assert_eq!(check(&here, &parts), unknown);
        add(&data, &here, &parts).unwrap();
        assert_eq!(check(&here, &parts), Trust::Trusted);
        assert_eq!(check(&there, &parts), unknown);
        let changed = Trust::Not("settings changed since you trusted them".to_owned());
        assert_eq!(check(&here, &[part("node y.js")]), changed);
        assert_eq!(check(&here, &[part("node x.js"), part("z")]), changed);
        assert!(revoke(&data, &here).unwrap());
        assert_eq!(check(&here, &parts), unknown);
    }
}
