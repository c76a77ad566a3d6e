//! Watches the top of the session's directories while a command runs. A new file that other programs run by themselves is renamed as
//! soon as it appears: an editor that also watches could otherwise use it before the command ends.
//!
//! Cannot tell who created a file. `quarantine` checks again when the command has ended. Where the kernel reports nothing, because a command has
//! used up what it allows, the directories are listed again and again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

/// What other programs run by themselves, and what the command may change of it.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux can watch"))]
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) directories: Vec<PathBuf>,
    /// What was there before the command.
    pub(super) before: Arc<super::repositories::Survey>,
    pub(super) granted: Vec<PathBuf>,
}

#[cfg(target_os = "linux")]
impl Watched {
    fn is_new(&self, path: &Path, name: &OsStr) -> bool {
        let is_granted = self.granted.iter().any(|granted| path.starts_with(granted));
        shell::is_auto_run_name(&name.to_string_lossy())
            && !self.before.auto_run.contains(path)
            && !is_granted
    }
}

/// How often a command may create the same file. It is ended then: each time, another program could be faster than the renaming.
#[cfg(target_os = "linux")]
const MOST_TIMES: usize = 2;

/// A running watch; it ends with this value.
#[derive(Debug)]
pub(super) struct Watch {
    /// Set when a file that was renamed is created again and again.
    again: watch::Receiver<Option<PathBuf>>,
    #[cfg(target_os = "linux")]
    thread: Option<(std::io::PipeWriter, std::thread::JoinHandle<BTreeSet<PathBuf>>)>,
}

impl Watch {
    /// Returns what signals that a file was created again.
    pub(super) fn again(&self) -> Again {
        Again(self.again.clone())
    }

    /// Ends the watch, and returns what was renamed.
    pub(super) fn end(&mut self) -> BTreeSet<PathBuf> {
        #[cfg(target_os = "linux")]
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            return thread.join().unwrap_or_default();
        }
        BTreeSet::new()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for a command that creates a renamed file again.
#[derive(Debug)]
pub(super) struct Again(watch::Receiver<Option<PathBuf>>);

impl Again {
    /// Waits until the command must be ended, and returns the file that it created again. May wait forever.
    pub(super) async fn wait(&mut self) -> PathBuf {
        if let Ok(found) = self.0.wait_for(Option::is_some).await
            && let Some(path) = found.clone()
        {
            return path;
        }
        std::future::pending().await
    }
}

/// Describes why a command was ended.
pub(super) fn ended_because(path: &Path) -> String {
    format!(
        "The command was ended: it created {} again and again, which was renamed because other programs run what is in it. Use `write`, or \
         request the path with `write_outside` and give the `reason`",
        path.display()
    )
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start(_: Watched) -> Watch {
    Watch { again: watch::channel(None).1 }
}

#[cfg(target_os = "linux")]
pub(super) use linux::start;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ffi::{OsStr, OsString};
    use std::io::PipeReader;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use tokio::sync::watch;
    use tree::beneath;

    use super::{MOST_TIMES, Watch, Watched};

    /// How often directories are listed that cannot be watched.
    const BEAT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

    /// Starts to watch. Where that is not possible, files are found when the command has ended.
    pub(in crate::bash) fn start(watched: Watched) -> Watch {
        start_with(watched, watch_all)
    }

    /// Starts with what asks the kernel for reports.
    pub(super) fn start_with(watched: Watched, watch_all: WatchAll) -> Watch {
        let (signal, again) = watch::channel(None);
        let begun = Watcher::new(watched, signal, watch_all).and_then(|watcher| {
            let (stopped, stop) = std::io::pipe()?;
            let thread = std::thread::Builder::new().name("auto-run watch".to_owned());
            Ok((stop, thread.spawn(move || watcher.run(&stopped))?))
        });
        if let Err(err) = &begun {
            tracing::info!("the project is not watched while a command runs: {err}");
        }
        Watch { again, thread: begun.ok() }
    }

    /// The directories as they were opened, by the number of their watch.
    type Open = BTreeMap<i32, (PathBuf, OwnedFd)>;
    type WatchAll = fn(&[PathBuf], &mut Open) -> std::io::Result<OwnedFd>;

    /// Asks the kernel to report what is created in these directories.
    fn watch_all(directories: &[PathBuf], open: &mut Open) -> std::io::Result<OwnedFd> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        for directory in directories {
            let handle = beneath::open_directory(directory)?;
            let number = inotify::add_watch(&events, directory, flags)?;
            open.insert(number, (directory.clone(), handle));
        }
        Ok(events)
    }

