//! The suite: plays every case against an agent, each with a fresh process, home and model server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use client::{PlayOptions, ProgramSetup, Spec, Transcript, play_program_with};
use fake_model::FakeModel;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::catalogue::{self, Case, Catalogue};
use crate::error::Error;
use crate::mcp_probe::HttpProbe;
use crate::profile::{ModelFormat, Place, Profile};
use crate::verdict::{self, CaseResult, Outcome, Played};

/// What to check and how.
#[derive(Debug, Clone)]
pub struct SuiteOptions {
    /// The agent's program and its arguments.
    pub command: Vec<String>,
    /// How it is pointed at the fake model.
    pub profile: Option<Profile>,
    /// Only rows whose id contains one of these.
    pub only: Vec<String>,
    /// Only cases whose name begins with one of these.
    pub cases: Vec<String>,
    /// How many cases run at once.
    pub parallel: usize,
    /// How long to wait for a message.
    pub wait: Duration,
    /// How long to wait at the end of a case for messages that must not come.
    pub linger: Duration,
    /// The program that serves as an MCP server with the argument `mcp-probe`.
    pub mcp_command: PathBuf,
    /// The search path for programs.
    pub path: String,
}

/// Progress: how many cases of how many were played, and the name of the last one.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// Checks one agent.
#[derive(Debug)]
pub struct Suite {
    catalogue: Catalogue,
    options: SuiteOptions,
    program: PathBuf,
}

impl Suite {
    /// Prepares a check.
    ///
    /// # Errors
    /// Fails if the program does not exist or the filter matches nothing.
    pub fn new(options: SuiteOptions) -> Result<Suite, Error> {
        let mut catalogue = Catalogue::load()?;
        if !options.only.is_empty() {
            catalogue.rows.retain(|row| options.only.iter().any(|part| row.id.contains(part)));
            if catalogue.rows.is_empty() {
                return Err(Error::NoRow(options.only.join(", ")));
            }
            // A row that only a rule shows needs the messages of every case.
            let shown = |id: &str| catalogue.cases.iter().any(|case| case.rows().contains(id));
            if catalogue.rows.iter().all(|row| shown(&row.id)) {
                let rows = &catalogue.rows;
                let wanted = |case: &Case| rows.iter().any(|row| case.rows().contains(&*row.id));
                catalogue.cases.retain(wanted);
            }
        }
        if !options.cases.is_empty() {
            let is_wanted =
                |case: &Case| options.cases.iter().any(|name| case.name.starts_with(name));
            catalogue.cases.retain(is_wanted);
            if catalogue.cases.is_empty() {
                return Err(Error::NoCase(options.cases.join(", ")));
            }
        }
        let name = options.command.first().cloned().unwrap_or_default();
        let program = find_program(&name, &options.path).ok_or(Error::NoProgram(name))?;
        Ok(Suite { catalogue, options, program })
    }

