//! Long texts that a model asks with, such as files to write: kept apart from the record of its answer, under their hash,
//! where what files hold is kept, too. So a file that is written as the model gave it is kept once.

use std::sync::Arc;

use engine::ports::JournalError;
use serde_json::Value;

use crate::journal::{Content, Error, Hash};
use crate::record::{Apart, Decoded, Encoded, Name, Record};
use crate::sqlite::BLOB;

/// How the body of an answer begins whose texts are kept apart.
const HEAD: &[u8] = b"{\"answer_apart\":";

/// A text that was taken out: often the next file that is written.
#[derive(Debug)]
pub(crate) struct TakenOut {
    input: Arc<Value>,
    field: String,
    hash: Hash,
}

impl TakenOut {
    /// Returns the hash of `body` if it is this text, which is compared sooner than hashed.
    pub(crate) fn hash_of(&self, body: &[u8]) -> Option<Hash> {
        let text = self.input.get(&self.field)?.as_str()?;
        (text.as_bytes() == body).then_some(self.hash)
    }
}

/// Takes long texts out of an answer, and returns them. One that cannot be kept stays, and whoever writes the record finds
/// out why.
pub(crate) fn take_out(
    record: &mut Record,
    mut keep: impl FnMut(Content<'_>) -> Result<(), JournalError>,
) -> Vec<TakenOut> {
    let Record::Answer(calls) = record else { return Vec::new() };
    let (mut texts, mut taken) = (Vec::new(), Vec::new());
    for (call, request) in calls.iter_mut().enumerate() {
        let Some(fields) = request.input.as_object() else { continue };
        let long = fields.iter().filter_map(|(field, value)| {
            let text = value.as_str().filter(|text| text.len() > BLOB)?;
            let content = Content::of(text.as_bytes());
            keep(content).ok()?;
            Some((field.clone(), content.hash))
        });
        let long: Vec<(String, Hash)> = long.collect();
        if long.is_empty() {
            continue;
        }
        // Nothing stands where a text was, so that fields keep their order.
        let rest = fields.iter().map(|(field, value)| {
            let is_out = long.iter().any(|(out, _)| out == field);
            (field.clone(), if is_out { Value::Null } else { value.clone() })
        });
        let rest = Arc::new(rest.collect());
        let input = std::mem::replace(&mut request.input, rest);
        for (field, hash) in long {
            texts.push(Apart { call, field: field.clone(), text: name_of(&hash) });
            taken.push(TakenOut { input: Arc::clone(&input), field, hash });
        }
    }
    if !texts.is_empty() {
        *record = Record::AnswerApart { calls: std::mem::take(calls), texts };
    }
    taken
}

/// Puts the texts of an answer back. Without one of them the record is damaged, as one that lost a part of its own.
pub(crate) fn put_back(
    record: &mut Encoded,
    get: impl FnMut(&Hash) -> Result<Option<Vec<u8>>, Error>,
) -> Result<(), Error> {
    if !record.body.starts_with(HEAD) {
        return Ok(());
    }
    let Decoded::Record(mut answer) = record.decode() else { return Ok(()) };
    match join(&mut answer, get)?.and_then(|whole| whole.encode().ok()) {
        Some(whole) => *record = whole,
        None => record.body.clear(),
    }
    Ok(())
}

fn join(
    answer: &mut Record,
    mut get: impl FnMut(&Hash) -> Result<Option<Vec<u8>>, Error>,
) -> Result<Option<Record>, Error> {
    let Record::AnswerApart { calls, texts } = answer else { return Ok(None) };
    for Apart { call, field, text } in texts {
        let Some(hash) = hash_of(&text.0) else { return Ok(None) };
        let Some(body) = get(&hash)?.filter(|body| Content::of(body).hash == hash) else {
            return Ok(None);
        };
        let input = calls.get_mut(*call).map(|call| Arc::make_mut(&mut call.input));
        let place = input.and_then(|input| input.get_mut(field.as_str()));
        let (Some(place), Ok(text)) = (place, String::from_utf8(body)) else { return Ok(None) };
        *place = text.into();
    }
    Ok(Some(Record::Answer(std::mem::take(calls))))
}

/// A hash as records have it.
pub(crate) fn name_of(hash: &Hash) -> Name {
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Name(digits.into())
}

/// The hash of a name; `None` for what is none, as a damaged record may have it.
pub(crate) fn hash_of(name: &str) -> Option<Hash> {
    let digits = name
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    digits.collect::<Option<Vec<u8>>>()?.try_into().ok()
}
