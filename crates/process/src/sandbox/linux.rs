//! Tries and applies the levels on Linux.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::cgroup::Groups;
use super::held::{Held, Temporary};
use super::helper_spec::{Files, HelperSpec, Sockets, Space, Then};
use super::profile::{Limits, Network, Profile};
use super::reserve::{self, Reserved};
use super::{Found, Level, Sandbox, bubblewrap, canary, tree};
use crate::error::Error;
use crate::spawn::{Alone, Child, Spec, spawn_alone};

/// Opens the helper, to start it whatever is at its path later.
pub(super) fn open_helper(helper: &Path) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let file =
        helper.is_file().then(|| open(helper, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
    file?.ok()
}

/// How long a canary may take. A machine slower than this gets a weaker level.
const PATIENCE: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Tries a level. Returns the bubblewrap that it needs, if any, or why the level does not work.
    pub(super) async fn attempt(&self, level: Level) -> Result<Option<PathBuf>, String> {
        match level {
            Level::None => Ok(None),
            Level::Full => self.attempt_full().await,
            Level::Kernel | Level::Limits => self.try_canary(level, None).await.map(|()| None),
        }
    }

    /// Tries to make namespaces ourselves, then with each bubblewrap, which some systems require.
    async fn attempt_full(&self) -> Result<Option<PathBuf>, String> {
        let mut why = Vec::new();
        if self.bubblewrap.is_none() {
            match self.try_canary(Level::Full, None).await {
                Ok(()) => return Ok(None),
                Err(failed) => why.push(failed),
            }
        }
        let given = self.bubblewrap.clone().map(|program| vec![program]);
        let places = given.unwrap_or_else(bubblewrap::trusted_places);
        if places.is_empty() {
            why.push("bubblewrap is not installed".to_owned());
        }
        for program in places {
            match self.try_canary(Level::Full, Some(&program)).await {
                Ok(()) => return Ok(Some(program)),
                Err(failed) => why.push(format!("with {}: {failed}", program.display())),
            }
        }
        Err(why.join("; "))
    }

    async fn try_canary(&self, level: Level, bubblewrap: Option<&PathBuf>) -> Result<(), String> {
        let directory = Temporary::make(&self.scratch, "canary")
            .map_err(|err| format!("cannot create a folder to try it in: {err}"))?;
        let at = |name: &str| directory.0.join(name);
        for name in ["inside", "hidden"] {
            std::fs::create_dir(at(name)).map_err(|err| err.to_string())?;
        }
        std::fs::write(at("hidden/secret"), "secret").map_err(|err| err.to_string())?;
        let profile = Profile {
            writable: vec![at("inside")],
            protected: vec![at("inside/protected")],
            hidden: vec![at("hidden")],
            // The canary's directory may be inside one of these, and must be visible.
            private: Vec::new(),
            temporary: None,
            network: Network::Off,
            limits: Limits::default(),
        };
        let then = Then::Canary {
            outside: at("outside"),
            hidden: at("hidden/secret"),
            protected: at("inside/protected"),
            inside: at("inside/file"),
        };
        let found = Found { level, missing: Vec::new(), bubblewrap: bubblewrap.cloned() };
        let mut spec = Spec::new("canary", at("inside"));
        spec.clear_env = true;
        spec.merge_stderr = true;
        let started = self.start(&spec, &profile, &found, then);
        let mut child = started.map_err(|err| crate::error::whole(&err))?;
        let mut report = String::new();
        if let Some(output) = child.stdout.take() {
            let read = timeout(PATIENCE, output.take(4096).read_to_string(&mut report)).await;
            read.map_err(|_| "the canary took too long".to_owned())?
                .map_err(|err| err.to_string())?;
        }
        child.wait().await.map_err(|err| {
            let line = report.lines().next().unwrap_or_default();
            format!("{} ({line})", crate::error::whole(&err))
        })?;
        canary::judge(level, &report)
    }

    pub(super) fn spawn_on_linux(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
    ) -> Result<Child, Error> {
        self.start(spec, profile, found, exec(spec))
    }

    fn start(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
        then: Then,
    ) -> Result<Child, Error> {
        if found.level == Level::None {
            return spawn_alone(spec, Alone::default());
        }
        let failed = |source| Error::Start { program: self.helper.clone(), source };
        let mut held = Held::default();
        let (report, reported) = std::io::pipe().map_err(failed)?;
        let report_to = Some(std::os::fd::AsRawFd::as_raw_fd(&reported));
        let helper = HelperSpec::new(Some(profile.limits), report_to, then);
        let spec = self.restricted(spec, profile, found, helper, &mut held)?;
        held.groups = Groups::make(&profile.limits);
        spawn_alone(&spec, wrapper(held, report, reported))
    }

    pub(super) fn spawn_free_on_linux(&self, spec: &Spec) -> Result<Child, Error> {
        let failed = |source| Error::Start { program: self.helper.clone(), source };
        let (report, reported) = std::io::pipe().map_err(failed)?;
        let report_to = Some(std::os::fd::AsRawFd::as_raw_fd(&reported));
        let helper = HelperSpec { reaps: true, ..HelperSpec::new(None, report_to, exec(spec)) };
        let mut spec = spec.clone();
        spec.args = helper.to_args();
        spec.program = self.opened_helper()?;
        spawn_alone(&spec, wrapper(Held::default(), report, reported))
    }

    /// Returns what to start instead of a program, so that it is restricted before it runs. What it needs meanwhile is added to
    /// `held`.
    pub(super) fn restricted(
        &self,
        spec: &Spec,
        profile: &Profile,
        found: &Found,
        mut helper: HelperSpec,
        held: &mut Held,
    ) -> Result<Spec, Error> {
        let program = self.opened_helper()?;
        if !spec.cwd.is_dir() {
            return Err(Error::NoSuchDirectory { directory: spec.cwd.clone() });
        }
        let failed = |source| Error::Start { program: self.helper.clone(), source };
        let mut spec = spec.clone();
        match found.level {
            Level::Full => return self.confined(spec, profile, found, helper, held),
            Level::Kernel => {
                let temporary = match &profile.temporary {
                    Some(shared) => shared.clone(),
                    None => {
                        let own = Temporary::make(&self.scratch, "tmp").map_err(failed)?;
                        held._temporary.insert(own).0.clone()
                    }
                };
                helper.files = Some(Files {
                    writable: profile.writable.iter().chain([&temporary]).cloned().collect(),
                    hidden: self.hidden(&profile.hidden),
                    is_only_layer: true,
                });
                helper.sockets = Some(match profile.network {
                    Network::Off => Sockets::None,
                    Network::On => Sockets::Internet,
                });
                spec.env.push(("TMPDIR".into(), temporary.into()));
            }
            _ => {}
        }
        helper.reaps = true;
        spec.args = helper.to_args();
        spec.program = program;
        Ok(spec)
    }

    /// Returns what to start at the level `Full`: the helper, which makes the namespaces itself or runs in those of bubblewrap.
    fn confined(
        &self,
        mut spec: Spec,
        profile: &Profile,
        found: &Found,
        mut helper: HelperSpec,
        held: &mut Held,
    ) -> Result<Spec, Error> {
        let (mut profile, reserved) = reserve(profile, &reserve::records(&self.scratch))?;
        profile.hidden = self.hidden(&profile.hidden);
        held._reserved = reserved;
        let own = profile.private.iter().chain(&profile.writable).cloned();
        let writable = own.chain([PathBuf::from("/dev")]).collect();
        helper.files = Some(Files { writable, ..Files::default() });
        // Its own network is connected to nothing, so its loopback is harmless.
        helper.sockets = Some(Sockets::Internet);
        match &found.bubblewrap {
            Some(program) if !program.is_file() => {
                return Err(Error::NoSuchProgram { program: program.clone() });
            }
            Some(program) => {
                profile.protected.extend(self.helper_in(&profile.writable));
                spec.args = bubblewrap::arguments(&profile, &spec.cwd, &self.helper)?;
                spec.program.clone_from(program);
                // Inside, the helper is a child of bubblewrap, which watches the agent.
                helper.parent = None;
            }
            None => {
                helper.space = Some(Space {
                    cwd: spec.cwd.clone(),
                    own_network: profile.network == Network::Off,
                    size: tree::size(&profile.limits),
                    temporary: profile.temporary.clone(),
                    mounts: tree::mounts(&profile)?,
                });
                spec.args = Vec::new();
                spec.program = self.opened_helper()?;
            }
        }
        spec.args.extend(helper.to_args());
        Ok(spec)
    }

    /// Returns a path that leads to the helper as it was at the start: a child has the descriptor until it becomes the helper.
    fn opened_helper(&self) -> Result<PathBuf, Error> {
        let helper = self.opened.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        helper.map(PathBuf::from).ok_or_else(|| Error::NoHelper { program: self.helper.clone() })
    }

    /// Returns the helper, if it is in one of these directories. Bubblewrap mounts it by its path.
    pub(super) fn helper_in(&self, directories: &[PathBuf]) -> Option<PathBuf> {
        let helper = self.helper.canonicalize().ok()?;
        directories.iter().any(|directory| helper.starts_with(directory)).then_some(helper)
    }

    /// Returns these paths resolved, and all that were hidden before.
    fn hidden(&self, places: &[PathBuf]) -> Vec<PathBuf> {
        let mut seen = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        // Most of them do not exist, and checking that is much cheaper than resolving links.
        let there = places.iter().filter(|path| path.symlink_metadata().is_ok());
        seen.extend(there.filter_map(|path| path.canonicalize().ok()));
        seen.iter().filter(|path| path.exists()).cloned().collect()
    }

    /// Returns our own directory for temporary files.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }
}

