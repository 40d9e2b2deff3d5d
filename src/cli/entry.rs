//! The command line as Kueue's manifests give it: `/manager --config=…`, without a subcommand and in Go's notation.
//!
//! Also the command line of users, with flags for the cluster before the verb, as kubectl accepts them.
//!
//! Invariant: a command line that begins with a subcommand, or asks for help or the version, is not changed.

use std::ffi::OsString;

use crate::cli::names::Grammar;

/// The subcommand that stands for Kueue's program.
pub(super) const SUBCOMMAND: &str = "manager";

/// Inserts the subcommand `manager` if the program is called as Kueue's is: by its name, or with a flag in the place of the
/// subcommand. Go accepts `-flag` for `--flag`; so does that command line. `is_subcommand` returns whether a word is a
/// subcommand.
pub(super) fn command_line(
    args: impl IntoIterator<Item = OsString>,
    is_subcommand: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_manager = Grammar::of(args.first().map(OsString::as_os_str)) == Grammar::Manager;
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    let asks = ["-h", "--help", "-V", "--version"].contains(&first);
    if asks || is_subcommand(first) || !(is_manager || first.starts_with('-')) {
        return args;
    }
    for arg in args.iter_mut().skip(1).take_while(|arg| *arg != "--") {
        if let Some(flag) = arg.to_str().and_then(long_flag) {
            *arg = flag.into();
        }
    }
    args.insert(1, SUBCOMMAND.into());
    args
}

/// What becomes of flags for the cluster that stand before a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagsBefore {
    /// The verb reads them, or hands them to kubectl.
    Read,
    /// The verb asks no cluster: they change nothing, as for kubectl.
    Dropped,
}

impl FlagsBefore {
    /// Returns what becomes of flags before a word; `None` if the word is no verb for users.
    pub(super) fn of(program: &clap::Command, word: &str) -> Option<Self> {
        let verb = program.find_subcommand(word)?;
        if verb.get_name() == SUBCOMMAND || verb.is_hide_set() {
            return None;
        }
        Some(if asks_cluster(verb) { Self::Read } else { Self::Dropped })
    }
}

/// Returns whether a verb, or one below it, has flags for the cluster, or hands all its arguments to kubectl.
fn asks_cluster(verb: &clap::Command) -> bool {
    let reads = |arg: &clap::Arg| arg.get_long() == Some("kubeconfig") || arg.is_trailing_var_arg_set();
    verb.get_arguments().any(reads) || verb.get_subcommands().any(asks_cluster)
}

/// Moves flags for the cluster from before the verb to the end of the line: `sluice -n team list workload`. Any other flag
/// before a word, and any other word, leaves the command line as it is. `before` returns what becomes of the flags before a
/// word; `None` if it is no verb.
pub(super) fn flags_last(
    mut args: Vec<OsString>,
    flags: &clap::Command,
    before: impl Fn(&str) -> Option<FlagsBefore>,
) -> Vec<OsString> {
    let mut verb = 1;
    while let Some(arg) = args.get(verb).and_then(|arg| arg.to_str()).filter(|arg| arg.starts_with('-')) {
        let Some(words) = words_of(arg, flags) else { return args };
        verb += words;
    }
    let found = args.get(verb).and_then(|arg| arg.to_str()).and_then(before);
    let Some(found) = found.filter(|_| verb > 1) else { return args };
    let moved: Vec<OsString> = args.drain(1..verb).collect();
    if found == FlagsBefore::Dropped {
        return args;
    }
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    args.splice(end..end, moved);
    args
}

/// Returns the number of words of a flag and its value; `None` if it is no flag for the cluster.
fn words_of(arg: &str, flags: &clap::Command) -> Option<usize> {
    let (name, has_value) = match arg.strip_prefix("--") {
        Some(long) => (long.split('=').next()?, long.contains('=')),
        // `-nteam` is `-n team`.
        None => (arg.get(1..2)?, arg.len() > 2),
    };
    let known = flags.get_arguments().find(|flag| {
        let short = flag.get_short().is_some_and(|short| name.len() == 1 && name.starts_with(short));
        short && !arg.starts_with("--") || flag.get_long() == Some(name) && arg.starts_with("--")
    })?;
    let takes_next = known.get_action().takes_values() && !known.is_require_equals_set();
    Some(if has_value || !takes_next { 1 } else { 2 })
}

