//! The families on the metrics page compared with Kueue's documentation: name, type, labels and bounds.

use crate::fixtures::metrics_page::{KUEUE, page_of_everything};
use sluice::metrics::model::MetricFamilies;
use std::collections::{BTreeMap, BTreeSet};

/// Description of a family on the page.
#[derive(Debug, Default, PartialEq, Eq)]
struct FamilyDescription {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<String>,
}

/// Parses the families of a page in Prometheus' text format.
fn parse_families(page: &str) -> BTreeMap<String, FamilyDescription> {
    let mut all: BTreeMap<String, FamilyDescription> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            let previous = all.insert(
                current.clone(),
                FamilyDescription { kind: kind.to_owned(), ..FamilyDescription::default() },
            );
            assert_eq!(previous, None, "{name} occurs twice");
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let family = all.get_mut(&current).unwrap();
            let labels = labels.rsplit_once('}').unwrap().0;
            for label in labels.split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                if name == "le" {
                    family.bounds.push(value.trim_end_matches('"').to_owned());
                } else {
                    family.labels.insert(name.to_owned());
                }
            }
        }
    }
    all
}

#[test]
fn metric_families_match_kueue() {
    let families = MetricFamilies {
        cluster_queue_resources: true,
        local_queues: true,
        cohorts: true,
        creation_latency: true,
    };
    let page = page_of_everything(families);
    let mut remaining = parse_families(&page);
    remaining.retain(|name, _| name.starts_with("kueue_"));
    for line in KUEUE.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let name = format!("kueue_{}", parts[0]);
        let family = remaining.remove(&name).unwrap_or_else(|| panic!("{name} is missing in\n{page}"));
        let mut labels: BTreeSet<String> = parts[1].split(' ').map(str::to_owned).collect();
        if parts[0] != "build_info" {
            labels.insert("replica_role".to_owned());
        }
        assert_eq!(family.labels, labels, "{name}");
        let mut kind = parts[2].split(' ');
        assert_eq!(Some(family.kind.as_str()), kind.next(), "{name}");
        if let (Some(number), Some(last)) = (kind.next(), kind.next()) {
            let finite: Vec<f64> = family.bounds.iter().filter_map(|le| le.parse().ok()).collect();
            let finite: Vec<f64> = finite.into_iter().filter(|le| le.is_finite()).collect();
            assert_eq!(finite.len(), number.parse::<usize>().unwrap(), "{name}: {finite:?}");
            assert!(
                (finite[finite.len() - 1] - last.parse::<f64>().unwrap()).abs() < 1e-9,
                "{name}: {finite:?}"
            );
        }
    }
    assert_eq!(
        remaining.keys().collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "families with Kueue's prefix that Kueue does not have"
    );
}
