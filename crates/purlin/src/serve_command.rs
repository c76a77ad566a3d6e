//! `purlin serve`: the agent for many editors, over the network.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use engine::hub::HubOptions;
use serve::network::{Network, NetworkOptions, check_token_line, token_line};
use settings::{Config, Settings};
use tokio_util::sync::CancellationToken;

use crate::acp::{self, AcpOptions, Models, Signals};
use crate::observer::{self, Observer};
use crate::{assemble, env, log, storage};

/// The arguments of `purlin serve`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArgs {
    /// Address to listen on; beyond this machine only with `--tokens`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4096")]
    listen: SocketAddr,
    /// File of tokens, one line for each; add one with `purlin serve token`
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Certificate chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name under which clients reach the server; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Origin of web pages that may use the server, such as https://ide.example.com; may be repeated
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// Seconds that running turns have to end when the server stops
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
    /// Model: PROVIDER/MODEL or script:FILE
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Use this configuration file instead of the default purlin.json
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<ServeCommand>,
}

#[derive(Debug, Subcommand)]
enum ServeCommand {
    /// Make a token for a user, print it once, and add its hash to the file
    Token(TokenArgs),
}

#[derive(Debug, Args)]
struct TokenArgs {
    /// Name of the user; all tokens of a name share its sessions
    name: String,
    /// File of tokens
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    /// Directory that all sessions of the user must be in
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Last day on which the token is valid, such as 2030-12-31
    #[arg(long, value_name = "DAY")]
    expires: Option<String>,
}

/// Serves until a signal, or adds a token.
///
/// # Errors
/// Says what is wrong with the address, the tokens, the certificate or the model.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    if let Some(ServeCommand::Token(args)) = &args.command {
        return add_token(args);
    }
    log::log_panics();
    let (config, problems) = env::load_config(args.config.clone());
    problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    if let Some(model) = &args.model {
        acp::check_model(model, &config)?;
    }
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(listen(args, config, problems))?;
    tools::bash::finish_checks();
    log::flush();
    // Threads may still wait for a model or a file.
    std::process::exit(0)
}

async fn listen(args: ServeArgs, config: Config, problems: Vec<String>) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut signals = Signals::listen()?;
    let options = AcpOptions {
        model: args.model,
        config: args.config,
        forget: true,
        ..AcpOptions::default()
    };
    let Models { mut hub, is_scripted, .. } = acp::find_models(&options, &config)?;
    // Those who watch get spans only: the messages of several connections would mix.
    let observer = Observer::new(None, None)?.passing_context_on(config.trace_context);
    let observer = Arc::new(observer);
    hub.journal = Arc::new(storage::observed_store(&config, observer.clone()));
    hub.spans = Some(observer.clone());
    let settings = Settings::new(config, problems, env::directories());
    let helper = std::env::current_exe().unwrap_or_default();
    let workspaces = assemble::workspaces(settings, helper, is_scripted);
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(tls_config(cert, key)?),
        _ => None,
    };
    let scheme = if tls.is_some() { "wss" } else { "ws" };
    let network = Network::bind(NetworkOptions {
        listen: args.listen,
        tls,
        tokens: args.tokens,
        hosts: args.hosts,
        origins: args.origins,
        hub: Box::new(move || shared_options(&hub)),
        watch: Box::new(observer::message_log),
        workspaces: Arc::clone(&workspaces),
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        drain: Duration::from_secs(args.drain),
        stop: stop.clone(),
    });
    let network = network.await.map_err(anyhow::Error::msg)?;
    observer.listen();
    eprintln!("Listening on {scheme}://{}/acp", network.address()?);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(network.run());
    tokio::select! {
        () = signals.next() => stop.cancel(),
        Some(ended) = tasks.join_next() => return ended.context("the server failed"),
    }
    // A second signal does not wait for turns.
    tokio::select! {
        () = signals.next() => {}
        ended = tasks.join_next() => ended.transpose().map(drop).context("the server failed")?,
    }
    workspaces.end().await;
    observer.end();
    Ok(())
}

/// Returns what the sessions of one more tenant share. Preferences of one user are not those of another.
fn shared_options(of: &HubOptions) -> HubOptions {
    HubOptions {
        models: Arc::clone(&of.models),
        find_models: of.find_models.clone(),
        preferences: None,
        journal: Arc::clone(&of.journal),
        clock: Arc::clone(&of.clock),
        spans: of.spans.clone(),
    }
}

fn tls_config(cert: &Path, key: &Path) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read the certificate {}", cert.display()))?;
    let key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read the private key {}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Adds a token to the file and prints it. Only its hash is stored.
fn add_token(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let root = args.root.as_ref().map(std::fs::canonicalize).transpose();
    let root = root.context("`--root` must be a directory")?.map(|root| root.display().to_string());
    if root.as_ref().is_some_and(|root| root.contains(char::is_whitespace)) {
        anyhow::bail!("`--root` must not contain spaces");
    }
    let line = token_line(&args.name, &token, root.as_deref(), args.expires.as_deref());
    check_token_line(&line).map_err(anyhow::Error::msg)?;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let shown = args.tokens.display();
    let mut file = options.open(&args.tokens).with_context(|| format!("cannot open {shown}"))?;
    file.write_all(line.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    crate::stdout::print(&format!("{token}\n"))?;
    eprintln!("Clients send it as `Authorization: Bearer TOKEN`. It is not shown again.");
    Ok(ExitCode::SUCCESS)
}
