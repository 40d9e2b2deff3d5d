//! Manual pages, from the command line's own definition.
//!
//! Invariant: each verb that help lists has a page, named as `man` looks for it: `sluice-stop-workload.1`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

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
pub(crate) fn run(args: &ManArgs, mut command: Command) -> anyhow::Result<()> {
    command.build();
    if let Some(folder) = &args.write {
        return files::write(folder, &pages(&command)?);
    }
    let mut verb = &command;
    for word in &args.words {
        let path = verb.get_bin_name().unwrap_or_default();
        verb = verb.find_subcommand(word).with_context(|| format!("{path} has no verb {word}"))?;
    }
    files::print(&page(verb)?)
}

/// Returns the pages of a command and of all below it, by file name.
fn pages(command: &Command) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = vec![(format!("{}.1", title(command)), page(command)?)];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        found.extend(pages(verb)?);
    }
    Ok(found)
}

/// Returns a page as roff.
fn page(command: &Command) -> anyhow::Result<String> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    Ok(String::from_utf8(text)?)
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
        pages(&command).unwrap()
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
    fn pages_show_nothing_hidden() {
        for (file, text) in all() {
            assert!(!file.contains("__complete"), "{file}");
            assert!(!text.contains("no\\-descriptions"), "{file} names a hidden flag");
        }
    }
}
