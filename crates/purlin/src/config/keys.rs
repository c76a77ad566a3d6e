//! The one table of what `purlin.json` may hold.
//!
//! `check` validates with it, `schema` prints it for editors and for docs/guide/configuration.md, `show` walks it, and `project` asks
//! it what a project's file may set. A new key is a row here and a line in `Config::from_value`.

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) kind: Kind,
    /// What it means, in a sentence or two.
    pub(crate) about: &'static str,
}

/// What a key holds.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// A text that is never shown.
    Secret,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True or false.
    Switch,
    /// A whole number, 0 or more.
    Whole,
    /// Any number.
    Number,
    /// A list of these.
    List(&'static Kind),
    /// An object with these keys and no others.
    Object(&'static [Key]),
    /// An object with these keys; others are somebody else's business.
    Open(&'static [Key]),
    /// An object whose members are named by the user.
    Map(&'static Kind),
    /// One or another; each looks different in JSON.
    Either(&'static [Kind]),
    /// Rules of permission. Their reader is `permission::rules`, which never lets a mistake allow.
    Rules,
    /// The object of all limits; their own table is [`crate::limits::Limits::TABLE`].
    Limits,
}

/// What a project's own file may do with a key. Nothing that a project says ever widens what the user allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Project {
    /// It counts, as far as the sentence says.
    May(&'static str),
    /// It is inert until the user has seen it and said yes with `purlin trust`.
    Trusted(&'static str),
    /// It is ignored and reported, with why.
    Never(&'static str),
}

/// A key at the top of the file.
#[derive(Debug)]
pub(crate) struct TopKey {
    /// The key.
    pub(crate) key: Key,
    /// What a project may do with it.
    pub(crate) project: Project,
    /// The variable of the environment that sets it, where there is one.
    pub(crate) variable: Option<&'static str>,
    /// The flag of the command line that sets it, where there is one.
    pub(crate) flag: Option<&'static str>,
}

const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, about }
}

const fn top(key: Key, project: Project) -> TopKey {
    TopKey { key, project, variable: None, flag: None }
}

const fn settable(
    key: Key,
    project: Project,
    variable: &'static str,
    flag: Option<&'static str>,
) -> TopKey {
    TopKey { key, project, variable: Some(variable), flag }
}

use Kind::{
    Either, Limits, List, Map, Number, Object, Open, Rules, Secret, Switch, Text, Whole, Word,
};
use Project::{May, Never, Trusted};

/// Everything that may stand at the top of the file.
pub(crate) static KEYS: [TopKey; 13] = [
    top(
        key(
            "$schema",
            Text,
            "Where an editor finds the schema that `purlin config schema` prints.",
        ),
        May("it means nothing to us"),
    ),
    settable(
        key("model", Text, "The model to begin with: `provider/model`, or `script:FILE`."),
        Never("which model is paid for is the user's choice"),
        "PURLIN_MODEL",
        Some("--model"),
    ),
    top(
        key("small_model", Text, "The model for small work, such as titles: `provider/model`."),
        Never("which model is paid for is the user's choice"),
    ),
    top(
        key(
            "provider",
            Map(&Open(PROVIDER)),
            "Providers of models by name, as OpenCode has them; see docs/guide/models.md.",
        ),
        Never("it would send conversations and keys elsewhere"),
    ),
    top(
        key(
            "permission",
            Rules,
            "Rules of permission, as OpenCode has them: a word for all, or for each key a word or words by pattern; see docs/guide/permissions.md.",
        ),
        May("rules that ask or deny count at once; rules that allow need trust"),
    ),
    top(
        key(
            "mcp",
            Map(&Open(SERVER)),
            "MCP servers by name, as OpenCode has them; see docs/guide/mcp.md.",
        ),
        Trusted("a server is a program that runs, or a stranger that is told things"),
    ),
    top(
        key(
            "instructions",
            List(&Text),
            "Files, or patterns of files, whose text every model is given; see docs/internals/context.md.",
        ),
        May("files inside the project"),
    ),
    top(
        key(
            "agent",
            Map(&Open(AGENT)),
            "Agents by name, as OpenCode has them: modes, and helpers for the `task` tool; see docs/guide/custom.md.",
        ),
        May("an agent only narrows what the user allows"),
    ),
    top(
        key(
            "command",
            Map(&Object(COMMAND)),
            "Slash commands by name, as OpenCode has them; see docs/guide/custom.md.",
        ),
        May("texts count at once; running commands and changing the mode or the model need trust"),
    ),
    top(
        key(
            "hooks",
            Object(HOOKS),
            "Commands that are asked when tools and turns begin and end; see docs/guide/custom.md.",
        ),
        Trusted("a hook is a program that runs"),
    ),
    settable(
        key("limits", Limits, "Sizes, rates and time-outs; docs/guide/limits.md has them all."),
        Never("limits protect the user from what a project contains"),
        "PURLIN_LIMITS_NAME",
        None,
    ),
    settable(
        key(
            "dialect",
            Word(&["v1", "message-reference", "container"]),
            "The dialect to speak, instead of the one that is recognised; see docs/internals/dialects.md.",
        ),
        Never("only the user knows their editor"),
        "PURLIN_DIALECT",
        Some("--dialect"),
    ),
    settable(
        key(
            "trace",
            Text,
            "The file that every message is written to, with secrets masked; see docs/internals/trace.md.",
        ),
        Never("it would write where the project says"),
        "PURLIN_TRACE",
        Some("--trace"),
    ),
];

const PROVIDER: &[Key] = &[
    key("npm", Text, "The package that OpenCode would load; says which format is spoken."),
    key("name", Text, "What people call it."),
    key("options", Open(CONNECTION), "How it is reached."),
    key("models", Map(&Open(MODEL)), "Its models by name."),
];

const CONNECTION: &[Key] = &[
    key("baseURL", Text, "Where it is."),
    key("apiKey", Secret, "Its key; better `{env:NAME}`, or `purlin auth login`."),
    key("headers", Map(&Secret), "Headers for every request."),
    key(
        "headerTimeout",
        Either(&[Whole, Switch]),
        "Milliseconds until the first byte; `false` for no end.",
    ),
    key(
        "chunkTimeout",
        Either(&[Whole, Switch]),
        "Milliseconds from one byte to the next; `false` for no end.",
    ),
    key("retryDelay", Whole, "Milliseconds that the waits before a retry begin with."),
];

const MODEL: &[Key] = &[
    key("id", Text, "Its name at the provider, where the config calls it otherwise."),
    key("name", Text, "What people call it."),
    key("limit", Object(TOKENS), "How many tokens it can hold."),
    key("cost", Open(COST), "What it costs, in US dollars for a million tokens."),
    key("reasoning", Switch, "Whether it thinks."),
    key("modalities", Open(MODALITIES), "What it takes."),
];

const MODALITIES: &[Key] =
    &[key("input", List(&Text), "`text`, and `image` if it takes pictures.")];

const TOKENS: &[Key] = &[
    key("context", Whole, "All together."),
    key("input", Whole, "In a request."),
    key("output", Whole, "In an answer."),
];

const COST: &[Key] = &[
    key("input", Number, "Read anew."),
    key("output", Number, "Written."),
    key("cache_read", Number, "Read from the cache."),
    key("cache_write", Number, "Put into the cache."),
];

const SERVER: &[Key] = &[
    key(
        "type",
        Word(&["local", "remote", "stdio", "http", "sse"]),
        "How it is reached; told from `command` and `url` where it is missing.",
    ),
    key(
        "command",
        Either(&[List(&Text), Text]),
        "The program and its arguments; a text is the program alone.",
    ),
    key("args", List(&Text), "More arguments."),
    key(
        "environment",
        Map(&Secret),
        "Variables of its environment; of ours it gets `PATH`, `HOME` and `LANG`.",
    ),
    key("env", Map(&Secret), "The same as `environment`."),
    key("cwd", Text, "The folder it runs in."),
    key("url", Text, "Where it is."),
    key("headers", Map(&Secret), "Headers for every request."),
    key("enabled", Switch, "`false` keeps it away from every session, whoever asks for it."),
    key("timeout", Whole, "Milliseconds it has to start before it is called late."),
    key("shared", Switch, "One for all sessions, instead of one for each."),
    key("sandbox", Switch, "`false` lets it run without the sandbox."),
];

const AGENT: &[Key] = &[
    key("description", Text, "What it is good for; models read it to choose."),
    key(
        "mode",
        Word(&["primary", "subagent", "all"]),
        "A mode for the user, a helper for other agents, or both (if not given).",
    ),
    key("model", Text, "The model it wants: `provider/model`."),
    key(
        "prompt",
        Text,
        "What it is told, instead of what every mode is told; `{file:./prompt.md}` reads a file.",
    ),
    key(
        "tools",
        Either(&[Map(&Switch), List(&Text), Text]),
        "Which tools it has: switches by pattern, or a list of all it has.",
    ),
    key("permission", Rules, "Rules that are held beside the session's; the stricter counts."),
    key("steps", Whole, "How often it may ask its model in one turn, if less than usual."),
    key("disable", Switch, "`true` for as if it were not written."),
];

const COMMAND: &[Key] = &[
    key(
        "template",
        Text,
        "What the model is told: `$ARGUMENTS`, `$1`, `@file` and !`command` are filled in.",
    ),
    key("description", Text, "What it does, for the list of commands."),
    key("agent", Text, "The mode for its turn."),
    key("model", Text, "The model for its turn: `provider/model`."),
    key("subtask", Switch, "Has no effect here."),
];

const HOOKS: &[Key] = &[
    key("before_turn", List(&Object(HOOK)), "Asked before a prompt goes to the model."),
    key("before_tool", List(&Object(HOOK)), "Asked before a tool is used, and before the user is."),
    key("after_tool", List(&Object(HOOK)), "Told what a tool did."),
    key("after_turn", List(&Object(HOOK)), "Told that a turn has ended."),
];

const HOOK: &[Key] = &[
    key("command", Text, "The command, for the shell. It reads JSON and may answer with JSON."),
    key("matcher", Text, "The tools it is for: patterns with `|` between them; all if not given."),
    key("timeout", Whole, "Seconds it has: 10 if not given, at most 60."),
];

/// Finds a key at the top.
pub(crate) fn find(name: &str) -> Option<&'static TopKey> {
    KEYS.iter().find(|top| top.key.name == name)
}
