//! `chat` of a configuration: the terminal client.

use std::collections::BTreeMap;

use serde_json::Value;

/// How the terminal client works.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatConfig {
    /// Keys, such as `ctrl-t`, with the actions that they do.
    pub keys: BTreeMap<String, String>,
    /// The input has the keys of vi.
    pub vi: bool,
    /// Everything is printed in order and without motion.
    pub screen_reader: bool,
}

impl ChatConfig {
    pub(crate) fn read(value: &Value) -> ChatConfig {
        let is_on = |key: &str| value.get(key) == Some(&Value::Bool(true));
        let keys = value.get("keys").and_then(Value::as_object);
        let pair = |(key, action): (&String, &Value)| Some((key.clone(), action.as_str()?.into()));
        ChatConfig {
            keys: keys.into_iter().flatten().filter_map(pair).collect(),
            vi: is_on("vi"),
            screen_reader: is_on("screen_reader"),
        }
    }
}
