//! The sandbox: what a command can reach, enforced by the system.
//!
//! There are four levels, and the strongest that works is used; [`Sandbox::found`] tries them. [`Profile`] says what a command may
//! access. Each mechanism has its file: `space` (mount, PID and network namespaces; `bubblewrap` where only that may make them),
//! `landlock` (files), `seccomp` (system calls), `limits` and `cgroup` (resources), `seatbelt` (macOS). `helper`, our own program
//! started again, applies them. See docs/internals/sandbox.md.

#[cfg(target_os = "linux")]
mod bubblewrap;
#[cfg(target_os = "linux")]
mod canary;
#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
pub mod helper;
#[cfg(target_os = "linux")]
mod helper_spec;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod launch_file;
mod level;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod linux;
mod profile;
#[cfg(target_os = "linux")]
mod reaper;
#[cfg(target_os = "linux")]
mod reserve;
pub mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp;
mod shared_directory;
#[cfg(target_os = "linux")]
mod space;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

#[cfg(target_os = "linux")]
pub(crate) use held::Held;
pub use level::{Found, Level};
#[cfg(target_os = "linux")]
pub(crate) use linux::reserve as reserve_missing;
pub use profile::{Limits, Network, Profile, secret_places};
#[cfg(target_os = "linux")]
pub(crate) use reaper::kill_below;
#[cfg(target_os = "linux")]
pub(crate) use reserve::{Reserved, records as reservation_records};
pub use shared_directory::SharedDirectory;
#[cfg(target_os = "linux")]
pub use terminal::InTerminal;

use crate::error::Error;
use crate::spawn::{Child, Spec};

/// The sandbox of this machine. One for the whole program.
#[derive(Debug)]
pub struct Sandbox {
    helper: PathBuf,
    /// The helper, opened before any command ran: a command may be able to replace the file at that path.
    #[cfg(target_os = "linux")]
    opened: Option<std::os::fd::OwnedFd>,
    /// Our own directory for temporary files and for the canary.
    scratch: PathBuf,
    /// The only bubblewrap to use; `None` for any that the system has.
    bubblewrap: Option<PathBuf>,
    at_most: Level,
    found: Mutex<Option<Arc<Found>>>,
    /// All hidden paths so far, resolved: they stay hidden even if a link that led there is removed.
    #[cfg(target_os = "linux")]
    hidden: std::sync::Mutex<std::collections::BTreeSet<PathBuf>>,
}

impl Sandbox {
    /// Makes a sandbox with this program as its helper, which is opened now. Tries nothing yet. `scratch` is for its temporary files.
    #[must_use]
    pub fn new(helper: PathBuf, scratch: PathBuf) -> Sandbox {
        Sandbox {
            #[cfg(target_os = "linux")]
            opened: linux::open_helper(&helper),
            helper,
            scratch,
            bubblewrap: None,
            at_most: Level::Full,
            found: Mutex::default(),
            #[cfg(target_os = "linux")]
            hidden: std::sync::Mutex::default(),
        }
    }

    /// Uses no stronger level than this one.
    #[must_use]
    pub fn at_most(mut self, level: Level) -> Sandbox {
        self.at_most = level;
        self
    }

    /// Uses only this bubblewrap.
    #[must_use]
    pub fn with_bubblewrap(mut self, program: PathBuf) -> Sandbox {
        self.bubblewrap = Some(program);
        self
    }

    /// Returns the path of the helper program, for a terminal of the client: a command must not be able to replace it there.
    #[must_use]
    pub fn helper(&self) -> &Path {
        &self.helper
    }

    /// Tells whether a terminal of the client can start the helper by its path: not if a command could replace it, because it is in
    /// one of these directories.
    #[must_use]
    pub fn suits_terminal(&self, writable: &[PathBuf]) -> bool {
        #[cfg(target_os = "linux")]
        return self.opened.is_some() && self.helper_in(writable).is_none();
        // Elsewhere a terminal gets the bare command, and only without a sandbox.
        #[cfg(not(target_os = "linux"))]
        return !writable.is_empty();
    }

