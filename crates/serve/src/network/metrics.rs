//! Counters in the text format of Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Server;

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) websockets: AtomicU64,
    pub(super) http_connections: AtomicU64,
    pub(super) open_websockets: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unauthorized: AtomicU64,
}

/// Prints all counters.
pub(super) fn print(server: &Server) -> String {
    let counts = server
        .all_tenants()
        .iter()
        .map(|tenant| tenant.counts())
        .fold([0; 3], |all: [usize; 3], one| std::array::from_fn(|index| all[index] + one[index]));
    let Metrics { websockets, http_connections, open_websockets, refused, unauthorized } =
        &server.metrics;
    let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let rows: [(&str, &str, &str, u64); 9] = [
        ("sessions_open", "gauge", "Sessions in memory", counts[0] as u64),
        ("turns_running", "gauge", "Turns that run", counts[1] as u64),
        (
            "clients_behind",
            "gauge",
            "Attached clients that read from the journal",
            counts[2] as u64,
        ),
        ("websockets_open", "gauge", "Open WebSockets", now(open_websockets)),
        (
            "http_connections_open",
            "gauge",
            "Open connections over HTTP",
            server.http().len() as u64,
        ),
        ("websockets_total", "counter", "WebSockets since the start", now(websockets)),
        (
            "http_connections_total",
            "counter",
            "Connections over HTTP since the start",
            now(http_connections),
        ),
        ("requests_refused_total", "counter", "Requests with an error status", now(refused)),
        (
            "requests_unauthorized_total",
            "counter",
            "Requests without a valid token",
            now(unauthorized),
        ),
    ];
    let row = |(name, kind, help, value)| {
        format!("# HELP purlin_{name} {help}\n# TYPE purlin_{name} {kind}\npurlin_{name} {value}\n")
    };
    rows.map(row).concat()
}
