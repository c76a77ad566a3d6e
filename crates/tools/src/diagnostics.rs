//! Diagnostics after an edit: what the project's checker and language servers say about the changed file.
//!
//! Off unless configured. `check` runs a command, `lsp` talks to a language server; both run in the sandbox of commands. What was
//! reported once is not repeated.

mod check;
mod lsp;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::words::pattern::matches_pattern;
use engine::words::visible;
use serde_json::Value;

use crate::bash::Bash;
use crate::disk;
use crate::files::on_a_thread;
use crate::scope::{Scope, Target};

/// The most diagnostics that are reported after one edit, and the most characters of one.
const MOST_SHOWN: usize = 20;
const MOST_CHARACTERS: usize = 400;
/// The most diagnostics that are remembered for a file.
const MOST_KNOWN: usize = 500;

/// A checker of the project.
#[derive(Debug, Clone)]
pub struct Checker {
    /// Which files it is for: a pattern of paths.
    pub pattern: String,
    /// The command, for the shell; `$1` is the file.
    pub command: String,
    /// How long it may run.
    pub timeout: Duration,
    /// Runs only in a sandbox that confines it, because a project configured it.
    pub must_be_confined: bool,
}

/// A language server.
#[derive(Debug, Clone)]
pub struct LanguageServer {
    /// Its name, for people.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The files it is for, by the ends of their names, such as `.rs`.
    pub extensions: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// What it is initialised with.
    pub initialization: Value,
    /// How long its diagnostics are waited for.
    pub timeout: Duration,
    /// Runs only in a sandbox that confines it, because a project configured it.
    pub must_be_confined: bool,
}

/// One diagnostic of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Diagnostic {
    /// Counting from 1.
    line: u64,
    column: u64,
    is_error: bool,
    message: String,
}

/// The checkers and language servers of a session.
pub struct Diagnostics {
    checkers: Vec<Checker>,
    servers: Vec<lsp::Server>,
    bash: Arc<Bash>,
    scope: Scope,
    cwd: PathBuf,
    /// What was reported for each file. Never locked across an await.
    known: Mutex<HashMap<PathBuf, BTreeSet<String>>>,
}

impl Diagnostics {
    /// Makes the diagnostics of a session. Starts nothing.
    #[must_use]
    pub fn new(
        checkers: Vec<Checker>,
        servers: Vec<LanguageServer>,
        bash: Arc<Bash>,
        scope: Scope,
        cwd: PathBuf,
    ) -> Diagnostics {
        let servers = servers.into_iter().map(lsp::Server::new).collect();
        Diagnostics { checkers, servers, bash, scope, cwd, known: Mutex::default() }
    }

    /// Tells whether nothing is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checkers.is_empty() && self.servers.is_empty()
    }

    /// Ends the language servers. They start again when they are needed.
    pub fn pause(&self) {
        self.servers.iter().for_each(lsp::Server::stop);
    }

    /// Takes what the user must know about what the checkers left behind.
    pub fn take_warnings(&self) -> Vec<String> {
        self.bash.take_warnings()
    }

    /// Returns what is wrong with a file that was changed, as the model wrote its path; one text for each checker and server.
    pub async fn after_edit(&self, spelling: &str) -> Vec<String> {
        let (scope, spelling) = (self.scope.clone(), spelling.to_owned());
        let locate = move || {
            let target = scope.locate(&spelling)?;
            let is_wanted = target.is_inside() && target.path().is_file();
            Ok(is_wanted.then_some(target))
        };
        let Ok(Some(target)) = on_a_thread(locate).await else { return Vec::new() };
        let (file, name) = (target.path().to_owned(), target.name().to_owned());
        let mut said = Vec::new();
        for checker in self.checkers.iter().filter(|it| matches_pattern(&it.pattern, &name)) {
            said.push((checker.command.as_str(), self.check(checker, &file, &name).await));
        }
        for server in self.servers.iter().filter(|server| server.is_for(&file)) {
            said.push((server.name(), self.ask(server, &target).await));
        }
        let words = said.into_iter().filter_map(|(source, found)| match found {
            Ok(found) => self.describe(source, &file, &name, found),
            Err(why) => Some(format!("(diagnostics of `{}`: {})", visible(source), visible(&why))),
        });
        words.collect()
    }

    async fn check(
        &self,
        checker: &Checker,
        file: &Path,
        name: &str,
    ) -> Result<Vec<Diagnostic>, String> {
        check::run(checker, &self.bash, &self.cwd, file, name).await
    }

    async fn ask(&self, server: &lsp::Server, target: &Target) -> Result<Vec<Diagnostic>, String> {
        let place = target.clone();
        let text = on_a_thread(move || disk::read(&place)).await.map_err(|err| err.to_string())?;
        let text = text.ok_or("the file is gone")?;
        let text = String::from_utf8(text).map_err(|_| "the file is not UTF-8".to_owned())?;
        server.diagnose(&self.bash, &self.cwd, target.path(), text).await
    }

    /// Describes new diagnostics for the model; `None` if there are none.
    fn describe(
        &self,
        source: &str,
        file: &Path,
        name: &str,
        mut found: Vec<Diagnostic>,
    ) -> Option<String> {
        found.sort();
        found.dedup();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(file.to_owned()).or_default();
        // Lines move when a file is edited, so a diagnostic is known by its text.
        let total = found.len();
        let present: BTreeSet<String> = found.iter().map(|one| one.message.clone()).collect();
        found.retain(|one| !known.contains(&one.message));
        known.retain(|message| present.contains(message));
        known.extend(present.into_iter().take(MOST_KNOWN));
        if found.is_empty() {
            return None;
        }
        // Errors first, since not all may be shown.
        found.sort_by_key(|one| (!one.is_error, one.line, one.column));
        let mut text = format!("New diagnostics of `{}` in {name}:", visible(source));
        for Diagnostic { line, column, is_error, message } in found.iter().take(MOST_SHOWN) {
            let kind = if *is_error { "error" } else { "warning" };
            let message: String = visible(message).chars().take(MOST_CHARACTERS).collect();
            text.push_str(&format!("\n{name}:{line}:{column}: {kind}: {message}"));
        }
        if found.len() > MOST_SHOWN {
            text.push_str(&format!("\n({} more)", found.len() - MOST_SHOWN));
        }
        if total > found.len() {
            text.push_str(&format!("\n({} reported before remain)", total - found.len()));
        }
        Some(text)
    }
}
