//! Watches the top of the session's directories while a command runs. A new file that other programs run by themselves is renamed as
//! soon as it appears: an editor that also watches could otherwise use it before the command ends.
//!
//! Cannot tell who created a file. `quarantine` checks again when the command has ended, also where nothing can be watched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

/// What other programs run by themselves, and what the command may change of it.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) directories: Vec<PathBuf>,
    /// What was there before the command.
    pub(super) before: Arc<super::repositories::Survey>,
    pub(super) granted: Vec<PathBuf>,
}

impl Watched {
    fn is_new(&self, path: &Path, name: &str) -> bool {
        let is_granted = self.granted.iter().any(|granted| path.starts_with(granted));
        shell::is_auto_run_name(name) && !self.before.auto_run.contains(path) && !is_granted
    }
}

/// How often a command may create the same file. It is ended then: each time, another program could be faster than the renaming.
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
    use std::io::PipeReader;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::PathBuf;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use tokio::sync::watch;
    use tree::beneath;

    use super::{MOST_TIMES, Watch, Watched};

    /// Starts to watch. Where that is not possible, files are found when the command has ended.
    pub(in crate::bash) fn start(watched: Watched) -> Watch {
        let (signal, again) = watch::channel(None);
        let begun = Watcher::new(watched, signal).and_then(|watcher| {
            let (stopped, stop) = std::io::pipe()?;
            let thread = std::thread::Builder::new().name("auto-run watch".to_owned());
            Ok((stop, thread.spawn(move || watcher.run(&stopped))?))
        });
        if let Err(err) = &begun {
            tracing::info!("the project is not watched while a command runs: {err}");
        }
        Watch { again, thread: begun.ok() }
    }

    struct Watcher {
        watched: Watched,
        events: OwnedFd,
        /// The directories by the number of their watch, as they were opened.
        open: BTreeMap<i32, (PathBuf, OwnedFd)>,
        /// What was renamed, and how often.
        renamed: BTreeMap<PathBuf, usize>,
        signal: watch::Sender<Option<PathBuf>>,
    }

    impl Watcher {
        fn new(
            watched: Watched,
            signal: watch::Sender<Option<PathBuf>>,
        ) -> std::io::Result<Watcher> {
            let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            let mut open = BTreeMap::new();
            for directory in &watched.directories {
                let handle = beneath::open_directory(directory)?;
                let number = inotify::add_watch(&events, directory, flags)?;
                open.insert(number, (directory.clone(), handle));
            }
            Ok(Watcher { watched, events, open, renamed: BTreeMap::new(), signal })
        }

        /// Watches until the other end of `stop` is closed. Returns what was renamed.
        fn run(mut self, stop: &PipeReader) -> BTreeSet<PathBuf> {
            loop {
                let mut wait =
                    [PollFd::new(&self.events, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
                match poll(&mut wait, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return self.renamed.into_keys().collect(),
                }
                let is_over = !wait[1].revents().is_empty();
                self.read_events();
                if is_over {
                    return self.renamed.into_keys().collect();
                }
            }
        }

        fn read_events(&mut self) {
            let mut buffer = [MaybeUninit::uninit(); 8192];
            let mut found = Vec::new();
            let mut reader = inotify::Reader::new(&self.events, &mut buffer);
            while let Ok(event) = reader.next() {
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    // What was missed is found when the command has ended.
                    continue;
                }
                let name = event.file_name().and_then(|name| name.to_str().ok());
                found.extend(name.map(|name| (event.wd(), name.to_owned())));
            }
            for (number, name) in found {
                self.rename(number, &name);
            }
        }

        fn rename(&mut self, number: i32, name: &str) {
            let Some((directory, handle)) = self.open.get(&number) else { return };
            let path = directory.join(name);
            if !self.watched.is_new(&path, name) {
                return;
            }
            // It may be gone already.
            if beneath::set_aside(handle.as_fd(), name.as_ref()).is_err() {
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
    use super::super::repositories::survey;
    use super::*;

    fn watched(top: &Path, granted: &[PathBuf]) -> Watched {
        let directories = vec![top.to_owned()];
        let before = Arc::new(survey(&directories));
        Watched { directories, before, granted: granted.to_vec() }
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
