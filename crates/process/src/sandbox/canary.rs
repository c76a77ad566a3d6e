//! The canary: tries inside the sandbox what must not be possible there, and reports the results.
//!
//! A kernel feature that exists need not work: a container or a security module may refuse it. So each level is tried before it
//! is trusted.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::Level;

/// Tries everything and prints a line for each fact.
pub(super) fn probe(outside: &Path, hidden: &Path, protected: &Path, inside: &Path) {
    let yes = |done: bool| if done { "yes" } else { "no" }.to_owned();
    let space = |name: &str| {
        std::fs::read_link(format!("/proc/self/ns/{name}"))
            .map_or_else(|_| "unknown".to_owned(), |link| link.display().to_string())
    };
    let core = rustix::process::getrlimit(rustix::process::Resource::Core).current;
    let has_no_new_privileges = rustix::thread::no_new_privs().unwrap_or(false);
    let facts = [
        ("writes inside", yes(std::fs::write(inside, "x").is_ok())),
        ("writes outside", yes(std::fs::write(outside, "x").is_ok())),
        ("reads hidden", yes(std::fs::read(hidden).is_ok())),
        ("makes protected", yes(std::fs::create_dir(protected).is_ok())),
        ("talks locally", yes(UnixDatagram::unbound().is_ok())),
        ("talks", yes(UdpSocket::bind("127.0.0.1:0").is_ok())),
        ("is limited", yes(core == Some(0) && has_no_new_privileges)),
        ("processes", space("pid")),
        ("network", space("net")),
    ];
    let mut out = std::io::stdout().lock();
    for (name, value) in facts {
        // If the report cannot be written, the level is not trusted.
        writeln!(out, "{name}={value}").ok();
    }
}

/// Checks whether a report is good enough for a level; fails with the reason.
pub(super) fn judge(level: Level, report: &str) -> Result<(), String> {
    let facts: BTreeMap<&str, &str> =
        report.lines().filter_map(|line| line.split_once('=')).collect();
    let is = |name: &str, wanted: &str, why: &str| match facts.get(name) {
        Some(value) if *value == wanted => Ok(()),
        Some(_) => Err(why.to_owned()),
        None => Err("the canary did not answer".to_owned()),
    };
    is("writes inside", "yes", "the workspace cannot be written")?;
    if level >= Level::Limits {
        is("is limited", "yes", "limits are not in effect")?;
    }
    if level >= Level::Kernel {
        is("writes outside", "no", "files outside the workspace can be written")?;
        is("reads hidden", "no", "hidden files can be read")?;
        is("talks locally", "no", "local sockets can be created")?;
    }
    if level == Level::Kernel {
        is("talks", "no", "network sockets can be created")?;
    }
    if level == Level::Full {
        is("makes protected", "no", "protected files can be created")?;
        for name in ["processes", "network"] {
            let file = if name == "processes" { "pid" } else { "net" };
            let ours = std::fs::read_link(format!("/proc/self/ns/{file}"));
            let ours =
                ours.map_or_else(|_| "unknown".to_owned(), |link| link.display().to_string());
            if facts.get(name).is_none_or(|theirs| *theirs == ours || *theirs == "unknown") {
                return Err(format!("the {name} of the machine are visible"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "writes inside=yes\nwrites outside=no\nreads hidden=no\nmakes protected=no\ntalks locally=no\ntalks=yes\nis limited=yes\nprocesses=pid:[1]\nnetwork=net:[1]\n";

    #[test]
    fn one_wrong_fact_is_enough() {
        assert_eq!(judge(Level::Full, GOOD), Ok(()));
        assert!(judge(Level::Kernel, GOOD).unwrap_err().contains("network sockets"));
        assert_eq!(judge(Level::Kernel, &GOOD.replace("talks=yes", "talks=no")), Ok(()));
        assert_eq!(judge(Level::Limits, GOOD), Ok(()));
        for (good, bad) in [
            ("writes inside=yes", "writes inside=no"),
            ("writes outside=no", "writes outside=yes"),
            ("reads hidden=no", "reads hidden=yes"),
            ("makes protected=no", "makes protected=yes"),
            ("talks locally=no", "talks locally=yes"),
            ("is limited=yes", "is limited=no"),
            ("processes=pid:[1]", "processes=unknown"),
            ("network=net:[1]\n", ""),
        ] {
            assert!(judge(Level::Full, &GOOD.replace(good, bad)).is_err(), "{bad}");
        }
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
        assert!(judge(Level::Full, &GOOD.replace("net:[1]", &ours)).is_err());
        assert!(judge(Level::Limits, "").is_err());
    }
}
