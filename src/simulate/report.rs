//! What is to be told at the end, as values: the history, and who stands where.

use super::explanation::{Explanation, explain, format_amount};
use super::manifest::{Problem, SourceLocation};
use super::objects::{ConditionFlags, condition, describe, is_true, key_of, text_at};
use super::outcome::{Grant, PodSetGrant};
use super::simulation::Simulation;
use super::timeline::{TimelineEntry, TimelineEventKind, WorkloadRef};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::Admission;
use crate::quota::NodeRef;
use crate::scheduler::Verdict;
use crate::state::Kind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that came of a simulation. Lists are in a fixed order: by key, or by place in the queue.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When and why it ended.
    #[serde(rename = "ending")]
    pub end: SimulationEnd,
    /// What happened, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Those that hold quota.
    pub admitted: Vec<AdmittedRow>,
    /// Those that had to make room, each time.
    pub preempted: Vec<PreemptedRow>,
    /// Those that wait, by ClusterQueue in the order of their turns.
    pub pending: Vec<PendingRow>,
    /// Those that have ended.
    pub finished: Vec<WorkloadRef>,
    /// ClusterQueues and Cohorts.
    pub queues: Vec<QueueRow>,
    /// Jobs that no queue holds: they run beside everything.
    pub unqueued: Vec<String>,
    /// What the controller would warn of, by object.
    pub warnings: BTreeMap<String, String>,
    /// Advice on objects that were taken in.
    pub notes: Vec<String>,
    /// Objects that were left out because they cannot be used.
    pub problems: Vec<Problem>,
    /// Objects of kinds that no decision depends on, by kind.
    pub ignored: BTreeMap<String, usize>,
}

/// The end of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulationEnd {
    /// Seconds since the start.
    pub seconds: f64,
    /// Whether nothing more is to be expected.
    pub settled: bool,
    /// Whether it was given up: nothing but evictions that repeat themselves was to be expected.
    #[serde(rename = "endless")]
    pub livelocked: bool,
}

/// A Workload that holds quota.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedRow {
    /// Which.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// `admitted`, `reserved` (it waits for admission checks) or `evicted` (its pods are ending).
    pub state: &'static str,
    /// Where it was queued.
    pub local_queue: String,
    /// Its priority.
    pub priority: i64,
    /// What it holds.
    #[serde(flatten)]
    pub grant: Grant,
    /// When its run ends, in seconds since the start; absent when it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<f64>,
    /// Its conditions by type.
    pub conditions: BTreeMap<String, ConditionRow>,
}

/// A condition, but for its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionRow {
    /// `True` or `False`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    #[serde(default)]
    pub message: String,
}

/// One eviction that made room.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptedRow {
    /// Who had to go.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// When, in seconds since the start.
    pub seconds: f64,
    /// From which ClusterQueue.
    pub cluster_queue: String,
    /// For whom.
    #[serde(rename = "by")]
    pub preemptor: String,
    /// Reason of the condition.
    pub reason: String,
    /// What has become of it: `pending`, `admitted`, `evicted` (its pods are still ending), `finished` or `gone`.
    #[serde(rename = "now")]
    pub current_state: &'static str,
}

/// A Workload that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingRow {
    /// Which.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// Whose quota it waits for.
    pub cluster_queue: String,
    /// Where it is queued.
    pub local_queue: String,
    /// Its priority.
    pub priority: i64,
    /// How many of its ClusterQueue come before it; absent when it has no turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ahead")]
    pub position: Option<usize>,
    /// Since when it waits.
    pub since: String,
    /// Why.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// Its conditions by type.
    pub conditions: BTreeMap<String, ConditionRow>,
}

/// A ClusterQueue or Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// `ClusterQueue` or `Cohort`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The Cohort above it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cohort: String,
    /// Workloads that wait.
    pub pending: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Thousandths of what the cohort could lend that it has borrowed, by weight, of its most borrowed resource.
    pub weighted_share: i64,
    /// By flavor and resource.
    pub usage: Vec<UsageRow>,
}

/// Quota and its use, as quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageRow {
    /// The flavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
    /// What it owns by itself.
    pub nominal: String,
    /// What is in use.
    pub used: String,
    /// What of that goes beyond what its subtree owns.
    pub borrowed: String,
}

