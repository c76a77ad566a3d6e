//! Foreign clients: the protocol's own SDKs for TypeScript and Rust drive the built program.
//!
//! Both use the script `conformance/judge/judge.acp`, one answer per prompt. The TypeScript client and its checks are in
//! `conformance/judge`. The Rust client is here; its types check that every message can be parsed.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::{ConnectionTo, schema::*};
use agent_client_protocol::{
    AcpAgent, Agent, Client, Result, on_receive_notification, on_receive_request,
};
use serde_json::json;
use tokio::sync::watch;

use crate::directory::Directory;

const PURLIN: &str = env!("CARGO_BIN_EXE_purlin");
const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/judge");

#[test]
fn npm_sdk_client_is_satisfied() {
    run_judge(&[PURLIN, "acp", "--forget", "--model", "script:judge.acp"]);
}

// R: S10, W16
#[test]
fn npm_sdk_client_is_satisfied_over_websocket_and_http() {
    for transport in ["ws", "http"] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--model", "script:judge.acp"];
        run_judge(&[&["--over", transport, PURLIN], &serve[..]].concat());
    }
}

#[expect(clippy::disallowed_methods, reason = "the judge is no child of the agent, but its parent")]
fn run_judge(arguments: &[&str]) {
    let home = Directory::new();
    assert!(
        Path::new(JUDGE).join("node_modules").exists(),
        "the packages of conformance/judge are not installed: run cargo xtask test"
    );
    let output = std::process::Command::new("node")
        .current_dir(JUDGE)
        .arg("judge.mjs")
        .args(arguments)
        .env("XDG_DATA_HOME", home.path())
        .output()
        .expect("node is missing: run cargo xtask test");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn rust_sdk_client_is_satisfied() {
    let directory = Directory::new();
    let script = format!("script:{}", script_for(&directory).display());
    let agent = AcpAgent::from_args([PURLIN, "acp", "--forget", "--model", &script]).unwrap();
    let editor = Arc::new(Editor::default());
    let (updates, permissions) = (editor.clone(), editor.clone());
    let (reads, writes) = (editor.clone(), editor.clone());
    let connection = Client
        .v1()
        .on_receive_notification(
            async move |note: SessionNotification, _cx| {
                updates.updates.send_modify(|updates| updates.push(note.update));
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |question: RequestPermissionRequest, responder, _cx| {
                responder.respond(permissions.choose(&question))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ReadTextFileRequest, responder, _cx| match reads
                .read(&request.path)
            {
                Some(text) => responder.respond(ReadTextFileResponse::new(text)),
                None => responder.respond_with_error(Error::resource_not_found(None).into()),
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: WriteTextFileRequest, responder, _cx| {
                writes.files.lock().unwrap().insert(request.path, request.content);
                responder.respond(WriteTextFileResponse::new())
            },
            on_receive_request!(),
        )
        .connect_with(agent, async |agent: ConnectionTo<Agent>| {
            judge(&agent, &editor, &directory).await
        });
    tokio::time::timeout(Duration::from_secs(60), connection).await.expect("no end").unwrap();
}

/// The SDK's client loads a session of a process that was killed.
// R: S2, S9
#[cfg(target_os = "linux")]
#[tokio::test]
async fn rust_sdk_client_loads_what_another_process_wrote() {
    let directory = Directory::new();
    let script =
        "model thought \"Hm.\"\nmodel text \"Kept.\"\nmodel tool plan {\"entries\":[\"Look\"]}\n";
    std::fs::write(directory.join("script.acp"), script).unwrap();
    let mut first = crate::syscalls::Agent::start(&directory, None);
    let mut ask = |method: &str, params| first.call(method, &params, &mut Vec::new()).unwrap();
    ask("initialize", json!({ "protocolVersion": 1 }));
    let made = ask("session/new", json!({ "cwd": directory.path(), "mcpServers": [] }));
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = [json!({ "type": "text", "text": "go" })];
    ask("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
    first.kill();

    let data = format!("XDG_DATA_HOME={}", directory.join("data").display());
    let agent = AcpAgent::from_args(["env", &data, PURLIN, "acp"]).unwrap();
    let editor = Arc::new(Editor::default());
    let updates = editor.clone();
    let connection = Client
        .v1()
        .on_receive_notification(
            async move |note: SessionNotification, _cx| {
                updates.updates.send_modify(|updates| updates.push(note.update));
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_with(agent, async |agent: ConnectionTo<Agent>| {
            initialize(&agent).await?;
            let request = LoadSessionRequest::new(SessionId::new(session), directory.path());
            let reply = agent.send_request(request).block_task().await?;
            assert!(reply.modes.is_some());
            let updates = editor.updates.borrow().clone();
            assert_eq!(text_of(&updates), "Kept.");
            let is_there = |wanted: fn(&SessionUpdate) -> bool| updates.iter().any(wanted);
            assert!(is_there(|update| matches!(update, SessionUpdate::UserMessageChunk(_))));
            assert!(is_there(|update| matches!(update, SessionUpdate::AgentThoughtChunk(_))));
            assert!(is_there(|update| matches!(update, SessionUpdate::Plan(_))));
            Ok(())
        });
    tokio::time::timeout(Duration::from_secs(60), connection).await.expect("no end").unwrap();
}

/// Sends every prompt in the order of the script.
async fn judge(agent: &ConnectionTo<Agent>, editor: &Editor, directory: &Path) -> Result<()> {
    initialize(agent).await?;
    let session = agent.send_request(NewSessionRequest::new(directory)).block_task().await?;
    let id = &session.session_id;
    assert!(session.modes.is_some_and(|modes| !modes.available_modes.is_empty()));

    assert_eq!(prompt(agent, id, "Count.").await?, StopReason::EndTurn);
    assert_eq!(editor.take_text(), "One, two, three.");

    for (choice, text) in [
        (PermissionOptionKind::AllowOnce, "Written."),
        (PermissionOptionKind::RejectOnce, "As you wish."),
    ] {
        editor.choices.lock().unwrap().push_back(choice);
        assert_eq!(prompt(agent, id, "Write it.").await?, StopReason::EndTurn);
        assert_eq!(editor.take_text(), text);
    }
    assert_eq!(editor.read(&directory.join("allowed.txt")).as_deref(), Some("allowed\n"));
    assert_eq!(editor.read(&directory.join("rejected.txt")), None);

    cancel_while_it_hangs(agent, editor, id).await?;
    change_the_mode(agent, id, &session.config_options.unwrap_or_default()).await
}

async fn initialize(agent: &ConnectionTo<Agent>) -> Result<()> {
    let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    let request = InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(ClientCapabilities::new().fs(files));
    let reply = agent.send_request(request).block_task().await?;
    assert_eq!(reply.protocol_version, ProtocolVersion::V1);
    assert_eq!(reply.agent_info.map(|info| info.name).as_deref(), Some("purlin"));
    Ok(())
}

async fn prompt(
    agent: &ConnectionTo<Agent>,
    session: &SessionId,
    text: &str,
) -> Result<StopReason> {
    let request = PromptRequest::new(session.clone(), vec![text.into()]);
    Ok(agent.send_request(request).block_task().await?.stop_reason)
}

async fn cancel_while_it_hangs(
    agent: &ConnectionTo<Agent>,
    editor: &Editor,
    session: &SessionId,
) -> Result<()> {
    let mut updates = editor.updates.subscribe();
    let (reason, noted) = tokio::join!(prompt(agent, session, "Take your time."), async {
        updates.wait_for(|updates| text_of(updates) == "This takes for ever.").await.unwrap();
        agent.send_notification(CancelNotification::new(session.clone()))
    });
    noted?;
    assert_eq!(reason?, StopReason::Cancelled);
    Ok(())
}

/// Sets the mode with both methods and compares the complete lists.
async fn change_the_mode(
    agent: &ConnectionTo<Agent>,
    session: &SessionId,
    options: &[SessionConfigOption],
) -> Result<()> {
    assert!(find(options, &SessionConfigOptionCategory::Model).is_some());
    let mode = find(options, &SessionConfigOptionCategory::Mode).unwrap();
    let SessionConfigKind::Select(select) = &mode.kind else {
        panic!("the mode is no choice: {mode:?}");
    };
    let request = SetSessionModeRequest::new(session.clone(), "plan");
    agent.send_request(request).block_task().await?;
    let value = select.current_value.clone();
    let request = SetSessionConfigOptionRequest::new(session.clone(), mode.id.clone(), value);
    let reply = agent.send_request(request).block_task().await?;
    assert_eq!(reply.config_options, options);
    Ok(())
}

fn find<'a>(
    options: &'a [SessionConfigOption],
    category: &SessionConfigOptionCategory,
) -> Option<&'a SessionConfigOption> {
    options.iter().find(|option| option.category.as_ref() == Some(category))
}

/// The editor's side: files in memory, and a user whose answers are prepared.
#[derive(Default)]
struct Editor {
    files: Mutex<HashMap<PathBuf, String>>,
    choices: Mutex<VecDeque<PermissionOptionKind>>,
    updates: watch::Sender<Vec<SessionUpdate>>,
}

impl Editor {
    fn choose(&self, question: &RequestPermissionRequest) -> RequestPermissionResponse {
        let kind = self.choices.lock().unwrap().pop_front();
        let option = question.options.iter().find(|option| Some(option.kind) == kind);
        RequestPermissionResponse::new(option.map_or(
            RequestPermissionOutcome::Cancelled,
            |option| {
                let chosen = SelectedPermissionOutcome::new(option.option_id.clone());
                RequestPermissionOutcome::Selected(chosen)
            },
        ))
    }

    fn read(&self, path: &Path) -> Option<String> {
        self.files.lock().unwrap().get(path).cloned()
    }

    /// Returns the agent's text since the last call.
    fn take_text(&self) -> String {
        text_of(&self.updates.send_replace(Vec::new()))
    }
}

fn text_of(updates: &[SessionUpdate]) -> String {
    let text = |update: &SessionUpdate| match update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        },
        _ => None,
    };
    updates.iter().filter_map(text).collect()
}

/// Copies the script and replaces `/w` by this directory, as in all transcripts.
fn script_for(directory: &Path) -> PathBuf {
    let script = std::fs::read_to_string(Path::new(JUDGE).join("judge.acp")).unwrap();
    let copy = directory.join("script.acp");
    std::fs::write(&copy, script.replace("\"/w/", &format!("\"{}/", directory.display()))).unwrap();
    copy
}
