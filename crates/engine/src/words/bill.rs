//! What a session has used and cost, by model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::ModelId;
use super::usage::Usage;

/// The usage, by model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    lines: BTreeMap<ModelId, Line>,
}

/// The usage of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Line {
    answers: u64,
    usage: Usage,
    dollars: Option<f64>,
}

impl Bill {
    /// Adds an answer.
    pub fn add(&mut self, model: &ModelId, usage: &Usage, dollars: Option<f64>) {
        let line = self.lines.entry(model.clone()).or_default();
        line.answers += 1;
        line.usage.add(usage);
        if let Some(dollars) = dollars {
            line.dollars = Some(line.dollars.unwrap_or_default() + dollars);
        }
    }

    /// Formats the bill for the user.
    #[must_use]
    pub fn print(&self) -> String {
        if self.lines.is_empty() {
            return "No usage yet.".to_owned();
        }
        let mut text = String::from(
            "| model | answers | input | cache read | cache write | output | cost |\n|---|---|---|---|---|---|---|\n",
        );
        let mut total = None;
        for (model, line) in &self.lines {
            let Line { answers, usage, dollars } = line;
            let Usage { input, output, cache_read, cache_write } = usage;
            let cost = dollars.map_or_else(|| "price unknown".to_owned(), money);
            text.push_str(&format!(
                "| `{model}` | {answers} | {input} | {cache_read} | {cache_write} | {output} | {cost} |\n"
            ));
            if let Some(dollars) = dollars {
                total = Some(total.unwrap_or_default() + dollars);
            }
        }
        if let Some(total) = total {
            text.push_str(&format!(
                "\nTotal: {}. Tokens are counted by the providers.\n",
                money(total)
            ));
        }
        text
    }
}

fn money(dollars: f64) -> String {
    format!("${dollars:.4}")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn bill_adds_up_by_model() {
        let mut bill = Bill::default();
        let usage = |input, output| Usage { input, output, ..Usage::default() };
        bill.add(&ModelId::new("b/free"), &usage(5, 1), None);
        bill.add(&ModelId::new("a/paid"), &usage(100, 10), Some(0.25));
        bill.add(&ModelId::new("a/paid"), &usage(50, 5), Some(0.5));
        expect![[r#"
            | model | answers | input | cache read | cache write | output | cost |
            |---|---|---|---|---|---|---|
            | `a/paid` | 2 | 150 | 0 | 0 | 15 | $0.7500 |
            | `b/free` | 1 | 5 | 0 | 0 | 1 | price unknown |

            Total: $0.7500. Tokens are counted by the providers.
        "#]]
        .assert_eq(&bill.print());
    }
}
