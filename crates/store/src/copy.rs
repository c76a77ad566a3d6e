//! Copies the conversation of a session into another one. Messages and calls get new ids, so that a client and `/undo` can tell
//! them from the originals.

use crate::record::{Cut, Decoded, Name, Record};

/// Returns the copies of records, in order. What belongs to the session rather than to its conversation is left out: settings,
/// usage, and changes of files, which only the original can undo.
pub(crate) fn conversation(records: impl Iterator<Item = Decoded>, suffix: &str) -> Vec<Record> {
    let records = records.filter_map(|decoded| match decoded {
        Decoded::Record(record) => Some(record),
        Decoded::Opaque | Decoded::Damaged => None,
    });
    records.filter(is_conversation).map(|record| renamed(record, suffix)).collect()
}

fn is_conversation(record: &Record) -> bool {
    match record {
        Record::Own { .. }
        | Record::Settings { .. }
        | Record::Usage { .. }
        | Record::ModelUsage { .. }
        | Record::Change { .. }
        // The large values of an answer are restored before it is copied.
        | Record::AnswerLargeValues { .. } => false,
        Record::Prompt { .. }
        | Record::Text { .. }
        | Record::Thought { .. }
        | Record::Shown { .. }
        | Record::ToolCall(_)
        | Record::ToolUpdate { .. }
        | Record::Plan(_)
        | Record::Compaction { .. }
        | Record::CompactionSummary { .. }
        | Record::Thoughts(_)
        | Record::Answer(_)
        | Record::ToolIntent(_)
        | Record::ToolResult { .. }
        | Record::Undone { .. }
        | Record::Redone { .. }
        | Record::Note { .. }
        | Record::Compacted { .. }
        | Record::TurnEnd { .. }
        | Record::Interrupted {} => true,
    }
}

fn renamed(mut record: Record, suffix: &str) -> Record {
    let rename = |name: &mut Name| *name = Name(format!("{}-{suffix}", name.0).into());
    match &mut record {
        Record::Prompt { message, .. }
        | Record::Text { message, .. }
        | Record::Thought { message, .. }
        | Record::Shown { message, .. }
        | Record::Undone { first: message }
        | Record::Redone { last: message } => rename(message),
        Record::ToolCall(call) => rename(&mut call.id),
        Record::ToolUpdate { id, .. } | Record::ToolResult { id, .. } => rename(id),
        Record::ToolIntent(request) => rename(&mut request.id),
        Record::Answer(calls) => calls.iter_mut().for_each(|call| rename(&mut call.id)),
        Record::Thoughts(thoughts) => {
            let seals = thoughts.iter_mut().filter_map(|thought| thought.seal.as_mut());
            seals.filter_map(|seal| seal.call.as_mut()).for_each(rename);
        }
        Record::Compacted { from: Cut::Turn(name) | Cut::Call(name), .. } => rename(name),
        Record::Compaction { id, .. } | Record::CompactionSummary { id, .. } => {
            *id = format!("{id}-{suffix}");
        }
        Record::Compacted { from: Cut::End, .. }
        | Record::Own { .. }
        | Record::Settings { .. }
        | Record::Usage { .. }
        | Record::ModelUsage { .. }
        | Record::Change { .. }
        | Record::AnswerLargeValues { .. }
        | Record::Plan(_)
        | Record::Note { .. }
        | Record::TurnEnd { .. }
        | Record::Interrupted {} => {}
    }
    record
}
