//! The agents that are compared: where they come from, their configuration, and how one prompt is run.
//!
//! Each gets an endpoint and a model, as its documentation says, and otherwise works as installed.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::program;

/// An agent that runs one prompt from the shell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Agent {
    /// The program at this path.
    Purlin(String),
    /// OpenCode, the program at this path.
    OpenCode(String),
    /// Goose, the program at this path.
    Goose(String),
    /// Any other: words with `{prompt}`, `{endpoint}` and `{model}`.
    Command(Vec<String>),
}

/// What an agent is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assignment<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) endpoint: &'a str,
    pub(crate) model: &'a str,
    /// A directory that was just made.
    pub(crate) home: &'a Path,
}

impl Agent {
    /// Finds an agent by its name and installs it if need be: Purlin is built, the others come from npm.
    pub(crate) fn find(name: &str, purlin: Option<&str>) -> Result<Agent> {
        match (name, purlin) {
            ("purlin", Some(program)) => {
                let program = std::fs::canonicalize(program);
                let program = program.with_context(|| "cannot find the program of --purlin")?;
                Ok(Agent::Purlin(program.display().to_string()))
            }
            ("purlin", None) => {
                program::must_succeed(&["cargo", "build", "--package", "purlin"])?;
                let built = program::target()?.join("debug/purlin");
                Ok(Agent::Purlin(built.display().to_string()))
            }
            ("opencode", _) => installed("opencode-ai", "opencode").map(Agent::OpenCode),
            ("goose", _) => {
                let name = goose_program()?;
                installed(&format!("@aaif/{name}"), &name).map(Agent::Goose)
            }
            _ => anyhow::bail!(
                "unknown agent `{name}`; known are purlin, opencode and goose, and --command for any other"
            ),
        }
    }

    /// Reads the template of a command.
    pub(crate) fn command(template: &str) -> Result<Agent> {
        let words: Vec<String> = template.split_whitespace().map(str::to_owned).collect();
        anyhow::ensure!(
            words.iter().any(|word| word.contains("{prompt}")),
            "--command needs `{{prompt}}` where the prompt goes; `{{endpoint}}` and `{{model}}` are replaced as well"
        );
        Ok(Agent::Command(words))
    }

    /// Returns the name for the table.
    pub(crate) fn name(&self) -> String {
        match self {
            Agent::Purlin(_) => "purlin".to_owned(),
            Agent::OpenCode(_) => "opencode".to_owned(),
            Agent::Goose(_) => "goose".to_owned(),
            Agent::Command(words) => {
                let program = words.first().map_or("command", String::as_str);
                program.rsplit('/').next().unwrap_or(program).to_owned()
            }
        }
    }

