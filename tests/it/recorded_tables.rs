//! The recorded tables, function by function. They lie beside the repository; without them the tests are skipped.

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use sluice::frameworks::workload_name;
use sluice::resources::{self, Quantity};
use std::io::Read as _;
use std::path::PathBuf;

/// Lines of a recorded table, or `None`, with a printed line, if it is missing.
fn read_table(name: &str) -> Option<Vec<Value>> {
    let shared = std::env::var_os("SLUICE_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("conformance/tables").join(format!("{name}.jsonl.gz"));
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: no recorded table {name}");
        return None;
    };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect())
}

fn check_table(name: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let Some(lines) = read_table(name) else { return };
    let wrong: Vec<String> = lines
        .iter()
        .filter_map(|line| check(line).err().map(|problem| format!("{problem}\n  in {line}")))
        .collect();
    println!("{name}: {} of {} lines agree", lines.len() - wrong.len(), lines.len());
    assert!(
        wrong.is_empty(),
        "{} lines differ, first ones:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(name: &str, actual: &T, expected: &T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("{name}: got {actual:?}, want {expected:?}")) }
}

#[test]
fn quantities_match_recorded_table() {
    check_table("quantity", |line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        if line.get("a").is_some() {
            let (a, b) = (Quantity::parse(&text("a")).unwrap(), Quantity::parse(&text("b")).unwrap());
            expect_equal("cmp", &a.cmp(&b), &line["cmp"].as_i64().unwrap().cmp(&0))?;
            expect_equal("sum", &a.plus(&b).to_string(), &text("sum"))?;
            return expect_equal("difference", &a.minus(&b).to_string(), &text("difference"));
        }
        let parsed = Quantity::parse(&text("text"));
        if line.get("error").is_some() {
            return expect_equal("error", &parsed.is_err(), &true);
        }
        let quantity = parsed.map_err(|error| error.to_string())?;
        expect_equal("canonical", &quantity.to_string(), &text("canonical"))?;
        expect_equal("value", &quantity.value(), &line["value"].as_i64().unwrap())?;
        expect_equal("milli", &quantity.milli(), &line["milli"].as_i64().unwrap())?;
        expect_equal("sign", &i64::from(quantity.sign()), &line["sign"].as_i64().unwrap())
    });
}

#[test]
fn workload_names_match_recorded_table() {
    check_table("workload-name", |line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let extra = line.get("extra").and_then(Value::as_str);
        let name = workload_name(text("group"), text("kind"), text("name"), text("uid"), extra);
        expect_equal("name", &name.as_str(), &text("workload"))
    });
}

#[test]
fn pod_requests_match_recorded_table() {
    check_table("pod-requests", |line| {
        let set = &line["podSet"];
        let spec: PodSpec =
            serde_json::from_value(set["template"]["spec"].clone()).map_err(|e| e.to_string())?;
        let reclaimed = line["reclaimable"].as_array().into_iter().flatten();
        let reclaimed: i64 =
            reclaimed.filter(|pod| pod["name"] == set["name"]).filter_map(|p| p["count"].as_i64()).sum();
        let count = i32::try_from(set["count"].as_i64().unwrap()).unwrap();
        let count = resources::without_reclaimable(count, i32::try_from(reclaimed).unwrap());
        expect_equal("count", &i64::from(count), &line["total"]["count"].as_i64().unwrap())?;
        let total = resources::total_requests(&resources::pod_requests(&spec), count);
        let actual: serde_json::Map<String, Value> =
            total.iter().map(|(name, amount)| (name.to_string(), amount.get().into())).collect();
        expect_equal("requests", &Value::Object(actual), &line["total"]["requests"])
    });
}
