//! Large values in the inputs of tool calls, such as the content of a file to write. They are stored under their hash, like
//! the contents of files, and not in the record of the answer. A file that is written as the model sent it is stored once.

use std::sync::Arc;

use engine::ports::JournalError;
use serde_json::Value;

use crate::content::{Content, Hash, LARGE, hash_of, name_of};
use crate::journal::Error;
use crate::record::{Decoded, Encoded, LargeValue, Record};

/// How the body of an answer with large values starts.
const HEAD: &[u8] = b"{\"answer_apart\":";

/// A large value that was moved out of an answer. It is often the content of the next file that is written.
#[derive(Debug)]
pub(crate) struct TakenValue {
    input: Arc<Value>,
    field: String,
    hash: Hash,
}

impl TakenValue {
    /// Returns the hash of `body` if it equals this value: comparing is faster than hashing.
    pub(crate) fn hash_of(&self, body: &[u8]) -> Option<Hash> {
        let text = self.input.get(&self.field)?.as_str()?;
        (text.as_bytes() == body).then_some(self.hash)
    }
}

/// Moves large values out of an answer and returns them. A value that cannot be stored stays in the record; writing the
/// record then reports the error.
pub(crate) fn move_out(
    record: &mut Record,
    mut store: impl FnMut(Content<'_>) -> Result<(), JournalError>,
) -> Vec<TakenValue> {
    let Record::Answer(calls) = record else { return Vec::new() };
    let (mut values, mut moved) = (Vec::new(), Vec::new());
    for (call, request) in calls.iter_mut().enumerate() {
        let Some(fields) = request.input.as_object() else { continue };
        let long = fields.iter().filter_map(|(field, value)| {
            let text = value.as_str().filter(|text| text.len() > LARGE)?;
            let content = Content::of(text.as_bytes());
            store(content).ok()?;
            Some((field.clone(), content.hash))
        });
        let long: Vec<(String, Hash)> = long.collect();
        if long.is_empty() {
            continue;
        }
        // A null takes the place of the value, so that the fields keep their order.
        let rest = fields.iter().map(|(field, value)| {
            let is_moved = long.iter().any(|(out, _)| out == field);
            (field.clone(), if is_moved { Value::Null } else { value.clone() })
        });
        let rest = Arc::new(rest.collect());
        let input = std::mem::replace(&mut request.input, rest);
        for (field, hash) in long {
            values.push(LargeValue { call, field: field.clone(), text: name_of(&hash) });
            moved.push(TakenValue { input: Arc::clone(&input), field, hash });
        }
    }
    if !values.is_empty() {
        *record = Record::AnswerLargeValues { calls: std::mem::take(calls), values };
    }
    moved
}

/// Restores the large values of an answer. If one is missing, the whole record is damaged.
pub(crate) fn restore(
    record: &mut Encoded,
    get: impl FnMut(&Hash) -> Result<Option<Vec<u8>>, Error>,
) -> Result<(), Error> {
    if !record.body.starts_with(HEAD) {
        return Ok(());
    }
    let Decoded::Record(mut answer) = record.decode() else { return Ok(()) };
    match restore_all(&mut answer, get)?.and_then(|whole| whole.encode().ok()) {
        Some(whole) => *record = whole,
        None => record.body.clear(),
    }
    Ok(())
}

fn restore_all(
    answer: &mut Record,
    mut get: impl FnMut(&Hash) -> Result<Option<Vec<u8>>, Error>,
) -> Result<Option<Record>, Error> {
    let Record::AnswerLargeValues { calls, values } = answer else { return Ok(None) };
    for LargeValue { call, field, text } in values {
        let Some(hash) = hash_of(&text.0) else { return Ok(None) };
        let Some(body) = get(&hash)?.filter(|body| Content::of(body).hash == hash) else {
            return Ok(None);
        };
        let input = calls.get_mut(*call).map(|call| Arc::make_mut(&mut call.input));
        let slot = input.and_then(|input| input.get_mut(field.as_str()));
        let (Some(slot), Ok(text)) = (slot, String::from_utf8(body)) else { return Ok(None) };
        *slot = text.into();
    }
    Ok(Some(Record::Answer(std::mem::take(calls))))
}
