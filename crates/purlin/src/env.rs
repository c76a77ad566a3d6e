//! The environment: the only module that reads its variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use engine::words::{Secret, visible};
use providers::{ApiKey, key_variables, keyed_providers, known_providers, setting_variables};
use serve::MachineOptions;
use settings::{Config, Directories, Environment};

use crate::guide;

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a variable that the user named.
pub(crate) fn variable(name: &str) -> Option<String> {
    text(name)
}

fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(OsString::into_string)
        .and_then(Result::ok)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// Returns the user's directories, by the XDG rules.
#[must_use]
pub fn directories() -> Directories {
    let home = path("HOME");
    let base =
        |name: &str, default: &str| path(name).or_else(|| Some(home.as_ref()?.join(default)));
    let config = base("XDG_CONFIG_HOME", ".config");
    let data = base("XDG_DATA_HOME", ".local/share");
    let ours = |base: &Option<PathBuf>| Some(base.as_ref()?.join("purlin"));
    Directories {
        config: ours(&config),
        data: ours(&data),
        state: ours(&base("XDG_STATE_HOME", ".local/state")),
        cache: ours(&base("XDG_CACHE_HOME", ".cache")),
        opencode_config: config.map(|base| base.join("opencode")),
        opencode_data: data.map(|base| base.join("opencode")),
        claude: path("CLAUDE_CONFIG_DIR").or_else(|| Some(home.as_ref()?.join(".claude"))),
        claude_state: home.as_ref().map(|home| home.join(".claude.json")),
        codex: path("CODEX_HOME").or_else(|| Some(home.as_ref()?.join(".codex"))),
        home,
    }
}

/// Returns the directory for temporary files.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn temporary() -> PathBuf {
    std::env::temp_dir()
}

/// Returns which colours the terminal has, as far as the environment says.
#[must_use]
pub fn colors() -> chat::ColorEnvironment {
    chat::ColorEnvironment {
        no_color: text("NO_COLOR").is_some(),
        term: text("TERM"),
        colorterm: text("COLORTERM"),
    }
}

/// Returns the names of the terminal, which say how it shows images.
pub(crate) fn image_environment() -> chat::image::ImageEnvironment {
    chat::image::ImageEnvironment {
        term: text("TERM"),
        program: text("TERM_PROGRAM").or_else(|| text("LC_TERMINAL")),
        is_tmux: text("TMUX").is_some(),
    }
}

/// Returns the command line of the user's editor.
pub(crate) fn editor() -> Option<String> {
    text("VISUAL").or_else(|| text("EDITOR"))
}

/// Tells whether a line on the terminal can be drawn again.
pub(crate) fn can_move_cursor() -> bool {
    text("TERM").is_some_and(|term| term != "dumb")
}

/// Returns what the configuration is read with.
#[must_use]
pub fn environment() -> Environment {
    Environment {
        directories: directories(),
        overrides: overrides(),
        variable: text,
        known_providers: known_providers(),
        builtin_model: guide::ID,
    }
}

/// Reads the configuration: the given file, or the user's.
#[must_use]
pub fn load_config(file: Option<PathBuf>) -> (Config, Vec<String>) {
    Config::load(file, &environment())
}

/// Reads the user's configuration for a command of the shell, and reports on stderr what is wrong with it.
#[must_use]
pub fn load_and_report(file: Option<PathBuf>) -> Config {
    let (config, problems) = load_config(file);
    problems.iter().for_each(|problem| eprintln!("{}", visible(problem)));
    config
}

/// Returns what sessions find on this machine. `helper` is a copy of this program, which becomes a sandboxed command.
#[must_use]
pub fn machine_options(helper: PathBuf) -> MachineOptions {
    MachineOptions {
        helper,
        directories: directories(),
        policy_files: Vec::new(),
        temporary: temporary(),
        search: search_path(),
        command_environment: for_commands(),
        server_environment: for_servers(),
        engine_environment: for_engines(),
    }
}

