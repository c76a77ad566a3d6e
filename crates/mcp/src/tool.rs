//! Adapts one tool of a server to the engine.

use std::sync::Arc;
use std::time::Duration;

use engine::permission::{Access, PermissionKey};
use engine::ports::{
    Event, Intent, Output, Planned, SpanFacts, SpanKind, Tool, ToolCx, ToolError, ToolSpec, Wait,
};
use engine::words::{
    Block, Contents, Live, Media, ToolContent, ToolFailure, ToolKind, ToolUpdate, inert,
    inert_title,
};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::clean::{clean, clean_line, clean_uri, whole_characters};
use crate::connection::{Failure, Peer, PendingCall};
use crate::host::Timing;
use crate::offer::ToolInfo;
use crate::server::{Phase, Server};
use crate::supervisor::call_error;

/// The maximum length of a result's text for the model, in bytes.
const MAX_TEXT: usize = 256 * 1024;
/// How many bytes of the input the title of a call shows.
const MAX_TITLE: usize = 120;
/// The maximum lengths of an address and of a media type, in bytes.
const MAX_URI: usize = 2048;
const MAX_MIME: usize = 100;
/// How many progress messages of a call may be queued.
const PROGRESS_QUEUE: usize = 8;
/// The shortest interval between two progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// After how long without progress of the server the user sees that we still wait.
const SILENCE: Duration = Duration::from_millis(1500);

/// How long sending a cancellation may take.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(200);

/// The parameters of `tools/call`.
#[derive(Serialize)]
struct Params<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a serde_json::Map<String, Value>>,
    #[serde(rename = "_meta")]
    meta: Meta,
}

#[derive(Serialize)]
struct Meta {
    #[serde(rename = "progressToken")]
    progress_token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// A tool of a server.
pub(crate) struct McpTool {
    server: Arc<Server>,
    info: Arc<ToolInfo>,
    spec: Arc<ToolSpec>,
    timing: Timing,
}

impl McpTool {
    /// Creates a tool that the model calls `name`.
    pub(crate) fn new(
        server: &Arc<Server>,
        info: &Arc<ToolInfo>,
        name: String,
        timing: Timing,
    ) -> McpTool {
        let spec = ToolSpec::new(name, info.description.clone(), (&info.schema).into());
        McpTool { server: Arc::clone(server), info: Arc::clone(info), spec: Arc::new(spec), timing }
    }

    async fn call(
        &self,
        cx: &ToolCx<'_>,
        arguments: Option<&serde_json::Map<String, Value>>,
    ) -> Result<Output, ToolError> {
        let status = self.server.status();
        let Some(peer) = status.peer else {
            return Err(self.unavailable());
        };
        let number = peer.next_number();
        let facts = SpanFacts { call: Some(cx.id.clone()), ..SpanFacts::default() };
        let name = format!("{} · {}", self.server.name(), self.info.name);
        let span = cx.spans.begin(SpanKind::Mcp, &clean_line(&name, MAX_TITLE), facts);
        let meta = Meta { progress_token: number, traceparent: cx.spans.traceparent(&span) };
        let params = Params { name: &self.info.name, arguments, meta };
        let call = peer.prepare_call(number, "tools/call", &params);
        let result = self.wait(cx, &peer, number, call).await;
        if !matches!(result, Err(ToolError::Cancelled)) {
            span.end_with(&result);
        }
        result
    }

