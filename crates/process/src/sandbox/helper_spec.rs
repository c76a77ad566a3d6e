//! The helper's arguments: how to restrict itself, and which program to become. Written by the agent, read by the helper.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::PathBuf;

use super::profile::Limits;
use super::tree::What;

/// The first argument of a helper.
pub(super) const WORD: &str = "__confine";

/// What the helper does to itself before it becomes the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelperSpec {
    /// Which process must still be its parent: the signal for a parent's end is not sent if that has ended already.
    pub(super) parent: Option<u32>,
    /// Which namespaces it makes; `None` for none.
    pub(super) space: Option<Space>,
    /// Which files it may access; `None` for all.
    pub(super) files: Option<Files>,
    /// Which sockets it may create; `None` for no filter of system calls.
    pub(super) sockets: Option<Sockets>,
    /// Resource limits; `None` leaves these and its privileges unchanged.
    pub(super) limits: Option<Limits>,
    /// Waits for the command and ends the processes it leaves behind, where no PID namespace does.
    pub(super) reaps: bool,
    /// Where it reports that all restrictions are in effect, just before it becomes the command.
    pub(super) report: Option<RawFd>,
    pub(super) then: Then,
}

/// A mount namespace, a PID namespace and, optionally, a network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    /// The working directory of the command.
    pub(super) cwd: PathBuf,
    /// Has its own network namespace, which is connected to nothing.
    pub(super) own_network: bool,
    /// How many bytes a private directory can hold.
    pub(super) size: u64,
    /// What is in the private directories; `None` for nothing.
    pub(super) temporary: Option<PathBuf>,
    /// What differs from a read-only tree, in this order.
    pub(super) mounts: Vec<(PathBuf, What)>,
}

/// Which files the command may access.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Files {
    /// Writable directories.
    pub(super) writable: Vec<PathBuf>,
    /// Paths that cannot be read.
    pub(super) hidden: Vec<PathBuf>,
    /// Fails if the system can enforce only part of it.
    pub(super) is_only_layer: bool,
}

/// Which sockets the command may create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// None that reach another process.
    None,
    /// For TCP and UDP.
    Internet,
}

/// What the helper becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    /// This program with these arguments.
    Exec(Vec<OsString>),
    /// The canary, which tries what it must not do.
    Canary {
        /// A file that must not be writable.
        outside: PathBuf,
        /// A file that must not be readable.
        hidden: PathBuf,
        /// A path that must not be creatable although its directory is writable.
        protected: PathBuf,
        /// A file that must be writable.
        inside: PathBuf,
    },
}

impl HelperSpec {
    /// Describes a helper that is a child of this process and restricts at most how much is used.
    pub(super) fn new(limits: Option<Limits>, report: Option<RawFd>, then: Then) -> HelperSpec {
        let parent = Some(std::process::id());
        HelperSpec {
            parent,
            space: None,
            files: None,
            sockets: None,
            limits,
            reaps: false,
            report,
            then,
        }
    }

