//! Findings about workloads, by what they have in common: their queue and what their pods ask for.

use super::{Audit, Said, counted, finding, finding_in_namespace, meant, number, verb, word};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::similar::nearest;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::quota::FlavorResource;
use crate::resources::{Amount, Quantity, Requests, amount};
use crate::snapshot::{AuditFacts, AuditedFlavor, covers};
use crate::topology::{PodRequirements, tolerates};
use crate::visibility::amounts::plain_amount_view;
use crate::visibility::blocker_text::{BlockerText, first_blocker};
use crate::visibility::views::{Check, Finding, WorkloadState};
use crate::visibility::workload_row::{reason_of, state_of};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a check may be pending.
const MAX_CHECK: SignedDuration = SignedDuration::from_hours(1);
/// Most classes of pods that are looked at.
const MAX_CLASSES: usize = 10_000;

/// Pods of a ClusterQueue that are alike: their requests and node selectors.
type PodClass<'a> = (Arc<str>, &'a Requests, &'a BTreeMap<String, String>);

/// What a pass over the workloads finds.
#[derive(Default)]
struct Collected<'a> {
    /// By ClusterQueue and flavor-resource.
    never: BTreeMap<(Arc<str>, FlavorResource), NeverFits>,
    missing_queues: BTreeMap<ObjectKey, usize>,
    late_checks: BTreeMap<&'a str, usize>,
    /// Classes of pending pods, with the number of workloads.
    classes: BTreeMap<PodClass<'a>, usize>,
    /// Requirements of pods by ClusterQueue; one of each kind of toleration.
    tolerations: BTreeMap<Arc<str>, Vec<&'a Arc<PodRequirements>>>,
}

#[derive(Clone, Copy)]
struct NeverFits {
    workloads: usize,
    least: Amount,
    most: Amount,
}

