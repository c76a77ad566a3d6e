//! Work that takes long: within two seconds the user sees what the turn waits for.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::cx::{TurnCx, TurnError};
use crate::ports::{Event, Severity, Wait};
use crate::words::{Block, Live, ToolCallId, ToolContent, ToolUpdate, inert};

/// After how long a wait is shown first.
const FIRST: Duration = Duration::from_millis(1500);
/// How often it is shown after that.
const NEXT: Duration = Duration::from_secs(2);

/// A tool call that may take long, and whether the user was shown that it does.
pub(super) struct SlowCall<'a> {
    pub(super) id: &'a ToolCallId,
    /// What the call showed before.
    pub(super) content: &'a [ToolContent],
    pub(super) is_shown: bool,
}

impl SlowCall<'_> {
    /// Waits for `work`, and shows for how long. `None` for a tool that shows its progress itself.
    pub(super) async fn wait_for<T>(
        &mut self,
        cx: &TurnCx<'_>,
        wait: Option<Wait>,
        work: impl Future<Output = T>,
    ) -> Result<T, TurnError> {
        let Some(wait) = wait else { return Ok(work.await) };
        let began = Instant::now();
        let mut ticks = interval_at(began + FIRST, NEXT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                _ = ticks.tick(), if !cx.turn.cancel.is_cancelled() => {
                    // While the user is asked something, everybody knows what is waited for.
                    if cx.conversation.asking.try_lock().is_ok() {
                        self.is_shown = true;
                        cx.emit(self.progress(wait.print(began.elapsed()))).await?;
                    }
                }
            }
        }
    }

    /// Returns the content that a call ends with: what was shown before, if progress replaced it. Some clients show only
    /// what the last update has, so a completed change repeats its diff.
    pub(super) fn content_at_end(
        &self,
        content: Option<Vec<ToolContent>>,
        is_completed: bool,
    ) -> Option<Vec<ToolContent>> {
        let is_diff = |content: &ToolContent| matches!(content, ToolContent::Diff { .. });
        let repeats = self.is_shown || (is_completed && self.content.iter().any(is_diff));
        content.or_else(|| repeats.then(|| self.content.to_vec()))
    }

    fn progress(&self, text: String) -> Event {
        let mut content = self.content.to_vec();
        content.push(ToolContent::Block(Block::Text(inert(&text))));
        let (content, live) = (Some(content), Some(Live::Progress(text)));
        Event::ToolUpdate(
            self.id.clone(),
            Box::new(ToolUpdate { content, live, ..ToolUpdate::default() }),
        )
    }
}

/// Waits for work that belongs to no call that is shown, and says so once if it takes long.
pub(super) async fn notice_if_slow<T>(
    cx: &TurnCx<'_>,
    title: &str,
    work: impl Future<Output = T>,
) -> Result<T, TurnError> {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return Ok(done),
        () = tokio::time::sleep(FIRST) => {}
    }
    if !cx.turn.cancel.is_cancelled() {
        cx.notify(Severity::Info, title, None).await?;
    }
    Ok(work.await)
}
