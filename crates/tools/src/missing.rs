//! What a file that does not exist may have been meant to be.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::permission::PermissionKey;
use engine::ports::{ToolCx, ToolError};
use engine::words::distance;
use ignore::overrides::Override;

use crate::error::Error;
use crate::files::Files;
use crate::scope::Target;
use crate::walk::{search, walk};

/// How many entries of the project are looked at.
const MAX_ENTRIES: usize = 5_000;

/// Makes the error of a file that does not exist. It names the nearest one in the project.
pub(crate) async fn not_found(files: &Files, cx: &ToolCx<'_>, target: &Target) -> ToolError {
    let name = target.name().to_owned();
    let Ok(top) = files.locate(".").await else { return Error::NotFound(name).into() };
    let denied = cx.turn.denied(&PermissionKey::Read);
    let wanted = name.clone();
    let work = move |flag: &AtomicBool| {
        let directory = top.real();
        let (walk, _) = walk(&directory, &top, denied, Override::empty());
        let mut names = Vec::new();
        for entry in walk.build().skip(1).flatten().take(MAX_ENTRIES) {
            if flag.load(Ordering::Relaxed) {
                break;
            }
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                let below = entry.path().strip_prefix(&directory).unwrap_or(entry.path());
                names.push(top.below(below).name().to_owned());
            }
        }
        Ok(nearest(&wanted, &names).map(str::to_owned))
    };
    match search(cx, work).await {
        Ok(Some(near)) => Error::Missing { name, near }.into(),
        Ok(None) => Error::NotFound(name).into(),
        Err(err) => err,
    }
}

/// Returns the path that is most like the wanted one: the same file name elsewhere, or nearly the same one.
fn nearest<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let file_name = |path: &str| {
        let name = Path::new(path).file_name().map(|name| name.to_string_lossy().to_lowercase());
        name.unwrap_or_default()
    };
    let wanted_name = file_name(wanted);
    let far = |path: &str| {
        let name = file_name(path);
        let allowed = (wanted_name.len() / 4).clamp(1, 4);
        let typos = distance(&wanted_name, &name);
        // `tests_calc.py` is like `test_calc.py`; `b.py` is not like `a.py`.
        (typos == 0 || wanted_name.len() > 4 && typos <= allowed).then_some(typos)
    };
    // The editor may not have a file that is on the disk.
    let others = names.iter().filter(|path| *path != wanted);
    let near = others.filter_map(|path| Some((far(path)?, distance(wanted, path), path)));
    near.min().map(|(_, _, path)| path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T4
    #[test]
    fn nearest_file_has_the_same_name_or_nearly_so() {
        let names = ["src/calc.py", "tests/test_calc.py", "README.md", "src/a.py", "old/calc.py"];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let near = |wanted: &str| nearest(wanted, &names);
        assert_eq!(near("calc.py"), Some("old/calc.py"));
        assert_eq!(near("/path/to/src/calc.py"), Some("src/calc.py"));
        assert_eq!(near("tests/tests_calc.py"), Some("tests/test_calc.py"));
        assert_eq!(near("readme.md"), Some("README.md"));
        assert_eq!(near("b.py"), None);
        assert_eq!(near("README.md"), None);
        assert_eq!(near("package.json"), None);
    }
}