    /// Waits for the result, shows progress in the meantime, and forwards a cancellation.
    async fn wait(
        &self,
        cx: &ToolCx<'_>,
        peer: &Peer,
        number: u64,
        mut call: PendingCall,
    ) -> Result<Output, ToolError> {
        // If the channel is full, a message is dropped: the next one supersedes it.
        let (sender, mut progress) = mpsc::channel(PROGRESS_QUEUE);
        let _listener = self.server.listen(number, sender);
        let last = Instant::now() + self.timing.call_limit;
        let mut deadline = Instant::now() + self.timing.call;
        let (mut shown, began) = (Instant::now(), Instant::now());
        let mut said = String::new();
        loop {
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => {
                    self.send_cancelled(peer, number, "cancelled by the user").await;
                    return Err(ToolError::Cancelled);
                }
                reply = &mut call.reply => return self.finish(reply),
                Some(text) = progress.recv() => {
                    deadline = last.min(Instant::now() + self.timing.call);
                    said = inert(&text);
                    if shown.elapsed() >= PROGRESS_INTERVAL {
                        shown = Instant::now();
                        show(cx, said.clone()).await?;
                    }
                }
                () = sleep_until(shown + SILENCE) => {
                    shown = Instant::now();
                    let subject = format!("the MCP server `{}`", clean_line(self.server.name(), MAX_TITLE));
                    let waiting = Wait::new(subject, deadline - began).print(began.elapsed());
                    show(cx, format!("{said}\n{waiting}").trim_start().to_owned()).await?;
                }
                () = sleep_until(deadline) => {
                    self.send_cancelled(peer, number, "timed out").await;
                    self.server.record_timeout();
                    let why = format!(
                        "The MCP server `{}` did not answer within {} s. The call was cancelled; it may still have \
                         taken effect",
                        self.server.name(),
                        self.timing.call.as_secs()
                    );
                    return Err(ToolError::failed(ToolFailure::McpFailed, why));
                }
            }
        }
    }

    /// Notifies the server that the call was cancelled. A server that does not read must not block us.
    async fn send_cancelled(&self, peer: &Peer, number: u64, reason: &str) {
        let sent = peer.send_cancelled(number, reason);
        if !matches!(tokio::time::timeout(CANCEL_TIMEOUT, sent).await, Ok(Ok(()))) {
            tracing::debug!(server = self.server.name(), "could not send a cancellation");
        }
    }

    fn finish(&self, reply: Result<Box<RawValue>, Failure>) -> Result<Output, ToolError> {
        let result = reply.map_err(|failure| self.failed(&failure))?;
        self.server.record_answer();
        let Ok(result) = serde_json::from_str::<CallToolResult>(&whole_characters(result.get()))
        else {
            return Err(self.failed(&Failure::Invalid));
        };
        let is_error = result.is_error == Some(true);
        let output = output(result);
        if is_error { Err(ToolError::Model(output.text)) } else { Ok(output) }
    }

    fn failed(&self, failure: &Failure) -> ToolError {
        if let Failure::Refused(_) | Failure::Invalid = failure {
            self.server.record_answer();
        }
        let why = format!(
            "The MCP server `{}` failed: {}. `/mcp` shows its log",
            self.server.name(),
            call_error(&self.server, failure)
        );
        ToolError::failed(ToolFailure::McpFailed, why)
    }

    fn unavailable(&self) -> ToolError {
        let status = self.server.status();
        let next = match status.phase {
            Phase::Starting | Phase::Late => {
                "It is still starting; try again in a moment".to_owned()
            }
            Phase::Waiting(wait) => format!("It restarts in {} s", wait.as_secs().max(1)),
            Phase::Failed => format!("`/mcp restart {}` restarts it", self.server.name()),
            Phase::Ready | Phase::Stopped => "It has just stopped".to_owned(),
        };
        let why = status.error.map(|error| format!("{error}. ")).unwrap_or_default();
        let why = format!("The MCP server `{}` is not available. {why}{next}", self.server.name());
        ToolError::failed(ToolFailure::McpUnavailable, why)
    }
}

