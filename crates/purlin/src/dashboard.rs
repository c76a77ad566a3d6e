//! `purlin dashboard`: a page on this machine about all agents of this user that run now. It only reads.

mod collect;
mod page;
mod push;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use clap::Args;
use observe::board::Board;
use tokio::net::TcpListener;

use crate::env;

/// The arguments of `purlin dashboard`.
#[derive(Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Port on this machine; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Push spans and numbers to an OpenTelemetry collector, such as http://localhost:4318
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

/// Shared by those who collect and those who ask. Never locked across an await.
pub(crate) type SharedBoard = Arc<Mutex<Board>>;

/// Serves the page until it is stopped.
///
/// # Errors
/// Says why the port cannot be used.
pub(crate) fn run(args: &DashboardArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &DashboardArgs) -> anyhow::Result<ExitCode> {
    let directory = env::runtime_directory().context("the home directory is unknown")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    let token = page::random_hex();
    // In one piece: who reads only the first line may close the pipe then.
    let advice =
        "Open this address in a browser. It works until this command is stopped with Ctrl-C.";
    let text = format!("http://{address}/?token={token}\n{advice}\n");
    eprint!("{text}");
    let board = SharedBoard::default();
    let mut tasks = tokio::task::JoinSet::new();
    let spans = args.otlp.as_ref().map(|url| {
        let (sender, spans) = push::channel();
        tasks.spawn(push::push(url.clone(), spans, Arc::clone(&board)));
        sender
    });
    tasks.spawn(collect::collect(directory, Arc::clone(&board), spans));
    tasks.spawn(page::accept(listener, page::Door::new(address.port(), token), board));
    let mut signals = crate::acp::Signals::listen()?;
    tokio::select! {
        () = signals.next() => {}
        Some(ended) = tasks.join_next() => ended.context("the dashboard failed")?,
    }
    Ok(ExitCode::SUCCESS)
}
