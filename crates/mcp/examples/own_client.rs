//! What a call of a tool costs in this crate, as a session makes it: the server is supervised, its tools are listed.
//! `own_client SERVER`.
//!
//! Does what `bare_client` does, on our crate instead of the MCP library. `cargo xtask bench mcp` compares the two.

#![expect(clippy::print_stdout, reason = "its own stdout is what this program is for")]
#![expect(clippy::unwrap_used, reason = "the client of the tests is used here, too")]

#[path = "../tests/it/editor.rs"]
mod editor;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{AnyTool, Editor, ToolCx, Tools};
use engine::script::NoJournal;
use engine::words::{SessionId, ToolCallId};
use mcp::oauth::{Login, Vault};
use mcp::{Command, Host, Options, ServerConfig, SessionServers, Starter, Timing};
use tokio_util::sync::CancellationToken;

/// Nobody is logged in anywhere.
struct NoVault;

impl Vault for NoVault {
    fn load(&self, _: &str) -> Option<String> {
        None
    }

    fn save(&self, _: &str, _: Option<&str>) -> Result<(), String> {
        Err("nothing is kept here".to_owned())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = std::env::args().nth(1).ok_or("own_client SERVER")?;
    let host = Host::new(Options {
        timing: Timing::default(),
        environment: Vec::new(),
        folder: "/".into(),
        login: Login::new(Arc::new(NoVault)),
        guard: process::Guard::default(),
        starter: Starter::default(),
        confine: None,
    });
    let command = Command { program, args: Vec::new(), env: Vec::new(), cwd: None };
    let servers = vec![ServerConfig::command("good", command)?];
    let none: Arc<[Arc<dyn AnyTool>]> = Arc::new([]);
    let tools = SessionServers::new(&host, Arc::new(none), servers, Vec::new(), Vec::new());
    let editor: Arc<dyn Editor> = Arc::new(editor::Noting::default());
    tools.start(&editor);
    let tool = loop {
        let listed = tools.now();
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
        inside: None,
    };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        for _ in 0..line?.trim().parse::<u32>()? {
            tool.run(&cx, &serde_json::json!({ "text": "hi" })).await?;
        }
        println!("done");
    }
    Ok(())
}
