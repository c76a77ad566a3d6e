//! What users of other agents have set up is used, and none of its restrictions is lost.

use std::process::Output;

use crate::directory::Directory;
use crate::permissions::text;

/// A home directory with the settings of other agents, and a project in it.
struct Home(Directory);

impl Home {
    fn new() -> Home {
        let top = Directory::outside_of_tmp();
        std::fs::create_dir_all(top.join("w")).unwrap();
        Home(top)
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is no child of an agent")]
    fn purlin(&self, args: &[&str]) -> Output {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_purlin"));
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"] {
            command.env_remove(name);
        }
        command.args(args).env("HOME", self.0.path());
        command.stdin(std::process::Stdio::null()).output().unwrap()
    }

    fn explain(&self, command: &str) -> String {
        let cwd = self.0.text("w");
        text(&self.purlin(&["permissions", "explain", "--cwd", &cwd, "--", command]))
    }

    /// Runs a turn of a scripted model in the project that approves whatever is asked for.
    fn run(&self, prompt: &str, script: &str) -> String {
        self.0.write("script", script);
        let (cwd, script) = (self.0.text("w"), format!("script:{}", self.0.text("script")));
        let output = self.purlin(&[
            "run",
            prompt,
            "--output-format",
            "stream-json",
            "--allow",
            "all",
            "--cwd",
            &cwd,
            "--model",
            &script,
        ]);
        text(&output) + &String::from_utf8_lossy(&output.stderr)
    }
}

// R: T2
#[test]
fn rules_of_claude_code_apply_and_a_project_cannot_allow() {
    let home = Home::new();
    home.0.write(
        ".claude/settings.json",
        r#"{ "permissions": { "allow": ["Bash(make:*)"], "ask": ["Bash(make deploy:*)"],
            "deny": ["Bash(curl:*)", "Read(./.env)"] } }"#,
    );
    assert!(home.explain("make all").starts_with("Would run without asking."));
    assert!(home.explain("make deploy").starts_with("Would ask for permission."));
    assert!(home.explain("curl x").starts_with("Would be rejected."));
    assert!(home.explain("cat .env").starts_with("Would be rejected."));
    home.0.write(
        "w/.claude/settings.json",
        r#"{ "permissions": { "allow": ["Bash"], "deny": ["Bash(make test:*)"] } }"#,
    );
    assert!(home.explain("touch x").starts_with("Would ask for permission."));
    assert!(home.explain("make test").starts_with("Would be rejected."));
    home.0.write("w/.claude/settings.local.json", r#"{ "permissions": { "deny": ["Bsh(x)"] } }"#);
    let asked = home.explain("make all");
    assert!(asked.starts_with("Would ask for permission."), "{asked}");
    assert!(asked.contains("It is enforced as `ask`."), "{asked}");
    home.0.write("w/.claude/settings.local.json", "{");
    assert!(home.explain("ls").starts_with("Would ask for permission."));
}

// R: T2, P1
#[test]
fn hooks_and_nested_commands_of_claude_code_are_used() {
    let home = Home::new();
    home.0.write(
        ".claude/settings.json",
        r#"{ "hooks": { "PreToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command",
            "command": "grep -q '\"command\":\"touch blocked' && { echo 'not that' >&2; exit 2; }; exit 0" }] }] } }"#,
    );
    let script = "model tool bash {\"command\":\"touch blocked\"}\nmodel end\nmodel tool bash {\"command\":\"touch made\"}\nmodel end\nmodel text \"Done.\"";
    let ran = home.run("go", script);
    assert!(ran.contains("not that") && !home.0.join("w/blocked").exists(), "{ran}");
    assert!(home.0.join("w/made").exists(), "{ran}");
    home.0.write(".claude/commands/git/say.md", "---\naliases: [tell]\n---\nSay $ARGUMENTS now.");
    for name in ["git:say", "say", "tell"] {
        let ran = home.run(&format!("/{name} this"), "model echo\nmodel loop");
        assert!(ran.contains("Say this now."), "{name}: {ran}");
    }
}

// R: T2
#[test]
fn allowed_tools_of_a_command_apply_for_its_turn_only() {
    let home = Home::new();
    home.0.write(
        "script",
        "model tool bash {\"command\":\"touch made\"}\nmodel text \"Done.\"\nmodel loop",
    );
    let (cwd, script) = (home.0.text("w"), format!("script:{}", home.0.text("script")));
    let run = |prompt: &str| {
        let output = home.purlin(&["run", prompt, "--cwd", &cwd, "--model", &script]);
        text(&output) + &String::from_utf8_lossy(&output.stderr)
    };
    let command = "---\nallowed-tools: Bash(touch:*)\n---\nDo it.";
    // Without a terminal every question is rejected.
    home.0.write("w/.claude/commands/theirs.md", command);
    assert!(run("/theirs").contains("Rejected") && !home.0.join("w/made").exists());
    home.0.write(".claude/commands/mine.md", command);
    let ran = run("/mine");
    assert!(home.0.join("w/made").exists(), "{ran}");
    std::fs::remove_file(home.0.join("w/made")).unwrap();
    assert!(run("go").contains("Rejected") && !home.0.join("w/made").exists());
}

