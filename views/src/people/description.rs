//! `describe`: the fields of an object, its conditions as a timeline, and its events.
//!
//! Invariant: fields that an object lacks are left out.

use super::text_table::{Side, TextTable, printable};
use super::views::{Look, shortened, since};
use super::workload_object::{text_at, time_at};
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::Write as _;

/// A field: its label, and a text of one line.
type Field = (&'static str, String);

/// Returns the fields of an object of a kind of Kueue, or of a job, a line each.
pub fn fields_text(object: &Value) -> String {
    let mut fields = vec![("Name", text(object, "/metadata/name"))];
    fields.push(("Namespace", text(object, "/metadata/namespace")));
    fields.extend(match text_at(object, "/kind") {
        Some("Workload") => workload(object),
        Some("ClusterQueue") => cluster_queue(object),
        Some("LocalQueue") => vec![
            ("ClusterQueue", text(object, "/spec/clusterQueue")),
            ("Stop policy", text(object, "/spec/stopPolicy")),
        ],
        Some("Cohort") => vec![("Parent", text(object, "/spec/parentName"))],
        _ => vec![("Queue", text(object, "/metadata/labels/kueue.x-k8s.io~1queue-name"))],
    });
    fields.push(("Created", text(object, "/metadata/creationTimestamp")));
    let fields: Vec<Field> = fields.into_iter().filter(|(_, text)| !text.is_empty()).collect();
    let width = fields.iter().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
    let mut out = String::new();
    for (label, text) in fields {
        let _ = writeln!(out, "{label:width$}   {}", printable(&text));
    }
    out
}

fn text(object: &Value, pointer: &str) -> String {
    text_at(object, pointer).unwrap_or_default().to_owned()
}

fn workload(object: &Value) -> Vec<Field> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owner = |owner: &Value| format!("{} {}", text(owner, "/kind"), text(owner, "/name"));
    let owners: Vec<String> = owners.map(owner).collect();
    let class = text(object, "/spec/priorityClassRef/name");
    let priority = object.pointer("/spec/priority").map(Value::to_string).unwrap_or_default();
    let is_stopped = object.pointer("/spec/active") == Some(&Value::Bool(false));
    let mut fields = vec![
        ("Job", owners.join(", ")),
        ("Queue", text(object, "/spec/queueName")),
        ("Priority", if class.is_empty() { priority } else { format!("{priority} ({class})") }),
        ("Active", if is_stopped { "False: sluice resume workload".to_owned() } else { String::new() }),
    ];
    let sets = object.pointer("/spec/podSets").and_then(Value::as_array).into_iter().flatten();
    fields.extend(sets.map(|set| {
        let count = set.get("count").and_then(Value::as_u64).unwrap_or(1);
        let requests = requests(set);
        let each =
            if requests.is_empty() { String::new() } else { format!(", each {}", requests.join(", ")) };
        let pods = if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") };
        ("Pod set", format!("{}: {pods}{each}", text(set, "/name")))
    }));
    fields
}

/// Returns what the containers of a pod set's template request, one by one.
fn requests(set: &Value) -> Vec<String> {
    let containers = set.pointer("/template/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let requests = containers.filter_map(|container| container.pointer("/resources/requests")?.as_object());
    let amount = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    requests.flatten().map(|(resource, value)| format!("{} {resource}", amount(value))).collect()
}

fn cluster_queue(object: &Value) -> Vec<Field> {
    let preemption = object.pointer("/spec/preemption").and_then(Value::as_object).into_iter().flatten();
    let policies: Vec<String> = preemption
        .filter_map(|(field, value)| {
            let policy = value.as_str().or_else(|| value.get("policy")?.as_str())?;
            Some(format!("{field} {policy}"))
        })
        .collect();
    let selector = object.pointer("/spec/namespaceSelector");
    let namespaces = match selector.and_then(Value::as_object) {
        None => "none".to_owned(),
        Some(selector) if selector.is_empty() => "all".to_owned(),
        Some(selector) => Value::Object(selector.clone()).to_string(),
    };
    vec![
        ("Cohort", text(object, "/spec/cohortName")),
        ("Order", text(object, "/spec/queueingStrategy")),
        ("Preemption", policies.join(", ")),
        ("Namespaces", namespaces),
        ("Stop policy", text(object, "/spec/stopPolicy")),
        ("Weight", text(object, "/spec/fairSharing/weight")),
    ]
}

/// Returns the conditions in the order in which they changed; empty without any.
pub fn conditions(object: &Value, look: Look) -> String {
    let mut all: Vec<&Value> =
        object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten().collect();
    all.sort_by_key(|condition| time_at(condition, "/lastTransitionTime"));
    let columns = ["CONDITION", "STATUS", "REASON"].map(|heading| (heading, Side::Left));
    let mut table =
        TextTable::new([("SINCE", Side::Right)].into_iter().chain(columns).chain([("MESSAGE", Side::Left)]));
    for condition in all {
        table.push([
            since(time_at(condition, "/lastTransitionTime"), look),
            text(condition, "/type"),
            text(condition, "/status"),
            text(condition, "/reason"),
            shortened(&text(condition, "/message")),
        ]);
    }
    if table.is_empty() { String::new() } else { look.show(&table) }
}

/// Returns when an event happened last.
pub fn event_time(event: &Value) -> Option<Timestamp> {
    ["/lastTimestamp", "/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"]
        .iter()
        .find_map(|pointer| time_at(event, pointer))
}

/// Returns events, the oldest first; a line if there are none, or if the user may not read them.
pub fn events(events: Option<&[Value]>, look: Look) -> String {
    let Some(events) = events else { return "Events: (forbidden)\n".to_owned() };
    if events.is_empty() {
        return "Events: none\n".to_owned();
    }
    let mut ordered: Vec<&Value> = events.iter().collect();
    ordered.sort_by_key(|event| event_time(event));
    let columns =
        [("AGE", Side::Right), ("TYPE", Side::Left), ("EVENT", Side::Left), ("MESSAGE", Side::Left)];
    let mut table = TextTable::new(columns);
    for event in ordered {
        let count = event.get("count").and_then(Value::as_u64).filter(|count| *count > 1);
        let times = count.map(|count| format!(" (x{count})")).unwrap_or_default();
        table.push([
            format!("{}{times}", since(event_time(event), look)),
            text(event, "/type"),
            text(event, "/reason"),
            shortened(&text(event, "/message")),
        ]);
    }
    look.show(&table)
}
