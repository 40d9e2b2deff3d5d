//! Answers about the inner state, for debugging.
//!
//! Invariant: nothing is changed, and nothing is kept between two answers.

use super::Reconciler;
use super::audit::Audit;
use super::work_queue::{Alarm, ReconcileKey, WorkQueue};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cache::nodes::placement_of;
use crate::frameworks::{JobKind, frameworks};
use crate::quota::NodeRef;
use crate::scheduler::{Engine, Explanation};
use crate::snapshot::{
    AuditFacts, ClusterQueueListing, Excerpt, FailedWrite, Inspection, JobName, NoWorkload, QueueListing,
    QueuedWrite, SentWrite, Timer, TimerCount, TimerView,
};
use crate::topology::Placement;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns why a job has no Workload; `None` if it has one, does not exist, or nothing keeps it from having one.
pub fn why_no_workload(core: &Reconciler, job: &JobName) -> Option<NoWorkload> {
    let kind = frameworks().map(JobKind::new).find(|row| row.gvk.kind.eq_ignore_ascii_case(&job.kind))?;
    let key = ObjectKey::new(&job.namespace, &job.name);
    core.units().why_no_workload(kind, &key, core.warnings.last(Kind::of_job(kind), &key))
}

/// Most hosts of a Workload whose domains are looked up for one question.
const MAX_HOSTS: usize = 500;

impl Reconciler {
    /// Explains what the pods of a Workload with quota do: their states, the domains of the hosts that they are assigned to, and what
    /// keeps them from running. `None` if it has no quota.
    pub fn explain_pods(&self, key: &ObjectKey) -> Option<Explanation> {
        let mut explanation = self.units().explain_pods(key)?;
        let admission = self.cache.workload(key)?.status.admission.as_ref()?;
        let mut hosts = BTreeMap::new();
        for set in &admission.pod_set_assignments {
            let Some(placement) = placement_of(set).filter(Placement::is_by_host) else {
                continue;
            };
            for host in placement.domains.iter().filter_map(|(values, _)| values.last()).take(MAX_HOSTS) {
                let mut flavors = set.flavors.values();
                let path = flavors.find_map(|flavor| self.engine.topology().path_of_host(flavor, host));
                hosts.extend(path.map(|path| (Arc::clone(host), path)));
            }
        }
        explanation.pods.get_or_insert_default().hosts = hosts;
        Some(explanation)
    }

    /// Returns writes and timers; each list has at most `limit` entries.
    pub fn inspect(&self, limit: usize, now: Timestamp) -> Inspection {
        let mut sent: Vec<_> = self.writes.in_flight().collect();
        sent.sort_by_key(|(_, write)| write.since);
        let sent = Excerpt::of(sent, limit).map(|((kind, key), write)| SentWrite {
            resource: match write.subresource {
                Some(part) => format!("{}/{part}", kind.resource().plural),
                None => kind.resource().plural.to_owned(),
            },
            object: key.to_string(),
            verb: write.verb.as_str(),
            age_seconds: now.duration_since(write.since).as_secs_f64(),
            failures: self.writes.failures(*kind, key),
        });
        let failed = Excerpt::of(self.writes.backoffs(), limit);
        let failed = failed.map(|((kind, key), until)| FailedWrite {
            resource: kind.resource().plural.to_owned(),
            object: key.to_string(),
            failures: self.writes.failures(*kind, key),
            backoff_seconds: until.duration_since(now).max(SignedDuration::ZERO).as_secs_f64(),
        });
        let queued = Excerpt::of(self.workload_write_queue.entries(), limit);
        let queued =
            queued.map(|(key, class, priority)| QueuedWrite { workload: key.to_string(), class, priority });
        Inspection {
            time: now,
            leading: self.leading,
            synced: self.is_synced(),
            write_queue: queued,
            in_flight_writes: sent,
            failed_writes: failed,
            assumed_admissions: self.membership.assumed.iter().count(),
            due_now: self.work_queue.due_count(),
            timers: timer_view(&self.work_queue, &self.engine, limit),
        }
    }

    /// Returns what an audit reads beside the snapshot.
    pub fn audit_facts(&mut self) -> AuditFacts {
        let Self { cache, settings, engine, history, .. } = self;
        Audit { cache, settings, engine, history }.facts()
    }

    /// Returns the queues with the names of their workloads; each list has at most `limit` entries.
    pub fn list_queues(&self, limit: usize) -> QueueListing {
        let mut charged: BTreeMap<&str, Vec<&ObjectKey>> = BTreeMap::new();
        for (key, charge) in self.engine.charges() {
            charged.entry(&*charge.cluster_queue).or_default().push(key);
        }
        let cohort = |(node, _): (&NodeRef, _)| match node {
            NodeRef::Cohort(name) => Some((Arc::clone(name), self.engine.usage(node))),
            NodeRef::ClusterQueue(_) => None,
        };
        QueueListing {
            cluster_queues: self
                .cache
                .cluster_queues()
                .map(|(name, record)| {
                    let (parked, pending): (Vec<&ObjectKey>, Vec<&ObjectKey>) = self
                        .engine
                        .pending_in_order(name)
                        .into_iter()
                        .map(|workload| &workload.key)
                        .partition(|key| self.engine.is_parked(key));
                    let excerpt = |keys: Vec<&ObjectKey>| Excerpt::of(keys, limit).map(ObjectKey::clone);
                    let counts = self.queues.cluster_queue_counts(name);
                    ClusterQueueListing {
                        name: Arc::clone(name),
                        cohort: record.object.spec.cohort_name.as_deref().map(Arc::from),
                        active: self.engine.inactive_reason(name).is_none(),
                        pending: excerpt(pending),
                        inadmissible: excerpt(parked),
                        waiting: counts.waiting,
                        workloads: excerpt(charged.remove(&**name).unwrap_or_default()),
                        admitted: counts.admitted,
                        usage: self.engine.usage(&NodeRef::ClusterQueue(Arc::clone(name))),
                    }
                })
                .collect(),
            cohorts: self.engine.nodes().filter_map(cohort).collect(),
        }
    }
}

/// Returns the timers of the work queue; the list has at most `limit` entries.
fn timer_view(work_queue: &WorkQueue, engine: &Engine, limit: usize) -> TimerView {
    let mut by_kind: BTreeMap<&'static str, TimerCount> = BTreeMap::new();
    // In order of time: the first of a kind is its next one.
    for (due, item) in work_queue.timers() {
        let entry = by_kind.entry(item.kind_name()).or_insert(TimerCount { count: 0, next_due: due });
        entry.count = entry.count.saturating_add(1);
    }
    let timer = |(due, item): (Timestamp, &ReconcileKey)| Timer {
        kind: item.kind_name(),
        object: item.written_object().1.to_string(),
        due,
    };
    let alarm = |(alarm, at): (Alarm, Timestamp)| (alarm.as_str(), at);
    TimerView {
        by_kind,
        next: Excerpt::of(work_queue.timers(), limit).map(timer),
        alarms: work_queue.alarms().map(alarm).collect(),
        reservation_expiry: engine.next_reservation_expiry(),
    }
}

impl ReconcileKey {
    /// Returns the kind of the object, or what else gets the step.
    fn kind_name(&self) -> &'static str {
        match self {
            Self::Pods(_) => "Pods of a Workload",
            Self::Unit(unit) if unit.is_pod_group() => "Pod group",
            Self::Unit(unit) => Kind::of_job(unit.kind).resource().kind,
            Self::Object(kind, _) => kind.resource().kind,
        }
    }
}
