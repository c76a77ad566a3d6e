//! The cost of the context: instructions of a large repository, and a request with a long history.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::agent::{Agent, Script, Sessions};
use super::programs::Programs;
use super::table::{Goal, Row};

const ROUNDS: usize = 15;
/// The repository: the number of directories, and of files in each.
const DIRECTORIES: usize = 500;
const FILES: usize = 100;
/// The history: the number of steps, and the bytes of text in each; about 200,000 tokens.
const STEPS: usize = 90;
const STEP: usize = 7_400;
/// The number of requests in a round.
const REQUESTS: u32 = 20;

/// Measures `session/new` and a first turn in a repository of 50,000 files, compared with an empty directory.
pub(crate) fn instructions(programs: &Programs) -> Result<Vec<Row>> {
    let script = Script::write("model echo\nmodel loop\n")?;
    let (tree, empty) = (script.directory.join("tree"), script.directory.join("empty"));
    plant(&tree)?;
    std::fs::create_dir_all(&empty)?;
    let mut agent = Agent::purlin(programs, &script, Sessions::InMemory)?;
    let (mut large, mut small, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let with = open(&mut agent, &tree.join("folder-7"))?;
        let without = open(&mut agent, &empty)?;
        if round > 0 {
            large.push(with);
            small.push(without);
            more.push((with - without).max(0.0));
        }
    }
    agent.child.end()?;
    let what = format!("new session and first turn, {} files, processor time", DIRECTORIES * FILES);
    Ok(vec![
        Row::new(what, "ms", large).beside("empty folder", small),
        Row::new("what its instructions add", "ms", more).goal(Goal::AtMost(5.0)),
    ])
}

/// Returns the milliseconds for opening a session and its first turn.
fn open(agent: &mut Agent, directory: &Path) -> Result<f64> {
    let before = agent.child.cpu()?;
    let session = agent.open_in(directory, &json!([]))?;
    agent.converse(&session, None)?;
    Ok((agent.child.cpu()? - before).as_secs_f64() * 1e3)
}

/// Creates a repository with instructions at its top and in every directory, and a skill.
fn plant(tree: &Path) -> Result<()> {
    for directory in 0..DIRECTORIES {
        let place = tree.join(format!("folder-{directory}"));
        std::fs::create_dir_all(&place)?;
        std::fs::write(place.join("AGENTS.md"), "Keep to the style of this folder.\n".repeat(100))?;
        for file in 1..FILES {
            std::fs::write(place.join(format!("file-{file}.rs")), "fn nothing() {}\n")?;
        }
    }
    std::fs::create_dir_all(tree.join(".git"))?;
    std::fs::write(tree.join(".git/HEAD"), "ref: refs/heads/main\n")?;
    std::fs::write(tree.join("AGENTS.md"), "Run the tests.\n".repeat(1000))?;
    let skill = tree.join(".purlin/skills/ship");
    std::fs::create_dir_all(&skill)?;
    std::fs::write(skill.join("SKILL.md"), "---\nname: ship\ndescription: How we ship\n---\n")?;
    Ok(())
}

/// Measures a turn of one request after a history of 200,000 tokens, compared with one without history.
pub(crate) fn request(programs: &Programs) -> Result<Vec<Row>> {
    let said = "word ".repeat(STEP / 5);
    let mut text = String::from("model window 2000000\n");
    for step in 0..STEPS {
        text.push_str(&format!("model text \"{said}\"\n"));
        text.push_str(&format!("model tool plan {{\"todos\":[\"Step {step}\"]}}\nmodel end\n"));
    }
    text.push_str("model text \"Done.\"\nmodel end\n");
    let short = "model text \"Yes.\"\nmodel end\n";
    let turns = (ROUNDS + 1) * REQUESTS as usize;
    let script = Script::write(&(text + &short.repeat(turns)))?;
    let mut long = Agent::purlin(programs, &script, Sessions::InMemory)?;
    let long_session = long.open()?;
    long.converse(&long_session, None)?;
    // The next script is written to the same file.
    drop(script);
    let script = Script::write(&format!("model window 2000000\n{}", short.repeat(turns)))?;
    let mut plain = Agent::purlin(programs, &script, Sessions::InMemory)?;
    let plain_session = plain.open()?;
    let (mut ours, mut other, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let with = turn(&mut long, &long_session)?;
        let without = turn(&mut plain, &plain_session)?;
        if round > 0 {
            ours.push(with);
            other.push(without);
            more.push((with - without).max(0.0));
        }
    }
    long.child.end()?;
    plain.child.end()?;
    Ok(vec![
        Row::new("a turn after 200,000 tokens, processor time", "ms", ours)
            .beside("after none", other),
        Row::new("what the history adds", "ms", more).goal(Goal::AtMost(5.0)),
    ])
}

/// Returns the milliseconds of a turn.
fn turn(agent: &mut Agent, session: &str) -> Result<f64> {
    let before = agent.child.cpu()?;
    for _ in 0..REQUESTS {
        agent.converse(session, None)?;
    }
    Ok((agent.child.cpu()? - before).as_secs_f64() * 1e3 / f64::from(REQUESTS))
}
