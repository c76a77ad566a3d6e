//! The description and the input of `bash`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Adopt, ToolError, ToolSpec};
use serde_json::{Value, json};

use super::aliases;
use super::extra_permissions::ExtraPermissions;

const DESCRIPTION: &str = "\
Runs a command with bash and returns its output and exit code. Every command starts in the working folder; nothing but files \
persists between commands, and they have no input and no terminal. Commands run in a sandbox: they can write only to the \
project's folders, cannot change .git, and have no network, no Unix sockets and no ptrace; /tmp and /var/tmp are private to \
this session. If a command needs the network, changes .git or writes to another folder (such as a package cache), request that \
with `network`, `git` or `write_outside` and give the `reason`; the user is asked. Nothing else can be allowed. Long output is \
cut in the middle; the full output is saved to a file, whose path is given. A command that does not end by itself, such as a \
server, runs with `background`: the call returns an id at once, for `bash_output` and `bash_kill`. Use the other tools to read, \
search and change files.";

const BRIEF: &str = "Runs a shell command, such as a program or the tests, and returns its output.";

/// The default time limit.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time limit.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// The input.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) command: String,
    pub(super) timeout: Duration,
    /// Runs it in the background.
    pub(super) background: bool,
    pub(super) extra: ExtraPermissions,
    /// Why it needs more than the sandbox allows.
    pub(super) reason: Option<String>,
    /// The directories outside that it may write to, and the `.git` that it may create; resolved before it runs.
    pub(super) outside: Vec<PathBuf>,
    pub(super) new_git: Option<PathBuf>,
}

impl Input {
    /// Makes the input of a command without extra permissions.
    pub(super) fn plain(command: &str, timeout: Duration) -> Input {
        let command = command.to_owned();
        Input {
            command,
            timeout,
            background: false,
            extra: ExtraPermissions::default(),
            reason: None,
            outside: Vec::new(),
            new_git: None,
        }
    }

    pub(super) fn read(input: &Value) -> Result<Input, ToolError> {
        let refuse = |why: &str| ToolError::Model(why.to_owned());
        let corrected = input["command"].is_null().then(|| aliases::adopt("bash", input)).flatten();
        let input = corrected.as_ref().unwrap_or(input);
        let text = |name: &str| input[name].as_str().map(str::trim).filter(|text| !text.is_empty());
        let Some(command) = text("command") else {
            return Err(refuse("`command` must be a string"));
        };
        if command.contains('\0') {
            return Err(refuse("a command cannot contain a NUL character"));
        }
        let timeout = match input["timeout"].as_u64() {
            Some(milliseconds) => Duration::from_millis(milliseconds).min(MAX_TIMEOUT),
            None => TIMEOUT,
        };
        let flag = |name: &str| input[name] == true;
        let write_outside = match &input["write_outside"] {
            Value::Null => Some(Vec::new()),
            Value::Array(all) => {
                all.iter().map(|directory| directory.as_str().map(str::to_owned)).collect()
            }
            other => other.as_str().map(|directory| vec![directory.to_owned()]),
        };
        let Some(write_outside) = write_outside else {
            return Err(refuse("`write_outside` must be a list of folders"));
        };
        let input = Input {
            extra: ExtraPermissions { network: flag("network"), git: flag("git"), write_outside },
            background: flag("background") || flag("run_in_background"),
            reason: text("reason").map(str::to_owned),
            ..Input::plain(command, timeout)
        };
        if input.extra != ExtraPermissions::default() && input.reason.is_none() {
            return Err(refuse(
                "`reason` is missing: say why the command needs more than the sandbox allows",
            ));
        }
        if input.background && input.extra.git {
            // What it redirects is restored when a command ends, and this one may not.
            return Err(refuse(
                "a command in the background cannot change .git: run it without `background`",
            ));
        }
        Ok(input)
    }
}

/// Returns the description of the tool for models.
pub(super) fn spec() -> Arc<ToolSpec> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let flag = |description: &str| json!({ "type": "boolean", "description": description });
    let schema = json!({
        "type": "object",
        "properties": {
            "command": text("The command to run"),
            "timeout": {
                "type": "number",
                "description": "Time limit in milliseconds; default 120000, at most 600000",
            },
            "background": flag("Run it in the background, without a time limit, until it ends or the session does"),
            "description": text("What the command does, in five to ten words"),
            "network": flag("Request network access; the user is asked"),
            "git": flag("Request permission to change .git, for example for git commit; hooks and configuration stay protected. The user is asked"),
            "write_outside": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Request permission to write to these existing folders outside the project; absolute paths, or starting with \
                                ~/. The user is asked",
            },
            "reason": text("Why the command needs the network, .git or these folders"),
        },
        "required": ["command"],
    });
    described(DESCRIPTION, &schema)
}

/// Returns the description for small models.
pub(super) fn brief_spec() -> Arc<ToolSpec> {
    let properties = json!({ "command": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["command"] });
    described(BRIEF, &schema)
}

fn described(description: &str, schema: &Value) -> Arc<ToolSpec> {
    let (name, description) = ("bash".to_owned(), description.to_owned());
    Arc::new(ToolSpec {
        name,
        description,
        schema: schema.into(),
        adopt: Adopt::new(aliases::adopt),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_names_the_time_limits() {
        let schema: Value = serde_json::from_str(spec().schema.text()).unwrap();
        let shown = schema["properties"]["timeout"]["description"].as_str().unwrap();
        for time in [TIMEOUT, MAX_TIMEOUT] {
            assert!(shown.contains(&time.as_millis().to_string()), "{shown}");
        }
    }

    #[test]
    fn input_is_parsed_or_rejected_with_a_reason() {
        let read = |input: Value| Input::read(&input);
        let plain = read(json!({ "command": " make ", "timeout": 5000 })).unwrap();
        assert_eq!((plain.command.as_str(), plain.timeout), ("make", Duration::from_secs(5)));
        assert_eq!(plain.extra, ExtraPermissions::default());
        let long = read(json!({ "command": "make", "timeout": 99_999_999 })).unwrap();
        assert_eq!(long.timeout, MAX_TIMEOUT);
        for wrong in [
            json!({}),
            json!({ "command": "  " }),
            json!({ "command": "a\0b" }),
            json!({ "command": "curl x", "network": true }),
            json!({ "command": "git gc", "git": true, "background": true, "reason": "x" }),
            json!({ "command": "cargo fetch", "write_outside": ["~/.cargo"] }),
            json!({ "command": "cargo fetch", "write_outside": ["~/.cargo", 1], "reason": "crates" }),
            json!({ "command": "cargo fetch", "write_outside": true, "reason": "crates" }),
        ] {
            assert!(matches!(read(wrong.clone()), Err(ToolError::Model(_))), "{wrong}");
        }
        let asks = read(json!({ "command": "cargo fetch", "network": true, "reason": "crates" }));
        let asks = asks.unwrap();
        assert_eq!((asks.extra.network, asks.reason.as_deref()), (true, Some("crates")));
        // One directory need not be a list.
        for directories in [json!("~/.cargo"), json!(["~/.cargo"])] {
            let asks = json!({ "command": "x", "write_outside": directories, "reason": "crates" });
            assert_eq!(read(asks).unwrap().extra.write_outside, ["~/.cargo"]);
        }
    }
}
