//! Where commands run: in the sandbox, or in a container of the session, which keeps the sandbox's rules.

use std::path::PathBuf;
use std::sync::Arc;

use process::container::Containers;
use process::sandbox::{Found, Level, Profile};
use process::{Child, Error, Spec};

use super::{Bash, repositories};

/// Runs a command with the best shell of the image.
pub(super) const SHELL: &str = r#"if [ -x /bin/bash ]; then exec /bin/bash --noprofile --norc -c "$0" "$@"; fi; exec /bin/sh -c "$0" "$@""#;

impl Bash {
    /// Returns the containers of the session, if its commands run in any.
    pub(super) fn containers(&self) -> Option<&Arc<Containers>> {
        self.options.containers.as_ref()
    }

    /// Returns what restricts commands. A container restricts them like the full sandbox.
    pub(super) async fn found(&self) -> Arc<Found> {
        match self.containers() {
            Some(_) => {
                let (level, missing) = (Level::Full, Vec::new());
                Arc::new(Found { level, missing, bubblewrap: None })
            }
            None => self.sandbox.found().await,
        }
    }

    /// Starts a program where commands run. Never elsewhere.
    pub(super) async fn spawn(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
    ) -> Result<Child, Error> {
        match self.containers() {
            Some(containers) => containers.spawn(spec, profile, &self.readable()).await,
            None => self.sandbox.spawn(spec, profile, found),
        }
    }

    /// Returns what is visible in a container beside the session's directories: the repositories that they are part of.
    fn readable(&self) -> Vec<PathBuf> {
        let around = repositories::around(&self.options.directories);
        around.iter().filter_map(|git| git.canonicalize().ok()).collect()
    }
}
