//! Claude Code's permission rules, such as `Bash(npm run test:*)`, in the terms of our own.
//!
//! The same text can restrict or allow. Where both languages differ, a restriction covers more than it says, and a
//! permission less. What cannot be translated is an error, never dropped: the caller asks instead.

use std::path::Path;

use engine::words::pattern::literal;

/// What a rule is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It denies or asks.
    Restricts,
    /// It allows.
    Allows,
}

/// A key of our rules, and a pattern of its subjects.
pub(crate) type Target = (String, String);

/// Why a rule cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unclear {
    /// The key that it is about; `*` if that is unknown too.
    pub(crate) key: String,
    /// The reason, as the end of a sentence.
    pub(crate) why: String,
}

/// Tools of Claude Code that none of ours does the work of.
const ABSENT: [&str; 8] = [
    "todowrite",
    "todoread",
    "exitplanmode",
    "enterplanmode",
    "killshell",
    "bashoutput",
    "slashcommand",
    "askuserquestion",
];

/// Translates a rule. Returns no target for a tool that we do not have.
pub(crate) fn translate(
    rule: &str,
    effect: Effect,
    home: Option<&Path>,
) -> Result<Vec<Target>, Unclear> {
    let rule = rule.trim();
    if let Some(name) = rule.strip_prefix("mcp__") {
        return Ok(vec![(mcp_key(name), "*".to_owned())]);
    }
    let (tool, inside) = match rule.split_once('(') {
        None => (rule, None),
        Some((tool, rest)) => match rest.strip_suffix(')') {
            Some(inside) => (tool.trim(), Some(inside.trim())),
            None => return Err(unclear("*", "has no closing parenthesis")),
        },
    };
    let tool = tool.to_ascii_lowercase();
    let key = match tool.as_str() {
        "bash" => "bash",
        "read" | "notebookread" => "read",
        "edit" | "multiedit" | "notebookedit" | "write" => "edit",
        "glob" => "glob",
        "grep" => "grep",
        "ls" => "list",
        "webfetch" => "webfetch",
        "websearch" => "websearch",
        "task" | "agent" => "task",
        "skill" => "skill",
        absent if ABSENT.contains(&absent) => return Ok(Vec::new()),
        _ => return Err(unclear("*", "names an unknown tool")),
    };
    let patterns = match inside {
        None | Some("" | "*") => vec!["*".to_owned()],
        Some(inside) => match key {
            "bash" => commands(inside, effect),
            "read" | "edit" | "glob" | "grep" | "list" => files(inside, effect, key, home)?,
            "webfetch" => domains(inside, effect)?,
            _ => vec![literal_stars(inside)],
        },
    };
    Ok(patterns.into_iter().map(|pattern| (key.to_owned(), pattern)).collect())
}

fn unclear(key: &str, why: &str) -> Unclear {
    Unclear { key: key.to_owned(), why: why.to_owned() }
}

/// Returns the key of an MCP tool, or of all tools of a server, as they are offered to models.
fn mcp_key(name: &str) -> String {
    let letter = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '*' => character,
        _ => '_',
    };
    let (server, tool) = name.split_once("__").unwrap_or((name, "*"));
    format!("{server}_{tool}").chars().map(letter).collect()
}

/// Escapes what is special in our patterns only.
fn literal_stars(text: &str) -> String {
    text.split('*').map(literal).collect::<Vec<_>>().join("*")
}

/// Translates commands: `npm run test:*` is a prefix.
fn commands(inside: &str, effect: Effect) -> Vec<String> {
    let Some(prefix) = inside.strip_suffix(":*") else { return vec![literal_stars(inside)] };
    let prefix = literal_stars(prefix);
    let mut patterns = vec![format!("{prefix} *")];
    if effect == Effect::Restricts {
        patterns.push(format!("{prefix}*"));
    }
    patterns
}

/// Translates a pattern of files, in the language of `.gitignore`.
fn files(
    inside: &str,
    effect: Effect,
    key: &str,
    home: Option<&Path>,
) -> Result<Vec<String>, Unclear> {
    if inside.starts_with('!') || inside.contains(['[', '{', '\\']) {
        return Err(unclear(key, "has a pattern that is not supported"));
    }
    let from_home = |rest: &str| match home {
        Some(home) => Ok(format!("{}/{rest}", home.display())),
        None => Err(unclear(key, "names the home directory, which is unknown")),
    };
    // Absolute, or from the directory; in the directory, a single name is meant at any depth.
    let mut paths: Vec<String> = match inside {
        path if path.starts_with("//") => vec![path[1..].to_owned()],
        path if path.starts_with("~/") => vec![from_home(&path[2..])?],
        path if path.starts_with('/') => match effect {
            Effect::Allows => vec![path[1..].to_owned()],
            // Many people mean an absolute path.
            Effect::Restricts => vec![path[1..].to_owned(), path.to_owned()],
        },
        path => {
            let path = path.strip_prefix("./").unwrap_or(path);
            let is_name = !path.trim_end_matches('/').contains('/');
            match is_name {
                true => vec![path.to_owned(), format!("**/{path}")],
                false => vec![path.to_owned()],
            }
        }
    };
    if effect == Effect::Restricts {
        // A pattern of a directory covers everything in it.
        let below: Vec<String> =
            paths.iter().map(|path| format!("{}/**", path.trim_end_matches('/'))).collect();
        paths.extend(below);
    }
    let mut patterns = Vec::new();
    for path in paths {
        patterns.extend(one_file(&path, effect, key)?);
    }
    patterns.dedup();
    Ok(patterns)
}

