//! The server: a plain HTTP/1.1 listener that plays a script and records the requests it received.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::bedrock;
use crate::format::{Encoder, Format};
use crate::script::{Answer, Script, Step};
use crate::whole;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The path, with its query.
    pub path: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
    /// Which connection it came on, counting from 0.
    pub connection: usize,
    /// When its last byte had arrived.
    pub at: Instant,
}

/// A script and what its connections share.
#[derive(Debug)]
pub struct Server {
    script: Script,
    state: Mutex<State>,
    stop: Notify,
}

#[derive(Debug, Default)]
struct State {
    next_answer: usize,
    /// The answers that a request has taken, in scripts with `side`.
    taken: HashSet<usize>,
    requests: Vec<ReceivedRequest>,
    model_list_requests: usize,
    documents: Vec<ReceivedRequest>,
}

impl Server {
    /// Creates a server that has received nothing yet.
    #[must_use]
    pub fn new(script: Script) -> Arc<Server> {
        Arc::new(Server { script, state: Mutex::default(), stop: Notify::new() })
    }

    /// Serves every connection to the listener; blocks the calling thread.
    ///
    /// # Errors
    /// When the runtime cannot be created or the listener cannot be used.
    pub fn serve(self: Arc<Server>, listener: std::net::TcpListener) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            tokio::select! {
                () = accept(listener, Arc::clone(&self)) => {}
                () = self.stop.notified() => {}
            }
            Ok(())
        })
    }

    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.state().requests.clone()
    }

    pub(crate) fn model_list_requests(&self) -> usize {
        self.state().model_list_requests
    }

    /// Records a request and returns its number with the answer that the script has for it.
    fn take_answer(&self, request: ReceivedRequest) -> (usize, Answer) {
        let mut state = self.state();
        let chosen = self.script.side.as_ref().map(|side| self.choose(&request, side, &mut state));
        state.requests.push(request);
        if let Some(answer) = chosen {
            return (state.requests.len(), answer);
        }
        let number = state.next_answer;
        state.next_answer += 1;
        let count = self.script.answers.len();
        let index = if self.script.is_endless && count > 0 { number % count } else { number };
        let script_ended = || vec![Step::Status(500), Step::Body("the script is over".to_owned())];
        (number, self.script.answers.get(index).cloned().unwrap_or_else(script_ended))
    }

    /// Chooses the first answer that is for this request and that none has taken yet.
    fn choose(&self, request: &ReceivedRequest, side: &str, state: &mut State) -> Answer {
        let text = || vec![Step::Text(side.to_owned())];
        if !whole::has_tools(&request.body) {
            return text();
        }
        let is_for = |answer: &Answer| {
            answer.iter().all(|step| match step {
                Step::When(text) => request.body.contains(text.as_str()),
                _ => true,
            })
        };
        let mut answers = self.script.answers.iter().enumerate();
        let found = answers.find(|(index, answer)| !state.taken.contains(index) && is_for(answer));
        let Some((index, answer)) = found else { return text() };
        if !self.script.is_endless {
            state.taken.insert(index);
        }
        answer.clone()
    }

    /// Returns what is not an answer of the model: the list of models, and the documents of the script.
    fn document(&self, request: &ReceivedRequest) -> (u16, Vec<(String, String)>, String) {
        const LIST: &str =
            r#"{"object":"list","data":[{"id":"fake","object":"model","context_length":64000}]}"#;
        let path = request.path.split('?').next().unwrap_or_default();
        let mut state = self.state();
        state.documents.push(request.clone());
        state.model_list_requests += usize::from(path.ends_with("/v1/models"));
        let found = self.script.documents.iter().find(|document| path.ends_with(&document.path));
        if let Some(count) = whole::token_count(path) {
            return (200, Vec::new(), count.to_owned());
        }
        match found {
            Some(document) => (document.status, document.headers.clone(), document.body.clone()),
            None if path.ends_with("/v1/models") => (200, Vec::new(), LIST.to_owned()),
            None => (404, Vec::new(), r#"{"error":"no such path"}"#.to_owned()),
        }
    }

    /// Returns the requests for documents.
    pub(crate) fn document_requests(&self) -> Vec<ReceivedRequest> {
        self.state().documents.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    let mut count = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let server = Arc::clone(&server);
        let number = count;
        count += 1;
        connections.spawn(async move {
            // A client may close its connection at any time; the tests look at the client for that.
            drop(connection(stream, number, &server).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(mut stream: TcpStream, number: usize, server: &Server) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer, number).await? {
        let Some(format) = Format::of_path(&request.path) else {
            let (status, headers, body) = server.document(&request);
            write_whole(&mut stream, status, &headers, body.as_bytes()).await?;
            continue;
        };
        let is_streamed = whole::is_streamed(format, &request);
        let problem = (format == Format::Bedrock).then(|| bedrock::check_signature(&request));
        let (number, answer) = server.take_answer(request);
        if let Some(Err(problem)) = problem {
            let body = serde_json::json!({ "message": problem }).to_string();
            write_whole(&mut stream, 403, &[], body.as_bytes()).await?;
            continue;
        }
        if let Some(body) = whole::body(format, &answer).filter(|_| !is_streamed) {
            write_whole(&mut stream, 200, &[], body.as_bytes()).await?;
            continue;
        }
        if !play(&mut stream, Encoder::new(format, number), answer).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads one request, or `None` at the end of the connection.
async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: usize,
) -> std::io::Result<Option<ReceivedRequest>> {
    let head = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if buffer.first().is_some_and(|byte| !byte.is_ascii_alphabetic()) {
            // Most likely TLS. A plain HTTP server answers that with plain HTTP.
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await?;
            return Ok(None);
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while buffer.len() < head + 4 + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = String::from_utf8_lossy(&buffer[head + 4..head + 4 + length]).into_owned();
    buffer.drain(..head + 4 + length);
    Ok(Some(ReceivedRequest { path, headers, body, connection, at: Instant::now() }))
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

/// Plays one answer. Returns whether the connection can be used again.
async fn play(
    stream: &mut TcpStream,
    mut encoder: Encoder,
    answer: Answer,
) -> std::io::Result<bool> {
    let mut headers = Vec::new();
    let (mut status, mut body) = (None, None);
    for step in &answer {
        match step {
            Step::Header(name, value) => headers.push((name.clone(), value.clone())),
            Step::Status(code) => status = Some(*code),
            Step::Body(text) => body = Some(text.clone()),
            Step::Usage(counts) => encoder.usage(*counts),
            Step::Stop(reason) => encoder.stop(reason),
            _ => {}
        }
    }
    if status.is_some() || body.is_some() {
        let (status, body) = (status.unwrap_or(200), body.unwrap_or_default());
        write_whole(stream, status, &headers, body.as_bytes()).await?;
        return Ok(true);
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        headers.push(("content-type".to_owned(), encoder.content_type().to_owned()));
    }
    let mut out = BodyWriter { stream, slice: usize::MAX, has_head: false, headers };
    for (at, step) in answer.into_iter().enumerate() {
        let needs_start = !matches!(
            step,
            Step::Wait(_)
                | Step::Hang
                | Step::Cut
                | Step::Header(..)
                | Step::Bomb(_)
                | Step::When(_)
        );
        if needs_start && !out.has_head {
            begin(&mut out, &mut encoder).await?;
        }
        // As the first step, they send nothing, not even the head of the response.
        if at > 0 && matches!(step, Step::Hang | Step::Cut) {
            out.flush().await?;
        }
        match step {
            Step::Hang => std::future::pending::<()>().await,
            Step::Cut => return Ok(false),
            Step::End => {
                out.end().await?;
                return Ok(true);
            }
            step => play_step(&mut out, &mut encoder, step).await?,
        }
    }
    if !out.has_head {
        begin(&mut out, &mut encoder).await?;
    }
    let end = encoder.end();
    out.send(&encoder.pack(end)).await?;
    out.end().await?;
    Ok(true)
}

async fn begin(out: &mut BodyWriter<'_>, encoder: &mut Encoder) -> std::io::Result<()> {
    let begin = encoder.begin();
    out.send(&encoder.pack(begin)).await
}

/// Plays a step that does not end the answer.
async fn play_step(
    out: &mut BodyWriter<'_>,
    encoder: &mut Encoder,
    step: Step,
) -> std::io::Result<()> {
    let event = match step {
        Step::Text(text) => encoder.text(&text),
        Step::Thought(text) => encoder.thought(&text),
        Step::Signature(data) => encoder.signature(&data),
        Step::Tool { name, input } => encoder.tool(&name, &input.to_string(), true),
        Step::RawTool { name, arguments } => encoder.tool(&name, &arguments, true),
        Step::OpenTool { name, arguments } => encoder.tool(&name, &arguments, false),
        Step::Error { kind, message } => encoder.error(&kind, &message),
        Step::Torn(text) => {
            let event = encoder.text(&text);
            let cut = cut_position(&event, &text);
            let packed = encoder.pack(event);
            return out.send(&packed[..cut.min(packed.len() - 1)]).await;
        }
        Step::Chunks(count, text) => {
            let event = encoder.text(&text);
            return out.send_often(encoder, &event, count).await;
        }
        Step::Flood(size) => return out.send_long_line(size).await,
        Step::Raw(bytes) => return out.send(&bytes).await,
        Step::Bomb(size) => return out.send(&bomb(size)).await,
        Step::Wait(millis) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            return Ok(());
        }
        Step::Slice(size) => {
            out.slice = size;
            return Ok(());
        }
        // Read before the first step, or handled by `play`.
        Step::Status(_)
        | Step::Header(..)
        | Step::Body(_)
        | Step::Usage(_)
        | Step::Stop(_)
        | Step::When(_) => return Ok(()),
        Step::Hang | Step::Cut | Step::End => return Ok(()),
    };
    out.send(&encoder.pack(event)).await
}

/// Returns where to cut an event: inside its first character that takes several bytes, else half-way through the text.
fn cut_position(event: &str, text: &str) -> usize {
    match event.char_indices().find(|(_, character)| !character.is_ascii()) {
        Some((at, _)) => at + 1,
        None => event.rfind(text).unwrap_or(0) + text.len() / 2,
    }
}

/// A response body, sent in HTTP chunks.
struct BodyWriter<'a> {
    stream: &'a mut TcpStream,
    slice: usize,
    has_head: bool,
    headers: Vec<(String, String)>,
}

impl BodyWriter<'_> {
    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.flush().await?;
        for part in bytes.chunks(self.slice.max(1)) {
            let mut chunk = format!("{:x}\r\n", part.len()).into_bytes();
            chunk.extend_from_slice(part);
            chunk.extend_from_slice(b"\r\n");
            self.stream.write_all(&chunk).await?;
            if self.slice < usize::MAX {
                self.stream.flush().await?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends an event many times, several per write, as a busy server does. `{n}` in it becomes the number.
    async fn send_often(
        &mut self,
        encoder: &Encoder,
        event: &str,
        count: usize,
    ) -> std::io::Result<()> {
        let mut batch = Vec::with_capacity(16 * 1024);
        for number in 0..count {
            batch.extend(encoder.pack(event.replace("{n}", &number.to_string())));
            if batch.len() > 12 * 1024 {
                self.send(&batch).await?;
                batch.clear();
            }
        }
        self.send(&batch).await
    }

    /// Sends one event with a line of this many bytes.
    async fn send_long_line(&mut self, size: usize) -> std::io::Result<()> {
        self.send(b"data: ").await?;
        let block = vec![b'x'; 64 * 1024];
        let mut left = size;
        while left > 0 {
            let now = left.min(block.len());
            self.send(&block[..now]).await?;
            left -= now;
        }
        self.send(b"\n\n").await
    }

    /// Sends the status line and headers, once.
    async fn flush(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.has_head, true) {
            return Ok(());
        }
        let mut head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n".to_owned();
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