impl Simulation {
    /// What has come of everything so far.
    pub fn report(&mut self) -> Report {
        let verdicts = self.current_verdicts();
        let workloads: Vec<&Value> = self.server.all(Kind::Workload).collect();
        let mut problems = self.applier.problems.clone();
        problems.extend(self.state.unreadable_objects().map(|(key, reason)| Problem {
            location: SourceLocation { file: Arc::from("stored"), line: 0 },
            subject: key.to_string(),
            reason: reason.to_owned(),
        }));
        problems.sort_by(|a, b| a.location.cmp(&b.location));
        let states: Vec<&str> = workloads.iter().map(|workload| state_of(workload)).collect();
        let those = |wanted: fn(&str) -> bool| {
            let all = workloads.iter().zip(&states);
            all.filter(move |(_, state)| wanted(state)).map(|(workload, _)| *workload)
        };
        let mut report = Report {
            end: SimulationEnd {
                seconds: self.elapsed().as_secs_f64(),
                settled: self.settled,
                livelocked: self.livelocked,
            },
            timeline: self.timeline.entries.clone(),
            finished: those(|state| state == "finished").map(WorkloadRef::from_workload).collect(),
            queues: self.queue_rows(),
            unqueued: self.unqueued_jobs(&workloads),
            notes: self.applier.notes.clone(),
            problems,
            ignored: self.applier.ignored.clone(),
            ..Report::default()
        };
        let holds = |state: &str| !matches!(state, "finished" | "pending");
        report.admitted = those(holds).map(|w| self.admitted_row(w)).collect();
        report.preempted = self.preempted_rows();
        report.pending = self.pending_rows(those(|state| state == "pending"), &verdicts);
        for ((kind, key), note) in &self.warnings {
            let object = if key.namespace.is_empty() { key.name.to_string() } else { key.to_string() };
            report.warnings.insert(format!("{} {object}", kind.resource().kind), note.clone());
        }
        report
    }

    fn admitted_row(&self, workload: &Value) -> AdmittedRow {
        let admission = workload.pointer("/status/admission").cloned().unwrap_or_default();
        let admission: Option<Admission> = serde_json::from_value(admission).ok();
        let empty = || Grant { cluster_queue: String::new(), pod_sets: Vec::new() };
        let seconds = |at: Timestamp| at.duration_since(self.start).as_secs_f64();
        AdmittedRow {
            workload: WorkloadRef::from_workload(workload),
            state: state_of(workload),
            local_queue: text_at(workload, "/spec/queueName").to_owned(),
            priority: priority(workload),
            grant: admission.as_ref().map_or_else(empty, to_grant),
            ends_at: self.run_end(workload).map(seconds),
            conditions: condition_rows(workload),
        }
    }

    /// When the run of a Workload, or of its job, ends.
    fn run_end(&self, workload: &Value) -> Option<Timestamp> {
        let own = key_of(workload);
        if let Some(end) = self.job_runner.run_end(&(Kind::Workload, own.clone())) {
            return Some(end);
        }
        let owner = workload.pointer("/metadata/ownerReferences/0")?;
        let group = text_at(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let kind = Kind::from_group_kind(group, text_at(owner, "/kind"))?;
        let key = ObjectKey::new(&own.namespace, text_at(owner, "/name"));
        self.job_runner.run_end(&(kind, key))
    }

    fn preempted_rows(&self) -> Vec<PreemptedRow> {
        let entries =
            self.timeline.entries.iter().filter(|entry| entry.event == TimelineEventKind::Preempted);
        entries
            .map(|entry| {
                let (namespace, name) = entry.workload.workload.split_once('/').unwrap_or_default();
                let key = ObjectKey::new(namespace, name);
                PreemptedRow {
                    workload: entry.workload.clone(),
                    seconds: entry.seconds,
                    cluster_queue: entry.cluster_queue.clone(),
                    preemptor: entry.preemptor.clone(),
                    reason: entry.reason.clone(),
                    current_state: self.server.get(Kind::Workload, &key).map_or("gone", state_of),
                }
            })
            .collect()
    }

    /// What the scheduler says now of those that wait.
    fn current_verdicts(&mut self) -> BTreeMap<ObjectKey, Verdict> {
        let waiting: Vec<ObjectKey> =
            self.server.all(Kind::Workload).filter(|w| state_of(w) == "pending").map(key_of).collect();
        let told = |key: ObjectKey| self.state.engine_mut().fresh_verdict(&key).map(|verdict| (key, verdict));
        waiting.into_iter().filter_map(told).collect()
    }

    fn pending_rows<'a>(
        &self,
        workloads: impl Iterator<Item = &'a Value>,
        verdicts: &BTreeMap<ObjectKey, Verdict>,
    ) -> Vec<PendingRow> {
        let engine = self.state.engine();
        let queues: Vec<Arc<str>> = engine.cluster_queues().cloned().collect();
        let mut places = BTreeMap::new();
        for queue in &queues {
            for (ahead, workload) in engine.pending_in_order(queue).into_iter().enumerate() {
                places.insert(workload.key.clone(), (ahead, workload));
            }
        }
        let mut rows = Vec::new();
        for object in workloads {
            let key = key_of(object);
            let place = places.get(&key);
            let queue = self.cluster_queue_of(object);
            let verdict = verdicts.get(&key).map(|verdict| explain(verdict, &queue, engine));
            let created = text_at(object, "/metadata/creationTimestamp");
            rows.push(PendingRow {
                workload: WorkloadRef::from_workload(object),
                cluster_queue: queue,
                local_queue: text_at(object, "/spec/queueName").to_owned(),
                priority: priority(object),
                position: place.map(|(ahead, _)| *ahead),
                since: place.map_or_else(|| created.to_owned(), |(_, w)| w.queued_since.to_string()),
                explanation: merge_explanations(verdict, condition_explanation(object)),
                conditions: condition_rows(object),
            });
        }
        rows.sort_by(|a, b| {
            (&a.cluster_queue, a.position, &a.workload).cmp(&(&b.cluster_queue, b.position, &b.workload))
        });
        rows
    }