    /// A watcher that reads nothing until the test says so.
    #[cfg(test)]
    pub(super) struct Flood {
        watcher: Watcher,
        /// How many events the kernel stores.
        pub(super) limit: usize,
    }

    #[cfg(test)]
    impl Flood {
        pub(super) fn over(watched: Watched) -> Flood {
            let watcher = Watcher::new(watched, watch::channel(None).0, watch_all).unwrap();
            let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
            Flood { watcher, limit: limit.trim().parse().unwrap() }
        }

        pub(super) fn read(mut self) -> BTreeSet<PathBuf> {
            let events = self.watcher.events.take().unwrap();
            self.watcher.read_events(&events);
            self.watcher.renamed.into_keys().collect()
        }
    }

    struct Watcher {
        watched: Watched,
        /// What the kernel reports; `None` if it refuses.
        events: Option<OwnedFd>,
        open: Open,
        /// What was renamed, and how often.
        renamed: BTreeMap<PathBuf, usize>,
        signal: watch::Sender<Option<PathBuf>>,
    }

    impl Watcher {
        fn new(
            watched: Watched,
            signal: watch::Sender<Option<PathBuf>>,
            watch_all: WatchAll,
        ) -> std::io::Result<Watcher> {
            let mut open = BTreeMap::new();
            let events = match watch_all(&watched.directories, &mut open) {
                Ok(events) => Some(events),
                Err(err) => {
                    tracing::info!(
                        "the project is listed while a command runs, not watched: {err}"
                    );
                    open.clear();
                    for (number, directory) in (0..).zip(&watched.directories) {
                        open.insert(
                            number,
                            (directory.clone(), beneath::open_directory(directory)?),
                        );
                    }
                    None
                }
            };
            Ok(Watcher { watched, events, open, renamed: BTreeMap::new(), signal })
        }

        /// Watches until the other end of `stop` is closed. Returns what was renamed.
        fn run(mut self, stop: &PipeReader) -> BTreeSet<PathBuf> {
            loop {
                let mut wait = vec![PollFd::new(stop, PollFlags::IN)];
                wait.extend(self.events.as_ref().map(|events| PollFd::new(events, PollFlags::IN)));
                let most = self.events.is_none().then_some(&BEAT);
                match poll(&mut wait, most) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return self.renamed.into_keys().collect(),
                }
                let is_over = !wait[0].revents().is_empty();
                match self.events.take() {
                    Some(events) => {
                        self.read_events(&events);
                        self.events = Some(events);
                    }
                    None => self.list_all(),
                }
                if is_over {
                    return self.renamed.into_keys().collect();
                }
            }
        }

