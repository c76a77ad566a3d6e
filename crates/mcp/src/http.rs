//! The HTTP client of all remote servers, and its error messages.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::HeaderValue;

use crate::clean::clean_line;
use crate::error::Error;

const CONNECT: Duration = Duration::from_secs(10);

/// Returns the client for an address: one for the network, one for this machine.
pub(crate) fn client_for(url: &str) -> Result<Client, Error> {
    static NETWORK: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOOPBACK: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if is_plain_loopback(url) {
        // This machine needs no proxy and no certificates.
        LOOPBACK.get_or_init(|| make(Client::builder().no_proxy(), false))
    } else {
        NETWORK.get_or_init(|| make(Client::builder(), true))
    };
    made.clone().map_err(Error::Unreachable)
}

/// Sets the cryptography of TLS. If it is already set, that one is used.
pub(crate) fn choose_cryptography() {
    drop(rustls::crypto::CryptoProvider::install_default(rustls::crypto::ring::default_provider()));
}

/// Tells whether an address is of this machine, without TLS.
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
        choose_cryptography();
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
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        // A redirect would send the headers, and with them the keys, to another host.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("purlin/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|err| chain(&err))
}

/// Makes a header whose value is never printed.
pub(crate) fn secret(text: &str) -> Result<HeaderValue, Error> {
    let mut value: HeaderValue =
        text.parse().map_err(|_| Error::Start("a header cannot be sent".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the causes of an error in one line, the innermost last, without addresses: they may contain keys.
pub(crate) fn chain(err: &(dyn std::error::Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(err);
    while let Some(err) = next {
        next = err.source();
        let text = match err.downcast_ref::<reqwest::Error>() {
            Some(request) => {
                next = request.source();
                request.status().map_or_else(
                    || "it cannot be reached".to_owned(),
                    |status| format!("it answered with HTTP {status}"),
                )
            }
            None => err.to_string(),
        };
        if !words.iter().any(|word| word.contains(&text)) {
            words.push(text);
        }
    }
    let words = words.join(": ");
    let words: Vec<Cow<'_, str>> = words.split_whitespace().map(without_keys).collect();
    clean_line(&words.join(" "), 300)
}

/// Reduces an address to its scheme and host.
fn without_keys(word: &str) -> Cow<'_, str> {
    let Some((front, rest)) = word.split_once("://") else {
        return Cow::Borrowed(word);
    };
    let end = rest.find(|letter| !is_of_host(letter)).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let closes = if front.starts_with('(') { ")" } else { "" };
    Cow::Owned(format!("{front}://{host}{closes}"))
}

fn is_of_host(letter: char) -> bool {
    letter.is_alphanumeric() || "-._~%!$&'*+;=:@[]".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn error_contains_no_keys_of_an_address() {
        let told = |text: &str| chain(&std::io::Error::other(text.to_owned()));
        assert_eq!(
            told("failed for (https://me:canary@h:1/canary?k=canary) at http://[::1]:2/x."),
            "failed for (https://h:1) at http://[::1]:2"
        );
        assert_eq!(told("no address: a/b?c"), "no address: a/b?c");
    }
}
