//! Reports the state of servers: notices when it changes, and the output of `/mcp`.

use std::borrow::Cow;
use std::sync::Arc;

use engine::ports::Severity;
use engine::words::{SlashCommand, inert, inert_title};

use crate::clean::clean_line;
use crate::config::Transport;
use crate::server::{Phase, Server, Status};
use crate::session::{MAX_TOOLS, SessionServers};

/// How many bytes of each server's log `/mcp` shows.
const LOG: usize = 600;
/// How many bytes of a log `/mcp log` shows.
const WHOLE_LOG: usize = 16 * 1024;
/// How many bytes of a tool's name `/mcp` shows.
const MAX_NAME: usize = 80;

/// Returns the command as clients list it.
pub(crate) fn command() -> SlashCommand {
    SlashCommand {
        name: Cow::Borrowed("mcp"),
        description: Cow::Borrowed("Show the MCP servers, their tools and their errors"),
        hint: Some(Cow::Borrowed("log NAME, or restart NAME")),
    }
}

/// What was already reported about a server, so that nothing is reported twice.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// A problem was reported.
    is_bad: bool,
    is_failed: bool,
}

impl Reported {
    /// Returns what to report now, if anything.
    pub(crate) fn next(
        &mut self,
        name: &str,
        status: &Status,
    ) -> Option<(Severity, String, Option<String>)> {
        let why = status.error.as_ref().map(|error| inert(&error.to_string()));
        match status.phase {
            Phase::Late if !self.is_bad => {
                self.is_bad = true;
                let title = format!("The MCP server `{name}` starts slowly");
                let details = format!(
                    "{}; its tools become available when it is ready",
                    why.unwrap_or_default()
                );
                Some((Severity::Warning, title, Some(details)))
            }
            Phase::Waiting(_) if !self.is_bad => {
                self.is_bad = true;
                let title = format!("The MCP server `{name}` failed and will be restarted");
                Some((Severity::Warning, title, why))
            }
            Phase::Failed if !self.is_failed => {
                self.is_bad = true;
                self.is_failed = true;
                let title = format!("The MCP server `{name}` is not available");
                Some((Severity::Error, title, why))
            }
            Phase::Ready if self.is_bad => {
                *self = Reported::default();
                let title = format!("The MCP server `{name}` is ready");
                Some((Severity::Info, title, Some(tools(status))))
            }
            Phase::Starting
            | Phase::Late
            | Phase::Waiting(_)
            | Phase::Failed
            | Phase::Ready
            | Phase::Stopped => None,
        }
    }
}

/// Answers `/mcp`.
pub(crate) fn answer(session: &SessionServers, rest: &str) -> String {
    let servers = session.servers();
    let (word, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let named = servers.iter().find(|server| server.name() == name.trim());
    match (word, named) {
        ("", _) => session.overview(),
        ("log", Some(server)) => {
            let log = server.log_tail(WHOLE_LOG);
            if log.is_empty() {
                return format!("The log of the MCP server `{}` is empty.", server.name());
            }
            format!("Log of the MCP server `{}`:\n\n{}", server.name(), fenced(&log))
        }
        ("restart", Some(server)) => {
            server.retry.notify_one();
            server.unresponsive.notify_one();
            format!("Restarting the MCP server `{}`.", server.name())
        }
        ("log" | "restart", None) => {
            let names: Vec<String> =
                servers.iter().map(|server| format!("`{}`", server.name())).collect();
            format!(
                "Unknown MCP server `{}`. Configured servers: {}.",
                name.trim(),
                names.join(", ")
            )
        }
        _ => "Use `/mcp`, `/mcp log NAME` or `/mcp restart NAME`.".to_owned(),
    }
}

pub(crate) fn overview(session: &SessionServers, servers: &[Arc<Server>]) -> String {
    let mut text = String::new();
    let problems = session.problems();
    if servers.is_empty() && problems.is_empty() {
        text.push_str(
            "This session has no MCP servers. Configure them in your editor or with `mcp` in purlin.json.\n",
        );
    }
    for server in servers {
        let status = server.status();
        text.push_str(&format!("- `{}` ({}): {}\n", server.name(), kind(server), state(&status)));
        if let Some(error) = &status.error {
            let error = inert(&error.to_string()).replace('\n', "\n    ");
            text.push_str(&format!("  - last error: {error}\n"));
        }
        if status.phase == Phase::Ready {
            text.push_str(&format!("  - {}\n", tools(&status)));
            let log = server.log_tail(LOG);
            if !log.is_empty() {
                text.push_str(&format!("  - log: {}\n", inert(&log).replace('\n', "\n    ")));
            }
        }
    }
    let offered: usize = servers.iter().map(|server| server.status().offer.tools.len()).sum();
    if let more @ 1.. = offered.saturating_sub(MAX_TOOLS) {
        text.push_str(&format!(
            "- tools of the last servers that are omitted, because a session has at most {MAX_TOOLS}: {more}\n"
        ));
    }
    for problem in problems {
        text.push_str(&format!("- ignored: {}\n", inert_title(&problem)));
    }
    text
}

fn kind(server: &Server) -> &'static str {
    match server.config.transport {
        Transport::Command(_) => "program",
        Transport::Http(_) => "http",
        Transport::Sse(_) => "sse",
    }
}

