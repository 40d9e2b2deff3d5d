//! Manifests that two clients apply, each under a name of its own: parts that have one owner as a whole are shared only while they
//! are equal, and an entry of a list is found by its key fields. What the server would add to either must be spelled out.

use crate::fixtures::manifests::{objects, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Fields whose values, or entries, are keyed or owned as a whole, with the one that the server adds where it is left out.
const COMPLETED: [(&str, &str); 5] = [
    ("ports", "protocol"),
    ("fieldRef", "apiVersion"),
    ("roleRef", "apiGroup"),
    ("serviceAccountToken", "expirationSeconds"),
    ("rules", "scope"),
];
/// Kinds with such fields. Rules of roles are others.
const KINDS: [&str; 7] = [
    "ClusterRoleBinding",
    "Deployment",
    "MutatingWebhookConfiguration",
    "NetworkPolicy",
    "RoleBinding",
    "Service",
    "ValidatingWebhookConfiguration",
];

/// Asserts that nothing is left to the server, and adds the fields that were found.
fn check(value: &Value, place: &str, found: &mut BTreeSet<&'static str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| check(item, place, found)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some((known, added)) = COMPLETED.iter().find(|(known, _)| *known == name.as_str()) {
                    let entries = field.as_array().map_or_else(|| vec![field], |all| all.iter().collect());
                    for entry in entries.into_iter().filter(|entry| entry.is_object()) {
                        assert!(entry.get(*added).is_some(), "{place}: {name} without {added}: {entry}");
                        found.insert(*known);
                    }
                }
                check(field, place, found);
            }
        }
        _ => {}
    }
}

#[test]
fn manifests_leave_no_shared_part_to_the_server() {
    let mut found = BTreeSet::new();
    for kind in KINDS {
        for (path, object) in objects(kind) {
            // Samples of jobs are created by one client.
            if !path.starts_with(root().join("config/samples")) {
                check(&object, &path.display().to_string(), &mut found);
            }
        }
    }
    assert_eq!(found, COMPLETED.iter().map(|(name, _)| *name).collect());
    let values = fs::read_to_string(root().join("charts/sluice/values.yaml")).unwrap();
    check(&serde_saphyr::from_str(&values).unwrap(), "values.yaml", &mut found);
}

fn templates(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            templates(&path, found);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "tpl") {
            found.push(path);
        }
    }
}

/// Templates are no YAML: the field stands within the lines after the one that begins a part.
#[test]
fn templates_leave_no_shared_part_to_the_server() {
    let (mut files, mut checked) = (Vec::new(), 0);
    templates(&root().join("charts/sluice/templates"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let named = index > 0 && lines[index - 1].starts_with("- name:");
            let is_port = line.starts_with("containerPort:")
                || line.starts_with("- port:")
                || (named && line.starts_with("port:"));
            let begun = line.trim_start_matches("- ").trim_end_matches(':');
            let part =
                COMPLETED.iter().find(|(name, _)| *name == begun && !["ports", "rules"].contains(name));
            let added = if is_port { Some("protocol") } else { part.map(|(_, added)| *added) };
            let Some(added) = added else { continue };
            let given = lines[index + 1..].iter().take(3).any(|next| next.starts_with(&format!("{added}:")));
            assert!(given, "{}:{}: {line} without {added}", file.display(), index + 1);
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} parts");
}