    /// Writes the arguments, [`WORD`] first.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![WORD.into()];
        let mut pair = |name: &str, value: &OsStr| args.extend([name.into(), value.to_owned()]);
        if let Some(parent) = self.parent {
            pair("parent", parent.to_string().as_ref());
        }
        if let Some(Limits { memory, processes, file_size, open_files }) = self.limits {
            let limits = format!("{memory},{processes},{file_size},{open_files}");
            pair("limits", limits.as_ref());
        }
        if self.reaps {
            pair("left", "end".as_ref());
        }
        if let Some(fd) = self.report {
            pair("report", fd.to_string().as_ref());
        }
        if let Some(Space { cwd, own_network, size, temporary, mounts }) = &self.space {
            pair("space", cwd.as_ref());
            pair("network", if *own_network { "own" } else { "all" }.as_ref());
            pair("size", size.to_string().as_ref());
            temporary.iter().for_each(|path| pair("temporary", path.as_ref()));
            mounts.iter().for_each(|(path, what)| pair(name_of(*what), path.as_ref()));
        }
        if let Some(files) = &self.files {
            pair("files", if files.is_only_layer { "strict" } else { "layer" }.as_ref());
            files.writable.iter().for_each(|path| pair("write", path.as_ref()));
            files.hidden.iter().for_each(|path| pair("hide", path.as_ref()));
        }
        match self.sockets {
            None => {}
            Some(Sockets::None) => pair("sockets", "none".as_ref()),
            Some(Sockets::Internet) => pair("sockets", "internet".as_ref()),
        }
        match &self.then {
            Then::Exec(words) => {
                args.push("exec".into());
                args.extend(words.iter().cloned());
            }
            Then::Canary { outside, hidden, protected, inside } => {
                args.push("canary".into());
                args.extend([outside, hidden, protected, inside].map(OsString::from));
            }
        }
        args
    }

    /// Reads the arguments after [`WORD`].
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has a helper"))]
    pub(super) fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<HelperSpec> {
        let mut spec =
            HelperSpec { parent: None, ..HelperSpec::new(None, None, Then::Exec(Vec::new())) };
        loop {
            let name = args.next()?;
            match name.to_str()? {
                "exec" => {
                    spec.then = Then::Exec(args.collect());
                    return Some(spec);
                }
                "canary" => {
                    let mut path = || args.next().map(PathBuf::from);
                    let (outside, hidden, protected, inside) = (path()?, path()?, path()?, path()?);
                    spec.then = Then::Canary { outside, hidden, protected, inside };
                    return Some(spec);
                }
                name => spec.take(name, args.next()?)?,
            }
        }
    }

    fn take(&mut self, name: &str, value: OsString) -> Option<()> {
        if let Some(what) = MOUNTS.into_iter().find(|what| name_of(*what) == name) {
            self.space.as_mut()?.mounts.push((value.into(), what));
            return Some(());
        }
        match (name, value.to_str()) {
            ("space", _) => {
                let (cwd, mounts) = (value.into(), Vec::new());
                self.space =
                    Some(Space { cwd, own_network: true, size: 0, temporary: None, mounts });
            }
            ("network", Some("own")) => self.space.as_mut()?.own_network = true,
            ("network", Some("all")) => self.space.as_mut()?.own_network = false,
            ("size", Some(text)) => self.space.as_mut()?.size = text.parse().ok()?,
            ("temporary", _) => self.space.as_mut()?.temporary = Some(value.into()),
            ("write", _) => self.files.as_mut()?.writable.push(value.into()),
            ("hide", _) => self.files.as_mut()?.hidden.push(value.into()),
            ("parent", Some(text)) => self.parent = Some(text.parse().ok()?),
            ("limits", Some(text)) => self.limits = Some(limits(text)?),
            ("report", Some(text)) => self.report = Some(text.parse().ok()?),
            ("left", Some("end")) => self.reaps = true,
            ("files", Some(text)) => {
                let is_only_layer = text == "strict";
                self.files = Some(Files { is_only_layer, ..Files::default() });
            }
            ("sockets", Some("none")) => self.sockets = Some(Sockets::None),
            ("sockets", Some("internet")) => self.sockets = Some(Sockets::Internet),
            _ => return None,
        }
        Some(())
    }
}

const MOUNTS: [What; 5] =
    [What::Private, What::HideDirectory, What::HideFile, What::Write, What::Protect];

fn name_of(what: What) -> &'static str {
    match what {
        What::Private => "mount-private",
        What::HideDirectory => "mount-empty",
        What::HideFile => "mount-nothing",
        What::Write => "mount-writable",
        What::Protect => "mount-readable",
    }
}

fn limits(text: &str) -> Option<Limits> {
    let mut numbers = text.split(',').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Limits { memory: next()?, processes: next()?, file_size: next()?, open_files: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_spec_reads_back_as_it_was_written() {
        let mounts = MOUNTS.map(|what| (PathBuf::from("/a b\nc"), what)).to_vec();
        let exec = HelperSpec {
            parent: Some(6),
            space: Some(Space {
                cwd: "/c d".into(),
                own_network: false,
                size: 5,
                temporary: Some("/t".into()),
                mounts,
            }),
            files: Some(Files {
                writable: vec!["/w".into(), "/a b\nc".into()],
                hidden: vec!["/home/u/.ssh".into()],
                is_only_layer: true,
            }),
            sockets: Some(Sockets::None),
            limits: Some(Limits { memory: 1, processes: 2, file_size: 3, open_files: 4 }),
            reaps: true,
            report: Some(7),
            then: Then::Exec(vec!["/bin/sh".into(), "-c".into(), "exec canary".into()]),
        };
        let then = Then::Canary {
            outside: "/o".into(),
            hidden: "/h".into(),
            protected: "/p".into(),
            inside: "/i".into(),
        };
        let canary = HelperSpec { then, ..HelperSpec::new(exec.limits, None, exec.then.clone()) };
        let free = HelperSpec { reaps: true, ..HelperSpec::new(None, Some(3), exec.then.clone()) };
        for spec in [exec, canary, free] {
            let args = spec.to_args();
            assert_eq!(args[0], WORD);
            assert_eq!(HelperSpec::from_args(args.into_iter().skip(1)), Some(spec));
        }
        for broken in [
            vec!["exac"],
            vec!["report", "x", "exec"],
            vec!["write", "/w", "exec"],
            vec!["mount-private", "/w", "exec"],
            vec![],
        ] {
            let args = broken.iter().map(OsString::from);
            assert_eq!(HelperSpec::from_args(args), None, "{broken:?}");
        }
    }
}
