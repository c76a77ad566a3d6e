//! `github_write`: changes issues and pull requests of the project's repository, and pushes the current branch.
//!
//! The user sees exactly what is sent. A merge needs a rule that allows it.

use std::ffi::OsString;
use std::sync::Arc;

use engine::permission::{Access, Decision, PermissionKey};
use engine::ports::{Intent, Output, ToolCx, ToolError};
use engine::words::{Block, ToolContent, ToolKind, fenced};
use serde::Deserialize;
use serde_json::{Value, json};

use super::push::Push;
use super::remote::{Remote, is_plain};
use super::{Change, Forge, Request};
use crate::tool::{TypedTool, flag, number, shown};

#[derive(Deserialize)]
pub(crate) struct Input {
    action: Action,
    #[serde(default, alias = "issue_number", alias = "pull_number", deserialize_with = "number")]
    number: Option<u32>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default, alias = "comment", alias = "text")]
    body: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    head: Option<String>,
    #[serde(default)]
    base: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    draft: bool,
    #[serde(default)]
    event: Option<Event>,
    #[serde(default)]
    method: Option<Method>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    CreateIssue,
    Comment,
    CloseIssue,
    ReopenIssue,
    CreatePull,
    UpdatePull,
    Review,
    Merge,
    Push,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Event {
    #[serde(rename = "approve", alias = "APPROVE")]
    Approve,
    #[serde(rename = "request_changes", alias = "REQUEST_CHANGES")]
    RequestChanges,
    #[serde(rename = "comment", alias = "COMMENT")]
    Comment,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    Merge,
    Squash,
    Rebase,
}

/// The tool.
pub(super) struct Write {
    pub(super) forge: Arc<dyn Forge>,
    pub(super) remote: Remote,
    /// The environment of `git push`.
    pub(super) environment: Vec<(OsString, OsString)>,
}

/// What was shown: a push, a request, or one after the other.
pub(crate) struct Plan {
    push: Option<Push>,
    request: Option<Request>,
}

impl TypedTool for Write {
    const NAME: &'static str = "github_write";
    const KIND: ToolKind = ToolKind::Other;
    const DESCRIPTION: &'static str = "
Changes the project's GitHub repository, after the user approves what is sent. `create_pull` pushes the commits of the current branch
first; commit before. `comment` is for issues and pull requests. `merge` works only if a rule of the user allows it.";

    type Input = Input;
    type Plan = Plan;

    fn fields() -> (Value, &'static [&'static str]) {
        let fields = json!({
            "action": { "type": "string", "enum": ["create_issue", "comment", "close_issue", "reopen_issue", "create_pull", "update_pull", "review", "merge", "push"] },
            "number": { "type": "integer", "description": "Number of the issue or pull request" },
            "title": { "type": "string" },
            "body": { "type": "string", "description": "Text in Markdown" },
            "labels": { "type": "array", "items": { "type": "string" }, "description": "For `create_issue`" },
            "base": { "type": "string", "description": "Branch to merge into; required for `create_pull`" },
            "head": { "type": "string", "description": "For `create_pull`: a branch that is pushed already; default: the current branch, which is pushed" },
            "draft": { "type": "boolean", "description": "For `create_pull`" },
            "event": { "type": "string", "enum": ["approve", "request_changes", "comment"], "description": "For `review`" },
            "method": { "type": "string", "enum": ["merge", "squash", "rebase"], "description": "For `merge`" },
        });
        (fields, &["action"])
    }

    fn outline(input: &Value) -> (String, Vec<String>) {
        (format!("GitHub: {}", input["action"].as_str().unwrap_or("change")), Vec::new())
    }

    async fn plan(&self, _: &ToolCx<'_>, input: Input) -> Result<(Intent, Plan), ToolError> {
        let pushes = input.action == Action::Push
            || input.action == Action::CreatePull && input.head.is_none();
        let push = match pushes {
            true => Some(Push::plan(&self.remote).map_err(ToolError::Model)?),
            false => None,
        };
        let head = push.as_ref().map(|push| push.branch.clone()).or(input.head.clone());
        let change = change_of(&input, head)?;
        if let (Some(Change::CreatePull { head, base, .. }), Some(_)) = (&change, &push)
            && head == base
        {
            let why = format!(
                "the current branch is `{base}` itself: create a branch and commit to it first"
            );
            return Err(ToolError::Model(why));
        }
        let request = change.as_ref().map(|change| self.forge.request(change));
        let mut text = push.as_ref().map(Push::shown).unwrap_or_default();
        text.push_str(&request.as_ref().map(Request::shown).unwrap_or_default());
        let intent = Intent {
            title: format!("{} on {}", title_of(&input), self.remote.name),
            content: vec![ToolContent::Block(Block::Text(fenced(&text)))],
            access: self.access(input.action, push.as_ref()),
            ..Intent::default()
        };
        Ok((intent, Plan { push, request }))
    }

    async fn run(&self, cx: &ToolCx<'_>, plan: Plan) -> Result<Output, ToolError> {
        let failed = |why: String| ToolError::Model(format!("GitHub: {why}"));
        let mut text = String::new();
        if let Some(push) = &plan.push {
            cx.or_cancelled(push.run(&self.environment)).await?.map_err(ToolError::Model)?;
            text = format!("Pushed {} to {}.\n", &push.commit[..12], push.branch);
        }
        if let Some(request) = &plan.request {
            let sent = cx.or_cancelled(self.forge.send(request)).await?;
            text.push_str(&sent.map_err(|why| failed(format!("{text}{why}")))?);
        }
        Ok(shown(text))
    }
}

