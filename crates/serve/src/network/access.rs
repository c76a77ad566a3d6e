//! Who may use the server: tokens, and the checks of `Host` and `Origin`.
//!
//! The file of tokens has one line for each: a name, the SHA-256 of the token, and options. It is read again when it
//! changes, so tokens are added, rotated and revoked without a restart. A token itself is never stored or logged.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use sha2::{Digest, Sha256};

use crate::shared::is_tenant_name;

/// Who a request is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// Empty on a server without tokens.
    pub(super) tenant: Arc<str>,
    /// The directory that its sessions must be in.
    pub(super) root: Option<PathBuf>,
}

/// Checks requests.
pub(super) struct Access {
    /// `None` if everybody on this machine may use the server.
    tokens: Option<TokenFile>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

struct TokenFile {
    path: PathBuf,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    /// The time and size of the file that was read.
    stamp: Option<(SystemTime, u64)>,
    tokens: Vec<Token>,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    user: User,
    hash: [u8; 32],
    /// The last day on which it is valid, in days since 1970.
    last_day: Option<i64>,
}

impl Access {
    pub(super) fn new(
        tokens: Option<PathBuf>,
        hosts: Vec<String>,
        origins: Vec<String>,
    ) -> Result<Access, String> {
        let tokens = tokens.map(|path| TokenFile { path, loaded: Mutex::default() });
        if let Some(tokens) = &tokens {
            tokens.read()?;
        }
        let lower = |names: Vec<String>| names.iter().map(|name| name.to_lowercase()).collect();
        Ok(Access { tokens, hosts: lower(hosts), origins: lower(origins) })
    }

    /// Tells whether the request was meant for this server. A page that resolves its own name to our address is not: this
    /// is what stops DNS rebinding.
    pub(super) fn knows_host(&self, headers: &HeaderMap, authority: Option<&str>) -> bool {
        let named = match (single(headers, &HOST), authority) {
            (Some(host), Some(authority)) if host != authority => return false,
            (Some(host), _) => host,
            (None, Some(authority)) if !headers.contains_key(HOST) => authority,
            (None, _) => return false,
        };
        let name = without_port(named).to_lowercase();
        self.hosts.contains(&name)
    }

    /// Tells whether the request may come from where it says. Programs send no origin; pages of browsers do.
    pub(super) fn knows_origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(ORIGIN) {
            return true;
        }
        let origin = single(headers, &ORIGIN).map(str::to_lowercase);
        origin.is_some_and(|origin| self.origins.contains(&origin))
    }

    /// Returns who the request is from; `None` without a valid token.
    pub(super) fn user(&self, headers: &HeaderMap, now: SystemTime) -> Option<User> {
        let Some(tokens) = &self.tokens else {
            return Some(User { tenant: "".into(), root: None });
        };
        let value = single(headers, &AUTHORIZATION)?;
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let hash: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        tokens.find(&hash, day_of(now))
    }
}

/// Returns a header that must be there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

impl TokenFile {
    /// Reads the file if it has changed. One that cannot be read leaves no token valid.
    fn read(&self) -> Result<(), String> {
        let path = self.path.display();
        let facts = std::fs::metadata(&self.path).map_err(|err| format!("{path}: {err}"))?;
        let stamp = facts.modified().ok().map(|time| (time, facts.len()));
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && loaded.stamp == stamp {
            return Ok(());
        }
        let text = std::fs::read_to_string(&self.path).map_err(|err| format!("{path}: {err}"))?;
        loaded.tokens = parse(&text).map_err(|err| format!("{path}: {err}"))?;
        loaded.stamp = stamp;
        Ok(())
    }

    fn find(&self, hash: &[u8; 32], today: i64) -> Option<User> {
        if let Err(err) = self.read() {
            tracing::error!("cannot read the tokens: {err}");
            return None;
        }
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        // All are compared, and each completely, so that the time says nothing about them.
        for token in &loaded.tokens {
            let differs = token.hash.iter().zip(hash).fold(0, |all, (a, b)| all | (a ^ b));
            if differs == 0 && token.last_day.is_none_or(|last| today <= last) {
                found = Some(token.user.clone());
            }
        }
        found
    }
}

/// Reads the lines of a file of tokens.
fn parse(text: &str) -> Result<Vec<Token>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| parse_line(line).map_err(|why| format!("line {number}: {why}")))
        .collect()
}

