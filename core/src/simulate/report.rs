//! The report of a simulation as values: the timeline and the final state of workloads and queues.

use super::blocker_row::{BlockerRow, ObstacleInNamespace, ObstacleWords};
use super::manifest::{Problem, SourceLocation};
use super::objects::{ConditionFlags, condition, key_of, text_at};
use super::outcome::{Grant, PodSetGrant};
use super::quota_units::{self, quota_units};
use super::simulation::Simulation;
use super::timeline::{TimelineEntry, TimelineEventKind, WorkloadRef};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::Admission;
use crate::cache::Kind;
use crate::quota::{NodeRef, QuotaUnits};
use crate::scheduler::{Obstacle, QueueStanding, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What keeps the workloads of ClusterQueues.
type Standings = BTreeMap<Arc<str>, Arc<QueueStanding>>;

/// Result of a simulation. Lists have a fixed order: by key, or by position in the queue.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When and why the simulation ended.
    pub end: SimulationEnd,
    /// Events, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Workloads with reserved quota.
    pub admitted: Vec<AdmittedRow>,
    /// Preemptions, in order of time.
    pub preempted: Vec<PreemptedRow>,
    /// Pending workloads by ClusterQueue, in queue order, and jobs that wait for a Workload.
    pub pending: Vec<PendingRow>,
    /// Finished workloads.
    pub finished: Vec<WorkloadRef>,
    /// ClusterQueues and Cohorts.
    pub queues: Vec<QueueRow>,
    /// Jobs that name no queue; they are not subject to quota.
    pub unqueued: Vec<String>,
    /// Objects that name a queue and are not managed, with the reason; they run without quota.
    pub not_managed: Vec<String>,
    /// Warnings of the controller, by object.
    pub warnings: BTreeMap<String, String>,
    /// Warnings of admission reviews about accepted objects.
    pub notes: Vec<String>,
    /// Objects that were skipped because they are invalid.
    pub problems: Vec<Problem>,
    /// Number of objects of kinds that do not affect scheduling, by kind.
    pub ignored: BTreeMap<String, usize>,
}

/// The end of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulationEnd {
    /// Seconds since the start.
    pub seconds: f64,
    /// Whether the simulation was stable.
    pub settled: bool,
    /// Whether the simulation ended because of a livelock: only further evictions were happening.
    pub livelocked: bool,
}

/// A Workload with reserved quota.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedRow {
    /// The Workload.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// `admitted`, `reserved` (admission checks are outstanding) or `evicted` (its pods are terminating).
    pub state: &'static str,
    /// Its LocalQueue.
    pub local_queue: String,
    /// Its priority.
    pub priority: i64,
    /// The granted quota.
    #[serde(flatten)]
    pub grant: Grant,
    /// End of its run in seconds since the start; absent if it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<f64>,
    /// Its conditions by type.
    pub conditions: BTreeMap<String, ConditionRow>,
}

/// A condition without its time.
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

/// One preemption.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptedRow {
    /// The victim.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// Time of the preemption in seconds since the start.
    pub seconds: f64,
    /// ClusterQueue of the victim.
    pub cluster_queue: String,
    /// The preemptor.
    #[serde(rename = "by")]
    pub preemptor: String,
    /// Reason of the condition.
    pub reason: String,
    /// State of the victim now: `pending`, `reserved`, `admitted`, `evicted` (its pods are terminating), `finished` or
    /// `gone`.
    #[serde(rename = "now")]
    pub current_state: &'static str,
}

