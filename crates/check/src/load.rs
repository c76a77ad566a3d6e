//! Load tests: many sessions, turns and chunks, long histories, large files, slow readers, cancels, and ramps.
//!
//! One agent process serves one scenario. Model and client run on this machine; everything has a limit. `measure` samples
//! the agent's processes, `report` prints.

pub mod measure;
pub mod report;
mod session;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Connection, Grace, Host, HostOptions, Permission, Spec};
use fake_model::FakeModel;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::Error;
use crate::profile::{ModelFormat, Place, Profile};
use crate::suite::{environment, find_program};
use measure::{Percentiles, Sample, Sampler};
use session::{Counts, Work};

/// Nothing runs longer.
const LONGEST: Duration = Duration::from_secs(300);

/// What an agent is put under load with.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The agent's program and its arguments.
    pub command: Vec<String>,
    /// How it is pointed at the fake model.
    pub profile: Profile,
    /// The search path for programs.
    pub path: String,
    /// Seconds after which a scenario is stopped.
    pub limit: Duration,
}

/// One scenario.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Sessions at once.
    pub sessions: usize,
    /// Turns in each session, one after the other.
    pub turns: usize,
    /// Chunks in each answer of the model.
    pub chunks: usize,
    /// Bytes in each chunk, or in the file that is read.
    pub size: usize,
    /// What is special.
    pub kind: Kind,
}

/// What is special about a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nothing.
    Plain,
    /// Every turn is cancelled after its first text.
    Cancel,
    /// The client waits before it reads an update.
    SlowReader,
    /// Every turn reads a file of `size` bytes.
    Files,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The scenario.
    pub scenario: Scenario,
    /// How long it took.
    pub seconds: f64,
    /// From a prompt to its answer, in milliseconds.
    pub turn: Percentiles,
    /// From a prompt to its first text, in milliseconds.
    pub first: Percentiles,
    /// Updates per second.
    pub updates_per_second: f64,
    /// Text of the model per second, in MB.
    pub megabytes_per_second: f64,
    /// Turns that ended.
    pub turns: usize,
    /// Turns that failed, and why the first did.
    pub failed: usize,
    /// Why the first turn failed, or why the scenario was stopped.
    pub failure: Option<String>,
    /// CPU seconds of the agent's processes.
    pub cpu: f64,
    /// CPU seconds of this program, its model server included.
    pub own_cpu: f64,
    /// The most memory of the agent's processes, in MB.
    pub peak: f64,
    /// CPU and memory over time.
    pub samples: Vec<Sample>,
}

/// The measurements of one agent.
#[derive(Debug, Clone, Serialize)]
pub struct LoadOutcome {
    /// The agent's own name, or its command.
    pub agent: String,
    /// Its version.
    pub version: String,
    /// All scenarios that ran.
    pub measured: Vec<Measured>,
}

/// Returns the usual scenarios around a shape.
#[must_use]
pub fn scenarios(sessions: usize, turns: usize, chunks: usize, size: usize) -> Vec<Scenario> {
    let plain = Scenario { name: "sessions", sessions, turns, chunks, size, kind: Kind::Plain };
    vec![
        plain,
        // Ten turns: some agents allow no more in a minute.
        Scenario { name: "history", sessions: 1, turns: 10, chunks: 1000, size: 100, ..plain },
        Scenario {
            name: "large chunks",
            sessions: sessions.min(8),
            turns: 1,
            chunks: 10,
            size: 2048,
            ..plain
        },
        Scenario {
            name: "files",
            sessions: sessions.min(8),
            turns: 1,
            chunks: 1,
            size: 1_000_000,
            kind: Kind::Files,
        },
        Scenario {
            // Enough text to fill the pipe and what is between the agent and the reader.
            name: "slow reader",
            sessions: sessions.min(8),
            turns: 1,
            chunks: 500,
            size: 1024,
            kind: Kind::SlowReader,
        },
        Scenario {
            name: "cancels",
            sessions,
            turns: turns.clamp(1, 5),
            kind: Kind::Cancel,
            ..plain
        },
    ]
}

/// Returns a ramp: the same turn in more and more sessions.
#[must_use]
pub fn ramp(most: usize, chunks: usize, size: usize) -> Vec<Scenario> {
    let step =
        |sessions| Scenario { name: "ramp", sessions, turns: 1, chunks, size, kind: Kind::Plain };
    let doubled = std::iter::successors(Some(1), |count| Some(count * 2));
    doubled.take_while(|count| *count <= most).map(step).collect()
}

