//! Connects to an agent on a server, by WebSocket: one text frame is one message.
//!
//! [`open`] returns the two ends of a socket, for callers that reconnect by themselves. [`Connection::remote`] is for all
//! others. The token goes into a header, never into the address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::connect::Connection;
use crate::error::Error;
use crate::host::Host;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// A server that sends nothing for so long, not even a ping, is gone.
const SILENCE: Duration = Duration::from_secs(45);
/// The largest message.
const MAX_MESSAGE: usize = 32 * 1024 * 1024;
/// How many bytes may wait on their way to or from the socket. Full: the sender waits.
const BUFFER: usize = 64 * 1024;

/// Any stream of bytes: plain or with TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Socket = WebSocketStream<Box<dyn Stream>>;

/// The end of a socket that sends.
pub struct Sender(SplitSink<Socket, Message>);

/// The end of a socket that receives.
pub struct Receiver(SplitStream<Socket>);

/// Connects to `ws://…` or `wss://…`, with a token if there is one.
///
/// # Errors
/// [`Error::Remote`] says what is wrong; it contains neither the address nor the token.
pub async fn open(url: &str, token: Option<&str>) -> Result<(Sender, Receiver), Error> {
    let opened = timeout(CONNECT, connect(url, token)).await;
    let socket = opened.unwrap_or_else(|_| Err(Error::Remote("no answer in 10 s".to_owned())))?;
    let (sender, receiver) = socket.split();
    Ok((Sender(sender), Receiver(receiver)))
}

async fn connect(url: &str, token: Option<&str>) -> Result<Socket, Error> {
    let failed = |err: &dyn std::fmt::Display| Error::Remote(err.to_string());
    let request = url.into_client_request();
    let mut request = request.map_err(|err| Error::RemoteRefused(err.to_string()))?;
    let uri = request.uri();
    let is_secure = match uri.scheme_str() {
        Some("ws") => false,
        Some("wss") => true,
        _ => {
            return Err(Error::RemoteRefused(
                "the address must begin with ws:// or wss://".to_owned(),
            ));
        }
    };
    let host = uri.host().unwrap_or_default().to_owned();
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(Error::RemoteRefused("the address must not contain a password".to_owned()));
    }
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse();
        let value =
            value.map_err(|_| Error::RemoteRefused("the token is not printable".to_owned()))?;
        request.headers_mut().insert("authorization", value);
    }
    let plain_host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((plain_host, port)).await.map_err(|err| failed(&err))?;
    stream.set_nodelay(true).map_err(|err| failed(&err))?;
    if token.is_some() && !is_private(is_secure, stream.peer_addr().ok()) {
        let why = "the token would be sent unencrypted to another machine; use wss://";
        return Err(Error::RemoteRefused(why.to_owned()));
    }
    let stream: Box<dyn Stream> = match is_secure {
        false => Box::new(stream),
        true => Box::new(encrypt(stream, plain_host).await?),
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    match opened {
        Ok((socket, _)) => Ok(socket),
        Err(SocketError::Http(response)) => {
            let refused = |text: &str| Error::RemoteRefused(text.to_owned());
            Err(match response.status().as_u16() {
                401 => refused("the server does not accept the token (401)"),
                403 => refused("the server does not accept this origin (403)"),
                404 => refused("the server has no agent at this path (404)"),
                421 => refused("the server has another name (421): start it with `--host`"),
                503 => Error::Remote("the server is stopping or full (503)".to_owned()),
                status => Error::Remote(format!("the server answered with status {status}")),
            })
        }
        Err(err) => Err(failed(&err)),
    }
}

/// Tells whether nobody on the network can read what is sent.
fn is_private(is_secure: bool, peer: Option<SocketAddr>) -> bool {
    is_secure || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

async fn encrypt(
    stream: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    let failed = |err: &dyn std::fmt::Display| Error::Remote(format!("TLS: {err}"));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .map_err(|err| failed(&err))?
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|err| failed(&err))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|err| failed(&err))
}

impl Sender {
    /// Sends a message, without its line break.
    ///
    /// # Errors
    /// Fails when the connection is lost.
    pub async fn send(&mut self, message: &str) -> Result<(), Error> {
        let sent = self.0.send(Message::text(message)).await;
        sent.map_err(|err| Error::Remote(err.to_string()))
    }

    /// Ends the connection.
    pub async fn close(&mut self) {
        // An error means that it has ended already.
        self.0.close().await.ok();
    }
}

impl Receiver {
    /// Waits for the next message; `None` when the connection is lost. Cancel safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            match timeout(SILENCE, self.0.next()).await.ok()?? {
                Ok(Message::Text(text)) => return Some(text.as_str().to_owned()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

impl Connection {
    /// Connects to an agent on a server, by WebSocket.
    ///
    /// # Errors
    /// As [`open`].
    pub async fn remote(url: &str, token: Option<&str>, host: Host) -> Result<Connection, Error> {
        let (sender, receiver) = open(url, token).await?;
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let (input, output) = tokio::io::split(ours);
        let mut connection = Connection::over(input, output, host);
        pump(connection.tasks_mut(), sender, receiver, theirs);
        Ok(connection)
    }
}

/// Moves lines between a socket and a pipe until either ends.
fn pump(tasks: &mut JoinSet<()>, mut sender: Sender, mut receiver: Receiver, pipe: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(pipe);
    tasks.spawn(async move {
        while let Some(mut message) = receiver.next().await {
            message.push('\n');
            if writer.write_all(message.as_bytes()).await.is_err() {
                return;
            }
        }
        writer.shutdown().await.ok();
    });
    tasks.spawn(async move {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(&line).await.is_err() {
                return;
            }
        }
        sender.close().await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: T7
    #[test]
    fn token_leaves_the_machine_only_encrypted() {
        for (address, expected) in [
            ("127.0.0.1:80", true),
            ("127.8.9.1:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("192.0.2.1:80", false),
            ("[2001:db8::1]:80", false),
            ("[::ffff:192.0.2.1]:80", false),
        ] {
            let address = address.parse().ok();
            assert!(address.is_some());
            assert_eq!(is_private(false, address), expected, "{address:?}");
            assert!(is_private(true, address));
        }
        assert!(!is_private(false, None));
    }
}
