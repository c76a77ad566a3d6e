//! `purlin sessions copy`: moves in with another store.

use std::process::ExitCode;

use anyhow::Context;
use engine::ports::{SessionInfo, State};
use engine::words::Secret;
use settings::Config;
use store::journal::Error;
use store::{Copier, Location, Store};

use super::{all, find};
use crate::count::count;
use crate::stdout::print;
use crate::{env, storage};

/// Copies sessions. Those that are open, and those that the other store has, are skipped and reported.
///
/// # Errors
/// Says what failed; what was copied until then stays.
pub(super) async fn run(
    store: &Store,
    config: &Config,
    ids: Vec<String>,
    everything: bool,
    to: &str,
) -> anyhow::Result<ExitCode> {
    let mut chosen = Vec::new();
    for id in ids {
        chosen.push(find(store, &id).await?);
    }
    let mut sessions = all(store, None).await?;
    sessions.retain(|info| everything || chosen.contains(&info.id));
    let (from, to) = (storage::location(config), target(to)?);
    // The stores block while they work.
    tokio::task::spawn_blocking(move || copy(&from, &to, &sessions)).await?
}

fn copy(from: &Location, to: &Location, sessions: &[SessionInfo]) -> anyhow::Result<ExitCode> {
    let mut copier = Copier::open(from, to)?;
    let (mut copied, mut records, mut is_complete) = (0, 0, true);
    for info in sessions {
        if info.state == State::Active {
            eprintln!("{}: skipped, because it is open; close it and try again", info.id);
            is_complete = false;
            continue;
        }
        match copier.copy(info.id.as_str()) {
            Ok(count) => {
                copied += 1;
                records += count;
            }
            Err(Error::Exists) => eprintln!("{}: skipped, the other store has it", info.id),
            Err(err) => return Err(err).with_context(|| format!("cannot copy {}", info.id)),
        }
    }
    let sessions = count(copied, "session", "sessions");
    print(&format!("Copied {sessions} with {records} records.\n"))?;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn target(text: &str) -> anyhow::Result<Location> {
    let text = match text.strip_prefix("env:") {
        Some(name) => env::variable(name).with_context(|| format!("${name} is not set"))?,
        None => text.to_owned(),
    };
    Ok(Location::parse(Secret::new(text)))
}