impl Audit<'_> {
    pub(super) fn workloads(&self, found: &mut Vec<Finding>) {
        let mut collected = Collected::default();
        for record in self.snapshot.workloads.starting_at(0) {
            self.collect(record, &mut collected);
        }
        for ((queue, fr), never) in &collected.never {
            found.push(self.never_fits(queue, fr, *never));
        }
        for (queue, workloads) in &collected.missing_queues {
            found.push(self.missing_queue(queue, *workloads));
        }
        for (check, workloads) in &collected.late_checks {
            let said = Said {
                message: format!(
                    "it has been pending for more than an hour on {}",
                    counted(*workloads, "workload")
                ),
                consequence: "they keep their quota and do not run",
                correction: format!("kubectl describe admissioncheck {check}"),
                ..Said::default()
            };
            let said = said.with("workloads", number(*workloads));
            let object = ("AdmissionCheck", &ObjectKey::cluster(check));
            let mut late = finding(Check::CheckUnanswered, object, said);
            late.metadata.name.push_str(".late");
            found.push(late);
        }
        if let Some(facts) = self.facts.filter(|facts| facts.knows_nodes) {
            self.too_large_pods(facts, &collected, found);
            self.untolerated(facts, &collected, found);
        }
    }

    fn collect<'a>(&'a self, record: &'a WorkloadRecord, collected: &mut Collected<'a>) {
        let state = state_of(record);
        if state == WorkloadState::Finished {
            return;
        }
        let is_late = |check: &&crate::api::v1beta2::AdmissionCheckState| {
            check.state.is_waiting() && self.now.duration_since(check.last_transition_time.0) > MAX_CHECK
        };
        let has_quota = conditions::is_true(&record.status, ConditionType::QuotaReserved);
        for check in record.status.admission_checks.iter().filter(|_| has_quota).filter(is_late) {
            *collected.late_checks.entry(&check.name).or_default() += 1;
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
            *collected.missing_queues.entry(queue).or_default() += 1;
        }
        if reason_of(record, state) == PendingReason::ExceedsMaxQuota.as_str() {
            // A message of another form says nothing of the amounts.
            let nothing = || (FlavorResource::new("", ""), Amount::ZERO);
            let (fr, request) = never_fitting(record).unwrap_or_else(nothing);
            let first = NeverFits { workloads: 0, least: request, most: request };
            let never = collected.never.entry((queue, fr)).or_insert(first);
            never.workloads = never.workloads.saturating_add(1);
            never.least = never.least.min(request);
            never.most = never.most.max(request);
            return;
        }
        let mut counted: BTreeSet<&Requests> = BTreeSet::new();
        for set in sets().filter(|set| set.count > 0) {
            if collected.classes.len() < MAX_CLASSES && counted.insert(&set.requests) {
                let class = (Arc::clone(&queue), &set.requests, &set.pod_requirements.node_selector);
                *collected.classes.entry(class).or_default() += 1;
            }
        }
    }

    fn never_fits(&self, queue: &Arc<str>, fr: &FlavorResource, never: NeverFits) -> Finding {
        let node = crate::quota::NodeRef::ClusterQueue(Arc::clone(queue));
        let most = self.quota.headroom(&node, fr).0.potential.max(0);
        let view = |amount: i128| self.sums.view(self.snapshot, fr, amount);
        let (least, greatest) = (view(never.least.to_i128()), view(never.most.to_i128()));
        let range = if never.least == never.most {
            greatest.value.clone()
        } else {
            format!("{} to {}", least.value, greatest.value)
        };
        let subject =
            format!("{} {}", counted(never.workloads, "workload"), verb(never.workloads, "request"));
        let said = Said {
            message: if fr.resource.is_empty() {
                format!("{subject} more than it can ever have")
            } else {
                format!("{subject} {range} {}, at most {}", word(&fr.resource), view(most).value)
            },
            consequence: "they wait without end",
            correction: format!(
                "sluice list workload -A -c {queue} --status pending --reason ExceedsMaxQuota; raise the quota, or delete them"
            ),
            ..Said::default()
        };
        let said = said.with("workloads", number(never.workloads));
        let said = said.with("least", least).with("most", greatest).with("limit", view(most));
        let mut found = finding(Check::WorkloadNeverFits, ("ClusterQueue", &ObjectKey::cluster(queue)), said);
        found.metadata.name = format!("{}.{}.{}", found.metadata.name, fr.flavor, word(&fr.resource));
        found
    }

    fn missing_queue(&self, queue: &ObjectKey, workloads: usize) -> Finding {
        let (namespace, name) = (&queue.namespace, &queue.name);
        let known = &self.snapshot.references.local_queues;
        let of_namespace = known.range(ObjectKey::new(namespace, "")..);
        let of_namespace = of_namespace.take_while(|(key, _)| key.namespace == *namespace);
        let names: Vec<&str> = of_namespace.map(|(key, _)| &*key.name).collect();
        // The only queue of a namespace is probably meant, whatever its name.
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
        finding_in_namespace(
            Check::LocalQueueMissing,
            (namespace, name),
            said.with("workloads", number(workloads)),
        )
    }

    /// Pods that no empty node of their flavors holds, by ClusterQueue.
    fn too_large_pods(&self, facts: &AuditFacts, collected: &Collected<'_>, found: &mut Vec<Finding>) {
        let mut told: BTreeMap<&Arc<str>, (usize, String)> = BTreeMap::new();
        for ((queue, requests, selector), workloads) in &collected.classes {
            let flavors = self.flavors_for(facts, (queue, selector));
            if flavors.is_empty() || flavors.iter().any(|flavor| flavor.holds(requests)) {
                continue;
            }
            let Some(text) = what_is_too_large(requests, &flavors) else { continue };
            let entry = told.entry(queue).or_insert((0, text));
            entry.0 = entry.0.saturating_add(*workloads);
        }
        for (queue, (workloads, text)) in told {
            let said = Said {
                message: format!("{}: {text}", counted(workloads, "workload")),
                consequence: "they can be admitted, and their pods find no node",
                correction: "ask for smaller pods, or add larger nodes".to_owned(),
                ..Said::default()
            };
            let said = said.with("workloads", number(workloads));
            found.push(finding(
                Check::RequestExceedsNode,
                ("ClusterQueue", &ObjectKey::cluster(queue)),
                said,
            ));
        }
    }

    /// Returns the flavors of a ClusterQueue that have nodes and that the selector of pods does not rule out.
    fn flavors_for<'f>(
        &self,
        nodes: &'f AuditFacts,
        (queue, selector): (&Arc<str>, &BTreeMap<String, String>),
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

    /// Taints that keep all pods of the queues of a flavor from its nodes.
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
}

/// Returns what a workload asks for that its queue can never have, as its condition says.
fn never_fitting(record: &WorkloadRecord) -> Option<(FlavorResource, Amount)> {
    let condition = conditions::find(&record.status, ConditionType::QuotaReserved)?;
    let BlockerText::Quota(blocker) = first_blocker(&condition.message)? else { return None };
    let request = amount(blocker.resource, &Quantity::parse(blocker.request).ok()?);
    Some((FlavorResource::new(blocker.flavor, blocker.resource), request))
}

/// Says which request no node holds: alone, or beside the devices that the pod asks for.
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
