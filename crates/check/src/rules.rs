//! Rules: what every message of every case must comply with. A rule is a function with the id of its row.

mod client_side;
mod schema_rows;
mod sessions;
mod tools;
mod wire;

use crate::record::Record;

/// What a rule says about one case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finding {
    /// The case has nothing that the rule is about.
    Nothing,
    /// The rule holds.
    Holds,
    /// The message at this place breaks it.
    Broken {
        /// The place in the log.
        at: usize,
        /// What is wrong.
        reason: String,
    },
}

impl Finding {
    fn broken(at: usize, reason: impl Into<String>) -> Finding {
        Finding::Broken { at, reason: reason.into() }
    }

    /// Judges all items: the first that has a reason breaks the rule.
    fn of_all<T>(
        items: impl IntoIterator<Item = T>,
        judge: impl Fn(T) -> Option<(usize, String)>,
    ) -> Finding {
        let mut finding = Finding::Nothing;
        for item in items {
            match judge(item) {
                Some((at, reason)) => return Finding::broken(at, reason),
                None => finding = Finding::Holds,
            }
        }
        finding
    }
}

type Rule = fn(&Record) -> Finding;

fn groups() -> [&'static [(&'static str, Rule)]; 4] {
    [wire::RULES, sessions::RULES, tools::RULES, client_side::RULES]
}

/// Returns the ids of all rules.
#[cfg(test)]
pub(crate) fn ids() -> impl Iterator<Item = &'static str> {
    let plain = groups().into_iter().flatten().map(|(id, _)| *id);
    plain.chain(schema_rows::ids())
}

/// Applies every rule to a case.
pub(crate) fn apply(record: &Record) -> Vec<(&'static str, Finding)> {
    let plain = groups().into_iter().flatten().map(|(id, rule)| (*id, rule(record)));
    plain.chain(schema_rows::apply(record)).collect()
}
