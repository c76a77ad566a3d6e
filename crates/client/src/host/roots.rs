//! Which files are served without a question: those below the session's directories, unless they usually hold secrets.

use std::path::{Path, PathBuf};

use wire::acp::schema;

/// The option that allows the file.
pub(super) const ALLOW: &str = "allow";

/// Names of files that usually hold secrets.
const SECRETS: [&str; 9] = [
    ".env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    "credentials",
    "credentials.json",
    "id_ed25519",
    "id_rsa",
    "secrets.json",
];

/// Endings of such files.
const SECRET_ENDINGS: [&str; 4] = [".pem", ".key", ".p12", ".pfx"];

/// Directories that hold them.
const SECRET_DIRECTORIES: [&str; 4] = [".ssh", ".aws", ".gnupg", ".kube"];

/// The directories of the session, without links.
#[derive(Debug)]
pub(super) struct Roots(Vec<PathBuf>);

impl Roots {
    pub(super) fn new(roots: Vec<PathBuf>) -> Roots {
        Roots(roots.iter().map(|root| resolve(root)).collect())
    }

    /// Returns why the user is asked about a path; `None` if it is served.
    pub(super) fn reason_to_ask(&self, path: &Path) -> Option<&'static str> {
        let real = resolve(path);
        if !self.0.iter().any(|root| real.starts_with(root)) {
            return Some("it is outside the project");
        }
        let is_secret = [path, &real].into_iter().any(is_secret);
        is_secret.then_some("such files usually hold secrets")
    }
}

fn is_secret(path: &Path) -> bool {
    let name =
        path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let in_directory = path.components().any(|part| {
        SECRET_DIRECTORIES
            .iter()
            .any(|directory| part.as_os_str().to_string_lossy().eq_ignore_ascii_case(directory))
    });
    in_directory
        || SECRETS.contains(&name.as_str())
        || name.starts_with(".env.")
        || SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Resolves the links of a path as far as it exists. The rest must not go up again.
fn resolve(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return rest.iter().rev().fold(real, |real, part| real.join(part));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name);
                existing = parent;
            }
            // Ends with `..` or is not absolute: below no root.
            _ => return PathBuf::new(),
        }
    }
}

/// Makes the question for a file.
pub(super) fn question(
    session: schema::SessionId,
    path: &Path,
    verb: &str,
    reason: &str,
) -> schema::RequestPermissionRequest {
    use schema::PermissionOptionKind::{AllowOnce, RejectOnce};
    let title = format!("{verb} {} ({reason})", path.display());
    let fields = schema::ToolCallUpdateFields::new().title(title);
    let call = schema::ToolCallUpdate::new("client-file", fields);
    let options = vec![
        schema::PermissionOption::new(ALLOW, "Allow once", AllowOnce),
        schema::PermissionOption::new("reject", "Reject", RejectOnce),
    ];
    schema::RequestPermissionRequest::new(session, call, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::temp_dir;

    // R: C1
    #[test]
    fn only_ordinary_files_below_the_roots_are_served_without_a_question() {
        let directory = temp_dir().unwrap();
        let root = directory.path().join("project");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(directory.path().join("outside"), "x").unwrap();
        let roots = Roots::new(vec![root.clone()]);
        let asks = |path: PathBuf| roots.reason_to_ask(&path).is_some();
        assert!(!asks(root.join("src/new/file.rs")));
        assert!(asks(directory.path().join("outside")));
        assert!(asks(root.join("../outside")));
        assert!(asks(root.join("new/../../outside")));
        assert!(asks(root.join(".env")) && asks(root.join("deploy.PEM")));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(directory.path().join("outside"), root.join("link"))
                .unwrap();
            assert!(asks(root.join("link")));
        }
    }
}
