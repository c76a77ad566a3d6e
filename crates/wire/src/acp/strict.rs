//! JSON without duplicate members: a rewrite must not have to choose between two values.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads an object; `None` for other values, duplicate members and too deep nesting.
pub(super) fn object(text: &str) -> Option<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if members.contains_key(&key) {
                return Err(A::Error::custom("duplicate member"));
            }
            members.insert(key, from.next_value_seed(self)?);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duplicate_member_is_rejected_at_any_depth() {
        assert!(object(r#"{"a":1,"b":[null,true,-1,1.5,"x",{"a":2}]}"#).is_some());
        assert!(object(r#"{"a":1,"a":1}"#).is_none());
        assert!(object(r#"{"b":[{"a":1,"a":1}]}"#).is_none());
        assert!(object("[]").is_none());
        assert!(object("{} {}").is_none());
        assert!(object(&format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500))).is_none());
    }

    proptest! {
        #[test]
        fn reads_the_same_values_as_serde(key in any::<String>(), text in any::<String>(), number in any::<i64>(), float in -1e9f64..1e9) {
            let value = serde_json::json!({ key: [text, number, float, null, { "x": true }] });
            prop_assert_eq!(object(&value.to_string()).map(Value::Object), Some(value));
        }
    }
}