/// Runs scenarios one after the other, each with a fresh process. A ramp ends at its first failure.
///
/// # Errors
/// Fails if the agent cannot be started.
pub async fn run(
    options: &LoadOptions,
    scenarios: &[Scenario],
    progress: &mut dyn FnMut(&Scenario),
) -> Result<LoadOutcome, Error> {
    let mut outcome =
        LoadOutcome { agent: String::new(), version: String::new(), measured: Vec::new() };
    let mut is_broken = false;
    for scenario in scenarios {
        if scenario.name == "ramp" && is_broken {
            break;
        }
        progress(scenario);
        let (measured, name, version) = run_one(options, *scenario).await?;
        is_broken = scenario.name == "ramp" && measured.failure.is_some();
        if !name.is_empty() {
            (outcome.agent, outcome.version) = (name, version);
        }
        outcome.measured.push(measured);
    }
    if outcome.agent.is_empty() {
        outcome.agent = options.command.first().cloned().unwrap_or_default();
    }
    Ok(outcome)
}

async fn run_one(
    options: &LoadOptions,
    scenario: Scenario,
) -> Result<(Measured, String, String), Error> {
    let place = tempfile::tempdir();
    let place = place.map_err(|source| Error::File { path: PathBuf::from("temp"), source })?;
    let (spec, model) = prepare(options, scenario, place.path())?;
    let work = spec.cwd.clone();
    let host = Host::new(HostOptions {
        files: true,
        terminals: false,
        cwd: work.clone(),
        permission: Permission::AllowOnce,
    });
    let mut connection = Connection::start(&spec, host)?;
    let sampler = Sampler::new(connection.process_id());
    let limit = options.limit.min(LONGEST);
    let until = tokio::time::Instant::now() + limit;
    let playing = play(&mut connection, options, scenario, &work, sampler, until);
    // An agent that does not even open its sessions has no measurements.
    let played = timeout(limit + Duration::from_secs(1), playing).await;
    let result = match played {
        Ok(done) => done?,
        Err(_) => {
            let reason = format!("its sessions were not open after {} s", limit.as_secs());
            (Measured::stopped(scenario, limit, reason), String::new(), String::new())
        }
    };
    // How the agent ends is not measured.
    connection
        .end(Grace { after_close: Duration::from_secs(1), after_term: Duration::from_secs(1) })
        .await
        .ok();
    if let Some(model) = model {
        model.stop();
    }
    Ok(result)
}

/// Makes the home and the files, starts the model server and returns the command.
fn prepare(
    options: &LoadOptions,
    scenario: Scenario,
    root: &Path,
) -> Result<(Spec, Option<FakeModel>), Error> {
    let (home, work) = (root.join("home"), root.join("w"));
    let made = std::fs::create_dir_all(&home).and_then(|()| std::fs::create_dir_all(&work));
    let big = work.join("big.txt");
    let lines = "some text in a line of a file\n".repeat(scenario.size / 30 + 1);
    let made = made.and_then(|()| match scenario.kind {
        Kind::Files => std::fs::write(&big, lines),
        _ => Ok(()),
    });
    made.map_err(|source| Error::File { path: root.to_owned(), source })?;
    let profile = &options.profile;
    let script = session::script(profile, scenario, &big)?;
    let script_file = root.join("model.txt");
    let written = std::fs::write(&script_file, &script);
    written.map_err(|source| Error::File { path: script_file.clone(), source })?;
    let model = match profile.model {
        ModelFormat::Script => None,
        _ => Some(FakeModel::start(&script).map_err(Error::Model)?),
    };
    let url = model.as_ref().map(FakeModel::origin).unwrap_or_default();
    let place = Place { home: home.clone(), work: work.clone(), model: url, script: script_file };
    profile.write_files(&place)?;
    let name = options.command.first().cloned().unwrap_or_default();
    let program = find_program(&name, &options.path).ok_or(Error::NoProgram(name))?;
    let mut spec = Spec::new(program, &work).args(&options.command[1..]);
    spec = spec.args(profile.args.iter().map(|arg| place.fill(arg)));
    spec.clear_env = true;
    for (name, value) in environment(&options.path, &home) {
        spec = spec.env(name, value);
    }
    for (name, value) in &profile.env {
        spec = spec.env(name, place.fill(value));
    }
    Ok((spec, model))
}

