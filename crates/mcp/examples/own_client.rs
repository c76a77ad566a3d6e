//! The cost of tool calls in this crate, made as in a session, with a supervised server. `own_client SERVER`.
//!
//! Does the same as `bare_client`, with this crate instead of the MCP library. `cargo xtask bench mcp` compares the two.

#![expect(clippy::print_stdout, reason = "a program of its own that reports on stdout")]

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Editor, NoJournal, SpanScope, ToolCx, Toolbox};
use engine::test_support::{NoTurn, StubEditor};
use engine::words::{SessionId, ToolCallId};
use mcp::oauth::{Login, Vault};
use mcp::{Command, Host, Options, ServerConfig, SessionServers, Starter, Timing};
use tokio_util::sync::CancellationToken;

/// No stored logins.
struct NoVault;

impl Vault for NoVault {
    fn load(&self, _: &str) -> Option<String> {
        None
    }

    fn save(&self, _: &str, _: Option<&str>) -> Result<(), String> {
        Err("this vault stores nothing".to_owned())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = std::env::args().nth(1).ok_or("own_client SERVER")?;
    let host = Host::new(Options {
        timing: Timing::default(),
        environment: Vec::new(),
        directory: "/".into(),
        login: Login::new(Arc::new(NoVault)),
        guard: process::Guard::default(),
        starter: Starter::default(),
        confinement: None,
    });
    let command = Command { program, args: Vec::new(), env: Vec::new(), cwd: None };
    let servers = vec![ServerConfig::command("good", command)?];
    let servers = SessionServers::new(&host, servers, Vec::new(), Vec::new());
    let toolbox = Arc::new(Toolbox::new(Vec::new(), vec![Arc::new(servers)]));
    let editor: Arc<dyn Editor> = Arc::new(StubEditor::default());
    toolbox.start(&editor);
    let tool = loop {
        let listed = toolbox.now();
        if let Some(tool) = listed.iter().find(|tool| tool.spec().name == "good_echo") {
            break Arc::clone(tool);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let cx = ToolCx {
        id: &ToolCallId::new("t"),
        cwd: Path::new("/"),
        editor: &*editor,
        cancel: &CancellationToken::new(),
        session: &SessionId::new("s"),
        journal: &NoJournal,
        turn: &NoTurn(&*editor),
        spans: SpanScope::default(),
    };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        for _ in 0..line?.trim().parse::<u32>()? {
            let input = serde_json::json!({ "text": "hi" });
            let (_, planned) = Arc::clone(&tool).plan(&cx, &input).await?;
            planned.run(&cx).await?;
        }
        println!("done");
    }
    Ok(())
}
