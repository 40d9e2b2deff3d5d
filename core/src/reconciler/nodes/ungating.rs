//! Ungates pods of admitted workloads: removes the topology gate of a pod and adds the node selector of its assigned
//! domain.
//!
//! Invariants: all pods of a workload are decided together, on the newest assignment and pods, and only while no write of these
//! pods is in flight. A write carries the resourceVersion of its pod, so that a pod that has changed since is decided again
//! (I12). At most the granted number of pods is ungated (I22).

use super::health::HostHealth;
use super::pod_change::{PodChange, gate_removed_observation, gates_without};
use super::{blocked_pods, elastic_gates};
use crate::api::v1beta2::PodSetAssignment;
use crate::api::{ObjectKey, names};
use crate::cache::nodes::placement_of;
use crate::cache::pods::{PodRecord, WorkloadPod};
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::cache::{Cache, Kind};
use crate::frameworks::TemplateInfo;
use crate::lifecycle::ungate::{DomainSlots, TasPodState, assign_gated_pods, domains_waited_for};
use crate::lifecycle::{backoff, conditions};
use crate::reconciler::events::{event_on, workload_warning};
use crate::reconciler::messages::{Effect, EventType, Verb};
use crate::reconciler::warnings::Warnings;
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use crate::reconciler::writes::in_flight::Writes;
use crate::reconciler::writes::request::WriteRequest;

use crate::topology::{DomainPath, HOSTNAME_LABEL, Placement};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Delay before the next step of pods whose slice is being written.
const RESIZE_RECHECK: SignedDuration = SignedDuration::from_secs(1);

/// What is needed to ungate the pods of Workloads.
pub(crate) struct PodUngating<'a> {
    pub(crate) hosts: HostHealth<'a>,
    pub(crate) warnings: &'a mut Warnings,
    pub(crate) writes: &'a mut Writes,
    pub(crate) work_queue: &'a mut WorkQueue,
}

impl<'a> PodUngating<'a> {
    /// Warns of pods of an elastic job that stay gated because they were made for another ProvisioningRequest.
    fn report_stale_pods(&mut self, record: &WorkloadRecord, pods: &[Arc<str>]) {
        let note = (!pods.is_empty()).then(|| {
            format!(
                "Pods stay gated until they are made again, because they name another ProvisioningRequest: {}",
                pods.join(", ")
            )
        });
        if let Some(note) = note.filter(|note| self.warnings.record(Kind::Workload, &record.meta.key, note)) {
            self.writes.emit(workload_warning(record, "PodsStayGated", note));
        }
    }

    /// Ungates the pods of a Workload, and terminates ungated pods that can never reach their host.
    pub(crate) fn step(&mut self, workload: &ObjectKey, now: Timestamp) {
        let cache = self.hosts.cache;
        // A write of its pods may have been decided before another slice took over.
        let Some(record) = cache.slice_in_use(workload).filter(|record| record.may_run()) else {
            self.warnings.record_gated_pods(workload, None);
            self.warnings.clear_blocked_pods(workload);
            return;
        };
        let blocked = |(key, pod, member): (&'a ObjectKey, &'a PodRecord, &'a WorkloadPod)| {
            let blocker = member.blocker.as_ref().filter(|_| cache.belongs_to(pod, &record.meta.key))?;
            Some((&*key.name, blocker))
        };
        let pods = cache.pods_of(&record.meta.key).filter_map(blocked);
        blocked_pods::report(record, pods, self.warnings, self.writes);
        let oversized = |(key, pod, member): (&'a ObjectKey, &'a PodRecord, &'a WorkloadPod)| {
            let waits = [names::TOPOLOGY_GATE, names::ELASTIC_JOB_ANNOTATION];
            let note = waits.iter().any(|gate| member.has_gate(gate)).then(|| member.excess(record))??;
            Some((key, &pod.uid, note))
        };
        let oversized = cache.pods_of(&record.meta.key).filter_map(oversized);
        blocked_pods::report_oversized(oversized, self.warnings, self.writes);
        let workload = &record.meta.key;
        let busy = |(key, ..): (&ObjectKey, _, _)| self.writes.is_in_flight(Kind::Pod, key);
        let placed = cache.nodes().assigned_hosts(workload).is_some();
        if !(placed || record.annotations.is_slice) || cache.pods_of(workload).any(busy) {
            return;
        }
        let terminated = self.hosts.terminations_on_lost_hosts(record, now);
        let sets = record.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        let (mut ungated, mut closed_hosts) = (Vec::new(), BTreeSet::new());
        for set in sets {
            let (changes, hosts) = self.hosts.ungate_changes(record, set, now);
            ungated.extend(changes);
            closed_hosts.extend(hosts);
        }
        self.report_gated_pods(record, &closed_hosts, now);
        if record.annotations.is_slice && elastic_gates::may_change_size(cache, record, self.writes) {
            // A write that lands gives the pods a step; one that fails may not.
            let item = ReconcileKey::Pods(workload.clone());
            self.work_queue.add_at(item, backoff::after(now, RESIZE_RECHECK));
        } else {
            let opened = elastic_gates::changes(cache, record, now);
            self.report_stale_pods(record, &opened.stale);
            ungated.extend(opened.changes);
        }
        let changes = !terminated.is_empty() || !ungated.is_empty();
        if changes
            && !self.writes.is_confirmed(workload, ReconcileKey::Pods(workload.clone()), self.work_queue, now)
        {
            return;
        }
        for change in terminated.into_iter().chain(ungated) {
            let PodChange { key, body, terminates_pod, effect } = change;
            let request = if terminates_pod {
                WriteRequest::new(Kind::Pod, key, Verb::Apply, body).of_status()
            } else {
                WriteRequest::new(Kind::Pod, key, Verb::Merge, body)
            };
            self.writes.write_for(
                ReconcileKey::Pods(workload.clone()),
                request.with_effects(vec![effect]),
                self.work_queue,
                now,
            );
        }
    }