/// A pending Workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingRow {
    /// The Workload.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// Its ClusterQueue.
    pub cluster_queue: String,
    /// Its LocalQueue.
    pub local_queue: String,
    /// Its priority.
    pub priority: i64,
    /// Number of workloads before it in its ClusterQueue; absent if it is not queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Time since which it is pending.
    pub since: String,
    /// Reason of the scheduler's current verdict, else of the condition.
    pub reason: String,
    /// Message of the condition if it has that reason, else of the verdict.
    pub message: String,
    /// What has to go before it is admitted, as a sentence without its full stop; empty if the blockers and their amounts say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub obstacle: String,
    /// The same for readers of its namespace alone: without names of workloads of other namespaces, and without limits.
    #[serde(skip)]
    pub obstacle_in_namespace: String,
    /// Whether the workload is not admitted even if all that holds quota ends, pending ones keep their order and no object changes.
    pub stuck: bool,
    /// Whether the workload itself cannot be admitted even if nothing is in use.
    pub never_fits: bool,
    /// Blockers of the verdict in the order in which the scheduler found them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<BlockerRow>,
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
    /// The parent Cohort, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cohort: String,
    /// Number of pending workloads.
    pub pending: usize,
    /// Number of workloads with reserved quota.
    pub reserving: usize,
    /// Dominant resource share: borrowed quota in thousandths of the lendable quota, divided by the weight.
    pub weighted_share: i64,
    /// Quota and usage by flavor and resource.
    pub usage: Vec<UsageRow>,
}

/// Quota and usage of a flavor-resource, as quantities in the unit in which the quota is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageRow {
    /// Name of the flavor.
    pub flavor: String,
    /// Name of the resource.
    pub resource: String,
    /// Nominal quota.
    pub nominal: String,
    /// Current usage.
    pub used: String,
    /// Usage beyond the subtree quota.
    pub borrowed: String,
}

impl PendingRow {
    /// Returns the message, or the reason without one.
    pub(super) fn why(&self) -> &str {
        if self.message.is_empty() { &self.reason } else { &self.message }
    }
}

impl Simulation {
    /// Returns the report of the simulation so far.
    pub fn report(&mut self) -> Report {
        let verdicts = self.current_verdicts();
        let (standings, _) = self.harness.core.engine_mut().standings(usize::MAX);
        let units = quota_units(&self.harness.server);
        let workloads: Vec<&Value> = self.harness.server.all(Kind::Workload).collect();
        let mut problems = self.applier.problems.clone();
        let known = |kind, key: &ObjectKey| self.applier.reported.contains(&(kind, key.clone()));
        let unreadable = self.harness.core.unreadable_objects().filter(|(kind, key, _)| !known(*kind, key));
        problems.extend(unreadable.map(|(_, key, reason)| Problem {
            location: SourceLocation { file: Arc::from("stored"), line: 0 },
            subject: key.to_string(),
            reason,
        }));
        problems.sort_by(|a, b| a.location.cmp(&b.location));
        let states: Vec<&str> = workloads.iter().map(|workload| state_of(workload)).collect();
        let in_state = |matches: fn(&str) -> bool| {
            let all = workloads.iter().zip(&states);
            all.filter(move |(_, state)| matches(state)).map(|(workload, _)| *workload)
        };
        let without_workload = self.jobs_without_workload(&workloads);
        let mut report = Report {
            end: SimulationEnd {
                seconds: self.elapsed().as_secs_f64(),
                settled: self.settled,
                livelocked: self.livelocked,
            },
            timeline: self.timeline.entries.clone(),
            finished: in_state(|state| state == "finished").map(WorkloadRef::from_workload).collect(),
            queues: self.queue_rows(&units),
            unqueued: without_workload.unqueued,
            not_managed: [self.applier.not_managed.clone(), without_workload.not_managed].concat(),
            notes: self.applier.notes.iter().cloned().chain(self.job_runner.recorded_note()).collect(),
            problems,
            ignored: self.applier.ignored.clone(),
            ..Report::default()
        };
        let reserving = |state: &str| !matches!(state, "finished" | "pending");
        report.admitted = in_state(reserving).map(|w| self.admitted_row(w, &units)).collect();
        report.preempted = self.preempted_rows();
        report.pending =
            self.pending_rows(in_state(|state| state == "pending"), (&verdicts, &standings), &units);
        report.pending.extend(without_workload.pending);
        report.pending.sort_by(|a, b| {
            (&a.cluster_queue, a.position, &a.workload).cmp(&(&b.cluster_queue, b.position, &b.workload))
        });
        for ((kind, key), note) in &self.warnings {
            let object = if key.namespace.is_empty() { key.name.to_string() } else { key.to_string() };
            report.warnings.insert(format!("{} {object}", kind.resource().kind), note.to_string());
        }
        report
    }

