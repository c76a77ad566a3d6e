//! Prints updates in the client's dialect, for callers that do not know which one it is.

use serde::Serialize;
use wire::acp::dialect::{Dialect, print};

/// Prints notes in one dialect; by default in v1.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NotePrinter(pub(super) Dialect);

impl NotePrinter {
    /// Prints in this dialect.
    #[cfg(test)]
    pub(crate) fn of(dialect: Dialect) -> NotePrinter {
        NotePrinter(dialect)
    }

    /// Appends a note. A note that the dialect cannot express is omitted.
    pub(crate) fn print(
        self,
        out: &mut Vec<u8>,
        method: &'static str,
        params: &impl Serialize,
    ) -> serde_json::Result<()> {
        print::print_note(out, self.0, method, params)
    }
}

#[cfg(test)]
mod tests {
    use engine::Event;
    use engine::words::{Block, SessionId, ToolCallId, ToolContent, ToolUpdate};
    use serde_json::Value;

    use super::*;
    use crate::bridge::update;

    // R: W10, D2, D3
    #[test]
    fn updates_stay_small_in_every_dialect() {
        let text = "\u{1b}[31mé\n".repeat(100_000);
        let block = ToolContent::Block(Block::Text(text.clone()));
        let diff = |old: usize, new: usize| {
            let (old, new) = (Some(text[..old].to_owned()), text[..new].to_owned());
            ToolContent::Diff { path: "/w/a".into(), old, new }
        };
        let contents = [vec![block; 20], vec![diff(1_200, 1_200); 20], vec![diff(60_000, 60_000)]];
        for dialect in Dialect::ALL {
            for content in &contents {
                let update = ToolUpdate { content: Some(content.clone()), ..ToolUpdate::default() };
                let event = Event::ToolUpdate(ToolCallId::new("t"), Box::new(update));
                let mut out = Vec::new();
                update::print(
                    &mut out,
                    NotePrinter(dialect),
                    &SessionId::new("s"),
                    event,
                    None,
                    100 * 1024,
                );
                assert!(out.len() <= 100 * 1024, "{dialect:?}: {} bytes", out.len());
                assert!(serde_json::from_slice::<Value>(&out).is_ok());
            }
        }
    }
}