    /// Emits an event that names the nodes for which pods stay gated, once for each text. Without it a user could not see why
    /// pods wait although other nodes may be free.
    fn report_gated_pods(&mut self, record: &WorkloadRecord, hosts: &BTreeSet<Arc<str>>, now: Timestamp) {
        let reasons: Vec<String> =
            hosts.iter().filter_map(|host| self.hosts.reason_to_keep_pods_gated(record, host, now)).collect();
        let note = (!reasons.is_empty()).then(|| format!("Pods stay gated: {}", reasons.join("; ")));
        if self.warnings.record_gated_pods(&record.meta.key, note.as_deref())
            && let Some(note) = note
        {
            self.writes.emit(workload_warning(record, "PodsStayGated", note));
        }
    }
}

impl HostHealth<'_> {
    /// Returns the writes that terminate pods which were ungated onto a host and not bound before it failed or left the
    /// assignment. No scheduler will ever bind them, and their job replaces them only after they have ended.
    fn terminations_on_lost_hosts(self, record: &WorkloadRecord, now: Timestamp) -> Vec<PodChange> {
        let key = &record.meta.key;
        let Some(assigned) = self
            .cache
            .nodes()
            .assigned_hosts(key)
            .filter(|assigned| assigned.pod_sets_above_host_level.is_empty())
        else {
            return Vec::new();
        };
        let is_lost = |host: &str| {
            let failed = record.status.unhealthy_nodes.iter().any(|node| node.name == host);
            failed || !assigned.hosts.contains(host)
        };
        let termination = |(pod, known, member): (&ObjectKey, &PodRecord, &WorkloadPod)| {
            let host = member.selected_value(HOSTNAME_LABEL).filter(|host| is_lost(host))?;
            let pending = known.node.is_none() && !member.terminating && member.gates.is_empty();
            (pending && self.cache.belongs_to(known, key)).then(|| terminate_pod(pod, known, host, now))
        };
        self.cache.pods_of(key).filter_map(termination).collect()
    }

    /// Returns the patches that ungate pods of one pod set, and the hosts for which other pods stay gated.
    fn ungate_changes(
        self,
        record: &WorkloadRecord,
        set: &PodSetAssignment,
        now: Timestamp,
    ) -> (Vec<PodChange>, Vec<Arc<str>>) {
        let Some(placement) = placement_of(set) else {
            return Default::default();
        };
        let pod_set = record.pod_sets().iter().find(|known| *known.name == *set.name);
        let own = |(_, pod, member): &(_, &PodRecord, &WorkloadPod)| {
            *member.pod_set == *set.name
                && !member.has_gate(names::ELASTIC_JOB_ANNOTATION)
                && !(member.has_gate(names::TOPOLOGY_GATE) && member.excess(record).is_some())
                && self.cache.belongs_to(pod, &record.meta.key)
        };
        let pods: Vec<_> = self.cache.pods_of(&record.meta.key).filter(own).collect();
        if !pods.iter().any(|(.., member)| member.has_gate(names::TOPOLOGY_GATE) && !member.terminating) {
            return Default::default();
        }
        let own_ranks = pods.iter().map(|(.., member)| pod_rank(pod_set, member));
        let ranks = pod_ranks(own_ranks, pods_before(&grouped_pod_sets(record), &set.name));
        let state = |((_, pod, member), rank): (&(_, &PodRecord, &WorkloadPod), Option<i64>)| TasPodState {
            gated: member.has_gate(names::TOPOLOGY_GATE),
            terminating: member.terminating,
            rank,
            domain: domain_of_pod(self.cache, &placement, pod.node.as_ref(), member),
        };
        let states: Vec<TasPodState> = pods.iter().zip(ranks).map(state).collect();
        let slots = |(values, pods): &(DomainPath, i32)| DomainSlots {
            pods: *pods,
            accepts_pods: !placement.is_by_host()
                || values.last().is_some_and(|host| self.host_accepts_pods(record, host, now)),
        };
        let domains: Vec<DomainSlots> = placement.domains.iter().map(slots).collect();
        let selector =
            |at: usize| placement.domains.get(at).map(|(values, _)| domain_selector(&placement, values));
        let fits = |pod: usize, domain: usize| {
            let (Some((.., member)), Some(wanted)) = (pods.get(pod), selector(domain)) else {
                return false;
            };
            wanted
                .iter()
                .all(|(label, value)| member.selected_value(label).is_none_or(|own| *own == ***value))
        };
        let assigned = assign_gated_pods(&states, &domains, fits);
        let closed: Vec<Arc<str>> = domains_waited_for(&states, &domains, fits)
            .into_iter()
            .filter_map(|domain| placement.domains.get(domain)?.0.last().cloned())
            .collect();
        let patch = |(pod, domain): (usize, usize)| {
            let ((key, pod, member), wanted) = (pods.get(pod)?, selector(domain)?);
            let gates = gates_without(member, names::TOPOLOGY_GATE);
            let wanted: Map<String, Value> =
                wanted.iter().map(|(label, value)| (label.to_string(), json!(&**value))).collect();
            let body = json!({
                "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
                "spec": {"schedulingGates": gates, "nodeSelector": wanted},
            });
            Some(PodChange {
                key: (*key).clone(),
                body,
                terminates_pod: false,
                effect: gate_removed_observation(record, names::TOPOLOGY_GATE, now),
            })
        };
        (assigned.into_iter().filter_map(patch).collect(), closed)
    }

    /// Returns whether pods may be ungated onto a host now.
    fn host_accepts_pods(self, record: &WorkloadRecord, host: &str, now: Timestamp) -> bool {
        let unhealthy = record.status.unhealthy_nodes.iter().any(|node| node.name == host);
        !unhealthy && self.is_healthy(record, host, now)
    }
}

