//! The search path of commands. A project must not be able to replace a program.

use std::path::{Path, PathBuf};

/// Returns the search path for commands in these directories. Entries inside the directories are omitted.
#[must_use]
pub fn search_path(search: &[PathBuf], directories: &[PathBuf]) -> String {
    let is_safe = |part: &&PathBuf| {
        let real = part.canonicalize();
        let is_inside =
            |part: &Path| directories.iter().any(|directory| part.starts_with(directory));
        part.is_absolute() && !is_inside(part) && !real.is_ok_and(|real| is_inside(&real))
    };
    let mut parts: Vec<String> = Vec::new();
    let system = SYSTEM_PATH.split(':').map(PathBuf::from).collect::<Vec<_>>();
    for part in search.iter().filter(is_safe).chain(&system) {
        let Some(part) = part.to_str().filter(|part| !part.contains(':')) else { continue };
        if !parts.iter().any(|known| known == part) {
            parts.push(part.to_owned());
        }
    }
    parts.join(":")
}

/// Where every system has its programs.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    // R: T7
    // Fault: T23
    #[test]
    fn project_cannot_add_itself_to_the_search_path() {
        let directories = [PathBuf::from("/w")];
        let search = ["/w/node_modules/.bin", "bin", ".", "", "/home/u/.cargo/bin", "/usr/bin"];
        let path = search_path(&search.map(PathBuf::from), &directories);
        let expected =
            "/home/u/.cargo/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin";
        assert_eq!(path, expected);
    }
}
