//! The remote repository of a directory, read from git's files. `git` itself is not run, since a repository can make it run other
//! programs.

use std::path::{Path, PathBuf};

/// The most bytes that are read of a git file.
const MOST: u64 = 1024 * 1024;

/// The host of the public GitHub.
pub const GITHUB: &str = "github.com";

/// A repository on a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The host, with the port if the URL has one.
    pub host: String,
    /// The owner and the name of the repository: `owner/name`.
    pub name: String,
    /// The name of the remote in the configuration of git.
    pub remote: String,
    /// The address that is pushed to. It may contain a password, so it is never shown.
    pub push_url: String,
    /// The directory with the repository's objects and branches.
    pub common: PathBuf,
    /// The directory with `HEAD`, which is another one in a worktree.
    pub git: PathBuf,
}

impl Remote {
    /// Finds the remote of a directory whose host is one of these, or the public GitHub.
    #[must_use]
    pub fn find(directory: &Path, hosts: &[String]) -> Option<Remote> {
        let (git, common) = git_directories(directory)?;
        let config = read(&common.join("config"))?;
        let values = config_values(&config);
        let value = |section: &str, key: &str| {
            let found = values.iter().rev().find(|(at, name, _)| at == section && name == key);
            found.map(|(_, _, value)| value.as_str())
        };
        let branch = branch_in(&git);
        let tracked = branch.and_then(|branch| value(&format!("branch \"{branch}\""), "remote"));
        let mut names = tracked.into_iter().chain(["origin", "upstream"]);
        names.find_map(|remote| {
            let section = format!("remote \"{remote}\"");
            let url = value(&section, "url")?;
            let Address { host, name, .. } = Address::parse(url)?;
            let is_ours = host == GITHUB || host.ends_with(".ghe.com") || hosts.contains(&host);
            let push_url = value(&section, "pushurl").unwrap_or(url).to_owned();
            is_ours.then(|| Remote {
                host,
                name,
                remote: remote.to_owned(),
                push_url,
                common: common.clone(),
                git: git.clone(),
            })
        })
    }

    /// Returns the current branch and its commit.
    #[must_use]
    pub fn head(&self) -> Option<(String, String)> {
        let branch = branch_in(&self.git)?;
        let reference = format!("refs/heads/{branch}");
        let loose = read(&self.common.join(&reference)).map(|text| text.trim().to_owned());
        let packed = || {
            let text = read(&self.common.join("packed-refs"))?;
            let line = text.lines().find(|line| line.split(' ').nth(1) == Some(&reference))?;
            line.split(' ').next().map(str::to_owned)
        };
        let commit = loose.or_else(packed)?;
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_commit.then_some((branch, commit))
    }

    /// Returns the address that is pushed to without a user and a password, and what it names. The configuration of a project may
    /// name any place; hooks of a repository on this machine would run outside the sandbox, so only the forge itself is accepted.
    ///
    /// # Errors
    /// Says why nothing can be pushed.
    pub fn push_address(&self) -> Result<String, String> {
        let address = Address::parse(&self.push_url).filter(|address| address.host == self.host);
        address.map(|address| address.shown).ok_or_else(|| {
            format!(
                "git's configuration names another place to push to than {}; the user can push with git",
                self.host
            )
        })
    }
}

/// Returns the git directory of a directory, and the one that all worktrees share.
fn git_directories(directory: &Path) -> Option<(PathBuf, PathBuf)> {
    let dot_git =
        directory.ancestors().map(|directory| directory.join(".git")).find(|path| path.exists())?;
    if dot_git.is_dir() {
        return Some((dot_git.clone(), dot_git));
    }
    let text = read(&dot_git)?;
    let git = dot_git.parent()?.join(text.trim().strip_prefix("gitdir: ")?);
    let common = read(&git.join("commondir")).map(|common| git.join(common.trim()));
    Some((git.clone(), common.unwrap_or(git)))
}

