//! `/trace`: writes the page of a session's last turn, and says where it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use engine::ports::{Expanded, Extension};
use engine::words::{Prompt, SessionId, SlashCommand};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use observe::show::Filter;
use observe::{Record, SpanRecord};
use serve::workspace::MakeExtension;

use crate::observer::Observer;
use crate::{env, trace_command};

/// How many pages are kept.
const MAX_PAGES: usize = 20;

/// Gives every session the command `/trace`. Without an observer it says that nothing is recorded.
#[must_use]
pub(crate) fn extension(observer: Option<Arc<Observer>>) -> MakeExtension {
    Box::new(move |_, session| {
        Arc::new(Trace { observer: observer.clone(), session: session.clone() })
    })
}

struct Trace {
    observer: Option<Arc<Observer>>,
    session: SessionId,
}

impl Extension for Trace {
    fn commands(&self) -> Vec<SlashCommand> {
        vec![SlashCommand {
            name: "trace".into(),
            description: "Write a page about the last turn: timing, errors, tokens and cost".into(),
            hint: None,
        }]
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        if prompt.text().trim() != "/trace" {
            return futures_util::future::ready(Expanded::Prompt(prompt)).boxed();
        }
        async move {
            let Some(observer) = self.observer.clone() else {
                return Expanded::Answer("Nothing is recorded here.".to_owned());
            };
            let session = self.session.as_str().to_owned();
            let written = tokio::task::spawn_blocking(move || write(&observer, &session)).await;
            Expanded::Answer(match written {
                Ok(Ok(Some(page))) => format!(
                    "The page of the last turn: `{}`. Open it in a browser.",
                    page.display()
                ),
                Ok(Ok(None)) => "No turn of this session has ended yet.".to_owned(),
                Ok(Err(err)) => format!("The page could not be written: {err:#}"),
                Err(_) => "The page could not be written.".to_owned(),
            })
        }
        .boxed()
    }
}

/// Writes the page: from the trace file if there is one, else from the spans that are remembered.
fn write(observer: &Observer, session: &str) -> anyhow::Result<Option<PathBuf>> {
    let spans = last_turn(observer.recent(), session);
    if spans.is_empty() {
        return Ok(None);
    }
    let directory =
        env::directories().state.context("the home directory is unknown")?.join("traces");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&directory)?;
    remove_old(&directory)?;
    let name = format!("{}-{}", safe(session), spans[0].time.round());
    let page = directory.join(format!("{name}.html"));
    if let Some(file) = observer.trace_file() {
        let turn = spans.iter().find(|span| span.kind == "turn");
        let since = turn.map(|turn| turn.time);
        let filter = Filter { session: Some(session.to_owned()), since, ..Filter::default() };
        let call = turn.and_then(|turn| Some(turn.request.as_ref()?.to_string()));
        trace_command::write_page_from(file, &filter, call.as_deref(), &page)?;
        return Ok(Some(page));
    }
    let file = directory.join(format!("{name}.jsonl"));
    let lines = spans.into_iter().map(|span| serde_json::to_string(&Record::Span(Box::new(span))));
    let lines: Result<Vec<String>, _> = lines.collect();
    std::fs::write(&file, lines?.join("\n"))?;
    trace_command::write_page(&file, &Filter::default(), &page)?;
    std::fs::remove_file(file)?;
    Ok(Some(page))
}

/// Returns the spans of a session's last turn.
fn last_turn(spans: Vec<SpanRecord>, session: &str) -> Vec<SpanRecord> {
    let is_ours = |span: &&SpanRecord| span.session.as_deref() == Some(session);
    let turn = spans.iter().filter(is_ours).rfind(|span| span.kind == "turn").cloned();
    let Some(turn) = turn else { return Vec::new() };
    let end = turn.time + turn.duration_ms.unwrap_or_default();
    let is_inside = |span: &SpanRecord| span.time >= turn.time && span.time <= end;
    spans.into_iter().filter(|span| is_ours(&span) && is_inside(span)).collect()
}

/// Returns a name of a session that is a name of a file.
fn safe(session: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    session.chars().take(40).map(plain).collect()
}

/// Removes all pages but the newest.
fn remove_old(directory: &Path) -> std::io::Result<()> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        pages.push((entry.metadata()?.modified()?, entry.path()));
    }
    pages.sort();
    let many = (pages.len() + 1).saturating_sub(MAX_PAGES);
    pages.into_iter().take(many).try_for_each(|(_, page)| std::fs::remove_file(page))
}
