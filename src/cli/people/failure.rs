//! Errors of verbs: what failed, on what, and what to do; and their exit status.

use std::io::Write;
use std::process::ExitCode;

use anyhow::anyhow;
use serde_json::Value;

use super::pages::{ListOptions, Pages, items};
use crate::api::similar;
use crate::kube::client::{CallError, Caller};
use crate::people::text_table::printable;
use crate::people::workload_object::text_at;

pub(crate) const UNAUTHORIZED: u16 = 401;
pub(crate) const FORBIDDEN: u16 = 403;
pub(crate) const NOT_FOUND: u16 = 404;
pub(crate) const CONFLICT: u16 = 409;
pub(crate) const GONE: u16 = 410;
pub(crate) const TOO_MANY: u16 = 429;
pub(crate) const UNAVAILABLE: u16 = 503;
/// Some objects were skipped, or a right was missing for a part.
pub(crate) const EXIT_PARTIAL: u8 = 3;
/// The command line is wrong: the same status as for errors of the parser.
const EXIT_WRONG_USE: u8 = 2;
/// Most names that are compared with one that was not found.
const COMPARED: i64 = 500;

/// Whether the reader of standard output has ended, such as `head`, which is no error to print.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// A contradiction between flags, or a value that the parser cannot check.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// Returns the error of a wrong command line.
pub(crate) fn wrong_use(text: impl Into<String>) -> anyhow::Error {
    WrongUse(text.into()).into()
}

/// Prints an error, and returns the exit status for it.
pub(crate) fn print_error(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::FAILURE;
    }
    let text = match error.downcast_ref::<CallError>() {
        Some(CallError::Status { code: UNAUTHORIZED, message, .. }) => format!(
            "the API server does not know the user ({UNAUTHORIZED}: {message}): log in again, or use another --token, --user or --context"
        ),
        Some(CallError::Status { message, .. }) => message.clone(),
        Some(CallError::Transport(cause)) => format!("cannot reach the API server: {}", plain_cause(cause)),
        Some(CallError::Timeout(time)) => {
            format!("the API server did not answer within {time:?}: use --request-timeout")
        }
        _ => chain(error),
    };
    let lines: Vec<String> = text.lines().map(printable).collect();
    let _ = writeln!(std::io::stderr(), "error: {}", lines.join("\n       "));
    if error.is::<WrongUse>() { ExitCode::from(EXIT_WRONG_USE) } else { ExitCode::FAILURE }
}

/// Returns a cause without the layers of the client that it went through.
pub(crate) fn plain_cause(cause: &str) -> String {
    const LAYERS: [&str; 4] =
        ["ServiceError: ", "client error (Connect): ", "tcp connect error: ", "HyperError: "];
    LAYERS.iter().fold(cause.to_owned(), |text, layer| text.replace(layer, ""))
}

/// Returns an error with its causes; a cause that is part of the text before it is not repeated.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = text + separator + &cause;
        }
    }
    text
}

/// Outcomes for several objects: each failure is printed, and the others continue.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    done: usize,
    failed: usize,
}

impl Outcomes {
    /// Counts an object, and prints why it failed.
    pub(crate) fn count(&mut self, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(error) => {
                self.failed += 1;
                print_error(&error);
            }
        }
    }

    /// Returns the exit status: 1 if all failed, 3 if some did.
    pub(crate) fn status(&self) -> ExitCode {
        match (self.done, self.failed) {
            (_, 0) => ExitCode::SUCCESS,
            (0, _) => ExitCode::FAILURE,
            _ => ExitCode::from(EXIT_PARTIAL),
        }
    }
}

/// Returns the error for a name that was not found, with similar names.
pub(crate) async fn not_found(
    caller: &Caller,
    kind: &str,
    name: &str,
    collection: &str,
    namespace: Option<&str>,
) -> anyhow::Error {
    let options = ListOptions { page: COMPARED, ..ListOptions::default() };
    let page = Pages::new(caller, collection, &options).next().await;
    let known: Vec<Value> = page.ok().flatten().map(|mut page| items(&mut page)).unwrap_or_default();
    let names = known.iter().filter_map(|object| text_at(object, "/metadata/name"));
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    anyhow!("{kind} {name:?} not found{place}{}", similar::hint(name, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn each_cause_is_shown_once() {
        let cause = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let repeats = Err::<(), _>(cause()).with_context(|| format!("read /x: {}", cause())).unwrap_err();
        assert_eq!(chain(&repeats), "read /x: no such file");
        let adds = Err::<(), _>(cause()).context("read /x").unwrap_err();
        assert_eq!(chain(&adds), "read /x: no such file");
    }

    #[test]
    fn layers_of_the_client_are_no_cause() {
        let cause = "https://h:1 (context c): ServiceError: client error (Connect): tcp connect error: Connection refused (os error 111)";
        assert_eq!(plain_cause(cause), "https://h:1 (context c): Connection refused (os error 111)");
    }
}
