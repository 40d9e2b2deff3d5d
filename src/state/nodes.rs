//! Nodes as the core follows them, and which workloads stand on which hosts.
//!
//! Invariants: what placement needs of a node is kept by the scheduler alone; an event that says nothing new of a node, such
//! as a heartbeat, ends at a comparison. A host may have several nodes: it is as sound as the soundest of them.

use super::records::WorkloadRecord;
use super::{Item, State};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{CheckState, PodSetAssignment};
use crate::lifecycle::node_failure::{Health, News, Rules, Verdict, judge};
use crate::lifecycle::{conditions, reservation};
use crate::topology::{HOSTNAME, NodeSpec, Placement, decode, is_hard};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Toleration};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is kept of a node beside what the scheduler keeps.
#[derive(Clone, Debug)]
struct NodeRecord {
    uid: Arc<str>,
    resource_version: String,
    /// What assignments call it.
    host: Arc<str>,
    health: Health,
}

/// Where a workload stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footing {
    /// Hosts of its assignment.
    pub(super) hosts: BTreeSet<Arc<str>>,
    /// Pod sets that were given domains wider than hosts.
    pub(super) wide: BTreeSet<Arc<str>>,
}

/// All nodes, and who stands on them.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    by_name: BTreeMap<Arc<str>, NodeRecord>,
    by_host: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    footings: BTreeMap<ObjectKey, Footing>,
    by_footing: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Nodes {
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// UID and version of a node.
    pub(super) fn known(&self, name: &str) -> Option<(&str, &str)> {
        self.by_name.get(name).map(|node| (&*node.uid, node.resource_version.as_str()))
    }

    /// The name as it is kept already, so that a pod does not keep it once more.
    pub(super) fn shared_name(&self, name: &str) -> Arc<str> {
        self.by_name.get_key_value(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known))
    }

    /// What assignments call a node; one that is not known by its name.
    pub(super) fn host_of(&self, node: &Arc<str>) -> Arc<str> {
        self.by_name.get(node).map_or_else(|| Arc::clone(node), |record| Arc::clone(&record.host))
    }

    /// Where a workload stands, if it was given places.
    pub(super) fn footing(&self, workload: &ObjectKey) -> Option<&Footing> {
        self.footings.get(workload)
    }

    /// Every node of a host.
    fn of_host(&self, host: &str) -> impl Iterator<Item = &Health> {
        let names = self.by_host.get(host).into_iter().flatten();
        names.filter_map(|name| Some(&self.by_name.get(name)?.health))
    }

    /// Whether nothing at all is wrong with a host, whatever pods tolerate.
    fn is_plain(&self, host: &str) -> bool {
        self.of_host(host)
            .any(|node| node.ready.is_some_and(|(ready, _)| ready) && !node.taints.iter().any(is_hard))
    }

    /// What is to be thought of a host: the best of what is to be thought of its nodes.
    fn verdict(
        &self,
        host: &str,
        tolerations: &[Toleration],
        busy: bool,
        rules: Rules,
        now: Timestamp,
    ) -> Verdict {
        let mut best = Verdict::Failed;
        for node in self.of_host(host) {
            match (judge(Some(node), tolerations, busy, rules, now), best) {
                (Verdict::Sound, _) => return Verdict::Sound,
                (unsure @ Verdict::Unsure(_), Verdict::Failed) => best = unsure,
                _ => {}
            }
        }
        best
    }

    /// Sets where a workload stands. Answers whether that has changed.
    fn stand(&mut self, workload: &ObjectKey, footing: Option<Footing>) -> bool {
        if self.footings.get(workload) == footing.as_ref() {
            return false;
        }
        for host in self.footings.remove(workload).into_iter().flat_map(|old| old.hosts) {
            super::ingest::take_from(&mut self.by_footing, &host, workload);
        }
        if let Some(footing) = footing {
            for host in &footing.hosts {
                self.by_footing.entry(Arc::clone(host)).or_default().insert(workload.clone());
            }
            self.footings.insert(workload.clone(), footing);
        }
        true
    }
}

impl State {
    pub(super) fn take_node(&mut self, name: &Arc<str>, node: Node) {
        let spec = NodeSpec::of(&node);
        let host = spec.labels.get(HOSTNAME).map_or(&**name, String::as_str);
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Ready");
        let since = |at: Option<jiff::Timestamp>| at.unwrap_or(Timestamp::UNIX_EPOCH);
        let ready = ready.map(|c| (c.status == "True", since(c.last_transition_time.map(|time| time.0))));
        let health = Health { ready, taints: spec.taints.clone() };
        let version = node.metadata.resource_version.unwrap_or_default();
        let uid = node.metadata.uid.unwrap_or_default();
        let known = self.nodes.by_name.get_mut(name);
        if let Some(known) = known.filter(|k| *k.uid == *uid && *k.host == *host && k.health == health) {
            known.resource_version = version;
            self.engine.set_node(name, Some(spec));
            return;
        }
        let host: Arc<str> = if *host == **name { Arc::clone(name) } else { Arc::from(host) };
        self.engine.set_node(name, Some(spec));
        self.forget_node(name);
        let record =
            NodeRecord { uid: Arc::from(uid), resource_version: version, host: Arc::clone(&host), health };
        self.nodes.by_name.insert(Arc::clone(name), record);
        self.nodes.by_host.entry(Arc::clone(&host)).or_default().insert(Arc::clone(name));
        self.host_changed(&host);
    }

