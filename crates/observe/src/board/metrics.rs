//! The numbers of the board: in Prometheus' text format, and for OpenTelemetry.

use std::fmt::Write;

use serde_json::{Value, json};

use super::histogram::{Histogram, LIMITS};
use super::{Board, FLOWS, LATENCIES};

/// Numbers with a common name.
struct Metric {
    name: &'static str,
    help: &'static str,
    points: Points,
}

/// The numbers, each with its labels.
enum Points {
    Gauge(Vec<(Labels, f64)>),
    Counter(Vec<(Labels, f64)>),
    Histogram(Vec<(Labels, Histogram)>),
}

type Labels = Vec<(&'static str, String)>;

fn all(board: &Board) -> Vec<Metric> {
    let running = board.running().len();
    let sessions: usize = board.processes.values().map(|one| one.sessions.states().count()).sum();
    let direction = |is_out: bool| ("direction", if is_out { "out" } else { "in" }.to_owned());
    let messages = board.methods.iter().map(|((is_out, method), count)| {
        (vec![direction(*is_out), ("method", method.clone())], *count as f64)
    });
    let flows = FLOWS.iter().zip(board.flows);
    let errors = flows.map(|(flow, count)| (vec![("flow", (*flow).to_owned())], count as f64));
    let times = LATENCIES.iter().zip(&board.latencies);
    let times = times.map(|(name, times)| (vec![("operation", (*name).to_owned())], times.clone()));
    let (tokens_in, tokens_out) = (board.tokens.0 as f64, board.tokens.1 as f64);
    let tokens = vec![(vec![direction(false)], tokens_in), (vec![direction(true)], tokens_out)];
    let of_processes = |value: fn(&super::Process) -> f64| {
        let alive = board.processes.iter().filter(|(_, one)| one.ended.is_none());
        alive.map(|(pid, one)| (vec![("pid", pid.to_string())], value(one))).collect()
    };
    let metric = |name, help, points| Metric { name, help, points };
    let one = |value: f64| vec![(Vec::new(), value)];
    use Points::{Counter, Gauge};
    vec![
        metric("purlin_processes", "Agents that run now.", Gauge(one(running as f64))),
        metric("purlin_sessions", "Sessions that are known.", Gauge(one(sessions as f64))),
        metric(
            "purlin_messages_total",
            "Messages, by direction and method.",
            Counter(messages.collect()),
        ),
        metric("purlin_errors_total", "Errors, by flow.", Counter(errors.collect())),
        metric(
            "purlin_duration_seconds",
            "How long things take.",
            Points::Histogram(times.collect()),
        ),
        metric("purlin_tokens_total", "Tokens, by direction.", Counter(tokens)),
        metric("purlin_cost_dollars_total", "What models cost.", Counter(one(board.cost))),
        metric(
            "purlin_process_memory_bytes",
            "Resident memory, by process.",
            Gauge(of_processes(|one| one.memory as f64)),
        ),
        metric(
            "purlin_process_cpu_seconds_total",
            "CPU time, by process.",
            Counter(of_processes(|one| one.cpu)),
        ),
    ]
}

/// Returns all numbers in Prometheus' text format.
pub(super) fn prometheus(board: &Board) -> String {
    let mut out = String::new();
    for Metric { name, help, points } in all(board) {
        let kind = match &points {
            Points::Gauge(_) => "gauge",
            Points::Counter(_) => "counter",
            Points::Histogram(_) => "histogram",
        };
        // Writing to a `String` cannot fail.
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
        match points {
            Points::Gauge(points) | Points::Counter(points) => {
                points.iter().for_each(|(labels, value)| line(&mut out, name, labels, *value));
            }
            Points::Histogram(points) => {
                points.iter().for_each(|(labels, times)| buckets(&mut out, name, labels, times));
            }
        }
    }
    out
}

fn buckets(out: &mut String, name: &str, labels: &Labels, times: &Histogram) {
    let with = |limit: String| labels.iter().cloned().chain([("le", limit)]).collect::<Labels>();
    let bucket = format!("{name}_bucket");
    let mut sum = 0;
    for (count, limit) in times.counts.iter().zip(LIMITS) {
        sum += count;
        line(out, &bucket, &with((limit / 1000.0).to_string()), sum as f64);
    }
    let all = times.count() as f64;
    line(out, &bucket, &with("+Inf".to_owned()), all);
    line(out, &format!("{name}_sum"), labels, times.sum / 1000.0);
    line(out, &format!("{name}_count"), labels, all);
}

fn line(out: &mut String, name: &str, labels: &Labels, value: f64) {
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    match labels.is_empty() {
        true => writeln!(out, "{name} {value}").ok(),
        false => writeln!(out, "{name}{{{}}} {value}", labels.join(",")).ok(),
    };
}

/// Returns the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns all numbers as OTLP, ready to be posted to a collector's `/v1/metrics`. Times are in milliseconds since 1970.
pub(super) fn otlp(board: &Board, version: &str, started: u64, now: u64) -> Value {
    // OTLP writes 64-bit integers as strings.
    let (started, now) = (format!("{started}000000"), format!("{now}000000"));
    let attributes = |labels: &Labels| -> Vec<Value> {
        let one = |(name, value): &(&str, String)| json!({ "key": name, "value": { "stringValue": value } });
        labels.iter().map(one).collect()
    };
    let numbers = |points: Vec<(Labels, f64)>| -> Vec<Value> {
        let point = |(labels, value): (Labels, f64)| json!({ "attributes": attributes(&labels), "startTimeUnixNano": started, "timeUnixNano": now, "asDouble": value });
        points.into_iter().map(point).collect()
    };
    let times = |(labels, times): (Labels, Histogram)| {
        let counts: Vec<String> = times.counts.iter().map(u64::to_string).collect();
        json!({
            "attributes": attributes(&labels), "startTimeUnixNano": started, "timeUnixNano": now,
            "count": times.count().to_string(), "sum": times.sum / 1000.0, "bucketCounts": counts,
            "explicitBounds": LIMITS.map(|limit| limit / 1000.0),
        })
    };
    // 2 is cumulative: since the start.
    let metrics: Vec<Value> = all(board)
        .into_iter()
        .map(|Metric { name, help, points }| {
            let (kind, data) = match points {
                Points::Gauge(points) => ("gauge", json!({ "dataPoints": numbers(points) })),
                Points::Counter(points) => {
                    ("sum", json!({ "dataPoints": numbers(points), "aggregationTemporality": 2, "isMonotonic": true }))
                }
                Points::Histogram(points) => {
                    let points: Vec<Value> = points.into_iter().map(times).collect();
                    ("histogram", json!({ "dataPoints": points, "aggregationTemporality": 2 }))
                }
            };
            json!({ "name": name, "description": help, kind: data })
        })
        .collect();
    let resource = crate::view::resource(version);
    let scope = json!({ "name": "purlin", "version": version });
    json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [{ "scope": scope, "metrics": metrics }] }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Direction;
    use crate::recorder::Recorder;

    fn board() -> Board {
        let mut board = Board::default();
        let line = br#"{"method":"a\"b\\c\nd","params":{}}"#;
        for record in Recorder::default().take(1000, Direction::In, line) {
            board.take(1, &record);
        }
        board
    }

    // R: O3
    #[test]
    fn metrics_are_valid_whatever_a_method_is_called() {
        let text = board().metrics();
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

    // R: O3
    #[test]
    fn opentelemetry_gets_the_same_numbers() {
        let request = board().otlp_metrics("1", 1000, 2000);
        let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let find = |name: &str| {
            metrics
                .as_array()
                .unwrap()
                .iter()
                .find(|metric| metric["name"] == name)
                .unwrap()
                .clone()
        };
        let messages = find("purlin_messages_total");
        let point = &messages["sum"]["dataPoints"][0];
        assert_eq!(point["asDouble"], 1.0);
        assert_eq!(point["timeUnixNano"], "2000000000");
        assert_eq!(point["attributes"][1]["value"]["stringValue"], "a\"b\\c\nd");
        let times = find("purlin_duration_seconds");
        let point = &times["histogram"]["dataPoints"][0];
        let (counts, bounds) = (&point["bucketCounts"], &point["explicitBounds"]);
        assert_eq!(counts.as_array().unwrap().len(), bounds.as_array().unwrap().len() + 1);
    }
}
