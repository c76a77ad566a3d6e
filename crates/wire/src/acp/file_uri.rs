//! Converts `file://` URIs to paths and back (RFC 8089). Does not access the file system.

/// Returns the path of a `file://` URI of this machine.
///
/// # Errors
/// Describes what is wrong, without repeating the URI.
pub fn decode(uri: &str) -> Result<String, &'static str> {
    let rest = uri.strip_prefix("file://").ok_or("must be a file:// URI")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err("must be a file:// URI of this machine, with an absolute path");
    }
    if path.contains(['?', '#']) {
        return Err("must be a file:// URI without a query or a fragment");
    }
    let path = percent_decode(path).ok_or("has an invalid percent escape")?;
    if path.contains('\0') {
        return Err("contains a null character");
    }
    Ok(without_drive_slash(path))
}

/// On Windows, turns `/C:/x` into `C:/x`.
fn without_drive_slash(path: String) -> String {
    let bytes = path.as_bytes();
    let has_drive =
        bytes.get(1).is_some_and(u8::is_ascii_alphabetic) && bytes.get(2) == Some(&b':');
    if cfg!(windows) && has_drive { path[1..].to_owned() } else { path }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Returns the `file://` URI of an absolute path.
#[must_use]
pub fn encode(path: &str) -> String {
    let mut uri = String::from("file://");
    if !path.starts_with('/') {
        uri.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => uri.push(char::from(byte)),
            b'/' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'+' => uri.push(char::from(byte)),
            b'\\' if cfg!(windows) => uri.push('/'),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// Returns the last component of a URI or a path, for display.
#[must_use]
pub fn last_name(uri: &str) -> &str {
    let end = uri.trim_end_matches('/');
    end.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uris_are_decoded_by_the_rfc() {
        assert_eq!(decode("file:///path/to/repo"), Ok("/path/to/repo".to_owned()));
        assert_eq!(decode("file://localhost/a%20b/%C3%A9"), Ok("/a b/é".to_owned()));
        for bad in [
            "",
            "/w",
            "http://h/",
            "file:",
            "file://",
            "file://host/w",
            "file:///%",
            "file:///%2",
            "file:///%zz",
            "file:///%+1",
            "file:///%ff",
            "file:///a%00b",
            "file:///a?q",
            "file:///a#f",
        ] {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn path_survives_the_round_trip(path in "/[^\0\\\\]{0,40}") {
            prop_assert_eq!(decode(&encode(&path)), Ok(path));
        }

        #[test]
        fn arbitrary_uri_causes_no_panic(text in any::<String>()) {
            drop(decode(&format!("file:///{text}")));
        }
    }
}