    fn admitted_row(&self, workload: &Value, units: &QuotaUnits) -> AdmittedRow {
        let admission = workload.pointer("/status/admission").cloned().unwrap_or_default();
        let admission: Option<Admission> = serde_json::from_value(admission).ok();
        let empty = || Grant { cluster_queue: String::new(), pod_sets: Vec::new() };
        let seconds = |at: Timestamp| at.duration_since(self.start).as_secs_f64();
        AdmittedRow {
            workload: WorkloadRef::from_workload(workload),
            state: state_of(workload),
            local_queue: text_at(workload, "/spec/queueName").to_owned(),
            priority: priority(workload),
            grant: quota_units::convert(units, admission.as_ref().map_or_else(empty, to_grant)),
            ends_at: self.run_end(workload).map(seconds),
            conditions: condition_rows(workload),
        }
    }

    /// Returns the time at which the run of a Workload, or of its job, ends.
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
                    current_state: self.harness.server.get(Kind::Workload, &key).map_or("gone", state_of),
                }
            })
            .collect()
    }

    /// Returns the current verdicts on pending workloads.
    fn current_verdicts(&mut self) -> BTreeMap<ObjectKey, Verdict> {
        let pending: Vec<ObjectKey> = self
            .harness
            .server
            .all(Kind::Workload)
            .filter(|w| state_of(w) == "pending")
            .map(key_of)
            .collect();
        let with_verdict =
            |key: ObjectKey| self.harness.core.engine_mut().fresh_verdict(&key).map(|verdict| (key, verdict));
        pending.into_iter().filter_map(with_verdict).collect()
    }

    fn pending_rows<'a>(
        &self,
        workloads: impl Iterator<Item = &'a Value>,
        (verdicts, standings): (&BTreeMap<ObjectKey, Verdict>, &Standings),
        units: &QuotaUnits,
    ) -> Vec<PendingRow> {
        let engine = self.harness.core.engine();
        let queues: Vec<Arc<str>> = engine.cluster_queues().cloned().collect();
        let mut positions = BTreeMap::new();
        for queue in &queues {
            for (position, workload) in engine.pending_in_order(queue).into_iter().enumerate() {
                positions.insert(workload.key.clone(), (position, workload));
            }
        }
        let mut rows = Vec::new();
        for object in workloads {
            let key = key_of(object);
            let queued = positions.get(&key);
            let queue = self.cluster_queue_of(object);
            let verdict = verdicts.get(&key);
            let behind = verdict.filter(|_| engine.waits_behind(&key).is_some());
            let (reason, message) = match behind {
                Some(verdict) => (verdict.reason.as_str().to_owned(), verdict.to_string()),
                None => pending_message(verdict, object),
            };
            let reader = ObstacleWords { engine, units, queue: &queue };
            let sets = engine.workload(&key).map(|workload| &*workload.pod_sets).unwrap_or_default();
            let blockers = verdict.into_iter().flat_map(|verdict| &verdict.blockers);
            let blockers = blockers.map(|blocker| BlockerRow::new(blocker, sets, &reader));
            let blockers = blockers.chain(behind.map(|verdict| BlockerRow::behind(&queue, &verdict.text)));
            let standing = standings.get(&*queue).zip(engine.workload(&key));
            let obstacle = standing.map_or(Obstacle::None, |(standing, workload)| {
                Obstacle::in_queue(standing, workload, engine.pending_order())
            });
            let is_kept_out = PendingReason::ALL.iter().any(|one| one.keeps_out() && one.as_str() == reason);
            let created = text_at(object, "/metadata/creationTimestamp");
            rows.push(PendingRow {
                workload: WorkloadRef::from_workload(object),
                blockers: blockers.collect(),
                obstacle: obstacle.sentence(&queue, &reader),
                obstacle_in_namespace: obstacle.sentence(&queue, &ObstacleInNamespace(&key.namespace)),
                stuck: obstacle.stays() || is_kept_out,
                never_fits: matches!(obstacle, Obstacle::NeverFits(_)),
                cluster_queue: queue,
                local_queue: text_at(object, "/spec/queueName").to_owned(),
                priority: priority(object),
                position: queued.map(|(position, _)| *position),
                since: queued.map_or_else(|| created.to_owned(), |(_, w)| w.queued_since.to_string()),
                reason,
                message,
                conditions: condition_rows(object),
            });
        }
        rows
    }

    /// Returns the ClusterQueue of a Workload's LocalQueue, or an empty text.
    fn cluster_queue_of(&self, workload: &Value) -> String {
        let queue =
            ObjectKey::new(text_at(workload, "/metadata/namespace"), text_at(workload, "/spec/queueName"));
        let queue = self.harness.server.get(Kind::LocalQueue, &queue);
        queue.map(|queue| text_at(queue, "/spec/clusterQueue").to_owned()).unwrap_or_default()
    }

    fn queue_rows(&self, units: &QuotaUnits) -> Vec<QueueRow> {
        let engine = self.harness.core.engine();
        let row = |(node, parent): (&NodeRef, Option<&NodeRef>)| {
            let is_queue = matches!(node, NodeRef::ClusterQueue(_));
            let usage = engine.usage(node).into_iter().map(|(fr, usage)| UsageRow {
                nominal: units.format_limit(node, &fr, usage.limits.nominal),
                used: units.format(node, &fr, usage.usage),
                borrowed: units.format(node, &fr, usage.borrowed(parent.is_some())),
                flavor: fr.flavor.to_string(),
                resource: fr.resource.to_string(),
            });
            QueueRow {
                kind: if is_queue { "ClusterQueue" } else { "Cohort" },
                name: node.as_str().to_owned(),
                cohort: parent.map(|parent| parent.as_str().to_owned()).unwrap_or_default(),
                pending: if is_queue { engine.pending(node.as_str()).total() } else { 0 },
                reserving: if is_queue { engine.reserving_workloads(node.as_str()) } else { 0 },
                weighted_share: engine.weighted_share(node),
                usage: usage.collect(),
            }
        };
        let mut rows: Vec<QueueRow> = engine.nodes().map(row).collect();
        rows.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        rows
    }
}

