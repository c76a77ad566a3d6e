//! The cost of the file tools: reading and writing a megabyte through the whole agent, and a search compared with `rg`.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use super::agent::{Agent, Script, Sessions};
use super::programs::Programs;
use super::table::{Goal, Row};
use crate::{needs, program};

const ROUNDS: usize = 15;
const MEGABYTE: usize = 1_000_000;
/// The tree that is searched: the number of directories, and of files in each.
const DIRECTORIES: usize = 400;
const FILES: usize = 50;
const SEARCHES: usize = 15;

/// Measures the processor time for a file that passes the client, the agent and its model.
pub(crate) fn files(programs: &Programs) -> Result<Vec<Row>> {
    let text = "A line of a file, as long as lines are.\n".repeat(MEGABYTE / 40);
    let path = "/tmp/purlin-bench-none";
    let turn = |tool: &str, input: Value| {
        format!("model tool {tool} {input}\nmodel text \"Done.\"\nmodel end\n")
    };
    let read = turn("read", json!({ "filePath": path }));
    // Each round writes different content: equal content is stored only once.
    let write = |round: usize| {
        let content = format!("{round}\n{}", &text[40..]);
        turn("write", json!({ "filePath": path, "content": content }))
    };
    let write: String = (0..=ROUNDS).map(write).collect();
    Ok(vec![
        Row::new("read of 1 MB, processor time", "ms", cost(programs, &read, Some(&text))?)
            .goal(Goal::AtMost(10.0)),
        Row::new("write of 1 MB, processor time", "ms", cost(programs, &write, None)?)
            .goal(Goal::AtMost(10.0)),
    ])
}

/// Returns the milliseconds of each turn, after a warm-up.
fn cost(programs: &Programs, turns: &str, file: Option<&str>) -> Result<Vec<f64>> {
    let script = Script::write(&format!("{turns}model loop\n"))?;
    let mut agent = Agent::purlin(programs, &script, Sessions::Stored)?;
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        // Each turn has its own session, and so no history.
        let session = agent.open()?;
        let before = agent.child.cpu()?;
        agent.converse(&session, file)?;
        let used = agent.child.cpu()? - before;
        if round > 0 {
            rounds.push(used.as_secs_f64() * 1e3);
        }
    }
    agent.child.end()?;
    Ok(rounds)
}

/// Measures a search of a large tree, compared with `rg` with the same rules.
pub(crate) fn grep(programs: &Programs) -> Result<Vec<Row>> {
    needs::ripgrep()?;
    let call = json!({ "pattern": "needle_[0-9]+_end" });
    let script = Script::write(&format!("model tool grep {call}\nmodel text \"x\"\nmodel loop\n"))?;
    let tree = script.directory.join("tree");
    plant(&tree)?;
    let path = tree.to_string_lossy().into_owned();
    let rg =
        ["rg", "--hidden", "--no-require-git", "--glob", "!.git", "-n", "needle_[0-9]+_end", &path];
    let mut agent = Agent::purlin(programs, &script, Sessions::InMemory)?;
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for round in 0..=SEARCHES {
        let session = agent.open_in(&tree, &serde_json::json!([]))?;
        let begin = Instant::now();
        agent.converse(&session, None)?;
        let took = begin.elapsed().as_secs_f64() * 1e3;
        let begin = Instant::now();
        let found = program::answer(&rg).unwrap_or_default();
        let beside = begin.elapsed().as_secs_f64() * 1e3;
        anyhow::ensure!(found.lines().count() == DIRECTORIES / 10, "rg found {found}");
        if round > 0 {
            ours.push(took);
            other.push(beside);
        }
    }
    agent.child.end()?;
    let what = format!("search of {} files, prompt to answer", DIRECTORIES * FILES);
    Ok(vec![Row::new(what, "ms", ours).beside("rg", other).goal(Goal::Times(1.3))])
}

/// Creates a tree of source files. Every tenth directory has a matching line, and git ignores a part of the tree.
fn plant(tree: &Path) -> Result<()> {
    let body =
        "fn some_function(argument: usize) -> Option<usize> {\n    argument.checked_add(1)\n}\n\n";
    let body = body.repeat(40);
    for directory in 0..DIRECTORIES {
        let place = tree.join(format!("group-{}/folder-{directory}", directory % 20));
        std::fs::create_dir_all(&place)?;
        for file in 0..FILES {
            let mut text = body.clone();
            if directory % 10 == 0 && file == 7 {
                text.push_str(&format!("// needle_{directory}_end\n"));
            }
            std::fs::write(place.join(format!("file-{file}.rs")), text)?;
        }
        std::fs::write(place.join("debug.log"), "needle_0_end\n")?;
    }
    std::fs::write(tree.join(".gitignore"), "*.log\n")?;
    Ok(())
}
