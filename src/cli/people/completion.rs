//! Completion: candidates for the word at the cursor, from the command line's own definition and from the cluster.
//!
//! Invariants: at most `LIMIT` names and `PATIENCE` long; an error prints no candidates, and nothing else. The last line is cobra's
//! directive `:4`, no file names, which kubectl and the shells' scripts read.

use std::time::Duration;

use ::kube::config::Kubeconfig;
use clap::{Arg, Command, Parser};
use serde_json::Value;

use super::connection::{ConnectionArgs, Session};
use super::kinds::PeopleKind;
use crate::cli::cluster_objects::block_on;
use crate::cli::files;
use crate::people::workload_object::text_at;

/// Most names from the cluster.
const LIMIT: usize = 100;
/// How long a user waits for names.
const PATIENCE: Duration = Duration::from_secs(2);
/// Cobra's directive: candidates are no file names.
const NO_FILES: &str = ":4";
/// The hidden verb by which scripts ask for candidates.
pub(crate) const ASK: &str = "__complete";

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    #[command(subcommand)]
    shell: Shell,
    /// Accepted as of kueuectl: candidates have no descriptions.
    #[arg(long, hide = true, global = true)]
    no_descriptions: bool,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum Shell {
    /// Script for bash
    Bash,
    /// Script for zsh
    Zsh,
    /// Script for fish
    Fish,
    /// Script for PowerShell
    Powershell,
}

impl CompletionArgs {
    /// Prints the script of the shell, which asks the program for candidates.
    pub(crate) fn print(&self, program: &str) -> anyhow::Result<()> {
        let script = match self.shell {
            Shell::Bash => BASH,
            Shell::Zsh => ZSH,
            Shell::Fish => FISH,
            Shell::Powershell => POWERSHELL,
        };
        files::print(&script.replace("NAME", &program.replace('-', "_")).replace("PROGRAM", program))
    }
}

const BASH: &str = r#"# bash completion for PROGRAM
_complete_NAME() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | sed '$d'))
}
complete -F _complete_NAME PROGRAM
"#;
const ZSH: &str = r#"#compdef PROGRAM
_complete_NAME() {
    local -a candidates
    candidates=("${(@f)$("${words[1]}" __complete "${(@)words[2,$CURRENT]}" 2>/dev/null | sed '$d')}")
    candidates=(${candidates:#})
    (( $#candidates )) && compadd -- $candidates
}
compdef _complete_NAME PROGRAM
"#;
const FISH: &str = r"# fish completion for PROGRAM
function __complete_NAME
    set -l words (commandline -opc) (commandline -ct)
    PROGRAM __complete $words[2..-1] 2>/dev/null | sed '$d'
end
complete -c PROGRAM -f -a '(__complete_NAME)'
";
const POWERSHELL: &str = r#"# PowerShell completion for PROGRAM
Register-ArgumentCompleter -Native -CommandName PROGRAM -ScriptBlock {
    param($word, $line, $cursor)
    $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ($word -eq '') { $words += '' }
    PROGRAM __complete @words 2>$null | Select-Object -SkipLast 1
}
"#;

/// Prints the candidates for the last of the words, which follow the program's name.
pub(crate) fn run(command: Command, words: &[String]) -> anyhow::Result<()> {
    let mut lines = candidates(command, words);
    lines.push(NO_FILES.to_owned());
    files::print(&(lines.join("\n") + "\n"))
}

fn candidates(mut command: Command, words: &[String]) -> Vec<String> {
    command.build();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", before_none()),
    };
    let place = Place::of(&command, before);
    let (prefix, mut found) = match (last.split_once('='), place.awaited) {
        (Some((flag, value)), None) if flag.starts_with("--") => {
            let found = long_flag(place.command, flag).map(|arg| values(arg, before)).unwrap_or_default();
            let found = found.into_iter().filter(|name| name.starts_with(value));
            return found.map(|name| format!("{flag}={name}")).collect();
        }
        (_, Some(arg)) => (last, values(arg, before)),
        (_, None) if last.starts_with('-') => (last, flags(place.command)),
        (_, None) => {
            let mut found: Vec<String> = place
                .command
                .get_subcommands()
                .filter(|verb| !verb.is_hide_set())
                .map(|verb| verb.get_name().to_owned())
                .collect();
            if found.is_empty() {
                found = names_of_kind(&place, before);
            }
            (last, found)
        }
    };
    found.retain(|word| word.starts_with(prefix));
    found
}

const fn before_none() -> &'static [String] {
    &[]
}

/// Where the cursor is.
struct Place<'a> {
    command: &'a Command,
    /// Verb and kind.
    path: Vec<&'a str>,
    /// Names that are given already.
    names: Vec<&'a str>,
    /// The flag whose value is next.
    awaited: Option<&'a Arg>,
}

impl<'a> Place<'a> {
    fn of(command: &'a Command, words: &'a [String]) -> Self {
        let mut place = Self { command, path: Vec::new(), names: Vec::new(), awaited: None };
        for word in words {
            if place.awaited.take().is_some() {
                continue;
            }
            if word.starts_with('-') {
                let arg = if word.starts_with("--") {
                    long_flag(place.command, word)
                } else {
                    short_flag(place.command, word)
                };
                place.awaited = arg.filter(|arg| !word.contains('=') && takes_value(arg));
            } else if let Some(found) = place.command.find_subcommand(word) {
                place.command = found;
                place.path.push(found.get_name());
            } else {
                place.names.push(word);
            }
        }
        place
    }
}

fn long_flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.trim_start_matches('-').split('=').next();
    command.get_arguments().find(|arg| arg.get_long() == name)
}

