//! Files that usually hold secrets. Reading one needs permission, and searches skip them.

use std::path::Path;

/// Names of such files.
const NAMES: [&str; 28] = [
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    ".npmrc",
    ".pypirc",
    ".dockercfg",
    ".dockerconfigjson",
    ".vault-token",
    ".vault_pass",
    ".s3cfg",
    ".boto",
    ".authinfo",
    ".databrickscfg",
    "auth.json",
    "credentials",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "kubeconfig",
    "wallet.dat",
];

/// Files that hold secrets only in these directories.
const PLACED: [(&str, &str); 4] = [
    (".docker", "config.json"),
    (".kube", "config"),
    (".aws", "config"),
    (".cargo", "credentials.toml"),
];

/// Extensions of such files.
const EXTENSIONS: [&str; 14] = [
    "pem", "key", "p8", "p12", "pfx", "ppk", "jks", "jceks", "keystore", "kdbx", "ovpn", "tfvars",
    "tfstate", "token",
];

/// How names of such files begin that have one of the extensions of data.
const STEMS: [&str; 8] = [
    "secret",
    "secrets",
    "credential",
    "credentials",
    "password",
    "passwords",
    "service-account",
    "client_secret",
];
/// How names of such files begin that have the extension of plain text, besides these.
const TEXT_STEMS: [&str; 12] = [
    "token",
    "tokens",
    "api_key",
    "api-key",
    "apikey",
    "api_token",
    "access_token",
    "access-token",
    "auth_token",
    "passwd",
    "pass",
    "private_key",
];
const DATA: [&str; 9] = ["json", "yaml", "yml", "toml", "ini", "xml", "properties", "conf", "csv"];

/// What marks a file with an example of secrets, which is meant to be shared.
const SHARED: [&str; 5] = ["example", "sample", "template", "dist", "defaults"];

/// Tells by its name whether a file usually holds secrets.
#[must_use]
pub fn is_secret(path: &Path) -> bool {
    let Some(name) = path.file_name() else {
        return false;
    };
    let name = name.to_string_lossy().to_lowercase();
    let is_shared = |part: &str| part.split(['.', '-', '_']).any(|part| SHARED.contains(&part));
    if let Some(rest) = name.strip_prefix(".env.") {
        return !is_shared(rest);
    }
    if NAMES.contains(&name.as_str()) {
        return true;
    }
    let directory = path.parent().and_then(Path::file_name);
    let is_in = |around: &str| directory.is_some_and(|at| at.eq_ignore_ascii_case(around));
    if PLACED.iter().any(|(around, file)| name == *file && is_in(around)) {
        return true;
    }
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    match extension {
        "env" => !is_shared(stem),
        extension if EXTENSIONS.contains(&extension) => !is_shared(stem),
        "txt" => STEMS.contains(&stem) || TEXT_STEMS.contains(&stem),
        extension if DATA.contains(&extension) => STEMS.contains(&stem),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T2
    #[test]
    fn secrets_are_recognised_by_name() {
        let secret = "
            .env .env.local .ENV a/.env.production prod.env id_rsa x.pem a.KEY .npmrc b/.pypirc .docker/config.json .kube/config
            .aws/config auth.json credentials.json Secrets.yaml passwords.csv service-account.json terraform.tfvars
            terraform.tfstate .vault-token id_ed25519_sk x.ppk x.kdbx token.txt a/Passwords.txt api_key.txt";
        for name in secret.split_whitespace() {
            assert!(is_secret(Path::new(name)), "{name}");
        }
        let plain = "
            .env.example .env.example.local example.env env.rs key.rs monkey .environment pem / config.json .git/config
            secrets.rs credentials.py secret_test.json tokens.json token.rs notes.txt requirements.txt auth.ts package.json example.tfvars docs/secrets.md";
        for name in plain.split_whitespace() {
            assert!(!is_secret(Path::new(name)), "{name}");
        }
    }
}
