//! A planned command: runs with at most what the user was asked for.

use std::path::PathBuf;
use std::sync::Arc;

use engine::ports::{Output, Planned, SpanFacts, SpanKind, ToolCx, ToolError, Wait};
use engine::words::visible;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process::sandbox::{Found, Level};

use super::before::Before;
use super::input::Input;
use super::watch::ended_because;
use super::{Bash, not_run};

/// How many characters of a command its span has.
const MAX_NAME: usize = 200;

/// A planned call.
pub(super) struct PlannedCommand {
    pub(super) bash: Arc<Bash>,
    pub(super) input: Input,
    /// The level of the sandbox that the user was asked with.
    pub(super) level: Level,
    /// The directories outside that the user was asked for.
    pub(super) outside: Vec<PathBuf>,
    /// The `.git` that it may create, as the user was asked.
    pub(super) new_git: Option<PathBuf>,
}

impl PlannedCommand {
    /// Finds the sandbox to run in. It must not be weaker, and the directories outside must be the same, as when the user was asked.
    async fn find_sandbox(&mut self) -> Result<Arc<Found>, ToolError> {
        let found = self.bash.found().await;
        if self.level.confines() && !found.level.confines() {
            return Err(not_run(
                "the sandbox is no longer available. Call it again; the user will be asked",
            ));
        }
        let (bash, input, level) = (Arc::clone(&self.bash), self.input.clone(), found.level);
        let look = move || (bash.outside(&input.extra.write_outside, level), bash.new_git(&input));
        let (outside, new_git) = tokio::task::spawn_blocking(look).await.map_err(not_run)?;
        let outside = outside.map_err(not_run)?;
        if outside != self.outside {
            return Err(not_run("a folder of `write_outside` has moved since the user was asked"));
        }
        self.input.outside = outside;
        self.input.new_git = new_git.filter(|git| self.new_git.as_ref() == Some(git));
        Ok(found)
    }

    async fn run(self, cx: &ToolCx<'_>) -> Result<Output, ToolError> {
        let facts = SpanFacts { call: Some(cx.id.clone()), ..SpanFacts::default() };
        let name: String = visible(&self.input.command).chars().take(MAX_NAME).collect();
        let span = cx.spans.begin(SpanKind::Command, &name, facts);
        let result = self.run_inside(cx).await;
        if !matches!(result, Err(ToolError::Cancelled)) {
            span.end_with(&result);
        }
        result
    }

    async fn run_inside(mut self, cx: &ToolCx<'_>) -> Result<Output, ToolError> {
        let found = self.find_sandbox().await?;
        let before = Before::of(&self.bash, &self.input).await?;
        if self.input.background {
            return self.bash.start(cx, &self.input, &found, before).await;
        }
        let ran = self.run_watched(cx, &found, &before).await;
        // Checked however the command ended.
        let after = before.check().await?;
        self.bash.remember(Arc::clone(&after.survey));
        self.bash.warn(cx, after.left_behind.warning()).await?;
        let mut output = ran?;
        if found.level.confines() && is_blocked_by_sandbox(&output.text) {
            output.text.push_str(SANDBOX_HINT);
        }
        output.text.extend(after.note());
        Ok(output)
    }

    /// Runs it. A command that creates a file again that was renamed because other programs run it is ended.
    async fn run_watched(
        &self,
        cx: &ToolCx<'_>,
        found: &Found,
        before: &Before,
    ) -> Result<Output, ToolError> {
        let Some(mut again) = before.again() else { return self.run_in(cx, found).await };
        let ending = cx.cancel.child_token();
        let inner = ToolCx { cancel: &ending, spans: cx.spans.clone(), ..*cx };
        let run = self.run_in(&inner, found);
        let mut run = std::pin::pin!(run);
        let path = tokio::select! {
            ran = &mut run => return ran,
            path = again.wait() => path,
        };
        ending.cancel();
        match run.await {
            Err(ToolError::Cancelled) if !cx.cancel.is_cancelled() => {
                Err(ToolError::Model(ended_because(&path)))
            }
            ran => ran,
        }
    }

    async fn run_in(&self, cx: &ToolCx<'_>, found: &Found) -> Result<Output, ToolError> {
        let (bash, input) = (&self.bash, &self.input);
        let in_terminal = bash.uses_terminal(cx, found.level);
        let there = if in_terminal { bash.run_in_terminal(cx, input, found).await? } else { None };
        match there {
            Some(output) => Ok(output),
            // A command that was planned for a terminal was not announced as live.
            None => {
                let is_live = cx.editor.offers().live && !in_terminal;
                bash.run_here(cx, input, found, is_live).await
            }
        }
    }
}

impl Planned for PlannedCommand {
    fn wait(&self) -> Option<Wait> {
        None
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        PlannedCommand::run(*self, cx).boxed()
    }
}

/// Tells whether the output contains an error that the sandbox causes.
fn is_blocked_by_sandbox(text: &str) -> bool {
    let signs = ["Read-only file system", ".git/config: Device or resource busy"];
    signs.iter().any(|sign| text.contains(sign))
}

/// Added to such an output.
const SANDBOX_HINT: &str = "\n(commands can write only to the project's folders. To change .git request `git`, which keeps hooks and \
    configuration protected; to write to another folder request `write_outside`. Give the `reason`)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_sandbox_are_recognised() {
        for output in [
            "touch: cannot touch '/usr/x': Read-only file system",
            "error: could not write config file .git/config: Device or resource busy",
        ] {
            assert!(is_blocked_by_sandbox(output), "{output}");
        }
        assert!(!is_blocked_by_sandbox("rm: cannot remove 'x': Device or resource busy"));
    }
}
