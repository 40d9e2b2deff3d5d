//! Help of the program and its verbs: verbs by group, a verb's own flags, then examples.
//!
//! Invariants: each verb that help lists is in one group; the flags for the cluster and the user, which most verbs have, are listed
//! by `sluice options` alone; what is put into a template of clap has no braces, which mark clap's own parts; no line is wider than the
//! terminal. clap breaks lines only with a further crate, so that it is done here.

use clap::error::ErrorKind;
use clap::{Arg, Command};

use super::connection::HEADING;
use super::examples;
use crate::cli::{files, terminal};
use crate::people::line_wrap::{shown_width, words_within};

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

/// Width of help without a terminal, and of usage.
const WIDTH: usize = 80;
/// Greatest width of help: longer lines are hard to read.
const MAX_WIDTH: usize = 100;
/// Line below the help of verbs with the flags that `sluice options` lists.
const ABOUT_OPTIONS: &str = "\n\nFlags for the cluster and the user: sluice options";

/// Sets the help of the program and of all its verbs.
pub(crate) fn add(program: Command) -> Command {
    let name = program.get_bin_name().unwrap_or(program.get_name()).to_owned();
    added(program, (&name, ""), false)
}

/// Sets the help of a verb with its name, as users type it, and the words of that name after the program's. `connects` says whether it
/// has the flags of a verb above it for the cluster.
pub(super) fn added(verb: Command, (name, path): (&str, &str), connects: bool) -> Command {
    let connects = connects || verb.get_arguments().any(is_of_connection);
    let mut verb = verb.mut_args(|arg| if is_of_connection(&arg) { arg.hide(true) } else { arg });
    let words: Vec<String> = verb.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for word in words {
        let (name, path) = (format!("{name} {word}"), format!("{path} {word}"));
        verb = verb.mut_subcommand(word, |below| added(below, (&name, path.trim_start()), connects));
    }
    // clap puts the text of a flag below it where the flags are too wide for this width.
    verb = verb.term_width(width());
    if let Some(usage) = short_usage(&verb, name) {
        verb = verb.override_usage(usage);
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

/// Returns the width of help.
fn width() -> usize {
    terminal::width().map_or(WIDTH, |columns| columns.min(MAX_WIDTH))
}

/// Returns the usage of a verb of whose flags one is required, with the names of the first ones: `sluice what-if [OPTIONS]
/// <--add-nodes|--drain|...>`. `None` if clap's own, which has all of them with their values, is no wider than a terminal.
fn short_usage(verb: &Command, name: &str) -> Option<String> {
    verb.get_groups().find(|group| group.is_required_set())?;
    let mut built = verb.clone().bin_name(name);
    let usage = built.render_usage().to_string();
    if usage.chars().count() <= WIDTH {
        return None;
    }
    let (start, _) = usage.strip_prefix("Usage: ")?.split_once(" <--")?;
    let group = built.get_groups().find(|group| group.is_required_set())?;
    let is_member = |arg: &&Arg| group.get_args().any(|id| id == arg.get_id());
    let flags: Vec<&str> = built.get_arguments().filter(is_member).filter_map(Arg::get_long).collect();
    let shortened = |count: usize| {
        let first: Vec<String> = flags.iter().take(count).map(|flag| format!("--{flag}")).collect();
        let more = if count < flags.len() { "|..." } else { "" };
        format!("{start} <{}{more}>", first.join("|"))
    };
    let fits = |usage: &String| "Usage: ".len() + usage.chars().count() <= WIDTH;
    (1..=flags.len()).rev().map(shortened).find(fits)
}

/// Returns an error that is a help with lines of the width of the terminal; another error as it is.
pub(crate) fn wrapped(error: clap::Error) -> clap::Error {
    let line: &[&str] = match error.kind() {
        ErrorKind::DisplayHelp => &["sluice", "--help"],
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => &["sluice"],
        _ => return error,
    };
    let text = within(&error.render().ansi().to_string(), width());
    // clap prints the text, with colours only where they are wanted.
    let printer = Command::new("sluice").arg_required_else_help(true).override_help(text);
    printer.try_get_matches_from(line).err().unwrap_or(error)
}

/// Breaks the lines of a help that are too wide.
fn within(help: &str, width: usize) -> String {
    help.lines().map(|line| broken(line, width) + "\n").collect()
}

/// Breaks a line between words; what follows is below the text, behind the flag or verb.
fn broken(line: &str, width: usize) -> String {
    if shown_width(line) <= width {
        return line.to_owned();
    }
    let (before, text) = line.split_at(text_start(line));
    let indent = shown_width(before);
    let lines = words_within(text, width.saturating_sub(indent));
    before.to_owned() + &lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Returns where the text of a line begins: behind the indentation, and a flag or verb with the gap after it.
fn text_start(line: &str) -> usize {
    let indented = line.trim_start();
    if indented.len() == line.len() {
        return 0;
    }
    let text = indented.split_once("  ").map_or(indented, |(_, text)| text.trim_start());
    line.len() - text.len()
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
    files::print(&within(&options(), width()))
}

fn options() -> String {
    let flags = super::connection_flags().name("options").term_width(width());
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
    fn no_line_is_wider_than_the_terminal() {
        for (path, help, _) in helps() {
            // Usage and examples are copied, and stay in one line.
            for line in
                help.lines().filter(|line| line.starts_with("Usage: ") || line.starts_with("  sluice "))
            {
                assert!(line.chars().count() <= WIDTH, "{path:?}: {line}");
            }
            for width in [WIDTH, 90, MAX_WIDTH] {
                let shown = within(&help, width);
                let wide = shown.lines().find(|line| line.chars().count() > width);
                assert_eq!(wide, None, "{path:?}");
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(words(&shown), words(&help), "{path:?}: nothing is lost");
            }
        }
        assert_eq!(within(&options(), WIDTH).lines().find(|line| line.chars().count() > WIDTH), None);
    }

    #[test]
    fn what_follows_a_line_is_below_its_text() {
        for (line, expected) in [
            ("one two three", "one two\nthree"),
            ("  -a, --all  one two", "  -a, --all  one\n             two"),
            (
                "  \u{1b}[1m--all\u{1b}[0m  one two three",
                "  \u{1b}[1m--all\u{1b}[0m  one two\n         three",
            ),
            ("    one two three", "    one two\n    three"),
        ] {
            let width = expected.lines().map(shown_width).max().unwrap();
            assert_eq!(within(line, width), format!("{expected}\n"));
        }
    }

    #[test]
    fn help_is_printed_as_help() {
        for (words, is_error) in [(&["sluice", "list", "--help"][..], false), (&["sluice"], true)] {
            let given = add(Cli::command()).try_get_matches_from(words).unwrap_err();
            let kind = given.kind();
            let text = given.render().to_string();
            let shown = wrapped(given);
            assert_eq!((shown.kind(), shown.use_stderr()), (kind, is_error), "{words:?}");
            assert!(shown.render().to_string().lines().all(|line| line.chars().count() <= MAX_WIDTH));
            assert_eq!(
                shown.render().to_string().split_whitespace().count(),
                text.split_whitespace().count()
            );
        }
        let wrong = add(Cli::command()).try_get_matches_from(["sluice", "lst"]).unwrap_err();
        let text = wrong.to_string();
        assert_eq!(wrapped(wrong).to_string(), text);
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

    /// Verbs with one use alone: they have no flags of their own, and no argument that a second example would vary.
    const ONE_USE: [&str; 6] = [
        "options",
        "version",
        "completion bash",
        "completion zsh",
        "completion fish",
        "completion powershell",
    ];

    #[test]
    fn each_verb_has_two_examples_or_one_use() {
        for (path, ..) in helps().iter().filter(|(path, ..)| !path.is_empty()) {
            let count = examples::of(path).len();
            assert_eq!(count < 2, ONE_USE.contains(&path.as_str()), "{path}: {count}");
        }
    }
}