/// Returns this machine. If our own path is unknown, the sandbox is not available and every command needs permission.
pub(crate) fn this_machine() -> MachineOptions {
    machine_options(std::env::current_exe().unwrap_or_default())
}

/// Returns the options of a host for MCP servers on this machine.
pub(crate) fn host_options() -> mcp::Options {
    let machine = this_machine();
    serve::mcp_servers::host_options(&machine, serve::sandbox(&machine))
}

/// Returns the providers that have API keys.
pub(crate) fn providers_with_keys() -> Vec<&'static str> {
    keyed_providers().map(|(id, _)| id).collect()
}

/// Returns the directories of `PATH`.
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map_or_else(Vec::new, |path| std::env::split_paths(&path).collect())
}

/// Returns the environment of commands: the user, the locations of development tools, and no secrets.
fn for_commands() -> Vec<(String, String)> {
    let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), text(name)?)));
    let set = SET.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut all: Vec<(String, String)> = inherited.chain(set).collect();
    if !all.iter().any(|(name, _)| name == "LANG") {
        all.push(("LANG".to_owned(), "C.UTF-8".to_owned()));
    }
    all
}

/// The variables that commands inherit.
const INHERITED: [&str; 22] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "GOMODCACHE",
    "JAVA_HOME",
    "ANDROID_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "GEM_HOME",
    "NIX_PATH",
    "PKG_CONFIG_PATH",
];

/// The variables that are set for commands: no colours, no pager, no prompts.
const SET: [(&str, &str); 9] = [
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // A repository could configure a file monitor, which `git status` would run.
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("SHELL", "/bin/sh"),
];

/// Tells whether a test asks for the bug that the crash test must find. Never in a release.
#[must_use]
pub(crate) fn is_journal_late() -> bool {
    cfg!(debug_assertions) && text("PURLIN_TEST_LATE_JOURNAL").is_some()
}

/// Returns the variables that set keys of the configuration.
fn overrides() -> Vec<(String, String)> {
    let is_ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("PURLIN_"));
    let ours = std::env::vars_os().filter(|(name, _)| is_ours(name));
    ours.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// Returns where model servers listen, by provider: Ollama and llama.cpp have variables for their addresses.
pub(crate) fn model_servers() -> BTreeMap<String, Vec<String>> {
    let ollama = text("OLLAMA_HOST").and_then(|host| server_place(&host, "11434"));
    let llama = text("LLAMA_ARG_PORT").and_then(|port| {
        let host = text("LLAMA_ARG_HOST").unwrap_or_default();
        server_place(&format!("{host}:{port}"), &port)
    });
    let places = [("ollama", ollama), ("llama.cpp", llama)];
    let set = places.into_iter().filter_map(|(id, place)| Some((id.to_owned(), vec![place?])));
    set.collect()
}

/// Returns the settings of providers in the environment that are no keys, by variable.
pub(crate) fn provider_settings() -> BTreeMap<String, String> {
    setting_variables().filter_map(|name| Some((name.to_owned(), text(name)?))).collect()
}

/// Reads the address of a server, with or without scheme and port.
fn server_place(host: &str, default_port: &str) -> Option<String> {
    let (scheme, rest) = host.trim().split_once("://").unwrap_or(("http", host.trim()));
    let rest = rest.trim_end_matches('/');
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|digit| digit.is_ascii_digit()) => (name, port),
        _ => (rest, default_port),
    };
    // A server that listens on all addresses is reached on the local one.
    let name = if name.is_empty() || name == "0.0.0.0" { "127.0.0.1" } else { name };
    let is_plain =
        name.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-[]:".contains(letter));
    is_plain.then(|| format!("{scheme}://{name}:{port}/v1"))
}

