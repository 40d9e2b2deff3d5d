//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;

use super::zap::TimeFormat;

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Text,
}

/// Log levels of dependencies. They log every refused call; relevant errors are logged by this crate.
const DEPENDENCY_LEVELS: &str =
    "tower_http=off,kube_client=warn,kube_runtime=warn,hyper=warn,h2=warn,rustls=warn";

/// How logs are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogSettings {
    /// Format of a line.
    pub(super) format: LogFormat,
    /// Level, or a list of levels by module.
    pub(super) level: String,
    /// Format of times.
    pub(super) time: TimeFormat,
}

pub(super) fn start(settings: &LogSettings) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(format!("{DEPENDENCY_LEVELS},{}", settings.level))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let lines = lines.with_timer(settings.time);
    let result = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
        LogFormat::Text => lines.with_ansi(false).try_init(),
    };
    result.map_err(|error| anyhow::anyhow!("logs: {error}"))
}