// R: T2
#[test]
fn import_shows_one_table_of_all_three() {
    let home = Home::new();
    home.0.write(
        ".config/opencode/opencode.json",
        r#"{ "model": "a/b", "permission": { "bash": "ask" }, "tools": { "x": false }, "theme": "dark" }"#,
    );
    home.0
        .write(".claude/settings.json", r#"{ "permissions": { "deny": ["Bsh(x)"] }, "env": {} }"#);
    home.0.write(".claude.json", r#"{ "mcpServers": { "docs": { "command": "docs" } } }"#);
    home.0.write(".codex/config.toml", "model = \"x\"\n[mcp_servers.web]\nurl = \"https://h\"\n");
    for (file, content) in [
        (".config/opencode/AGENTS.md", "Be brief."),
        (".config/opencode/agent/warm.md", "---\ntemperature: 1\n---\nWork."),
        (".config/opencode/themes/t.json", "{}"),
        (".claude/CLAUDE.md", "Be long."),
        (".claude/rules/r.md", "Rule."),
        (".claude/agents/look.md", "---\nname: look\n---\nLook."),
        (".claude/commands/git/commit.md", "Commit."),
        (".claude/commands/help.md", "Help."),
        (".claude/skills/ship/SKILL.md", "---\nname: ship\n---\nShip."),
        (".codex/AGENTS.md", "Be."),
        (".codex/prompts/draft.md", "Draft."),
    ] {
        home.0.write(file, content);
    }
    let shown = text(&home.purlin(&["config", "import"]));
    let has = |state: &str, setting: &str| {
        shown.lines().any(|line| line.starts_with(state) && line.contains(&format!(" {setting} ")))
    };
    for (state, setting) in [
        ("taken", "model"),
        ("changed", "permission"),
        ("taken", "tools.x"),
        ("not supported", "theme"),
        ("changed", "deny: Bsh(x)"),
        ("not supported", "env"),
        ("taken", "mcpServers.docs"),
        ("taken", "mcp_servers.web"),
        ("not supported", "model"),
        ("taken", "AGENTS.md"),
        ("changed", "agent warm"),
        ("not supported", "themes/"),
        ("not supported", "CLAUDE.md"),
        ("taken", "rules"),
        ("taken", "agent look"),
        ("taken", "command /git:commit"),
        ("not supported", "command /help"),
        ("taken", "skill ship"),
        ("not supported", "AGENTS.md"),
        ("not supported", "prompts/"),
    ] {
        assert!(has(state, setting), "{state} {setting}\n{shown}");
    }
    home.0.write(".codex/config.toml", "model = ");
    let broken = home.purlin(&["doctor"]);
    assert!(text(&broken).contains("none of its MCP servers starts"), "{broken:?}");
    home.0.write(".config/purlin/purlin.json", r#"{ "permission": "allow" }"#);
    assert!(home.explain("make").contains("Would ask"), "{}", home.explain("make"));
}

// R: T2
#[test]
fn switch_that_is_not_understood_asks_and_is_reported() {
    let home = Home::new();
    let allow = r#"{ "permission": "allow" }"#;
    home.0.write(".config/purlin/purlin.json", allow);
    assert!(home.explain("make").contains("Would run"), "{}", home.explain("make"));
    home.0.write(".config/opencode/opencode.json", r#"{ "tools": { "bash": "no" } }"#);
    let reported = home.purlin(&["doctor"]);
    assert!(text(&reported).contains("`tools.bash` must be true or false"), "{reported:?}");
    assert!(home.explain("make").contains("Would ask"), "{}", home.explain("make"));
    std::fs::remove_file(home.0.join(".config/opencode/opencode.json")).unwrap();
    // A project can restrict as well.
    home.0.write("w/opencode.json", r#"{ "tools": { "bash": 0 } }"#);
    assert!(home.explain("make").contains("Would ask"), "{}", home.explain("make"));
    for unclear in [r#""tools": ["read"]"#, r#""hooks": { "before_tool": "guard" }"#] {
        let home = Home::new();
        let config = format!("{{ \"permission\": \"allow\", {unclear} }}");
        home.0.write(".config/purlin/purlin.json", &config);
        assert!(home.explain("make").contains("Would ask"), "{unclear}: {}", home.explain("make"));
    }
}

// R: T2
#[test]
fn hook_of_a_project_and_server_of_codex_that_are_not_understood_are_not_lost() {
    for (file, unclear) in [
        ("w/purlin.json", r#"{ "hooks": { "before_tool": "guard" } }"#),
        ("w/.claude/settings.json", r#"{ "hooks": { "PreToolUse": "guard" } }"#),
    ] {
        let home = Home::new();
        home.0.write(".config/purlin/purlin.json", r#"{ "permission": "allow" }"#);
        assert!(home.explain("make").contains("Would run"), "{}", home.explain("make"));
        home.0.write(file, unclear);
        assert!(home.explain("make").contains("Would ask"), "{file}: {}", home.explain("make"));
    }
    let home = Home::new();
    let server = "[mcp_servers.docs]\ncommand = \"docs\"\ndisabled_tools = \"write\"\n";
    home.0.write(".codex/config.toml", server);
    let reported = text(&home.purlin(&["doctor"]));
    let must = "`mcp_servers.docs.disabled_tools` must be a list of strings. The server does not";
    assert!(reported.contains(must), "{reported}");
    let rows = text(&home.purlin(&["config", "import"]));
    assert!(rows.contains("turned off: `disabled_tools`"), "{rows}");
}
