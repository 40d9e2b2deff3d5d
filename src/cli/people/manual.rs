//! Manual pages, from the command line's own definition.
//!
//! Invariant: each verb that help lists has a page, named as `man` looks for it: `sluice-stop-workload.1`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, line_break, roman};

use super::examples;
use super::failure::wrong_use;
use crate::api::similar;
use crate::cli::files;

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Verb, and kind where the verb has kinds; none: the program
    #[arg(value_name = "VERB")]
    words: Vec<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    write: Option<PathBuf>,
}

/// Prints the page of a verb, or writes all pages. Fails for a word that is no verb, and where a page cannot be written.
pub(crate) fn run(args: &ManArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    command.build();
    if let Some(folder) = &args.write {
        files::write(folder, &pages(&command, &[])?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut verb, mut path) = (&command, Vec::new());
    for word in &args.words {
        verb = below(verb, word)?;
        path.push(verb.get_name());
    }
    files::print(&page(verb, &path)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the verb with a word below another verb.
fn below<'a>(verb: &'a Command, word: &str) -> anyhow::Result<&'a Command> {
    let shown = || verb.get_subcommands().filter(|below| !below.is_hide_set());
    let found =
        shown().find(|below| below.get_name() == word || below.get_all_aliases().any(|alias| alias == word));
    found.ok_or_else(|| {
        let path = verb.get_bin_name().unwrap_or(verb.get_name());
        wrong_use(format!("{path} has no verb {word}{}", similar::hint(word, shown().map(Command::get_name))))
    })
}

/// Returns the pages of a command and of all below it, by file name.
fn pages<'a>(command: &'a Command, path: &[&'a str]) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = vec![(format!("{}.1", title(command)), page(command, path)?)];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let path: Vec<&str> = path.iter().copied().chain([verb.get_name()]).collect();
        found.extend(pages(verb, &path)?);
    }
    Ok(found)
}

/// Returns a page as roff.
fn page(command: &Command, path: &[&str]) -> anyhow::Result<String> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    let mut more = Roff::new();
    more.control("SH", ["EXAMPLES"]);
    for example in examples::of(&path.join(" ")) {
        more.control("PP", []);
        more.text([roman(example.purpose), line_break(), bold(example.line)]);
    }
    more.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in statuses(command, path) {
        more.control("TP", []);
        more.text([bold(status.to_string())]);
        more.text([roman(meaning)]);
    }
    more.control("SH", ["SEE ALSO"]);
    more.text(see_also(path));
    Ok(ascii(&(String::from_utf8(text)? + &more.to_roff())))
}

/// Escapes characters beyond ASCII so that groff reads them in each locale.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\[u{:04X}]", u32::from(c));
        }
    }
    out
}

/// Returns the exit statuses of a verb with their meanings.
fn statuses(command: &Command, path: &[&str]) -> Vec<(u8, &'static str)> {
    let simulates = path.first() == Some(&"simulate");
    let has_flag = |start: &str| {
        command.get_arguments().filter_map(clap::Arg::get_long).any(|flag| flag.starts_with(start))
    };
    let connects = has_flag("kubeconfig");
    let mut found = vec![
        (0, "Done; also when a list is empty."),
        (1, "Failed: not found, refused, or no connection."),
        (2, "The command line is wrong."),
    ];
    if connects {
        found.push((3, "Partly done: some objects were skipped, or a right was missing for a part; standard error names each."));
    }
    if has_flag("fail") {
        found.push((4, "The answer is no, and a flag asked."));
    }
    if path.first() == Some(&"migrate") {
        found.push((4, "Something stands in the way, or a step is not done."));
    }
    if simulates {
        found.push((5, "Only further evictions were happening, and no time was given to stop at."));
    }
    if connects {
        found.push((130, "Interrupted."));
    }
    found
}

/// Returns the pages that a page refers to: the pages above it, and of the verbs in its examples.
fn see_also(path: &[&str]) -> Vec<Inline> {
    let name =
        |path: &[&str]| std::iter::once("sluice").chain(path.iter().copied()).collect::<Vec<_>>().join("-");
    let own = name(path);
    let mut names: Vec<String> = (0..path.len()).filter_map(|length| path.get(..length)).map(name).collect();
    for example in examples::of(&path.join(" ")) {
        let words = example.line.split(' ').skip_while(|word| *word != "sluice").skip(1);
        names.extend(words.take(1).map(|verb| name(&[verb])));
    }
    if path.is_empty() {
        names.extend(["list", "tree", "capacity", "usage", "status"].map(|verb| name(&[verb])));
    }
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| *name != own && seen.insert(name.clone()));
    let mut line = Vec::new();
    for name in &names {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([italic(name.clone()), roman("(1)")]);
    }
    line
}

fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn all() -> Vec<(String, String)> {
        let mut command = Cli::command();
        command.build();
        pages(&command, &[]).unwrap()
    }

    #[test]
    fn each_verb_has_a_page_that_names_its_flags() {
        let pages = all();
        let page = |name: &str| &pages.iter().find(|(file, _)| file == name).expect(name).1;
        assert!(page("sluice.1").contains("sluice\\-why(1)"), "{}", page("sluice.1"));
        assert!(page("sluice-why.1").contains("\\-\\-before"));
        assert!(page("sluice-stop-workload.1").contains("\\-\\-all\\-namespaces"));
        assert!(page("sluice-manager.1").contains("\\-\\-feature\\-gates"));
    }

    #[test]
    fn each_page_has_examples_statuses_and_other_pages_in_ascii() {
        let pages = all();
        let known: Vec<&str> = pages.iter().filter_map(|(file, _)| file.strip_suffix(".1")).collect();
        for (file, text) in &pages {
            for section in ["EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                let (_, rest) = text
                    .split_once(&format!(".SH {section}\n"))
                    .unwrap_or_else(|| panic!("{file}: {section}"));
                assert!(
                    rest.lines().next().is_some_and(|line| !line.starts_with(".SH")),
                    "{file}: {section}"
                );
            }
            assert!(text.is_ascii(), "{file}");
            let (_, also) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
            for name in also.replace("\\fI", "").replace("\\fR", "").replace("\\-", "-").split(", ") {
                let name = name.trim().trim_end_matches("(1)");
                assert!(known.contains(&name), "{file} names {name}");
            }
        }
        let why = &pages.iter().find(|(file, _)| file == "sluice-why.1").unwrap().1;
        let place = |text: &str| why.find(text).unwrap_or_else(|| panic!("{text}"));
        assert!(place("\\-\\-fail\\-pending") < place(".SH CONNECTION"));
    }

    #[test]
    fn a_word_that_is_no_verb_is_a_wrong_command_line() {
        for (words, expected) in [
            (&["nosuch"][..], "sluice has no verb nosuch"),
            (&["lst"], "sluice has no verb lst; similar: list"),
            (&["list", "workloadd"], "sluice list has no verb workloadd; similar: workload"),
            (&["__complete"], "sluice has no verb __complete"),
        ] {
            let args = ManArgs { words: words.iter().map(|&word| word.to_owned()).collect(), write: None };
            let error = run(&args, Cli::command()).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(super::super::failure::print_error(&error), std::process::ExitCode::from(2));
        }
        assert!(
            run(&ManArgs { words: vec!["list".to_owned(), "wl".to_owned()], write: None }, Cli::command())
                .is_ok()
        );
    }

    #[test]
    fn pages_show_nothing_hidden() {
        for (file, text) in all() {
            assert!(!file.contains("__complete"), "{file}");
            assert!(!text.contains("no\\-descriptions"), "{file} names a hidden flag");
        }
    }
}
