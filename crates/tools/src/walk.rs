//! Walks a directory as `rg` does: skips files ignored by git and `.git`, and does not follow links.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::permission::{Access, PermissionKey};
use engine::ports::{Denied, Output, ToolCx, ToolError};
use engine::words::{Block, ToolContent};
use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};
use tokio::time::timeout;
use tree::{Skipped, WalkOptions};

use crate::bash::directory_rule;
use crate::error::Error;
use crate::files::{Files, on_a_thread, read_access};
use crate::scope::{Kind, Target};
use crate::text::escape;

/// Makes a walk of a directory. It includes hidden files. It excludes our own files, files that rules forbid to read, and directories with
/// secrets unless the walk begins there. Also returns the ignore files that were not used.
pub(crate) fn walk(
    directory: &Path,
    target: &Target,
    denied: Arc<dyn Denied>,
    overrides: Override,
) -> (WalkBuilder, Skipped) {
    let left_out: Vec<PathBuf> = target
        .own_below()
        .into_iter()
        .chain(target.hidden_below())
        .map(|place| directory.join(place))
        .collect();
    let options =
        WalkOptions { skips_hidden: false, needs_git: false, overrides, ..WalkOptions::default() };
    let (top, target) = (directory.to_owned(), target.clone());
    tree::walk(directory, options, move |entry| {
        let is_left_out = || left_out.iter().any(|place| entry.path() == place);
        let is_denied = || {
            // Rules apply to the files, so directories are walked.
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            let below = entry.path().strip_prefix(&top).unwrap_or(entry.path());
            !is_directory
                && denied.has(&Access::allow(PermissionKey::Read, target.below(below).name()))
        };
        let is_out = || is_left_out() || (!denied.is_empty() && is_denied());
        entry.file_name() != ".git" && !is_out()
    })
}

/// How long a search may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a search on another thread, until the turn is cancelled or it has taken too long.
pub(crate) async fn search<T: Send + 'static>(
    cx: &ToolCx<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = Stop::default();
    let flag = stop.flag();
    let done = timeout(PATIENCE, on_a_thread(move || work(&flag)));
    match cx.or_cancelled(done).await? {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::TooSlow(PATIENCE).into()),
    }
}

/// Returns a note about ignore files that were not used.
pub(crate) fn note(skipped: &Skipped, directory: &Path) -> Option<String> {
    let list: Vec<String> = skipped
        .list()
        .iter()
        .map(|(path, why)| {
            let name = path.strip_prefix(directory).unwrap_or(path);
            format!("{} ({why})", escape(name.as_os_str().as_encoded_bytes()))
        })
        .collect();
    (!list.is_empty()).then(|| format!("(Ignore files that were not used: {})", list.join(", ")))
}

/// Parses a glob like a line of `.gitignore`: `*.json` matches at every depth, `src/**` from the top.
pub(crate) fn only(directory: &Path, globs: &[String]) -> Result<Override, ignore::Error> {
    let mut only = OverrideBuilder::new(directory);
    for glob in globs {
        only.add(glob)?;
    }
    only.build()
}

/// Resolves the path to search; default the working directory.
pub(crate) async fn place(files: &Files, path: Option<&str>) -> Result<(Target, Kind), Error> {
    let target = files.locate(path.filter(|path| !path.is_empty()).unwrap_or(".")).await?;
    let there = target.clone();
    let look =
        on_a_thread(move || there.look().map_err(|err| Error::of(there.name(), err))).await?;
    let kind =
        look.map(|look| look.kind).ok_or_else(|| Error::NotFound(target.name().to_owned()))?;
    match kind {
        Kind::Special(what) => Err(Error::Special { name: target.name().to_owned(), what }),
        Kind::File | Kind::Directory => Ok((target, kind)),
    }
}

/// Returns what a search needs permission for: the tool, and the directory if it is outside.
pub(crate) fn search_access(
    key: PermissionKey,
    subject: &str,
    target: &Target,
    kind: Kind,
) -> Vec<Access> {
    let mut access = vec![Access::allow(key, subject)];
    if kind == Kind::File {
        access.extend(read_access(target));
        return access;
    }
    if target.is_secret() {
        access.push(Access::ask(PermissionKey::Read, target.name()));
    }
    if !target.is_inside() {
        // Permission covers the contents of the directory itself, not of its parent.
        let path = target.path().join("*").to_string_lossy().into_owned();
        let always = directory_rule(target.path(), target.home());
        access.push(Access { always, ..Access::ask(PermissionKey::ExternalDirectory, path) });
    }
    access
}

/// Adds a note to the output, for the model and for the user.
pub(crate) fn with_note(mut output: Output, note: Option<String>) -> Output {
    if let Some(note) = note {
        output.text = format!("{}\n{note}", output.text.trim_end());
        let content = output.content.get_or_insert_default();
        content.push(ToolContent::Block(Block::Text(note)));
    }
    output
}

/// Stops a walk on another thread when dropped.
#[derive(Debug, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns the flag that the walk checks.
    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
