//! `purlin container`: the agent itself in a container, for an editor that starts it over stdin and stdout.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use anyhow::Context;
use clap::{Args, Subcommand};
use process::Spec;
use process::container::Engine;

use crate::env;

/// The recipe of the image.
const DOCKERFILE: &str = include_str!("../../../deploy/container/Dockerfile");
/// The name of the image, unless the user says otherwise.
const IMAGE: &str = "purlin";
/// The volume with sessions, keys and saved answers.
const VOLUME: &str = "purlin-state";
/// Where that is inside.
const STATE: &str = "/state";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum ContainerCommand {
    /// Build the image from this program
    Build(BuildArgs),
    /// Start the agent for a project, on stdin and stdout
    Run(Box<RunArgs>),
}

/// The arguments of `purlin container build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Name of the image
    #[arg(long, value_name = "NAME", default_value = IMAGE)]
    image: String,
    /// Image to start from
    #[arg(long, value_name = "IMAGE")]
    base: Option<String>,
    /// Debian packages to install in it
    #[arg(long, value_name = "LIST")]
    packages: Option<String>,
    /// docker, podman or a path
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<String>,
}

/// The arguments of `purlin container run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Name of the image
    #[arg(long, value_name = "NAME", default_value = IMAGE)]
    image: String,
    /// Volume for sessions and keys
    #[arg(long, value_name = "NAME", default_value = VOLUME)]
    state: String,
    /// The engine's network; without one the agent reaches no model
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Pass on this variable; repeatable. API keys of providers and PURLIN_* are passed on anyway
    #[arg(long = "env", value_name = "NAME")]
    variables: Vec<String>,
    /// docker, podman or a path
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<String>,
    /// The project
    #[arg(value_name = "FOLDER")]
    directory: PathBuf,
    /// Arguments of the program in the container; `acp` without any
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// Says what failed.
pub(crate) fn run(command: ContainerCommand) -> anyhow::Result<ExitCode> {
    match command {
        ContainerCommand::Build(args) => build(&args),
        ContainerCommand::Run(args) => start(&args),
    }
}

/// Finds the first engine that works.
fn engine(wanted: Option<&str>) -> anyhow::Result<Engine> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let machine = env::this_machine();
    let mut problems = Vec::new();
    for engine in Engine::find(wanted, &machine.search, &machine.engine_environment) {
        match runtime.block_on(engine.facts()) {
            Ok(_) => return Ok(engine),
            Err(err) => problems.push(err.to_string()),
        }
    }
    if problems.is_empty() {
        anyhow::bail!("neither docker nor podman was found. Install one of them");
    }
    anyhow::bail!("{}", problems.join("; "))
}

fn build(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let engine = engine(args.engine.as_deref())?;
    let program = std::env::current_exe()?;
    let context = tempdir(&env::temporary())?;
    let outcome = build_in(&context, &program, &engine, args);
    std::fs::remove_dir_all(&context).ok();
    anyhow::ensure!(outcome?.success(), "{} could not build the image", engine.name());
    Ok(ExitCode::SUCCESS)
}

fn build_in(
    context: &Path,
    program: &Path,
    engine: &Engine,
    args: &BuildArgs,
) -> anyhow::Result<ExitStatus> {
    std::fs::copy(program, context.join("purlin")).context("cannot copy the program")?;
    std::fs::write(context.join("Dockerfile"), DOCKERFILE)?;
    let mut spec = Spec::new(&engine.program, "/").args(["build", "-t", &args.image]);
    let set = [("BASE", &args.base), ("PACKAGES", &args.packages)];
    for (name, value) in set.into_iter().filter_map(|(name, it)| Some((name, it.as_ref()?))) {
        spec = spec.args(["--build-arg".to_owned(), format!("{name}={value}")]);
    }
    if args.packages.as_deref() == Some("") {
        // Nothing is downloaded, and an engine without rights may have no network to offer.
        spec = spec.args(["--network=none"]);
    }
    spec = spec.args([context.as_os_str()]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(process::run_on_terminal(&spec))?)
}

/// Makes a directory that only we can read.
fn tempdir(parent: &Path) -> anyhow::Result<PathBuf> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let directory = parent.join(format!("purlin-image-{}-{now}", std::process::id()));
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

fn start(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let directory = args.directory.canonicalize();
    let directory = directory.with_context(|| args.directory.display().to_string())?;
    anyhow::ensure!(directory.is_dir(), "{} is not a folder", directory.display());
    let engine = engine(args.engine.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let facts = runtime.block_on(engine.facts())?;
    let spec = Spec::new(&engine.program, "/").args(arguments(args, &directory, &facts)?);
    // From here on the engine's program is what the editor started: it ends with it, however it ends.
    Err(process::replace_this_process(&spec).into())
}

/// Returns the arguments of the engine.
fn arguments(
    args: &RunArgs,
    directory: &Path,
    facts: &process::container::EngineFacts,
) -> anyhow::Result<Vec<OsString>> {
    let mut all: Vec<OsString> =
        ["run", "--rm", "-i", "--read-only", "--tmpfs=/tmp:exec,mode=1777", "--cap-drop=ALL"]
            .map(Into::into)
            .into();
    all.extend(
        ["--security-opt=no-new-privileges", "--security-opt=label=disable", "--log-driver=none"]
            .map(Into::into),
    );
    all.extend(facts.user_arguments(None).into_iter().map(Into::into));
    let mount = |kind: &str, source: &str, target: &str, end: &str| -> anyhow::Result<OsString> {
        let plain = |path: &str| !path.contains([',', '"', '\n']);
        anyhow::ensure!(
            plain(source) && plain(target),
            "{source} has a comma or a quote in its name"
        );
        Ok(format!("--mount=type={kind},source={source},target={target}{end}").into())
    };
    let project = directory.to_str().context("the folder's name is not valid UTF-8")?;
    all.push(mount("bind", project, project, "")?);
    all.push(mount("volume", &args.state, STATE, "")?);
    if let Some(config) = env::directories().config.filter(|config| config.is_dir()) {
        let inside = format!("{STATE}/.config/purlin");
        all.push(mount("bind", &config.to_string_lossy(), &inside, ",readonly")?);
    }
    all.extend([format!("--workdir={project}").into(), format!("--env=HOME={STATE}").into()]);
    all.extend(args.network.iter().map(|network| format!("--network={network}").into()));
    // By name alone, so that no key is in the list of processes.
    for name in env::for_container().into_iter().chain(args.variables.iter().cloned()) {
        all.push(format!("--env={name}").into());
    }
    all.push(args.image.clone().into());
    match args.arguments.is_empty() {
        true => all.push("acp".into()),
        false => all.extend(args.arguments.iter().map(Into::into)),
    }
    Ok(all)
}
