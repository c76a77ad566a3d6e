//! The members of JSON objects: renames them, and moves what v1 has no place for into `_meta.purlin` and back.

use serde_json::{Map, Value};

use agent_client_protocol_schema::v1::Meta;

/// The member of `_meta` for everything that v1 has no place for.
pub(super) const META: &str = "purlin";

/// Returns a value in `_meta.purlin`.
#[must_use]
pub fn meta_value<'a>(meta: Option<&'a Meta>, key: &str) -> Option<&'a Value> {
    meta?.get(META)?.get(key)
}

/// Removes a value from `_meta.purlin`, and `_meta` itself when it becomes empty.
pub fn take_meta_value(meta: &mut Option<Meta>, key: &str) -> Option<Value> {
    let members = meta.as_mut()?;
    let own = members.get_mut(META)?.as_object_mut()?;
    let taken = own.remove(key);
    if own.is_empty() {
        members.remove(META);
    }
    if members.is_empty() {
        *meta = None;
    }
    taken
}

/// Adds facts to `_meta.purlin`. `Dialect::from_v1` moves them to their places in the dialect.
#[must_use]
pub fn with_facts(meta: Option<Meta>, facts: Option<Value>) -> Option<Meta> {
    let Some(Value::Object(facts)) = facts else {
        return meta;
    };
    let mut meta = meta.unwrap_or_default();
    let mut own = take_object(&mut meta, META);
    own.extend(facts);
    meta.insert(META.to_owned(), Value::Object(own));
    Some(meta)
}

/// Moves a member into `_meta.purlin`.
pub(super) fn put_meta(members: &mut Map<String, Value>, key: &str) {
    if let Some(value) = members.remove(key) {
        insert_meta(members, key, value);
    }
}

/// Inserts a value into `_meta.purlin`.
pub(super) fn insert_meta(members: &mut Map<String, Value>, key: &str, value: Value) {
    let mut meta = take_object(members, "_meta");
    let mut own = take_object(&mut meta, META);
    own.insert(key.to_owned(), value);
    meta.insert(META.to_owned(), Value::Object(own));
    members.insert("_meta".to_owned(), Value::Object(meta));
}

/// Removes and returns the object at a key, or an empty one.
pub(super) fn take_object(members: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match members.remove(key) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// Moves every member that is not in `known` into `_meta.purlin`.
pub(super) fn put_unknown_in_meta(members: &mut Map<String, Value>, known: &[&str]) {
    let unknown: Vec<String> = members
        .keys()
        .filter(|key| !known.contains(&key.as_str()) && *key != "_meta")
        .cloned()
        .collect();
    unknown.iter().for_each(|key| put_meta(members, key));
}

/// Moves everything back out of `_meta.purlin`. Existing members are not overwritten.
pub(super) fn take_meta(members: &mut Map<String, Value>) {
    let Some(Value::Object(meta)) = members.get_mut("_meta") else { return };
    let Some(Value::Object(own)) = meta.remove(META) else { return };
    if meta.is_empty() {
        members.remove("_meta");
    }
    for (key, value) in own {
        members.entry(key).or_insert(value);
    }
}

/// Renames a member, unless the new name is taken.
pub(super) fn rename(members: &mut Map<String, Value>, from: &str, to: &str) {
    if members.contains_key(to) {
        return;
    }
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}
