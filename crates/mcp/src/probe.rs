//! Connects to a server once to test it, for `purlin mcp test`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerConfig;
use crate::error::Error;
use crate::host::Options;
use crate::server::Server;
use crate::supervisor::{connect, list};

/// What a server offers, and how long it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its tools with their descriptions, one line each.
    pub tools: Vec<(String, String)>,
    /// How many prompts it has.
    pub prompts: usize,
    /// How many resources it lists.
    pub resources: usize,
    /// How many tools were left out because there are too many.
    pub omitted: usize,
    /// How long it took to connect.
    pub started: Duration,
    /// How long it took to list everything.
    pub listed: Duration,
    /// How long one round trip takes.
    pub ping: Duration,
}

/// Connects to a server once, asks what it offers, and ends it.
///
/// # Errors
/// Says why it cannot be used; the second part is the end of its log.
pub async fn probe(config: ServerConfig, options: &Options) -> Result<Found, (Error, String)> {
    let server = Arc::new(Server::new(config, vec![options.folder.clone()]));
    let limit = server.config.start.unwrap_or(options.timing.start) + options.timing.start_most;
    let begun = Instant::now();
    let mut started = Duration::ZERO;
    let starting = async {
        let live = connect(&server, options).await?;
        started = begun.elapsed();
        list(live, &server).await
    };
    let outcome = tokio::time::timeout(limit, starting).await;
    let outcome = outcome.unwrap_or_else(|_| Err(server.config.silent(limit, String::new())));
    let (live, offer) = outcome.map_err(|err| (err, server.log_tail(2000)))?;
    let listed = begun.elapsed() - started;
    let begun = Instant::now();
    let answered = live.peer.call::<serde::de::IgnoredAny>("ping", &serde_json::json!({})).await;
    let ping = begun.elapsed();
    if let Err(failure) = answered {
        tracing::debug!("a ping was not answered: {failure:?}");
    }
    live.end().await;
    let line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    Ok(Found {
        tools: offer
            .tools
            .iter()
            .map(|tool| (tool.name.clone(), line(&tool.description)))
            .collect(),
        prompts: offer.prompts.len(),
        resources: offer.resources.len(),
        omitted: offer.omitted,
        started,
        listed,
        ping,
    })
}
