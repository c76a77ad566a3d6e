//! `cargo xtask tasks`: small tasks for an agent and a model, with a check for each. docs/internals/tasks.md describes it.
//!
//! Every run gets a fresh copy of the task's project, a fresh home, and a proxy of its own in front of the model server, which
//! counts. What a run leaves behind stays in `target/tasks/AGENT/TASK-NUMBER` until the next one.

pub(crate) mod agents;
mod ending;
mod http;
mod limited;
mod proxy;
mod report;
mod task_set;
mod tokens;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::program;
use agents::{Agent, Assignment};
use ending::BadEnd;
use http::Endpoint;
use limited::{Exit, Program};
use proxy::{Exchange, Proxy};
use report::Run;
use task_set::Task;
use tokens::Tokens;

/// The port on which llama-server listens unless told otherwise.
const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:8080/v1";
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// The options on the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    agents: Vec<String>,
    /// A template for an agent that the bench does not know.
    command: Option<String>,
    /// Purlin's program, if it is not to be built.
    purlin: Option<String>,
    endpoint: String,
    /// The first model of the server, unless set.
    model: Option<String>,
    set: String,
    only: Vec<String>,
    runs: usize,
    limit: Duration,
    is_json: bool,
}

impl Options {
    /// Reads the arguments after `tasks`.
    pub(crate) fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options {
            agents: Vec::new(),
            command: None,
            purlin: None,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            model: None,
            set: "seen".to_owned(),
            only: Vec::new(),
            runs: 1,
            limit: Duration::from_secs(600),
            is_json: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--json" {
                options.is_json = true;
                continue;
            }
            let value = words.next().with_context(|| format!("`{word}` needs a value"))?;
            let text = (*value).to_owned();
            match *word {
                "--agent" => options.agents.push(text),
                "--command" => options.command = Some(text),
                "--purlin" => options.purlin = Some(text),
                "--endpoint" => options.endpoint = text,
                "--model" => options.model = Some(text),
                "--set" => options.set = text,
                "--only" => options.only.push(text),
                "--runs" => options.runs = value.parse().context("--runs needs a number")?,
                "--timeout" => {
                    let seconds = value.parse().context("--timeout needs a number of seconds")?;
                    options.limit = Duration::from_secs(seconds);
                }
                other => anyhow::bail!("unknown argument `{other}` of `tasks`"),
            }
        }
        if options.agents.is_empty() && options.command.is_none() {
            options.agents.push("purlin".to_owned());
        }
        Ok(options)
    }
}

/// Runs the tasks, prints the table, and returns true: a task that is not done is a result, not a failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let endpoint = Endpoint::parse(&options.endpoint)?;
    let tasks = task_set::read(&program::root().join("tasks"), &options.set, &options.only)?;
    let known = options.agents.iter().map(|name| Agent::find(name, options.purlin.as_deref()));
    let other = options.command.iter().map(|template| Agent::command(template));
    let agents = known.chain(other).collect::<Result<Vec<Agent>>>()?;
    let model = match &options.model {
        Some(model) => model.clone(),
        None => first_model(&endpoint)?,
    };
    let place = program::target()?.join("tasks");
    let bench = Bench { place, endpoint, model, limit: options.limit };

    let mut runs = Vec::new();
    for agent in &agents {
        for task in &tasks {
            for number in 1..=options.runs {
                let run = bench.run(agent, task, number)?;
                eprintln!("{}", run.line());
                runs.push(run);
            }
        }
    }
    if options.is_json {
        println!("{}", report::as_json(&runs));
    } else {
        let names: Vec<String> = agents.iter().map(Agent::name).collect();
        // llama-server names a model after its file.
        let model = bench.model.rsplit_once('/').filter(|_| bench.model.starts_with('/'));
        let model = model.map_or(bench.model.as_str(), |(_, file)| file);
        println!("\nModel: {model}\n\n{}", report::as_table(&names, &runs));
    }
    Ok(true)
}

fn first_model(endpoint: &Endpoint) -> Result<String> {
    let list: Value = serde_json::from_str(&endpoint.get("/models")?)
        .context("the server's list of models is not JSON; name one with --model")?;
    let model = list["data"][0]["id"].as_str();
    Ok(model.context("the server lists no model; name one with --model")?.to_owned())
}

/// What all runs share.
struct Bench {
    /// Where runs leave their files.
    place: PathBuf,
    endpoint: Endpoint,
    model: String,
    limit: Duration,
}

