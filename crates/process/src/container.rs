//! Containers: one more way to restrict commands, by the command line of Docker or Podman.
//!
//! A session has one container for each set of permissions. Its first process reads from a pipe that we hold: when the pipe closes,
//! because we end or are killed, it ends, and the engine removes the container with all its processes. Commands run with `exec`; the
//! first process also signals them for us. `engine` speaks to the engine, `mounts` says what is visible inside.

mod calls;
mod engine;
mod mounts;
mod pause;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::timeout;

pub use engine::{Engine, EngineFacts};
pub use mounts::Alias;

use crate::error::Error;
use crate::sandbox::{Network, Profile};
use crate::spawn::{Child, Spec, spawn};

/// How long an engine may take to start a container: it may have to pull or build the image first.
const START: Duration = Duration::from_secs(900);
/// How long it may take to start a command in a running container.
const EXEC: Duration = Duration::from_secs(60);
/// The most containers of one session, without those that one program has for itself.
const MOST: usize = 4;

/// The first process of a container. Ends with its input, and with it everything in the container.
const FIRST: &str = r#"
trap '' TERM INT HUP
echo ready
while read -r what group mark; do
  case $what in
  term) kill -TERM -- "-$group" ;;
  kill)
    kill -KILL -- "-$group"
    for process in /proc/[0-9]*; do
      number=${process#/proc/}
      [ "$number" = 1 ] && continue
      grep -qs "PURLIN_COMMAND=$mark" "$process/environ" && kill -KILL "$number"
    done ;;
  esac 2>/dev/null
done
"#;
/// Says which process a command is, then becomes the command.
const SEPARATE: &str = r#"echo $$; exec "$@""#;
const MERGED: &str = r#"echo $$; exec "$@" 2>&1"#;

/// What a container is made from.
#[derive(Debug, Clone, PartialEq)]
pub enum Image {
    /// An image by its name.
    Named(String),
    /// One that is built.
    Built {
        /// The name it gets.
        name: String,
        /// The files that the build can use.
        context: PathBuf,
        /// The text of the Dockerfile: what the user trusts, whatever is on the disk since.
        dockerfile: String,
        /// Arguments of the build.
        args: Vec<(String, String)>,
    },
}

/// The containers of one session: what they are made from, and what they may use.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerOptions {
    /// The engines to use, the first that works.
    pub engines: Vec<Engine>,
    /// The images to make, in this order. The last is used; earlier ones are built for it.
    pub images: Vec<Image>,
    /// The engine's network for commands that may use the network; `None` for its default.
    pub network: Option<String>,
    /// The most memory, in the engine's form.
    pub memory: String,
    /// The most processors.
    pub cpus: Option<f64>,
    /// The most processes and threads.
    pub processes: u64,
    /// The user inside; `None` for ours.
    pub user: Option<String>,
    /// Variables of commands.
    pub environment: BTreeMap<String, String>,
    /// Mounts beside the project, in the form of `--mount`.
    pub mounts: Vec<String>,
    /// Other names of directories inside.
    pub aliases: Vec<Alias>,
    /// Further arguments of `run`.
    pub run_args: Vec<String>,
    /// Commands to run once in a new container.
    pub after_create: Vec<Vec<String>>,
    /// Our own directory, for records of what is reserved.
    pub scratch: PathBuf,
}

/// The containers of one session. Dropping it removes them.
#[derive(Debug)]
pub struct Containers {
    options: ContainerOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    engine: Option<(Engine, EngineFacts)>,
    has_images: bool,
    running: Vec<Arc<Running>>,
}

impl State {
    /// Pauses all containers. Where that is not possible, idle ones are ended instead.
    async fn pause(&mut self, engine: &Engine) -> Result<Option<pause::Paused>, Error> {
        if self.running.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = self.running.iter().map(|it| it.name.clone()).collect();
        if let Some(paused) = pause::Paused::new(engine, &names).await? {
            return Ok(Some(paused));
        }
        for container in std::mem::take(&mut self.running) {
            match Arc::try_unwrap(container) {
                Ok(idle) => idle.end().await?,
                Err(busy) if busy.is_alive() => self.running.push(busy),
                Err(_) => {}
            }
        }
        match self.running.is_empty() {
            true => Ok(None),
            false => Err(failed(format!(
                "{} cannot pause containers here, so nothing can start with other permissions until what runs in this session's containers has ended",
                engine.name()
            ))),
        }
    }
}