/// Returns the index of the domain of a pod: that of its node if the pod is bound and the domains are hosts, else
/// the domain that its node selector names.
pub(super) fn domain_of_pod(
    cache: &Cache,
    placement: &Placement,
    node: Option<&Arc<str>>,
    member: &WorkloadPod,
) -> Option<usize> {
    let host = node.filter(|_| placement.is_by_host()).map(|node| cache.nodes().host_of(node));
    placement.domains.iter().position(|(values, _)| {
        let selected = || {
            let wanted = domain_selector(placement, values);
            wanted.iter().all(|(label, value)| member.selected_value(label) == Some(&**value))
        };
        host.as_ref().map_or_else(selected, |host| values.last() == Some(host))
    })
}

/// Adds the topology gate to the template of a pod set with a topology assignment, so that its pods wait until they are
/// ungated onto their domains. Also annotates pods that request no topology as unconstrained.
pub(crate) fn add_topology_gate(
    template: &mut TemplateInfo,
    record: &WorkloadRecord,
    set: &PodSetAssignment,
) {
    if set.topology_assignment.is_none() {
        return;
    }
    template.scheduling_gates.push(names::TOPOLOGY_GATE.to_owned());
    let pod_set = record.pod_sets().iter().find(|known| *known.name == *set.name);
    if pod_set.is_some_and(|p| p.topology.as_ref().is_none_or(|request| !request.names_topology())) {
        let key = names::UNCONSTRAINED_TOPOLOGY_ANNOTATION.to_owned();
        template.annotations.insert(key, "true".to_owned());
    }
}

