//! Findings about workloads, by their queue and the requests of their pods.

use super::stuck::{Classes, Stuck};
use super::{Audit, Said, counted, finding, finding_in_namespace, meant, number, verb, word};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::similar::nearest;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::resources::{Amount, Requests};
use crate::snapshot::{AuditFacts, AuditedFlavor, covers};
use crate::topology::{PodRequirements, tolerates};
use crate::visibility::amounts::plain_amount_view;
use crate::visibility::views::{Check, Finding, WorkloadState};
use crate::visibility::workload_row::state_of;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum time that a check may be pending.
const MAX_CHECK: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of classes of pods that the audit examines.
const MAX_CLASSES: usize = 10_000;

/// Class of pods of a ClusterQueue: its namespace in the form for namespaces, and their requests and node selectors.
type PodClass<'a> = ((Arc<str>, &'a str), &'a Requests, &'a BTreeMap<String, String>);

/// Results of a pass over the workloads.
#[derive(Default)]
struct Collected<'a> {
    stuck: Stuck<'a>,
    missing_queues: BTreeMap<ObjectKey, Classes<'a>>,
    /// Number of workloads by late check, and by namespace in the form for namespaces.
    late_checks: BTreeMap<(&'a str, &'a str), usize>,
    /// Number of workloads by class of their pods, without stuck workloads.
    classes: BTreeMap<PodClass<'a>, usize>,
    /// Requirements of pods by ClusterQueue; one for each set of tolerations.
    tolerations: BTreeMap<Arc<str>, Vec<&'a Arc<PodRequirements>>>,
}

