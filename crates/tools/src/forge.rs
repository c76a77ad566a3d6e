//! The forge of a repository: its issues and pull requests, and pushing a branch to it.
//!
//! `remote` finds the repository in git's files, `client` makes requests, `github` knows GitHub's REST API. The tools `github_read` and
//! `github_write` know only the trait [`Forge`]. What `github_write` shows is made from the request that it sends.

mod client;
mod github;
pub mod login;
mod push;
mod read_tool;
pub mod remote;
#[cfg(test)]
mod tests;
mod write_tool;

use std::ffi::OsString;
use std::sync::Arc;

use engine::ports::Tool;
use engine::words::Secret;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::tool::shaped;
use remote::Remote;

/// What the tools of a session work with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The repository.
    pub remote: Remote,
    /// The address of the forge's API.
    pub api: String,
    /// The token that requests are made with.
    pub token: Secret,
    /// The environment of `git push`: what the user's credential helper needs, and no token of ours.
    pub environment: Vec<(OsString, OsString)>,
}

/// Makes the tools.
#[must_use]
pub fn tools(options: Options) -> Vec<Arc<dyn Tool>> {
    let Options { remote, api, token, environment } = options;
    let forge: Arc<dyn Forge> = Arc::new(github::GitHub::new(&api, &remote.name, token));
    let write =
        write_tool::Write { forge: Arc::clone(&forge), remote: remote.clone(), environment };
    vec![shaped(read_tool::Read { forge, repository: remote.name }), shaped(write)]
}

/// A forge, for one repository.
trait Forge: Send + Sync {
    /// Reads something, as text for a model.
    fn read<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<String, String>>;

    /// Makes the request of a change. Sends nothing.
    fn request(&self, change: &Change) -> Request;

    /// Sends a request, and says what was done.
    fn send<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<String, String>>;
}

/// What can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Issues(Filter),
    Issue(u32),
    Pulls(Filter),
    Pull(u32),
    Diff(u32),
    Checks(u32),
    Log(u64),
}

/// Which issues or pull requests are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filter {
    state: String,
    labels: Option<String>,
    limit: usize,
}

/// What can be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    CreateIssue { title: String, body: String, labels: Vec<String> },
    Comment { number: u32, body: String },
    SetIssueState { number: u32, is_open: bool },
    CreatePull { title: String, body: String, head: String, base: String, is_draft: bool },
    UpdatePull { number: u32, fields: Vec<(&'static str, String)> },
    Review { number: u32, event: String, body: String },
    Merge { number: u32, method: String },
}

/// A request that changes something.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    method: &'static str,
    path: String,
    body: Value,
}

impl Request {
    /// Returns the request as the user sees it: each field as it is sent. Lines of a text are indented, so that none looks like a field.
    fn shown(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.path);
        for (name, value) in self.body.as_object().into_iter().flatten() {
            match value.as_str() {
                Some(value) if value.contains('\n') => {
                    text.push_str(&format!("{name}:\n"));
                    text.extend(value.lines().map(|line| format!("  {line}\n")));
                }
                Some(value) => text.push_str(&format!("{name}: {value}\n")),
                None => text.push_str(&format!("{name}: {value}\n")),
            }
        }
        text
    }
}
