//! Finished Workloads, reduced to what an estimate reads of them: a cluster may have many, and only their runs count.

use serde_json::Value;

/// A field that is kept, and the fields below it that are kept; all of them if none is named.
struct Kept(&'static str, &'static [Kept]);

const CONTAINER: &[Kept] = &[Kept("name", &[]), Kept("resources", &[]), Kept("restartPolicy", &[])];
const POD: &[Kept] = &[
    Kept("containers", CONTAINER),
    Kept("initContainers", CONTAINER),
    Kept("overhead", &[]),
    Kept("resources", &[]),
];
const POD_SET: &[Kept] = &[Kept("name", &[]), Kept("count", &[]), Kept("template", &[Kept("spec", POD)])];
const ASSIGNMENT: &[Kept] = &[Kept("name", &[]), Kept("count", &[])];
const CONDITION: &[Kept] =
    &[Kept("type", &[]), Kept("status", &[]), Kept("reason", &[]), Kept("lastTransitionTime", &[])];
const WORKLOAD: &[Kept] = &[
    Kept("apiVersion", &[]),
    Kept("kind", &[]),
    Kept("metadata", &[Kept("name", &[]), Kept("namespace", &[]), Kept("uid", &[])]),
    Kept("spec", &[Kept("queueName", &[]), Kept("podSets", POD_SET)]),
    Kept(
        "status",
        &[Kept("admission", &[Kept("podSetAssignments", ASSIGNMENT)]), Kept("conditions", CONDITION)],
    ),
];

/// Drops the fields of a finished Workload that no estimate reads.
pub fn reduce_finished(workload: &mut Value) {
    reduce(workload, WORKLOAD);
}

fn reduce(value: &mut Value, kept: &[Kept]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| reduce(item, kept)),
        Value::Object(fields) if !kept.is_empty() => fields.retain(|name, field| {
            let Some(Kept(_, below)) = kept.iter().find(|Kept(known, _)| *known == name.as_str()) else {
                return false;
            };
            reduce(field, below);
            true
        }),
        _ => {}
    }
}
