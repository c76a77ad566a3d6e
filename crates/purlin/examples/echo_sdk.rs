//! A minimal agent on the protocol's official SDK. `cargo xtask bench` compares Purlin with it.
//!
//! It answers a prompt with the text of the prompt. `echo_sdk N` sends N text chunks instead. A prompt `wait` waits until it
//! is cancelled.

use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::{ConnectionTo, schema::*};
use agent_client_protocol::{
    Agent, Client, Error, Result, Stdio, on_receive_notification, on_receive_request,
};
use tokio::sync::Notify;

/// The text chunk; `plain_writer` and the scripts of the benchmarks send the same.
const TEXT_CHUNK: &str = "some twenty bytes of text ";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let chunks: usize =
        std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or_default();
    let cancelled = Arc::new(Notify::new());
    let cancel = Arc::clone(&cancelled);
    Agent
        .v1()
        .name("echo")
        .on_receive_request(
            async move |_: InitializeRequest, responder, _cx| {
                responder.respond(
                    InitializeResponse::new(ProtocolVersion::V1)
                        .agent_info(Implementation::new("echo", "0.0.0")),
                )
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _cx| {
                // As long as Purlin's session ids.
                responder.respond(NewSessionResponse::new("01890a5d-ac96-774b-bcce-b302099a8057"))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let cancelled = Arc::clone(&cancelled);
                // In its own task: the loop that calls this handler also receives the cancellation.
                cx.clone().spawn(async move {
                    let stop = turn(&cx, &request, chunks, &cancelled).await?;
                    responder.respond(PromptResponse::new(stop))
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |_: CancelNotification, _cx| {
                cancel.notify_one();
                Ok::<(), Error>(())
            },
            on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

async fn turn(
    cx: &ConnectionTo<Client>,
    request: &PromptRequest,
    chunks: usize,
    cancelled: &Notify,
) -> Result<StopReason> {
    let text = request.prompt.iter().find_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let text = text.unwrap_or_default();
    if text == "wait" {
        cancelled.notified().await;
        return Ok(StopReason::Cancelled);
    }
    if chunks == 0 {
        send(cx, &request.session_id, text)?;
    }
    for _ in 0..chunks {
        send(cx, &request.session_id, TEXT_CHUNK)?;
        // The SDK's queue is unbounded. A real agent waits for its model between two chunks, so this one yields.
        tokio::task::yield_now().await;
    }
    Ok(StopReason::EndTurn)
}

fn send(cx: &ConnectionTo<Client>, session: &SessionId, text: &str) -> Result<()> {
    let chunk = ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
        .message_id(MessageId::new("01890a5d-ac96-774b-bcce-b302099a8058"));
    cx.send_notification(SessionNotification::new(
        session.clone(),
        SessionUpdate::AgentMessageChunk(chunk),
    ))
}
