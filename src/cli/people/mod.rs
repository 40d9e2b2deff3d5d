//! Verbs for users. They read and write with the user's own rights.
//!
//! Invariants: standard output holds data only, notes and errors go to standard error; lists are read page by page; every write
//! goes through `writing::Writer`.

mod activate;
mod args;
mod changing;
mod closed;
pub(crate) mod completion;
pub(crate) mod connection;
mod create;
mod delete;
pub(crate) mod discovery;
mod examples;
mod failure;
pub(crate) mod help;
mod history;
pub(crate) mod jobs;
pub(crate) mod kinds;
mod kubectl;
pub(crate) mod kueuectl;
mod manual;
mod move_workload;
mod offline;
pub(crate) mod pages;
mod preview;
#[cfg(test)]
mod questions;
mod reading;
mod reprioritize;
mod source;
pub(crate) mod suggestions;
mod targets;
mod verbs;
mod warnings;
mod what_if;
pub(crate) mod writing;

pub(crate) use verbs::{PeopleVerb, run};

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Returns a command with the flags for the cluster and the user.
pub(crate) fn connection_flags() -> clap::Command {
    <connection::ConnectionArgs as clap::Args>::augment_args(clap::Command::new(""))
}

/// Returns an error with its causes, each once.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    failure::chain(error)
}

/// Prints a note to standard error.
pub(crate) fn note(text: &str) {
    // If standard error is closed, the note is lost.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Most lines of a list before a confirmation.
const SHOWN: usize = 20;

/// Prints lines to standard error, indented; of many, the first `SHOWN` and the number of the others.
fn note_lines(lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    note_all_lines(lines.iter().take(SHOWN).cloned());
    if lines.len() > SHOWN {
        note(&format!("  ... {} more (--show-all)", lines.len() - SHOWN));
    }
}

/// Prints lines to standard error, indented.
fn note_all_lines(lines: impl Iterator<Item = String>) {
    lines.for_each(|line| note(&format!("  {line}")));
}

/// Returns a number with its noun.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Runs the command line of kueuectl, or prints candidates for it.
pub(crate) fn run_kueuectl(args: &[OsString]) -> ExitCode {
    if args.get(1).is_some_and(|verb| verb == completion::ASK) {
        return complete(kueuectl::command(), args.get(2..));
    }
    kueuectl::run(args)
}

/// Prints candidates for the last word.
pub(crate) fn complete(command: clap::Command, words: Option<&[OsString]>) -> ExitCode {
    let words: Vec<String> =
        words.unwrap_or_default().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match completion::run(command, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