    /// Writes the configuration into the agent's home and returns its command line.
    pub(crate) fn prepare(&self, assignment: Assignment) -> Result<Vec<String>> {
        let Assignment { prompt, endpoint, model, home } = assignment;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let own_name = format!("local/{model}");
        // Purlin reads OpenCode's form of a provider.
        let provider = json!({ "local": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": endpoint, "apiKey": "none" },
            "models": { model: {} },
        } });
        match self {
            Agent::Purlin(program) => {
                let config = json!({ "model": own_name, "provider": provider });
                write(&home.join(".config/purlin/purlin.json"), &config.to_string())?;
                Ok(words(&[program, "run", "--allow", "all", prompt]))
            }
            Agent::OpenCode(program) => {
                let config = json!({
                    "model": own_name, "small_model": own_name, "provider": provider,
                    "autoupdate": false, "share": "disabled",
                });
                write(&home.join(".config/opencode/opencode.json"), &config.to_string())?;
                Ok(words(&[program, "run", "--auto", prompt]))
            }
            Agent::Goose(program) => Ok(words(&[
                program,
                "run",
                "--no-session",
                "--quiet",
                "--with-builtin",
                "developer",
                "--text",
                prompt,
            ])),
            Agent::Command(template) => {
                let fill = |word: &String| {
                    let word = word.replace("{endpoint}", endpoint).replace("{model}", model);
                    word.replace("{prompt}", prompt)
                };
                Ok(template.iter().map(fill).collect())
            }
        }
    }

    /// Returns the environment, which is all that the agent gets.
    pub(crate) fn environment(&self, assignment: Assignment) -> Vec<(String, String)> {
        let Assignment { endpoint, model, home, .. } = assignment;
        let home = home.display();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut all = vec![
            ("PATH".to_owned(), path.to_string_lossy().into_owned()),
            ("HOME".to_owned(), home.to_string()),
            ("XDG_CONFIG_HOME".to_owned(), format!("{home}/.config")),
            ("XDG_DATA_HOME".to_owned(), format!("{home}/.local/share")),
            ("XDG_STATE_HOME".to_owned(), format!("{home}/.local/state")),
            ("XDG_CACHE_HOME".to_owned(), format!("{home}/.cache")),
        ];
        let mut add = |name: &str, value: &str| all.push((name.to_owned(), value.to_owned()));
        add("LANG", "C.UTF-8");
        add("TERM", "dumb");
        add("NO_COLOR", "1");
        add("PYTHONDONTWRITEBYTECODE", "1");
        match self {
            Agent::Purlin(_) | Agent::OpenCode(_) => {}
            Agent::Goose(_) => {
                let scheme = endpoint.find("://").map_or(0, |at| at + 3);
                let slash = endpoint[scheme..].find('/').map_or(endpoint.len(), |at| scheme + at);
                let (host, base) = endpoint.split_at(slash);
                add("GOOSE_PROVIDER", "openai");
                add("GOOSE_MODEL", model);
                add("GOOSE_MODE", "auto");
                add("GOOSE_DISABLE_KEYRING", "1");
                add("OPENAI_HOST", host);
                let path = format!("{}/chat/completions", base.trim_start_matches('/'));
                add("OPENAI_BASE_PATH", path.trim_start_matches('/'));
                add("OPENAI_API_KEY", "none");
            }
            Agent::Command(_) => {
                add("OPENAI_BASE_URL", endpoint);
                add("OPENAI_API_KEY", "none");
                add("OPENAI_MODEL", model);
            }
        }
        all
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    Ok(std::fs::write(path, text)?)
}

/// Installs a package from npm below the target directory, once, and returns a program in it.
pub(crate) fn installed(package: &str, program: &str) -> Result<String> {
    let place = program::target()?.join("agents").join(package.replace(['@', '/'], "-"));
    let path = place.join("node_modules/.bin").join(program);
    if !path.exists() {
        let prefix = place.display().to_string();
        std::fs::create_dir_all(&place)?;
        program::must_succeed(&[
            "npm",
            "install",
            "--prefix",
            &prefix,
            "--no-audit",
            "--no-fund",
            package,
        ])?;
    }
    anyhow::ensure!(path.exists(), "{package} from npm has no program {}", path.display());
    Ok(path.display().to_string())
}

fn goose_program() -> Result<String> {
    let system = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "darwin",
        other => anyhow::bail!("npm has no Goose for {other}"),
    };
    let processor = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    Ok(format!("goose-binary-{system}-{processor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment() -> Assignment<'static> {
        Assignment {
            prompt: "Say {model}, please.",
            endpoint: "http://127.0.0.1:9/v1",
            model: "m",
            home: Path::new("/nowhere"),
        }
    }

    #[test]
    fn template_is_filled_word_by_word() {
        let agent = Agent::command("/bin/foo run --at={endpoint} {model} {prompt}").unwrap();
        assert_eq!(agent.name(), "foo");
        let words = agent.prepare(assignment()).unwrap();
        let expected =
            ["/bin/foo", "run", "--at=http://127.0.0.1:9/v1", "m", "Say {model}, please."];
        assert_eq!(words, expected);
        assert!(Agent::command("foo run").is_err());
    }

    #[test]
    fn goose_gets_host_and_path() {
        let environment = Agent::Goose(String::new()).environment(assignment());
        for (name, value) in
            [("OPENAI_HOST", "http://127.0.0.1:9"), ("OPENAI_BASE_PATH", "v1/chat/completions")]
        {
            let pair = (name.to_owned(), value.to_owned());
            assert!(environment.contains(&pair), "{environment:?}");
        }
    }
}
