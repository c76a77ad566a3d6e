//! Tests a server by connecting to it once, for `purlin mcp test` and `purlin doctor`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerConfig;
use crate::error::Error;
use crate::host::Options;
use crate::server::Server;
use crate::supervisor::{connect, list};

/// What a server offers, and how long it took to respond.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeResult {
    /// The names of its tools, each with the first line of its description.
    pub tools: Vec<(String, String)>,
    /// The number of its prompts.
    pub prompts: usize,
    /// The number of its resources.
    pub resources: usize,
    /// The number of tools that were omitted, because there are too many or they are invalid.
    pub omitted: usize,
    /// How long it took to connect.
    pub started: Duration,
    /// How long it took to list what it offers.
    pub listed: Duration,
    /// How long one round trip takes.
    pub ping: Duration,
}

/// Connects to a server once, lists what it offers, and ends it.
///
/// # Errors
/// Says why it cannot be used. The second part is the end of its log.
pub async fn probe(
    config: ServerConfig,
    options: &Options,
) -> Result<ProbeResult, (Error, String)> {
    let server = Arc::new(Server::new(config, vec![options.directory.clone()], None));
    let limit = server.config.start.unwrap_or(options.timing.start) + options.timing.start_limit;
    let begun = Instant::now();
    let mut started = Duration::ZERO;
    let starting = async {
        let live = connect(&server, options).await?;
        started = begun.elapsed();
        list(live, &server).await
    };
    let outcome = tokio::time::timeout(limit, starting).await;
    let outcome = outcome.unwrap_or_else(|_| Err(server.config.timed_out(limit, String::new())));
    let (live, offer) = outcome.map_err(|err| (err, server.log_tail(2000)))?;
    let listed = begun.elapsed() - started;
    let begun = Instant::now();
    let answered = live.peer.call::<serde::de::IgnoredAny>("ping", &serde_json::json!({})).await;
    let ping = begun.elapsed();
    if let Err(failure) = answered {
        tracing::debug!("ping failed: {failure:?}");
    }
    live.end().await;
    let line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    Ok(ProbeResult {
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