impl Audit<'_> {
    pub(super) fn workloads(&self, found: &mut Vec<Finding>) {
        let mut collected = Collected::default();
        for alike in self.examined() {
            self.collect(alike, &mut collected);
        }
        self.stuck(&collected.stuck, found);
        for (queue, classes) in &collected.missing_queues {
            found.push(self.missing_queue(queue, classes));
        }
        for ((check, namespace), workloads) in &collected.late_checks {
            found.push(self.late_check(check, namespace, *workloads));
        }
        if let Some(facts) = self.facts.filter(|facts| facts.knows_nodes) {
            self.too_large_pods(facts, &collected, found);
            self.untolerated(facts, &collected, found);
        }
    }

    /// Adds workloads that decisions treat alike: one of them, and their number.
    fn collect<'a>(&'a self, (record, count): (&'a WorkloadRecord, usize), collected: &mut Collected<'a>) {
        let state = state_of(record);
        if state == WorkloadState::Finished {
            return;
        }
        let is_late = |check: &&crate::api::v1beta2::AdmissionCheckState| {
            check.state.is_waiting() && self.now.duration_since(check.last_transition_time.0) > MAX_CHECK
        };
        let has_quota = conditions::is_true(&record.status, ConditionType::QuotaReserved);
        for check in record.status.admission_checks.iter().filter(|_| has_quota).filter(is_late) {
            *collected.late_checks.entry((&check.name, self.part(record))).or_default() += count;
        }
        let queue = self.rows.cluster_queue(record);
        let sets = || record.effective_requests.pod_sets.iter().flat_map(|sets| sets.iter());
        let known = collected.tolerations.entry(Arc::clone(&queue)).or_default();
        for set in sets() {
            let is_known =
                |other: &&Arc<PodRequirements>| other.tolerations == set.pod_requirements.tolerations;
            if known.len() < MAX_CLASSES && !known.iter().any(is_known) {
                known.push(&set.pod_requirements);
            }
        }
        if state != WorkloadState::Pending {
            return;
        }
        let queues = &self.snapshot.references.local_queues;
        if let Some(queue) = record.local_queue().filter(|queue| !queues.contains_key(queue)) {
            collected.missing_queues.entry(queue).or_default().add(record, count);
            return;
        }
        if self.collect_stuck((record, count), &queue, &mut collected.stuck) {
            return;
        }
        let mut counted: BTreeSet<&Requests> = BTreeSet::new();
        for set in sets().filter(|set| set.count > 0) {
            if collected.classes.len() < MAX_CLASSES && counted.insert(&set.requests) {
                let place = (Arc::clone(&queue), self.part(record));
                let class = (place, &set.requests, &set.pod_requirements.node_selector);
                *collected.classes.entry(class).or_default() += count;
            }
        }
    }

    /// Returns the namespace of a workload in the form for namespaces; empty in the form for the cluster.
    fn part<'a>(&self, record: &'a WorkloadRecord) -> &'a str {
        if self.form.is_by_namespace() { &record.meta.key.namespace } else { "" }
    }

    fn missing_queue(&self, queue: &ObjectKey, classes: &Classes<'_>) -> Finding {
        let workloads = classes.workloads();
        let (namespace, name) = (&queue.namespace, &queue.name);
        let known = &self.snapshot.references.local_queues;
        let of_namespace = known.range(ObjectKey::new(namespace, "")..);
        let of_namespace = of_namespace.take_while(|(key, _)| key.namespace == *namespace);
        let names: Vec<&str> = of_namespace.map(|(key, _)| &*key.name).collect();
        // If the namespace has a single queue, it is probably meant, whatever its name.
        let only = if let [only] = &names[..] { Some(*only) } else { None };
        let near = nearest(name, names.iter().copied()).or(only);
        let said = Said {
            message: format!(
                "{} {} LocalQueue {name}{}",
                counted(workloads, "workload"),
                verb(workloads, "name"),
                meant(near)
            ),
            consequence: "they wait until there is one of this name",
            correction: format!("create LocalQueue {name} in namespace {namespace}, or correct the label"),
            ..Said::default()
        };
        let said = said.with("workloads", number(workloads));
        let found = finding_in_namespace(Check::LocalQueueMissing, (namespace, name), said);
        Finding { workloads: classes.views(), ..found }
    }

    /// Finds pods that no empty node of their flavors can hold, by ClusterQueue.
    fn too_large_pods(&self, facts: &AuditFacts, collected: &Collected<'_>, found: &mut Vec<Finding>) {
        let mut reported: BTreeMap<&(Arc<str>, &str), (usize, String)> = BTreeMap::new();
        for ((place, requests, selector), workloads) in &collected.classes {
            let flavors = self.flavors_for(facts, &place.0, selector);
            if flavors.is_empty() || flavors.iter().any(|flavor| flavor.holds(requests)) {
                continue;
            }
            let Some(text) = what_is_too_large(requests, &flavors) else { continue };
            let entry = reported.entry(place).or_insert((0, text));
            entry.0 = entry.0.saturating_add(*workloads);
        }
        for ((queue, namespace), (workloads, text)) in reported {
            let said = Said {
                message: format!("{}: {text}", counted(workloads, "workload")),
                consequence: "quota is reserved for them, and their pods find no node",
                correction: self.correction("ask for smaller pods", "add larger nodes"),
                ..Said::default()
            };
            let said = said.with("workloads", number(workloads));
            found.push(if namespace.is_empty() {
                finding(Check::RequestExceedsNode, ("ClusterQueue", &ObjectKey::cluster(queue)), said)
            } else {
                finding_in_namespace(Check::RequestExceedsNode, (namespace, queue), said)
            });
        }
    }

    /// Returns the flavors of a ClusterQueue that have nodes and that the selector of pods does not rule out.
    fn flavors_for<'f>(
        &self,
        nodes: &'f AuditFacts,
        queue: &Arc<str>,
        selector: &BTreeMap<String, String>,
    ) -> Vec<&'f AuditedFlavor> {
        let facts = self.quota.facts.cluster_queues.get(queue);
        let names: BTreeSet<&Arc<str>> =
            facts.into_iter().flat_map(|facts| &facts.order).map(|fr| &fr.flavor).collect();
        let flavors = names.into_iter().filter_map(|name| nodes.flavors.get(name));
        let fits = |flavor: &&AuditedFlavor| {
            let labels = &flavor.node_labels;
            flavor.amounts.schedulable > 0
                && selector.iter().all(|(key, value)| labels.get(key).is_none_or(|own| own == value))
        };
        flavors.filter(fits).collect()
    }

    /// Finds taints that keep all pods of the queues of a flavor away from its nodes.
    fn untolerated(&self, facts: &AuditFacts, collected: &Collected<'_>, found: &mut Vec<Finding>) {
        for (name, flavor) in &facts.flavors {
            let queues = self.quota.facts.cluster_queues.iter();
            let queues = queues.filter(|(_, facts)| facts.order.iter().any(|fr| fr.flavor == *name));
            let pods: Vec<&Arc<PodRequirements>> = queues
                .flat_map(|(queue, _)| collected.tolerations.get(queue).into_iter().flatten().copied())
                .collect();
            if pods.is_empty() {
                continue;
            }
            let tolerated = |taint: &Taint| {
                pods.iter().any(|pod| pod.tolerations.iter().any(|one| tolerates(one, taint)))
            };
            let Some((taint, nodes)) = flavor.nodes.taints.iter().find(|(taint, _)| !tolerated(taint)) else {
                continue;
            };
            let value = taint.value.as_deref().filter(|value| !value.is_empty());
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            let text = format!("{}{value}:{}", taint.key, taint.effect);
            let of = counted(flavor.amounts.total, "node");
            let said = Said {
                message: format!(
                    "{nodes} of {of} {} taint {text}, which nothing tolerates",
                    if *nodes == 1 { "has" } else { "have" }
                ),
                consequence: "pods that are admitted with it are not placed there",
                correction: format!("kubectl edit resourceflavor {name}; change spec.tolerations"),
                ..Said::default()
            };
            let said = said.with("nodes", number(*nodes));
            found.push(finding(
                Check::FlavorUntolerated,
                ("ResourceFlavor", &ObjectKey::cluster(name)),
                said,
            ));
        }
    }

    /// Returns the finding about a check that is pending for too long, in the cluster or in a namespace.
    fn late_check(&self, check: &str, namespace: &str, workloads: usize) -> Finding {
        let late = format!("pending for more than an hour on {}", counted(workloads, "workload"));
        let correction = if self.form.is_in_full() {
            format!("kubectl describe admissioncheck {check}")
        } else {
            "ask an administrator of the cluster".to_owned()
        };
        let said =
            Said { consequence: "they keep their quota and do not run", correction, ..Said::default() };
        let said = said.with("workloads", number(workloads));
        if namespace.is_empty() {
            let said = Said { message: format!("it has been {late}"), ..said };
            let mut found =
                finding(Check::CheckUnanswered, ("AdmissionCheck", &ObjectKey::cluster(check)), said);
            found.metadata.name.push_str(".late");
            return found;
        }
        let said = Said { message: format!("AdmissionCheck {check} has been {late}"), ..said };
        finding_in_namespace(Check::CheckUnanswered, (namespace, check), said)
    }
}