    /// Plays all cases and judges every row.
    ///
    /// # Errors
    /// Fails if the catalogue is invalid. Faults of single cases are in the outcome.
    pub async fn run(self, progress: Progress<'_>) -> Result<Outcome, Error> {
        let start = Instant::now();
        let suite = Arc::new(self);
        let permits = Arc::new(Semaphore::new(suite.options.parallel.max(1)));
        let total = suite.catalogue.cases.len();
        let (mut results, mut faults) = (Vec::new(), Vec::new());
        let mut alone = Vec::new();
        let mut tasks = JoinSet::new();
        for case in suite.catalogue.cases.clone() {
            let transcript = case.transcript(suite.authenticate())?;
            if transcript.has_tag("alone") {
                alone.push((case, transcript));
                continue;
            }
            let (suite, permits) = (Arc::clone(&suite), Arc::clone(&permits));
            tasks.spawn(async move {
                // The semaphore is never closed.
                let _permit = permits.acquire_owned().await;
                suite.play(case, transcript).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            let Ok(done) = done else {
                faults.push("a case panicked".to_owned());
                continue;
            };
            collect(done, &mut results, &mut faults);
            progress(results.len(), total, results.last().map_or("", |result| &result.name));
        }
        // Times are measured without other work.
        for (case, transcript) in alone {
            let done = suite.play(case, transcript).await;
            collect(done, &mut results, &mut faults);
            progress(results.len(), total, results.last().map_or("", |result| &result.name));
        }
        results.sort_by(|one, other| one.name.cmp(&other.name));
        let (agent, version) = suite.agent_of(&results);
        Ok(Outcome {
            agent,
            version,
            command: suite.options.command.clone(),
            profile: suite.options.profile.as_ref().map(|profile| profile.name.clone()),
            revision: catalogue::REVISION.to_owned(),
            edition: catalogue::edition(),
            seconds: start.elapsed().as_secs_f64(),
            rows: verdict::judge(&suite.catalogue, &results),
            suite_faults: faults,
        })
    }

    fn authenticate(&self) -> Option<&str> {
        self.options.profile.as_ref().and_then(|profile| profile.authenticate.as_deref())
    }

    async fn play(&self, case: Case, transcript: Transcript) -> (CaseResult, Option<String>) {
        let name = case.name.to_owned();
        let (played, fault) = match self.try_play(&transcript).await {
            Ok(played) => (played, None),
            Err(err) => {
                let reason = format!("{name}: {err}");
                (Played::Skipped(format!("the suite failed: {reason}")), Some(reason))
            }
        };
        (CaseResult { name, transcript, played }, fault)
    }

    async fn try_play(&self, transcript: &Transcript) -> Result<Played, Error> {
        let needs_model = catalogue::needs_model(transcript);
        if needs_model && self.options.profile.is_none() {
            let reason = "the agent has no profile, so it has no model; see --profile";
            return Ok(Played::Skipped(reason.to_owned()));
        }
        if let Some(profile) = &self.options.profile
            && let Err(reason) = profile.script(transcript, Path::new("/"))
        {
            return Ok(Played::Skipped(reason));
        }
        let probe = HttpProbe::start().await;
        let probe = probe.map_err(|source| Error::File { path: "127.0.0.1".into(), source })?;
        let values = vec![
            ("mcp_command".to_owned(), Value::from(self.options.mcp_command.to_string_lossy())),
            ("mcp_url".to_owned(), Value::from(&*probe.url)),
        ];
        let options = PlayOptions { wait: self.options.wait, linger: self.options.linger, values };
        let started = Mutex::new(Started::default());
        let replay = play_program_with(transcript, options, |setup| {
            let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
            probe.file.get_or_init(|| setup.directory.join("mcp.txt"));
            // The agent may be started again: with the same home and the same model.
            if let Some(spec) = &started.spec {
                return spec.clone();
            }
            let spec = match self.prepare(transcript, setup) {
                Ok((spec, server)) => {
                    started.server = server;
                    spec
                }
                Err(err) => {
                    started.fault = Some(err);
                    Spec::new("true", &setup.directory)
                }
            };
            started.spec = Some(spec.clone());
            spec
        })
        .await;
        let started = started.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = started.server {
            server.stop();
        }
        match started.fault {
            Some(err) => Err(err),
            None => Ok(Played::Replay(Box::new(replay?))),
        }
    }

    /// Makes the home, starts the model server and returns the command.
    fn prepare(
        &self,
        transcript: &Transcript,
        setup: &ProgramSetup,
    ) -> Result<(Spec, Option<FakeModel>), Error> {
        let home = setup.directory.with_file_name("home");
        let file = |source| Error::File { path: home.clone(), source };
        std::fs::create_dir_all(&home).map_err(file)?;
        let mut spec = Spec::new(&self.program, &setup.directory).args(&self.options.command[1..]);
        spec.clear_env = true;
        for (name, value) in environment(&self.options.path, &home) {
            spec = spec.env(name, value);
        }
        let Some(profile) = &self.options.profile else { return Ok((spec, None)) };
        let script = profile.script(transcript, &setup.directory).map_err(Error::Model)?;
        let script_file = setup.directory.with_file_name("model.txt");
        let written = std::fs::write(&script_file, &script);
        written.map_err(|source| Error::File { path: script_file.clone(), source })?;
        let server = match profile.model {
            ModelFormat::Script => None,
            _ => Some(FakeModel::start(&script).map_err(Error::Model)?),
        };
        let model = server.as_ref().map(FakeModel::origin).unwrap_or_default();
        let place = Place { home, work: setup.directory.clone(), model, script: script_file };
        profile.write_files(&place)?;
        spec = spec.args(profile.args.iter().map(|arg| place.fill(arg)));
        for (name, value) in &profile.env {
            spec = spec.env(name, place.fill(value));
        }
        Ok((spec, server))
    }

    /// Returns the agent's name and version, as it gives them.
    fn agent_of(&self, results: &[CaseResult]) -> (String, String) {
        let logs = results.iter().filter_map(|result| match &result.played {
            Played::Replay(replay) => Some(&replay.log),
            Played::Skipped(_) => None,
        });
        let mut messages = logs.flatten().filter(|entry| entry.from_agent);
        let info = messages.find_map(|entry| entry.message.pointer("/result/agentInfo"));
        let text = |name: &str| info.and_then(|info| info[name].as_str()).map(str::to_owned);
        let fallback =
            || self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (text("name").unwrap_or_else(fallback), text("version").unwrap_or_default())
    }
}

/// What preparing a case gave.
#[derive(Default)]
struct Started {
    spec: Option<Spec>,
    server: Option<FakeModel>,
    fault: Option<Error>,
}

fn collect(
    (result, fault): (CaseResult, Option<String>),
    results: &mut Vec<CaseResult>,
    faults: &mut Vec<String>,
) {
    results.push(result);
    faults.extend(fault);
}

/// Returns the environment of an agent: nothing of ours but the search path.
pub(crate) fn environment(path: &str, home: &Path) -> Vec<(&'static str, String)> {
    let below = |name: &str| home.join(name).to_string_lossy().into_owned();
    vec![
        ("PATH", path.to_owned()),
        ("HOME", home.to_string_lossy().into_owned()),
        ("XDG_CONFIG_HOME", below(".config")),
        ("XDG_DATA_HOME", below(".local/share")),
        ("XDG_STATE_HOME", below(".local/state")),
        ("XDG_CACHE_HOME", below(".cache")),
        ("LANG", "C.UTF-8".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ]
}

/// Finds a program as a shell does, and makes its path absolute: cases run in other directories.
pub(crate) fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        return std::path::absolute(name).ok().filter(|path| path.is_file());
    }
    path.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}