/// What a container is for. Another purpose needs another container.
#[derive(Debug, PartialEq)]
struct Purpose {
    profile: Profile,
    readable: Vec<PathBuf>,
    /// Those of the hidden paths that exist.
    hidden: Vec<PathBuf>,
    /// The program that has it for itself; `None` for commands, which share containers.
    owner: Option<String>,
}

impl Purpose {
    fn new(profile: &Profile, readable: &[PathBuf], owner: Option<&str>) -> Purpose {
        let hidden = profile.hidden.iter().filter(|path| path.exists()).cloned().collect();
        let owner = owner.map(str::to_owned);
        Purpose { profile: profile.clone(), readable: readable.to_vec(), hidden, owner }
    }
}

/// A container that runs.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    /// What it was started for.
    purpose: Purpose,
    /// The pipe that keeps it alive. Before `client`, so that it is closed first.
    control: std::fs::File,
    /// The engine's program that is attached to it.
    client: std::sync::Mutex<Child>,
    /// Protected paths that did not exist.
    #[cfg(target_os = "linux")]
    _reserved: Vec<crate::sandbox::Reserved>,
}

/// A command in a container.
#[derive(Debug)]
pub(crate) struct Inside {
    container: Arc<Running>,
    /// The process inside, which leads its group.
    group: u32,
    mark: String,
}

impl Inside {
    pub(crate) fn terminate(&self) {
        self.container.send(&format!("term {}", self.group));
    }

    /// Kills the command and what it started, also what has left its group.
    pub(crate) fn kill(&self) {
        self.container.send(&format!("kill {} {}", self.group, self.mark));
    }
}

impl Running {
    fn send(&self, line: &str) {
        // Never waits. If it fails, the container is gone.
        drop((&self.control).write_all(format!("{line}\n").as_bytes()));
    }

    /// Ends it, and waits until nothing in it runs any more.
    async fn end(self) -> Result<(), Error> {
        let Running { control, client, .. } = self;
        drop(control);
        let mut client = client.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let ended = timeout(EXEC, client.wait()).await;
        ended.map_err(|_| failed("a container does not end"))?.map(drop)
    }

    fn is_alive(&self) -> bool {
        let mut client = self.client.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        matches!(client.inner.try_wait(), Ok(None))
    }
}

impl Containers {
    /// Makes the containers of a session. Starts nothing.
    #[must_use]
    pub fn new(options: ContainerOptions) -> Containers {
        Containers { options, state: Mutex::default() }
    }

    /// Returns the name of the image.
    #[must_use]
    pub fn image(&self) -> &str {
        match self.options.images.last() {
            Some(Image::Named(name) | Image::Built { name, .. }) => name,
            None => "",
        }
    }

    /// Returns the other names of directories inside.
    #[must_use]
    pub fn aliases(&self) -> &[Alias] {
        &self.options.aliases
    }

    /// Starts a program in a container that allows what the profile does. `readable` are further paths that are visible.
    ///
    /// # Errors
    /// Fails if the engine cannot start the container or the program. Never starts it elsewhere.
    pub async fn spawn(
        &self,
        spec: &Spec,
        profile: &Profile,
        readable: &[PathBuf],
    ) -> Result<Child, Error> {
        let (engine, container) = self.container(profile, readable, None).await?;
        exec(&engine, &container, &self.options.environment, spec).await
    }

    /// Starts a program in a container that it has for itself: others in a container can read its environment, with its secrets.
    ///
    /// # Errors
    /// As [`Self::spawn`].
    pub async fn spawn_alone(
        &self,
        owner: &str,
        spec: &Spec,
        profile: &Profile,
    ) -> Result<Child, Error> {
        let (engine, container) = self.container(profile, &[], Some(owner)).await?;
        exec(&engine, &container, &self.options.environment, spec).await
    }

