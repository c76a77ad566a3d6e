//! `workspace` of a configuration: where the sessions of a project work. See docs/guide/workspaces.md.

use std::collections::BTreeMap;

use serde_json::Value;

/// Where sessions work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkspaceConfig {
    /// Whether each session gets a git worktree of its own.
    pub worktree: bool,
    /// The container that commands run in, if any.
    pub container: Option<ContainerConfig>,
    /// Whether the project's `devcontainer.json` describes the container, if it has one.
    pub devcontainer: bool,
}

/// The container that the commands of a session run in.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContainerConfig {
    /// The image. `None` if the project's `devcontainer.json` names it.
    pub image: Option<String>,
    /// The program that runs containers, a name or a path; `None` for the first that is found.
    pub engine: Option<String>,
    /// The engine's network for commands that may use the network; `None` for its default.
    pub network: Option<String>,
    /// The most memory, such as `4g`.
    pub memory: Option<String>,
    /// The most processors.
    pub cpus: Option<f64>,
    /// The most processes and threads.
    pub processes: Option<u64>,
    /// The user inside, by name or id.
    pub user: Option<String>,
    /// Variables of commands.
    pub env: BTreeMap<String, String>,
    /// Mounts beside the project, in the form of `--mount`.
    pub mounts: Vec<String>,
    /// Further arguments of the engine's `run`.
    pub run_args: Vec<String>,
}

impl WorkspaceConfig {
    pub(crate) fn read(value: &Value, problems: &mut Vec<String>) -> WorkspaceConfig {
        if let Some(words) = value.as_str() {
            return WorkspaceConfig::parse(words).unwrap_or_else(|why| {
                problems.push(format!("`workspace` {why}"));
                WorkspaceConfig::default()
            });
        }
        let is = |name: &str| value.get(name) == Some(&Value::Bool(true));
        WorkspaceConfig {
            worktree: is("worktree"),
            devcontainer: is("devcontainer"),
            container: value.get("container").map(ContainerConfig::read),
        }
    }

    /// Reads the short form: `worktree`, `devcontainer` or `container:IMAGE`.
    ///
    /// # Errors
    /// Says what it must be.
    pub fn parse(words: &str) -> Result<WorkspaceConfig, String> {
        let nothing = WorkspaceConfig::default();
        match words.split_once(':') {
            None if words == "worktree" => Ok(WorkspaceConfig { worktree: true, ..nothing }),
            None if words == "devcontainer" => {
                Ok(WorkspaceConfig { devcontainer: true, ..nothing })
            }
            None if words == "project" => Ok(nothing),
            Some(("container", image)) if !image.is_empty() => {
                let image = Some(image.to_owned());
                let container = Some(ContainerConfig { image, ..ContainerConfig::default() });
                Ok(WorkspaceConfig { container, ..nothing })
            }
            _ => {
                Err("must be project, worktree, devcontainer, container:IMAGE, or an object"
                    .to_owned())
            }
        }
    }
}

impl ContainerConfig {
    fn read(value: &Value) -> ContainerConfig {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let list = |name: &str| {
            let items = value.get(name).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let env = value.get("env").and_then(Value::as_object).into_iter().flatten();
        ContainerConfig {
            image: text("image"),
            engine: text("engine"),
            network: text("network"),
            memory: text("memory"),
            cpus: value.get("cpus").and_then(Value::as_f64),
            processes: value.get("processes").and_then(Value::as_u64),
            user: text("user"),
            env: env
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            mounts: list("mounts"),
            run_args: list("runArgs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // R: T7
    #[test]
    fn workspace_has_a_short_and_a_long_form() {
        let mut problems = Vec::new();
        let short = WorkspaceConfig::read(&json!("container:debian"), &mut problems);
        let long = json!({ "container": { "image": "debian" }, "worktree": false });
        assert_eq!(short, WorkspaceConfig::read(&long, &mut problems));
        assert!(WorkspaceConfig::read(&json!("worktree"), &mut problems).worktree);
        assert_eq!(problems, [""; 0]);
        let unknown = WorkspaceConfig::read(&json!("cloud"), &mut problems);
        assert_eq!((unknown, problems.len()), (WorkspaceConfig::default(), 1));
    }
}
