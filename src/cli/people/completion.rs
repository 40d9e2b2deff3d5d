//! Completion: candidates for the word at the cursor, from the command line's own definition and from the cluster.
//!
//! Invariants: at most `LIMIT` names are printed, after at most `TIMEOUT`; after an error there are no candidates, and no
//! message. The last line is one of cobra's directives, which kubectl and the shells' scripts read.

mod named;

use std::time::Duration;

use clap::{Arg, ArgAction, Command, Parser};

use self::named::{Asked, Named};
use super::connection::ConnectionArgs;
use crate::cli::files;

/// Most names from the cluster.
const LIMIT: usize = 100;
/// Longest wait for names from the cluster.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Cobra's directive: candidates are no file names.
const NO_FILES: &str = ":4";
/// Cobra's directive: the same, and no space is added after a candidate.
const NO_FILES_NO_SPACE: &str = ":6";
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
    [[ "${COMPREPLY[0]}" == *[/=] ]] && compopt -o nospace
}
complete -F _complete_NAME PROGRAM
"#;
const ZSH: &str = r#"#compdef PROGRAM
_complete_NAME() {
    local -a candidates open
    candidates=("${(@f)$("${words[1]}" __complete "${(@)words[2,$CURRENT]}" 2>/dev/null | sed '$d')}")
    candidates=(${candidates:#})
    open=(${(M)candidates:#*[/=]})
    candidates=(${candidates:#*[/=]})
    (( $#open )) && compadd -S '' -- $open
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
    let continues = lines.iter().any(|word| word.ends_with(['/', '=']));
    lines.push(if continues { NO_FILES_NO_SPACE } else { NO_FILES }.to_owned());
    files::print(&(lines.join("\n") + "\n"))
}

fn candidates(mut command: Command, words: &[String]) -> Vec<String> {
    command.build();
    let (words, kept) = joined(words);
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", before_none()),
    };
    let connection_flags = super::connection_flags();
    let place = Cursor::of(&command, &connection_flags, before);
    let values = |arg: &Arg, prefix: &str| {
        let mut found = place.values(&command, arg, before, prefix);
        found.retain(|word| word.starts_with(prefix));
        found
    };
    let found: Vec<String> = match (last.split_once('='), place.awaited) {
        (Some((flag, value)), None) if flag.starts_with("--") => {
            let found = place.flag(flag).map(|arg| values(arg, value)).unwrap_or_default();
            found.into_iter().map(|name| format!("{flag}={name}")).collect()
        }
        (_, Some(arg)) => values(arg, last),
        (_, None) if last.starts_with('-') => {
            let mut found = flags(place.command);
            if place.path.is_empty() {
                found.extend(flags(&connection_flags));
            }
            found.retain(|word| word.starts_with(last));
            found
        }
        (_, None) => {
            let verbs = place.command.get_subcommands().filter(|verb| !verb.is_hide_set());
            let mut found: Vec<String> = verbs.map(|verb| verb.get_name().to_owned()).collect();
            found.retain(|word| word.starts_with(last));
            if let Some(arg) = place.positional() {
                found.extend(
                    values(arg, last).into_iter().filter(|word| !place.names.contains(&word.as_str())),
                );
            }
            found
        }
    };
    found.into_iter().map(|word| word.get(kept..).map_or_else(|| word.clone(), str::to_owned)).collect()
}

const fn before_none() -> &'static [String] {
    &[]
}

/// Joins words that bash splits at signs of equality and colons: `--status`, `=`, `p`, or `nlp`, `:`, `h100`. Returns the length of the part
/// of the last word that bash keeps: it replaces only the text after the last sign.
fn joined(words: &[String]) -> (Vec<String>, usize) {
    let mut found: Vec<String> = Vec::new();
    let (mut kept, mut is_open) = (0, false);
    for word in words {
        let is_sign = word == "=" || word == ":";
        let is_flag = |last: &str| last.starts_with("--") && !last.contains('=');
        let takes = |last: &&mut String| {
            is_open || (is_sign && !last.is_empty() && (word == "=" || !is_flag(last.as_str())))
        };
        if let Some(last) = found.last_mut().filter(takes) {
            last.push_str(word);
            is_open = is_sign;
            if is_sign {
                kept = last.len();
            }
        } else {
            found.push(word.clone());
            (kept, is_open) = (0, false);
        }
    }
    (found, kept)
}

/// The command line before the cursor.
struct Cursor<'a> {
    command: &'a Command,
    /// Flags for the cluster, which may precede the verb.
    connection_flags: &'a Command,
    /// Verb and kind.
    path: Vec<&'a str>,
    /// Names that are given already.
    names: Vec<&'a str>,
    /// The flag whose value is next.
    awaited: Option<&'a Arg>,
}

impl<'a> Cursor<'a> {
    fn of(command: &'a Command, connection_flags: &'a Command, words: &'a [String]) -> Self {
        let mut place =
            Self { command, connection_flags, path: Vec::new(), names: Vec::new(), awaited: None };
        for word in words {
            if place.awaited.take().is_some() {
                continue;
            }
            if word.starts_with('-') {
                place.awaited = place.flag(word).filter(|arg| !word.contains('=') && takes_value(arg));
            } else if let Some(found) = place.command.find_subcommand(word).filter(|_| place.names.is_empty())
            {
                place.command = found;
                place.path.push(found.get_name());
            } else {
                place.names.push(word);
            }
        }
        place
    }

    /// Returns the flag of a word: a flag of the verb, or one for the cluster, which may precede the verb and which verbs of
    /// kubectl accept.
    fn flag(&self, word: &str) -> Option<&'a Arg> {
        let of = |command: &'a Command| {
            if word.starts_with("--") { long_flag(command, word) } else { short_flag(command, word) }
        };
        of(self.command).or_else(|| of(self.connection_flags))
    }

    /// Returns the argument whose value is next.
    fn positional(&self) -> Option<&'a Arg> {
        let next = self.command.get_positionals().nth(self.names.len());
        next.or_else(|| self.command.get_positionals().last().filter(|arg| takes_more(arg)))
    }

    /// Returns the values of an argument.
    fn values(&self, program: &Command, arg: &Arg, words: &[String], prefix: &str) -> Vec<String> {
        let possible = arg.get_possible_values();
        if !possible.is_empty() {
            return possible.iter().map(|value| value.get_name().to_owned()).collect();
        }
        let asked = Asked { program, path: &self.path, words, given: &self.names, prefix };
        Named::of(&self.path, arg).map(|named| named.candidates(&asked)).unwrap_or_default()
    }
}

/// Whether an argument takes several values.
fn takes_more(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn complete(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(super::super::kueuectl::command(), &words)
    }

    #[test]
    fn words_that_bash_splits_are_joined() {
        for (line, expected, kept) in [
            ("--status = p", vec!["--status=p"], 9),
            ("--status = p x", vec!["--status=p", "x"], 0),
            ("--quota nlp : h100 : nv", vec!["--quota", "nlp:h100:nv"], 9),
            ("--quota = nlp : h", vec!["--quota=nlp:h"], 12),
            ("--priority job/x =", vec!["--priority", "job/x="], 6),
            ("--quota nlp:h100:nv", vec!["--quota", "nlp:h100:nv"], 0),
            ("--quota :", vec!["--quota", ":"], 0),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (found, length) = joined(&words);
            assert_eq!((found, length), (expected.into_iter().map(str::to_owned).collect(), kept), "{line}");
        }
        let words = ["list", "cq", "--output", "=", "n"].map(str::to_owned);
        assert_eq!(candidates(super::super::kueuectl::command(), &words), ["name"]);
    }

    #[test]
    fn changes_complete_to_the_kinds_that_they_take() {
        let types = |flag: &str| {
            let words = ["what-if", flag, ""].map(str::to_owned);
            candidates(crate::cli::Cli::command(), &words)
        };
        for (flag, queues) in
            [("--stop", vec!["clusterqueue/", "localqueue/"]), ("--delete", vec![]), ("--priority", vec![])]
        {
            let found = types(flag);
            let of_queues: Vec<&str> = ["clusterqueue/", "localqueue/", "cohort/"]
                .into_iter()
                .filter(|kind| found.iter().any(|word| word == kind))
                .collect();
            assert_eq!(of_queues, queues, "{flag}");
            assert!(found.iter().any(|word| word == "workload/"), "{flag}: {found:?}");
        }
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

    /// Value names of arguments that are free text: files, times, numbers, selectors, secrets, amounts, and Go's booleans.
    const FREE: &str = "ALL ALLOW_MISSING_TEMPLATE_KEYS ALL_NAMESPACES BOOL DIR DURATION FILE IGNORE_UNKNOWN_CQ \
        KEEP_ALREADY_RUNNING KEY=VALUE KEY[=VALUE]:EFFECT KEY[=VALUE][:EFFECT] LABEL LINES LIST N NAME=VALUE \
        NAMESPACE/NAME PATH PERCENT PREFIX QUOTA RESOURCE=QUANTITY,... SECONDS SELECTOR SHOW_MANAGED_FIELDS TEMPLATE TIME TOKEN UID \
        URL VALUE=QUEUE YES history|FILE settled|DURATION";
    /// Arguments whose names cannot be listed: names in certificates, of users, of groups, and of objects to create.
    const NEW: [&str; 4] = ["tls_server_name", "act_as", "as_group", "name"];

    fn is_free(path: &[&str], arg: &Arg) -> bool {
        let names = arg.get_value_names().unwrap_or_default().join(" ");
        let id = arg.get_id().as_str();
        // The manager's flags are set by manifests, and a field of any object may be set.
        path == ["manager"]
            || names == "FIELD=VALUE KIND/NAME"
            || FREE.split_whitespace().any(|free| free == names)
            || (NEW.contains(&id) && (id != "name" || path.first() == Some(&"create")))
    }

    /// Each command that help lists, with the words of its verb.
    fn commands<'a>(command: &'a Command, path: &[&'a str]) -> Vec<(Vec<&'a str>, &'a Command)> {
        let mut found = vec![(path.to_vec(), command)];
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let path: Vec<&str> = path.iter().copied().chain([verb.get_name()]).collect();
            found.extend(commands(verb, &path));
        }
        found
    }

    #[test]
    fn each_argument_completes_or_is_free_text() {
        let mut missing = Vec::new();
        for mut program in [crate::cli::Cli::command(), super::super::kueuectl::command()] {
            program.build();
            for (path, command) in commands(&program, &[]) {
                let takes = |arg: &&Arg| !arg.is_hide_set() && arg.get_action().takes_values();
                for arg in command.get_arguments().filter(takes) {
                    let known = !arg.get_possible_values().is_empty() || Named::of(&path, arg).is_some();
                    if !known && !is_free(&path, arg) {
                        missing.push(format!("{} {}", path.join(" "), arg.get_id()));
                    }
                }
            }
        }
        missing.dedup();
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn words_of_flags_and_verbs_complete() {
        let complete = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            candidates(crate::cli::Cli::command(), &words)
        };
        for (line, expected) in [
            ("list wl --status e", vec!["evicted"]),
            ("list wl --status = p", vec!["pending"]),
            ("list wl --status=p", vec!["--status=pending"]),
            (
                "list wl --status =",
                vec!["pending", "quotareserved", "admitted", "evicted", "finished", "all"],
            ),
            ("list wl -o w", vec!["wide"]),
            ("list wl -o c", vec!["csv"]),
            ("audit -o c", vec!["csv"]),
            ("why job/x -o c", vec![]),
            ("usage --by n", vec!["namespace"]),
            ("audit --check workload-never", vec!["workload-never-fits"]),
            ("describe c", vec!["clusterqueue", "cohort"]),
            ("tree job jo", vec!["job/", "jobset/"]),
            ("why job/x --source m", vec!["manager"]),
            ("man list wor", vec!["workload"]),
            ("create cq x --queuing-strategy S", vec!["StrictFIFO"]),
            ("--contex", vec!["--context"]),
            ("simulate --stop cl", vec!["clusterqueue/"]),
        ] {
            assert_eq!(complete(line), expected, "{line}");
        }
        // bash splits the value from the flag, which is no argument of the verb, and a class from its job.
        assert_eq!(joined(&["--a", "=", "b", "c"].map(str::to_owned)).0, ["--a=b", "c"]);
        assert_eq!(joined(&["job/x", "=", "b"].map(str::to_owned)).0, ["job/x=b"]);
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
