//! `tree job`: a job with its Workloads, their admission checks and pod sets, and the pods by node.
//!
//! Invariant: it is made of objects alone; a part that the user may not read is named as such.

use super::text_table::{Side, TextTable, Tone};
use super::views::Look;
use super::workload_object::{WorkloadState, condition, is_true, text_at, time_at};
use crate::api::names::POD_SET_LABEL;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A part that may not be readable.
#[derive(Clone, Debug)]
pub enum Part {
    /// The objects.
    Read(Vec<Value>),
    /// The user may not read them.
    Forbidden,
}

/// A job and what belongs to it.
#[derive(Clone, Debug)]
pub struct JobParts {
    /// Owner of the Workload, such as `Job train` or `pod group train`.
    pub name: String,
    /// The job; `None` for a Workload without one.
    pub job: Option<Value>,
    /// Workloads of the job.
    pub workloads: Vec<Value>,
    /// ProvisioningRequests of these Workloads.
    pub provisioning: Part,
    /// The pods.
    pub pods: Part,
    /// Problems of nodes, by the name of the node.
    pub nodes: BTreeMap<String, &'static str>,
    /// Topology domains of nodes above the host, by the name of the node, as far as they are known.
    pub domains: BTreeMap<String, String>,
}

/// Most nodes of a domain that are named.
const MAX_NAMED: usize = 8;

/// A line of the tree, and the lines below it.
#[derive(Clone, Debug, Default)]
struct Branch {
    label: String,
    state: String,
    detail: String,
    tone: Tone,
    uid: String,
    below: Vec<Branch>,
}

/// Returns the tree; `uids` adds the UIDs of objects.
pub fn job_tree(parts: &JobParts, uids: bool, look: Look) -> String {
    let mut columns = vec![("", Side::Left); 3];
    if uids {
        columns.push(("", Side::Whole));
    }
    let mut table = TextTable::new(columns);
    add(&mut table, &root(parts, look), ("", ""), (uids, look.utf8));
    look.without_headings().show(&table)
}

/// Adds a branch. `lead` precedes its label, `below` the lines below it.
fn add(table: &mut TextTable, branch: &Branch, (lead, below): (&str, &str), (uids, utf8): (bool, bool)) {
    let mut cells = vec![format!("{lead}{}", branch.label), branch.state.clone(), branch.detail.clone()];
    if uids {
        cells.push(branch.uid.clone());
    }
    table.push_toned(cells, 1, branch.tone);
    let (middle, last, line) = if utf8 { ("├─ ", "└─ ", "│  ") } else { ("|- ", "`- ", "|  ") };
    for (number, child) in branch.below.iter().enumerate() {
        let is_last = number + 1 == branch.below.len();
        let lead = format!("{below}{}", if is_last { last } else { middle });
        let below = format!("{below}{}", if is_last { "   " } else { line });
        add(table, child, (&lead, &below), (uids, utf8));
    }
}

fn root(parts: &JobParts, look: Look) -> Branch {
    let mut root = Branch {
        label: parts.name.clone(),
        below: parts.workloads.iter().map(|workload| of_workload(workload, parts, look)).collect(),
        ..Branch::default()
    };
    if let Some(job) = &parts.job {
        (root.state, root.tone) = job_state(job);
        root.uid = uid(job);
        let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_u64);
        if let Some(ready) = number("/status/ready") {
            let all = number("/spec/parallelism").unwrap_or(ready);
            root.detail = format!("{ready}/{all} ready");
        }
    }
    root
}

fn uid(object: &Value) -> String {
    text_at(object, "/metadata/uid").unwrap_or_default().to_owned()
}

/// Returns the state of a job of any kind, from its status.
fn job_state(job: &Value) -> (String, Tone) {
    let holds = |names: &[&str]| names.iter().any(|name| is_true(job, name));
    let is_suspended = ["/spec/suspend", "/spec/runPolicy/suspend"]
        .iter()
        .any(|pointer| job.pointer(pointer) == Some(&Value::Bool(true)));
    let phase = text_at(job, "/status/phase").map(str::to_lowercase);
    let (state, tone) = if holds(&["Failed"]) {
        ("failed", Tone::Bad)
    } else if holds(&["Complete", "Completed", "Succeeded", "Finished"]) {
        ("finished", Tone::Plain)
    } else if is_suspended {
        ("suspended", Tone::Waiting)
    } else {
        return (phase.unwrap_or_else(|| "running".to_owned()), Tone::Good);
    };
    (state.to_owned(), tone)
}

