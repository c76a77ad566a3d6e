//! Amazon Bedrock from the server's side: frames of the event stream, and the check of a request's signature.
//!
//! Shares no code with `providers`, like the formats.

use sha2::{Digest, Sha256};

use crate::server::ReceivedRequest;

/// The access key that signatures are checked with.
pub const ACCESS_KEY: &str = "AKIAFAKEMODEL";
/// Its secret.
pub const SECRET_KEY: &str = "fake+secret/canary0123456789";

/// Converts lines `NAME {…}` to frames. A name with an exclamation mark in front is an exception.
pub(crate) fn frames(lines: &str) -> Vec<u8> {
    let lines = lines.lines().filter_map(|line| line.split_once(' '));
    lines.flat_map(|(name, payload)| frame(name, payload)).collect()
}

fn frame(name: &str, payload: &str) -> Vec<u8> {
    let (message, key, name) = match name.strip_prefix('!') {
        Some(kind) => ("exception", ":exception-type", kind),
        None => ("event", ":event-type", name),
    };
    let mut headers = Vec::new();
    for (name, value) in
        [(key, name), (":content-type", "application/json"), (":message-type", message)]
    {
        headers.push(name.len() as u8);
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&(value.len() as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let total = 12 + headers.len() + payload.len() + 4;
    let mut frame = Vec::with_capacity(total);
    frame.extend_from_slice(&(total as u32).to_be_bytes());
    frame.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&headers);
    frame.extend_from_slice(payload.as_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame
}

/// Checks the signature of a request: the one in its headers must be the one that follows from all it covers. A bearer
/// token is accepted as it is.
///
/// # Errors
/// Says what is wrong, in Amazon's words where there are some.
pub(crate) fn check_signature(request: &ReceivedRequest) -> Result<(), String> {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    let authorization = header("authorization").ok_or("Missing Authentication Token")?;
    if authorization.starts_with("Bearer ") {
        return Ok(());
    }
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or("not a signature")?;
    let part = |name: &str| {
        let parts = rest.split(", ").filter_map(|part| part.split_once('='));
        parts.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    };
    let credential = part("Credential").ok_or("no credential")?;
    let (key, scope) = credential.split_once('/').ok_or("no scope")?;
    if key != ACCESS_KEY {
        return Err("The security token included in the request is invalid.".to_owned());
    }
    let names = part("SignedHeaders").ok_or("no signed headers")?;
    if !names.split(';').any(|name| name == "host") {
        return Err("the host must be signed".to_owned());
    }
    if header("x-amz-security-token").is_some() && !names.contains("x-amz-security-token") {
        return Err("the session token must be signed".to_owned());
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let mut text = format!("POST\n{}\n{query}\n", encoded(path));
    for name in names.split(';') {
        let value = header(name).ok_or_else(|| format!("the signed header {name} is missing"))?;
        text += &format!("{name}:{value}\n");
    }
    text += &format!("\n{names}\n{}", hex(&Sha256::digest(request.body.as_bytes())));
    let time = header("x-amz-date").ok_or("no date")?;
    let text =
        format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(text.as_bytes())));
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for step in scope.split('/') {
        key = hmac(&key, step.as_bytes());
    }
    let expected = hex(&hmac(&key, text.as_bytes()));
    if !scope.contains("/bedrock/") || part("Signature") != Some(expected.as_str()) {
        return Err(
            "The request signature we calculated does not match the signature you provided. \
                    Check your AWS Secret Access Key and signing method."
                .to_owned(),
        );
    }
    Ok(())
}

/// Encodes a path once more: the percent signs of the first time are encoded, too.
fn encoded(path: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.~/".contains(letter);
    path.chars()
        .map(|letter| match letter {
            letter if is_plain(letter) => letter.to_string(),
            letter => format!("%{:02X}", letter as u32),
        })
        .collect()
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |byte: u8| block.map(|known| known ^ byte).to_vec();
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