fn branch_in(git: &Path) -> Option<String> {
    let head = read(&git.join("HEAD"))?;
    let branch = head.trim().strip_prefix("ref: refs/heads/")?;
    is_plain(branch).then(|| branch.to_owned())
}

/// Tells whether a name can be part of a path and of a command.
pub(crate) fn is_plain(branch: &str) -> bool {
    let is_allowed = |letter: char| letter.is_alphanumeric() || "/._-+#@".contains(letter);
    !branch.is_empty()
        && !branch.starts_with(['-', '/', '.'])
        && !branch.contains("..")
        && branch.chars().all(is_allowed)
}

/// A link may lead to a pipe, a device, or our own input, so none is followed.
fn read(path: &Path) -> Option<String> {
    let bytes = tree::read(path.parent()?, path.file_name()?, MOST).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the values of a git configuration, each with its section and its key.
fn config_values(text: &str) -> Vec<(String, String, String)> {
    let (mut section, mut values) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            let value = value.trim().trim_matches('"').to_owned();
            values.push((section.clone(), key.trim().to_ascii_lowercase(), value));
        }
    }
    values
}

/// An address of a repository. Every part of it is plain, so that git, an URL parser and a reader find the same host in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    /// The host, with the port if the address has one.
    host: String,
    /// `owner/name`.
    name: String,
    /// The address without a user and a password.
    shown: String,
}

impl Address {
    /// Reads an address; `None` for one that is unusual in any part, such as a path or another transport.
    fn parse(url: &str) -> Option<Address> {
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme @ ("https" | "http" | "ssh"), rest)) => (Some(scheme), rest),
            Some(_) => return None,
            None => (None, url),
        };
        let (authority, path) = rest.split_once(if scheme.is_some() { '/' } else { ':' })?;
        let (user, host) = match authority.split_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        // A password may have any character that ends no part of an address.
        let is_user = |letter: char| letter.is_ascii_graphic() && !"/?#@\\".contains(letter);
        if !user.is_none_or(|user| user.chars().all(is_user) && !user.starts_with('-')) {
            return None;
        }
        let path = path.trim_end_matches('/');
        let (owner, name) = path.strip_suffix(".git").unwrap_or(path).split_once('/')?;
        if !is_host(host) || !is_name(owner) || !is_name(name) {
            return None;
        }
        let shown = match scheme {
            Some(scheme) => format!("{scheme}://{host}/{path}"),
            None => format!("{host}:{path}"),
        };
        // The port of ssh says nothing about the web site.
        let site = if scheme == Some("ssh") { host.split(':').next()? } else { host };
        let site = site.to_ascii_lowercase();
        let host = if site == "ssh.github.com" { GITHUB.to_owned() } else { site };
        Some(Address { host, name: format!("{owner}/{name}"), shown })
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "1"));
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    !name.is_empty()
        && !name.starts_with(['-', '.'])
        && name.chars().all(is_allowed)
        && port.parse::<u16>().is_ok()
}