    pub(super) fn remove_node(&mut self, name: &Arc<str>) {
        self.engine.set_node(name, None);
        self.forget_node(name);
    }

    fn forget_node(&mut self, name: &Arc<str>) {
        let Some(record) = self.nodes.by_name.remove(name) else {
            return;
        };
        if let Some(names) = self.nodes.by_host.get_mut(&record.host) {
            names.remove(name);
            if names.is_empty() {
                self.nodes.by_host.remove(&record.host);
            }
        }
        self.host_changed(&record.host);
    }

    /// Those who stand on a host look again.
    fn host_changed(&mut self, host: &Arc<str>) {
        for workload in self.nodes.by_footing.get(host).into_iter().flatten() {
            self.dirty.insert(Item::Workload(workload.clone()));
            self.dirty.insert(Item::Pods(workload.clone()));
        }
    }

    /// A Workload has changed: so may have where it stands, and then who pays for its pods.
    pub(super) fn footing_changed(&mut self, key: &ObjectKey) {
        let footing = self.workloads.get(key).and_then(|record| footing_of(record));
        let stands = footing.is_some();
        if self.nodes.stand(key, footing) {
            self.charge_pods_of(key);
        }
        if stands {
            self.dirty.insert(Item::Pods(key.clone()));
        }
    }

    /// News of the nodes that an admitted Workload stands on.
    pub(super) fn node_news(&self, key: &ObjectKey, record: &WorkloadRecord, now: Timestamp) -> News {
        let mut news = News::default();
        let (Some(rules), Some(footing)) = (self.settings.gates.node_failures, self.nodes.footing(key))
        else {
            return news;
        };
        let holds = |kind| conditions::is_true(&record.status, kind);
        if !holds(ConditionType::Admitted) || holds(ConditionType::Evicted) {
            return news;
        }
        for host in &footing.hosts {
            if self.nodes.is_plain(host) {
                continue;
            }
            let busy = self.has_pod_going_on(key, host);
            let tolerations = self.tolerations_on(record, host);
            match self.nodes.verdict(host, &tolerations, busy, rules, now) {
                Verdict::Failed => news.failed.push(host.to_string()),
                Verdict::Unsure(due) => news.due = news.due.into_iter().chain(due).min(),
                Verdict::Sound => {}
            }
        }
        for node in &record.status.unhealthy_nodes {
            let gone = !footing.hosts.contains(node.name.as_str());
            if gone || self.host_is_sound(record, &node.name, now) {
                news.sound.push(node.name.clone());
            }
        }
        news
    }

    /// Whether pods of a Workload may be sent to a host.
    pub(super) fn host_is_sound(&self, record: &WorkloadRecord, host: &str, now: Timestamp) -> bool {
        let rules = self.settings.gates.node_failures.unwrap_or_default();
        self.nodes.is_plain(host)
            || self.nodes.verdict(host, &self.tolerations_on(record, host), true, rules, now)
                == Verdict::Sound
    }

    /// What pods of a Workload on a host tolerate: by their template, their flavors, and checks that are ready.
    fn tolerations_on(&self, record: &WorkloadRecord, host: &str) -> Vec<Toleration> {
        let mut all = Vec::new();
        let Some(admission) = &record.status.admission else {
            return all;
        };
        for set in admission.pod_set_assignments.iter().filter(|set| stands_on(set, host)) {
            let own = record.pod_sets().iter().find(|known| *known.name == *set.name);
            all.extend(own.and_then(|own| own.spec.tolerations.clone()).unwrap_or_default());
            for flavor in set.flavors.values().filter_map(|name| self.flavors.get(name.as_str())) {
                all.extend(flavor.object.spec.tolerations.iter().cloned());
            }
            let ready = record.status.admission_checks.iter().filter(|c| c.state == CheckState::Ready);
            for update in ready.flat_map(|check| &check.pod_set_updates).filter(|u| u.name == set.name) {
                all.extend(update.tolerations.iter().cloned());
            }
        }
        all
    }
}

fn placement_of(set: &PodSetAssignment) -> Option<Placement> {
    set.topology_assignment.as_ref().and_then(decode)
}

fn stands_on(set: &PodSetAssignment, host: &str) -> bool {
    placement_of(set).is_some_and(|placement| placement.names_host(host))
}

/// Where the admission of a Workload that holds quota puts its pods.
fn footing_of(record: &WorkloadRecord) -> Option<Footing> {
    let admission = record.status.admission.as_ref().filter(|_| reservation::holds_quota(&record.status))?;
    let mut footing = Footing::default();
    for set in &admission.pod_set_assignments {
        let Some(placement) = placement_of(set) else { continue };
        if placement.is_by_host() {
            footing.hosts.extend(placement.domains.iter().filter_map(|(values, _)| values.last().cloned()));
        } else {
            footing.wide.insert(Arc::from(set.name.as_str()));
        }
    }
    (footing != Footing::default()).then_some(footing)
}
