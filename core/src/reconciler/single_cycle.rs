//! One scheduling cycle at a time, for the replay of recorded decisions, and read access for reports of simulations.
//!
//! Invariant: the statuses equal the ones of the write path. The other parts of a round (the life cycle of other Workloads,
//! admission checks, statuses of queues) are left out, because a recording ends with its cycle.

use super::cycles::CycleRound;
use super::events::unreadable_text;
use super::messages::Effect;
use super::second_pass::eligibility::due_second_pass;
use super::writes::request::WritePurpose;
use super::{ReconcileKey, Reconciler};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::reservation::{holds_quota, set_pending};
use crate::lifecycle::workload;
use crate::scheduler::{Decision, Engine, Verdict, Workload};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    /// Returns the scheduler.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the scheduler for questions that it answers by trying, without effect on decisions.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns a Workload that exists and was decoded.
    pub fn workload(&self, key: &ObjectKey) -> Option<&WorkloadRecord> {
        self.cache.workload(key).map(AsRef::as_ref)
    }

    /// Returns the Workloads that count as pending without being queued, with their ClusterQueues.
    pub(crate) fn waiting_workloads(&self, now: Timestamp) -> impl Iterator<Item = (&str, &ObjectKey)> {
        self.cache.workloads().filter_map(move |(key, record)| {
            let facts = self.workload_facts();
            let around = facts.of(record, now);
            let plan = workload::plan(&facts.input(record), &around, &self.settings.lifecycle, now);
            let waits =
                plan.membership == workload::QueueMembership::Waiting && self.engine.workload(key).is_none();
            self.cache.cluster_queue_name(record).filter(|_| waits).map(|queue| (queue, key))
        })
    }

    /// Queues the Workloads of a recording that a round would not queue: Workloads with invalid requests, whose nomination
    /// reports the error, and all second passes, which are due immediately.
    pub(crate) fn queue_as_recorded(&mut self) {
        let invalid =
            self.cache.workloads().filter(|(_, record)| record.effective_requests.misconfiguration.is_some());
        let input = self.scheduler_input();
        let invalid: Vec<Workload> =
            invalid.filter_map(|(_, record)| input.to_pending_workload(record)).collect();
        for workload in invalid {
            self.engine.enqueue(workload);
        }
        let input = self.scheduler_input();
        let passes = self.cache.workloads().filter_map(|(_, record)| due_second_pass(input, record));
        for request in passes.collect::<Vec<_>>() {
            self.engine.request_second_pass(request);
        }
    }

    /// Returns the objects that cannot be decoded, and why.
    pub(crate) fn unreadable_objects(&self) -> impl Iterator<Item = (Kind, &ObjectKey, String)> {
        let all = self.cache.unreadable().iter();
        all.map(|(kind, key, object)| (kind, key, unreadable_text(kind, &object.problem)))
    }

    /// Runs one cycle and returns its decisions.
    pub(crate) fn decide_once(&mut self, now: Timestamp) -> Vec<Decision> {
        self.engine.run_cycle(now)
    }

    /// Returns the writes that follow from decisions: the next step of each Workload that they admit, evict or give a
    /// topology, and the verdict on each head that stays pending.
    pub(crate) fn write_decisions(&mut self, decisions: Vec<Decision>, now: Timestamp) -> Vec<Effect> {
        let verdict = |decision: &Decision| {
            Some((decision.key.clone(), Arc::clone(decision.outcome.verdict_on_head()?)))
        };
        let verdicts: Vec<(ObjectKey, Arc<Verdict>)> = decisions.iter().filter_map(verdict).collect();
        let mut items = BTreeSet::new();
        let mut round = CycleRound { second_passes: BTreeSet::new(), items: &mut items, now };
        self.apply_decisions(decisions, &mut round);
        for (key, verdict) in verdicts {
            self.write_verdict(&key, &verdict, now);
            items.remove(&ReconcileKey::workload(key));
        }
        for item in &items {
            self.step_object(item, now);
        }
        self.writes.take_effects()
    }

    /// Writes only the pending reason of a head. In a cluster it is a part of the next step of its Workload, which may write more
    /// (an expired back-off), and a skipped head gets none before the next cycle: where a recording ends, Kueue has written the
    /// verdict and nothing else.
    fn write_verdict(&mut self, key: &ObjectKey, verdict: &Verdict, now: Timestamp) {
        let record = self.cache.workload(key).filter(|record| !holds_quota(&record.status));
        let Some(record) = record else { return };
        let mut status = (*record.status).clone();
        set_pending(&mut status, verdict.reason, &verdict.to_string(), record.meta.generation, now);
        if status != *record.status {
            let request = self.workload_facts().status_write(record, Box::new(status), WritePurpose::Explain);
            self.writes.start(request, now);
        }
    }

    /// Returns the writes that finish the workload slices whose successors hold quota.
    pub(crate) fn finish_replaced_slices(&mut self, now: Timestamp) -> Vec<Effect> {
        let is_replaced =
            |record: &WorkloadRecord| self.workload_facts().of_membership(record, now).slice_end.is_some();
        let replaced = self.cache.workloads().filter(|(_, record)| is_replaced(record));
        let replaced: Vec<ObjectKey> = replaced.map(|(key, _)| key.clone()).collect();
        for key in replaced {
            self.step_object(&ReconcileKey::workload(key), now);
        }
        self.writes.take_effects()
    }
}
