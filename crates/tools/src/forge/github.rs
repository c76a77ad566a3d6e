//! GitHub's REST API, for one repository.

use engine::words::Secret;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::client::{Client, DIFF, JSON};
use super::{Change, Filter, Forge, Request, Wanted};

/// The most comments, reviews, files and checks of an issue or a pull request.
const MANY: usize = 200;
/// The most bytes of a diff, and of the end of a log.
const MAX_DIFF: usize = 100 * 1024;
const MAX_LOG: usize = 32 * 1024;

/// One repository on GitHub.
pub(super) struct GitHub {
    client: Client,
    /// `/repos/OWNER/NAME`.
    root: String,
}

impl GitHub {
    pub(super) fn new(api: &str, repository: &str, token: Secret) -> GitHub {
        GitHub { client: Client::new(api, token), root: format!("/repos/{repository}") }
    }

    #[cfg(test)]
    pub(super) fn of(client: Client, repository: &str) -> GitHub {
        GitHub { client, root: format!("/repos/{repository}") }
    }

    async fn list(&self, kind: &str, filter: &Filter) -> Result<String, String> {
        let Filter { state, labels, limit } = filter;
        let mut path = format!("{}/{kind}?state={state}&per_page={}", self.root, (*limit).min(100));
        if let Some(labels) = labels {
            let encoded: String = labels.bytes().map(encode).collect();
            path.push_str(&format!("&labels={encoded}"));
        }
        // GitHub lists pull requests as issues, too.
        let is_wanted = |item: &Value| kind == "pulls" || item.get("pull_request").is_none();
        let (items, has_more) = self.client.list(&path, *limit, is_wanted).await?;
        if items.is_empty() {
            return Ok("None.".to_owned());
        }
        let mut text: String = items.iter().map(one_line).collect();
        if has_more {
            text.push_str(&format!("… there are more; these are {}\n", items.len()));
        }
        Ok(text)
    }

    async fn issue(&self, number: u32) -> Result<String, String> {
        let issue = self.client.json(&format!("{}/issues/{number}", self.root)).await?;
        Ok(format!("{}{}", whole(&issue), self.comments(&format!("issues/{number}")).await?))
    }

    async fn pull(&self, number: u32) -> Result<String, String> {
        let pull = self.client.json(&format!("{}/pulls/{number}", self.root)).await?;
        let mut text = whole(&pull);
        text.push_str(&self.comments(&format!("issues/{number}")).await?);
        text.push_str(&self.comments(&format!("pulls/{number}")).await?);
        let reviews = format!("{}/pulls/{number}/reviews?per_page=100", self.root);
        let (reviews, _) = self.client.list(&reviews, MANY, |_| true).await?;
        for review in reviews {
            text.push_str(&format!(
                "\n--- review by {}: {}\n{}\n",
                user(&review),
                word(&review["state"]),
                word(&review["body"])
            ));
        }
        Ok(text)
    }

    async fn comments(&self, of: &str) -> Result<String, String> {
        let path = format!("{}/{of}/comments?per_page=100", self.root);
        let (comments, has_more) = self.client.list(&path, MANY, |_| true).await?;
        let mut text = String::new();
        for comment in &comments {
            let place = match comment["path"].as_str() {
                Some(path) => format!(" on {path}:{}", comment["line"].as_u64().unwrap_or(0)),
                None => String::new(),
            };
            let (when, body) = (word(&comment["created_at"]), word(&comment["body"]));
            text.push_str(&format!("\n--- {}{place}, {when}\n{body}\n", user(comment)));
        }
        if has_more {
            text.push_str("… there are more comments\n");
        }
        Ok(text)
    }

    async fn diff(&self, number: u32) -> Result<String, String> {
        let path = format!("{}/pulls/{number}", self.root);
        let text = self.client.text(&path, DIFF).await?;
        if !text.trim_start().starts_with('{') {
            let end = text.floor_char_boundary(MAX_DIFF);
            let more =
                if end < text.len() { "\n… the rest of the diff is omitted …\n" } else { "" };
            return Ok(format!("{}{more}", &text[..end]));
        }
        // Not every server has the format; the files have the same changes.
        let (files, _) =
            self.client.list(&format!("{path}/files?per_page=100"), MANY, |_| true).await?;
        let show = |file: &Value| {
            let name = word(&file["filename"]);
            format!("--- a/{name}\n+++ b/{name}\n{}\n", word(&file["patch"]))
        };
        Ok(files.iter().map(show).collect())
    }

