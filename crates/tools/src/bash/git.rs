//! Runs git for the user, in the sandbox: its programs, such as filters, are confined, and its hooks do not run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use process::sandbox::Profile;

use super::captured_run::{Ran, finish};
use super::{Bash, repositories};

/// How long git may run: a checkout of a large repository takes its time.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The most bytes of its output.
const LIMIT: usize = 256 * 1024;

impl Bash {
    /// Runs git in the repository of a directory. It may write to that repository and to these directories.
    ///
    /// # Errors
    /// Fails with the reason if it did not run.
    pub(crate) async fn run_git(
        &self,
        cwd: &Path,
        writable: &[&Path],
        args: &[&str],
    ) -> Result<Ran, String> {
        let (_, common) = repositories::enclosing(cwd)
            .ok_or_else(|| format!("{} is not in a git repository", cwd.display()))?;
        let found = self.sandbox.found().await;
        if !found.level.confines() {
            // Nothing confines what the repository would run.
            let text = std::fs::read_to_string(common.join("config")).unwrap_or_default();
            if let Some(why) = shell::config_problem(&common, cwd, &text) {
                return Err(format!("without a sandbox git is not run here: {why}"));
            }
        }
        let mut spec = self.host_spec_of(cwd, r#"exec git "$@""#).args(["git"]);
        spec = spec.args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]);
        spec = spec.args(args.iter().copied());
        for (name, value) in [("GIT_TERMINAL_PROMPT", "0"), ("GIT_EDITOR", "true"), ("LC_ALL", "C")]
        {
            spec = spec.env(name, value);
        }
        spec.merge_stderr = false;
        let mut open: Vec<PathBuf> = Vec::new();
        for directory in writable.iter().copied().chain([&*common]) {
            open.extend(directory.canonicalize());
        }
        let own = &self.options.own;
        let profile = Profile {
            protected: own.iter().cloned().chain(repositories::deciding(&common)).collect(),
            hidden: self.options.hidden.iter().chain(&**own).cloned().collect(),
            temporary: self.temporary().map(|directory| directory.path().to_owned()),
            ..Profile::writing_to(open)
        };
        let child = self.sandbox.spawn(&spec, &profile, &found).map_err(|err| err.to_string())?;
        finish(child, &[], TIMEOUT, LIMIT).await
    }
}
