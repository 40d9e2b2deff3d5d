//! Suggestions added to clap's errors about a wrong command line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds to the error about an object name after `list`, which takes none, the command that shows that object. `list` is the verb,
/// `line` the command line. Returns other errors unchanged.
pub(crate) fn with_suggestion(
    mut error: clap::Error,
    list: Option<&clap::Command>,
    line: &[OsString],
) -> clap::Error {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) if error.kind() == ErrorKind::UnknownArgument => text.clone(),
        _ => return error,
    };
    let Some(list) = list.filter(|_| !argument.starts_with('-')) else { return error };
    let mut words = line.iter().filter_map(|word| word.to_str()).skip_while(|word| *word != list.get_name());
    let Some(kind) = words.find_map(|word| list.find_subcommand(word)) else { return error };
    let suggestion = match kind.get_name() {
        "preemption" => format!("name it by a flag: list preemption --victim {argument}"),
        "finding" => {
            "a list takes no name: audit --check CODE prints findings of one check in full".to_owned()
        }
        "pods" => "name the job by a flag: list pods --for TYPE/NAME".to_owned(),
        "workload" => format!(
            "a list takes no name: describe workload {argument} and why {argument} show one, --for TYPE/NAME lists the ones of a job"
        ),
        kind => format!("a list takes no name: describe {kind} {argument} shows one"),
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![suggestion.into()]));
    error
}
