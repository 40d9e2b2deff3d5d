//! The commands of the documentation, as they are printed there, run by a shell in the root of the repository.

use crate::paths;
use crate::process::output_with_input;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the commands in the code blocks of a section of `docs/PAGE`, in order; without a heading, of what is before the first one.
/// A command that goes on on the next line, or is a loop, is one.
pub fn commands(page: &str, heading: Option<&str>) -> Result<Vec<String>> {
    let text = fs::read_to_string(paths::root().join("docs").join(page)).with_context(|| page.to_owned())?;
    let section = match heading {
        None => text.as_str(),
        Some(heading) => {
            let found = text.split_once(&format!("\n## {heading}\n"));
            found.with_context(|| format!("{page} has no section {heading}"))?.1
        }
    };
    let section = section.split("\n## ").next().unwrap_or(section);
    let commands = joined(section.lines().filter_map(|line| line.strip_prefix("    ")));
    ensure!(!commands.is_empty(), "{page}: the section has no command");
    Ok(commands)
}

/// Joins lines that belong to one command.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in lines {
        match commands.last_mut().filter(|_| is_open) {
            Some(last) => *last = format!("{last}\n{line}"),
            None => commands.push(line.to_owned()),
        }
        let last = commands.last().map(String::as_str).unwrap_or_default();
        is_open = line.ends_with('\\') || (last.starts_with("for ") && line != "done");
    }
    commands
}

/// Runs a command as printed, with the programs of these folders and a kubeconfig; returns its standard output.
pub fn run(command: &str, programs: &[&Path], kubeconfig: &Path) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = programs.iter().map(|folder| folder.display().to_string()).chain([path]);
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", command])
        .current_dir(paths::root())
        .env("PATH", folders.collect::<Vec<_>>().join(":"))
        .env("KUBECONFIG", kubeconfig);
    output_with_input(&mut shell, command, "")
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn lines_of_one_command_are_joined() {
        let lines = ["a \\", "  b", "for x in 1; do", "    c", "done", "d"];
        assert_eq!(joined(lines.into_iter()), ["a \\\n  b", "for x in 1; do\n    c\ndone", "d"]);
    }
}