        fn read_events(&mut self, events: &OwnedFd) {
            let mut buffer = [MaybeUninit::uninit(); 8192];
            let mut found = Vec::new();
            let mut is_cut_short = false;
            let mut reader = inotify::Reader::new(events, &mut buffer);
            while let Ok(event) = reader.next() {
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    is_cut_short = true;
                    continue;
                }
                let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                // Most names are harmless, and a command may create very many.
                let name = name.filter(|name| shell::is_auto_run_name(&name.to_string_lossy()));
                found.extend(name.map(|name| (event.wd(), name.to_owned())));
            }
            for (number, name) in found {
                self.rename(number, &name);
            }
            if is_cut_short {
                self.list_all();
            }
        }

        /// Finds what was not reported.
        fn list_all(&mut self) {
            let list = |(number, (_, handle)): (&i32, &(PathBuf, OwnedFd))| {
                let names = beneath::list(handle.as_fd(), Path::new("")).unwrap_or_default();
                let is_wanted = |name: &OsString| shell::is_auto_run_name(&name.to_string_lossy());
                let names = names.into_iter().map(|(name, _)| name).filter(is_wanted);
                names.map(|name| (*number, name)).collect::<Vec<_>>()
            };
            let found: Vec<_> = self.open.iter().flat_map(list).collect();
            for (number, name) in found {
                self.rename(number, &name);
            }
        }

        fn rename(&mut self, number: i32, name: &OsStr) {
            let Some((directory, handle)) = self.open.get(&number) else { return };
            let path = directory.join(name);
            if !self.watched.is_new(&path, name) {
                return;
            }
            // It may be gone already. Whatever else forbids it is found and reported when the command has ended.
            if beneath::set_aside(handle.as_fd(), name.as_ref()).is_err() {
                // Another command's watch was faster. Both report it.
                if !beneath::exists(handle.as_fd(), name.as_ref())
                    && beneath::is_set_aside(handle.as_fd(), name.as_ref())
                {
                    self.renamed.entry(path).or_default();
                }
                return;
            }
            let times = self.renamed.entry(path.clone()).or_default();
            *times += 1;
            if *times > MOST_TIMES {
                self.signal.send_replace(Some(path));
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::super::repositories::survey;
    use super::*;

    fn watched(top: &Path, granted: &[PathBuf]) -> Watched {
        let directories = vec![top.to_owned()];
        let before = Arc::new(survey(&directories));
        Watched { directories, before, granted: granted.to_vec() }
    }

    // R: T7
    #[tokio::test]
    async fn what_the_kernel_does_not_report_is_found_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let mut listed =
            linux::start_with(watched(&top, &[]), |_, _| Err(rustix::io::Errno::MFILE.into()));
        let names =
            [".vscode".into(), std::ffi::OsString::from_vec(b"\xff.code-workspace".to_vec())];
        for name in &names {
            std::fs::create_dir(top.join(name)).unwrap();
            while top.join(name).exists() {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(listed.end(), names.iter().map(|name| top.join(name)).collect());
        // More events than the kernel stores, while nobody reads them.
        let flooded = linux::Flood::over(watched(&top, &[]));
        for number in 0..flooded.limit + 10 {
            std::fs::write(top.join(format!("x{}", number % 2)), "").unwrap();
            std::fs::remove_file(top.join(format!("x{}", number % 2))).unwrap();
        }
        std::fs::create_dir(top.join(".idea")).unwrap();
        assert_eq!(flooded.read(), BTreeSet::from([top.join(".idea")]));
        eprintln!("attempts: 3");
    }

    // R: T7
    #[tokio::test]
    async fn all_commands_that_run_report_what_one_of_them_created() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let mut watches = [start(watched(&top, &[])), start(watched(&top, &[]))];
        std::fs::create_dir(top.join(".vscode")).unwrap();
        while top.join(".vscode").exists() {
            tokio::task::yield_now().await;
        }
        for watch in &mut watches {
            assert_eq!(watch.end(), BTreeSet::from([top.join(".vscode")]));
        }
    }

    // R: T7
    #[tokio::test]
    async fn every_name_is_renamed_while_the_command_runs_and_repeating_it_ends_the_command() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        std::fs::create_dir(top.join(".zed")).unwrap();
        let mut watch = start(watched(&top, &[top.join(".husky")]));
        let mut again = watch.again();
        let names = shell::AUTO_RUN.iter().copied().chain(["x.code-workspace"]);
        let new: Vec<&str> = names.filter(|name| ![".zed", ".husky"].contains(name)).collect();
        for (number, name) in new.iter().enumerate() {
            let path = top.join(name);
            match number % 3 {
                0 => std::fs::create_dir(&path).unwrap(),
                1 => std::fs::write(&path, "evil").unwrap(),
                // Whole at once.
                _ => {
                    std::fs::write(top.join("harmless"), "evil").unwrap();
                    std::fs::rename(top.join("harmless"), &path).unwrap();
                }
            }
        }
        std::fs::create_dir(top.join(".husky")).unwrap();
        std::fs::write(top.join(".zed/tasks.json"), "mine").unwrap();
        // Each is renamed while the watch goes on.
        let last = top.join(new[new.len() - 1]);
        for _ in 0..MOST_TIMES {
            while last.symlink_metadata().is_ok() {
                tokio::task::yield_now().await;
            }
            std::fs::write(&last, "evil").unwrap();
        }
        assert_eq!(again.wait().await, last);
        assert!(ended_because(&last).contains("write_outside"));
        let renamed = watch.end();
        assert_eq!(renamed, new.iter().map(|name| top.join(name)).collect::<BTreeSet<_>>());
        for name in &new {
            assert!(!top.join(name).exists(), "{name}");
            assert!(top.join(format!("{name}.set-aside")).exists(), "{name}");
        }
        assert!(top.join(".husky").is_dir() && top.join(".zed/tasks.json").exists());
        eprintln!("attempts: {}", new.len());
    }
}