fn short_flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let letters = word.strip_prefix('-')?;
    command.get_arguments().find(|arg| arg.get_short().is_some_and(|letter| letters == letter.to_string()))
}

/// Returns whether the next word is the value of a flag.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn flags(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(Arg::get_long).map(|name| format!("--{name}")).collect()
}

/// Returns the values of a flag.
fn values(arg: &Arg, words: &[String]) -> Vec<String> {
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !possible.is_empty() {
        return possible;
    }
    let texts = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let from_file = |names: fn(Kubeconfig) -> Vec<String>| {
        let line = connection(words);
        let file = line.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        file.map(names).unwrap_or_default()
    };
    match arg.get_id().as_str() {
        "namespace" => names(words, |_| "/api/v1/namespaces".to_owned(), |_| true),
        "clusterqueue" | "cluster_queue" => {
            names(words, |_| PeopleKind::ClusterQueue.collection(None), |_| true)
        }
        "localqueue" | "local_queue" | "to" => {
            names(words, |session| PeopleKind::LocalQueue.collection(Some(&session.namespace)), |_| true)
        }
        "context" => from_file(|file| file.contexts.into_iter().map(|context| context.name).collect()),
        "cluster" => from_file(|file| file.clusters.into_iter().map(|cluster| cluster.name).collect()),
        "user" => from_file(|file| file.auth_infos.into_iter().map(|user| user.name).collect()),
        "output" => texts(&["json", "yaml", "name", "jsonpath="]),
        "dry_run" => texts(&["none", "client", "server"]),
        "status" => texts(&["all", "pending", "quotareserved", "admitted", "finished"]),
        _ => Vec::new(),
    }
}

/// Returns the names of the objects that the verb can act on.
fn names_of_kind(place: &Place<'_>, words: &[String]) -> Vec<String> {
    let (verb, kind) = match place.path[..] {
        [verb, kind] => (verb, kind),
        [verb] => (verb, "workload"),
        _ => return Vec::new(),
    };
    let kind = match kind {
        "workload" => PeopleKind::Workload,
        "clusterqueue" => PeopleKind::ClusterQueue,
        "localqueue" => PeopleKind::LocalQueue,
        "resourceflavor" => PeopleKind::ResourceFlavor,
        _ => return Vec::new(),
    };
    if ["list", "create", "version", "completion"].contains(&verb)
        || (kind != PeopleKind::Workload && !place.names.is_empty())
    {
        return Vec::new();
    }
    let is_running = |object: &Value| match kind {
        PeopleKind::Workload => object.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true),
        _ => matches!(text_at(object, "/spec/stopPolicy"), None | Some("None" | "")),
    };
    let mut found = names(
        words,
        |session| kind.collection(Some(&session.namespace)),
        |object| match verb {
            "stop" => is_running(object),
            "resume" => !is_running(object),
            _ => true,
        },
    );
    found.retain(|name| !place.names.contains(&name.as_str()));
    found
}

#[derive(Parser)]
#[command(ignore_errors = true, disable_help_flag = true)]
struct ConnectionLine {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[arg(hide = true)]
    _rest: Vec<String>,
}

fn connection(words: &[String]) -> ConnectionArgs {
    let line = ConnectionLine::try_parse_from(std::iter::once("p".to_owned()).chain(words.iter().cloned()));
    line.map(|line| line.connection).unwrap_or_default()
}

/// Reads names from the cluster; none if that fails or takes long.
fn names(
    words: &[String],
    path: impl FnOnce(&Session) -> String,
    keep: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let connection = connection(words);
    let read = async {
        let session = connection.connect().await?;
        let list = session.caller.get(&format!("{}?limit={LIMIT}", path(&session))).await?;
        let items =
            list.get("items").and_then(Value::as_array).into_iter().flatten().filter(|object| keep(object));
        Ok(items.filter_map(|object| text_at(object, "/metadata/name")).map(str::to_owned).collect())
    };
    block_on(async { tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Ok(Vec::new())) })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(super::super::kueuectl::command(), &words)
    }

    #[test]
    fn verbs_kinds_flags_and_values_complete() {
        assert_eq!(complete("st"), ["stop"]);
        assert_eq!(complete("stop "), ["workload", "localqueue", "clusterqueue"]);
        assert_eq!(complete("--kubeconfig /x list cl"), ["clusterqueue"]);
        assert_eq!(complete("list workload --status q"), ["quotareserved"]);
        assert_eq!(complete("list cq -o y"), ["yaml"]);
        assert_eq!(complete("list cq --output=n"), ["--output=name"]);
        assert_eq!(complete("list lq --cluster"), ["--clusterqueue", "--cluster"]);
        assert_eq!(complete("completion b"), ["bash"]);
    }

    #[test]
    fn errors_print_no_candidates() {
        for line in [
            "--kubeconfig /nonexistent stop workload ",
            "--kubeconfig=/nonexistent list lq -c ",
            "--kubeconfig /nonexistent list lq --context ",
        ] {
            assert_eq!(complete(line), [""; 0], "{line}");
        }
    }
}
