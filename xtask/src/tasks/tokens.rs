//! The tokens of a request, as the model server reports them.
//!
//! OpenAI's `usage`, in both formats, or llama.cpp's `timings`. If a server reports nothing, or its answer was cut off, the
//! tokens are estimated: four bytes of a request are a token, and so is each event of an answer.

use std::ops::AddAssign;

use serde_json::Value;

use super::proxy::Exchange;

/// Counted tokens.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Tokens {
    /// All tokens of the prompts.
    pub(crate) input: u64,
    /// Those of them that the server had in its cache.
    pub(crate) cached: u64,
    pub(crate) output: u64,
    /// Whether a part is estimated.
    pub(crate) is_estimated: bool,
}

impl Tokens {
    /// Counts the tokens of a request for an answer, or `None` for other requests, such as the list of models.
    pub(crate) fn of(exchange: &Exchange) -> Option<Tokens> {
        let path = exchange.path.split('?').next().unwrap_or_default();
        let asks_for_answer = ["/chat/completions", "/responses", "/completions", "/messages"]
            .iter()
            .any(|end| path.ends_with(end));
        asks_for_answer.then(|| reported(&exchange.answer).unwrap_or_else(|| estimated(exchange)))
    }

    pub(crate) fn total(self) -> u64 {
        self.input + self.output
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Tokens) {
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
        self.is_estimated |= other.is_estimated;
    }
}

/// Returns the events of a stream, or the whole answer.
fn values(answer: &str) -> impl DoubleEndedIterator<Item = Value> {
    let data = answer.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    let whole = serde_json::from_str(answer).ok();
    data.filter_map(|data| serde_json::from_str(data).ok()).chain(whole)
}

fn reported(answer: &str) -> Option<Tokens> {
    let find = |read: fn(&Value) -> Option<Tokens>| {
        values(answer).rev().find_map(|value| read(&value).or_else(|| read(&value["response"])))
    };
    find(usage).or_else(|| find(timings))
}

fn usage(value: &Value) -> Option<Tokens> {
    let usage = &value["usage"];
    let number = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64());
    let details = ["prompt_tokens_details", "input_tokens_details"];
    let cached = details.iter().find_map(|name| usage[*name]["cached_tokens"].as_u64());
    Some(Tokens {
        input: number(["prompt_tokens", "input_tokens"])?,
        cached: cached.unwrap_or(0),
        output: number(["completion_tokens", "output_tokens"])?,
        is_estimated: false,
    })
}

fn timings(value: &Value) -> Option<Tokens> {
    let timings = &value["timings"];
    let cached = timings["cache_n"].as_u64().unwrap_or(0);
    Some(Tokens {
        input: timings["prompt_n"].as_u64()? + cached,
        cached,
        output: timings["predicted_n"].as_u64()?,
        is_estimated: false,
    })
}

fn estimated(exchange: &Exchange) -> Tokens {
    let output = values(&exchange.answer).count() as u64;
    Tokens { input: exchange.request.len() as u64 / 4, cached: 0, output, is_estimated: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(path: &str, answer: &str) -> Option<(u64, u64, u64, bool)> {
        let exchange = Exchange {
            path: path.to_owned(),
            request: "x".repeat(40),
            answer: answer.to_owned(),
            status: "200".to_owned(),
        };
        Tokens::of(&exchange).map(|all| (all.input, all.cached, all.output, all.is_estimated))
    }

    #[test]
    fn reported_tokens_are_counted_in_every_form() {
        let chat = "/v1/chat/completions";
        let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":5}}"#;
        let stream = format!(
            "data: {{\"usage\":null}}\n\ndata: {{\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n"
        );
        assert_eq!(tokens(chat, &stream), Some((7, 5, 2, false)));
        assert_eq!(tokens(chat, &format!("{{\n{usage}\n}}")), Some((7, 5, 2, false)));
        let timings = r#"data: {"timings":{"prompt_n":3,"cache_n":4,"predicted_n":9}}"#;
        assert_eq!(tokens(chat, timings), Some((7, 4, 9, false)));
        let response = r#"data: {"response":{"usage":{"input_tokens":11,"output_tokens":1}}}"#;
        assert_eq!(tokens("/v1/responses?x=y", response), Some((11, 0, 1, false)));
    }

    #[test]
    fn answer_without_report_is_estimated_and_other_requests_are_not_counted() {
        let cut = "data: {\"choices\":[]}\n\ndata: {\"choices\":[]}\n\ndata: {\"cho";
        assert_eq!(tokens("/v1/chat/completions", cut), Some((10, 0, 2, true)));
        assert_eq!(tokens("/v1/models", "{}"), None);
    }
}
