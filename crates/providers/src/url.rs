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
    fn loopback_addresses_are_recognised() {
        for url in ["http://localhost:1/", "http://127.0.0.1/", "http://[::1]:9/"] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["http://10.0.0.1/", "http://localhost.example.com/"] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