fn state(status: &Status) -> String {
    match status.phase {
        Phase::Starting => "starting".to_owned(),
        Phase::Late => "still starting".to_owned(),
        Phase::Ready => "ready".to_owned(),
        Phase::Waiting(wait) => format!("failed, restarts within {} s", wait.as_secs().max(1)),
        Phase::Failed => "failed".to_owned(),
        Phase::Stopped => "stopped".to_owned(),
    }
}

fn tools(status: &Status) -> String {
    let offer = &status.offer;
    let names: Vec<String> =
        offer.tools.iter().map(|tool| clean_line(&tool.name, MAX_NAME)).collect();
    let list = inert_title(&names.join(", "));
    let mut text = match names.len() {
        0 => "no tools".to_owned(),
        1 => format!("1 tool: {list}"),
        count => format!("{count} tools: {list}"),
    };
    match offer.omitted {
        0 => {}
        1 => text.push_str("; 1 more is omitted"),
        more => text.push_str(&format!("; {more} more are omitted")),
    }
    for (count, what) in [(offer.prompts.len(), "prompt"), (offer.resources.len(), "resource")] {
        match count {
            0 => {}
            1 => text.push_str(&format!("; 1 {what}")),
            count => text.push_str(&format!("; {count} {what}s")),
        }
    }
    text
}

/// Puts text into a code block that the text itself cannot close.
fn fenced(text: &str) -> String {
    format!("````\n{}\n````", text.replace("````", "```"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::error::Error;

    use super::*;

    fn status(phase: Phase, error: Option<Error>) -> Status {
        Status { phase, offer: Arc::default(), peer: None, error, version: 0 }
    }

    // R: M2, T7
    #[test]
    fn nothing_that_a_server_says_about_itself_is_rendered() {
        let image = "![x](http://evil/?q=1)";
        let tool = |name: &String| {
            let (title, description, fingerprint) = Default::default();
            let schema = serde_json::Value::Null;
            Arc::new(crate::offer::ToolInfo {
                name: name.clone(),
                title,
                description,
                schema,
                fingerprint,
            })
        };
        let names = [image.to_owned(), "a\u{202e}b".to_owned(), "x".repeat(1000)];
        let offer =
            crate::offer::Offer { tools: names.iter().map(tool).collect(), ..Default::default() };
        let ready = Status { offer: Arc::new(offer), ..status(Phase::Ready, None) };
        let text = tools(&ready);
        assert!(text.starts_with(&format!("3 tools: `{image}, ab, xxx")), "{text}");
        assert!(text.len() < 200, "{}", text.len());
        let failed = Error::Exited { how: "code 1".to_owned(), log: image.to_owned() };
        let (_, _, why) =
            Reported::default().next("a", &status(Phase::Failed, Some(failed))).unwrap();
        assert!(why.unwrap().starts_with("```\n"));
    }

    // R: M2
    #[test]
    fn problem_and_recovery_are_each_reported_once() {
        let mut reported = Reported::default();
        let wait = Phase::Waiting(Duration::from_secs(1));
        let hung = || Some(Error::Unresponsive);
        assert_eq!(reported.next("a", &status(Phase::Starting, None)), None);
        assert_eq!(reported.next("a", &status(Phase::Ready, None)), None);
        let (severity, title, why) = reported.next("a", &status(wait, hung())).unwrap();
        assert_eq!((severity, why), (Severity::Warning, hung().map(|error| error.to_string())));
        assert!(title.contains("`a`") && title.contains("failed"), "{title}");
        assert_eq!(reported.next("a", &status(wait, hung())), None);
        let (severity, title, _) = reported.next("a", &status(Phase::Failed, hung())).unwrap();
        assert_eq!(severity, Severity::Error);
        assert!(title.contains("not available"), "{title}");
        assert_eq!(reported.next("a", &status(Phase::Failed, hung())), None);
        let (severity, title, _) = reported.next("a", &status(Phase::Ready, hung())).unwrap();
        assert_eq!((severity, title.as_str()), (Severity::Info, "The MCP server `a` is ready"));
    }
}