/// Translates one path. Our `*` crosses slashes, as `**` does there.
fn one_file(path: &str, effect: Effect, key: &str) -> Result<Vec<String>, Unclear> {
    let path = match path.strip_suffix('/') {
        Some(directory) => format!("{directory}/**"),
        None => path.to_owned(),
    };
    let single = path.replace("**/*", "**").replace("**", "");
    if effect == Effect::Allows && single.contains(['*', '?']) {
        return Err(unclear(key, "has a `*` for one folder, which would allow more here"));
    }
    let mut pattern = literal(&path).replace("\\*", "*").replace("\\?", "?");
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    let pattern = pattern.replace("*/*", "*");
    // `**/name` is also the name itself.
    let short = pattern.strip_prefix("*/").map(str::to_owned);
    Ok(std::iter::once(pattern).chain(short).collect())
}

/// Translates `domain:example.com`.
fn domains(inside: &str, effect: Effect) -> Result<Vec<String>, Unclear> {
    let Some(domain) = inside.strip_prefix("domain:") else {
        return Err(unclear("webfetch", "is not a `domain:`"));
    };
    let domain = literal_stars(domain.trim());
    Ok(match effect {
        Effect::Allows => vec![format!("https://{domain}/*"), format!("http://{domain}/*")],
        Effect::Restricts => {
            let hosts = [domain.clone(), format!("*.{domain}")];
            hosts
                .iter()
                .flat_map(|host| [format!("*://{host}/*"), format!("*://{host}:*")])
                .collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn restricts(rule: &str) -> Vec<String> {
        let targets = translate(rule, Effect::Restricts, Some(Path::new("/home/me"))).unwrap();
        targets.into_iter().map(|(key, pattern)| format!("{key} {pattern}")).collect()
    }

    fn allows(rule: &str) -> Vec<String> {
        let targets = translate(rule, Effect::Allows, Some(Path::new("/home/me"))).unwrap();
        targets.into_iter().map(|(key, pattern)| format!("{key} {pattern}")).collect()
    }

    #[test]
    fn restrictions_cover_more_and_permissions_less() {
        assert_eq!(restricts("Bash"), ["bash *"]);
        assert_eq!(
            restricts("Bash(npm run test:*)"),
            ["bash npm run test *", "bash npm run test*"]
        );
        assert_eq!(allows("Bash(npm run test:*)"), ["bash npm run test *"]);
        assert_eq!(allows("Bash(git commit -m what?)"), ["bash git commit -m what\\?"]);
        assert_eq!(allows("Bash(git * main)"), ["bash git * main"]);
        assert_eq!(allows("Edit(src/**)"), ["edit src/*"]);
        assert_eq!(allows("Edit(**/*.ts)"), ["edit *.ts"]);
        let env = restricts("Read(./.env)");
        for pattern in ["read .env", "read */.env", "read .env/*"] {
            assert!(env.contains(&pattern.to_owned()), "{env:?}");
        }
        assert!(restricts("Read(~/.ssh/**)").contains(&"read /home/me/.ssh/*".to_owned()));
        assert!(restricts("Read(//etc/passwd)").contains(&"read /etc/passwd".to_owned()));
        assert_eq!(restricts("mcp__git hub__push"), ["git_hub_push *"]);
        assert_eq!(restricts("mcp__github"), ["github_* *"]);
        assert_eq!(restricts("WebSearch"), ["websearch *"]);
        assert_eq!(restricts("TodoWrite"), [""; 0]);
        assert!(restricts("WebFetch(domain:a.com)").contains(&"webfetch *://a.com/*".to_owned()));
        assert_eq!(allows("WebFetch(domain:a.com)").len(), 2);
    }

    #[test]
    fn rule_that_cannot_be_translated_says_what_it_is_about() {
        let key = |rule: &str, effect| translate(rule, effect, None).unwrap_err().key;
        for (rule, expected) in [
            ("Bsh(rm:*)", "*"),
            ("Bash(rm", "*"),
            ("Read(![a])", "read"),
            ("WebFetch(x)", "webfetch"),
        ] {
            assert_eq!(key(rule, Effect::Restricts), expected, "{rule}");
        }
        assert_eq!(key("Edit(src/*.rs)", Effect::Allows), "edit");
        assert!(translate("Edit(src/*.rs)", Effect::Restricts, None).is_ok());
    }

    proptest! {
        #[test]
        fn restriction_is_never_lost(rule in "[A-Za-z_]{0,8}(\\([a-z*/.~!:]{0,9}\\)?)?") {
            match translate(&rule, Effect::Restricts, None) {
                Err(unclear) => prop_assert!(!unclear.key.is_empty()),
                Ok(targets) => {
                    let name = rule.split('(').next().unwrap_or_default().trim().to_ascii_lowercase();
                    prop_assert!(!targets.is_empty() || ABSENT.contains(&name.as_str()));
                }
            }
        }
    }
}