impl Bench {
    /// Lets an agent work on a task once, and checks the result.
    fn run(&self, agent: &Agent, task: &Task, number: usize) -> Result<Run> {
        let place = self.place.join(agent.name()).join(format!("{}-{number}", task.name));
        if place.exists() {
            std::fs::remove_dir_all(&place)
                .with_context(|| format!("cannot empty {}", place.display()))?;
        }
        let (home, project) = (place.join("home"), place.join("project"));
        std::fs::create_dir_all(&home)?;
        script("copy.sh", &place, &[&task.directory, &project])?
            .map_or(Ok(()), |why| Err(anyhow::anyhow!("cannot copy {}: {why}", task.name)))?;

        let proxy = Proxy::start(&self.endpoint)?;
        let endpoint = proxy.url();
        let assignment = Assignment {
            prompt: &task.prompt,
            endpoint: &endpoint,
            model: &self.model,
            home: &home,
        };
        let worker = Program {
            words: agent.prepare(assignment)?,
            directory: &project,
            environment: agent.environment(assignment),
        };
        let [stdout, stderr] = ["stdout.txt", "stderr.txt"].map(|name| place.join(name));
        let (exit, time) = worker.run(&stdout, &stderr, self.limit)?;
        let exchanges = proxy.end();
        record(&place, &exchanges)?;

        let said = ending::plain(&String::from_utf8_lossy(&std::fs::read(&stdout)?));
        let aside = ending::plain(&String::from_utf8_lossy(&std::fs::read(&stderr)?));
        let bad_end = ending::bad_end(exit, &said, &aside);
        let answer = place.join("answer.txt");
        // A call that is shown instead of run may name the right file; it is no answer.
        let is_answer = bad_end != Some(BadEnd::RawCall);
        std::fs::write(&answer, if is_answer { said.as_str() } else { "" })?;
        let missing = script("check.sh", &place, &[&task.directory, &project, &answer])?;
        let mut tokens = Tokens::default();
        let counted: Vec<Tokens> = exchanges.iter().filter_map(Tokens::of).collect();
        counted.iter().for_each(|of_request| tokens += *of_request);
        Ok(Run {
            agent: agent.name(),
            task: task.name.clone(),
            missing,
            bad_end,
            requests: counted.len(),
            tokens,
            seconds: time.as_secs_f64(),
        })
    }
}

/// Runs a script of `tasks/` and returns why it failed, if it did.
fn script(name: &str, place: &Path, arguments: &[&Path]) -> Result<Option<String>> {
    let script = program::root().join("tasks").join(name);
    let arguments = arguments.iter().map(|path| path.display().to_string());
    let path = std::env::var_os("PATH").unwrap_or_default().to_string_lossy().into_owned();
    let program = Program {
        words: ["sh".to_owned(), script.display().to_string()]
            .into_iter()
            .chain(arguments)
            .collect(),
        directory: place,
        environment: vec![
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), "/nonexistent".to_owned()),
        ],
    };
    let output = place.join(format!("{name}.txt"));
    let (exit, _) = program.run(&place.join(format!("{name}.stdout.txt")), &output, CHECK_LIMIT)?;
    let why = std::fs::read_to_string(&output)?.trim().replace('\n', "; ");
    Ok(match exit {
        Exit::Code(0) => None,
        Exit::Code(code) if why.is_empty() => Some(format!("{name} ended with code {code}")),
        Exit::Code(_) => Some(why),
        Exit::Stopped => Some(format!("{name} did not end")),
    })
}

/// Writes every request with its answer to a file, a line of JSON each.
fn record(place: &Path, exchanges: &[Exchange]) -> Result<()> {
    let lines = exchanges.iter().map(|exchange| {
        let Exchange { path, status, request, answer } = exchange;
        let request = serde_json::from_str(request).unwrap_or(Value::String(request.clone()));
        let line = json!({ "path": path, "status": status, "request": request, "answer": answer });
        format!("{line}\n")
    });
    Ok(std::fs::write(place.join("exchanges.jsonl"), lines.collect::<String>())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = [
            "--agent",
            "purlin",
            "--agent",
            "goose",
            "--only",
            "fix-test",
            "--runs",
            "3",
            "--timeout",
            "9",
            "--json",
            "--set",
            "unseen",
            "--command",
            "foo {prompt}",
        ];
        let options = Options::parse(&words).unwrap();
        assert_eq!(options.agents, ["purlin", "goose"]);
        assert_eq!(
            (options.runs, options.limit, options.is_json),
            (3, Duration::from_secs(9), true)
        );
        assert_eq!((options.set.as_str(), options.only.len()), ("unseen", 1));
        assert_eq!(Options::parse(&[]).unwrap().agents, ["purlin"]);
        assert!(Options::parse(&["--command", "foo {prompt}"]).unwrap().agents.is_empty());
        for wrong in [&["--runs"][..], &["--runs", "x"], &["--nope", "1"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// One command does the work of a task and then fails; the other does nothing.
    #[test]
    fn run_is_checked_and_measured() {
        let tasks = program::root().join("tasks");
        let tasks = task_set::read(&tasks, "seen", &["delete-file".to_owned()]).unwrap();
        let endpoint = Endpoint::parse("http://127.0.0.1:1/v1").unwrap();
        let place = program::target().unwrap().join("tasks/test");
        let bench = Bench { place, endpoint, model: "m".to_owned(), limit: CHECK_LIMIT };
        let works =
            Agent::Command(["rm", "old_report.py", "--", "{prompt}x"].map(String::from).to_vec());
        let idles = Agent::Command(["echo", "{prompt}"].map(String::from).to_vec());
        let worked = bench.run(&works, &tasks[0], 1).unwrap();
        assert_eq!((worked.missing, worked.bad_end), (None, Some(BadEnd::Error)));
        let idled = bench.run(&idles, &tasks[0], 1).unwrap();
        assert_eq!(idled.missing.as_deref(), Some("old_report.py still exists"));
        assert_eq!((idled.bad_end, idled.requests, idled.tokens), (None, 0, Tokens::default()));
    }
}
