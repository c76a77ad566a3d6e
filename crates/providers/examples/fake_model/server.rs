//! The server: a plain HTTP/1.1 listener that plays a script, and keeps what it was asked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::script::{Answer, Script, Step};
use crate::speak::{Speaker, Speech};

/// A request as it came.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "the program does not look, the tests do")]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Which connection it came on, counting from 0.
    pub(crate) connection: usize,
    /// When it had come.
    pub(crate) at: Instant,
}

/// What all connections share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    script: Script,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: usize,
    asked: Vec<Asked>,
    /// How often the list of models was asked for.
    lists: usize,
}

impl Shared {
    pub(crate) fn new(script: Script) -> Arc<Shared> {
        Arc::new(Shared { script, state: Mutex::default() })
    }

    /// Returns everything that was asked so far.
    #[allow(dead_code, reason = "the program does not look, the tests do")]
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    /// Returns how often the list of models was asked for.
    #[allow(dead_code, reason = "the program does not look, the tests do")]
    pub(crate) fn lists(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lists
    }

    fn take(&self, asked: Asked) -> (usize, Answer) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.push(asked);
        let at = state.next;
        state.next += 1;
        let count = self.script.answers.len();
        let index = if self.script.is_endless && count > 0 { at % count } else { at };
        let beyond = || vec![Step::Status(500), Step::Body("the script is over".to_owned())];
        (at, self.script.answers.get(index).cloned().unwrap_or_else(beyond))
    }
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut count = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let number = count;
        count += 1;
        connections.spawn(async move {
            // A client that goes away is no news.
            drop(connection(stream, number, &shared).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(mut stream: TcpStream, number: usize, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut held = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut held, number).await? {
        if asked.path.ends_with("/models") {
            shared.state.lock().unwrap_or_else(PoisonError::into_inner).lists += 1;
            let list = r#"{"object":"list","data":[{"id":"fake","object":"model","context_length":64000}]}"#;
            write_whole(&mut stream, 200, &[], list.as_bytes()).await?;
            continue;
        }
        let speech = Speech::of_path(&asked.path);
        let (request, answer) = shared.take(asked);
        let Some(speech) = speech else {
            write_whole(&mut stream, 404, &[], b"{\"error\":\"no such path\"}").await?;
            continue;
        };
        if !play(&mut stream, Speaker::new(speech, request), answer).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads one request, or `None` at the end of the connection.
async fn read_request(
    stream: &mut TcpStream,
    held: &mut Vec<u8>,
    connection: usize,
) -> std::io::Result<Option<Asked>> {
    let head = loop {
        if let Some(at) = held.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if held.first().is_some_and(|byte| !byte.is_ascii_alphabetic()) {
            // TLS, most likely. Servers of plain HTTP say so in plain HTTP.
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await?;
            return Ok(None);
        }
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&held[..head]).into_owned();
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while held.len() < head + 4 + length {
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    }
    let body = String::from_utf8_lossy(&held[head + 4..head + 4 + length]).into_owned();
    held.drain(..head + 4 + length);
    Ok(Some(Asked { path, headers, body, connection, at: Instant::now() }))
}

async fn write_whole(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head += "content-type: application/json\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

/// Plays one answer. Tells whether the connection can be used again.
async fn play(
    stream: &mut TcpStream,
    mut speaker: Speaker,
    answer: Answer,
) -> std::io::Result<bool> {
    let status = answer.iter().find_map(|step| match step {
        Step::Status(status) => Some(*status),
        _ => None,
    });
    let body = answer.iter().find_map(|step| match step {
        Step::Body(body) => Some(body.clone()),
        _ => None,
    });
    let headers: Vec<(String, String)> = answer
        .iter()
        .filter_map(|step| match step {
            Step::Header(name, value) => Some((name.clone(), value.clone())),
            _ => None,
        })
        .collect();
    if status.is_some() || body.is_some() {
        let (status, body) = (status.unwrap_or(200), body.unwrap_or_default());
        write_whole(stream, status, &headers, body.as_bytes()).await?;
        return Ok(true);
    }
    let mut out = Out { stream, slice: usize::MAX, is_begun: false, headers };
    for step in &answer {
        if let Step::Usage(counts) = step {
            speaker.usage(*counts);
        }
        if let Step::Stop(reason) = step {
            speaker.stop(reason);
        }
    }
    for (at, step) in answer.into_iter().enumerate() {
        let is_talk = !matches!(
            step,
            Step::Wait(_) | Step::Hang | Step::Cut | Step::Header(..) | Step::Bomb(_)
        );
        if is_talk && !out.is_begun {
            let begin = speaker.begin();
            out.say(begin.as_bytes()).await?;
        }
        match step {
            Step::Text(text) => out.say(speaker.text(&text).as_bytes()).await?,
            Step::Torn(text) => {
                let event = speaker.text(&text);
                out.say(&event.as_bytes()[..tear(&event, &text)]).await?;
            }
            Step::Chunks(count, text) => {
                // Many events a write, as a busy server has them.
                let piece = speaker.text(&text);
                let mut batch = String::with_capacity(16 * 1024);
                for _ in 0..count {
                    batch.push_str(&piece);
                    if batch.len() > 12 * 1024 {
                        out.say(batch.as_bytes()).await?;
                        batch.clear();
                    }
                }
                out.say(batch.as_bytes()).await?;
            }
            Step::Thought(text) => out.say(speaker.thought(&text).as_bytes()).await?,
            Step::Signature(data) => out.say(speaker.signature(&data).as_bytes()).await?,
            Step::Tool { name, input } => {
                out.say(speaker.tool(&name, &input.to_string(), true).as_bytes()).await?;
            }
            Step::RawTool { name, arguments } => {
                out.say(speaker.tool(&name, &arguments, true).as_bytes()).await?;
            }
            Step::OpenTool { name, arguments } => {
                out.say(speaker.tool(&name, &arguments, false).as_bytes()).await?;
            }
            Step::Error { kind, message } => {
                out.say(speaker.error(&kind, &message).as_bytes()).await?;
            }
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Step::Hang => {
                if at > 0 {
                    out.flush().await?;
                }
                std::future::pending::<()>().await;
            }
            Step::Cut => {
                if at > 0 {
                    out.flush().await?;
                }
                return Ok(false);
            }
            Step::End => {
                out.end().await?;
                return Ok(true);
            }
            Step::Raw(bytes) => out.say(&bytes).await?,
            Step::Flood(size) => {
                out.say(b"data: ").await?;
                let block = vec![b'x'; 64 * 1024];
                let mut left = size;
                while left > 0 {
                    let now = left.min(block.len());
                    out.say(&block[..now]).await?;
                    left -= now;
                }
                out.say(b"\n\n").await?;
            }
            Step::Bomb(size) => out.say(&bomb(size)).await?,
            Step::Slice(size) => out.slice = size,
            Step::Status(_) | Step::Header(..) | Step::Body(_) | Step::Usage(_) | Step::Stop(_) => {
            }
        }
    }
    if !out.is_begun {
        let begin = speaker.begin();
        out.say(begin.as_bytes()).await?;
    }
    out.say(speaker.end().as_bytes()).await?;
    out.end().await?;
    Ok(true)
}

/// Where to leave an event: inside its first character that takes several bytes, else half-way through the text.
fn tear(event: &str, text: &str) -> usize {
    match event.char_indices().find(|(_, character)| !character.is_ascii()) {
        Some((at, _)) => at + 1,
        None => event.rfind(text).unwrap_or(0) + text.len() / 2,
    }
}

/// A body on its way, in chunks of HTTP.
struct Out<'a> {
    stream: &'a mut TcpStream,
    slice: usize,
    is_begun: bool,
    headers: Vec<(String, String)>,
}

impl Out<'_> {
    async fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.flush().await?;
        for piece in bytes.chunks(self.slice.max(1)) {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            self.stream.write_all(&chunk).await?;
            if self.slice < usize::MAX {
                self.stream.flush().await?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends the head, if it has not been sent.
    async fn flush(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        let mut head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n".to_owned();
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            head += "content-type: text/event-stream\r\n";
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        self.stream.write_all(head.as_bytes()).await
    }

    async fn end(&mut self) -> std::io::Result<()> {
        self.flush().await?;
        self.stream.write_all(b"0\r\n\r\n").await
    }
}

/// A gzip stream that unpacks to `size` times the letter x: a literal, then back references of the greatest length.
fn bomb(size: usize) -> Vec<u8> {
    let mut bits = Bits { bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], fill: 8 };
    bits.put(1, 1);
    bits.put(1, 2);
    // The letter x as a literal, in the fixed code: 0x30 + 0x78, eight bits, highest first.
    bits.put_code(0x30 + 0x78, 8);
    for _ in 0..size / 258 {
        // Length 258 is symbol 285: eight bits, 192 + (285 - 280). Distance 1 is symbol 0: five bits.
        bits.put_code(192 + 5, 8);
        bits.put_code(0, 5);
    }
    bits.put_code(0, 7);
    bits.bytes.extend_from_slice(&[0; 8]);
    bits.bytes
}

/// Bits in the order of deflate: from the lowest bit of each byte.
struct Bits {
    bytes: Vec<u8>,
    /// How many bits of the last byte are in use.
    fill: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            if self.fill == 8 {
                self.bytes.push(0);
                self.fill = 0;
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= (((value >> bit) & 1) as u8) << self.fill;
            }
            self.fill += 1;
        }
    }

    /// Codes go in with their highest bit first.
    fn put_code(&mut self, code: u32, count: u32) {
        for bit in (0..count).rev() {
            self.put((code >> bit) & 1, 1);
        }
    }
}
