//! A follower: reads the journal for a connection that is behind, at the speed at which its client reads.

use std::sync::Arc;
use std::time::Duration;

use engine::Event;
use engine::ports::{Journal, Place};
use tokio::time::sleep;

use super::stage::{Following, Stage};
use crate::bridge::editor::is_wanted;
use crate::bridge::size;
use crate::outbox::SESSION_BUDGET;
use crate::outlet::FromSession;

/// How long to wait before the journal is read again after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Follows a session for one connection until it is detached. `ready` runs when it has caught up for the first time.
pub(crate) async fn follow(
    stage: Arc<Stage>,
    id: u64,
    following: Following,
    journal: Arc<dyn Journal>,
    after: Option<u64>,
    ready: impl FnOnce() + Send,
) {
    // A client that has seen nothing and asks for nothing begins at the end.
    if after.is_none()
        && let Ok(end) = journal.events_after(stage.session(), None).await
    {
        stage.advance(id, end.last);
    }
    let mut ready = Some(ready);
    loop {
        if catch_up(&stage, id, &following, &*journal).await.is_none() {
            return;
        }
        if let Some(ready) = ready.take() {
            ready();
        }
        following.wake.notified().await;
    }
}

/// Sends what a connection has not seen; `None` once it is gone.
async fn catch_up(
    stage: &Stage,
    id: u64,
    following: &Following,
    journal: &dyn Journal,
) -> Option<()> {
    loop {
        let after = stage.position(id)?;
        let page = match journal.events_after(stage.session(), Some(after)).await {
            Ok(page) => page,
            Err(err) => {
                tracing::warn!(session = %stage.session(), "cannot read the journal: {err}");
                sleep(RETRY).await;
                continue;
            }
        };
        for (place, event) in page.events {
            if is_wanted(&event, following.offers) && !stage.is_own(id, &event) {
                send(stage, id, following, place, event).await?;
            }
            stage.position(id)?;
        }
        stage.advance(id, page.last);
        if page.last == after {
            if stage.go_live(id) {
                return Some(());
            }
            // Something was shown since the page was read.
            tokio::task::yield_now().await;
        }
    }
}

/// Sends one event, and waits for the client to make room for it. `None` if the connection has ended.
async fn send(
    stage: &Stage,
    id: u64,
    following: &Following,
    place: Place,
    event: Event,
) -> Option<()> {
    let cost = size::weight(&event).min(SESSION_BUDGET);
    let permits = u32::try_from(cost).ok()?;
    let of_session = following.budget.acquire_many(permits).await.ok()?;
    let of_all = following.outlet.total.acquire_many(permits).await.ok()?;
    let room = following.outlet.to_dispatcher.reserve().await.ok()?;
    of_session.forget();
    of_all.forget();
    let seq = match place {
        Place::Record(seq) => Some(seq),
        Place::Part | Place::Unrecorded => None,
    };
    let (session, attachment) = (stage.session().clone(), Some(id));
    room.send(FromSession::Event { session, event, cost, seq, attachment });
    Some(())
}
