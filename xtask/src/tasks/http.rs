//! As much of HTTP/1.1 as a proxy on loopback needs: heads, and bodies with their framing.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

const MAX_HEAD: u64 = 64 * 1024;
/// The longest body of a request, and the longest chunk of an answer.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Where an OpenAI-compatible server is: `http://HOST:PORT/PATH`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) authority: String,
    /// The path without a slash at its end, such as `/v1`.
    pub(crate) path: String,
}

impl Endpoint {
    /// Reads a URL.
    pub(crate) fn parse(url: &str) -> Result<Endpoint> {
        let rest = url.strip_prefix("http://").with_context(|| {
            format!("`{url}` is no http:// URL; for https, put a local gateway in front")
        })?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = if authority.contains(':') { "" } else { ":80" };
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Endpoint { authority: format!("{authority}{port}"), path })
    }

    /// Returns the same path at another address.
    pub(crate) fn at(&self, authority: &str) -> String {
        format!("http://{authority}{}", self.path)
    }

    /// Returns the body of the answer to a GET request for a path below the endpoint.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.authority)
            .with_context(|| format!("no server answers at {}", self.authority))?;
        let Endpoint { authority, path: base } = self;
        let head =
            format!("GET {base}{path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut reader = std::io::BufReader::new(stream);
        let head = Head::read(&mut reader)?.context("the server closed the connection")?;
        let mut body = Vec::new();
        read_body(&mut reader, head.framing(Framing::UntilEnd), |_, data| {
            body.extend_from_slice(data);
            Ok(())
        })?;
        Ok(String::from_utf8(body)?)
    }
}

/// How the end of a body is marked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilEnd,
}

/// The first line and the headers of a message.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) first_line: String,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head, or `None` if the connection was closed before it.
    pub(crate) fn read(reader: &mut impl BufRead) -> Result<Option<Head>> {
        let mut reader = reader.take(MAX_HEAD);
        let mut head = Head::default();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                anyhow::ensure!(head.first_line.is_empty(), "a head without an end");
                return Ok(None);
            }
            let line = line.trim_end();
            if let Some((name, value)) =
                line.split_once(':').filter(|_| !head.first_line.is_empty())
            {
                head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            } else if head.first_line.is_empty() {
                line.clone_into(&mut head.first_line);
            } else if line.is_empty() {
                return Ok(Some(head));
            }
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns how the body ends; `otherwise` if no header says it.
    pub(crate) fn framing(&self, otherwise: Framing) -> Framing {
        let is_chunked = |value: &str| value.to_ascii_lowercase().contains("chunked");
        if self.header("transfer-encoding").is_some_and(is_chunked) {
            return Framing::Chunked;
        }
        let length = self.header("content-length").and_then(|length| length.parse().ok());
        length.map_or(otherwise, Framing::Length)
    }

    /// Returns the second word of the first line: the path of a request, the status of an answer.
    pub(crate) fn second_word(&self) -> &str {
        self.first_line.split(' ').nth(1).unwrap_or_default()
    }

    /// Writes the head without the headers in `dropped`, with those in `added`.
    pub(crate) fn write(
        &self,
        out: &mut impl Write,
        dropped: &[&str],
        added: &[(&str, &str)],
    ) -> Result<()> {
        let mut text = format!("{}\r\n", self.first_line);
        let kept = self.headers.iter().filter(|(name, _)| !dropped.contains(&name.as_str()));
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in kept.chain(added.iter().copied()) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        Ok(out.write_all(text.as_bytes())?)
    }
}

/// Reads a body to its end. `each` gets the bytes as they came, and the content in them.
pub(crate) fn read_body(
    reader: &mut impl BufRead,
    framing: Framing,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut left = match framing {
        Framing::Chunked => return read_chunks(reader, each),
        Framing::Length(length) => length,
        Framing::UntilEnd => usize::MAX,
    };
    while left > 0 {
        let bytes = reader.fill_buf()?;
        let count = bytes.len().min(left);
        if count == 0 {
            anyhow::ensure!(framing == Framing::UntilEnd, "a body without an end");
            return Ok(());
        }
        each(&bytes[..count], &bytes[..count])?;
        reader.consume(count);
        left -= count;
    }
    Ok(())
}

fn read_chunks(
    reader: &mut impl BufRead,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    loop {
        let mut raw = Vec::new();
        reader.by_ref().take(MAX_HEAD).read_until(b'\n', &mut raw)?;
        let size = String::from_utf8_lossy(&raw);
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).context("a chunk without its size")?;
        anyhow::ensure!(size <= MAX_BODY, "a chunk of {size} bytes");
        let start = raw.len();
        raw.resize(start + size + 2, 0);
        reader.read_exact(&mut raw[start..])?;
        each(&raw, &raw[start..start + size])?;
        if size == 0 {
            return Ok(());
        }
    }
}

/// Reads the whole body of a request.
pub(crate) fn request_body(reader: &mut impl BufRead, head: &Head) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    read_body(reader, head.framing(Framing::Length(0)), |_, data| {
        body.extend_from_slice(data);
        anyhow::ensure!(body.len() <= MAX_BODY, "a request over {MAX_BODY} bytes");
        Ok(())
    })?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_has_an_authority_and_a_path() {
        let endpoint = Endpoint::parse("http://localhost:9/v1/").unwrap();
        assert_eq!(endpoint.authority, "localhost:9");
        assert_eq!(endpoint.at("127.0.0.1:1"), "http://127.0.0.1:1/v1");
        let bare = Endpoint::parse("http://host").unwrap();
        assert_eq!((bare.authority.as_str(), bare.path.as_str()), ("host:80", ""));
        assert!(Endpoint::parse("https://host/v1").is_err());
    }

    #[test]
    fn body_is_read_in_every_framing() {
        let bodies = [
            ("content-length: 5", "helloIGNORED", true),
            ("Transfer-Encoding: chunked", "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\nIGNORED", true),
            ("x-none: 1", "hello", true),
            ("content-length: 9", "hello", false),
            ("transfer-encoding: chunked", "5\r\nhello\r\n", false),
        ];
        for (header, body, is_whole) in bodies {
            let message = format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n{body}");
            let mut reader = message.as_bytes();
            let head = Head::read(&mut reader).unwrap().unwrap();
            assert_eq!(head.second_word(), "200");
            let (mut raw, mut content) = (Vec::new(), Vec::new());
            let read = read_body(&mut reader, head.framing(Framing::UntilEnd), |bytes, data| {
                raw.extend_from_slice(bytes);
                content.extend_from_slice(data);
                Ok(())
            });
            assert_eq!(read.is_ok(), is_whole, "{message}");
            assert_eq!(content, b"hello", "{message}");
            assert!(body.as_bytes().starts_with(&raw), "{message}");
        }
    }
}
