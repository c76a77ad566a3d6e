//! The engine: Docker or Podman, by its command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::{Image, failed, feed};
use crate::error::Error;
use crate::spawn::{Child, Spec, spawn};

/// The engines that are looked for.
const NAMES: [&str; 2] = ["docker", "podman"];
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// The most bytes of an answer.
const LIMIT: u64 = 64 * 1024;

/// A program that runs containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its path.
    pub program: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// What an engine says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Its version.
    pub version: String,
    /// Whether it is Podman.
    pub is_podman: bool,
    /// Whether it runs without privileges of its own.
    pub is_rootless: bool,
    /// Limits that it cannot enforce here: `memory`, `processes` or `cpus`.
    pub missing_limits: Vec<&'static str>,
}

impl EngineFacts {
    /// Returns the arguments that choose the user inside: ours, unless another is wanted.
    #[must_use]
    pub fn user_arguments(&self, wanted: Option<&str>) -> Vec<String> {
        #[cfg(unix)]
        let ours = format!(
            "{}:{}",
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw()
        );
        #[cfg(not(unix))]
        let ours = "1000:1000".to_owned();
        match (wanted, self.is_rootless, self.is_podman) {
            (Some(user), ..) => vec![format!("--user={user}")],
            (None, true, true) => vec!["--userns=keep-id".to_owned(), format!("--user={ours}")],
            // Its root is our user.
            (None, true, false) => vec!["--user=0:0".to_owned()],
            (None, false, _) => vec![format!("--user={ours}")],
        }
    }
}

impl Engine {
    /// Finds the engines in a search path: the wanted one, or all that are known.
    #[must_use]
    pub fn find(
        wanted: Option<&str>,
        search: &[PathBuf],
        environment: &[(OsString, OsString)],
    ) -> Vec<Engine> {
        let names: Vec<&str> = wanted.map_or_else(|| NAMES.to_vec(), |wanted| vec![wanted]);
        let find = |name: &str| {
            let path = Path::new(name);
            match path.is_absolute() {
                true => Some(path.to_owned()),
                false => search
                    .iter()
                    .filter(|directory| directory.is_absolute())
                    .map(|directory| directory.join(name))
                    .find(|path| path.is_file()),
            }
        };
        let found = names.into_iter().filter_map(find);
        let environment = environment.to_vec();
        found.map(|program| Engine { program, environment: environment.clone() }).collect()
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Asks it about itself.
    ///
    /// # Errors
    /// Says why it does not work.
    pub async fn facts(&self) -> Result<EngineFacts, Error> {
        let is_podman = self.name().starts_with("podman");
        let format = match is_podman {
            true => "{{.Version.Version}}|{{.Host.Security.Rootless}}|{{.Host.CgroupControllers}}",
            false => {
                "{{.ServerVersion}}|{{.SecurityOptions}}|{{.MemoryLimit}}|{{.PidsLimit}}|{{.CPUCfsQuota}}"
            }
        };
        let text = self.output(&["info", "--format", format], ANSWER).await?;
        let facts = match is_podman {
            true => facts_of_podman(&text),
            false => facts_of_docker(&text),
        };
        facts.ok_or_else(|| failed(format!("{} has no running server", self.name())))
    }

    pub(super) fn spec<const N: usize>(&self, args: [&str; N]) -> Spec {
        let mut spec = Spec::new(&self.program, "/").args(args);
        spec.env = self.environment.clone();
        spec.clear_env = true;
        spec
    }

    /// Runs it and returns its output.
    ///
    /// # Errors
    /// Says what it complains about.
    pub async fn output(&self, args: &[&str], most: Duration) -> Result<String, Error> {
        self.run(self.spec([]).args(args), None, most).await
    }

    async fn run(&self, spec: Spec, input: Option<&str>, most: Duration) -> Result<String, Error> {
        let mut child = spawn(&spec)?;
        feed(&mut child, input.unwrap_or_default()).await;
        let work = async {
            let mut text = String::new();
            if let Some(output) = child.stdout.take() {
                output.take(LIMIT).read_to_string(&mut text).await.ok();
            }
            let why = complaint(&mut child).await;
            (text, why, child.wait().await)
        };
        match timeout(most, work).await {
            Ok((text, _, Ok(status))) if status.success() => Ok(text),
            Ok((_, why, _)) => Err(failed(format!("{}: {why}", self.name()))),
            Err(_) => {
                Err(failed(format!("{} did not answer in {} s", self.name(), most.as_secs())))
            }
        }
    }

    /// Builds an image, if it is one that is built.
    pub(super) async fn make(&self, image: &Image, most: Duration) -> Result<(), Error> {
        let Image::Built { name, context, dockerfile, args } = image else { return Ok(()) };
        let mut spec = self.spec(["build", "-q", "--network=none", "-t", name, "-f", "-"]);
        for (name, value) in args {
            spec = spec.args(["--build-arg".to_owned(), format!("{name}={value}")]);
        }
        spec = spec.args([context]);
        self.run(spec, Some(dockerfile), most).await.map(drop)
    }
}

/// The limits of a container, as they are called here and by the kernel.
const LIMITS: [(&str, &str); 3] = [("memory", "memory"), ("processes", "pids"), ("cpus", "cpu")];

fn facts_of_podman(text: &str) -> Option<EngineFacts> {
    let [version, rootless, controllers] = text.trim().split('|').collect::<Vec<_>>()[..] else {
        return None;
    };
    let known: Vec<&str> = controllers.trim_matches(['[', ']']).split(' ').collect();
    let is_missing = |(_, controller): &(&str, &str)| !known.contains(controller);
    Some(EngineFacts {
        version: version.to_owned(),
        is_podman: true,
        is_rootless: rootless == "true",
        missing_limits: LIMITS.into_iter().filter(is_missing).map(|(limit, _)| limit).collect(),
    })
}

fn facts_of_docker(text: &str) -> Option<EngineFacts> {
    let (version, rest) = text.trim().split_once('|')?;
    let (security, enforced) = rest.split_once('|')?;
    let missing = LIMITS.into_iter().zip(enforced.split('|')).filter(|(_, is)| *is != "true");
    let missing_limits = missing.map(|((limit, _), _)| limit).collect();
    let (version, is_rootless) = (version.to_owned(), security.contains("name=rootless"));
    // The program answers without a server, too.
    let is_running = !version.is_empty();
    is_running.then_some(EngineFacts { version, is_podman: false, is_rootless, missing_limits })
}

/// Returns the first engine that works.
pub(super) async fn first_working(engines: &[Engine]) -> Result<(Engine, EngineFacts), Error> {
    let mut problems = Vec::new();
    for engine in engines {
        match engine.facts().await {
            Ok(facts) => return Ok((engine.clone(), facts)),
            Err(Error::Container(why)) => problems.push(why),
            Err(err) => problems.push(err.to_string()),
        }
    }
    if problems.is_empty() {
        return Err(failed("neither docker nor podman was found. Install one of them"));
    }
    Err(failed(problems.join("; ")))
}

/// Returns the last lines of what a program complains about.
pub(super) async fn complaint(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(errors) = child.stderr.take() {
        let read = async { errors.take(LIMIT).read_to_end(&mut text).await.ok() };
        timeout(ANSWER, read).await.ok();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(4);
    lines[last..].join("; ")
}
