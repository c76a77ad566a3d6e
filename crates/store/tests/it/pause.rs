//! An unused session: unloaded from memory after a while, and loaded again by the next prompt.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::Reply;
use engine::hub::{Hub, HubCommand, HubLimits, HubOptions, Start, Workspace};
use engine::ports::{Journal, ModelChoice, NoInstructions, State, SystemClock, Toolbox};
use engine::script::ScriptedModel;
use engine::session::{Command, SessionHandle};
use engine::test_support::{NoFiles, StubEditor};
use engine::words::{Block, ModelId, Prompt, SessionId, StopReason};
use store::Store;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::sessions::{load, options};

async fn prompt(handle: &SessionHandle, text: &str) -> StopReason {
    let (sender, answer) = oneshot::channel();
    let reply = Reply::new(move |outcome| drop(sender.send(outcome)));
    let prompt = Prompt::from(vec![Block::Text(text.to_owned())]);
    let cancel = CancellationToken::new();
    handle.reserve().unwrap().send(Command::Prompt {
        prompt,
        origin: Default::default(),
        cancel,
        reply,
    });
    answer.await.unwrap().unwrap().stop
}

// R: S6, S7
#[tokio::test(start_paused = true)]
async fn idle_session_is_paused_and_restored() {
    let directory = TempDir::new().unwrap();
    let store = Arc::new(Store::new(options(directory.path())));
    let script = "model text \"one\"\nmodel end\nmodel text \"two\"";
    let model = ModelChoice {
        id: ModelId::new("m"),
        name: String::new(),
        context_size: 1000,
        price: None,
        can_think: false,
        profile: None,
        model: Arc::new(ScriptedModel::parse(script).unwrap()),
    };
    let options = HubOptions {
        find_models: None,
        preferences: None,
        models: vec![model].into(),
        journal: Arc::clone(&store) as Arc<dyn Journal>,
        clock: Arc::new(SystemClock),
        spans: None,
    };
    let limits = HubLimits {
        max_requests_per_turn: 5,
        no_progress: Duration::from_secs(60),
        max_sessions: 10,
        idle_pause: Duration::from_secs(7200),
    };
    let (hub, hub_handle) = Hub::new(options, limits);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(hub.run());
    let (sender, opened) = oneshot::channel();
    let reply = Reply::new(move |outcome| drop(sender.send(outcome)));
    let workspace = Workspace {
        cwd: None,
        next: Default::default(),
        editor: Arc::new(StubEditor::default()),
        files: Arc::new(NoFiles),
        instructions: Arc::new(NoInstructions),
        toolbox: Toolbox::default(),
        policy: Default::default(),
        notices: Vec::new(),
    };
    hub_handle.reserve().unwrap().send(HubCommand::Open {
        session: SessionId::new("s"),
        start: Start::New { cwd: PathBuf::from("/w") },
        mode: None,
        workspace: Box::new(workspace),
        reply,
    });
    let handle = opened.await.unwrap().unwrap().handle;
    let session = handle.id().clone();

    assert_eq!(prompt(&handle, "first").await, StopReason::EndTurn);
    tokio::time::sleep(Duration::from_secs(7300)).await;
    assert_eq!(store.find(&session).await.unwrap().state, State::Paused);
    assert_eq!(prompt(&handle, "second").await, StopReason::EndTurn);
    let (stored, events) = load(&store, &session).await;
    assert_eq!((stored.history.len(), events.len()), (4, 4));
    drop((handle, hub_handle));
    assert!(tasks.join_next().await.unwrap().is_ok());
}
