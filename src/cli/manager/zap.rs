//! The log flags of Kueue's manager (`--zap-*`), converted to the settings of this program's logs.
//!
//! Invariant: every value that Kueue accepts is accepted, and any other is refused by the name of the flag.

use clap::{ArgAction, ValueEnum};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::logs::{LogFormat, LogSettings};

/// Highest verbosity that is logged at the level info; Kueue's manifests set 2.
const MAX_INFO_VERBOSITY: u8 = 3;
/// Highest verbosity that is logged at the level debug.
const MAX_DEBUG_VERBOSITY: u8 = 5;

/// Log flags of Kueue's manager.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Log flags of Kueue")]
pub(super) struct ZapArgs {
    /// Text instead of JSON, and level debug, unless other flags say otherwise.
    #[arg(long = "zap-devel", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = go_bool)]
    devel: Option<bool>,
    /// Log format: json or console.
    #[arg(long = "zap-encoder", value_name = "NAME", ignore_case = true, conflicts_with = "log_format")]
    encoder: Option<Encoder>,
    /// Log level: debug, info, error, panic, or a verbosity: 1 to 3 is info, 4 and 5 debug, more is trace.
    #[arg(long = "zap-log-level", value_name = "LEVEL", conflicts_with = "log_level", value_parser = level)]
    level: Option<&'static str>,
    /// Accepted with a warning: log lines have no stack traces.
    #[arg(long = "zap-stacktrace-level", value_name = "LEVEL", ignore_case = true)]
    stacktrace_level: Option<StackTraceLevel>,
    /// Format of times.
    #[arg(long = "zap-time-encoding", value_name = "NAME", ignore_case = true)]
    time_encoding: Option<TimeFormat>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encoder {
    Json,
    Console,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StackTraceLevel {
    Info,
    Error,
    Panic,
}

/// Format of the time of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TimeFormat {
    /// Seconds since 1970, with a fraction.
    Epoch,
    /// Milliseconds since 1970, with a fraction.
    Millis,
    /// Nanoseconds since 1970.
    Nano,
    /// 2006-01-02T15:04:05.000Z
    Iso8601,
    /// 2006-01-02T15:04:05Z
    Rfc3339,
    /// 2006-01-02T15:04:05.999999999Z
    #[default]
    Rfc3339nano,
}

impl ZapArgs {
    /// Returns the flags that have no effect.
    pub(super) fn without_effect(&self) -> Option<&'static str> {
        self.stacktrace_level.map(|_| "--zap-stacktrace-level has no effect: log lines have no stack traces")
    }

    /// Applies the flags to the settings from the other flags.
    pub(super) fn apply(&self, settings: LogSettings) -> LogSettings {
        let devel = self.devel.unwrap_or_default();
        let format = match self.encoder {
            Some(Encoder::Json) => Some(LogFormat::Json),
            Some(Encoder::Console) => Some(LogFormat::Text),
            None => devel.then_some(LogFormat::Text),
        };
        let level = self.level.or_else(|| devel.then_some("debug"));
        LogSettings {
            format: format.unwrap_or(settings.format),
            level: level.map_or(settings.level, str::to_owned),
            time: self.time_encoding.unwrap_or(settings.time),
        }
    }
}

/// Parses a truth value as Go's flags do.
pub(super) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Parses a level of Kueue's manager.
pub(super) fn level(text: &str) -> Result<&'static str, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "debug" => "debug",
        "info" => "info",
        // Kueue logs nothing at the level panic that this program would log: it ends instead.
        "error" | "panic" => "error",
        other => match other.parse::<u8>() {
            Ok(1..=MAX_INFO_VERBOSITY) => "info",
            Ok(verbosity) if verbosity > 0 && verbosity <= MAX_DEBUG_VERBOSITY => "debug",
            Ok(verbosity) if verbosity > 0 => "trace",
            _ => return Err("must be debug, info, error, panic or an integer from 1 to 255".to_owned()),
        },
    })
}

