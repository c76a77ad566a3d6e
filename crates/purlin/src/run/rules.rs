//! `--allow` and `--deny`: what a run allows and rejects without a question.
//!
//! Purlin itself gets them as rules of its own, which also apply to what it would not ask about. For other agents they
//! answer permission requests here, by the kind of the tool, the files it names and its command.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use engine::permission::Decision;
use engine::permission::rules::{Rule, Source};
use engine::words::deceives;
use engine::words::pattern::matches_pattern;
use serde_json::Value;
use settings::config::permission::problem_of_key;
use wire::acp::schema;

/// One entry of a list: a key of the permission rules, and a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleArg {
    key: String,
    pattern: String,
}

/// The word that stands for everything.
const ALL: &str = "all";

impl FromStr for RuleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<RuleArg, String> {
        let (key, pattern) = text.trim().split_once(':').unwrap_or((text.trim(), "*"));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.*".contains(letter);
        if key.is_empty() || !key.chars().all(is_name) || pattern.is_empty() {
            return Err("must be `all`, or tools such as `edit,read,bash:\"cargo *\"`".to_owned());
        }
        if let Some(problem) = problem_of_key(key).filter(|_| key != ALL) {
            return Err(problem);
        }
        Ok(RuleArg { key: key.to_owned(), pattern: pattern.to_owned() })
    }
}

impl RuleArg {
    fn is_all(&self) -> bool {
        self.key == ALL || self.key == "*" && self.pattern == "*"
    }

    /// Returns the rule for our own policy.
    pub(crate) fn rule(&self, decision: Decision) -> Rule {
        let key = if self.is_all() { "*" } else { &self.key };
        let (key, pattern) = (key.to_owned(), self.pattern.clone());
        Rule { key, pattern, decision, source: Source::Flag }
    }

    fn text(&self) -> String {
        match &*self.pattern {
            "*" => self.key.clone(),
            pattern => format!("{}:{pattern}", self.key),
        }
    }
}

/// Both lists.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    allow: Vec<RuleArg>,
    deny: Vec<RuleArg>,
}