fn of_workload(workload: &Value, parts: &JobParts, look: Look) -> Branch {
    let name = text_at(workload, "/metadata/name").unwrap_or_default();
    let state = WorkloadState::of(workload);
    let is_evicted = is_true(workload, "Evicted") && is_true(workload, "QuotaReserved");
    let since =
        |kind: &str| condition(workload, kind).and_then(|found| time_at(found, "/lastTransitionTime"));
    let time = |kind: &str| super::views::since(since(kind), look);
    let queue = text_at(workload, "/status/admission/clusterQueue");
    let local = text_at(workload, "/spec/queueName").unwrap_or("-");
    let reason = condition(workload, "QuotaReserved").and_then(|found| text_at(found, "/reason"));
    let (word, tone, detail) = match (state, queue) {
        _ if is_evicted => ("Evicted", Tone::Bad, format!("LocalQueue {local}, {}", time("Evicted"))),
        (WorkloadState::Finished, _) => ("Finished", Tone::Plain, format!("{} ago", time("Finished"))),
        (WorkloadState::Admitted, Some(queue)) => {
            ("Admitted", Tone::Good, format!("ClusterQueue {queue}, {}", time("Admitted")))
        }
        (WorkloadState::QuotaReserved, Some(queue)) => {
            ("QuotaReserved", Tone::Waiting, format!("ClusterQueue {queue}, {}", time("QuotaReserved")))
        }
        _ => {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            ("Pending", Tone::Waiting, format!("LocalQueue {local}{reason}"))
        }
    };
    let mut below = checks(workload, &parts.provisioning, look);
    below.extend(worker(workload));
    below.extend(pod_sets(workload, parts));
    Branch {
        label: format!("Workload {name}"),
        state: word.to_owned(),
        detail,
        tone,
        uid: uid(workload),
        below,
    }
}

fn checks(workload: &Value, provisioning: &Part, look: Look) -> Vec<Branch> {
    let reserved =
        condition(workload, "QuotaReserved").and_then(|found| time_at(found, "/lastTransitionTime"));
    let all = workload.pointer("/status/admissionChecks").and_then(Value::as_array).into_iter().flatten();
    all.map(|check| {
        let text = |pointer: &str| text_at(check, pointer).unwrap_or_default().to_owned();
        let (name, state) = (text("/name"), text("/state"));
        let took = time_at(check, "/lastTransitionTime").zip(reserved).map(|(ready, reserved)| {
            format!("after {}", super::views::since(Some(reserved), Look { now: ready, ..look }))
        });
        let detail = if state == "Ready" { took.unwrap_or_default() } else { text("/message") };
        let tone = match state.as_str() {
            "Ready" => Tone::Good,
            "Rejected" => Tone::Bad,
            _ => Tone::Waiting,
        };
        let below = requests(workload, &name, provisioning);
        Branch { label: format!("check {name}"), state, detail, tone, below, ..Branch::default() }
    })
    .collect()
}

/// Returns the ProvisioningRequests of a check: their names are `WORKLOAD-CHECK-ATTEMPT`.
fn requests(workload: &Value, check: &str, provisioning: &Part) -> Vec<Branch> {
    let Part::Read(requests) = provisioning else {
        return vec![forbidden("ProvisioningRequests")];
    };
    let prefix = format!("{}-{check}-", text_at(workload, "/metadata/name").unwrap_or_default());
    let name = |request: &Value| text_at(request, "/metadata/name").unwrap_or_default().to_owned();
    let is_own = |request: &&Value| name(request).starts_with(&prefix);
    let state = |request: &Value| {
        let reached = ["Failed", "Provisioned", "Accepted"].into_iter().find(|kind| is_true(request, kind));
        reached.unwrap_or("Pending").to_owned()
    };
    requests
        .iter()
        .filter(is_own)
        .map(|request| Branch {
            label: format!("ProvisioningRequest {}", name(request)),
            state: state(request),
            uid: uid(request),
            ..Branch::default()
        })
        .collect()
}

/// Returns the worker cluster of a Workload that MultiKueue dispatches.
fn worker(workload: &Value) -> Vec<Branch> {
    if let Some(cluster) = text_at(workload, "/status/clusterName").filter(|name| !name.is_empty()) {
        let label = format!("worker {cluster}");
        return vec![Branch { label, state: "chosen".to_owned(), tone: Tone::Good, ..Branch::default() }];
    }
    let nominated = workload.pointer("/status/nominatedClusterNames").and_then(Value::as_array);
    let names = nominated.into_iter().flatten().filter_map(Value::as_str);
    names
        .map(|name| Branch {
            label: format!("worker {name}"),
            state: "nominated".to_owned(),
            tone: Tone::Waiting,
            ..Branch::default()
        })
        .collect()
}

