//! The key `permission`: rules as in OpenCode, a word for all, or for each key a word or words by pattern.

use std::path::Path;

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use engine::words::nearest;
use engine::words::pattern::fits;
use serde_json::Value;

/// The keys that tools of ours use. A key may also be the name of any tool, so others are kept, too.
const KEYS: [&str; 17] = [
    "read",
    "edit",
    "bash",
    "webfetch",
    "external_directory",
    "list",
    "glob",
    "grep",
    "websearch",
    "task",
    "todowrite",
    "skill",
    "network",
    "git",
    "write_outside",
    "unsandboxed",
    "webfetch_private",
];

/// Reads the rules. What is wrong is reported and asked for: a mistake must never allow.
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
            let hint = nearest(word, words).map(|near| format!("; did you mean `{near}`?"));
            let at = if pattern == "*" { key.to_owned() } else { format!("{key}.{pattern}") };
            problems.push(format!(
                "`permission.{at}` must be allow, ask or deny{}; it is asked for",
                hint.unwrap_or_default()
            ));
            Decision::Ask
        });
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
    for key in keys {
        let is_known = KEYS.contains(&key) || key.contains('*');
        if let Some(near) = nearest(key, KEYS).filter(|_| !is_known) {
            problems.push(format!(
                "`permission.{key}` is no key of a tool of ours; did you mean `{near}`?"
            ));
        }
    }
    for rule in rules.iter().filter(|rule| rule.decision == Decision::Allow) {
        let covers = |deny: &&Rule| {
            let is_deny = deny.decision == Decision::Reject;
            is_deny && fits(&deny.key, &rule.key) && fits(&deny.pattern, &rule.pattern)
        };
        if let Some(deny) = rules.iter().find(covers) {
            problems.push(format!(
                "`permission.{}`: `{}` never allows anything, since `{}` is denied and deny always wins; \
                 write `ask` for the general rule",
                rule.key, rule.pattern, deny.pattern
            ));
        }
    }
    rules
}

/// Writes out `~/` and `$HOME/` at the start of a pattern.
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
        // Whether JSON keeps the order of members depends on who builds us.
        short.sort();
        problems.sort();
        (short, problems)
    }

    #[test]
    fn every_form_is_read() {
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
    fn a_mistake_is_told_with_the_nearest_word_and_never_allows() {
        let (rules, problems) =
            read(json!({ "bsh": "alow", "edit": 5, "bash": { "rm *": "dney" } }));
        assert_eq!(rules, ["ask bash rm *", "ask bsh *", "ask edit *"]);
        assert_eq!(
            problems,
            [
                "`permission.bash.rm *` must be allow, ask or deny; did you mean `deny`?; it is asked for",
                "`permission.bsh` is no key of a tool of ours; did you mean `bash`?",
                "`permission.bsh` must be allow, ask or deny; did you mean `allow`?; it is asked for",
                "`permission.edit` must be allow, ask or deny; it is asked for",
            ]
        );
    }

    #[test]
    fn an_allow_that_a_deny_covers_is_told() {
        let (_, problems) = read(json!({ "bash": { "*": "deny", "ls *": "allow" } }));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("deny always wins"), "{problems:?}");
    }
}
