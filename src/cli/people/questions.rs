//! The commands and pages of `docs/questions.md`: each command line parses, and each address names a page. A verb, a flag or a page that
//! is renamed would otherwise leave users with an answer that no longer exists.

use crate::cli::Cli;
use crate::dashboard::PageQuestion;
use clap::CommandFactory as _;

/// Headings of the tables, with the number of their rows: the questions that the command line and the dashboard are made for, and
/// the questions that a reader of one namespace asks otherwise.
const TABLES: [(&str, usize); 2] = [("Thirteen questions", 13), ("With the view of one namespace", 10)];
const HEADER: &str = "| Question | Command | Page |\n|---|---|---|\n";

/// Returns question, command and page of each row of the table below a heading.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<[&'a str; 3]> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, table) = section.split_once(HEADER).unwrap();
    let lines = table.lines().take_while(|line| line.starts_with("| "));
    let cells = |line: &'a str| {
        let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")).unwrap();
        let cells: Vec<&str> = inner.split(" | ").collect();
        <[&str; 3]>::try_from(cells).unwrap_or_else(|cells| panic!("{line}: {} cells", cells.len()))
    };
    lines.map(cells).collect()
}

/// Returns the text of a cell that is one piece of code.
fn code(cell: &str) -> &str {
    let inner = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
    let inner = inner.filter(|inner| !inner.contains('`'));
    inner.unwrap_or_else(|| panic!("{cell} is not one command or address"))
}

#[test]
fn each_question_has_a_command_that_parses_and_a_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/questions.md");
    let page = std::fs::read_to_string(path).unwrap();
    for (heading, count) in TABLES {
        let rows = rows(&page, heading);
        assert_eq!(rows.len(), count, "{heading}");
        for [question, command, address] in rows {
            assert!(question.ends_with('?'), "{question}");
            let command = code(command);
            assert!(command.starts_with("sluice "), "{command}");
            let parsed = Cli::command().try_get_matches_from(command.split(' '));
            parsed.unwrap_or_else(|error| panic!("{question} {command}: {error}"));
            let address = code(address);
            let named = PageQuestion::parse(address);
            named.unwrap_or_else(|error| panic!("{question} {address}: {error:?}"));
        }
    }
}
