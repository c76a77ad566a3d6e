//! The HTTP clients that all remote servers share, and how their errors are described.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::HeaderValue;

use crate::clean::clean_line;
use crate::error::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the client for a URL: one for the network, one for the loopback interface.
pub(crate) fn client_for(url: &str) -> Result<Client, Error> {
    static NETWORK: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOOPBACK: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if is_plain_loopback(url) {
        // Loopback needs no proxy and no certificates.
        LOOPBACK.get_or_init(|| make(Client::builder().no_proxy(), false))
    } else {
        NETWORK.get_or_init(|| make(Client::builder(), true))
    };
    made.clone().map_err(Error::Unreachable)
}

/// Installs the cryptography provider for TLS. If one is installed already, that one is used.
pub(crate) fn install_crypto_provider() {
    drop(rustls::crypto::CryptoProvider::install_default(rustls::crypto::ring::default_provider()));
}

/// Returns whether a URL is a loopback address without TLS.
pub(crate) fn is_plain_loopback(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_local =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    url.scheme() == "http" && is_local
}

fn make(builder: reqwest::ClientBuilder, has_tls: bool) -> Result<Client, String> {
    let builder = if has_tls {
        install_crypto_provider();
        builder
    } else {
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|err| err.to_string())?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder.tls_backend_preconfigured(config)
    };
    builder
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        // A redirect would send the headers, and with them the keys, to another host.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("purlin/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|err| chain(&err))
}

/// Creates a header whose value is never printed.
pub(crate) fn secret(text: &str) -> Result<HeaderValue, Error> {
    let mut value: HeaderValue =
        text.parse().map_err(|_| Error::Start("a header value is invalid".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns an error and its causes in one line, innermost last. URLs are reduced to their hosts: they may contain keys.
pub(crate) fn chain(err: &(dyn std::error::Error + 'static)) -> String {
    let mut causes: Vec<String> = Vec::new();
    let mut next = Some(err);
    while let Some(err) = next {
        next = err.source();
        let text = match err.downcast_ref::<reqwest::Error>() {
            Some(request) => {
                next = request.source();
                request.status().map_or_else(
                    || "request failed".to_owned(),
                    |status| format!("it returned HTTP {status}"),
                )
            }
            None => err.to_string(),
        };
        if !causes.iter().any(|cause| cause.contains(&text)) {
            causes.push(text);
        }
    }
    let causes = causes.join(": ");
    let words: Vec<Cow<'_, str>> = causes.split_whitespace().map(host_only).collect();
    clean_line(&words.join(" "), 300)
}

/// Reduces a URL to its scheme and host.
fn host_only(word: &str) -> Cow<'_, str> {
    let Some((front, rest)) = word.split_once("://") else {
        return Cow::Borrowed(word);
    };
    let end = rest.find(|character| !is_host_character(character)).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let closing = if front.starts_with('(') { ")" } else { "" };
    Cow::Owned(format!("{front}://{host}{closing}"))
}

fn is_host_character(character: char) -> bool {
    character.is_alphanumeric() || "-._~%!$&'*+;=:@[]".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn error_text_contains_no_keys_of_urls() {
        let described = |text: &str| chain(&std::io::Error::other(text.to_owned()));
        assert_eq!(
            described("failed for (https://me:canary@h:1/canary?k=canary) at http://[::1]:2/x."),
            "failed for (https://h:1) at http://[::1]:2"
        );
        assert_eq!(described("no address: a/b?c"), "no address: a/b?c");
    }
}
