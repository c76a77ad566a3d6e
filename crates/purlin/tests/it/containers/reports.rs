//! What `purlin doctor` and `purlin permissions explain` say about containers, and what sessions without them do not start.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::engine::{Engine, IMAGE};
use super::{bash, new_session};
use crate::agent::Agent;
use crate::directory::Directory;
use crate::session_worktrees::say;

/// Runs the program in a directory, as a user with this configuration would.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn purlin(top: &Path, engine: &[(&'static str, String)], config: &Value, args: &[&str]) -> String {
    std::fs::create_dir_all(top.join("config/purlin")).unwrap();
    std::fs::write(top.join("config/purlin/purlin.json"), config.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(args).current_dir(top.join("project")).env_remove("PURLIN_WORKSPACE");
    command.env("XDG_CONFIG_HOME", top.join("config")).env("XDG_DATA_HOME", top.join("data"));
    command.envs(engine.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

// R: T7
#[test]
fn doctor_tries_the_container_and_says_what_is_wrong_with_podman() {
    let engine = Engine::podman();
    let (top, _project) = engine.project();
    let doctor = |workspace: Value| {
        let text =
            purlin(&top, &engine.env, &json!({ "workspace": workspace }), &["doctor", "--json"]);
        let all: Value = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}"));
        all["containers"].clone()
    };
    let works = doctor(engine.workspace());
    assert_eq!(works["ok"], true, "{works}");
    assert!(works["summary"].as_str().unwrap().starts_with("podman "), "{works}");
    let limits = works.to_string().contains("podman cannot limit here: ");
    assert_eq!(limits, !engine.has_limits(), "{works}");

    let missing =
        json!({ "container": { "image": "localhost/no-such-image", "engine": "podman" } });
    let missing = doctor(missing);
    assert_eq!(missing["ok"], false, "{missing}");
    assert!(missing.to_string().contains("localhost/no-such-image"), "{missing}");

    let none = doctor(json!({ "container": { "image": IMAGE, "engine": "/no/such/engine" } }));
    assert_eq!(none["ok"], false, "{none}");
    assert!(none.to_string().contains("/no/such/engine"), "{none}");

    let described = doctor(json!("devcontainer"));
    assert!(described.to_string().contains("No image"), "{described}");
    engine.expect_none();
}

// R: T2, T7
#[test]
fn explain_says_that_a_command_runs_in_a_container_with_the_same_rules() {
    let top = Directory::outside_of_tmp();
    top.write("project/file", "");
    let config = json!({
        "workspace": { "container": { "image": "some/image:1" } },
        "permission": { "bash": { "rm *": "deny" } },
    });
    let explain =
        |args: &[&str]| purlin(&top, &[], &config, &[&["permissions", "explain"], args].concat());
    let said = explain(&["--", "ls"]);
    assert!(said.starts_with("Would run without asking."), "{said}");
    assert!(said.contains("It runs in a container of the image some/image:1."), "{said}");
    assert!(explain(&["--", "rm file"]).starts_with("Would be rejected."));
    let network = explain(&["--network", "--", "nc host 1"]);
    assert!(
        network.starts_with("Would ask for permission.") && network.contains("image:1"),
        "{network}"
    );
    let json: Value = serde_json::from_str(&explain(&["--json", "--", "ls"])).unwrap();
    assert_eq!((&json["container"], &json["sandbox"]), (&json!("some/image:1"), &json!("L3")));

    // A file of a project that is not trusted is not used, and that is said.
    top.write(
        "project/.devcontainer.json",
        r#"{ "image": "evil", "postCreateCommand": "touch ran" }"#,
    );
    let config = json!({ "workspace": "devcontainer" });
    let said = purlin(&top, &[], &config, &["permissions", "explain", "--", "ls"]);
    assert!(
        said.contains(".devcontainer.json is not used") && !said.contains("image evil"),
        "{said}"
    );
    assert!(!top.join("project/ran").exists());
}

/// An engine is a program that takes its time; nobody who has no container waits for it.
// R: T7
#[test]
fn session_without_a_container_starts_no_engine() {
    let top = Directory::outside_of_tmp();
    top.write("project/file", "");
    for name in ["docker", "podman"] {
        let path = top.join("bin").join(name);
        top.write(
            &format!("bin/{name}"),
            &format!("#!/bin/sh\necho $0 >> {}\nexit 1\n", top.text("asked")),
        );
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", top.text("bin"));
    let play = |workspace: Value| {
        let start =
            Agent::playing(&bash("echo ran")).storing_in(&top.join("data")).env("PATH", &path);
        let mut agent = start.config(json!({ "workspace": workspace })).ready();
        let session = new_session(&mut agent, &top.join("project"));
        say(&mut agent, &session, "go")
    };
    let said = play(json!("project"));
    assert!(said.contains("ran\n") && !top.join("asked").exists(), "{said}");
    // With one they are asked; a command never runs elsewhere.
    let said = play(json!("container:some-image"));
    assert!(top.join("asked").exists() && !said.contains("ran\n"), "{said}");
}