impl Tool for McpTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    /// Returns the same kind for all tools: a server's description of its own tools is not trusted.
    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }

    fn plan<'a>(
        self: Arc<Self>,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        if !input.is_object() && !input.is_null() {
            let why = "the input must be a JSON object".to_owned();
            return future::ready(Err(ToolError::Model(why))).boxed();
        }
        let arguments = clean_line(&input.to_string(), MAX_TITLE);
        let title = format!("{} · {} {arguments}", self.server.name(), self.info.title);
        // "Always" is stored for the tool as it is described now: with another description the user is asked again.
        let subject = format!("{} {}", self.spec.name, self.info.fingerprint);
        let server = clean_line(self.server.name(), MAX_TITLE);
        let tool = clean_line(&self.info.name, MAX_TITLE);
        let key = PermissionKey::mcp(&self.spec.name, &server, &tool);
        let intent = Intent {
            title: clean(&title, 2 * MAX_TITLE),
            content: vec![ToolContent::Block(Block::Text(inert(&self.info.description)))],
            access: vec![Access::ask(key, subject)],
            ..Intent::default()
        };
        let planned = PlannedCall { arguments: input.as_object().cloned(), tool: self };
        future::ready(Ok((intent, Box::new(planned) as Box<dyn Planned>))).boxed()
    }
}

/// A planned call of a tool.
struct PlannedCall {
    tool: Arc<McpTool>,
    arguments: Option<serde_json::Map<String, Value>>,
}

/// Shows the progress of a call. It is not stored: the result replaces it.
async fn show(cx: &ToolCx<'_>, text: String) -> Result<(), ToolError> {
    let content = Some(vec![ToolContent::Block(Block::Text(text.clone()))]);
    let update = ToolUpdate { content, live: Some(Live::Progress(text)), ..ToolUpdate::default() };
    cx.turn.show(Event::ToolUpdate(cx.id.clone(), Box::new(update))).await
}

impl Planned for PlannedCall {
    fn wait(&self) -> Option<Wait> {
        None
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move { self.tool.call(cx, self.arguments.as_ref()).await }.boxed()
    }
}

/// Converts a result to text for the model and content for the user.
fn output(result: CallToolResult) -> Output {
    let mut text = Vec::new();
    let mut shown = Vec::new();
    let has_content = !result.content.is_empty();
    for block in result.content {
        let (for_model, block) = block_in(block);
        text.push(for_model);
        // An image in it would be fetched by the client.
        let block = match block {
            Block::Text(text) => Block::Text(inert(&text)),
            Block::Resource { uri, mime, contents: Contents::Text(text) } => {
                Block::Resource { uri, mime, contents: Contents::Text(inert(&text)) }
            }
            other => other,
        };
        shown.push(ToolContent::Block(block));
    }
    if let Some(structured) = result.structured_content.filter(|_| !has_content) {
        let json = structured.to_string();
        shown.push(ToolContent::Block(Block::Text(inert(&clean(&json, MAX_TEXT)))));
        text.push(json);
    }
    let text = text.join("\n");
    Output { text: cut(&clean(&text, usize::MAX)), content: Some(shown), raw: None }
}

/// Converts a content block. Returns its text for the model, and the block for the user.
pub(crate) fn block_in(block: ContentBlock) -> (String, Block) {
    match block {
        ContentBlock::Text(text) => (text.text.clone(), Block::Text(clean(&text.text, MAX_TEXT))),
        ContentBlock::Image(image) => (
            format!("[image ({})]", image.mime_type),
            Block::Image(Media { data: image.data, mime: clean_line(&image.mime_type, MAX_MIME) }),
        ),
        ContentBlock::Audio(audio) => (
            format!("[audio ({}), played to the user]", audio.mime_type),
            Block::Audio(Media { data: audio.data, mime: clean_line(&audio.mime_type, MAX_MIME) }),
        ),
        ContentBlock::Resource(embedded) => {
            let block = resource_in(embedded.resource);
            let for_model = match &block {
                Block::Resource { uri, contents: Contents::Text(text), .. } => {
                    format!("{uri}:\n{text}")
                }
                Block::Resource { uri, .. } => format!("[{uri}: binary content]"),
                _ => String::new(),
            };
            (for_model, block)
        }
        ContentBlock::ResourceLink(link) => {
            let block = match clean_uri(&link.uri, MAX_URI) {
                Some(uri) => {
                    Block::Link { uri, name: inert_title(&clean_line(&link.name, MAX_TITLE)) }
                }
                None => Block::Text("[a link that runs a program]".to_owned()),
            };
            (link.uri, block)
        }
        _ => {
            let text = "[unsupported content type]".to_owned();
            (text.clone(), Block::Text(text))
        }
    }
}

