//! The metrics and labels that alerts and dashboards name exist: in Kueue's list or in docs/metrics.md, each of which another
//! test compares with what is exported.

use crate::fixtures::metrics_page::KUEUE;
use crate::manifests::monitoring::{alerts, dashboards};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus adds to each series of a target.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];

/// Labels by name of a series; a histogram has three names.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::from([("up".to_owned(), BTreeSet::new())]);
    let mut add = |name: &str, kind: &str, labels: BTreeSet<String>| {
        if kind.starts_with("histogram") {
            for suffix in ["bucket", "sum", "count"] {
                let mut labels = labels.clone();
                labels.extend((suffix == "bucket").then(|| "le".to_owned()));
                all.insert(format!("{name}_{suffix}"), labels);
            }
        } else {
            all.insert(name.to_owned(), labels);
        }
    };
    for line in KUEUE.lines().filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = line.split(" | ").collect();
        let labels = columns[1].split(' ').chain(["replica_role"]).map(str::to_owned);
        add(&format!("kueue_{}", columns[0]), columns[2], labels.collect());
    }
    for row in include_str!("../../../docs/metrics.md").lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, row) = row.split_once("` | ").unwrap();
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = columns[1].split(", ").filter(|label| !label.is_empty());
        add(name, columns[0], labels.map(|label| label.trim_matches('`').to_owned()).collect());
    }
    for labels in all.values_mut() {
        labels.extend(TARGET_LABELS.map(str::to_owned));
    }
    all
}

/// Returns what a query names and does not exist.
fn unknown_names(query: &str, series: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let name = Regex::new(r"\b((?:kueue|sluice|process)_[a-z_]+|up)\b(?:\{([^}]*)\})?").unwrap();
    let grouping = Regex::new(r"\b(?:by|on|ignoring|without|group_left|group_right) ?\(([^)]*)\)").unwrap();
    let matcher = Regex::new(r#"([a-z_]+)(?:=~|!~|!=|=)"[^"]*""#).unwrap();
    let (mut unknown, mut labels) = (Vec::new(), BTreeSet::new());
    for found in name.captures_iter(query) {
        let Some(known) = series.get(&found[1]) else {
            unknown.push(found[1].to_owned());
            continue;
        };
        labels.extend(known);
        let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
        let wrong = matcher.captures_iter(matchers).filter(|matcher| !known.contains(&matcher[1]));
        unknown.extend(wrong.map(|matcher| format!("{}{{{}}}", &found[1], &matcher[1])));
    }
    if labels.is_empty() && unknown.is_empty() {
        unknown.push(format!("no metric in {query}"));
    }
    for found in grouping.captures_iter(query) {
        let names = found[1].split(',').map(str::trim).filter(|name| !name.is_empty());
        unknown.extend(
            names.filter(|name| !labels.contains(&(*name).to_owned())).map(|name| format!("by {name}")),
        );
    }
    unknown
}

#[test]
fn queries_name_exported_metrics_and_labels() {
    let series = series();
    let call = Regex::new(r"^label_values\((.+), ([a-z_]+)\)$").unwrap();
    let mut queries: Vec<(String, String)> =
        alerts().iter().map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect();
    for (file, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().unwrap() {
            let targets = panel["targets"].as_array().into_iter().flatten();
            queries
                .extend(targets.map(|target| (format!("{file}: {}", panel["title"]), text(&target["expr"]))));
        }
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            if variable["type"] == "query" {
                let query = text(&variable["query"]["query"]);
                let parts = call.captures(&query).unwrap_or_else(|| panic!("{query}"));
                queries.push((
                    format!("{file}: ${}", variable["name"]),
                    format!("sum by ({}) ({})", &parts[2], &parts[1]),
                ));
            }
        }
    }
    assert!(queries.len() > 60, "{} queries", queries.len());
    let wrong: Vec<String> = queries
        .iter()
        .map(|(place, query)| (place, unknown_names(query, &series)))
        .filter(|(_, unknown)| !unknown.is_empty())
        .map(|(place, unknown)| format!("{place}: {}", unknown.join(", ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The check itself finds each kind of mistake.
#[test]
fn unknown_names_are_found() {
    let series = series();
    let cases = [
        ("sum by (cluster_queue) (kueue_pending_workloads)", ""),
        ("sum(kueue_pendin_workloads)", "kueue_pendin_workloads"),
        (r#"kueue_pending_workloads{queue="a"}"#, "kueue_pending_workloads{queue}"),
        ("sum by (queue) (kueue_pending_workloads)", "by queue"),
        ("rate(sluice_review_duration_seconds[5m])", "sluice_review_duration_seconds"),
        (
            "rate(sluice_review_duration_seconds_count{le=\"1\"}[5m])",
            "sluice_review_duration_seconds_count{le}",
        ),
        ("vector(1)", "no metric in vector(1)"),
    ];
    for (query, expected) in cases {
        assert_eq!(unknown_names(query, &series).join(", "), expected, "{query}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
