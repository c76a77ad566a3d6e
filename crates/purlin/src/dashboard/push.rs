//! Pushes spans and numbers to an OpenTelemetry collector, every few seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use observe::SpanRecord;
use observe::view::OtlpSpans;
use serde_json::Value;
use tokio::sync::mpsc;

use super::SharedBoard;
use super::collect::{lock, now};
use crate::trace_command::collector_url;

/// How often something is sent.
const PERIOD: Duration = Duration::from_secs(5);
/// How many spans may wait. When the channel is full, a span is dropped and counted.
const SPANS: usize = 10_000;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Takes spans that will be sent.
#[derive(Clone)]
pub(super) struct SpanSender {
    spans: mpsc::Sender<SpanRecord>,
    lost: Arc<AtomicU64>,
}

impl SpanSender {
    /// Takes a span, or drops and counts it.
    pub(super) fn send(&self, span: SpanRecord) {
        if self.spans.try_send(span).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The spans that were taken.
pub(super) struct SpanReceiver {
    spans: mpsc::Receiver<SpanRecord>,
    lost: Arc<AtomicU64>,
}

pub(super) fn channel() -> (SpanSender, SpanReceiver) {
    let (sender, spans) = mpsc::channel(SPANS);
    let lost = Arc::new(AtomicU64::new(0));
    (SpanSender { spans: sender, lost: Arc::clone(&lost) }, SpanReceiver { spans, lost })
}

/// Pushes until it is dropped. What a collector does not take is not sent again; the first failure is reported, and the end of
/// the trouble.
pub(super) async fn push(url: String, mut received: SpanReceiver, board: SharedBoard) {
    let started = now();
    let mut spans = OtlpSpans::default();
    let mut has_failed = false;
    loop {
        tokio::time::sleep(PERIOD).await;
        while let Ok(span) = received.spans.try_recv() {
            spans.take(span);
        }
        let lost = received.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!("{lost} spans were not pushed: there were too many at once");
        }
        let metrics = lock(&board).otlp_metrics(VERSION, started, now());
        let mut result = post(&collector_url(&url, "metrics"), &metrics).await;
        while let Some((request, _)) = spans.request(VERSION) {
            result = result.and(post(&collector_url(&url, "traces"), &request).await);
        }
        match &result {
            Err(why) if !has_failed => {
                tracing::warn!("the collector did not take everything: {why}")
            }
            Ok(()) if has_failed => tracing::warn!("the collector takes everything again"),
            _ => {}
        }
        has_failed = result.is_err();
    }
}

async fn post(url: &str, document: &Value) -> Result<(), String> {
    providers::post_json(url, document.to_string().into_bytes()).await
}
