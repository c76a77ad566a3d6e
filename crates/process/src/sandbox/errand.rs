//! What a process of ours is to become, in a file that nobody else can read and that is read once.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::spawn::Spec;

/// Returns a file in this folder that was never used before.
pub(super) fn file(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("errand-{}-{count}", std::process::id()))
}

/// Writes what to become: folder, how it gets its input, output and environment, number of variables, variables, program,
/// arguments.
pub(super) fn write(path: &Path, spec: &Spec) -> std::io::Result<()> {
    let ways = [
        (spec.clear_env, CLEAR_ENV),
        (spec.merge_stderr, MERGE_STDERR),
        (spec.keep_input, KEEP_INPUT),
    ];
    let ways: String = ways.iter().filter(|(is_on, _)| *is_on).map(|(_, letter)| letter).collect();
    let mut parts =
        vec![spec.cwd.clone().into_os_string(), ways.into(), spec.env.len().to_string().into()];
    for (name, value) in &spec.env {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        parts.push(pair);
    }
    parts.push(spec.program.clone().into());
    parts.extend(spec.args.iter().cloned());
    let bytes = parts.join(OsStr::new("\0"));
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes.as_bytes())
}

const CLEAR_ENV: char = 'c';
const MERGE_STDERR: char = 'm';
const KEEP_INPUT: char = 'k';

/// Reads what to become, and removes the file: nobody is to start the same again later.
pub(super) fn read(path: &Path) -> Result<Spec, String> {
    let bytes = std::fs::read(path).map_err(|err| format!("the orders cannot be read: {err}"))?;
    std::fs::remove_file(path).map_err(|err| format!("the orders cannot be removed: {err}"))?;
    parse(&bytes).ok_or_else(|| "the orders are not complete".to_owned())
}

fn parse(bytes: &[u8]) -> Option<Spec> {
    let mut parts = bytes.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
    let cwd = parts.next()?;
    let ways = parts.next()?.into_string().ok()?;
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
    spec.clear_env = ways.contains(CLEAR_ENV);
    spec.merge_stderr = ways.contains(MERGE_STDERR);
    spec.keep_input = ways.contains(KEEP_INPUT);
    Some(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_once() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("process-errand-{}", std::process::id()));
        for ways in 0..8 {
            let mut spec = Spec::new("/bin/sh", "/w d")
                .args(["-c", "echo 'a\nb'", ""])
                .env("A", "1=2")
                .env("B", "");
            spec.clear_env = ways & 1 != 0;
            spec.merge_stderr = ways & 2 != 0;
            spec.keep_input = ways & 4 != 0;
            let path = file(&folder);
            write(&path, &spec).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            let back = read(&path).unwrap();
            assert_eq!(format!("{back:?}"), format!("{spec:?}"));
            assert!(read(&path).is_err());
        }
        assert!(parse(b"/w").is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
