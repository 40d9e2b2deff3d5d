//! The rows of the table of frameworks have Kueue's kinds and fields.

use sluice::frameworks::frameworks;
use std::fs;
use std::path::Path;

/// Kinds, suspend fields and built-in values of managedBy equal those of the list of Kueue's integrations, line by line.
pub(crate) fn match_rows(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("### 1.0 Kinds at a glance").expect("the table of kinds");
    let (table, _) = table.split_once("### 1.1").expect("the next section");
    let dotted = |pointer: &str| format!("`{}`", pointer.trim_start_matches('/').replace('/', "."));
    let mut found = 0;
    for row in frameworks() {
        // The kinds of the training operator share a line.
        let shared = row.name.rsplit_once('/').map_or("", |(_, kind)| kind);
        let line = table.lines().find(|line| {
            let name = line.split('|').nth(1).unwrap_or_default();
            name.contains(&format!("`{}`", row.name))
                || (name.contains("{pytorchjob") && row.gvk.group == "kubeflow.org" && name.contains(shared))
        });
        let line = line.unwrap_or_else(|| panic!("{} is not in the list", row.name));
        assert!(line.contains(&row.gvk.api_version()), "{line}");
        if let Some(suspend) = row.fields.suspend {
            assert!(line.contains(&dotted(suspend)), "{}: {line}", row.name);
        }
        if let Some(managed_by) = row.fields.managed_by {
            let same_as_above = line.contains("| same |");
            let built_in = format!("`{}`", managed_by.built_in);
            let named = line.contains(&dotted(managed_by.field)) && line.contains(&built_in);
            assert!(named || same_as_above, "{}: {line}", row.name);
        }
        found += 1;
    }
    assert_eq!(found, frameworks().len());
}
