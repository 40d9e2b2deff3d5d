//! Topology assignments: v1beta1 lists each domain with all its values, v1beta2 compresses them to slices.

use super::{ConversionError, Fields, Version, set, take};
use crate::api::v1beta2::TopologyAssignment;
use crate::topology::{DomainPath, Placement, decode, encode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of values that the assignments of one Workload are expanded to, enough for a hundred thousand nodes with
/// five levels. A few bytes of a slice can stand for many.
pub(super) const MAX_VALUES: i64 = 500_000;

/// A domain of v1beta1.
#[derive(Deserialize)]
struct Domain {
    #[serde(default)]
    values: Vec<Arc<str>>,
    #[serde(default)]
    count: i32,
}

/// Converts an assignment in place. `path` is that of its field; `values` is what it may be expanded to, and is reduced.
pub(super) fn assignment(
    fields: &mut Fields,
    to: Version,
    path: &str,
    values: &mut i64,
) -> Result<(), ConversionError> {
    match to {
        Version::V1beta1 if fields.contains_key("slices") => expand(fields, path, values),
        Version::V1beta2 if fields.contains_key("domains") => compress(fields, path),
        Version::V1beta1 | Version::V1beta2 => Ok(()),
    }
}

fn expand(fields: &mut Fields, path: &str, left: &mut i64) -> Result<(), ConversionError> {
    let levels = fields.get("levels").cloned().unwrap_or_else(|| json!([]));
    let compressed =
        json!({ "levels": levels, "slices": take(fields, "slices").unwrap_or_else(|| json!([])) });
    let field = || format!("{path}.slices");
    let compressed = TopologyAssignment::deserialize(compressed)
        .map_err(|error| ConversionError::new(field(), error.to_string()))?;
    let domains: i64 = compressed.slices.iter().map(|slice| i64::from(slice.domain_count.max(0))).sum();
    let levels = i64::try_from(compressed.levels.len()).unwrap_or(i64::MAX);
    *left = left.saturating_sub(domains.saturating_mul(levels));
    if *left < 0 {
        let detail =
            format!("{domains} domains of {levels} levels: a Workload has more than {MAX_VALUES} values");
        return Err(ConversionError::new(field(), detail));
    }
    let Some(placement) = decode(&compressed) else {
        let detail = "the numbers of domains, values and counts contradict each other";
        return Err(ConversionError::new(field(), detail));
    };
    let domains = placement.domains.iter().map(|(values, count)| {
        let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
        json!({ "values": values, "count": count })
    });
    set(fields, "domains", domains.collect::<Vec<Value>>());
    Ok(())
}

fn compress(fields: &mut Fields, path: &str) -> Result<(), ConversionError> {
    let invalid = |field: &str, detail: String| ConversionError::new(format!("{path}.{field}"), detail);
    let levels =
        fields.get("levels").filter(|levels| !levels.is_null()).cloned().unwrap_or_else(|| json!([]));
    let levels: DomainPath = Deserialize::deserialize(levels)
        .map_err(|error: serde_json::Error| invalid("levels", error.to_string()))?;
    let domains = Vec::<Domain>::deserialize(take(fields, "domains").unwrap_or_else(|| json!([])))
        .map_err(|error| invalid("domains", error.to_string()))?;
    if let Some((index, domain)) =
        domains.iter().enumerate().find(|(_, domain)| domain.values.len() != levels.len())
    {
        let detail = format!("{} values for {} levels", domain.values.len(), levels.len());
        return Err(invalid(&format!("domains[{index}].values"), detail));
    }
    let domains = domains.into_iter().map(|domain| (DomainPath::from(domain.values), domain.count)).collect();
    let compressed = encode(&Placement { levels, domains });
    let slices =
        serde_json::to_value(compressed.slices).map_err(|error| invalid("domains", error.to_string()))?;
    set(fields, "slices", slices);
    Ok(())
}