    async fn checks(&self, number: u32) -> Result<String, String> {
        let pull = self.client.json(&format!("{}/pulls/{number}", self.root)).await?;
        let commit = word(&pull["head"]["sha"]);
        let path = format!("{}/commits/{commit}", self.root);
        // A token may have access to one of them only.
        let runs = self.client.json(&format!("{path}/check-runs?per_page=100")).await;
        let statuses = self.client.json(&format!("{path}/status")).await;
        let mut text = String::new();
        let (runs, statuses) = match (runs, statuses) {
            (Err(why), Err(_)) => return Err(why),
            (runs, statuses) => (runs.unwrap_or_default(), statuses.unwrap_or_default()),
        };
        for run in runs["check_runs"].as_array().into_iter().flatten() {
            let result = run["conclusion"].as_str().unwrap_or(word(&run["status"]));
            let (id, name) = (run["id"].as_u64().unwrap_or_default(), word(&run["name"]));
            text.push_str(&format!("{result}\t{name}\tlog {id}\n"));
        }
        for status in statuses["statuses"].as_array().into_iter().flatten() {
            let (state, name) = (word(&status["state"]), word(&status["context"]));
            text.push_str(&format!("{state}\t{name}\t{}\n", word(&status["target_url"])));
        }
        Ok(if text.is_empty() { format!("No checks for {commit}.") } else { text })
    }

    async fn log(&self, id: u64) -> Result<String, String> {
        let text = self.client.text(&format!("{}/actions/jobs/{id}/logs", self.root), JSON).await?;
        let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_LOG));
        let before = if start > 0 { "… the beginning of the log is omitted …\n" } else { "" };
        Ok(format!("{before}{}", &text[start..]))
    }
}

impl Forge for GitHub {
    fn read<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<String, String>> {
        async move {
            match wanted {
                Wanted::Issues(filter) => self.list("issues", filter).await,
                Wanted::Pulls(filter) => self.list("pulls", filter).await,
                Wanted::Issue(number) => self.issue(*number).await,
                Wanted::Pull(number) => self.pull(*number).await,
                Wanted::Diff(number) => self.diff(*number).await,
                Wanted::Checks(number) => self.checks(*number).await,
                Wanted::Log(id) => self.log(*id).await,
            }
        }
        .boxed()
    }

    fn request(&self, change: &Change) -> Request {
        let (method, path, body) = match change {
            Change::CreateIssue { title, body, labels } => {
                let mut sent = json!({ "title": title, "body": body });
                if !labels.is_empty() {
                    sent["labels"] = json!(labels);
                }
                ("POST", "issues".to_owned(), sent)
            }
            Change::Comment { number, body } => {
                ("POST", format!("issues/{number}/comments"), json!({ "body": body }))
            }
            Change::SetIssueState { number, is_open } => {
                let state = if *is_open { "open" } else { "closed" };
                ("PATCH", format!("issues/{number}"), json!({ "state": state }))
            }
            Change::CreatePull { title, body, head, base, is_draft } => {
                let sent = json!({ "title": title, "head": head, "base": base, "draft": is_draft, "body": body });
                ("POST", "pulls".to_owned(), sent)
            }
            Change::UpdatePull { number, fields } => {
                let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
                ("PATCH", format!("pulls/{number}"), Value::Object(fields.collect()))
            }
            Change::Review { number, event, body } => {
                let sent = json!({ "event": event, "body": body });
                ("POST", format!("pulls/{number}/reviews"), sent)
            }
            Change::Merge { number, method } => {
                ("PUT", format!("pulls/{number}/merge"), json!({ "merge_method": method }))
            }
        };
        Request { method, path: format!("{}/{path}", self.root), body }
    }

    fn send<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<String, String>> {
        async move {
            let done = self.client.send(request).await?;
            let number = done["number"].as_u64().map(|number| format!(" #{number}"));
            let url = done["html_url"].as_str().or(done["message"].as_str()).unwrap_or_default();
            Ok(format!("Done{}: {url}", number.unwrap_or_default()))
        }
        .boxed()
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn user(of: &Value) -> &str {
    of["user"]["login"].as_str().unwrap_or("somebody")
}

fn encode(byte: u8) -> String {
    match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    }
}

fn labels(of: &Value) -> String {
    let names = of["labels"].as_array().into_iter().flatten().map(|label| word(&label["name"]));
    let names: Vec<&str> = names.collect();
    if names.is_empty() { String::new() } else { format!(" [{}]", names.join(", ")) }
}

/// Returns an issue or a pull request as a line of a list.
fn one_line(item: &Value) -> String {
    let (number, state) = (item["number"].as_u64().unwrap_or_default(), word(&item["state"]));
    let branch = item["head"]["ref"].as_str().map(|head| format!(" ({head})"));
    let (title, branch) =
        (engine::words::one_line(word(&item["title"])), branch.unwrap_or_default());
    format!("#{number} {state} {title}{branch}{}\n", labels(item))
}

/// Returns an issue or a pull request with its text.
fn whole(item: &Value) -> String {
    let mut text = one_line(item);
    text.push_str(&format!("by {}, {}\n", user(item), word(&item["created_at"])));
    if let (Some(head), Some(base)) = (item["head"]["ref"].as_str(), item["base"]["ref"].as_str()) {
        let is = |key: &str| item[key].as_bool() == Some(true);
        let merged = if is("merged") { ", merged" } else { "" };
        let draft = if is("draft") { ", draft" } else { "" };
        let commit = word(&item["head"]["sha"]);
        text.push_str(&format!("{head} ({commit}) into {base}{merged}{draft}\n"));
    }
    text.push_str(&format!("\n{}\n", word(&item["body"])));
    text
}
