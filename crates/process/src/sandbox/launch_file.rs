//! What the helper in a terminal is to start, in a file that only this user can read and that is read once.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::spawn::Spec;

/// Returns a path in this directory that was never used before.
pub(super) fn fresh_path(directory: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    directory.join(format!("launch-{}-{count}", std::process::id()))
}

/// Writes what to start, separated by NUL: directory, number of variables, variables, program, arguments.
pub(super) fn write(path: &Path, spec: &Spec) -> std::io::Result<()> {
    let mut parts = vec![spec.cwd.clone().into_os_string(), spec.env.len().to_string().into()];
    for (name, value) in &spec.env {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        parts.push(pair);
    }
    parts.push(spec.program.clone().into());
    parts.extend(spec.args.iter().cloned());
    let bytes = parts.join(OsStr::new("\0"));
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes.as_bytes())
}

/// Reads what to start, and removes the file, so that it cannot be started a second time.
pub(super) fn read(path: &Path) -> Result<Spec, String> {
    let bytes =
        std::fs::read(path).map_err(|err| format!("the launch file cannot be read: {err}"))?;
    std::fs::remove_file(path)
        .map_err(|err| format!("the launch file cannot be removed: {err}"))?;
    parse(&bytes).ok_or_else(|| "the launch file is incomplete".to_owned())
}

fn parse(bytes: &[u8]) -> Option<Spec> {
    let mut parts = bytes.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
    let cwd = parts.next()?;
    let count: usize = parts.next()?.to_str()?.parse().ok()?;
    let mut env = Vec::new();
    for _ in 0..count {
        let pair = parts.next()?.into_vec();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let value = OsString::from_vec(pair[at + 1..].to_vec());
        env.push((OsString::from_vec(pair[..at].to_vec()), value));
    }
    let mut spec = Spec::new(parts.next()?, cwd).args(parts);
    spec.env = env;
    // The environment of the terminal is the user's, with secrets in it.
    spec.clear_env = true;
    Some(spec)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn launch_file_is_private_and_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut spec = Spec::new("/bin/sh", "/w d")
            .args(["-c", "echo 'a\nb'", ""])
            .env("A", "1=2")
            .env("B", "");
        spec.clear_env = true;
        let path = fresh_path(&directory.path().join("new"));
        write(&path, &spec).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let back = read(&path).unwrap();
        assert_eq!(format!("{back:?}"), format!("{spec:?}"));
        assert!(read(&path).is_err());
        assert!(parse(b"/w").is_none());
    }
}
