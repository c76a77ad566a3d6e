//! Base URLs: what may be shown of them, and whether they are on this machine.

use reqwest::Url;

/// Returns a base URL without the parts that may be secret.
pub(crate) fn displayable_url(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url.to_string())
}

/// Returns whether a URL is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

/// Returns whether a base URL is of a server on this machine or in its network. Those do without TLS.
pub(crate) fn is_nearby(url: &str) -> bool {
    let Some(url) = Url::parse(url).ok().filter(|url| url.scheme() == "http") else { return false };
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    match address {
        Ok(std::net::IpAddr::V4(address)) => {
            address.is_loopback() || address.is_private() || address.is_link_local()
        }
        Ok(std::net::IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => !host.contains('.') || host.ends_with(".local"),
    }
}

/// Returns whether a base URL is OpenAI's own, at OpenAI or Azure.
pub(crate) fn is_openai(url: &str) -> bool {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let ours = ["openai.com", "openai.azure.com", "cognitiveservices.azure.com"];
        ours.iter().any(|domain| host == *domain || host.ends_with(&format!(".{domain}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn url_is_shown_without_its_secrets() {
        let place =
            displayable_url("https://me:sk-canary@host:8/v1?key=sk-canary#sk-canary").unwrap();
        assert_eq!(place, "https://host:8/v1");
        assert_eq!(displayable_url("host"), None);
    }

    #[test]
    fn servers_in_the_own_network_are_nearby() {
        for url in [
            "http://localhost:1/v1",
            "http://192.168.1.5:8000/v1",
            "http://gpu:1/v1",
            "http://[::1]/v1",
            "http://box.local/v1",
        ] {
            assert!(is_nearby(url), "{url}");
        }
        for url in ["https://api.openai.com/v1", "http://8.8.8.8/v1", "", "gpu"] {
            assert!(!is_nearby(url), "{url}");
        }
        assert!(
            is_openai("https://api.openai.com/v1")
                && is_openai("https://x.openai.azure.com/openai")
        );
        assert!(!is_openai("https://notopenai.com/v1"));
    }

    #[test]
    fn loopback_addresses_are_recognised() {
        for url in ["http://localhost:1/", "http://127.0.0.1/", "http://[::1]:9/"] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["http://10.0.0.1/", "http://localhost.example.com/"] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
