//! Pods of admitted workloads leave the topology gate, each for the node or domain that it was given.
//!
//! Invariants: decided on the newest assignment and pods, all pods of a workload at once, and not again before every write
//! of the last time has ended; a write carries the version of its pod, so that one that moved meanwhile is judged anew (I12);
//! no more pods leave than were granted (I22).

use super::interface::{Effect, Event, Kind, Observation, Verb};
use super::job_step::runs;
use super::pods::{Member, PodRecord};
use super::records::{PodSetRecord, WorkloadRecord};
use super::telling::wait;
use super::writes::Request;
use super::{Item, State};
use crate::api::reason::ConditionType;
use crate::api::v1beta2::PodSetAssignment;
use crate::api::{ObjectKey, names};
use crate::jobs::TemplateInfo;
use crate::lifecycle::conditions;
use crate::lifecycle::ungate::{Candidate, Room, assign};
use crate::topology::{HOSTNAME, Path, Placement, decode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A write on a pod.
struct Change {
    key: ObjectKey,
    body: Value,
    /// Whether it ends the pod instead of letting it go.
    ends: bool,
    /// What is told when it has landed.
    told: Effect,
}

impl State {
    /// Sends the pods of a Workload to their places.
    pub(super) fn step_pods(&mut self, workload: &ObjectKey, now: Timestamp) {
        let Some(record) = self.workloads.get(workload).filter(|record| runs(record)).map(Arc::clone) else {
            return;
        };
        let busy = |(key, ..): (&ObjectKey, _, _)| self.writes.is_pending(Kind::Pod, key);
        if self.nodes.footing(workload).is_none() || self.pods.of(workload).any(busy) {
            return;
        }
        let ended = self.pinned_to_lost(&record, now);
        let sets = record.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        let sent: Vec<Change> = sets.flat_map(|set| self.sent(&record, set, now)).collect();
        for change in ended.into_iter().chain(sent) {
            if self.writes.may_write(Kind::Pod, &change.key, now) {
                let verb = if change.ends { Verb::Apply } else { Verb::Merge };
                self.send(Request {
                    subresource: change.ends.then_some("status"),
                    tell: vec![change.told],
                    on_behalf_of: Some(Item::Pods(workload.clone())),
                    ..Request::new(Kind::Pod, change.key, verb, change.body)
                });
            } else if let Some(until) = self.writes.waits_until(Kind::Pod, &change.key) {
                self.timers.wake(Item::Pods(workload.clone()), until);
            }
        }
    }

    /// Pods that were let go to a node that has failed, or is no longer theirs, before they got there: no scheduler will ever
    /// place them, and only when they have ended does their job make others.
    fn pinned_to_lost(&self, record: &WorkloadRecord, now: Timestamp) -> Vec<Change> {
        let key = &record.meta.key;
        let Some(footing) = self.nodes.footing(key).filter(|footing| footing.wide.is_empty()) else {
            return Vec::new();
        };
        let is_lost = |host: &str| {
            let failed = record.status.unhealthy_nodes.iter().any(|node| node.name == host);
            failed || !footing.hosts.contains(host)
        };
        let change = |(pod, known, member): (&ObjectKey, &PodRecord, &Member)| {
            let host = member.selects(HOSTNAME).filter(|host| is_lost(host))?;
            let waits = known.node.is_none() && !member.ending && member.gates.is_empty();
            (waits && self.belongs(member)).then(|| ended(pod, known, host, now))
        };
        self.pods.of(key).filter_map(change).collect()
    }

    /// The patches of pods of one pod set that leave the gate.
    fn sent(&self, record: &WorkloadRecord, set: &PodSetAssignment, now: Timestamp) -> Vec<Change> {
        let Some(placement) = set.topology_assignment.as_ref().and_then(decode) else {
            return Vec::new();
        };
        let asked = record.pod_sets().iter().find(|known| *known.name == *set.name);
        let own = |member: &Member| *member.pod_set == *set.name && self.belongs(member);
        let pods: Vec<_> = self.pods.of(&record.meta.key).filter(|(.., member)| own(member)).collect();
        if !pods.iter().any(|(.., member)| member.is_gated() && !member.ending) {
            return Vec::new();
        }
        let candidate = |(_, pod, member): &(_, &PodRecord, &Member)| Candidate {
            gated: member.is_gated(),
            ending: member.ending,
            rank: rank(asked, member),
            place: self.place_of(&placement, pod.node.as_ref(), member),
        };
        let candidates: Vec<Candidate> = pods.iter().map(candidate).collect();
        let room = |(values, pods): &(Path, i32)| Room {
            pods: *pods,
            open: !placement.is_by_host()
                || values.last().is_some_and(|host| self.is_open(record, host, now)),
        };
        let rooms: Vec<Room> = placement.domains.iter().map(room).collect();
        let selector = |at: usize| placement.domains.get(at).map(|(values, _)| selector(&placement, values));
        let fits = |pod: usize, room: usize| {
            let (Some((.., member)), Some(wanted)) = (pods.get(pod), selector(room)) else {
                return false;
            };
            wanted.iter().all(|(label, value)| member.selects(label).is_none_or(|own| *own == ***value))
        };
        let given = assign(&candidates, &rooms, fits);
        let patch = |(pod, room): (usize, usize)| {
            let ((key, pod, member), wanted) = (pods.get(pod)?, selector(room)?);
            let gates: Vec<Value> = member
                .gates
                .iter()
                .filter(|gate| *gate != names::TOPOLOGY_GATE)
                .map(|gate| json!({"name": gate}))
                .collect();
            let gates = if gates.is_empty() { Value::Null } else { Value::Array(gates) };
            let wanted: Map<String, Value> =
                wanted.iter().map(|(label, value)| (label.to_string(), json!(&**value))).collect();
            let body = json!({
                "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
                "spec": {"schedulingGates": gates, "nodeSelector": wanted},
            });
            Some(Change { key: (*key).clone(), body, ends: false, told: gate_removed(record, now) })
        };
        given.into_iter().filter_map(patch).collect()
    }

    /// Whether pods may be sent to a host now.
    fn is_open(&self, record: &WorkloadRecord, host: &str, now: Timestamp) -> bool {
        let told = record.status.unhealthy_nodes.iter().any(|node| node.name == host);
        !told && self.host_is_sound(record, host, now)
    }

    /// The domain that a pod is bound for by its selector, or stands in.
    fn place_of(&self, placement: &Placement, node: Option<&Arc<str>>, member: &Member) -> Option<usize> {
        let host = node.filter(|_| placement.is_by_host()).map(|node| self.nodes.host_of(node));
        placement.domains.iter().position(|(values, _)| {
            let selected = || {
                let wanted = selector(placement, values);
                wanted.iter().all(|(label, value)| member.selects(label) == Some(&**value))
            };
            host.as_ref().map_or_else(selected, |host| values.last() == Some(host))
        })
    }

    /// Adds to a template what pods with a topology are given at the start: they wait at a gate to be sent to their places.
    pub(super) fn add_topology(
        &self,
        template: &mut TemplateInfo,
        record: &WorkloadRecord,
        set: &PodSetAssignment,
    ) {
        if !self.settings.engine.gates.topology || set.topology_assignment.is_none() {
            return;
        }
        template.scheduling_gates.push(names::TOPOLOGY_GATE.to_owned());
        let asked = record.pod_sets().iter().find(|known| *known.name == *set.name);
        if asked.is_some_and(|asked| asked.topology.as_ref().is_none_or(|request| !request.names_topology()))
        {
            let key = names::UNCONSTRAINED_TOPOLOGY_ANNOTATION.to_owned();
            template.annotations.insert(key, "true".to_owned());
        }
    }
}

/// Ends a pod that cannot get to its node.
fn ended(key: &ObjectKey, pod: &PodRecord, host: &str, now: Timestamp) -> Change {
    let note = format!("The pod was assigned to node {host}, which is not there for it any more");
    let condition = json!({
        "type": "TerminatedByKueue", "status": "True", "reason": "UnschedulableOnAssignedNode", "message": note,
        "lastTransitionTime": conditions::stored(now),
    });
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": pod.uid,
            "resourceVersion": pod.resource_version},
        "status": {"phase": "Failed", "conditions": [condition]},
    });
    let told = Effect::Event(Event {
        kind: Kind::Pod,
        key: key.clone(),
        uid: pod.uid.to_string(),
        warning: false,
        reason: "PodTerminatedByKueue".to_owned(),
        note,
    });
    Change { key: key.clone(), body, ends: true, told }
}

