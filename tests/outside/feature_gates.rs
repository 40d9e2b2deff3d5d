//! The table of feature gates has Kueue's gates.

use sluice::api::config;
use std::fs;
use std::path::Path;

/// Names, stages and defaults of the inventory's table: `| Name | Beta | on | ...`.
pub(crate) fn match_inventory(inventory: &Path) {
    let text = fs::read_to_string(inventory).unwrap();
    let (_, text) = text.split_once("## Appendix A").expect("the inventory has a table of gates");
    let (table, _) = text.split_once("## Appendix B").expect("the inventory continues after the table");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let theirs: Vec<[String; 3]> = table
        .lines()
        .map(cells)
        .filter(|cells| cells.len() > 7 && (cells[3] == "on" || cells[3] == "off"))
        .map(|cells| [cells[1].clone(), cells[2].replace("GA (locked)", "Stable"), cells[3].clone()])
        .collect();
    assert_eq!(theirs.len(), 80);
    let ours: Vec<[String; 3]> = config::feature_gates_page()
        .lines()
        .map(cells)
        .filter(|cells| cells.len() == 8 && (cells[3] == "on" || cells[3] == "off"))
        .map(|cells| [cells[1].clone(), cells[2].clone(), cells[3].clone()])
        .collect();
    assert_eq!(ours, theirs);
}
