//! Agents of other authors, as they are installed, in our client: tool, permission, cancel, load.

use fake_model::FakeModel;

use super::terminal::{Opening, Terminal};

const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/node_modules");

// R: C1
#[test]
fn conversation_with_the_example_agent_of_the_sdk() {
    let agent = format!("node {PACKAGES}/acp-example/dist/examples/agent.js");
    let terminal = Opening::args(&format!("--agent '{agent}'")).start();
    terminal.shows("? shows keys");
    terminal.send("improve it");
    terminal.shows("✓ Reading project files");
    terminal.answer("Allow this change", "y");
    terminal.shows("Perfect!");
    terminal.shows("✓ Modifying critical configuration file");

    terminal.send("and now");
    terminal.answer("Skip this change", "n");
    terminal.shows("I understand you prefer not to make that change.");

    terminal.send("once more");
    terminal.shows_where("a third turn", |all| all.matches("I'll help you").count() == 3);
    terminal.keys(&["Escape"]);
    terminal.shows("Cancelled.");
}

/// OpenCode with a fake model, as `purlin check` configures it.
#[cfg(target_arch = "x86_64")]
fn opencode(model: &FakeModel, session: &str) -> Opening {
    let config = include_str!("../../../../check/profiles/opencode.json");
    let profile: serde_json::Value = serde_json::from_str(config).unwrap();
    let files = profile["files"].as_object().unwrap();
    let (_, config) = files.iter().next().unwrap();
    let config = config.to_string().replace("$MODEL/v1", &model.url());
    let env = profile["env"].as_object().unwrap().iter();
    let env: Vec<String> =
        env.map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
    let agent = format!("{PACKAGES}/opencode-linux-x64-baseline/bin/opencode acp");
    Opening::args(&format!("--agent '{agent}' {session}"))
        .env(&env.join(" "))
        .file(".config/opencode/opencode.json", &config)
}

// R: C1, C2
#[cfg(target_arch = "x86_64")]
#[test]
fn conversation_with_opencode() {
    let script = r#"side "A title"
text "I will write it.\n"
tool write {"filePath":"new.txt","content":"hello\n"}
---
text "It is **written**.\n"
---
tool bash {"command":"echo never","description":"Prints"}
---
text "One, two"
hang
"#;
    let model = FakeModel::start(script).unwrap();
    let terminal = opencode(&model, "").start();
    terminal.shows("OpenCode");
    terminal.shows("fake/fake");
    terminal.send("write it");
    converse_with_opencode(&terminal);
}

#[cfg(target_arch = "x86_64")]
fn converse_with_opencode(terminal: &Terminal) {
    terminal.answer("y Allow once", "y");
    terminal.shows("It is written.");
    assert_eq!(std::fs::read_to_string(terminal.path("project/new.txt")).unwrap(), "hello\n");

    terminal.send("print it");
    terminal.answer("echo never", "n");
    terminal.shows("The user rejected permission");

    terminal.send("count");
    terminal.shows("One, two");
    terminal.keys(&["Escape"]);
    terminal.shows("Cancelled.");

    // The session is loaded again, with its history.
    terminal.send("/sessions");
    terminal.shows("Enter loads");
    terminal.keys(&["Enter"]);
    terminal.shows_where("the history", |all| all.matches("It is written.").count() == 2);
}
