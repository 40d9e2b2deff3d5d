//! Alerts, dashboards and the ServiceMonitor: their form, the documentation of each alert, and promtool's unit tests.

use regex::Regex;
use serde_json::{Value, json};
use sluice::api::config::Configuration;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manifest(name: &str) -> Value {
    let text = fs::read_to_string(root().join("config/prometheus").join(name)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// All alerts.
pub(crate) fn alerts() -> Vec<Value> {
    let groups = manifest("rules.yaml")["spec"]["groups"].as_array().unwrap().clone();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// All dashboards with the names of their files.
pub(crate) fn dashboards() -> Vec<(String, Value)> {
    let files = fs::read_dir(root().join("dashboards")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<(String, Value)> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).keys().map(String::as_str).collect()
}

/// Checks that an object has all of the required fields and no field that is not listed.
fn check_fields(value: &Value, required: &[&str], optional: &[&str]) {
    let found = keys(value);
    for field in required {
        assert!(found.contains(field), "{field} is missing in {value}");
    }
    for field in found {
        assert!(required.contains(&field) || optional.contains(&field), "{field} in {value}");
    }
}

#[test]
fn prometheus_rule_has_the_operators_form() {
    let rule = manifest("rules.yaml");
    check_fields(&rule, &["apiVersion", "kind", "metadata", "spec"], &[]);
    assert_eq!(
        (&rule["apiVersion"], &rule["kind"]),
        (&json!("monitoring.coreos.com/v1"), &json!("PrometheusRule"))
    );
    check_fields(&rule["spec"], &["groups"], &[]);
    let time = Regex::new("^[0-9]+(s|m|h)$").unwrap();
    let mut names = BTreeSet::new();
    for group in rule["spec"]["groups"].as_array().unwrap() {
        check_fields(group, &["name", "rules"], &["interval"]);
    }
    for alert in alerts() {
        check_fields(&alert, &["alert", "expr", "for", "labels", "annotations"], &[]);
        let name = alert["alert"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{name} occurs twice");
        assert!(time.is_match(alert["for"].as_str().unwrap()), "{name}");
        check_fields(&alert["labels"], &["severity"], &[]);
        assert!(["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap()), "{name}");
        check_fields(&alert["annotations"], &["summary", "description", "runbook"], &[]);
        let anchor = format!("docs/operate.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], anchor.as_str(), "{name}");
    }
}

#[test]
fn service_monitor_selects_the_metrics_service() {
    let monitor = manifest("service_monitor.yaml");
    check_fields(&monitor, &["apiVersion", "kind", "metadata", "spec"], &[]);
    assert_eq!(
        (&monitor["apiVersion"], &monitor["kind"]),
        (&json!("monitoring.coreos.com/v1"), &json!("ServiceMonitor"))
    );
    check_fields(&monitor["spec"], &["selector", "endpoints"], &[]);
    let text = fs::read_to_string(root().join("config/metrics/service.yaml")).unwrap();
    let service: Value = serde_saphyr::from_str(&text).unwrap();
    check_fields(&monitor["spec"]["selector"], &["matchLabels"], &[]);
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][label], value, "{label}");
    }
    assert_eq!(monitor["metadata"]["namespace"], service["metadata"]["namespace"]);
    let endpoint = &monitor["spec"]["endpoints"][0];
    check_fields(endpoint, &["port", "path", "scheme", "authorization", "honorLabels", "tlsConfig"], &[]);
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    // A file of Prometheus would be refused by an operator that forbids access to files.
    let token = json!({"name": "kueue-metrics-scraper-token", "key": "token"});
    assert_eq!(endpoint["authorization"], json!({"type": "Bearer", "credentials": token}));
    check_fields(&endpoint["tlsConfig"], &["serverName", "ca"], &[]);
    // `certificate_names_cover_both_services` compares the Service with the names of the certificate.
    let part = |field: &str| service["metadata"][field].as_str().unwrap().to_owned();
    assert_eq!(endpoint["tlsConfig"]["serverName"], format!("{}.{}.svc", part("name"), part("namespace")));
    // A Secret would have the private key beside the authority.
    let secret = Configuration::default().internal_cert_management.webhook_secret_name;
    let authority = json!({"configMap": {"name": format!("{secret}-ca-bundle"), "key": "ca.crt"}});
    assert_eq!(endpoint["tlsConfig"]["ca"], authority);
    let text = fs::read_to_string(root().join("config/webhooks/service.yaml")).unwrap();
    let webhooks: Value = serde_saphyr::from_str(&text).unwrap();
    let selected = &monitor["spec"]["selector"]["matchLabels"];
    let component = "app.kubernetes.io/component";
    assert_ne!(
        webhooks["metadata"]["labels"][component], selected[component],
        "the webhooks serve no metrics"
    );
}

#[test]
fn each_alert_is_described() {
    let text = fs::read_to_string(root().join("docs/operate.md")).unwrap();
    let (_, section) = text.split_once("\n## Alerts\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let described: Vec<(&str, &str)> =
        section.split("\n### ").skip(1).map(|part| part.split_once('\n').unwrap()).collect();
    let names: Vec<String> = alerts().iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();
    assert_eq!(described.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    for (name, body) in described {
        for part in ["- **Meaning:** ", "- **Confirm:** ", "- **Do:** "] {
            assert_eq!(body.matches(part).count(), 1, "{name}: {part}");
        }
    }
}

/// Panels are complete, do not overlap, and use only variables that exist.
#[test]
fn dashboards_are_complete() {
    let variable = Regex::new(r"\$\{?([a-z_]+)").unwrap();
    let all = dashboards();
    assert_eq!(
        all.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(),
        ["operations.json", "queues.json"]
    );
    for (file, dashboard) in all {
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 38, "{file}: the schema of Grafana 10");
        assert!(dashboard["uid"].as_str().unwrap().starts_with("sluice-"), "{file}");
        let listed = dashboard["templating"]["list"].as_array().unwrap();
        let defined: BTreeSet<&str> =
            listed.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert!(defined.contains("datasource"), "{file}");
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{file}: {title}");
            let position = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            for x in position("x")..position("x") + position("w") {
                for y in position("y")..position("y") + position("h") {
                    assert!(x < 24 && cells.insert((x, y)), "{file}: {title} overlaps another panel");
                }
            }
            if panel["type"] == "row" {
                continue;
            }
            let described = panel["description"].as_str().is_some_and(|text| text.len() > 10);
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().is_some_and(|unit| !unit.is_empty());
            assert!(described && unit, "{file}: {title} needs a description and a unit");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{file}: {title}");
            for target in targets {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{file}: {title}");
                for used in variable.captures_iter(target["expr"].as_str().unwrap()) {
                    assert!(
                        defined.contains(&used[1]) || &used[1] == "__rate_interval",
                        "{file}: {title}: {}",
                        &used[1]
                    );
                }
            }
        }
    }
}

/// promtool from the PATH, or the one that `make metrics-test` unpacks.
fn promtool() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let programs = [PathBuf::from("promtool"), target.join("prometheus/usr/bin/promtool")];
    let works = |program: &PathBuf| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    programs.into_iter().find(works)
}

/// The unit tests of the alerts pass, and fail without the alerts.
#[test]
fn promtool_tests_pass() {
    let Some(program) = promtool() else {
        println!("skipped: no promtool on the PATH; `make metrics-test` unpacks one");
        return;
    };
    let folder = root().join("target").join(format!("promtool-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let tests = root().join("config/prometheus/tests/alerts.yaml");
    fs::copy(tests, folder.join("alerts.yaml")).unwrap();
    let run = |rules: &Value| {
        // JSON is YAML.
        fs::write(folder.join("rules.yaml"), rules.to_string()).unwrap();
        let output = Command::new(&program)
            .args(["test", "rules", "alerts.yaml"])
            .current_dir(&folder)
            .output()
            .unwrap();
        (
            output.status.success(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    let rules = manifest("rules.yaml")["spec"].clone();
    let (passes, output) = run(&rules);
    let mut unnoticed = Vec::new();
    for index in 0..alerts().len() {
        let mut without = rules.clone();
        let removed = without["groups"][0]["rules"].as_array_mut().unwrap().remove(index);
        if run(&without).0 {
            unnoticed.push(removed["alert"].clone());
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(passes, "{output}");
    assert!(unnoticed.is_empty(), "no test fails without {unnoticed:?}");
}
