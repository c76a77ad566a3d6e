//! The key `permission`: one action for everything, or an action for each key, or for each pattern of a key.

use std::path::Path;

use engine::permission::rules::{Rule, Source};
use engine::permission::{Decision, PermissionKey};
use engine::words::nearest;
use engine::words::pattern::matches_pattern;
use serde_json::Value;

use crate::custom::tool_switches::other_key;

/// Keys of OpenCode that none of our tools uses. They are accepted without a warning.
const OTHER_KEYS: [&str; 2] = ["todowrite", "doom_loop"];

/// Returns the known keys. A key may also be the name of any tool, so unknown ones are accepted, too.
fn known_keys() -> Vec<&'static str> {
    let built_in: &'static [PermissionKey] = &PermissionKey::BUILT_IN;
    built_in.iter().map(PermissionKey::as_str).chain(OTHER_KEYS).collect()
}

/// Returns what is wrong with a key that somebody typed, if it is one that nothing has.
#[must_use]
pub fn problem_of_key(key: &str) -> Option<String> {
    if let Some(shared) = other_key(key) {
        return Some(format!("`{key}` is part of `{shared}`; use that"));
    }
    let known = known_keys();
    let is_known = known.contains(&key) || key.contains('*');
    let near = nearest(key, known.iter().copied()).filter(|_| !is_known)?;
    Some(format!("unknown tool `{key}`. Did you mean `{near}`?"))
}

/// Reads the rules. An invalid action is reported and treated as `ask`: a mistake must never allow anything.
pub(crate) fn rules(
    value: Value,
    source: Source,
    home: Option<&Path>,
    problems: &mut Vec<String>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut add = |key: &str, pattern: &str, value: &Value| {
        let word = value.as_str().unwrap_or_default();
        let decision = Decision::from_word(word).unwrap_or_else(|| {
            let words = Decision::ALL.map(|(_, word)| word);
            let hint = nearest(word, words).map(|near| format!(". Did you mean `{near}`?"));
            let at = if pattern == "*" { key.to_owned() } else { format!("{key}.{pattern}") };
            problems.push(format!(
                "`permission.{at}` must be allow, ask or deny{} The value is ignored and `ask` applies.",
                hint.unwrap_or_else(|| ".".to_owned())
            ));
            Decision::Ask
        });
        // The name of a tool that shares its key with others restricts all of them, and allows none.
        let key = match decision {
            Decision::Allow => key,
            Decision::Ask | Decision::Reject => other_key(key).unwrap_or(key),
        };
        rules.push(Rule { key: key.to_owned(), pattern: at_home(pattern, home), decision, source });
    };
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                match value {
                    Value::Object(patterns) => {
                        patterns.iter().for_each(|(pattern, value)| add(&key, pattern, value));
                    }
                    value => add(&key, "*", &value),
                }
            }
        }
        value => add("*", "*", &value),
    }
    let keys: std::collections::BTreeSet<&str> =
        rules.iter().map(|rule| rule.key.as_str()).collect();
    let known = known_keys();
    for key in keys {
        let is_known = known.contains(&key) || key.contains('*');
        if let Some(shared) = other_key(key) {
            problems.push(format!("`permission.{key}` allows nothing: use `{shared}`."));
        } else if let Some(near) = nearest(key, known.iter().copied()).filter(|_| !is_known) {
            problems.push(format!("`permission.{key}` is not a known key. Did you mean `{near}`?"));
        }
    }
    for rule in rules.iter().filter(|rule| rule.decision == Decision::Allow) {
        let covers = |deny: &&Rule| {
            let is_deny = deny.decision == Decision::Reject;
            is_deny
                && matches_pattern(&deny.key, &rule.key)
                && matches_pattern(&deny.pattern, &rule.pattern)
        };
        if let Some(deny) = rules.iter().find(covers) {
            problems.push(format!(
                "`permission.{}`: `{}` has no effect, because `{}` is denied and deny always wins. \
                 Use `ask` for the general rule.",
                rule.key, rule.pattern, deny.pattern
            ));
        }
    }
    rules
}

/// Expands `~/` and `$HOME/` at the start of a pattern.
fn at_home(pattern: &str, home: Option<&Path>) -> String {
    let rest = pattern.strip_prefix("~/").or_else(|| pattern.strip_prefix("$HOME/"));
    match (rest, home) {
        (Some(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
        _ => pattern.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> (Vec<String>, Vec<String>) {
        let mut problems = Vec::new();
        let rules = rules(value, Source::User, None, &mut problems);
        let short = |rule: &Rule| format!("{} {} {}", rule.decision.word(), rule.key, rule.pattern);
        let mut short: Vec<String> = rules.iter().map(short).collect();
        // Whether JSON objects keep their order depends on the features of other crates.
        short.sort();
        problems.sort();
        (short, problems)
    }

    #[test]
    fn every_form_of_rules_is_read() {
        assert_eq!(read(json!("ask")).0, ["ask * *"]);
        let (rules, problems) = read(json!({
            "edit": "deny",
            "bash": { "*": "ask", "git status *": "allow" },
            "github_*": "ask",
        }));
        assert_eq!(
            rules,
            ["allow bash git status *", "ask bash *", "ask github_* *", "deny edit *"]
        );
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn mistake_in_a_rule_is_reported_and_treated_as_ask() {
        let (rules, problems) =
            read(json!({ "bsh": "alow", "edit": 5, "bash": { "rm *": "dney" } }));
        assert_eq!(rules, ["ask bash rm *", "ask bsh *", "ask edit *"]);
        assert_eq!(
            problems,
            [
                "`permission.bash.rm *` must be allow, ask or deny. Did you mean `deny`? The value is ignored and `ask` applies.",
                "`permission.bsh` is not a known key. Did you mean `bash`?",
                "`permission.bsh` must be allow, ask or deny. Did you mean `allow`? The value is ignored and `ask` applies.",
                "`permission.edit` must be allow, ask or deny. The value is ignored and `ask` applies.",
            ]
        );
    }

    #[test]
    fn name_of_a_tool_restricts_what_shares_its_key() {
        let (rules, problems) = read(json!({ "write": "deny", "fetch": { "http://a/*": "ask" } }));
        assert_eq!(rules, ["ask webfetch http://a/*", "deny edit *"]);
        assert_eq!(problems, [""; 0]);
        let (rules, problems) = read(json!({ "write": "allow" }));
        assert_eq!(rules, ["allow write *"]);
        assert_eq!(problems, ["`permission.write` allows nothing: use `edit`."]);
        assert_eq!(problem_of_key("write").unwrap(), "`write` is part of `edit`; use that");
        assert!(problem_of_key("edti").unwrap().contains("`edit`"));
        for key in ["edit", "git*", "docs_look-up", "bash_read"] {
            assert_eq!(problem_of_key(key), None, "{key}");
        }
    }

    #[test]
    fn allow_rule_covered_by_a_deny_rule_is_reported() {
        let (_, problems) = read(json!({ "bash": { "*": "deny", "ls *": "allow" } }));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("deny always wins"), "{problems:?}");
    }
}