    /// Returns the strongest level that works. Tried once, and again if a program that it needs is gone.
    pub async fn found(&self) -> Arc<Found> {
        let mut found = self.found.lock().await;
        if let Some(found) = found.as_ref().filter(|found| self.still_holds(found)) {
            return Arc::clone(found);
        }
        let now = Arc::new(self.find().await);
        *found = Some(Arc::clone(&now));
        now
    }

    /// Forgets the result, so that the levels are tried again.
    pub async fn doubt(&self) {
        *self.found.lock().await = None;
    }

    fn still_holds(&self, found: &Found) -> bool {
        found.bubblewrap.as_deref().is_none_or(Path::is_file)
    }

    async fn find(&self) -> Found {
        let mut missing = Vec::new();
        for level in Level::ALL.into_iter().filter(|level| *level <= self.at_most) {
            match self.attempt(level).await {
                Ok(bubblewrap) => return Found { level, missing, bubblewrap },
                Err(why) => missing.push((level, why)),
            }
        }
        Found { level: Level::None, missing, bubblewrap: None }
    }

    /// Starts a program at the level that was found, in its own session and without input.
    ///
    /// # Errors
    /// Fails if it cannot be started or restricted as the profile says. Never starts it at a weaker level.
    pub fn spawn(&self, spec: &Spec, profile: &Profile, found: &Found) -> Result<Child, Error> {
        #[cfg(target_os = "linux")]
        return self.spawn_on_linux(spec, profile, found);
        #[cfg(not(target_os = "linux"))]
        return self.spawn_elsewhere(spec, profile, found);
    }
}

impl Sandbox {
    /// Starts a program without restrictions. All it starts ends with it or with us; on Linux even processes with their own session.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub fn spawn_free(&self, spec: &Spec) -> Result<Child, Error> {
        #[cfg(target_os = "linux")]
        return self.spawn_free_on_linux(spec);
        #[cfg(not(target_os = "linux"))]
        return crate::spawn::spawn(spec);
    }
}

/// What a terminal should start. Only Linux has a helper for it.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct InTerminal {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<std::ffi::OsString>,
}

#[cfg(not(target_os = "linux"))]
impl InTerminal {
    /// Cancels the start. Returns whether that was in time.
    pub fn cancel(&self) -> bool {
        false
    }
}

#[cfg(not(target_os = "linux"))]
impl Sandbox {
    /// Refuses: only on Linux a command in a terminal can be restricted.
    ///
    /// # Errors
    /// Always.
    pub fn for_terminal(&self, _: &Spec, _: &Profile, _: &Found) -> Result<InTerminal, Error> {
        Err(Error::NotConfined)
    }

    /// Accepts Seatbelt if the system has it; nothing needs a trial.
    async fn attempt(&self, level: Level) -> Result<Option<PathBuf>, String> {
        match level {
            Level::None => Ok(None),
            Level::Kernel if Path::new(seatbelt::PROGRAM).is_file() => Ok(None),
            _ => Err(format!("not available on {}", std::env::consts::OS)),
        }
    }

    fn spawn_elsewhere(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
    ) -> Result<Child, Error> {
        let mut spec = spec.clone();
        if found.level == Level::Kernel {
            let inner = std::iter::once(spec.program.clone().into()).chain(spec.args);
            let mut profile = profile.clone();
            if let Some(temporary) = profile.temporary.take() {
                spec.env.push(("TMPDIR".into(), temporary.clone().into()));
                profile.writable.push(temporary);
            }
            let text = seatbelt::profile(&profile);
            spec.args = ["-p".into(), text.into()].into_iter().chain(inner).collect();
            spec.program = seatbelt::PROGRAM.into();
        }
        crate::spawn::spawn_alone(&spec, crate::spawn::Alone::default())
    }
}
