//! `bash_output` and `bash_kill`.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Intent, Output, Tool, ToolCx, ToolError};
use engine::words::{Block, ExitStatus, ToolContent, ToolKind, fenced, visible};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::super::Bash;
use super::super::output::{ended, raw_of};
use super::super::run::{BEAT, LiveOutput};
use super::super::title::title_of;
use super::Command;
use crate::tool::{TypedTool, number, shaped, shown};

/// How long `bash_output` may wait.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Makes the tools for the commands that this `bash` starts in the background.
#[must_use]
pub fn tools(bash: &Arc<Bash>) -> Vec<Arc<dyn Tool>> {
    vec![shaped(BashOutput(Arc::clone(bash))), shaped(BashKill(Arc::clone(bash)))]
}

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(alias = "bash_id", alias = "shell_id")]
    id: String,
    #[serde(default, deserialize_with = "number")]
    wait: Option<u32>,
    #[serde(default)]
    until: Option<String>,
}

/// The tool that reads.
struct BashOutput(Arc<Bash>);

pub(crate) struct Plan {
    command: Arc<Command>,
    wait: Duration,
    until: Option<String>,
}

impl TypedTool for BashOutput {
    const NAME: &'static str = "bash_output";
    const KIND: ToolKind = ToolKind::Read;
    const DESCRIPTION: &'static str = "
Returns the new output of a command that `bash` started in the background, and whether it still runs. With `wait`, waits for its
end, or until the output contains `until`.";

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "id": { "type": "string", "description": "The id that `bash` returned, such as bg1" },
            "wait": { "type": "integer", "description": "How long to wait, in milliseconds; default 0, at most 600000" },
            "until": { "type": "string", "description": "Stops waiting when the new output contains this text" },
        });
        (fields, &["id"])
    }

    fn outline(input: &Value) -> (String, Vec<String>) {
        (format!("Output of {}", input["id"].as_str().unwrap_or("a command")), Vec::new())
    }

    async fn plan(&self, cx: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let command = self.0.background.find(&input.id)?;
        let wait = Duration::from_millis(input.wait.unwrap_or(0).into()).min(MAX_WAIT);
        let live = ToolContent::Live { cwd: cx.cwd.to_owned() };
        let content = if cx.editor.offers().live { vec![live] } else { Vec::new() };
        let title = format!("Output of {}: {}", command.id, title_of(&visible(&command.words)));
        let until = input.until.filter(|text| !text.is_empty());
        Ok((Intent { title, content, ..Intent::default() }, Plan { command, wait, until }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let Plan { command, wait, until } = plan;
        let deadline = Instant::now() + wait;
        let mut progress = command.progress.subscribe();
        let mut capture = self.0.capture(cx);
        let mut live = LiveOutput::new(cx.editor.offers().live);
        // Only the end is searched, so that a long output costs little.
        let mut recent = String::new();
        let end = loop {
            let end = progress.borrow_and_update().ended.clone();
            let text = command.take();
            capture.push(text.as_bytes());
            live.push(text.as_bytes());
            live.flush(cx, end.is_none()).await?;
            let is_found = until.as_ref().is_some_and(|until| {
                recent.push_str(&text);
                let is_found = recent.contains(until);
                let old = recent.len().saturating_sub(until.len());
                recent.drain(..recent.floor_char_boundary(old));
                is_found
            });
            if end.is_some() || is_found || Instant::now() >= deadline {
                break end;
            }
            let changed = async {
                tokio::select! {
                    changed = progress.changed() => if changed.is_err() { return false },
                    () = sleep_until(deadline) => {}
                }
                // Output arrives in small chunks.
                sleep_until((Instant::now() + BEAT).min(deadline)).await;
                true
            };
            if !cx.or_cancelled(changed).await? {
                break None;
            }
        };
        self.result(cx, &command, &mut live, capture.text(), end).await
    }
}

impl BashOutput {
    async fn result(
        &self,
        cx: &ToolCx<'_>,
        command: &Command,
        live: &mut LiveOutput,
        output: String,
        end: Option<Result<ExitStatus, String>>,
    ) -> Result<Output, ToolError> {
        let (text, raw) = match end {
            Some(Ok(status)) => {
                live.end(cx, &status).await?;
                (ended(&output, &status), Some(raw_of(&status)))
            }
            Some(Err(why)) => (format!("{output}\n(it did not run to its end: {why})"), None),
            None => {
                live.end(cx, &ExitStatus::default()).await?;
                let output = if output.is_empty() { "(no new output)" } else { output.trim_end() };
                (format!("{output}\n({} is still running)", command.id), None)
            }
        };
        let shown = || vec![ToolContent::Block(Block::Text(fenced(&text)))];
        let content = (!live.is_on).then(shown);
        Ok(Output { text, content, raw })
    }
}

/// The tool that ends a command.
struct BashKill(Arc<Bash>);

#[derive(Deserialize)]
pub(crate) struct KillInput {
    #[serde(alias = "bash_id", alias = "shell_id")]
    id: String,
}

impl TypedTool for BashKill {
    const NAME: &'static str = "bash_kill";
    const KIND: ToolKind = ToolKind::Execute;
    const DESCRIPTION: &'static str = "
Ends a command that `bash` started in the background, and all processes that it started.";

    type Input = KillInput;
    type Plan = Arc<Command>;

    fn fields() -> (Value, &'static [&'static str]) {
        let id =
            json!({ "type": "string", "description": "The id that `bash` returned, such as bg1" });
        (json!({ "id": id }), &["id"])
    }

    fn outline(input: &Value) -> (String, Vec<String>) {
        (format!("End {}", input["id"].as_str().unwrap_or("a command")), Vec::new())
    }

    async fn plan(
        &self,
        _: &ToolCx<'_>,
        input: KillInput,
    ) -> Result<(Intent, Arc<Command>), ToolError> {
        let command = self.0.background.find(&input.id)?;
        let title = format!("End {}: {}", command.id, title_of(&visible(&command.words)));
        Ok((Intent { title, ..Intent::default() }, command))
    }

    async fn run(&self, cx: &ToolCx<'_>, command: Arc<Command>) -> Result<Output, ToolError> {
        let mut progress = command.progress.subscribe();
        if progress.borrow().ended.is_some() {
            return Ok(shown(format!("{} had already ended", command.id)));
        }
        command.end.notify_one();
        // A process is killed if it does not end by itself, so this does not take long.
        let ended = progress.wait_for(|progress| progress.ended.is_some());
        cx.or_cancelled(ended).await?.map(drop).ok();
        Ok(shown(format!("{} has ended; `bash_output` returns the rest of its output", command.id)))
    }
}