/// Returns what the helper becomes: the program of a spec.
fn exec(spec: &Spec) -> Then {
    let program = std::iter::once(OsString::from(&spec.program));
    Then::Exec(program.chain(spec.args.iter().cloned()).collect())
}

/// Returns how bubblewrap and the helper are started: they wait until the command inside has ended, and it does not start if no process
/// reads the report.
fn wrapper(held: Held, report: std::io::PipeReader, reported: std::io::PipeWriter) -> Alone {
    Alone {
        ignore_term: true,
        handed_down: Some(reported.into()),
        report: Some(report),
        held: Some(held),
    }
}

/// Reserves protected paths that do not exist yet.
pub(crate) fn reserve(
    profile: &Profile,
    records: &Path,
) -> Result<(Profile, Vec<Reserved>), Error> {
    let mut profile = profile.clone();
    let mut reserved = Vec::new();
    let roots = real_paths(&profile.writable);
    let wanted = std::mem::take(&mut profile.protected);
    for path in wanted {
        // Outside the writable directories nothing can be created anyway, and a deleted directory is not created again.
        let mut roots = profile.writable.iter().chain(&roots).filter(|root| root.is_dir());
        let is_inside = roots.any(|root| path.starts_with(root));
        let made = if is_inside { Reserved::make(&path, records) } else { Ok(None) };
        match made.map_err(|source| Error::Reserve { path: path.clone(), source })? {
            Some(place) => {
                profile.protected.push(place.path().to_owned());
                reserved.push(place);
            }
            None => profile.protected.push(path),
        }
    }
    Ok((profile, reserved))
}

fn real_paths(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
}
