//! The session ids that a shell completes: most recent first, each with its title.

use clap_complete::CompletionCandidate;
use engine::ports::{Journal, Query};

use crate::{env, storage};

/// Returns the ids of stored sessions; none if they cannot be read, since a shell shows no errors.
pub(super) fn candidates() -> Vec<CompletionCandidate> {
    let store = storage::store(&env::load_config(None).0);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let listed = runtime.map(|runtime| runtime.block_on(store.list(Query::default())));
    let Ok(Ok(listing)) = listed else { return Vec::new() };
    let candidate = |info: engine::ports::SessionInfo| {
        let help = info.title.unwrap_or_else(|| info.cwd.display().to_string());
        CompletionCandidate::new(info.id.as_str()).help(Some(help.into()))
    };
    listing.sessions.into_iter().map(candidate).collect()
}