    /// The ClusterQueue that a Workload's LocalQueue leads to.
    fn cluster_queue_of(&self, workload: &Value) -> String {
        let queue =
            ObjectKey::new(text_at(workload, "/metadata/namespace"), text_at(workload, "/spec/queueName"));
        let queue = self.server.get(Kind::LocalQueue, &queue);
        queue.map(|queue| text_at(queue, "/spec/clusterQueue").to_owned()).unwrap_or_default()
    }

    fn queue_rows(&self) -> Vec<QueueRow> {
        let engine = self.state.engine();
        let row = |(node, parent): (&NodeRef, Option<&NodeRef>)| {
            let leaf = matches!(node, NodeRef::ClusterQueue(_));
            let usage = engine.usage(node).into_iter().map(|(pair, of)| UsageRow {
                nominal: format_amount(&pair.resource, of.limits.nominal),
                used: format_amount(&pair.resource, of.usage),
                borrowed: format_amount(&pair.resource, of.borrowed()),
                flavor: pair.flavor.to_string(),
                resource: pair.resource.to_string(),
            });
            QueueRow {
                kind: if leaf { "ClusterQueue" } else { "Cohort" },
                name: node.as_str().to_owned(),
                cohort: parent.map(|parent| parent.as_str().to_owned()).unwrap_or_default(),
                pending: if leaf { engine.pending(node.as_str()).total() } else { 0 },
                reserving: if leaf { engine.reserving_workloads(node.as_str()) } else { 0 },
                weighted_share: engine.weighted_share(node),
                usage: usage.collect(),
            }
        };
        let mut rows: Vec<QueueRow> = engine.nodes().map(row).collect();
        rows.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        rows
    }

    /// Jobs without a Workload that have not ended.
    fn unqueued_jobs(&self, workloads: &[&Value]) -> Vec<String> {
        let mut found = Vec::new();
        let owners: std::collections::BTreeSet<&str> =
            workloads.iter().map(|w| text_at(w, "/metadata/ownerReferences/0/uid")).collect();
        for kind in Kind::all().into_iter().filter(|kind| matches!(kind, Kind::Job(_))) {
            let over = |job: &Value| is_true(job, "Complete") || is_true(job, "Failed");
            let jobs = self.server.all(kind).filter(|job| !over(job));
            let alone = jobs.filter(|job| !owners.contains(text_at(job, "/metadata/uid")));
            found.extend(alone.map(describe));
        }
        found
    }
}

/// What a Workload has come to.
fn state_of(workload: &Value) -> &'static str {
    match ConditionFlags::from_workload(workload) {
        ConditionFlags { finished: true, .. } => "finished",
        ConditionFlags { reserved: false, .. } => "pending",
        ConditionFlags { evicted: true, .. } => "evicted",
        ConditionFlags { admitted: true, .. } => "admitted",
        _ => "reserved",
    }
}

/// The scheduler's verdict in the condition's words, where the condition gives the same reason: a queue that is closed is
/// told of in more words by the one than by the other.
fn merge_explanations(verdict: Option<Explanation>, told: Explanation) -> Explanation {
    match verdict {
        Some(verdict) if verdict.reason == told.reason => Explanation { message: told.message, ..verdict },
        Some(verdict) => verdict,
        None => told,
    }
}

/// Why a Workload waits, in the condition's words; without a condition nobody has judged it yet.
fn condition_explanation(workload: &Value) -> Explanation {
    let Some(condition) = condition(workload, "QuotaReserved") else {
        let reason = PendingReason::PendingEvaluation.as_str().to_owned();
        return Explanation { reason, ..Explanation::default() };
    };
    let word = |field: &str| text_at(condition, field).to_owned();
    Explanation { reason: word("/reason"), message: word("/message"), ..Explanation::default() }
}

fn priority(workload: &Value) -> i64 {
    workload.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}

fn condition_rows(workload: &Value) -> BTreeMap<String, ConditionRow> {
    let list = workload.pointer("/status/conditions").and_then(Value::as_array);
    let row = |c: &Value| Some((text_at(c, "/type").to_owned(), ConditionRow::deserialize(c).ok()?));
    list.into_iter().flatten().filter_map(row).collect()
}

/// An admission in the report's terms.
pub(super) fn to_grant(admission: &Admission) -> Grant {
    let pod_sets = admission.pod_set_assignments.iter().map(|set| PodSetGrant {
        name: set.name.clone(),
        count: set.count,
        flavors: set.flavors.clone(),
        resource_usage: set.resource_usage.iter().map(|(r, q)| (r.clone(), q.0.clone())).collect(),
        topology_assignment: set.topology_assignment.clone(),
        delayed_topology_request: set.delayed_topology_request,
    });
    Grant { cluster_queue: admission.cluster_queue.clone(), pod_sets: pod_sets.collect() }
}
