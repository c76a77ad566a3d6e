//! The connection against a fake agent at the other end of a pipe, and against real programs.

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

use super::*;

struct FakeAgent {
    input: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
}

impl FakeAgent {
    async fn receive(&mut self) -> Value {
        let line = self.input.next_line().await.unwrap().expect("the client is gone");
        serde_json::from_str(&line).unwrap()
    }

    async fn send(&mut self, message: Value) {
        self.output.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
}

fn connect() -> (Connection, FakeAgent) {
    let (ours, theirs) = tokio::io::duplex(1024);
    let (input, output) = tokio::io::split(ours);
    let connection = Connection::over(input, output, Host::none());
    let (input, output) = tokio::io::split(theirs);
    (connection, FakeAgent { input: BufReader::new(input).lines(), output })
}

fn update(text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": {
        "sessionId": "s",
        "update": { "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } },
    }})
}

fn prompt() -> schema::PromptRequest {
    schema::PromptRequest::new("s", vec!["hello".into()])
}

#[tokio::test]
async fn updates_come_before_the_reply_they_precede() {
    let (mut connection, mut agent) = connect();
    let caller = connection.caller();
    let talk = async {
        let call = agent.receive().await;
        assert_eq!(call["method"], "session/prompt");
        for number in 0..50 {
            agent.send(update(&number.to_string())).await;
        }
        let result = json!({ "stopReason": "end_turn" });
        agent.send(json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })).await;
    };
    let (reply, ()) = tokio::join!(caller.prompt(prompt()), talk);
    assert_eq!(reply.unwrap().stop_reason, schema::StopReason::EndTurn);
    let mut texts = Vec::new();
    while let Some(update) = connection.ready_update() {
        texts.push(update.read().unwrap());
    }
    assert_eq!(texts.len(), 50);
}

#[tokio::test]
async fn error_and_mismatched_result_are_distinguished() {
    let (connection, mut agent) = connect();
    let caller = connection.caller();
    let talk = async {
        let id = agent.receive().await["id"].clone();
        let error = json!({ "code": -31900, "message": "Session not found" });
        agent.send(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
        let id = agent.receive().await["id"].clone();
        agent.send(json!({ "jsonrpc": "2.0", "id": "x", "result": {} })).await;
        agent.send(json!({ "jsonrpc": "2.0", "id": id, "result": { "stopReason": 7 } })).await;
    };
    let calls = async {
        let refused = caller.prompt(prompt()).await.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        let misshapen = caller.prompt(prompt()).await.unwrap_err();
        assert!(matches!(misshapen, Error::BadShape { .. }), "{misshapen}");
    };
    tokio::join!(calls, talk);
}

#[tokio::test]
async fn another_version_is_an_error() {
    let (connection, mut agent) = connect();
    let talk = async {
        let call = agent.receive().await;
        assert_eq!(call["params"]["clientCapabilities"]["terminal"], false);
        let result = json!({ "protocolVersion": 2 });
        agent.send(json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })).await;
    };
    let info = schema::Implementation::new("test", "0");
    let (reply, ()) = tokio::join!(connection.initialize(info), talk);
    assert!(matches!(reply, Err(Error::Version(_))), "{reply:?}");
}

#[tokio::test]
async fn calls_of_the_agent_are_answered_after_invalid_lines() {
    let (_connection, mut agent) = connect();
    agent.output.write_all(b"nonsense\n").await.unwrap();
    assert_eq!(agent.receive().await["error"]["code"], -32700);
    agent.send(json!({ "jsonrpc": "2.0", "id": "q", "method": "fs/read_text_file" })).await;
    let reply = agent.receive().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!("q"), &json!(-32601)));
}

#[tokio::test]
async fn call_that_the_agent_cancels_is_answered_once() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let (input, output) = tokio::io::split(ours);
    let (questions, mut asked) = mpsc::channel(1);
    let host = Host::new(crate::HostOptions {
        files: false,
        terminals: false,
        cwd: "/".into(),
        permission: crate::Permission::Ask(questions),
    });
    let _connection = Connection::over(input, output, host);
    let (input, output) = tokio::io::split(theirs);
    let mut agent = FakeAgent { input: BufReader::new(input).lines(), output };

    let params = json!({ "sessionId": "s", "toolCall": { "toolCallId": "t" }, "options": [] });
    let method = "session/request_permission";
    agent.send(json!({ "jsonrpc": "2.0", "id": 9, "method": method, "params": params })).await;
    let question = asked.recv().await.unwrap();
    let params = json!({ "requestId": 9 });
    agent.send(json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": params })).await;
    let reply = agent.receive().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(9), &json!(-32800)));
    assert!(question.answer.is_closed());
}

#[tokio::test]
async fn slow_owner_slows_the_agent_and_loses_nothing() {
    let (mut connection, mut agent) = connect();
    let caller = connection.caller();
    let talk = async {
        for number in 0..3000 {
            agent.send(update(&number.to_string())).await;
        }
        agent.receive().await
    };
    let listen = async {
        // The driver accepts this command although updates are waiting.
        caller.notify("session/cancel", &json!({ "sessionId": "s" })).await.unwrap();
        for number in 0..3000 {
            let update = connection.next_update().await.unwrap();
            assert!(update.raw().contains(&format!("\"text\":\"{number}\"")), "{}", update.raw());
        }
    };
    let (note, ()) = tokio::join!(talk, listen);
    assert_eq!(note["method"], "session/cancel");
}

#[cfg(unix)]
#[tokio::test]
async fn calls_to_a_dead_agent_fail_with_its_stderr() {
    let spec = Spec::new("sh", "/").args(["-c", "read line; echo 'out of luck' >&2; exit 1"]);
    let mut connection = Connection::start(&spec, Host::none()).unwrap();
    let caller = connection.caller();
    for _ in 0..2 {
        let Err(Error::AgentGone { stderr }) = caller.prompt(prompt()).await else {
            panic!("no error")
        };
        assert_eq!(stderr, "out of luck\n");
    }
    assert!(connection.next_update().await.is_none());
    let status = connection.end(Grace::default()).await.unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(1));
}
