//! The instructions of a session's project, for the engine. `settings` knows where to look; this reads off the main task.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ports::{InstructionFile, InstructionSource, Instructions};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use settings::instructions::{Patterns, Places, ProjectFiles, skills, sources, touched};
use tools::names_in;
use tools::scope::Scope;

use crate::branch;

/// Reads files inside the projects of a session.
pub(crate) struct ScopedFiles(pub(crate) Scope);

impl ProjectFiles for ScopedFiles {
    fn read_start(&self, path: &Path, most: usize) -> Option<(Vec<u8>, u64)> {
        self.0.read_start(path, most)
    }

    fn is_secret(&self, path: &Path) -> bool {
        shell::is_secret(path)
    }
}

/// The instructions of one session.
pub(crate) struct ProjectInstructions {
    pub(crate) places: Places,
    pub(crate) files: Arc<dyn ProjectFiles>,
    pub(crate) patterns: Arc<Patterns>,
    /// The session's directories.
    pub(crate) scope: Scope,
}

/// How many names of files are read. The engine lists fewer.
const MAX_NAMES: usize = 1_000;

impl InstructionSource for ProjectInstructions {
    fn find(&self) -> BoxFuture<'_, Instructions> {
        let (places, files) = (self.places.clone(), Arc::clone(&self.files));
        let (patterns, scope) = (Arc::clone(&self.patterns), self.scope.clone());
        async move {
            let branch = branch::find(places.cwd()).await;
            // The disk may be slow, and everything else is on this thread.
            let read = tokio::task::spawn_blocking(move || {
                let files_found = sources(&places, &*files, &patterns);
                (files_found, skills::find(&places, &*files), names_in(&scope, MAX_NAMES))
            });
            let (files, skills, names) = read.await.unwrap_or_default();
            let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
            Instructions { branch, platform, names, files, skills }
        }
        .boxed()
    }

    fn find_for<'a>(&'a self, paths: &'a [PathBuf]) -> BoxFuture<'a, Vec<InstructionFile>> {
        if paths.iter().all(|path| self.places.is_known(path)) {
            return future::ready(Vec::new()).boxed();
        }
        let (places, files) = (self.places.clone(), Arc::clone(&self.files));
        let paths = paths.to_vec();
        async move {
            let read = tokio::task::spawn_blocking(move || touched(&places, &*files, &paths));
            read.await.unwrap_or_default()
        }
        .boxed()
    }
}
