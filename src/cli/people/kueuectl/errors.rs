//! Errors in the words of kueuectl.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::files;
use crate::cli::people::failure::{UNAUTHORIZED, chain, is_closed_pipe};
use crate::kube::client::CallError;

/// Prints the error of a command line, or the requested help.
pub(super) fn print(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let is_nested = args
        .iter()
        .skip(1)
        .filter_map(|arg| arg.to_str())
        .any(|word| super::command().get_subcommands().any(|verb| verb.get_name() == word));
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return help(&error.to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            return help_of(args);
        }
        // kueuectl prints help for an unknown kind.
        ErrorKind::InvalidSubcommand if is_nested => return help_of(args),
        _ => {}
    }
    let text = command_line_error(error, args);
    let usage = if error.kind() == ErrorKind::InvalidSubcommand {
        "Run 'kueuectl --help' for usage.\n".to_owned()
    } else {
        let rendered = innermost(args).render_usage().to_string();
        let line = rendered.lines().next().unwrap_or_default();
        format!("Usage:\n  {}\n", line.strip_prefix("Usage: ").unwrap_or(line))
    };
    let _ = write!(std::io::stderr(), "Error: {text}\n{usage}\n");
    ExitCode::FAILURE
}

fn help(text: &str) -> ExitCode {
    match files::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints the help of the innermost verb of a command line.
fn help_of(args: &[OsString]) -> ExitCode {
    help(&innermost(args).render_help().to_string())
}

/// Returns the innermost verb of a command line.
fn innermost(args: &[OsString]) -> clap::Command {
    let mut command = super::command();
    command.build();
    let mut innermost = command;
    for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if let Some(found) = innermost.find_subcommand(word).cloned() {
            innermost = found;
        }
    }
    innermost
}

fn command_line_error(error: &clap::Error, args: &[OsString]) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let argument = context(ContextKind::InvalidArg);
    let flag = argument.split([' ', '=']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue);
    let last = args.last().and_then(|arg| arg.to_str()).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            format!("unknown command {:?} for \"kueuectl\"", context(ContextKind::InvalidSubcommand))
        }
        ErrorKind::UnknownArgument if argument.starts_with("--") => format!("unknown flag: {flag}"),
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let letter = argument.chars().nth(1).unwrap_or('-');
            format!("unknown shorthand flag: '{letter}' in {argument}")
        }
        ErrorKind::UnknownArgument => {
            let verb = args
                .iter()
                .skip(1)
                .filter_map(|arg| arg.to_str())
                .find(|word| super::command().find_subcommand(word).is_some());
            format!("unknown command {argument:?} for \"kueuectl {}\"", verb.unwrap_or_default())
        }
        ErrorKind::InvalidValue if value.is_empty() => match last.strip_prefix('-') {
            Some(letter) if letter.chars().count() == 1 => {
                format!("flag needs an argument: '{letter}' in {last}")
            }
            _ => format!("flag needs an argument: {flag}"),
        },
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let cause =
                std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("invalid argument {value:?} for {flag:?} flag{cause}")
        }
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// Prints an error of a command whose line was valid.
pub(super) fn print_error(error: &anyhow::Error) {
    if is_closed_pipe(error) {
        return;
    }
    // The server's message includes code and reason.
    let text = match error.downcast_ref::<CallError>() {
        Some(CallError::Status { code: UNAUTHORIZED, .. }) => {
            "You must be logged in to the server (Unauthorized)".to_owned()
        }
        Some(CallError::Status { message, .. }) => message.clone(),
        Some(CallError::Transport(cause)) => format!("cannot reach the API server: {cause}"),
        _ => chain(error),
    };
    let _ = writeln!(std::io::stderr(), "Error: {text}");
}
