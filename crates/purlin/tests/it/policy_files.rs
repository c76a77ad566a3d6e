//! The files that rules and keys come from: a broken one fails closed, and none can be changed from inside a session.

use std::path::Path;
use std::process::Output;

use serde_json::json;

use crate::directory::Directory;
use crate::permissions::{purlin, text};

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A user whose configuration and data are in one directory, and a project.
struct User(Directory);

impl User {
    fn new() -> User {
        let top = Directory::outside_of_tmp();
        std::fs::create_dir_all(top.join("w")).unwrap();
        User(top)
    }

    fn configure(&self, text: &str) {
        self.0.write("home/purlin/purlin.json", text);
    }

    fn purlin(&self, args: &[&str]) -> Output {
        purlin(&self.0.join("home"), args)
    }

    fn explain(&self, command: &str) -> Output {
        let cwd = self.0.text("w");
        self.purlin(&["permissions", "explain", "--cwd", &cwd, "--", command])
    }

    /// Runs a turn of a scripted model in the project that approves whatever is asked for. Returns what was printed.
    fn run(&self, script: &str, config: Option<&Path>) -> String {
        self.0.write("script", script);
        let (cwd, script) = (self.0.text("w"), format!("script:{}", self.0.text("script")));
        let mut args =
            vec!["run", "go", "--output-format", "stream-json", "--allow", "all", "--cwd", &cwd];
        let program = env!("CARGO_BIN_EXE_purlin");
        let config = config.map(|path| path.display().to_string());
        match &config {
            Some(config) => args.extend(["--agent", program, "acp", "--config", config]),
            None => args.extend(["--agent", program, "acp"]),
        }
        args.extend(["--model", &script]);
        let output = self.purlin(&args);
        text(&output) + &errors(&output)
    }
}

