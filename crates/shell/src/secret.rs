//! Files that usually hold secrets. Reading one needs permission, and searches skip them.

use std::path::Path;

/// Names of such files.
const NAMES: [&str; 12] = [
    ".env",
    ".envrc",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".htpasswd",
    "credentials",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "kubeconfig",
];

/// Extensions of such files.
const EXTENSIONS: [&str; 6] = ["pem", "key", "p12", "pfx", "jks", "keystore"];

/// Extensions of `.env` files that are meant to be shared.
const SHARED: [&str; 5] = ["example", "sample", "template", "dist", "defaults"];

/// Tells by its name whether a file usually holds secrets.
#[must_use]
pub fn is_secret(path: &Path) -> bool {
    let Some(name) = path.file_name() else {
        return false;
    };
    let name = name.to_string_lossy().to_lowercase();
    if let Some(rest) = name.strip_prefix(".env.") {
        return !SHARED.contains(&rest);
    }
    NAMES.contains(&name.as_str())
        || name.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn secrets_are_recognised_by_name() {
        for name in [".env", ".env.local", ".ENV", "a/.env.production", "id_rsa", "x.pem", "a.KEY"]
        {
            assert!(is_secret(Path::new(name)), "{name}");
        }
        for name in [".env.example", "env.rs", "key.rs", "monkey", ".environment", "pem", "/"] {
            assert!(!is_secret(Path::new(name)), "{name}");
        }
    }
}
