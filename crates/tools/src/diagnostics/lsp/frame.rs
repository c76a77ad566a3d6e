//! The messages of the language server protocol: a header with the length, then JSON.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// The longest message that is read. A server that sends a longer one is ended.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// The most bytes of a header.
const MAX_HEADER: u64 = 8 * 1024;

/// Encodes a message.
pub(super) fn encode(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Reads the next message; `None` at the end.
///
/// # Errors
/// Fails if it is no message of the protocol, or too long.
pub(super) async fn read(
    from: &mut BufReader<impl tokio::io::AsyncRead + Unpin>,
) -> io::Result<Option<Value>> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut length = None;
    loop {
        let mut line = Vec::new();
        if (&mut *from).take(MAX_HEADER).read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse::<usize>().ok();
            }
            Some(_) => {}
            None if line.is_empty() && length.is_some() => break,
            None if line.is_empty() => {}
            None => return Err(wrong("not a message of a language server")),
        }
    }
    let length = length.filter(|length| *length <= MAX_MESSAGE);
    let mut body = vec![0; length.ok_or_else(|| wrong("a message is too long"))?];
    from.read_exact(&mut body).await?;
    serde_json::from_slice(&body).map(Some).map_err(|_| wrong("a message is not JSON"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn messages(bytes: &[u8]) -> Vec<Result<Value, String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut from = BufReader::new(bytes);
            let mut all = Vec::new();
            loop {
                match read(&mut from).await {
                    Ok(Some(message)) => all.push(Ok(message)),
                    Ok(None) => return all,
                    Err(err) => {
                        all.push(Err(err.to_string()));
                        return all;
                    }
                }
            }
        })
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let message = json!({ "method": "é", "params": { "a": "\r\n" } });
        let mut bytes = encode(&message);
        bytes.extend_from_slice(b"Content-Type: x\r\ncontent-length: 2\r\n\r\n{}");
        assert_eq!(messages(&bytes), [Ok(message), Ok(json!({}))]);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            messages(&bytes);
            messages(&[b"Content-Length: 99999999999\r\n\r\n", bytes.as_slice()].concat());
        }
    }
}