// R: T2
#[test]
fn broken_configuration_keeps_the_rules_of_its_last_valid_version() {
    let user = User::new();
    user.configure(r#"{ "permission": { "bash": { "rm *": "deny", "make": "allow" } } }"#);
    assert!(text(&user.explain("rm x")).starts_with("Would be rejected."));
    user.configure(r#"{ "permission": { "bash": { "rm *": "deny", }"#);
    let broken = user.explain("rm x");
    assert!(text(&broken).starts_with("Would be rejected."), "{broken:?}");
    assert!(text(&user.explain("make")).starts_with("Would run without asking."));
    let says = "the rules of its last valid version apply until this is corrected";
    assert!(errors(&broken).contains(says), "{broken:?}");
    let doctor = user.purlin(&["doctor"]);
    assert!(text(&doctor).contains(says) && !doctor.status.success(), "{doctor:?}");
    let shown = user.purlin(&["config", "show", "--cwd", &user.0.text("w")]);
    assert!(errors(&shown).contains(says), "{shown:?}");
    assert!(text(&shown).contains("permission.bash.rm * = \"deny\"  (last valid version of "));
    let ran = user.run("model text \"Done.\"", None);
    assert!(ran.contains(says), "{ran}");
    user.configure("{}");
    assert!(text(&user.explain("rm x")).starts_with("Would ask for permission."));
}

// R: T2
#[test]
fn broken_configuration_without_an_earlier_version_asks_for_everything() {
    for broken in ["{ \"permission\": ", "[]", "{ \"permissions\": { \"bash\": \"deny\" } }"] {
        let user = User::new();
        user.configure(broken);
        let explained = user.explain("ls");
        assert!(text(&explained).starts_with("Would ask for permission."), "{explained:?}");
        let says = "everything asks until this is corrected";
        assert!(text(&explained).contains(says) && errors(&explained).contains(says));
        assert!(text(&user.purlin(&["doctor"])).contains(says));
        let ran = user.run("model tool read {\"filePath\":\"a\"}\nmodel text \"Done.\"", None);
        assert!(ran.contains(says), "{ran}");
    }
    let user = User::new();
    user.0.write("home/opencode/opencode.json", "{ \"permission\": ");
    assert!(text(&user.explain("ls")).starts_with("Would ask for permission."));
    let user = User::new();
    user.0.write("w/opencode.json", "{ \"permission\": ");
    assert!(text(&user.explain("ls")).starts_with("Would ask for permission."));
}

/// Every way to change a file that a model has, each as a call of its own.
fn attacks(name: &str) -> String {
    let patch = format!("*** Begin Patch\n*** Delete File: {name}\n*** End Patch");
    let calls = [
        ("write", json!({ "filePath": name, "content": "{}" })),
        ("read", json!({ "filePath": name })),
        ("edit", json!({ "filePath": name, "oldString": "deny", "newString": "allow" })),
        ("apply_patch", json!({ "patchText": patch })),
        ("bash", json!({ "command": format!("echo '{{}}' > {name}") })),
        ("bash", json!({ "command": format!("rm -f {name}; echo '{{}}' > {name}") })),
        ("bash", json!({ "command": format!("echo '{{}}' > new; mv -f new {name}") })),
        ("bash", json!({ "command": format!("sed -i s/deny/allow/ {name}") })),
    ];
    let lines = calls.map(|(tool, input)| format!("model tool {tool} {input}\nmodel end\n"));
    lines.concat() + "model text \"Done.\""
}

// R: T2, W19
#[test]
fn configuration_inside_the_session_cannot_be_changed_under_any_name() {
    let rules = r#"{ "permission": { "bash": "allow", "edit": "allow", "webfetch": "deny" } }"#;
    // The user's file is a link to a file of the project.
    let user = User::new();
    user.0.write("w/dotfiles/policy.json", rules);
    std::fs::create_dir_all(user.0.join("home/purlin")).unwrap();
    let target = user.0.join("w/dotfiles/policy.json");
    std::os::unix::fs::symlink(&target, user.0.join("home/purlin/purlin.json")).unwrap();
    let ran = user.run(&attacks("dotfiles/policy.json"), None);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), rules, "{ran}");
    // The same calls change a file that no rule comes from.
    user.0.write("w/other.json", rules);
    user.run(&attacks("other.json"), None);
    assert_ne!(std::fs::read_to_string(user.0.join("w/other.json")).unwrap_or_default(), rules);
    // The user's file has a second name in the project.
    let user = User::new();
    user.configure(rules);
    let name = user.0.join("w/policy.json");
    std::fs::hard_link(user.0.join("home/purlin/purlin.json"), &name).unwrap();
    let ran = user.run(&attacks("policy.json"), None);
    let own = std::fs::read_to_string(user.0.join("home/purlin/purlin.json")).unwrap();
    assert_eq!(
        (own.as_str(), std::fs::read_to_string(&name).unwrap().as_str()),
        (rules, rules),
        "{ran}"
    );
    // A file of the project is given on the command line.
    let user = User::new();
    user.0.write("w/conf/own.json", rules);
    let given = user.0.join("w/conf/own.json");
    let ran = user.run(&attacks("conf/own.json"), Some(&given));
    assert_eq!(std::fs::read_to_string(&given).unwrap(), rules, "{ran}");
    // OpenCode's file is a link to a file of the project, and a key is in the project.
    let user = User::new();
    let with_key = r#"{ "permission": { "bash": "allow", "edit": "allow" },
        "provider": { "p": { "options": { "apiKey": "{file:KEY}" } } } }"#;
    user.0.write("w/oc.json", &with_key.replace("KEY", &user.0.text("w/deny.txt")));
    user.0.write("w/deny.txt", "deny");
    std::fs::create_dir_all(user.0.join("home/opencode")).unwrap();
    std::os::unix::fs::symlink(
        user.0.join("w/oc.json"),
        user.0.join("home/opencode/opencode.json"),
    )
    .unwrap();
    let before = std::fs::read_to_string(user.0.join("w/oc.json")).unwrap();
    let ran = user.run(&(attacks("oc.json") + "\n"), None) + &user.run(&attacks("deny.txt"), None);
    assert_eq!(std::fs::read_to_string(user.0.join("w/oc.json")).unwrap(), before, "{ran}");
    assert_eq!(std::fs::read_to_string(user.0.join("w/deny.txt")).unwrap(), "deny", "{ran}");
}

// R: T2
#[test]
fn where_a_link_to_the_configuration_could_be_replaced_every_command_asks() {
    let user = User::new();
    user.0.write("elsewhere.json", r#"{ "permission": { "bash": "allow" } }"#);
    let link = user.0.join("w/own.json");
    std::os::unix::fs::symlink(user.0.join("elsewhere.json"), &link).unwrap();
    let ran = user.run("model tool bash {\"command\":\"true\"}\nmodel text \"Done.\"", Some(&link));
    assert!(ran.contains("A command could replace it, so every command asks."), "{ran}");
}
