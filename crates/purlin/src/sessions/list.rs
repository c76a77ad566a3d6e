//! `purlin sessions list`: the sessions of this directory first, with short ids and times that people read.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use chrono::{DateTime, Local};
use engine::ports::{SessionInfo, State};
use engine::words::{iso_8601, visible};
use store::Store;

use super::{all, first_words};
use crate::stdout::print;

/// The shortest id that is shown. Ids begin with the time, so a few characters are rarely enough.
const SHORTEST: usize = 8;

/// Lists sessions, those of `here` first.
pub(super) async fn list(
    store: &Store,
    cwd: Option<PathBuf>,
    here: Option<PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let cwd = match cwd {
        Some(cwd) => Some(cwd.canonicalize().with_context(|| cwd.display().to_string())?),
        None => None,
    };
    // Short ids must be unique among all sessions, whichever are listed.
    let mut ids: BTreeSet<String> = BTreeSet::new();
    if !json {
        ids.extend(all(store, None).await?.into_iter().map(|info| info.id.to_string()));
    }
    let mut found = all(store, cwd.clone()).await?;
    for info in found.iter_mut().filter(|info| info.title.is_none()) {
        info.title = first_words(store, &info.id).await;
    }
    if json {
        return print(&found.iter().map(json_line).collect::<String>());
    }
    if found.is_empty() {
        return print("No stored sessions.\n");
    }
    let now = SystemTime::now();
    let line = |info: &SessionInfo, with_directory: bool| {
        text_line(info, short_id(&ids, info.id.as_str()), now, with_directory)
    };
    let is_here = |info: &&SessionInfo| here.as_deref() == Some(&*info.cwd);
    let mine: String = found.iter().filter(is_here).map(|info| line(info, false)).collect();
    let others = found.iter().filter(|info| !is_here(info));
    let others: String = others.map(|info| line(info, cwd.is_none())).collect();
    print(&match (mine.is_empty(), others.is_empty()) {
        (true, _) | (_, true) => format!("{mine}{others}"),
        (false, false) => format!("In this folder:\n{mine}\nElsewhere:\n{others}"),
    })
}

fn json_line(info: &SessionInfo) -> String {
    let line = serde_json::json!({
        "id": info.id.as_str(), "title": info.title, "cwd": info.cwd,
        "state": store::index::state_in(info.state), "createdAt": iso_8601(info.created),
        "updatedAt": iso_8601(info.updated), "bytes": info.bytes,
    });
    format!("{line}\n")
}

fn text_line(info: &SessionInfo, id: &str, now: SystemTime, with_directory: bool) -> String {
    let local = DateTime::<Local>::from(info.updated).format("%Y-%m-%d %H:%M");
    let ago = relative(now.duration_since(info.updated).unwrap_or_default());
    // An imported title may contain anything, so control characters are escaped.
    let title = visible(info.title.as_deref().unwrap_or("(no title)"));
    let state = match info.state {
        State::Active => "  [open]",
        State::Error => "  [last turn failed]",
        State::Paused | State::Completed => "",
    };
    let directory = match with_directory {
        true => format!("  ({})", visible(&shown_directory(&info.cwd))),
        false => String::new(),
    };
    let line = format!("{id:<SHORTEST$}  {local}  {ago:>12}  {title}{state}{directory}");
    format!("{}\n", line.replace('\n', "\\n"))
}

fn shown_directory(directory: &Path) -> String {
    directory.display().to_string()
}

/// Returns the shortest beginning of an id that no other id has.
fn short_id<'a>(ids: &BTreeSet<String>, id: &'a str) -> &'a str {
    let neighbours = [
        ids.range::<str, _>((Bound::Unbounded, Bound::Excluded(id))).next_back(),
        ids.range::<str, _>((Bound::Excluded(id), Bound::Unbounded)).next(),
    ];
    let shared = |other: &String| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let shared = neighbours.into_iter().flatten().map(shared).max();
    let length = shared.map_or(0, |shared| shared + 1).max(SHORTEST);
    id.get(..length).unwrap_or(id)
}

/// Says how long ago something was.
fn relative(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    let ago = |count: u64, unit: &str| match count {
        1 => format!("1 {unit} ago"),
        count => format!("{count} {unit}s ago"),
    };
    match minutes {
        0 => "just now".to_owned(),
        1..60 => format!("{minutes} min ago"),
        60..1440 => ago(minutes / 60, "hour"),
        1440..43_200 => ago(minutes / 1440, "day"),
        43_200..525_600 => ago(minutes / 43_200, "month"),
        _ => ago(minutes / 525_600, "year"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_id_is_unique() {
        let ids = ["0193abcd-1111", "0193abcd-1222", "0193ffff-3333"];
        let all: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let short = ids.map(|id| short_id(&all, id));
        assert_eq!(short, ["0193abcd-11", "0193abcd-12", "0193ffff"]);
        assert_eq!(short_id(&BTreeSet::new(), "ab"), "ab");
    }

    #[test]
    fn ages_are_rounded_down() {
        let after = |seconds| relative(Duration::from_secs(seconds));
        assert_eq!(after(59), "just now");
        assert_eq!(after(3599), "59 min ago");
        assert_eq!(after(3600), "1 hour ago");
        assert_eq!(after(3 * 86_400), "3 days ago");
        assert_eq!(after(400 * 86_400), "1 year ago");
    }
}