/// Something that a tool call does: a key, and what it does it to if that is known.
type Part = (&'static str, Option<String>);

impl Rules {
    pub(super) fn new(allow: Vec<RuleArg>, deny: Vec<RuleArg>) -> Rules {
        Rules { allow, deny }
    }

    /// Tells whether everything is allowed that is not denied.
    pub(super) fn allows_all(&self) -> bool {
        self.allow.iter().any(RuleArg::is_all)
    }

    /// Returns the flags for `purlin acp`. `all` is not among them: it answers questions, and changes no rule.
    pub(super) fn flags(&self) -> Vec<String> {
        let allow = self.allow.iter().filter(|rule| !rule.is_all());
        let allow = allow.map(|rule| format!("--allow={}", rule.text()));
        let deny = self.deny.iter().map(|rule| format!("--deny={}", rule.text()));
        allow.chain(deny).collect()
    }

    /// Answers a permission request: true allows, false rejects, `None` leaves it to the user.
    pub(super) fn judge(&self, call: &schema::ToolCall, cwd: &Path) -> Option<bool> {
        if self.allow.is_empty() && self.deny.is_empty() {
            return None;
        }
        let parts = parts_of(call, cwd);
        let denied = |(key, subject): &Part| {
            self.deny.iter().any(|rule| match subject {
                Some(subject) => matches(rule, key, subject, cwd),
                // What cannot be read may be what the rule is about, but only a rule for all of it is sure to be.
                None => (rule.is_all() || rule.key == *key) && rule.pattern == "*",
            })
        };
        if self.deny.iter().any(RuleArg::is_all) || parts.iter().any(denied) {
            return Some(false);
        }
        let allowed = |(key, subject): &Part| {
            self.allow.iter().any(|rule| match subject {
                Some(subject) => matches(rule, key, subject, cwd),
                None => rule.key == *key && rule.pattern == "*",
            })
        };
        let is_allowed = self.allows_all() || !parts.is_empty() && parts.iter().all(allowed);
        is_allowed.then_some(true)
    }
}

fn matches(rule: &RuleArg, key: &str, subject: &str, cwd: &Path) -> bool {
    let is_inside = Path::new(subject).strip_prefix(cwd).ok();
    let inside =
        is_inside.is_some_and(|path| matches_pattern(&rule.pattern, &path.to_string_lossy()));
    matches_pattern(&rule.key, key) && (inside || matches_pattern(&rule.pattern, subject))
}

/// Returns what a call of another agent does.
fn parts_of(call: &schema::ToolCall, cwd: &Path) -> Vec<Part> {
    let input = |name: &str| call.raw_input.as_ref().and_then(|input| input.get(name));
    match call.kind {
        schema::ToolKind::Execute => match input("command") {
            Some(Value::String(command)) => command_parts(command, cwd),
            _ => vec![("bash", None)],
        },
        schema::ToolKind::Edit | schema::ToolKind::Delete | schema::ToolKind::Move => {
            path_parts("edit", call)
        }
        schema::ToolKind::Read | schema::ToolKind::Search => path_parts("read", call),
        schema::ToolKind::Fetch => {
            vec![("webfetch", input("url").and_then(Value::as_str).map(str::to_owned))]
        }
        _ => vec![("other", None)],
    }
}

fn path_parts(key: &'static str, call: &schema::ToolCall) -> Vec<Part> {
    let locations = call.locations.iter().map(|location| &location.path);
    let diffs = call.content.iter().filter_map(|content| match content {
        schema::ToolCallContent::Diff(diff) => Some(&diff.path),
        _ => None,
    });
    let paths: Vec<&PathBuf> = locations.chain(diffs).collect();
    if paths.is_empty() {
        return vec![(key, None)];
    }
    // A path with `..` may lead anywhere, so no pattern is compared with it.
    let plain = |path: &Path| {
        let is_plain = path.components().all(|part| part != std::path::Component::ParentDir);
        is_plain.then(|| path.to_string_lossy().into_owned())
    };
    paths.into_iter().map(|path| (key, plain(path))).collect()
}

/// Splits a command with the analysis that our own tool uses, so that `cargo *` does not allow `cargo x; rm -rf y`.
fn command_parts(command: &str, cwd: &Path) -> Vec<Part> {
    let roots = [cwd.to_owned()];
    let needs = shell::needs(
        command,
        &shell::Context {
            cwd,
            roots: &roots,
            own: &[],
            home: None,
            is_sandboxed: false,
            writable: &[],
            real: &|path: &Path| path.canonicalize().ok(),
            is_deceptive: deceives,
        },
    );
    needs
        .into_iter()
        .map(|need| match need.kind {
            shell::NeedKind::Run if need.form == shell::Form::Exact && !need.is_opaque => {
                ("bash", Some(need.subject))
            }
            shell::NeedKind::Read => ("read", Some(need.subject)),
            shell::NeedKind::Write => ("edit", Some(need.subject)),
            _ => ("bash", None),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(allow: &str, deny: &str) -> Rules {
        let list = |text: &str| {
            let entries = text.split(',').filter(|entry| !entry.is_empty());
            entries.map(|entry| entry.parse().unwrap()).collect()
        };
        Rules::new(list(allow), list(deny))
    }

    fn call(kind: &str, more: Value) -> schema::ToolCall {
        let mut call = json!({ "toolCallId": "t", "title": "T", "kind": kind });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(call).unwrap()
    }

    fn judged(rules: &Rules, call: &schema::ToolCall) -> Option<bool> {
        rules.judge(call, Path::new("/w"))
    }

    #[test]
    fn command_is_allowed_only_if_all_of_it_is() {
        let rules = rules("bash:cargo *", "bash:cargo publish *");
        let run = |command: &str| {
            judged(&rules, &call("execute", json!({ "rawInput": { "command": command } })))
        };
        assert_eq!(run("cargo test"), Some(true));
        assert_eq!(run("cargo test && cargo build"), Some(true));
        assert_eq!(run("cargo test; rm -rf x"), None);
        assert_eq!(run("cargo test $(rm -rf x)"), None);
        assert_eq!(run("cargo test && cargo publish"), Some(false));
        assert_eq!(run("ls"), None);
    }

    #[test]
    fn edits_are_judged_by_their_paths() {
        let edit = |path: &str| call("edit", json!({ "locations": [{ "path": path }] }));
        let rules = rules("edit:src/*,read", "edit:*.lock");
        assert_eq!(judged(&rules, &edit("/w/src/a.rs")), Some(true));
        assert_eq!(judged(&rules, &edit("/w/src/../b.rs")), None);
        assert_eq!(judged(&rules, &edit("/w/Cargo.lock")), Some(false));
        assert_eq!(judged(&rules, &edit("/w/a.rs")), None);
        assert_eq!(judged(&rules, &call("edit", json!({}))), None);
        assert_eq!(judged(&rules, &call("read", json!({}))), Some(true));
        assert_eq!(judged(&rules, &call("other", json!({}))), None);
    }

    #[test]
    fn all_allows_what_is_not_denied() {
        let rules = rules("all", "edit");
        assert_eq!(judged(&rules, &call("other", json!({}))), Some(true));
        assert_eq!(judged(&rules, &call("delete", json!({}))), Some(false));
        assert_eq!(rules.flags(), ["--deny=edit"]);
        assert_eq!(judged(&Rules::default(), &call("read", json!({}))), None);
        assert!("fix it".parse::<RuleArg>().is_err());
    }
}