fn parse_line(line: &str) -> Result<Token, String> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| is_tenant_name(name));
    let name = name.ok_or("the name may have letters, digits, `-`, `_` and `.`")?;
    let hash =
        words.next().and_then(hex).ok_or("the second word must be the SHA-256 of the token")?;
    let mut token = Token { user: User { tenant: name.into(), root: None }, hash, last_day: None };
    for word in words {
        match word.split_once('=') {
            Some(("expires", day)) => {
                token.last_day = Some(parse_day(day).ok_or("`expires` must be like 2030-12-31")?);
            }
            Some(("root", root)) => {
                let real = std::fs::canonicalize(root).map_err(|err| format!("{root}: {err}"))?;
                token.user.root = Some(real);
            }
            _ => return Err(format!("`{word}` is neither `expires=DAY` nor `root=FOLDER`")),
        }
    }
    Ok(token)
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Returns the line of the file for a token.
#[must_use]
pub fn token_line(name: &str, token: &str, root: Option<&str>, expires: Option<&str>) -> String {
    let hash = Sha256::digest(token.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let root = root.map(|root| format!(" root={root}")).unwrap_or_default();
    let expires = expires.map(|day| format!(" expires={day}")).unwrap_or_default();
    format!("{name} {hash}{root}{expires}\n")
}

/// Checks a line of a file of tokens.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_token_line(line: &str) -> Result<(), String> {
    parse_line(line.trim()).map(drop)
}

fn day_of(time: SystemTime) -> i64 {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(seconds / 86_400).unwrap_or(i64::MAX)
}

/// Returns the number of a day, such as 2030-12-31, counted from 1970.
fn parse_day(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let in_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + in_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn access(line: &str) -> (tempfile::TempDir, Access) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, line).unwrap();
        let hosts = vec!["localhost".to_owned(), "[::1]".to_owned()];
        (
            directory,
            Access::new(Some(path), hosts, vec!["https://good.example".to_owned()]).unwrap(),
        )
    }

    // R: S10
    #[test]
    fn day_of_expiry_is_the_last_valid_day() {
        let (_directory, access) = access(&token_line("ann", "secret", None, Some("1970-01-03")));
        let at = |day: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(day * 86_400);
        let headers = headers(&[("authorization", "Bearer secret")]);
        assert!(access.user(&headers, at(2)).is_some());
        assert!(access.user(&headers, at(3)).is_none());
    }

    // R: S10
    #[test]
    fn changed_file_is_read_again() {
        let (directory, access) = access(&token_line("ann", "old", None, None));
        let old = headers(&[("authorization", "Bearer old")]);
        let new = headers(&[("authorization", "bearer new-token")]);
        let now = SystemTime::now();
        assert_eq!(&*access.user(&old, now).unwrap().tenant, "ann");
        assert!(access.user(&new, now).is_none());
        let lines = token_line("ann", "new-token", None, None) + "# rotated\n";
        std::fs::write(directory.path().join("tokens"), lines).unwrap();
        assert!(access.user(&old, now).is_none());
        assert!(access.user(&new, now).is_some());
    }

    // R: S10
    #[test]
    fn requests_for_other_hosts_and_from_other_pages_are_unknown() {
        let (_directory, access) = access("");
        let host = |value: &str| access.knows_host(&headers(&[("host", value)]), None);
        assert!(host("localhost:4096") && host("LOCALHOST") && host("[::1]:80"));
        assert!(!host("evil.example") && !host("localhost.evil.example") && !host(""));
        let twice = headers(&[("host", "localhost"), ("host", "localhost")]);
        assert!(!access.knows_host(&twice, None));
        assert!(!access.knows_host(&headers(&[("host", "localhost")]), Some("evil.example")));
        let origin = |value: &str| access.knows_origin(&headers(&[("origin", value)]));
        assert!(origin("https://good.example"));
        assert!(!origin("https://evil.example") && !origin("null"));
        assert!(access.knows_origin(&headers(&[])));
    }

    #[test]
    fn days_are_counted_from_1970() {
        assert_eq!(parse_day("1970-01-01"), Some(0));
        assert_eq!(parse_day("2000-03-01"), Some(11_017));
        assert_eq!(parse_day("2026-11-18"), Some(20_775));
        assert_eq!(parse_day("2026-13-01"), None);
    }
}
