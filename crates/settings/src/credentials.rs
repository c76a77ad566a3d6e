//! The user's credentials: API keys and MCP logins, in one file of the data directory that only the user can read.

pub mod opencode;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use engine::words::Secret;
use serde_json::{Map, Value, json};

use crate::Directories;
use crate::files::{self, Access};

/// The file of the user's credentials.
#[derive(Debug, Clone)]
pub struct Credentials {
    file: PathBuf,
}

impl Credentials {
    /// Makes the credentials in the user's data directory. Reads nothing yet.
    ///
    /// # Errors
    /// Fails without a data directory.
    pub fn new(directories: &Directories) -> anyhow::Result<Credentials> {
        let directory = directories.data.as_ref().context("no home directory to store keys in")?;
        Ok(Credentials { file: directory.join("auth.json") })
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the API keys by provider.
    ///
    /// # Errors
    /// Says why the file cannot be read.
    pub fn keys(&self) -> anyhow::Result<BTreeMap<String, Secret>> {
        let key = |entry: &Value| Some(Secret::new(entry.get("key")?.as_str()?));
        let entries = self.entries()?;
        Ok(entries.iter().filter_map(|(id, entry)| Some((id.clone(), key(entry)?))).collect())
    }

    /// Stores the API key of a provider.
    ///
    /// # Errors
    /// Says why the file cannot be read or written.
    pub fn set_key(&self, provider: &str, key: &Secret) -> anyhow::Result<()> {
        let mut entries = self.entries()?;
        entries.insert(provider.to_owned(), json!({ "type": "api", "key": key.reveal() }));
        self.save(entries)
    }

    /// Removes the API key of a provider. Tells whether there was one.
    ///
    /// # Errors
    /// Says why the file cannot be read or written.
    pub fn remove_key(&self, provider: &str) -> anyhow::Result<bool> {
        let mut entries = self.entries()?;
        if entries.get(provider).is_none_or(|entry| entry.get("key").is_none()) {
            return Ok(false);
        }
        entries.remove(provider);
        self.save(entries)?;
        Ok(true)
    }

    /// Returns the login to an MCP server, as JSON.
    #[must_use]
    pub fn mcp_login(&self, server: &str) -> Option<String> {
        let entries = self.entries().ok()?;
        let login = entries.get(&mcp_entry(server))?.get("login")?;
        Some(login.to_string())
    }

    /// Stores the login to an MCP server, or removes it.
    ///
    /// # Errors
    /// Says why the file cannot be read or written.
    pub fn set_mcp_login(&self, server: &str, login: Option<&str>) -> anyhow::Result<()> {
        let mut entries = self.entries()?;
        match login {
            Some(login) => {
                let login: Value = serde_json::from_str(login)?;
                entries.insert(mcp_entry(server), json!({ "type": "mcp", "login": login }));
            }
            None => drop(entries.remove(&mcp_entry(server))),
        }
        self.save(entries)
    }

    fn entries(&self) -> anyhow::Result<Map<String, Value>> {
        let text = match std::fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Map::new()),
            Err(err) => return Err(err).with_context(|| self.file.display().to_string()),
        };
        // The parser's own message may repeat what it read, so it is omitted.
        let Ok(Value::Object(entries)) = serde_json::from_str(&text) else {
            anyhow::bail!("{} is damaged", self.file.display());
        };
        Ok(entries)
    }

    fn save(&self, entries: Map<String, Value>) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&Value::Object(entries))?;
        files::replace(&self.file, text.as_bytes(), Access::Private)
    }
}

/// Returns the API keys that are stored. A file that cannot be read is logged and treated as empty.
#[must_use]
pub fn load_keys(directories: &Directories) -> BTreeMap<String, Secret> {
    let keys = Credentials::new(directories).and_then(|credentials| credentials.keys());
    keys.unwrap_or_else(|err| {
        tracing::warn!("cannot use the stored keys: {err:#}");
        BTreeMap::new()
    })
}

fn mcp_entry(server: &str) -> String {
    format!("mcp:{server}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: I4
    #[test]
    fn keys_are_readable_by_the_user_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        let directories = Directories { data: Some(directory.clone()), ..Directories::default() };
        let credentials = Credentials::new(&directories).unwrap();
        assert!(credentials.keys().unwrap().is_empty());
        let key = Secret::new("sk-1");
        credentials.set_mcp_login("far", Some(r#"{"token":"t"}"#)).unwrap();
        credentials.set_key("anthropic", &key).unwrap();
        credentials.set_key("anthropic", &key).unwrap();
        let keys = BTreeMap::from([("anthropic".to_owned(), key)]);
        assert_eq!(credentials.keys().unwrap(), keys);
        assert_eq!(credentials.mcp_login("far").as_deref(), Some(r#"{"token":"t"}"#));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(credentials.file()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert!(credentials.remove_key("anthropic").unwrap());
        assert!(!credentials.remove_key("anthropic").unwrap());
        std::fs::write(credentials.file(), "{ sk-canary").unwrap();
        assert!(!format!("{:#}", credentials.keys().unwrap_err()).contains("canary"));
    }
}
