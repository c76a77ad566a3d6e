//! Answers that are kept: a file in the user's data folder, outside every workspace, for the user alone.
//!
//! Read anew for every decision, so that `purlin permissions revoke` counts at once; replaced whole under a lock, so that
//! two processes lose nothing of each other.

use std::path::{Path, PathBuf};

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use engine::ports::AnswerStore;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::{self, Access};

/// One answer, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRule {
    /// The folder it holds in.
    pub folder: PathBuf,
    /// Which accesses it is about.
    pub key: String,
    /// Which subjects of them.
    pub pattern: String,
    /// `allow` or `deny`.
    pub action: String,
}

/// The answers that are kept for one folder.
pub struct FolderRules {
    file: PathBuf,
    folder: PathBuf,
}

impl FolderRules {
    /// Makes the answers of a folder, kept in the user's data folder.
    #[must_use]
    pub fn new(data: &Path, folder: PathBuf) -> FolderRules {
        FolderRules { file: file_in(data), folder }
    }
}

/// Returns the file that answers are kept in.
#[must_use]
pub fn file_in(data: &Path) -> PathBuf {
    data.join("permissions.json")
}

impl AnswerStore for FolderRules {
    fn rules(&self) -> Vec<Rule> {
        let kept: Vec<KeptRule> = read(&self.file).unwrap_or_else(|err| {
            tracing::warn!("kept answers count as not given: {err}");
            Vec::new()
        });
        let of_folder = kept.into_iter().filter(|rule| rule.folder == self.folder);
        // A word that is not known counts as no.
        let rule = |kept: KeptRule| Rule {
            key: kept.key,
            pattern: kept.pattern,
            decision: Decision::from_word(&kept.action).unwrap_or(Decision::Reject),
            source: Source::Stored,
        };
        of_folder.map(rule).collect()
    }

    fn add(&self, rule: &Rule) -> Result<(), String> {
        let new = KeptRule {
            folder: self.folder.clone(),
            key: rule.key.clone(),
            pattern: rule.pattern.clone(),
            action: rule.decision.word().to_owned(),
        };
        change::<Vec<KeptRule>>(&self.file, |rules| {
            rules.retain(|old| {
                (&old.folder, &old.key, &old.pattern) != (&new.folder, &new.key, &new.pattern)
            });
            rules.push(new);
        })
    }
}

/// Reads a JSON file of ours; a file that does not exist is empty.
///
/// # Errors
/// Says why it cannot be read.
pub fn read<T: DeserializeOwned + Default>(file: &Path) -> Result<T, String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
        Err(err) => return Err(format!("{} cannot be read: {err}", file.display())),
    };
    parse(file, &text)
}

/// Reads the text of a JSON file of ours.
pub(crate) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|err| format!("{} is damaged: {err}", file.display()))
}

/// Changes a JSON file of ours under a lock, so that two processes lose nothing of each other.
///
/// # Errors
/// Says why it cannot be changed; the file is then unchanged.
pub fn change<T>(file: &Path, change: impl FnOnce(&mut T)) -> Result<(), String>
where
    T: Serialize + DeserializeOwned + Default,
{
    let failed = |err: std::io::Error| format!("{} cannot be written: {err}", file.display());
    let folder = file.parent().unwrap_or(Path::new("/"));
    files::make_folder(folder, Access::Private).map_err(failed)?;
    let lock = files::open_lock(&file.with_extension("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut value: T = read(file)?;
    change(&mut value);
    let text = serde_json::to_string_pretty(&value).map_err(|err| err.to_string())?;
    let written = files::replace(file, text.as_bytes(), Access::Private);
    written.map_err(|err| format!("{} cannot be written: {}", file.display(), err.root_cause()))
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
    fn answers_outlive_the_process_and_belong_to_their_folder() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_owned();
        let here = FolderRules::new(&data, PathBuf::from("/here"));
        let there = FolderRules::new(&data, PathBuf::from("/there"));
        assert_eq!(here.rules(), []);
        here.add(&allow("cargo test *")).unwrap();
        here.add(&allow("cargo test *")).unwrap();
        here.add(&Rule { decision: Decision::Reject, ..allow("rm *") }).unwrap();
        let again = FolderRules::new(&data, PathBuf::from("/here"));
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