/// Returns the variables that MCP servers inherit.
fn for_servers() -> Vec<(OsString, OsString)> {
    const NAMES: [&str; 4] = ["PATH", "HOME", "LANG", "SystemRoot"];
    NAMES.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect()
}

/// Returns the names of the variables that the agent needs in a container: API keys, settings of providers and our own.
pub(crate) fn for_container() -> Vec<String> {
    let known = key_variables().chain(setting_variables()).filter(|name| text(name).is_some());
    let mut names: Vec<String> = known.map(str::to_owned).collect();
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.extend(ours.filter(|name| name.starts_with("PURLIN_")));
    names.sort();
    names.dedup();
    names
}

/// Returns the environment of Docker and Podman.
fn for_engines() -> Vec<(OsString, OsString)> {
    const NAMES: [&str; 19] = [
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "TMPDIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_CONFIG",
        "DOCKER_TLS_VERIFY",
        "DOCKER_CERT_PATH",
        "CONTAINER_HOST",
        "CONTAINERS_CONF",
        "CONTAINERS_STORAGE_CONF",
        "HTTPS_PROXY",
        "SystemRoot",
    ];
    NAMES.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect()
}

/// Returns what the environment has for GitHub: tokens, and what the credential helpers of git and ssh need.
pub(crate) fn github() -> serve::GitHubEnvironment {
    const TOKENS: [&str; 4] =
        ["GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"];
    const VARIABLES: [&str; 17] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TMPDIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
        "SSH_AUTH_SOCK",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_GLOBAL",
        "GNUPGHOME",
        "GH_CONFIG_DIR",
        "HTTPS_PROXY",
        "SystemRoot",
    ];
    let tokens =
        TOKENS.iter().filter_map(|name| Some(((*name).to_owned(), Secret::new(text(name)?))));
    let variables =
        VARIABLES.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    serve::GitHubEnvironment { tokens: tokens.collect(), variables: variables.collect() }
}

/// Returns the API keys in the environment, by variable.
pub(crate) fn keys() -> BTreeMap<String, ApiKey> {
    let set = |name: &'static str| Some((name.to_owned(), ApiKey::new(&text(name)?)));
    key_variables().filter_map(set).collect()
}

/// Returns the directory for sockets: only this user can enter it, and it need not survive a restart.
#[must_use]
pub(crate) fn runtime_directory() -> Option<PathBuf> {
    let runtime = path("XDG_RUNTIME_DIR").map(|directory| directory.join("purlin"));
    runtime.or_else(|| Some(directories().state?.join("run")))
}

/// Returns the trace file.
#[must_use]
pub(crate) fn trace_file() -> Option<PathBuf> {
    text("PURLIN_TRACE").map(PathBuf::from)
}

/// Returns where programs are searched.
pub(crate) fn program_path() -> String {
    text("PATH").unwrap_or_default()
}

/// Returns what `purlin check` gives to its MCP server: a file to write to, and a mark.
pub(crate) fn mcp_probe() -> Option<(PathBuf, String)> {
    let file = text("MCP_PROBE_FILE").map(PathBuf::from)?;
    Some((file, text("MCP_PROBE_MARK").unwrap_or_default()))
}

/// Returns the level of the log file.
#[must_use]
pub(crate) fn log_file_level() -> Option<String> {
    text("PURLIN_LOG_FILE")
}

/// Returns the log level.
#[must_use]
pub(crate) fn log_level() -> Option<String> {
    text("PURLIN_LOG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_address_is_read_from_its_variable() {
        let place = |host: &str| server_place(host, "11434").unwrap();
        assert_eq!(place("127.0.0.1:5000"), "http://127.0.0.1:5000/v1");
        assert_eq!(place("0.0.0.0"), "http://127.0.0.1:11434/v1");
        assert_eq!(place("https://box:443/"), "https://box:443/v1");
        assert_eq!(place(":5000"), "http://127.0.0.1:5000/v1");
        assert_eq!(server_place("box/../x", "1"), None);
    }
}
