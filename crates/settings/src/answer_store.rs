//! Saved answers to permission requests: a file in the user's data directory that only the user can read.
//!
//! It is read for every decision, so that `purlin permissions revoke` takes effect at once, and replaced under a lock, so
//! that two processes lose no answers.

use std::path::{Path, PathBuf};

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use engine::ports::AnswerStore;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::{self, Access};

/// One saved answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAnswer {
    /// The directory it applies to.
    #[serde(rename = "folder")]
    pub directory: PathBuf,
    /// The permission key.
    pub key: String,
    /// The pattern.
    pub pattern: String,
    /// `allow` or `deny`.
    pub action: String,
}

/// The saved answers of one directory.
pub struct DirectoryAnswers {
    file: PathBuf,
    directory: PathBuf,
}

impl DirectoryAnswers {
    /// Makes the answers of a directory, stored in the data directory.
    #[must_use]
    pub fn new(data: &Path, directory: PathBuf) -> DirectoryAnswers {
        DirectoryAnswers { file: file_in(data), directory }
    }
}

/// Returns the file of saved answers.
#[must_use]
pub fn file_in(data: &Path) -> PathBuf {
    data.join("permissions.json")
}

impl AnswerStore for DirectoryAnswers {
    fn rules(&self) -> Vec<Rule> {
        let saved: Vec<SavedAnswer> = read(&self.file).unwrap_or_else(|err| {
            tracing::warn!("saved answers are ignored: {err}");
            Vec::new()
        });
        let of_directory = saved.into_iter().filter(|rule| rule.directory == self.directory);
        // An unknown action is treated as a rejection.
        let rule = |saved: SavedAnswer| Rule {
            key: saved.key,
            pattern: saved.pattern,
            decision: Decision::from_word(&saved.action).unwrap_or(Decision::Reject),
            source: Source::Stored,
        };
        of_directory.map(rule).collect()
    }

    fn add(&self, rule: &Rule) -> Result<(), String> {
        let new = SavedAnswer {
            directory: self.directory.clone(),
            key: rule.key.clone(),
            pattern: rule.pattern.clone(),
            action: rule.decision.word().to_owned(),
        };
        change::<Vec<SavedAnswer>>(&self.file, |rules| {
            rules.retain(|old| {
                (&old.directory, &old.key, &old.pattern) != (&new.directory, &new.key, &new.pattern)
            });
            rules.push(new);
        })
    }
}

/// Reads one of our own JSON files; a file that does not exist is empty.
///
/// # Errors
/// Says why it cannot be read.
pub fn read<T: DeserializeOwned + Default>(file: &Path) -> Result<T, String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
        Err(err) => return Err(format!("cannot read {}: {err}", file.display())),
    };
    parse(file, &text)
}

/// Parses the text of one of our own JSON files.
pub(crate) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|err| format!("{} is damaged: {err}", file.display()))
}

/// Changes one of our own JSON files under a lock, so that two processes do not lose each other's changes.
///
/// # Errors
/// Says why it cannot be changed; the file is then unchanged.
pub fn change<T>(file: &Path, change: impl FnOnce(&mut T)) -> Result<(), String>
where
    T: Serialize + DeserializeOwned + Default,
{
    let failed = |err: std::io::Error| format!("cannot write {}: {err}", file.display());
    let directory = file.parent().unwrap_or(Path::new("/"));
    files::make_directory(directory, Access::Private).map_err(failed)?;
    let lock = files::open_lock(&file.with_extension("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut value: T = read(file)?;
    change(&mut value);
    let text = serde_json::to_string_pretty(&value).map_err(|err| err.to_string())?;
    let written = files::replace(file, text.as_bytes(), Access::Private);
    written.map_err(|err| format!("cannot write {}: {}", file.display(), err.root_cause()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(pattern: &str) -> Rule {
        let (key, pattern) = ("bash".to_owned(), pattern.to_owned());
        Rule { key, pattern, decision: Decision::Allow, source: Source::Stored }
    }

    // R: T2
    #[test]
    fn saved_answers_outlive_the_process_and_belong_to_their_directory() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_owned();
        let here = DirectoryAnswers::new(&data, PathBuf::from("/here"));
        let there = DirectoryAnswers::new(&data, PathBuf::from("/there"));
        assert_eq!(here.rules(), []);
        here.add(&allow("cargo test *")).unwrap();
        here.add(&allow("cargo test *")).unwrap();
        here.add(&Rule { decision: Decision::Reject, ..allow("rm *") }).unwrap();
        let again = DirectoryAnswers::new(&data, PathBuf::from("/here"));
        assert_eq!(again.rules().len(), 2);
        assert_eq!(again.rules()[0], allow("cargo test *"));
        assert_eq!(there.rules(), []);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(file_in(&data)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        std::fs::write(file_in(&data), "{ damaged").unwrap();
        assert_eq!(again.rules(), []);
        assert!(again.add(&allow("x")).is_err());
    }
}
