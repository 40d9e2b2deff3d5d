//! Sluice's definitions are Kueue's, but for the differences that are listed here.

use serde_json::Value;
use sluice::api::crd;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Differences from Kueue's definitions, by kind and end of the path, with the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("workloadpriorityclasses", "/subresources", "an empty list of subresources has no effect"),
    ("", "/deprecationWarning", "the warning names the kind"),
    ("multikueueconfigs", "/deprecated", "v1beta1 of this kind ends as well"),
];

/// Compares the definitions with those in this folder.
pub(crate) fn match_kueue(reference: &Path) {
    let mut unexplained = Vec::new();
    let mut needed = BTreeSet::new();
    let added = crd::v1beta1::versions().unwrap();
    for (name, mut ours) in crd::definitions().unwrap() {
        let text = fs::read_to_string(reference.join(&name)).unwrap();
        let theirs: Value = serde_saphyr::from_str(&text).unwrap();
        let (_, v1beta1) = added.iter().find(|(plural, _)| name.contains(&format!("_{plural}."))).unwrap();
        ours["spec"]["versions"].as_array_mut().unwrap().insert(0, v1beta1.clone());
        let mut differences = Vec::new();
        compare("", &ours["spec"], &theirs["spec"], &mut differences);
        for (path, text) in differences {
            match DIFFERENCES.iter().position(|(kind, known, _)| name.contains(kind) && path.ends_with(known))
            {
                Some(entry) => drop(needed.insert(entry)),
                None => unexplained.push(format!("{name}{path}: {text}")),
            }
        }
    }
    assert!(unexplained.is_empty(), "not in the table of differences:\n{}", unexplained.join("\n"));
    for (entry, difference) in DIFFERENCES.iter().enumerate() {
        assert!(needed.contains(&entry), "obsolete difference: {difference:?}");
    }
}

/// Compares every node, but not descriptions, which are Sluice's own, nor the pod template, which has its own test.
fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<(String, String)>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) if b.contains_key("x-embedded") => {
            assert_eq!(a["type"], "object");
        }
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                if key == "description" && !path.ends_with("/properties") {
                    continue;
                }
                let child_path = format!("{path}/{key}");
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => compare(&child_path, x, y, differences),
                    (x, y) => differences.push((child_path, format!("ours {x:?}, Kueue's {y:?}"))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs: Vec<(&Value, &Value)> = a.iter().zip(b).collect();
            let (mut left, mut right) = (a.clone(), b.clone());
            if path.ends_with("/enum") || path.ends_with("/required") {
                left.sort_by_key(ToString::to_string);
                right.sort_by_key(ToString::to_string);
                pairs = left.iter().zip(&right).collect();
            }
            for (index, (x, y)) in pairs.into_iter().enumerate() {
                compare(&format!("{path}/{index}"), x, y, differences);
            }
        }
        _ if ours == theirs => {}
        _ if path.ends_with("/rule") && without_whitespace(ours) == without_whitespace(theirs) => {}
        _ => differences.push((path.to_owned(), format!("ours {ours}, Kueue's {theirs}"))),
    }
}

/// A CEL rule without spaces.
fn without_whitespace(rule: &Value) -> String {
    rule.as_str().unwrap_or_default().chars().filter(|c| !c.is_whitespace()).collect()
}
