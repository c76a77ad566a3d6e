//! The profile language of macOS: what a command may touch, as text. Pure; only macOS uses it.

use std::fmt::Write;
use std::path::Path;

use super::profile::{Network, Profile};

/// The program that applies a profile.
pub const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Sockets that lead to somebody who would do the command's work outside.
const CONTAINERS: [&str; 3] =
    ["/private/var/run/docker.sock", "/var/run/docker.sock", "/private/var/run/containerd"];

/// Writes the profile. Later rules win, so what is taken away comes last.
#[must_use]
pub fn profile(profile: &Profile) -> String {
    let mut out = String::from(
        "(version 1)\n(deny default)\n(allow process-exec process-fork)\n(allow signal (target same-sandbox))\n\
         (allow sysctl-read)\n(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\"))\n\
         (allow ipc-posix-sem)\n(allow file-read*)\n(allow file-ioctl (literal \"/dev/tty\"))\n\
         (allow file-write* (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\"))\n",
    );
    let mut rule = |verb: &str, operation: &str, path: &Path| {
        // Writing to a string cannot fail.
        writeln!(out, "({verb} {operation} (subpath {}))", quoted(path)).ok();
    };
    for root in &profile.writable {
        spellings(root).iter().for_each(|path| rule("allow", "file-write*", path));
    }
    for path in &profile.protected {
        spellings(path).iter().for_each(|path| rule("deny", "file-write*", path));
    }
    for path in &profile.hidden {
        spellings(path).iter().for_each(|path| rule("deny", "file-read* file-write*", path));
    }
    for socket in CONTAINERS {
        rule("deny", "file-read* file-write*", Path::new(socket));
    }
    out.push_str(match profile.network {
        Network::Off => "(deny network*)\n",
        Network::On => {
            "(allow network-outbound (remote ip))\n(allow network-inbound (local ip \"localhost:*\"))\n(allow network-bind (local ip \"localhost:*\"))\n(allow mach-lookup (global-name \"com.apple.dnssd.service\"))\n(deny network* (remote unix-socket))\n"
        }
    });
    out
}

/// Three folders of the root are links into `/private`, and rules see the real path.
fn spellings(path: &Path) -> Vec<std::path::PathBuf> {
    let private = ["/tmp", "/var", "/etc"].iter().any(|top| path.starts_with(top));
    let real = private.then(|| Path::new("/private").join(path.strip_prefix("/").unwrap_or(path)));
    std::iter::once(path.to_owned()).chain(real).collect()
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
    fn a_profile_without_network() {
        expect![[r#"
            (version 1)
            (deny default)
            (allow process-exec process-fork)
            (allow signal (target same-sandbox))
            (allow sysctl-read)
            (allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
            (allow ipc-posix-sem)
            (allow file-read*)
            (allow file-ioctl (literal "/dev/tty"))
            (allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))
            (allow file-write* (subpath "/Users/u/work"))
            (allow file-write* (subpath "/tmp/x \"y\"\\z"))
            (allow file-write* (subpath "/private/tmp/x \"y\"\\z"))
            (deny file-write* (subpath "/Users/u/work/.git"))
            (deny file-read* file-write* (subpath "/Users/u/.ssh"))
            (deny file-read* file-write* (subpath "/private/var/run/docker.sock"))
            (deny file-read* file-write* (subpath "/var/run/docker.sock"))
            (deny file-read* file-write* (subpath "/private/var/run/containerd"))
            (deny network*)
        "#]]
        .assert_eq(&profile(&example(Network::Off)));
    }

    #[test]
    fn a_profile_with_network() {
        let (off, on) = (profile(&example(Network::Off)), profile(&example(Network::On)));
        assert_eq!(
            on.lines().filter(|line| !off.contains(line)).collect::<Vec<_>>(),
            [
                "(allow network-outbound (remote ip))",
                "(allow network-inbound (local ip \"localhost:*\"))",
                "(allow network-bind (local ip \"localhost:*\"))",
                "(allow mach-lookup (global-name \"com.apple.dnssd.service\"))",
                "(deny network* (remote unix-socket))",
            ]
        );
        assert!(!on.contains("(deny network*)"));
    }
}