/// Returns the request that no node can hold: alone, or together with the devices that the pod asks for.
fn what_is_too_large(requests: &Requests, flavors: &[&AuditedFlavor]) -> Option<String> {
    let shapes = || flavors.iter().flat_map(|flavor| &flavor.nodes.shapes);
    let devices: Requests = requests
        .iter()
        .filter(|(name, amount)| name.contains('/') && **amount > Amount::ZERO)
        .map(|(name, amount)| (Arc::clone(name), *amount))
        .collect();
    let most = |resource: &Arc<str>, beside: &Requests| {
        let fitting = shapes().filter(|shape| covers(shape, beside));
        fitting.map(|shape| shape.get(resource).copied().unwrap_or_default()).max()
    };
    let text = |resource: &str, amount: Amount| {
        format!("{} {}", plain_amount_view(resource, amount.to_i128()).value, word(resource))
    };
    let value = |resource: &str, amount: Amount| plain_amount_view(resource, amount.to_i128()).value;
    let nothing = Requests::new();
    for (beside, others) in [(&nothing, String::new()), (&devices, device_text(&devices, text))] {
        for (resource, request) in requests {
            if let Some(most) = most(resource, beside).filter(|most| most < request) {
                return Some(format!(
                    "{}{others}, nodes have {}",
                    text(resource, *request),
                    value(resource, most)
                ));
            }
        }
    }
    let all: Vec<String> = requests.iter().map(|(resource, request)| text(resource, *request)).collect();
    (!all.is_empty()).then(|| format!("no node has {} together", all.join(", ")))
}

fn device_text(devices: &Requests, text: impl Fn(&str, Amount) -> String) -> String {
    let all: Vec<String> = devices.iter().map(|(resource, amount)| text(resource, *amount)).collect();
    if all.is_empty() { String::new() } else { format!(" beside {}", all.join(", ")) }
}