impl FormatTime for TimeFormat {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        out.write_str(&self.render(jiff::Timestamp::now()))
    }
}

impl TimeFormat {
    fn render(self, now: jiff::Timestamp) -> String {
        let micros = now.as_microsecond();
        match self {
            Self::Epoch => format!("{}.{:06}", micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000)),
            Self::Millis => format!("{}.{:03}", micros.div_euclid(1_000), micros.rem_euclid(1_000)),
            Self::Nano => now.as_nanosecond().to_string(),
            Self::Iso8601 => format!("{now:.3}"),
            Self::Rfc3339 => format!("{now:.0}"),
            Self::Rfc3339nano => now.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long, value_enum, default_value = "json")]
        log_format: LogFormat,
        #[arg(long, default_value = "info")]
        log_level: String,
        #[command(flatten)]
        zap: ZapArgs,
    }

    fn read(line: &str) -> Result<LogSettings, String> {
        let line = Line::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let settings =
            LogSettings { format: line.log_format, level: line.log_level, time: TimeFormat::default() };
        Ok(line.zap.apply(settings))
    }

    #[test]
    fn flags_of_kueue_are_honoured() {
        use LogFormat::{Json, Text};
        use TimeFormat::{Epoch, Rfc3339nano};
        for (line, format, level, time) in [
            ("x", Json, "info", Rfc3339nano),
            ("x --zap-log-level=2", Json, "info", Rfc3339nano),
            ("x --zap-log-level 3", Json, "info", Rfc3339nano),
            ("x --zap-log-level=4", Json, "debug", Rfc3339nano),
            ("x --zap-log-level=10", Json, "trace", Rfc3339nano),
            ("x --zap-log-level=error", Json, "error", Rfc3339nano),
            ("x --zap-devel", Text, "debug", Rfc3339nano),
            ("x --zap-devel=false", Json, "info", Rfc3339nano),
            ("x --zap-devel=1", Text, "debug", Rfc3339nano),
            ("x --zap-encoder=JSON --zap-time-encoding=EPOCH --zap-log-level=INFO", Json, "info", Epoch),
            ("x --zap-devel=true --zap-encoder=json --zap-log-level=info", Json, "info", Rfc3339nano),
            ("x --zap-encoder=console --zap-time-encoding=epoch", Text, "info", Epoch),
            ("x --log-format text --zap-log-level=debug", Text, "debug", Rfc3339nano),
            ("x --zap-stacktrace-level=panic", Json, "info", Rfc3339nano),
        ] {
            let expected = LogSettings { format, level: level.to_owned(), time };
            assert_eq!(read(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn other_values_are_refused_by_flag() {
        for (line, flag) in [
            ("x --zap-log-level=0", "--zap-log-level"),
            ("x --zap-log-level=-1", "--zap-log-level"),
            ("x --zap-log-level=loud", "--zap-log-level"),
            ("x --zap-encoder=xml", "--zap-encoder"),
            ("x --zap-time-encoding=never", "--zap-time-encoding"),
            ("x --zap-devel=perhaps", "--zap-devel"),
            ("x --zap-stacktrace-level=debug", "--zap-stacktrace-level"),
            ("x --log-level=info --zap-log-level=2", "--zap-log-level"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(flag), "{line}: {error}");
        }
    }

    #[test]
    fn times_are_written_as_asked() {
        let time: jiff::Timestamp = "2026-11-25T13:14:15.123456Z".parse().unwrap();
        for (format, expected) in [
            (TimeFormat::Epoch, "1795612455.123456"),
            (TimeFormat::Millis, "1795612455123.456"),
            (TimeFormat::Nano, "1795612455123456000"),
            (TimeFormat::Iso8601, "2026-11-25T13:14:15.123Z"),
            (TimeFormat::Rfc3339, "2026-11-25T13:14:15Z"),
            (TimeFormat::Rfc3339nano, "2026-11-25T13:14:15.123456Z"),
        ] {
            assert_eq!(format.render(time), expected);
        }
    }
}
