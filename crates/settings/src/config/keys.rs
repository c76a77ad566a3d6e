//! The single table of the keys of `purlin.json`.
//!
//! `check` validates with it, `schema` prints it for editors and for docs/guide/config-keys.md, `show` lists it, and
//! `project` looks up which keys a project's file may set. A new key is a row here and a line in `Config::from_value`.

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// What it means, in a sentence or two.
    pub about: &'static str,
}

/// The type of a value.
#[derive(Debug)]
pub enum Kind {
    /// Any string.
    Text,
    /// A string that is never shown.
    Secret,
    /// One of these strings.
    Word(&'static [&'static str]),
    /// True or false.
    Switch,
    /// True or false, and one of both restricts. What is neither is reported and remains, so that its reader can restrict. The
    /// text says how it does.
    Guard(&'static str),
    /// A whole number, 0 or more.
    Whole,
    /// Any number.
    Number,
    /// A list of values of this type.
    List(&'static Kind),
    /// An object with these keys and no others.
    Object(&'static [Key]),
    /// An object with these keys. Other keys are allowed and not checked.
    Open(&'static [Key]),
    /// An object whose members are named by the user.
    Map(&'static Kind),
    /// One of these types, which JSON can tell apart.
    Either(&'static [Kind]),
    /// Permission rules. `permission::rules` reads them; an invalid rule never allows anything.
    Rules,
    /// The object with the limits; their table is [`crate::limits::Limits::TABLE`].
    Limits,
}

/// How a key applies in a project's file. A project can never extend what the user allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectUse {
    /// Applies, as the text describes.
    May(&'static str),
    /// Has no effect until the user approves it with `purlin trust`.
    Trusted(&'static str),
    /// Ignored and reported, for the reason in the text.
    Never(&'static str),
}

/// A top-level key.
#[derive(Debug)]
pub struct TopKey {
    /// The key.
    pub key: Key,
    /// How it applies in a project's file.
    pub project: ProjectUse,
    /// The environment variable that sets it, if any.
    pub variable: Option<&'static str>,
    /// The command-line flag that sets it, if any.
    pub flag: Option<&'static str>,
}

const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, about }
}

const fn top(key: Key, project: ProjectUse) -> TopKey {
    TopKey { key, project, variable: None, flag: None }
}

const fn settable(
    key: Key,
    project: ProjectUse,
    variable: &'static str,
    flag: Option<&'static str>,
) -> TopKey {
    TopKey { key, project, variable: Some(variable), flag }
}

use Kind::{
    Either, Guard, Limits, List, Map, Number, Object, Open, Rules, Secret, Switch, Text, Whole,
    Word,
};
use ProjectUse::{May, Never, Trusted};

/// All top-level keys.
pub static KEYS: [TopKey; 25] = [
    top(
        key(
            "$schema",
            Text,
            "Path of the JSON Schema that `purlin config schema` prints, for completion in editors.",
        ),
        May("Purlin ignores it"),
    ),
    settable(
        key("model", Text, "The model of new sessions: `provider/model`, or `script:FILE`."),
        Never("the user chooses which model to pay for"),
        "PURLIN_MODEL",
        Some("--model"),
    ),
    top(
        key(
            "small_model",
            Text,
            "The model for small tasks such as session titles: `provider/model`.",
        ),
        Never("the user chooses which model to pay for"),
    ),
    top(
        key(
            "provider",
            Map(&Open(PROVIDER)),
            "Model providers by name, in OpenCode's format; see docs/guide/models.md.",
        ),
        Never("it could send conversations and keys to another server"),
    ),
    top(
        key(
            "permission",
            Rules,
            "Permission rules, in OpenCode's format: one value for everything, or a value or patterns per key; see docs/guide/permissions.md.",
        ),
        May("rules that ask or deny apply at once; rules that allow need trust"),
    ),
    top(
        key(
            "tools",
            Map(&TOOL),
            "Tools by name or pattern, in OpenCode's format: `false` removes a tool from every session. The most specific pattern applies.",
        ),
        May("it can only remove tools"),
    ),
    top(
        key(
            "enabled_providers",
            Either(&[List(&Text), Text]),
            "The only providers whose models are used, as in OpenCode.",
        ),
        Never("the user chooses which models to use"),
    ),
    top(
        key(
            "disabled_providers",
            Either(&[List(&Text), Text]),
            "Providers whose models are not used, as in OpenCode.",
        ),
        Never("the user chooses which models to use"),
    ),
    top(
        key(
            "mcp",
            Map(&Open(SERVER)),
            "MCP servers by name, in OpenCode's format; see docs/guide/mcp.md.",
        ),
        Trusted("a server is a program that runs, or a third party that receives data"),
    ),
    top(
        key(
            "instructions",
            List(&Text),
            "Files or glob patterns whose text is sent to every model; see docs/guide/instructions.md.",
        ),
        May("files inside the project"),
    ),
    top(
        key(
            "agent",
            Map(&Open(AGENT)),
            "Agents by name, in OpenCode's format: session modes, and helpers for the `task` tool; see docs/guide/custom.md.",
        ),
        May("an agent can only restrict what the user allows"),
    ),
    top(
        key(
            "command",
            Map(&Object(COMMAND)),
            "Slash commands by name, in OpenCode's format; see docs/guide/custom.md.",
        ),
        May(
            "templates apply at once; running commands and changing the mode or the model need trust",
        ),
    ),
    top(
        key(
            "hooks",
            Object(HOOKS),
            "Commands to run before and after tools and turns; see docs/guide/custom.md.",
        ),
        Trusted("a hook is a program that runs"),
    ),
    top(
        key(
            "check",
            Map(&Either(&[Text, Object(CHECK)])),
            "Commands that check a file after the model changed it, by pattern, such as `\"*.rs\": \"cargo check --message-format=short\"`; see docs/guide/diagnostics.md.",
        ),
        Trusted("a checker is a program that runs"),
    ),
    top(
        key(
            "lsp",
            Either(&[Switch, Map(&Open(LSP))]),
            "Language servers by name, in OpenCode's format, which are asked about a file after the model changed it; see docs/guide/diagnostics.md.",
        ),
        Trusted("a language server is a program that runs"),
    ),
    top(
        key(
            "search",
            Object(SEARCH),
            "The search engine of the `web_search` tool; see docs/guide/tools.md.",
        ),
        Never("it would let the project choose who receives queries"),
    ),
    top(
        key("github", Object(GITHUB), "How GitHub is reached; see docs/guide/github.md."),
        Never("it would let the project choose who receives the user's token"),
    ),
    top(
        key("chat", Object(CHAT), "How the terminal client works; see docs/guide/chat.md."),
        Never("it is the user's terminal"),
    ),
    settable(
        key(
            "workspace",
            Either(&[Text, Object(WORKSPACE)]),
            "Where sessions work: `project`, `worktree`, `devcontainer`, `container:IMAGE`, or an object; see docs/guide/workspaces.md.",
        ),
        Never("the user decides where commands run; a project can have a devcontainer.json"),
        "PURLIN_WORKSPACE",
        Some("--workspace"),
    ),
    settable(
        key("limits", Limits, "Sizes, rates and timeouts; see docs/guide/limits.md."),
        Never("limits protect the user from a project's contents"),
        "PURLIN_LIMITS_NAME",
        None,
    ),
    settable(
        key(
            "agent_name",
            Text,
            "The name in `agentInfo`, for clients that expect another than `purlin`, such as `Claude Code Container`.",
        ),
        Never("it depends on the user's editor"),
        "PURLIN_AGENT_NAME",
        None,
    ),
    settable(
        key(
            "dialect",
            Word(&["v1", "message-reference", "container"]),
            "The protocol dialect to speak, instead of the detected one; see docs/internals/dialects.md.",
        ),
        Never("it depends on the user's editor"),
        "PURLIN_DIALECT",
        Some("--dialect"),
    ),
    settable(
        key(
            "trace",
            Text,
            "A file that records every message, with secrets masked; see docs/internals/trace.md.",
        ),
        Never("it would let the project choose a file to write"),
        "PURLIN_TRACE",
        Some("--trace"),
    ),
    top(
        key(
            "trace_context",
            Switch,
            "Passes the `traceparent` of a prompt on to models and MCP servers, so that their own traces continue the client's; see docs/internals/trace.md.",
        ),
        Never("it would let the project decide who learns about the user's traces"),
    ),
    settable(
        key(
            "store",
            Secret,
            "Where sessions are stored: a `postgres://` URL, or the `https://` URL of Durable Objects, which several machines may share; or a folder. Without it, the data folder; see docs/guide/sessions.md.",
        ),
        Never("it decides who can read the user's conversations"),
        "PURLIN_STORE",
        None,
    ),
];

const CHECK: &[Key] = &[
    key("command", Text, "The command, for the shell; `$1` is the file."),
    key("timeout", Whole, "Seconds it may run; default 60, at most 300."),
];

const LSP: &[Key] = &[
    key("command", List(&Text), "The program and its arguments."),
    key("extensions", List(&Text), "The ends of the names of its files, such as `.rs`."),
    key("env", Map(&Text), "Additional environment variables."),
    key("initialization", Open(&[]), "Options that the server is initialised with."),
    key("timeout", Whole, "Seconds to wait for its diagnostics; default 20, at most 300."),
    key("disabled", Switch, "Turns it off."),
];

const SEARCH: &[Key] = &[
    key("provider", Word(&["brave", "tavily", "exa", "searxng"]), "The search engine."),
    key("url", Text, "The address of its API; needed for searxng."),
    key(
        "apiKey",
        Secret,
        "API key. Prefer `{env:NAME}`, the variable BRAVE_API_KEY, TAVILY_API_KEY or EXA_API_KEY, or `purlin auth login`.",
    ),
    key("results", Whole, "The number of results; default 8, at most 20."),
];

const WORKSPACE: &[Key] = &[
    key("worktree", Switch, "Whether each session gets a git worktree and a branch of its own."),
    key(
        "devcontainer",
        Switch,
        "Whether commands run in the container that the project's `devcontainer.json` describes, once the project is trusted.",
    ),
    key("container", Object(CONTAINER), "The container that commands run in."),
];

const CONTAINER: &[Key] = &[
    key("image", Text, "The image. Optional with `devcontainer`."),
    key(
        "engine",
        Text,
        "The program that runs containers: `docker`, `podman`, or a path. Default: the first of these that is found.",
    ),
    key(
        "network",
        Text,
        "The engine's network for commands that may use the network. Default: the engine's own. All others have none.",
    ),
    key("memory", Text, "The most memory, such as `4g`. Default: `8g`."),
    key("cpus", Number, "The most processors. Default: no limit."),
    key("processes", Whole, "The most processes and threads. Default: 2048."),
    key("user", Text, "The user inside, by name or `UID:GID`. Default: you."),
    key("env", Map(&Text), "Variables of commands."),
    key("mounts", List(&Text), "Mounts beside the project, as for `--mount` of the engine."),
    key("runArgs", List(&Text), "Further arguments of the engine's `run`."),
];

const CHAT: &[Key] = &[
    key(
        "keys",
        Map(&Text),
        "Keys, such as `ctrl-t`, with the actions that they do; `none` for nothing.",
    ),
    key("vi", Switch, "Gives the input the keys of vi."),
    key("screen_reader", Switch, "Prints everything in order and without motion."),
];

const GITHUB: &[Key] = &[
    key("host", Text, "The host of a GitHub Enterprise server."),
    key("apiUrl", Text, "The address of its API; default `https://HOST/api/v3`."),
    key("clientId", Text, "The client id of the OAuth app for `purlin auth login github`."),
];

const PROVIDER: &[Key] = &[
    key("npm", Text, "The package that OpenCode would load; it selects the API format."),
    key("name", Text, "Display name."),
    key("options", Open(CONNECTION), "Connection settings."),
    key("models", Map(&Open(MODEL)), "Models by name."),
];

const CONNECTION: &[Key] = &[
    key("baseURL", Text, "Base URL of the API."),
    key("apiKey", Secret, "API key. Prefer `{env:NAME}` or `purlin auth login`."),
    key("headers", Map(&Secret), "HTTP headers for every request."),
    key(
        "headerTimeout",
        Either(&[Whole, Switch]),
        "Timeout for the first byte, in milliseconds; `false` for none.",
    ),
    key(
        "chunkTimeout",
        Either(&[Whole, Switch]),
        "Timeout between two chunks, in milliseconds; `false` for none.",
    ),
    key("retryDelay", Whole, "First delay before a retry, in milliseconds."),
    key(
        "retryTimeout",
        Whole,
        "Most milliseconds to wait in all for a provider that is overloaded or limits requests; default 120000.",
    ),
    key("resourceName", Text, "Resource of Azure OpenAI."),
    key("apiVersion", Text, "Version of Azure OpenAI's older API; without it the v1 API is used."),
    key("region", Text, "Region of Amazon Bedrock."),
];

const MODEL: &[Key] = &[
    key("id", Text, "The provider's name for the model, if it differs from the key."),
    key("name", Text, "Display name."),
    key("limit", Object(TOKENS), "Token limits."),
    key("cost", Open(COST), "Prices in US dollars per million tokens."),
    key("reasoning", Switch, "Whether the model supports reasoning."),
    key(
        "profile",
        Word(&["brief", "full"]),
        "What the model is told: `brief` is six tools with short descriptions, `full` is everything. The default is `brief` for models of up to 8 billion parameters (by their name) and for windows of up to 16,384 tokens.",
    ),
    key("modalities", Open(MODALITIES), "Supported inputs."),
    key(
        "options",
        Open(MODEL_OPTIONS),
        "Options that are sent with every request, where the API format has them.",
    ),
];

const MODEL_OPTIONS: &[Key] = &[
    key("reasoningEffort", Text, "How much the model thinks, unless you choose a thinking level."),
    key(
        "thinking",
        Open(&[]),
        "Anthropic's setting for thinking, unless you choose a thinking level.",
    ),
    key("temperature", Number, "How much answers vary."),
];

const MODALITIES: &[Key] =
    &[key("input", List(&Text), "`text`, and `image` if the model accepts images.")];

const TOKENS: &[Key] = &[
    key("context", Whole, "Size of the context window."),
    key("input", Whole, "Most tokens in a request."),
    key("output", Whole, "Most tokens in a response."),
];

const COST: &[Key] = &[
    key("input", Number, "Input tokens."),
    key("output", Number, "Output tokens."),
    key("cache_read", Number, "Cached input tokens."),
    key("cache_write", Number, "Tokens written to the cache."),
];

const SERVER: &[Key] = &[
    key(
        "type",
        Word(&["local", "remote", "stdio", "http", "sse"]),
        "Transport; inferred from `command` or `url` if missing.",
    ),
    key(
        "command",
        Either(&[List(&Text), Text]),
        "The program and its arguments; a string is the program alone.",
    ),
    key("args", List(&Text), "Additional arguments."),
    key(
        "environment",
        Map(&Secret),
        "Environment variables. `PATH`, `HOME` and `LANG` are passed on.",
    ),
    key("env", Map(&Secret), "Same as `environment`."),
    key("cwd", Text, "Working directory."),
    key("url", Text, "URL of a remote server."),
    key("headers", Map(&Secret), "HTTP headers for every request."),
    key(
        "enabled",
        Guard("The server does not start until this is corrected."),
        "`false` disables the server in every session, also if an editor asks for it.",
    ),
    key("timeout", Whole, "Milliseconds until a start is reported as slow."),
    key("shared", Switch, "Share one process between all sessions."),
    key("sandbox", Switch, "`false` runs it without the sandbox."),
    key(
        "container",
        Switch,
        "`true` runs it in the session's container; see docs/guide/workspaces.md.",
    ),
];

const TOOL: Kind = Guard("The tool asks for permission until this is corrected.");

const AGENT: &[Key] = &[
    key("description", Text, "What the agent is for; models read it to choose one."),
    key(
        "mode",
        Word(&["primary", "subagent", "all"]),
        "`primary`: a session mode. `subagent`: a helper for the `task` tool. `all` (default): both.",
    ),
    key("model", Text, "Its model: `provider/model`."),
    key(
        "prompt",
        Text,
        "Replaces the instructions of the mode; `{file:./prompt.md}` reads a file.",
    ),
    key(
        "tools",
        Either(&[Map(&TOOL), List(&Text), Text]),
        "Its tools: a map of pattern to true or false, or a list.",
    ),
    key("permission", Rules, "Additional permission rules; the stricter rule applies."),
    key(
        "steps",
        Whole,
        "Most model requests per turn, if lower than the limit; OpenCode's `maxSteps` works too.",
    ),
    key(
        "disable",
        Guard("The agent is removed until this is corrected."),
        "`true` removes the agent.",
    ),
];

const COMMAND: &[Key] = &[
    key("template", Text, "The prompt. `$ARGUMENTS`, `$1`, `@file` and !`command` are replaced."),
    key("description", Text, "Text for the list of commands."),
    key("agent", Text, "Mode of its turn."),
    key("model", Text, "Model of its turn: `provider/model`."),
    key("subtask", Switch, "Has no effect here."),
];

const HOOKS: &[Key] = &[
    key(
        "before_turn",
        List(&Object(HOOK)),
        "Run before a prompt goes to the model; can reject it.",
    ),
    key(
        "before_tool",
        List(&Object(HOOK)),
        "Run before a tool call and before its permission request; can reject it.",
    ),
    key("after_tool", List(&Object(HOOK)), "Run after a tool call."),
    key("after_turn", List(&Object(HOOK)), "Run after a turn."),
];

const HOOK: &[Key] = &[
    key("command", Text, "Shell command. It reads JSON on stdin and may print JSON."),
    key("matcher", Text, "Tool name patterns, separated by a vertical bar; all tools if missing."),
    key("timeout", Whole, "Timeout in seconds; default 10, at most 60."),
];

/// Finds a key at the top.
pub fn find(name: &str) -> Option<&'static TopKey> {
    KEYS.iter().find(|top| top.key.name == name)
}