    /// Finds or starts the container for a profile.
    async fn container(
        &self,
        profile: &Profile,
        readable: &[PathBuf],
        owner: Option<&str>,
    ) -> Result<(Engine, Arc<Running>), Error> {
        let mut state = self.state.lock().await;
        if state.engine.is_none() {
            state.engine = Some(engine::first_working(&self.options.engines).await?);
        }
        let Some((engine, facts)) = state.engine.clone() else { return Err(Error::NotConfined) };
        if !state.has_images {
            for image in &self.options.images {
                engine.make(image, START).await?;
            }
            state.has_images = true;
        }
        state.running.retain(|running| running.is_alive());
        let purpose = Purpose::new(profile, readable, owner);
        if let Some(at) = state.running.iter().position(|it| it.purpose == purpose) {
            let found = state.running.remove(at);
            state.running.push(Arc::clone(&found));
            return Ok((engine, found));
        }
        // The least recently used one goes, unless a command still runs there.
        let is_shared = |it: &&Arc<Running>| it.purpose.owner.is_none();
        while owner.is_none() && state.running.iter().filter(is_shared).count() >= MOST {
            let is_idle = |it: &Arc<Running>| Arc::strong_count(it) == 1 && is_shared(&it);
            let idle = state.running.iter().position(is_idle);
            let Some(idle) = idle else {
                return Err(failed("too many containers of this session are in use"));
            };
            state.running.remove(idle);
        }
        // Only what exists can be mounted over, and what is protected must not be created either.
        #[cfg(target_os = "linux")]
        let records = crate::sandbox::reservation_records(&self.options.scratch);
        #[cfg(target_os = "linux")]
        let (complete, reserved) = crate::sandbox::reserve_missing(profile, &records)?;
        #[cfg(not(target_os = "linux"))]
        let complete = profile.clone();
        let arguments = self.arguments(&facts, &complete, readable)?;
        // What the paths lead to is checked and mounted while nothing inside can change it.
        let paused = state.pause(&engine).await?;
        let started = match mounts::check(&complete, readable, &self.options.aliases) {
            Ok(()) => start(&engine, self.image(), &arguments, purpose).await,
            Err(err) => Err(err),
        };
        if let Some(paused) = paused {
            paused.end().await;
        }
        #[cfg(target_os = "linux")]
        let started = started.map(|started| Running { _reserved: reserved, ..started });
        let started = Arc::new(started?);
        state.running.push(Arc::clone(&started));
        drop(state);
        for command in &self.options.after_create {
            self.run_once(&engine, &started, profile, command).await?;
        }
        Ok((engine, started))
    }

    /// Runs a command of a new container and waits for it.
    async fn run_once(
        &self,
        engine: &Engine,
        container: &Arc<Running>,
        profile: &Profile,
        command: &[String],
    ) -> Result<(), Error> {
        let Some((program, args)) = command.split_first() else { return Ok(()) };
        let cwd = profile.writable.first().cloned().unwrap_or_else(|| "/".into());
        let mut spec = Spec::new(program, cwd).args(args);
        spec.merge_stderr = true;
        let mut child = exec(engine, container, &self.options.environment, &spec).await?;
        let mut tail = crate::Tail::new(2048);
        let mut chunk = vec![0; 4096];
        if let Some(mut output) = child.stdout.take() {
            while let Ok(Ok(read @ 1..)) = timeout(START, output.read(&mut chunk)).await {
                tail.push(&chunk[..read]);
            }
        }
        match child.wait().await? {
            status if status.success() => Ok(()),
            status => Err(failed(format!(
                "`{}` failed ({status}): {}. The next command runs without it",
                command.join(" "),
                tail.text().trim()
            ))),
        }
    }

    /// Returns the arguments of `run` that decide what is visible and allowed inside.
    fn arguments(
        &self,
        facts: &EngineFacts,
        profile: &Profile,
        readable: &[PathBuf],
    ) -> Result<Vec<String>, Error> {
        let options = &self.options;
        let mut arguments: Vec<String> = [
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--security-opt=label=disable",
            "--log-driver=none",
        ]
        .map(str::to_owned)
        .into();
        // Podman's machine elsewhere would look for the file on its own disk.
        if cfg!(target_os = "linux") || !facts.is_podman {
            let calls = calls::file_in(&options.scratch);
            let calls =
                calls.map_err(|err| failed(format!("the rules of the container: {err}")))?;
            arguments.push(format!("--security-opt=seccomp={}", calls.display()));
        }
        arguments.push(format!("--memory={}", options.memory));
        arguments.push(format!("--pids-limit={}", options.processes));
        arguments.extend(options.cpus.map(|cpus| format!("--cpus={cpus}")));
        match (profile.network, &options.network) {
            (Network::Off, _) => arguments.push("--network=none".to_owned()),
            (Network::On, Some(network)) => arguments.push(format!("--network={network}")),
            (Network::On, None) => {}
        }
        arguments.extend(facts.user_arguments(options.user.as_deref()));
        if options.user.is_none() {
            // Our user has no home inside.
            arguments.extend(["--env", "HOME=/tmp"].map(str::to_owned));
        }
        let is_ours = options.user.is_none();
        let empty = options.scratch.join("empty");
        std::fs::create_dir_all(&empty)
            .map_err(|err| failed(format!("{}: {err}", empty.display())))?;
        let aliases = &options.aliases;
        arguments.extend(mounts::arguments(profile, readable, aliases, is_ours, &empty)?);
        for mount in &options.mounts {
            arguments.extend(["--mount".to_owned(), mount.clone()]);
        }
        arguments.extend_from_slice(&options.run_args);
        Ok(arguments)
    }
}

