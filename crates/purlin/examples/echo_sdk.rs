//! An agent on the protocol's official SDK, as small as it can be: what `cargo xtask bench` compares Purlin with.
//!
//! Says back what it hears. `echo_sdk N` says a piece of text N times instead. A prompt `wait` waits for its cancel.

use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::{ConnectionTo, schema::*};
use agent_client_protocol::{
    Agent, Client, Error, Result, Stdio, on_receive_notification, on_receive_request,
};
use tokio::sync::Notify;

/// What is said N times; `plain_writer` and the scripts of the benchmarks say the same.
const PIECE: &str = "some twenty bytes of text ";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let pieces: usize =
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
                // As long as the ids that Purlin gives.
                responder.respond(NewSessionResponse::new("01890a5d-ac96-774b-bcce-b302099a8057"))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let cancelled = Arc::clone(&cancelled);
                // In a task of its own: the loop that calls us also brings the cancel.
                cx.clone().spawn(async move {
                    let stop = turn(&cx, &request, pieces, &cancelled).await?;
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
    pieces: usize,
    cancelled: &Notify,
) -> Result<StopReason> {
    let heard = request.prompt.iter().find_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let heard = heard.unwrap_or_default();
    if heard == "wait" {
        cancelled.notified().await;
        return Ok(StopReason::Cancelled);
    }
    if pieces == 0 {
        say(cx, &request.session_id, heard)?;
    }
    for _ in 0..pieces {
        say(cx, &request.session_id, PIECE)?;
        // The SDK's queue has no bound. An agent waits for its model between two pieces, so this one gives way, too.
        tokio::task::yield_now().await;
    }
    Ok(StopReason::EndTurn)
}

fn say(cx: &ConnectionTo<Client>, session: &SessionId, text: &str) -> Result<()> {
    let chunk = ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
        .message_id(MessageId::new("01890a5d-ac96-774b-bcce-b302099a8058"));
    cx.send_notification(SessionNotification::new(
        session.clone(),
        SessionUpdate::AgentMessageChunk(chunk),
    ))
}
