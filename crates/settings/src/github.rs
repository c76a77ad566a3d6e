//! `github` of a configuration: Enterprise hosts and the client id of the login.

use serde_json::Value;

/// How GitHub is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitHubConfig {
    /// The host of a GitHub Enterprise server, with the port if it has one.
    pub host: Option<String>,
    /// The address of the API, if it is not the usual one of the host.
    pub api_url: Option<String>,
    /// The client id of the OAuth app that `purlin auth login github` uses.
    pub client_id: Option<String>,
}

impl GitHubConfig {
    pub(crate) fn read(value: &Value) -> GitHubConfig {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
        GitHubConfig {
            host: text("host").map(str::to_ascii_lowercase),
            api_url: text("apiUrl").map(str::to_owned),
            client_id: text("clientId").map(str::to_owned),
        }
    }

    /// Returns the address of a host's API.
    #[must_use]
    pub fn api_of(&self, host: &str) -> String {
        match &self.api_url {
            Some(url) if self.host.as_deref() == Some(host) => url.clone(),
            _ if host == "github.com" => "https://api.github.com".to_owned(),
            _ if host.ends_with(".ghe.com") => format!("https://api.{host}"),
            _ => format!("https://{host}/api/v3"),
        }
    }

    /// Returns the name under which the token of a host is stored.
    #[must_use]
    pub fn entry_of(host: &str) -> String {
        format!("github:{host}")
    }

    /// Returns the variables that may hold the token of a host, the first that is set first. A variable names no host, so only the
    /// public GitHub and the host of the configuration get it: a project chooses the address of its repository.
    #[must_use]
    pub fn variables_of(&self, host: &str) -> &'static [&'static str] {
        match host {
            "github.com" => &["GH_TOKEN", "GITHUB_TOKEN"],
            host if self.host.as_deref() != Some(host) => &[],
            host if host.ends_with(".ghe.com") => &["GH_TOKEN", "GITHUB_TOKEN"],
            _ => &["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T6
    #[test]
    fn token_and_address_belong_to_one_host() {
        let value = serde_json::json!({ "host": "Git.example", "apiUrl": "http://127.0.0.1:1" });
        let config = GitHubConfig::read(&value);
        assert_eq!(config.api_of("github.com"), "https://api.github.com");
        assert_eq!(config.api_of("git.example"), "http://127.0.0.1:1");
        assert_eq!(GitHubConfig::default().api_of("git.example"), "https://git.example/api/v3");
        assert_eq!(config.variables_of("git.example")[0], "GH_ENTERPRISE_TOKEN");
        assert!(config.variables_of("evil.ghe.com").is_empty());
        assert!(config.variables_of("other.example").is_empty());
        assert!(GitHubConfig::default().variables_of("git.example").is_empty());
    }
}
