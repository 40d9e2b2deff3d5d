//! Help of the program and its verbs: verbs by group, a verb's own flags, then examples.
//!
//! Invariants: each verb that help lists is in one group; the flags for the cluster and the user, which most verbs have, are listed
//! by `sluice options` alone; what is put into a template of clap has no braces, which mark clap's own parts.

use clap::{Arg, Command};

use super::connection::HEADING;
use super::examples;
use crate::cli::files;

/// Verbs by group, in the order of the program's help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Look",
        &["list", "describe", "why", "tree", "share", "capacity", "usage", "audit", "top", "status", "get"],
    ),
    ("Act", &["create", "stop", "resume", "move", "reprioritize", "delete", "edit", "patch", "history"]),
    ("Plan", &["what-if", "simulate", "dump", "import", "migrate"]),
    ("Program", &["manager", "config", "crds", "framework", "completion", "man", "options", "version"]),
];

/// Line below the help of verbs with the flags that `sluice options` lists.
const ABOUT_OPTIONS: &str = "\n\nFlags for the cluster and the user: sluice options";

/// Sets the help of the program and of all its verbs.
pub(crate) fn add(program: Command) -> Command {
    added(program, "", false)
}

/// Sets the help of a verb, whose words are `path`. `connects` says whether it has the flags of a verb above it for the cluster.
pub(super) fn added(verb: Command, path: &str, connects: bool) -> Command {
    let connects = connects || verb.get_arguments().any(is_of_connection);
    let mut verb = verb.mut_args(|arg| if is_of_connection(&arg) { arg.hide(true) } else { arg });
    let names: Vec<String> = verb.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        verb = verb.mut_subcommand(name, |below| added(below, path.trim_start(), connects));
    }
    let examples = examples::of(path);
    if examples.is_empty() {
        return verb;
    }
    let lines: Vec<String> =
        examples.iter().map(|example| format!("  # {}\n  {}", example.purpose, example.line)).collect();
    let parts = if path.is_empty() {
        format!("{}Options:\n{{options}}", groups(&verb))
    } else {
        "{all-args}".to_owned()
    };
    let more = if connects { ABOUT_OPTIONS } else { "" };
    verb.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{parts}\n\nExamples:\n{}{more}{{after-help}}",
        lines.join("\n")
    ))
}

fn is_of_connection(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(HEADING)
}

/// Returns the verbs that are shown, with their purposes.
fn groups(program: &Command) -> String {
    let shown = || program.get_subcommands().filter(|verb| !verb.is_hide_set());
    let width = shown().map(|verb| verb.get_name().len()).max().unwrap_or_default();
    let line = |name: &&str| {
        let verb = shown().find(|verb| verb.get_name() == *name)?;
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        Some(format!("  {name:width$}  {about}\n"))
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: String = names.iter().filter_map(line).collect();
        format!("{title}:\n{lines}\n")
    };
    GROUPS.iter().map(group).collect()
}

/// Prints the flags for the cluster and the user.
pub(super) fn print_options() -> anyhow::Result<()> {
    files::print(&options())
}

fn options() -> String {
    let flags = super::connection_flags().name("options");
    let text = flags.disable_help_flag(true).help_template("{all-args}").render_help().to_string();
    format!(
        "Flags of each verb that asks a cluster. They may also stand before the verb.\n\n{}\n",
        text.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The words of each command that help lists, the program itself among them.
    fn paths(command: &Command, path: &str) -> Vec<String> {
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let below = verbs.flat_map(|verb| paths(verb, format!("{path} {}", verb.get_name()).trim_start()));
        std::iter::once(path.to_owned()).chain(below).collect()
    }

    /// Returns the words and the help of each command, and whether it has the flags for the cluster.
    fn helps() -> Vec<(String, String, bool)> {
        let mut program = add(Cli::command());
        program.build();
        let paths = paths(&program, "");
        let help = |path: String| {
            let mut verb = &mut program;
            for word in path.split_whitespace() {
                verb = verb.find_subcommand_mut(word).unwrap();
            }
            let connects = verb.get_arguments().any(is_of_connection);
            let text = verb.render_help().to_string();
            (path, text, connects)
        };
        paths.into_iter().map(help).collect()
    }

    #[test]
    fn each_help_has_flags_then_examples() {
        for (path, help, _) in helps() {
            let examples = help.find("\n\nExamples:\n  # ").unwrap_or_else(|| panic!("{path}: {help}"));
            assert!(!help.contains(['{', '}']), "{path:?}: {help}");
            // Verbs of kubectl have no flags of their own.
            assert!(help.find("Options:\n").is_none_or(|options| options < examples), "{path:?}: {help}");
        }
    }

    #[test]
    fn flags_for_the_cluster_are_listed_by_options_alone() {
        let flags = options();
        assert!(flags.contains("--kubeconfig <FILE>") && flags.contains("--namespace <NAME>"), "{flags}");
        assert!(!flags.contains("--cache-dir") && !flags.contains("--help"), "{flags}");
        let mut connecting = 0;
        for (path, help, connects) in helps() {
            assert!(!help.contains("Connection:"), "{path:?}: {help}");
            assert_eq!(help.contains(ABOUT_OPTIONS), connects, "{path:?}: {help}");
            // The flag that users need daily stays.
            assert!(!connects || help.contains("--namespace <NAME>"), "{path:?}: {help}");
            connecting += usize::from(connects);
        }
        assert!(connecting > 30, "{connecting}");
    }

    #[test]
    fn arguments_without_a_flag_are_explained() {
        let mut program = Cli::command();
        program.build();
        for path in paths(&program, "") {
            let mut verb = &program;
            for word in path.split_whitespace() {
                verb = verb.find_subcommand(word).unwrap();
            }
            for arg in verb.get_positionals().filter(|arg| !arg.is_hide_set()) {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.split(' ').count() > 1, "{path} {}: {help:?}", arg.get_id());
            }
        }
    }

    #[test]
    fn each_verb_is_in_one_group() {
        let program = Cli::command();
        let mut shown: Vec<&str> =
            program.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
        let (_, help, _) = helps().swap_remove(0);
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text:?}: {help}"));
        let titles = ["\nLook:\n", "\nAct:\n", "\nPlan:\n", "\nProgram:\n", "\nOptions:\n", "\nExamples:\n"];
        assert!(titles.map(place).is_sorted(), "{help}");
        assert!(help.contains("Look:\n  list  ") && help.contains("Program:\n  manager  "), "{help}");
    }

    #[test]
    fn verbs_that_look_and_act_have_two_examples() {
        for (path, ..) in helps().iter().filter(|(path, ..)| !path.is_empty()) {
            let verb = path.split(' ').next().unwrap();
            let counts = GROUPS[..2].iter().any(|(_, names)| names.contains(&verb));
            assert!(!counts || examples::of(path).len() > 1, "{path}");
        }
    }
}