/// Returns the state of a Workload as a word of the report.
fn state_of(workload: &Value) -> &'static str {
    match ConditionFlags::from_workload(workload) {
        ConditionFlags { finished: true, .. } => "finished",
        ConditionFlags { reserved: false, .. } => "pending",
        ConditionFlags { evicted: true, .. } => "evicted",
        ConditionFlags { admitted: true, .. } => "admitted",
        _ => "reserved",
    }
}

/// Returns reason and message of the scheduler's verdict, with the message of the condition if both have the same
/// reason: the condition explains inactive queues in more detail. Without a verdict, those of the condition; without a
/// condition, the Workload has not been evaluated yet.
fn pending_message(verdict: Option<&Verdict>, workload: &Value) -> (String, String) {
    let condition = condition(workload, "QuotaReserved");
    let of_condition = |field: &str| condition.map(|c| text_at(c, field).to_owned());
    let reason =
        of_condition("/reason").unwrap_or_else(|| PendingReason::PendingEvaluation.as_str().to_owned());
    match verdict {
        Some(verdict) if verdict.reason.as_str() != reason => {
            (verdict.reason.as_str().to_owned(), verdict.to_string())
        }
        _ => (reason, of_condition("/message").unwrap_or_default()),
    }
}

fn priority(workload: &Value) -> i64 {
    workload.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}

fn condition_rows(workload: &Value) -> BTreeMap<String, ConditionRow> {
    let list = workload.pointer("/status/conditions").and_then(Value::as_array);
    let row = |c: &Value| Some((text_at(c, "/type").to_owned(), ConditionRow::deserialize(c).ok()?));
    list.into_iter().flatten().filter_map(row).collect()
}

/// Converts an admission to a grant.
pub(super) fn to_grant(admission: &Admission) -> Grant {
    let pod_sets = admission.pod_set_assignments.iter().map(|set| PodSetGrant {
        name: set.name.clone(),
        count: set.count,
        flavors: set.flavors.clone(),
        resource_usage: set.resource_usage.iter().map(|(r, q)| (r.clone(), q.0.clone())).collect(),
        topology_assignment: set.topology_assignment.clone(),
        delayed_topology_request: set.delayed_topology_request.clone(),
    });
    Grant { cluster_queue: admission.cluster_queue.clone(), pod_sets: pod_sets.collect() }
}