fn is_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T6
    #[test]
    fn repository_is_found_in_every_form_of_address() {
        let found = |host: &str| Some((host.to_owned(), "o/r.x".to_owned()));
        for (url, host) in [
            ("https://github.com/o/r.x.git", "github.com"),
            ("https://user:secret@GitHub.com/o/r.x/", "github.com"),
            ("git@github.com:o/r.x.git", "github.com"),
            ("ssh://git@ssh.github.com:443/o/r.x.git", "github.com"),
            ("http://127.0.0.1:4001/o/r.x", "127.0.0.1:4001"),
        ] {
            let address = Address::parse(url).map(|address| (address.host, address.name));
            assert_eq!(address, found(host), "{url}");
        }
        for url in ["/srv/git/o/r", "https://github.com/o", "https://github.com/o/r/x", "a:../b"] {
            assert_eq!(Address::parse(url), None, "{url}");
        }
    }

    /// Whatever the configuration of a project says, the token goes to the forge's own host, and what is shown is what is pushed to.
    // R: T6
    #[test]
    fn address_that_could_be_read_in_two_ways_is_refused() {
        let tricks = [
            "https://evil.example#.ghe.com/o/r",
            "https://evil.example?.ghe.com/o/r",
            "https://evil.example\\.ghe.com/o/r",
            "https://evil.example%2f.ghe.com/o/r",
            "https://evil.example:443#@x.ghe.com/o/r",
            "https://evil.example?@github.com/o/r",
            "https://evil.example#@github.com/o/r",
            "https://evil.example\\@github.com/o/r",
            "https://a@evil.example@github.com/o/r",
            "https://evil.example/x@github.com/o/r",
            "https://github.com:x@evil.example/o/r@github.com",
            "https://github.com:443:@/o/r",
            "https://[github.com]/o/r",
            "https://github.com\t.evil.example/o/r",
            "https://github.com/../o/r",
            "https://github.com/-o/r",
            "https://github.com//o/r",
            "ssh://-oProxyCommand=x@github.com/o/r",
            "ssh://-oProxyCommand=x/o/r",
            "-oProxyCommand=x@github.com:o/r",
            "ext::sh -c x github.com:o/r",
            "ext://github.com/o/r",
            "file://github.com/o/r",
            "git://github.com/o/r",
            "fd::17/github.com/o/r",
            "HTTPS://github.com/o/r",
            "https:///o/r",
            "https://.ghe.com/o/r",
        ];
        for url in tricks {
            let host = Address::parse(url).map(|address| address.host);
            assert_eq!(host, None, "{url}");
        }
        let push = |push_url: &str| Remote {
            host: GITHUB.to_owned(),
            name: "o/r".to_owned(),
            remote: "origin".to_owned(),
            push_url: push_url.to_owned(),
            common: PathBuf::new(),
            git: PathBuf::new(),
        };
        for url in tricks.into_iter().chain([
            "https://evil.example/o/r",
            "git@evil.example:o/r",
            "/home/u/project/evil.git",
            "../evil.git",
            "./o/r",
            "C:/o/r",
        ]) {
            let shown = push(url).push_address();
            assert!(
                shown.as_ref().is_err_and(|why| why.contains("github.com")),
                "{url}: {shown:?}"
            );
        }
        let shown = push("https://u:p4$s%40+=@github.com/me/r.git").push_address();
        assert_eq!(shown.unwrap(), "https://github.com/me/r.git");
        let ssh = push("ssh://git@ssh.github.com:443/o/r.git").push_address();
        assert_eq!(ssh.unwrap(), "ssh://ssh.github.com:443/o/r.git");
        eprintln!("attempts: {}", 2 * tricks.len() + 6);
    }

    // R: T6
    #[test]
    fn remote_of_a_branch_is_found_and_its_password_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let git = directory.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads/topic")).unwrap();
        let config = "[remote \"origin\"]\n\turl = https://gitlab.example/o/r\n\
            [remote \"fork\"]\n\turl = https://u:p4ss@github.com/me/r.git\n\
            [branch \"topic/a\"]\n\tremote = fork\n";
        std::fs::write(git.join("config"), config).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/topic/a\n").unwrap();
        let commit = "0123456789abcdef0123456789abcdef01234567";
        std::fs::write(git.join("packed-refs"), format!("{commit} refs/heads/topic/a\n")).unwrap();
        let remote = Remote::find(directory.path(), &[]).unwrap();
        assert_eq!((remote.host.as_str(), remote.name.as_str()), (GITHUB, "me/r"));
        assert_eq!(remote.push_address().unwrap(), "https://github.com/me/r.git");
        assert_eq!(remote.head(), Some(("topic/a".to_owned(), commit.to_owned())));
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(Remote::find(directory.path(), &[]), None);
        let hosts = ["gitlab.example".to_owned()];
        assert_eq!(Remote::find(directory.path(), &hosts).unwrap().remote, "origin");
    }
}