impl Write {
    fn access(&self, action: Action, push: Option<&Push>) -> Vec<Access> {
        let name = &self.remote.name;
        let once = |key, subject: String| Access {
            // Each text is another one, so each is asked for.
            always: None,
            is_shown: true,
            ..Access::ask(key, subject)
        };
        let mut access: Vec<Access> = push
            .map(|push| once(PermissionKey::GitPush, format!("{} {}", push.address, push.branch)))
            .into_iter()
            .collect();
        match action {
            Action::Push => {}
            Action::Merge => access.push(Access {
                default: Decision::Reject,
                ..once(PermissionKey::GitHubMerge, name.clone())
            }),
            action => {
                access.push(once(PermissionKey::GitHub, format!("{} {name}", word_of(action))));
            }
        }
        access
    }
}

/// Returns the action as rules name it.
fn word_of(action: Action) -> &'static str {
    match action {
        Action::CreateIssue => "create_issue",
        Action::Comment => "comment",
        Action::CloseIssue => "close_issue",
        Action::ReopenIssue => "reopen_issue",
        Action::CreatePull => "create_pull",
        Action::UpdatePull => "update_pull",
        Action::Review => "review",
        Action::Merge => "merge",
        Action::Push => "push",
    }
}

fn title_of(input: &Input) -> String {
    let number = input.number.map(|number| format!(" #{number}")).unwrap_or_default();
    let about = input.title.as_ref().map(|title| format!(": {title}")).unwrap_or_default();
    let what = match input.action {
        Action::CreateIssue => "Create issue",
        Action::Comment => "Comment",
        Action::CloseIssue => "Close issue",
        Action::ReopenIssue => "Reopen issue",
        Action::CreatePull => "Create pull request",
        Action::UpdatePull => "Update pull request",
        Action::Review => "Review pull request",
        Action::Merge => "Merge pull request",
        Action::Push => "Push the current branch",
    };
    format!("{what}{number}{about}")
}

/// Returns the change that a call asks for; `None` if it only pushes.
fn change_of(input: &Input, head: Option<String>) -> Result<Option<Change>, ToolError> {
    let missing = |name: &str| ToolError::Model(format!("`{name}` is missing"));
    let number = || input.number.ok_or_else(|| missing("number"));
    let text = |value: &Option<String>, name: &str| {
        value.clone().filter(|value| !value.trim().is_empty()).ok_or_else(|| missing(name))
    };
    let branch = |value: String| match is_plain(value.split_once(':').map_or(&value, |(_, it)| it))
    {
        true => Ok(value),
        false => Err(ToolError::Model(format!("`{value}` is not the name of a branch"))),
    };
    let body = input.body.clone().unwrap_or_default();
    Ok(Some(match input.action {
        Action::Push => return Ok(None),
        Action::CreateIssue => {
            let (title, labels) = (text(&input.title, "title")?, input.labels.clone());
            Change::CreateIssue { title, body, labels }
        }
        Action::Comment => Change::Comment { number: number()?, body: text(&input.body, "body")? },
        Action::CloseIssue => Change::SetIssueState { number: number()?, is_open: false },
        Action::ReopenIssue => Change::SetIssueState { number: number()?, is_open: true },
        Action::CreatePull => Change::CreatePull {
            title: text(&input.title, "title")?,
            body,
            head: branch(head.ok_or_else(|| missing("head"))?)?,
            base: branch(text(&input.base, "base")?)?,
            is_draft: input.draft,
        },
        Action::UpdatePull => {
            let fields = [("title", &input.title), ("body", &input.body), ("base", &input.base)];
            let fields = fields.into_iter().filter_map(|(key, value)| Some((key, value.clone()?)));
            let fields: Vec<_> = fields.collect();
            if fields.is_empty() {
                return Err(missing("title` or `body"));
            }
            Change::UpdatePull { number: number()?, fields }
        }
        Action::Review => {
            let event = match input.event.ok_or_else(|| missing("event"))? {
                Event::Approve => "APPROVE",
                Event::RequestChanges => "REQUEST_CHANGES",
                Event::Comment => "COMMENT",
            };
            Change::Review { number: number()?, event: event.to_owned(), body }
        }
        Action::Merge => {
            let method = match input.method.unwrap_or(Method::Merge) {
                Method::Merge => "merge",
                Method::Squash => "squash",
                Method::Rebase => "rebase",
            };
            Change::Merge { number: number()?, method: method.to_owned() }
        }
    }))
}
