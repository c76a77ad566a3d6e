//! Writes a Seatbelt profile: what a command may access on macOS, as text. Does no IO.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::profile::{Network, Profile};

/// The program that applies a profile.
pub const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Sockets of services that would run things outside the sandbox for a command.
const CONTAINERS: [&str; 3] =
    ["/private/var/run/docker.sock", "/var/run/docker.sock", "/private/var/run/containerd"];

/// Writes the profile. Later rules win, so denials come last.
#[must_use]
pub fn profile(profile: &Profile) -> String {
    let mut out = String::from(
        "(version 1)\n(deny default)\n(allow process-exec process-fork)\n(allow signal (target same-sandbox))\n\
         (allow sysctl-read)\n(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\"))\n\
         (allow ipc-posix-sem)\n(allow file-read*)\n\
         (allow file-write* (literal \"/dev/null\") (literal \"/dev/zero\"))\n",
    );
    for root in &profile.writable {
        spellings(root).iter().for_each(|path| rule(&mut out, "allow", "file-write*", path));
    }
    for path in &profile.protected {
        spellings(path).iter().for_each(|path| rule(&mut out, "deny", "file-write*", path));
    }
    // Including nested and new repositories, and case-insensitive disks, where `.GIT` is the same.
    let guards = |part: &str| profile.protected.iter().any(|path| path.ends_with(part));
    if guards(".git") {
        out.push_str("(deny file-write* (regex #\"/\\.[gG][iI][tT](/|$)\"))\n");
    } else if guards(".git/hooks") {
        out.push_str("(deny file-write* (regex #\"/\\.[gG][iI][tT]/([hH][oO][oO][kK][sS]|[cC][oO][nN][fF][iI][gG])(/|$)\"))\n");
    }
    for path in &profile.hidden {
        spellings(path)
            .iter()
            .for_each(|path| rule(&mut out, "deny", "file-read* file-write*", path));
    }
    for socket in CONTAINERS {
        rule(&mut out, "deny", "file-read* file-write*", Path::new(socket));
    }
    out.push_str(match profile.network {
        Network::Off => "(deny network*)\n",
        Network::On => {
            "(allow network-outbound (remote ip))\n(allow network-inbound (local ip \"localhost:*\"))\n(allow network-bind (local ip \"localhost:*\"))\n(allow mach-lookup (global-name \"com.apple.dnssd.service\"))\n(deny network* (remote unix-socket))\n(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))\n"
        }
    });
    out
}

fn rule(out: &mut String, verb: &str, operation: &str, path: &Path) {
    // Writing to a string cannot fail.
    writeln!(out, "({verb} {operation} (subpath {}))", quoted(path)).ok();
}

/// Resolves a path: rules see the target of links, and three root directories are links into `/private`.
fn spellings(path: &Path) -> Vec<PathBuf> {
    let private = ["/tmp", "/var", "/etc"].iter().any(|top| path.starts_with(top));
    let moved = private.then(|| Path::new("/private").join(path.strip_prefix("/").unwrap_or(path)));
    let mut all: Vec<PathBuf> = std::iter::once(path.to_owned()).chain(moved).collect();
    all.extend(path.canonicalize().ok().filter(|real| !all.contains(real)));
    all
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn example(network: Network) -> Profile {
        Profile {
            writable: vec!["/Users/u/work".into(), "/tmp/x \"y\"\\z".into()],
            protected: vec!["/Users/u/work/.git".into()],
            hidden: vec!["/Users/u/.ssh".into()],
            network,
            ..Profile::writing_to(Vec::new())
        }
    }

    #[test]
    fn profile_without_network() {
        expect![[r#"
            (version 1)
            (deny default)
            (allow process-exec process-fork)
            (allow signal (target same-sandbox))
            (allow sysctl-read)
            (allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
            (allow ipc-posix-sem)
            (allow file-read*)
            (allow file-write* (literal "/dev/null") (literal "/dev/zero"))
            (allow file-write* (subpath "/Users/u/work"))
            (allow file-write* (subpath "/tmp/x \"y\"\\z"))
            (allow file-write* (subpath "/private/tmp/x \"y\"\\z"))
            (deny file-write* (subpath "/Users/u/work/.git"))
            (deny file-write* (regex #"/\.[gG][iI][tT](/|$)"))
            (deny file-read* file-write* (subpath "/Users/u/.ssh"))
            (deny file-read* file-write* (subpath "/private/var/run/docker.sock"))
            (deny file-read* file-write* (subpath "/var/run/docker.sock"))
            (deny file-read* file-write* (subpath "/private/var/run/containerd"))
            (deny network*)
        "#]]
        .assert_eq(&profile(&example(Network::Off)));
    }

    #[test]
    fn profile_with_network() {
        let (off, on) = (profile(&example(Network::Off)), profile(&example(Network::On)));
        assert_eq!(
            on.lines().filter(|line| !off.contains(line)).collect::<Vec<_>>(),
            [
                "(allow network-outbound (remote ip))",
                "(allow network-inbound (local ip \"localhost:*\"))",
                "(allow network-bind (local ip \"localhost:*\"))",
                "(allow mach-lookup (global-name \"com.apple.dnssd.service\"))",
                "(deny network* (remote unix-socket))",
                "(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))",
            ]
        );
        assert!(!on.contains("(deny network*)"));
    }

    #[test]
    fn hooks_and_configuration_stay_protected_in_a_writable_repository() {
        let protected = vec!["/w/.git/hooks".into(), "/w/.git/config".into()];
        let text = profile(&Profile { protected, ..Profile::writing_to(vec!["/w".into()]) });
        let rule = r##"(deny file-write* (regex #"/\.[gG][iI][tT]/([hH][oO][oO][kK][sS]|[cC][oO][nN][fF][iI][gG])(/|$)"))"##;
        assert!(text.contains(rule), "{text}");
    }
}
