//! What the lifecycle of a Workload needs to know of its unit.

use super::run::{idle_members, stop_reason};
use super::sync::pod_set_counts;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::cache::{Cache, Kind, UnitKey};
use crate::frameworks::{JobUnit, POD_RULES, StopReason, UnitStatus};
use crate::lifecycle::conditions;
use crate::lifecycle::workload::{JobFacts, WorkloadOwner};
use crate::reconciler::CoreSettings;
use crate::reconciler::job::JobLookup;
use crate::reconciler::writes::in_flight::Writes;
use jiff::Timestamp;

/// What is known of a unit beside its Workload.
#[derive(Clone, Copy)]
pub(crate) struct UnitFacts<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
    pub(crate) writes: &'a Writes,
}

impl UnitFacts<'_> {
    /// Returns the state of the unit that owns a Workload.
    pub(crate) fn unit_owner(self, record: &WorkloadRecord, key: &UnitKey, now: Timestamp) -> WorkloadOwner {
        let members = self.cache.unit_members(key);
        let owns = |uid: &str| match key {
            UnitKey::Pod(_) => record.owner.as_ref().is_some_and(|owner| *owner.uid == *uid),
            UnitKey::Group(_) => true,
        };
        if !members.first().is_some_and(|first| owns(&first.uid)) {
            return WorkloadOwner::Missing;
        }
        let summary = self.cache.unit_summary(key);
        let pods = JobUnit { owner: None, members: &members, summary: &summary };
        let status = POD_RULES.status(&pods, now);
        // While a pod is being written, its cached version does not show whether it has stopped.
        let settled = || members.iter().all(|member| !self.writes.is_in_flight(Kind::Pod, &member.key));
        let leaves = StopReason { workload_deleted: record.meta.deleting, ..stop_reason("", "", "") };
        let stopped = !status.active && POD_RULES.stop(&pods, &leaves).is_empty() && settled();
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        let absent = |key: &UnitKey| match key {
            UnitKey::Group(_) => Some(POD_RULES.membership(&pods, &pod_set_counts(record), finished).absent),
            UnitKey::Pod(_) => None,
        };
        WorkloadOwner::Job(JobFacts {
            stopped,
            start_failed: self.unit_start_error(record, &pods, &status),
            finished: status.finished.map(|result| (result.success, result.message)),
            pods_ready: status.ready,
            reclaimable: self.reclaimable_pods_of_unit(&status.reclaimable_pods),
            out_of_sync: false,
            absent_pods: Some(key).filter(|_| !finished).and_then(absent),
        })
    }

    fn unit_start_error(
        self,
        record: &WorkloadRecord,
        pods: &JobUnit<'_>,
        status: &UnitStatus,
    ) -> Option<String> {
        let starting = record.may_run() && status.suspended && status.finished.is_none();
        let infos = starting.then(|| {
            JobLookup { cache: self.cache, settings: self.settings }.granted_pod_set_infos(record)
        })?;
        let idle = idle_members(self.writes, pods);
        let pods = &JobUnit { members: &idle, ..*pods };
        let started =
            infos.and_then(|infos| infos.map_or(Ok(Vec::new()), |infos| POD_RULES.start(pods, &infos)));
        started.err().map(|error| error.to_string())
    }

    fn reclaimable_pods_of_unit(self, pods: &[(std::sync::Arc<str>, i32)]) -> Vec<(String, i32)> {
        let counted = pods.iter().filter(|_| self.settings.gates.reclaimable_pods);
        counted.map(|(name, count)| (name.to_string(), *count)).collect()
    }
}