/// Starts a container and waits until its first process runs.
async fn start(
    engine: &Engine,
    image: &str,
    arguments: &[String],
    purpose: Purpose,
) -> Result<Running, Error> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = now.map_or(0, |now| now.subsec_nanos());
    let name = format!("purlin-{}-{number}-{nanos:x}", std::process::id());
    let mut spec = engine.spec(["run", "--rm", "-i", "--label=dev.purlin.session", "--name"]);
    spec = spec.args([&name]).args(arguments);
    spec = spec.args(["--entrypoint", "/bin/sh", image, "-c", FIRST]);
    // Killed before the container runs, it would leave it behind; with the end of its input it ends by itself.
    let mut client = spawn(&spec)?.let_go();
    let line = first_line(&mut client, START).await;
    if line.as_deref() != Some("ready") {
        let why = engine::complaint(&mut client).await;
        return Err(failed(format!("{} cannot start it: {why}", engine.name())));
    }
    let Some(input) = client.stdin.take() else { return Err(failed("it has no input")) };
    let control = std::fs::File::from(input.into_owned_fd().map_err(Error::Wait)?);
    Ok(Running {
        name,
        purpose,
        control,
        client: std::sync::Mutex::new(client),
        #[cfg(target_os = "linux")]
        _reserved: Vec::new(),
    })
}

/// Runs a program in a container.
async fn exec(
    engine: &Engine,
    container: &Arc<Running>,
    environment: &BTreeMap<String, String>,
    spec: &Spec,
) -> Result<Child, Error> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut outer = engine.spec(["exec"]);
    if spec.keep_input {
        outer = outer.args(["-i"]);
    }
    outer = outer.args(["--workdir".into(), spec.cwd.clone().into_os_string()]);
    outer = outer.args(["--env".to_owned(), format!("PURLIN_COMMAND={mark}.")]);
    let of_session = environment.iter().map(|(name, value)| (name.into(), value.into()));
    for (name, value) in of_session.chain(spec.env.iter().cloned()) {
        let (name, value): (OsString, OsString) = (name, value);
        // By name alone, so that other users do not see the value in the list of processes. The engine's own variables stay.
        let is_of_engine = engine.environment.iter().any(|(known, _)| *known == name);
        let mut pair = name.clone();
        if is_of_engine || is_for_engine(&name) {
            pair.push("=");
            pair.push(value);
        } else {
            outer.env.push((name, value));
        }
        outer = outer.args(["--env".into(), pair]);
    }
    let script = if spec.merge_stderr { MERGED } else { SEPARATE };
    outer = outer.args([&container.name, "/bin/sh", "-c", script, "sh"]);
    outer = outer.args([&spec.program]).args(&spec.args);
    outer.keep_input = spec.keep_input;
    let mut child = spawn(&outer)?;
    if !spec.keep_input {
        child.stdin = None;
    }
    let group = first_line(&mut child, EXEC).await.and_then(|line| line.parse().ok());
    let Some(group) = group else {
        let why = engine::complaint(&mut child).await;
        return Err(failed(format!("{} cannot run it: {why}", engine.name())));
    };
    let container = Arc::clone(container);
    child.inside = Some(Inside { container, group, mark: format!("{mark}\\.") });
    Ok(child)
}

/// Tells whether a variable would change what the engine does.
fn is_for_engine(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let prefixes = ["DOCKER", "CONTAINER", "BUILD", "PODMAN", "LD_", "GO", "XDG_", "SSL_", "SSH_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || ["PATH", "HOME", "TMPDIR"].contains(&&*name)
        || name.ends_with("_PROXY")
}

/// Reads the first line of a program's output, and nothing behind it.
async fn first_line(child: &mut Child, most: Duration) -> Option<String> {
    let output = child.stdout.as_mut()?;
    let read = async {
        let mut line = Vec::new();
        while line.len() < 32 {
            match output.read_u8().await {
                Ok(b'\n') => return String::from_utf8(line).ok(),
                Ok(byte) => line.push(byte),
                Err(_) => return None,
            }
        }
        None
    };
    timeout(most, read).await.ok().flatten().map(|line| line.trim().to_owned())
}

/// Writes the whole input of a program.
async fn feed(child: &mut Child, text: &str) {
    if let Some(mut input) = child.stdin.take() {
        // A program may end without reading it.
        input.write_all(text.as_bytes()).await.ok();
    }
}

fn failed(why: impl Into<String>) -> Error {
    Error::Container(why.into())
}