async fn play(
    connection: &mut Connection,
    options: &LoadOptions,
    scenario: Scenario,
    work: &Path,
    mut sampler: Sampler,
    until: tokio::time::Instant,
) -> Result<(Measured, String, String), Error> {
    let caller = connection.caller();
    let capabilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": capabilities,
        "clientInfo": { "name": "load", "version": "1.0.0" } });
    let welcome: Value = caller.call("initialize", &hello).await?;
    if let Some(method) = &options.profile.authenticate {
        let _: Value = caller.call("authenticate", &json!({ "methodId": method })).await?;
    }
    let counts = Arc::new(Counts::default());
    let mut sessions = Vec::new();
    for _ in 0..scenario.sessions {
        let new = json!({ "cwd": work, "mcpServers": [] });
        let session: Value = caller.call("session/new", &new).await?;
        let id = session["sessionId"].as_str().unwrap_or_default().to_owned();
        counts.add_session(&id);
        sessions.push(id);
    }
    // Sessions are open; from here on, only turns are measured.
    while connection.ready_update().is_some() {}
    sampler.begin();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, session) in sessions.into_iter().enumerate() {
        let work =
            Work { caller: caller.clone(), session, index, scenario, counts: Arc::clone(&counts) };
        tasks.spawn(work.run());
    }
    let mut results = Vec::new();
    let mut is_late = false;
    let mut tick = tokio::time::interval(measure::INTERVAL);
    loop {
        tokio::select! {
            Some(update) = connection.next_update() => {
                counts.count(update.raw());
                if scenario.kind == Kind::SlowReader {
                    tokio::time::sleep(session::SLOW_READER).await;
                }
            }
            _ = tick.tick() => sampler.sample(),
            done = tasks.join_next() => match done {
                Some(Ok(turns)) => results.extend(turns),
                Some(Err(_)) => {}
                None => break,
            },
            () = tokio::time::sleep_until(until) => {
                is_late = true;
                break;
            }
        }
    }
    while let Some(update) = connection.ready_update() {
        counts.count(update.raw());
    }
    sampler.sample();
    let mut measured = Measured::new(scenario, start.elapsed(), &results, &counts, sampler);
    if is_late {
        measured.failed = scenario.sessions * scenario.turns - measured.turns;
        measured.failure = Some(format!("not done after {} s", options.limit.as_secs()));
    }
    let text = |name: &str| welcome["agentInfo"][name].as_str().unwrap_or_default().to_owned();
    Ok((measured, text("name"), text("version")))
}

impl Measured {
    /// Returns whether a scenario failed that must not: the end of a ramp is what it looks for.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.failure.is_some() && self.scenario.name != "ramp"
    }

    fn new(
        scenario: Scenario,
        took: Duration,
        results: &[session::Turn],
        counts: &Counts,
        sampler: Sampler,
    ) -> Measured {
        let seconds = took.as_secs_f64();
        let of = |pick: fn(&session::Turn) -> Option<Duration>| {
            Percentiles::of(
                results.iter().filter_map(pick).map(|time| time.as_secs_f64() * 1e3).collect(),
            )
        };
        let (updates, bytes) = counts.totals();
        let failure = results.iter().find_map(|turn| turn.failure.clone());
        Measured {
            scenario,
            seconds,
            turn: of(|turn| turn.failure.is_none().then_some(turn.took)),
            first: of(|turn| turn.first),
            updates_per_second: updates as f64 / seconds,
            megabytes_per_second: bytes as f64 / seconds / 1e6,
            turns: results.iter().filter(|turn| turn.failure.is_none()).count(),
            failed: results.iter().filter(|turn| turn.failure.is_some()).count(),
            failure,
            cpu: sampler.cpu(),
            own_cpu: sampler.own_cpu(),
            peak: sampler.peak(),
            samples: sampler.samples,
        }
    }

    fn stopped(scenario: Scenario, took: Duration, reason: String) -> Measured {
        let none = || Percentiles::of(Vec::new());
        Measured {
            scenario,
            seconds: took.as_secs_f64(),
            turn: none(),
            first: none(),
            updates_per_second: 0.0,
            megabytes_per_second: 0.0,
            turns: 0,
            failed: scenario.sessions * scenario.turns,
            failure: Some(reason),
            cpu: 0.0,
            own_cpu: 0.0,
            peak: 0.0,
            samples: Vec::new(),
        }
    }
}
