//! Structured logs on standard error, with a level that can change at run time.

use std::sync::{Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::zap::{self, TimeFormat};
use crate::server::debug;

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Text,
}

/// Target of the log lines that SIGUSR2 requests.
pub(super) const DUMP_TARGET: &str = "sluice::dump";
/// Log levels of dependencies, which log every refused call; relevant errors are logged by this crate. Lines of SIGUSR2 are
/// logged at every level, as Kueue does.
const FIXED_LEVELS: &str = "tower_http=off,kube_client=warn,kube_runtime=warn,hyper=warn,h2=warn,rustls=warn,\
sluice::dump=info";

/// Settings of logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogSettings {
    /// Format of a line.
    pub(super) format: LogFormat,
    /// Level, or a list of levels by module.
    pub(super) level: String,
    /// Format of times.
    pub(super) time: TimeFormat,
}

type ReplaceFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The level of the logs of this process.
pub(super) struct LogLevel {
    current: Mutex<String>,
    replace: ReplaceFilter,
}

/// Starts the logs of this process.
pub(super) fn start(settings: &LogSettings) -> anyhow::Result<LogLevel> {
    let level = parse_list(&settings.level).map_err(|error| anyhow::anyhow!("--log-level: {error}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr);
    let lines = lines.with_timer(settings.time);
    let (result, replace): (_, ReplaceFilter) = match settings.format {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_filter_reloading();
            let filter = lines.reload_handle();
            (lines.try_init(), Box::new(move |new| filter.reload(new).map_err(|error| error.to_string())))
        }
        LogFormat::Text => {
            let lines = lines.with_ansi(false).with_filter_reloading();
            let filter = lines.reload_handle();
            (lines.try_init(), Box::new(move |new| filter.reload(new).map_err(|error| error.to_string())))
        }
    };
    result.map_err(|error| anyhow::anyhow!("logs: {error}"))?;
    Ok(LogLevel { current: Mutex::new(settings.level.clone()), replace })
}

impl debug::LogLevel for LogLevel {
    fn get(&self) -> String {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, text: &str) -> Result<(), String> {
        let level = zap::level(text).unwrap_or(text);
        let filter = parse_list(level)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        (self.replace)(filter)?;
        let before = std::mem::replace(&mut *current, level.to_owned());
        drop(current);
        tracing::info!(before, now = level, "log level changed");
        Ok(())
    }
}

/// Parses a level, or a list of levels by module, over the fixed ones.
fn parse_list(list: &str) -> Result<EnvFilter, String> {
    // A word alone would be taken for a module, and a misspelled level would silence everything else.
    let parts: Vec<&str> = list.split(',').map(str::trim).collect();
    for part in &parts {
        let is_module = part.contains(['=', '[']) || part.contains("::") || *part == env!("CARGO_PKG_NAME");
        if part.is_empty() || !is_module && part.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{part:?} is no level: must be off, error, warn, info, debug or trace, or a list such as \
info,sluice::kube=debug"
            ));
        }
    }
    EnvFilter::try_new(format!("{FIXED_LEVELS},{}", parts.join(",")))
        .map_err(|error| format!("{list:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::debug::LogLevel as _;
    use std::sync::Arc;

    /// A log level that keeps the filter that was set last as text.
    fn level(applied: &Arc<Mutex<String>>) -> LogLevel {
        let applied = Arc::clone(applied);
        let replace = move |filter: EnvFilter| {
            *applied.lock().unwrap() = filter.to_string();
            Ok(())
        };
        LogLevel { current: Mutex::new("info".to_owned()), replace: Box::new(replace) }
    }

    #[test]
    fn notations_of_command_line_are_accepted() {
        let applied = Arc::default();
        let level = level(&applied);
        for (text, shown, directive) in [
            ("debug", "debug", "debug"),
            ("warn", "warn", "warn"),
            ("off", "off", "off"),
            // Kueue's verbosities.
            ("2", "info", "info"),
            ("4", "debug", "debug"),
            ("9", "trace", "trace"),
            ("info,sluice::kube=debug", "info,sluice::kube=debug", "sluice::kube=debug"),
            ("warn, sluice::server", "warn, sluice::server", "sluice::server=trace"),
        ] {
            level.set(text).unwrap();
            assert_eq!(level.get(), shown);
            let applied = applied.lock().unwrap();
            assert!(applied.split(',').any(|part| part == directive), "{text} is applied as {applied}");
            assert!(applied.contains("sluice::dump=info") && applied.contains("tower_http=off"), "{applied}");
        }
    }

    #[test]
    fn bad_levels_change_nothing() {
        let applied = Arc::default();
        let level = level(&applied);
        for (text, named) in [
            ("loud", "\"loud\""),
            ("", "\"\""),
            ("-1", "\"-1\""),
            ("info,inof", "\"inof\""),
            ("info,", "\"\""),
            ("sluice=loud", "sluice=loud"),
            ("sluice[{=debug", "sluice[{=debug"),
        ] {
            let error = level.set(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
            assert_eq!(level.get(), "info");
            assert_eq!(*applied.lock().unwrap(), "", "{text}");
        }
    }
}