/// Returns the write that terminates a pod which cannot reach its node.
fn terminate_pod(key: &ObjectKey, pod: &PodRecord, host: &str, now: Timestamp) -> PodChange {
    let note = format!("The pod was assigned to node {host}, which is not there for it any more");
    let condition = json!({
        "type": "TerminatedByKueue", "status": "True", "reason": "UnschedulableOnAssignedNode", "message": note,
        "lastTransitionTime": conditions::to_api_time(now),
    });
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": pod.uid,
            "resourceVersion": pod.resource_version},
        "status": {"phase": "Failed", "conditions": [condition]},
    });
    let subject = (Kind::Pod, key, &*pod.uid);
    let event = Effect::Event(event_on(subject, EventType::Normal, "PodTerminatedByKueue", note));
    PodChange { key: key.clone(), body, terminates_pod: true, effect: event }
}

/// Returns the node selector of a domain: the label of each level with its value.
fn domain_selector<'a>(
    placement: &'a Placement,
    values: &'a DomainPath,
) -> Vec<(&'a Arc<str>, &'a Arc<str>)> {
    placement.levels.iter().zip(values.iter()).collect()
}

/// Returns name, group and count of each pod set.
fn grouped_pod_sets(record: &WorkloadRecord) -> Vec<(&str, Option<&str>, i32)> {
    let sets = record.pod_sets().iter();
    sets.map(|set| {
        let group = set.topology.as_deref().and_then(|topology| topology.pod_set_group_name.as_deref());
        (&*set.name, group, set.count)
    })
    .collect()
}

/// Returns the number of pods in the leader's pod set if this pod set is the workers' of the same group: some kinds count leader
/// and workers in one sequence. The smaller pod set is the leader's, of equal ones the first. `sets`: name, group and count of
/// each.
fn pods_before(sets: &[(&str, Option<&str>, i32)], name: &str) -> i64 {
    let Some(at) = sets.iter().position(|(own, ..)| *own == name) else { return 0 };
    let Some((_, Some(group), count)) = sets.get(at).copied() else { return 0 };
    let leader = |(other, (_, its_group, pods)): (usize, &(&str, Option<&str>, i32))| {
        let smaller = *pods < count || (*pods == count && other < at);
        (other != at && smaller && *its_group == Some(group)).then_some(*pods)
    };
    sets.iter().enumerate().find_map(leader).map_or(0, i64::from)
}

/// Returns the ranks of pods whose indexes continue after the pods of a leader, unless one of them has the index of a leader.
fn pod_ranks(ranks: impl Iterator<Item = Option<i64>>, before: i64) -> Vec<Option<i64>> {
    let ranks: Vec<Option<i64>> = ranks.collect();
    let own_sequence = ranks.iter().flatten().any(|rank| *rank < before);
    let offset = if own_sequence { 0 } else { before };
    ranks.into_iter().map(|rank| rank.and_then(|rank| rank.checked_sub(offset))).collect()
}

/// Returns the rank of a pod in its pod set, from the index labels that the topology request names. `None` if the
/// request names no label, or the pod has no valid index.
fn pod_rank(pod_set: Option<&PodSetRecord>, member: &WorkloadPod) -> Option<i64> {
    let request = pod_set?.topology.as_deref()?;
    let index = member.numeric_label(request.pod_index_label.as_deref()?)?;
    let rank = index.checked_sub(member.index_offset?)?;
    let (Some(label), Some(groups)) = (&request.sub_group_index_label, request.sub_group_count) else {
        return Some(rank);
    };
    let size = i64::from(pod_set?.count).checked_div(i64::from(groups))?;
    // With an index outside its group, the pod would get the rank of a pod in another group.
    let within = (0..size).contains(&rank);
    within.then_some(())?;
    rank.checked_add(member.numeric_label(label)?.checked_mul(size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_follow_their_leader() {
        let sets =
            [("alone", None, 1), ("workers", Some("g"), 2), ("leader", Some("g"), 1), ("b", Some("h"), 3)];
        let table = [("alone", 0), ("workers", 1), ("leader", 0), ("b", 0), ("unknown", 0)];
        for (name, before) in table {
            assert_eq!(pods_before(&sets, name), before, "{name}");
        }
        let equal = [("first", Some("g"), 2), ("second", Some("g"), 2)];
        assert_eq!((pods_before(&equal, "first"), pods_before(&equal, "second")), (0, 2));
    }

    /// A worker set counts its pods from the leader's on, or from 0.
    #[test]
    fn ranks_start_at_zero() {
        let ranks = |indexes: &[Option<i64>], before| pod_ranks(indexes.iter().copied(), before);
        assert_eq!(ranks(&[Some(1), Some(2), None], 1), [Some(0), Some(1), None]);
        assert_eq!(ranks(&[Some(1), Some(0)], 1), [Some(1), Some(0)]);
        assert_eq!(ranks(&[Some(3)], 0), [Some(3)]);
    }
}