fn pod_sets(workload: &Value, parts: &JobParts) -> Vec<Branch> {
    let list = |pointer: &str| workload.pointer(pointer).and_then(Value::as_array);
    let sets: Vec<&Value> = list("/spec/podSets").into_iter().flatten().collect();
    let assigned: Vec<&Value> = list("/status/admission/podSetAssignments").into_iter().flatten().collect();
    let is_only = sets.len() == 1 && parts.workloads.len() == 1;
    sets.iter()
        .map(|set| {
            let name = text_at(set, "/name").unwrap_or_default();
            let assignment = assigned.iter().find(|one| text_at(one, "/name") == Some(name));
            let count = assignment.and_then(|one| one.get("count")).or_else(|| set.get("count"));
            let count = count.and_then(Value::as_u64).unwrap_or(1);
            let below = match &parts.pods {
                Part::Forbidden => vec![forbidden("pods")],
                Part::Read(pods) => {
                    let label = format!("/metadata/labels/{}", POD_SET_LABEL.replace('/', "~1"));
                    // A job of one pod set may not label its pods.
                    let is_own = |pod: &&Value| is_only || text_at(pod, &label) == Some(name);
                    by_place(pods.iter().filter(is_own), parts)
                }
            };
            let tone = Tone::Plain;
            let detail = [flavors(assignment.copied()), topology(set)];
            let detail: Vec<String> = detail.into_iter().flatten().collect();
            Branch {
                label: format!("pod set {name}"),
                state: pods_text(count),
                detail: detail.join(", "),
                tone,
                below,
                ..Branch::default()
            }
        })
        .collect()
}

fn pods_text(count: u64) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

/// Returns the flavors of a pod set, each once.
fn flavors(assignment: Option<&Value>) -> Option<String> {
    let flavors = assignment?.get("flavors")?.as_object()?;
    let mut names: Vec<&str> = flavors.values().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the topology request of a pod set.
fn topology(set: &Value) -> Option<String> {
    let request = set.get("topologyRequest")?;
    let level = |field: &str| text_at(request, field).map(|level| level.rsplit('/').next().unwrap_or(level));
    if let Some(level) = level("/required") {
        Some(format!("one {level} required"))
    } else if let Some(level) = level("/preferred") {
        Some(format!("one {level} preferred"))
    } else {
        (request.get("unconstrained") == Some(&Value::Bool(true))).then(|| "any place".to_owned())
    }
}

/// Returns a line for the pods of each domain or node, and one for pods without a node.
fn by_place<'a>(pods: impl Iterator<Item = &'a Value>, parts: &JobParts) -> Vec<Branch> {
    let mut groups: BTreeMap<PodPlace<'_>, Vec<&Value>> = BTreeMap::new();
    for pod in pods {
        let node = text_at(pod, "/spec/nodeName").unwrap_or_default();
        let (state, tone) = pod_state(pod);
        let trouble = parts.nodes.get(node).copied().unwrap_or_default();
        let domain = parts.domains.get(node).map(String::as_str).unwrap_or_default();
        let node = if domain.is_empty() { node } else { "" };
        groups.entry(PodPlace { domain, node, state, tone, trouble }).or_default().push(pod);
    }
    groups
        .into_iter()
        .map(|(place, pods)| {
            let trouble =
                if place.trouble.is_empty() { String::new() } else { format!(", node {}", place.trouble) };
            let only = pods.first().filter(|_| pods.len() == 1);
            Branch {
                label: place.label(&pods),
                state: pods_text(u64::try_from(pods.len()).unwrap_or(u64::MAX)),
                detail: format!("{}{trouble}", place.state),
                tone: place.tone,
                uid: only.map(|pod| uid(pod)).unwrap_or_default(),
                ..Branch::default()
            }
        })
        .collect()
}

/// Pods with the same domain and state. A domain has several nodes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PodPlace<'a> {
    domain: &'a str,
    node: &'a str,
    state: &'static str,
    tone: Tone,
    trouble: &'static str,
}

impl PodPlace<'_> {
    fn label(&self, pods: &[&Value]) -> String {
        if self.domain.is_empty() {
            return if self.node.is_empty() { "no node".to_owned() } else { self.node.to_owned() };
        }
        let names: BTreeSet<&str> = pods.iter().filter_map(|pod| text_at(pod, "/spec/nodeName")).collect();
        let left = names.len().saturating_sub(MAX_NAMED);
        let mut shown: Vec<String> = names.into_iter().take(MAX_NAMED).map(str::to_owned).collect();
        if left > 0 {
            shown.push(format!("{left} more"));
        }
        format!("{}: {}", self.domain, shown.join(", "))
    }
}

fn pod_state(pod: &Value) -> (&'static str, Tone) {
    let has_gates =
        pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty());
    match text_at(pod, "/status/phase") {
        Some("Succeeded") => ("Succeeded", Tone::Plain),
        Some("Failed") => ("Failed", Tone::Bad),
        _ if pod.pointer("/metadata/deletionTimestamp").is_some() => ("Terminating", Tone::Waiting),
        Some("Running") if is_true(pod, "Ready") => ("Ready", Tone::Good),
        Some("Running") => ("Running, not ready", Tone::Waiting),
        _ if has_gates => ("gated", Tone::Waiting),
        _ if condition(pod, "PodScheduled").and_then(|found| text_at(found, "/reason"))
            == Some("Unschedulable") =>
        {
            ("unschedulable", Tone::Bad)
        }
        _ => ("Pending", Tone::Waiting),
    }
}

fn forbidden(what: &str) -> Branch {
    Branch { label: what.to_owned(), state: "(forbidden)".to_owned(), tone: Tone::Bad, ..Branch::default() }
}
