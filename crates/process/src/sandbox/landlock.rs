//! Restricts which files a command can access, with Landlock.
//!
//! Rules can only grant: all that is in a granted directory is granted, too. To hide a path, all its siblings are granted instead of
//! their directory.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::helper_spec::{Files, Sockets};

/// Devices that every program may write to.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// The first version of Landlock that covers every way to change a file.
const WHOLE: ABI = ABI::V3;

/// Restricts this process and all its children permanently.
///
/// # Errors
/// Fails if the kernel does not enforce what is needed.
pub(super) fn restrict(files: &Files, sockets: Option<Sockets>) -> Result<(), String> {
    let status =
        rules(files, sockets).and_then(RulesetCreated::restrict_self).map_err(|err| match err {
            // The crate's own message prints bits.
            RulesetError::HandleAccesses(_) => {
                "the kernel has no Landlock, or one older than that of Linux 6.2".to_owned()
            }
            err => format!("Landlock refuses: {err}"),
        })?;
    if status.ruleset == RulesetStatus::NotEnforced && files.is_only_layer {
        return Err("the kernel does not enforce Landlock".to_owned());
    }
    Ok(())
}

fn rules(files: &Files, sockets: Option<Sockets>) -> Result<RulesetCreated, RulesetError> {
    let needed =
        if files.is_only_layer { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    let mut rules = Ruleset::default()
        .set_compatibility(needed)
        .handle_access(AccessFs::from_all(WHOLE))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V6))?
        .scope(Scope::from_all(ABI::V6))?;
    if sockets == Some(Sockets::None) {
        rules = rules.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let mut created = rules.create()?;
    let read = AccessFs::from_read(ABI::V6);
    let all = AccessFs::from_all(ABI::V6);
    for path in neighbours(Path::new("/"), &files.hidden) {
        created = grant(created, &path, read)?;
    }
    for root in &files.writable {
        for path in neighbours(root, &files.hidden) {
            created = grant(created, &path, all)?;
        }
    }
    for device in DEVICES {
        created =
            grant(created, Path::new(device), read | AccessFs::WriteFile | AccessFs::IoctlDev)?;
    }
    Ok(created)
}

/// Grants rights on a path and all below it; a path that does not exist is skipped.
fn grant(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(handle) = PathFd::new(path) else {
        return Ok(rules);
    };
    let is_directory = path.is_dir();
    let rights = if is_directory { rights } else { rights & AccessFs::from_file(ABI::V6) };
    rules.add_rule(PathBeneath::new(handle, rights))
}

/// Returns paths that together cover all of `root` except the hidden paths.
fn neighbours(root: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    if hidden.iter().any(|hidden| root.starts_with(hidden)) {
        return Vec::new();
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(root)) {
        return vec![root.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    entries.flatten().flat_map(|entry| neighbours(&entry.path(), hidden)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_path_is_excluded_and_its_siblings_are_granted() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().to_owned();
        for directory in ["a/x", "a/y", "b"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("a/file"), "").unwrap();
        let found = |hidden: &[&str]| {
            let hidden: Vec<PathBuf> = hidden.iter().map(|path| root.join(path)).collect();
            let mut found: Vec<String> = neighbours(&root, &hidden)
                .iter()
                .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
                .collect();
            found.sort();
            found.join(" ")
        };
        assert_eq!(found(&[]), "");
        assert_eq!(neighbours(&root, &[]), std::slice::from_ref(&root));
        assert_eq!(found(&["b"]), "a");
        assert_eq!(found(&["a/x"]), "a/file a/y b");
        assert_eq!(found(&["a/file", "a/x", "a/y"]), "b");
        assert_eq!(neighbours(&root, std::slice::from_ref(&root)), Vec::<PathBuf>::new());
    }
}
