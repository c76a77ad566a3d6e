//! .
use std::path::PathBuf;
/// .
pub struct RunOptions {
    pub prompt: String,
    pub agent: Vec<String>,
    pub cwd: PathBuf,
    pub json: bool,
    pub model: Option<String>,
    pub mode: Option<String>,
    pub allow: bool,
}
/// .
pub async fn run(_options: RunOptions) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("x")
}
