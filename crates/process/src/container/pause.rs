//! Pauses containers while another one starts, whatever becomes of us meanwhile.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::engine::Engine;
use super::first_line;
use crate::error::Error;
use crate::spawn::{Child, Spec, spawn};

/// Pauses, and resumes when its input ends: because we want it to, or because we ended or were killed. A container that stays paused
/// would never notice that we are gone.
const SCRIPT: &str = r#"engine=$0
"$engine" pause "$@" >/dev/null 2>&1 && echo paused || echo failed
read -r _
"$engine" unpause "$@" >/dev/null 2>&1
"#;
/// How long the engine may take.
const MOST: Duration = Duration::from_secs(60);

/// Paused containers. Dropping it resumes them.
pub(super) struct Paused(Child);

impl Paused {
    /// Pauses containers by their names. `None` if one of them cannot be paused: it has just ended, or the engine cannot do it, as
    /// without rights on systems with control groups of version 1.
    pub(super) async fn new(engine: &Engine, names: &[String]) -> Result<Option<Paused>, Error> {
        let mut spec = Spec::new("/bin/sh", "/").args(["-c", SCRIPT]);
        spec = spec.args([&engine.program]).args(names);
        spec.env = engine.environment.clone();
        spec.clear_env = true;
        let mut child = spawn(&spec)?.let_go();
        let line = first_line(&mut child, MOST).await;
        match line.as_deref() {
            Some("paused") => Ok(Some(Paused(child))),
            _ => Ok(None),
        }
    }

    /// Resumes them, and waits until that is done.
    pub(super) async fn end(mut self) {
        self.0.stdin = None;
        if let Some(mut output) = self.0.stdout.take() {
            let mut rest = Vec::new();
            timeout(MOST, output.read_to_end(&mut rest)).await.ok();
        }
    }
}