/// Converts the contents of a resource.
pub(crate) fn resource_in(contents: ResourceContents) -> Block {
    let named = |uri: &str, mime: Option<String>, contents| match clean_uri(uri, MAX_URI) {
        Some(uri) => {
            Block::Resource { uri, mime: mime.map(|mime| clean_line(&mime, MAX_MIME)), contents }
        }
        None => Block::Text("[a resource whose address runs a program]".to_owned()),
    };
    match contents {
        ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
            named(&uri, mime_type, Contents::Text(clean(&text, MAX_TEXT)))
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            named(&uri, mime_type, Contents::Blob(blob))
        }
        _ => Block::Text("[unsupported resource type]".to_owned()),
    }
}

/// Cuts the middle out of a text that is too long, and inserts a note about it.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(MAX_TEXT / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - MAX_TEXT / 2)..];
    let omitted = text.len() - head.len() - tail.len();
    format!("{head}\n[{omitted} bytes omitted]\n{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn converted(result: Value) -> Output {
        output(serde_json::from_value(result).unwrap())
    }

    // R: M3
    #[test]
    fn model_and_user_get_every_type_of_content() {
        let result = converted(json!({ "content": [
            { "type": "text", "text": "one\u{1b}" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "test://a", "text": "inside" } },
            { "type": "resource_link", "uri": "test://b", "name": "b" },
        ] }));
        assert_eq!(result.text, "one\n[image (image/png)]\ntest://a:\ninside\ntest://b");
        let shown = result.content.unwrap();
        assert_eq!(shown[0], ToolContent::Block(Block::Text("one".to_owned())));
        let image = Media { data: "AAAA".to_owned(), mime: "image/png".to_owned() };
        assert_eq!(shown[1], ToolContent::Block(Block::Image(image)));
        assert_eq!(shown.len(), 4);
    }

    // R: M3
    #[test]
    fn links_and_resources_show_no_markup() {
        let trap = "![x](http://e/?d)\u{1b}";
        let result = converted(json!({ "content": [
            { "type": "resource", "resource": { "uri": trap, "text": trap, "mimeType": "a\u{7}" } },
            { "type": "resource_link", "uri": trap, "name": trap },
            { "type": "resource_link", "uri": "javascript:alert(1)", "name": "b" },
            { "type": "resource", "resource": { "uri": "javascript:x", "text": "y" } },
        ] }));
        let shown = format!("{:?}", result.content.unwrap());
        assert!(!shown.contains("](http") || shown.contains("```\\n![x]("), "{shown}");
        assert!(!shown.contains("uri: \"!["), "{shown}");
        assert!(shown.contains("name: \"`![x]("), "{shown}");
        assert!(!shown.contains("javascript:") && !shown.contains("\\u{1b}"), "{shown}");
    }

    // R: M3
    #[test]
    fn structured_content_without_text_is_returned_as_json() {
        let result = converted(json!({ "content": [], "structuredContent": { "degrees": 21 } }));
        assert_eq!(result.text, r#"{"degrees":21}"#);
        let both = converted(json!({
            "content": [{ "type": "text", "text": "21 degrees" }],
            "structuredContent": { "degrees": 21 },
        }));
        assert_eq!(both.text, "21 degrees");
    }

    #[test]
    fn long_result_is_cut_in_the_middle() {
        let text = format!("begin{}end", "x".repeat(MAX_TEXT));
        let result = converted(json!({ "content": [{ "type": "text", "text": text }] }));
        assert!(result.text.starts_with("begin") && result.text.ends_with("end"));
        assert!(result.text.contains("[8 bytes omitted]"), "{}", result.text.len());
    }
}
