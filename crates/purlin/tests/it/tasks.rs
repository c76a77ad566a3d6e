//! The bench of tasks: a model that knows each solution solves all of them with the real tools.
//!
//! docs/internals/tasks.md describes the tasks. `cargo xtask tasks` runs them with real models.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fake_model::FakeModel;
use serde_json::{Value, json};

use crate::directory::Directory;

const SETS: [&str; 2] = ["seen", "unseen"];

/// Returns the directories of all tasks, in order.
fn tasks() -> Vec<PathBuf> {
    let mut tasks = Vec::new();
    for set in SETS {
        // The second set is written after the work is done; without it there is nothing to check.
        let Ok(entries) = std::fs::read_dir(bench().join(set)) else { continue };
        tasks.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    }
    tasks.sort();
    tasks
}

fn bench() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tasks")
}

#[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", home);
    command.stdin(Stdio::null());
    command
}

/// Copies the project of a task to a new directory and returns it.
fn copy(task: &Path, home: &Directory) -> PathBuf {
    let project = home.join("project");
    let mut copy = command("sh", home);
    let copied = copy.arg(bench().join("copy.sh")).arg(task).arg(&project).output().unwrap();
    assert!(copied.status.success(), "{}: {copied:?}", task.display());
    project
}

/// Runs the check of a task on a project and an answer.
fn check(task: &Path, project: &Path, answer: &str, home: &Directory) -> Output {
    home.write("answer.txt", answer);
    let mut check = command("sh", home);
    check.arg(bench().join("check.sh")).arg(task).arg(project).arg(home.join("answer.txt"));
    check.output().unwrap()
}

/// Lets Purlin work on a task with the scripted model, and returns its answer.
fn solve(task: &Path, project: &Path, home: &Directory) -> String {
    let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap();
    let script = read("solution.txt");
    let model = FakeModel::start(&script).unwrap();
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "options": { "baseURL": model.url() },
        "models": { "fake": {} },
    });
    let config = json!({ "model": "fake/fake", "provider": { "fake": provider } });
    home.write(".config/purlin/purlin.json", &config.to_string());
    let mut run = command(env!("CARGO_BIN_EXE_purlin"), home);
    run.args([
        "run",
        "--allow",
        "all",
        "--output-format",
        "stream-json",
        read("prompt.txt").trim(),
    ])
    .current_dir(project);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}: {output:?}", task.display());
    let expected = fake_model::parse(&script).unwrap().answers.len();
    assert_eq!(model.requests().len(), expected, "{}: {output:?}", task.display());

    let mut answer = String::new();
    for line in std::str::from_utf8(&output.stdout).unwrap().lines() {
        let update = serde_json::from_str::<Value>(line).unwrap()["update"].take();
        assert_ne!(update["status"], "failed", "{}: {update}", task.display());
        if update["sessionUpdate"] == "agent_message_chunk" {
            answer.push_str(update["content"]["text"].as_str().unwrap());
        }
    }
    answer
}

// R: P7, Q2
#[test]
fn scripted_model_solves_every_task() {
    let tasks = tasks();
    assert!(tasks.len() >= 20, "{tasks:?}");
    for task in tasks {
        // Commands in the sandbox have a `/tmp` of their own.
        let home = Directory::outside_of_tmp();
        let project = copy(&task, &home);
        let answer = solve(&task, &project, &home);
        let checked = check(&task, &project, &answer, &home);
        assert!(checked.status.success(), "{}: {checked:?}\n{answer}", task.display());
    }
}

#[test]
fn task_is_not_done_before_the_work() {
    for task in tasks() {
        let home = Directory::new();
        let project = copy(&task, &home);
        let prompt = std::fs::read_to_string(task.join("prompt.txt")).unwrap();
        // An agent that repeats the prompt has not worked either.
        let checked = check(&task, &project, &prompt, &home);
        assert_eq!(checked.status.code(), Some(1), "{}: {checked:?}", task.display());
        assert!(!checked.stderr.is_empty(), "{}: the check says nothing", task.display());
    }
}