/// The topology gate of a pod was removed.
fn gate_removed(record: &WorkloadRecord, now: Timestamp) -> Effect {
    let status = &record.status;
    let cluster_queue = status.admission.as_ref().map(|admission| admission.cluster_queue.clone());
    let admitted = conditions::since(status, ConditionType::Admitted).unwrap_or(now);
    Effect::Observe(Observation::GateRemoved {
        gate: names::TOPOLOGY_GATE,
        cluster_queue: cluster_queue.unwrap_or_default(),
        latency: wait(admitted, now),
    })
}

/// Labels of the levels with the values of a domain.
fn selector<'a>(placement: &'a Placement, values: &'a Path) -> Vec<(&'a Arc<str>, &'a Arc<str>)> {
    placement.levels.iter().zip(values.iter()).collect()
}

/// Place of a pod in the order of its pod set, by the labels that the pod set names.
fn rank(asked: Option<&PodSetRecord>, member: &Member) -> Option<i64> {
    let request = asked?.topology.as_deref()?;
    let index = member.number(request.pod_index_label.as_deref()?)?;
    let rank = index.checked_sub(member.offset?)?;
    let (Some(label), Some(groups)) = (&request.sub_group_index_label, request.sub_group_count) else {
        return Some(rank);
    };
    let size = i64::from(asked?.count).checked_div(i64::from(groups))?;
    // An index beyond its group would be that of another pod.
    let within = (0..size).contains(&rank);
    within.then_some(())?;
    rank.checked_add(member.number(label)?.checked_mul(size)?)
}
