//! The terminal client beside the terminals of other agents, all as they are installed: first frame, rest, memory, and what is
//! left when the terminal dies. Nobody logs in and no model is asked, so the network is not needed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::programs::Programs;
use super::pty::{Pty, milliseconds};
use super::table::{Goal, Row};
use crate::program;

/// How often each program is started.
const ROUNDS: usize = 5;

/// How long a program may take to come to rest, and how long it is then watched.
const SETTLE: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_secs(5);

/// How long processes may take to end when their terminal is gone.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// The packages: a name for npm, and the version.
const PACKAGES: [(&str, &str); 3] = [
    ("codex", "npm:@openai/codex@0.166.0-linux-x64"),
    ("claude", "npm:@anthropic-ai/claude-code-linux-x64@2.1.327"),
    ("opencode", "npm:opencode-linux-x64-baseline@1.18.33"),
];

/// What was measured of one program.
#[derive(Debug, Default)]
struct Figures {
    first: Vec<f64>,
    rest: Vec<f64>,
    memory: Vec<f64>,
    left: Vec<f64>,
}

/// Measures all of them, one after the other in each round.
pub(crate) fn terminals(programs: &Programs) -> Result<Vec<Row>> {
    let directory = install()?;
    let home = program::target()?.join("bench-terminals/home");
    let project = home.join("project");
    std::fs::create_dir_all(project.join(".git"))?;
    let script = home.join("play.acp");
    std::fs::write(&script, "model text \"Hello.\\n\"\n")?;
    let model = format!("script:{}", script.display());
    let ours = vec![programs.purlin.display().to_string(), "chat".into(), "--model".into(), model];
    // Claude Code ends without a network, unless it has been set up and has a server of its own.
    let trusted = json!({ project.display().to_string(): { "hasTrustDialogAccepted": true } });
    let settings = json!({ "hasCompletedOnboarding": true, "theme": "dark", "projects": trusted });
    std::fs::write(home.join(".claude.json"), settings.to_string())?;
    let program = |package: &str| -> Result<String> {
        Ok(find(&directory.join(package), package)?.display().to_string())
    };
    let nowhere = ["env", "ANTHROPIC_BASE_URL=http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN=none"]
        .map(str::to_owned);
    let others = [
        ("Codex 0.166", vec![program("codex")?]),
        ("Claude Code", [&nowhere[..], &[program("claude")?]].concat()),
        ("OpenCode", vec![program("opencode")?]),
    ];
    let mut figures: Vec<Figures> = Vec::new();
    figures.resize_with(others.len() + 1, Figures::default);
    for _ in 0..ROUNDS {
        measure(&ours, &home, &project, &mut figures[0]).context("Purlin")?;
        for ((name, words), figures) in others.iter().zip(&mut figures[1..]) {
            measure(words, &home, &project, figures).context(*name)?;
        }
    }
    let (ours, rest) = figures.split_first().context("nothing was measured")?;
    let mut rows = Vec::new();
    for ((name, _), other) in others.iter().zip(rest) {
        let row = |what: &str, unit, ours: &Vec<f64>, theirs: &Vec<f64>| {
            Row::new(what, unit, ours.clone()).beside(name, theirs.clone())
        };
        rows.push(row("first output", "ms", &ours.first, &other.first).goal(Goal::Times(1.0)));
        rows.push(row("processor time of 5 s at rest", "ms", &ours.rest, &other.rest));
        rows.push(
            row("memory with children", "MB", &ours.memory, &other.memory).goal(Goal::Times(1.0)),
        );
        rows.push(row("processes left behind", "", &ours.left, &other.left));
    }
    Ok(rows)
}

fn measure(words: &[String], home: &Path, project: &Path, figures: &mut Figures) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut client = Pty::open(&words, home, project)?;
    client.first_visible()?;
    figures.first.push(milliseconds(client.started.elapsed()));
    client.count_until(|_| false, SETTLE)?;
    let family = family(client.child.id())?;
    let before = processor_time(&family);
    client.count_until(|_| false, REST)?;
    figures.rest.push((processor_time(&family) - before) * 1000.0);
    anyhow::ensure!(is_alive(client.child.id()), "it ended by itself");
    figures.memory.push(family.iter().map(|pid| memory(*pid)).sum::<f64>() / 1e6);
    // Closes our end of the terminal, as a window that is closed does. Nobody is told.
    client.hang_up();
    std::thread::sleep(AFTERWARDS);
    let left: Vec<u32> = family.into_iter().filter(|pid| is_alive(*pid)).collect();
    figures.left.push(left.len() as f64);
    for pid in left {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
    }
    Ok(())
}

/// Installs the programs, once.
fn install() -> Result<PathBuf> {
    let directory = program::target()?.join("bench-terminals");
    std::fs::create_dir_all(&directory)?;
    let modules = directory.join("node_modules");
    let names: Vec<String> =
        PACKAGES.iter().map(|(name, package)| format!("{name}@{package}")).collect();
    if !PACKAGES.iter().all(|(name, _)| modules.join(name).is_dir()) {
        let at = directory.display().to_string();
        let mut words = vec!["npm", "install", "--prefix", &at, "--no-audit", "--no-fund"];
        words.extend(names.iter().map(String::as_str));
        program::must_succeed(&words)?;
    }
    Ok(modules)
}

/// Finds the program of a package.
fn find(package: &Path, name: &str) -> Result<PathBuf> {
    let mut open = vec![package.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_stem().is_some_and(|stem| stem == name)
                && std::fs::metadata(&path)?.len() > 1_000_000
            {
                return Ok(path);
            }
        }
    }
    anyhow::bail!("{} has no program {name}", package.display())
}

/// Returns a process and everything that it has started.
fn family(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if let Some(fields) = stat(pid)
            && let Some(parent) = fields.get(1).and_then(|parent| parent.parse::<u32>().ok())
        {
            parents.push((pid, parent));
        }
    }
    let mut family = vec![root];
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    Ok(family)
}

/// Returns the fields of `/proc/PID/stat` after the name: state, parent and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields.first().is_some_and(|state| state != "Z"))
}

fn processor_time(family: &[u32]) -> f64 {
    let ticks = |pid: &u32| {
        let fields = stat(*pid)?;
        Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
    };
    family.iter().filter_map(ticks).sum::<f64>() / 100.0
}

/// Returns the memory that belongs to a process alone, and its share of what it has in common with others.
fn memory(pid: u32) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}
