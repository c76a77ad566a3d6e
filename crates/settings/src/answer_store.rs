//! Answers that are kept: a file in the user's data folder, outside every workspace, for the user alone.
//!
//! Read anew for every decision, so that `purlin permissions revoke` counts at once; replaced whole under a lock, so that
//! two processes lose nothing of each other.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use engine::permission::Decision;
use engine::permission::policy::Kept;
use engine::permission::rules::{Rule, Source};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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

impl Kept for FolderRules {
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
            source: Source::Kept,
        };
        of_folder.map(rule).collect()
    }

    fn keep(&self, rule: &Rule) -> Result<(), String> {
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

/// Reads a file of ours; one that is not there is empty.
///
/// # Errors
/// Says in words why it cannot be read.
pub fn read<T: DeserializeOwned + Default>(file: &Path) -> Result<T, String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
        Err(err) => return Err(format!("{} cannot be read: {err}", file.display())),
    };
    serde_json::from_str(&text).map_err(|err| format!("{} is damaged: {err}", file.display()))
}

/// Changes a file of ours: reads it, changes what it holds, and puts the new file in the place of the old one.
///
/// # Errors
/// Says in words why it cannot be changed; then it is as it was.
pub fn change<T>(file: &Path, change: impl FnOnce(&mut T)) -> Result<(), String>
where
    T: Serialize + DeserializeOwned + Default,
{
    let failed = |err: std::io::Error| format!("{} cannot be written: {err}", file.display());
    let folder = file.parent().unwrap_or(Path::new("/"));
    make_folder(folder).map_err(failed)?;
    let lock = private(&file.with_extension("lock"), false).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut held: T = read(file)?;
    change(&mut held);
    let text = serde_json::to_string_pretty(&held).map_err(|err| err.to_string())?;
    let fresh = file.with_extension(format!("new-{}", std::process::id()));
    let mut out = private(&fresh, true).map_err(failed)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
    written.and_then(|()| std::fs::rename(&fresh, file)).map_err(failed)
}

/// Opens a file that nobody else may read.
fn private(path: &Path, is_new: bool) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(is_new);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(pattern: &str) -> Rule {
        let (key, pattern) = ("bash".to_owned(), pattern.to_owned());
        Rule { key, pattern, decision: Decision::Allow, source: Source::Kept }
    }

    // R: T2
    #[test]
    fn answers_outlive_the_process_and_belong_to_their_folder() {
        let data = std::env::temp_dir().join(format!("purlin-kept-{}", std::process::id()));
        let here = FolderRules::new(&data, PathBuf::from("/here"));
        let there = FolderRules::new(&data, PathBuf::from("/there"));
        assert_eq!(here.rules(), []);
        here.keep(&allow("cargo test *")).unwrap();
        here.keep(&allow("cargo test *")).unwrap();
        here.keep(&Rule { decision: Decision::Reject, ..allow("rm *") }).unwrap();
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
        assert!(again.keep(&allow("x")).is_err());
        std::fs::remove_dir_all(&data).unwrap();
    }
}
