//! The numbers of the board in Prometheus' text format.

use std::fmt::Write;

use super::histogram::LIMITS;
use super::{Board, FLOWS, LATENCIES};

/// Returns all numbers.
pub(super) fn metrics(board: &Board) -> String {
    let mut out = String::new();
    let running = board.running().len();
    let sessions: usize = board.processes.values().map(|one| one.sessions.states().count()).sum();
    head(&mut out, "purlin_processes", "gauge", "Agents that run now.");
    line(&mut out, "purlin_processes", "", running as f64);
    head(&mut out, "purlin_sessions", "gauge", "Sessions that are known.");
    line(&mut out, "purlin_sessions", "", sessions as f64);
    head(&mut out, "purlin_messages_total", "counter", "Messages, by direction and method.");
    for ((is_out, method), count) in &board.methods {
        let direction = if *is_out { "out" } else { "in" };
        let labels = format!("direction=\"{direction}\",method=\"{}\"", escaped(method));
        line(&mut out, "purlin_messages_total", &labels, *count as f64);
    }
    head(&mut out, "purlin_errors_total", "counter", "Errors, by flow.");
    for (flow, count) in FLOWS.iter().zip(board.flows) {
        line(&mut out, "purlin_errors_total", &format!("flow=\"{flow}\""), count as f64);
    }
    head(&mut out, "purlin_duration_seconds", "histogram", "How long things take.");
    for (name, histogram) in LATENCIES.iter().zip(&board.latencies) {
        let mut sum = 0;
        for (count, limit) in histogram.counts.iter().zip(LIMITS) {
            sum += count;
            let labels = format!("operation=\"{name}\",le=\"{}\"", limit / 1000.0);
            line(&mut out, "purlin_duration_seconds_bucket", &labels, sum as f64);
        }
        let all = histogram.count() as f64;
        let labels = format!("operation=\"{name}\",le=\"+Inf\"");
        line(&mut out, "purlin_duration_seconds_bucket", &labels, all);
        let labels = format!("operation=\"{name}\"");
        line(&mut out, "purlin_duration_seconds_sum", &labels, histogram.sum / 1000.0);
        line(&mut out, "purlin_duration_seconds_count", &labels, all);
    }
    head(&mut out, "purlin_tokens_total", "counter", "Tokens, by direction.");
    line(&mut out, "purlin_tokens_total", "direction=\"in\"", board.tokens.0 as f64);
    line(&mut out, "purlin_tokens_total", "direction=\"out\"", board.tokens.1 as f64);
    head(&mut out, "purlin_cost_dollars_total", "counter", "What models cost.");
    line(&mut out, "purlin_cost_dollars_total", "", board.cost);
    head(&mut out, "purlin_process_memory_bytes", "gauge", "Resident memory, by process.");
    let alive = || board.processes.iter().filter(|(_, one)| one.ended.is_none());
    for (pid, one) in alive() {
        line(&mut out, "purlin_process_memory_bytes", &format!("pid=\"{pid}\""), one.memory as f64);
    }
    head(&mut out, "purlin_process_cpu_seconds_total", "counter", "CPU time, by process.");
    for (pid, one) in alive() {
        line(&mut out, "purlin_process_cpu_seconds_total", &format!("pid=\"{pid}\""), one.cpu);
    }
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a `String` cannot fail.
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    match labels.is_empty() {
        true => writeln!(out, "{name} {value}").ok(),
        false => writeln!(out, "{name}{{{labels}}} {value}").ok(),
    };
}

/// Returns the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Direction;
    use crate::recorder::Recorder;

    // R: O3
    #[test]
    fn metrics_are_valid_whatever_a_method_is_called() {
        let mut board = Board::default();
        let line = br#"{"method":"a\"b\\c\nd","params":{}}"#;
        for record in Recorder::default().take(1000, Direction::In, line) {
            board.take(1, &record);
        }
        let text = board.metrics();
        assert!(
            text.contains("purlin_messages_total{direction=\"in\",method=\"a\\\"b\\\\c\\nd\"} 1\n"),
            "{text}"
        );
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("purlin_") && value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(text.contains("purlin_duration_seconds_bucket{operation=\"tool\",le=\"+Inf\"} 0"));
    }
}
