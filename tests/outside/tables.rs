//! The recorded tables of functions: what Kueue and Kubernetes make of the same arguments.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use sluice::frameworks::workload_name;
use sluice::resources::{self, Quantity};
use std::path::Path;

fn check_table(table: &Path, check: impl Fn(&Value) -> Result<(), String>) {
    let lines = sluice_recorded::documents(table).expect("a table");
    let wrong: Vec<String> = lines
        .iter()
        .filter_map(|line| check(line).err().map(|problem| format!("{problem}\n  in {line}")))
        .collect();
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

pub(crate) fn quantities_match(table: &Path) {
    check_table(table, |line| {
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

pub(crate) fn workload_names_match(table: &Path) {
    check_table(table, |line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let extra = line.get("extra").and_then(Value::as_str);
        let name = workload_name(text("group"), text("kind"), text("name"), text("uid"), extra);
        expect_equal("name", &name.as_str(), &text("workload"))
    });
}

pub(crate) fn pod_requests_match(table: &Path) {
    check_table(table, |line| {
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