/// Returns `--flag` for Go's `-flag`.
fn long_flag(arg: &str) -> Option<String> {
    let name = arg.strip_prefix('-')?;
    let is_word = name.len() > 1 && name.starts_with(|first: char| first.is_ascii_lowercase());
    is_word.then(|| format!("-{arg}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn read(line: &str) -> String {
        let subcommands = ["manager", "config", "simulate", "dump", "crds", "version"];
        let args = command_line(line.split(' ').map(OsString::from), |word| subcommands.contains(&word));
        args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn command_lines_of_kueue_start_the_manager() {
        for (given, expected) in [
            ("/manager", "/manager manager"),
            (
                "/manager --config=/c.yaml --zap-log-level=2",
                "/manager manager --config=/c.yaml --zap-log-level=2",
            ),
            ("/manager -config /c.yaml -zap-devel", "/manager manager --config /c.yaml --zap-devel"),
            ("/sluice --config=/c.yaml", "/sluice manager --config=/c.yaml"),
            ("/sluice -feature-gates=A=true", "/sluice manager --feature-gates=A=true"),
            ("/manager manager --config=/c.yaml", "/manager manager --config=/c.yaml"),
            ("/manager -- -x", "/manager manager -- -x"),
        ] {
            assert_eq!(read(given), expected, "{given}");
        }
    }

    #[test]
    fn flags_for_the_cluster_may_stand_before_the_verb() {
        let flags = crate::cli::people::connection_flags();
        for (given, expected) in [
            ("sluice -n team list workload", "sluice list workload -n team"),
            (
                "sluice --context=c --namespace a why job/x -o json",
                "sluice why job/x -o json --context=c --namespace a",
            ),
            ("sluice -nteam list", "sluice list -nteam"),
            ("sluice --insecure-skip-tls-verify list cq", "sluice list cq --insecure-skip-tls-verify"),
            ("sluice -s https://x --token t list -- y", "sluice list -s https://x --token t -- y"),
            ("sluice -n team version", "sluice version"),
            // These flags are the manager's, or wrong.
            ("sluice --kubeconfig list", "sluice --kubeconfig list"),
            ("sluice --kubeconfig x", "sluice --kubeconfig x"),
            ("sluice --kubeconfig x manager", "sluice --kubeconfig x manager"),
            ("sluice --config=c --feature-gates=A=true", "sluice --config=c --feature-gates=A=true"),
            ("sluice --zap-devel list", "sluice --zap-devel list"),
            ("sluice list -n team", "sluice list -n team"),
            ("sluice", "sluice"),
            ("sluice -", "sluice -"),
        ] {
            let args = given.split(' ').map(OsString::from).collect();
            let read = flags_last(args, &flags, |word| match word {
                "list" | "why" => Some(FlagsBefore::Read),
                "version" => Some(FlagsBefore::Dropped),
                _ => None,
            });
            let read: Vec<&str> = read.iter().map(|arg| arg.to_str().unwrap()).collect();
            assert_eq!(read.join(" "), expected);
        }
    }

    #[test]
    fn flags_for_the_cluster_may_stand_before_every_verb() {
        let (program, flags) = (Cli::command(), crate::cli::people::connection_flags());
        let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set());
        let names = verbs.flat_map(|verb| std::iter::once(verb.get_name()).chain(verb.get_all_aliases()));
        let mut dropped = Vec::new();
        for name in names.filter(|name| *name != SUBCOMMAND) {
            let args = format!("sluice --kubeconfig f -n team {name} x");
            let args = args.split(' ').map(OsString::from).collect();
            let read = flags_last(args, &flags, |word| FlagsBefore::of(&program, word));
            let read: Vec<&str> = read.iter().map(|arg| arg.to_str().unwrap()).collect();
            if read.len() == 3 {
                dropped.push(name);
                assert_eq!(read, ["sluice", name, "x"]);
            } else {
                assert_eq!(read, ["sluice", name, "x", "--kubeconfig", "f", "-n", "team"]);
            }
        }
        dropped.sort_unstable();
        assert_eq!(dropped, ["completion", "config", "crds", "framework", "man", "options", "version"]);
        for word in [SUBCOMMAND, "__complete", "nosuch"] {
            assert_eq!(FlagsBefore::of(&program, word), None, "{word}");
        }
    }

    #[test]
    fn other_command_lines_are_unchanged() {
        for line in [
            "sluice",
            "sluice --help",
            "sluice -V",
            "/manager --version",
            "sluice simulate -o json -f x",
            "sluice manager -x",
            "sluice version",
            "/manager version",
            "/manager crds",
            "/manager config check f",
            "/manager dump -o x",
        ] {
            assert_eq!(read(line), line);
        }
    }
}
