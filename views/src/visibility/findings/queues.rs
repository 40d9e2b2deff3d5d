//! Findings about queues and cohorts.

use super::{Audit, Said, finding, meant, number, word};
use crate::api::ObjectKey;
use crate::api::selector;
use crate::api::similar::nearest;
use crate::quota::NodeRef;
use crate::resources::Amount;
use crate::visibility::views::{Check, Finding};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reasons of inactive ClusterQueues that end without a change of a configuration, or that another check reports in more detail.
const PASSING: [&str; 3] = ["Stopped", "Terminating", "FlavorNotFound"];

impl Audit<'_> {
    pub(super) fn local_queues(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        for (key, queue) in &queues.local_queues {
            let name = &queue.cluster_queue;
            if queues.cluster_queues.contains_key(name) {
                continue;
            }
            // Readers of a namespace do not see the names of ClusterQueues.
            let names = queues.cluster_queues.keys().filter(|_| self.rows.access.cluster).map(AsRef::as_ref);
            let said = Said {
                message: format!("ClusterQueue {name} does not exist{}", meant(nearest(name, names))),
                consequence: "its workloads wait until there is one",
                correction: format!(
                    "delete LocalQueue {}/{} and create it with another ClusterQueue",
                    key.namespace, key.name
                ),
                ..Said::default()
            };
            found.push(finding(Check::LocalQueueOrphan, ("LocalQueue", key), said));
        }
    }

    /// Finds LocalQueues that are stopped, by namespace: their users ask which of their queues admit nothing.
    pub(super) fn stopped_queues(&self, found: &mut Vec<Finding>) {
        let all = self.snapshot.references.local_queues.iter();
        for (key, _) in all.filter(|(_, queue)| queue.stopped && self.form.is_by_namespace()) {
            let pending = self.snapshot.queues.local_queues.get(key).map_or(0, |queue| queue.pending.total());
            let said = Said {
                message: "it is stopped".to_owned(),
                consequence: "none of its workloads is admitted",
                correction: format!("sluice resume localqueue {} -n {}", key.name, key.namespace),
                ..Said::default()
            };
            found.push(finding(
                Check::LocalQueueStopped,
                ("LocalQueue", key),
                said.with("pending", number(pending)),
            ));
        }
    }

    /// Finds LocalQueues whose ClusterQueue admits nothing, by namespace.
    pub(super) fn inactive_queues(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        for (key, queue) in queues.local_queues.iter().filter(|_| self.form.is_by_namespace()) {
            let Some(inactive) = queues.inactive.get(&queue.cluster_queue) else { continue };
            let (check, why) = match &*inactive.reason {
                "FlavorNotFound" => (Check::FlavorMissing, "is inactive, because a flavor is missing"),
                "Stopped" => (Check::ClusterQueueInactive, "is stopped"),
                "Terminating" => (Check::ClusterQueueInactive, "is being deleted"),
                reason if reason.contains("AdmissionCheck") => {
                    (Check::CheckUnanswered, "is inactive, because an AdmissionCheck is not ready")
                }
                _ => (Check::ClusterQueueInactive, "is inactive"),
            };
            let (pending, name) = (queue.pending.total(), &queue.cluster_queue);
            let (message, correction) = if self.form.is_in_full() {
                let state = match cause(&inactive.message) {
                    _ if &*inactive.reason == "Terminating" => why.to_owned(),
                    cause if cause.starts_with("is ") => cause.to_owned(),
                    cause => format!("is inactive: {cause}"),
                };
                (
                    format!("its ClusterQueue {name} {state}"),
                    format!(
                        "kubectl describe clusterqueue {name}; start the queue, or correct what it names"
                    ),
                )
            } else {
                (format!("its ClusterQueue {name} {why}"), "ask an administrator of the cluster".to_owned())
            };
            let said = Said {
                message,
                consequence: "none of its workloads is admitted",
                correction,
                ..Said::default()
            };
            found.push(finding(check, ("LocalQueue", key), said.with("pending", number(pending))));
        }
    }

    pub(super) fn cluster_queues(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        let reached: BTreeSet<&str> =
            queues.local_queues.values().map(|queue| &*queue.cluster_queue).collect();
        for name in queues.cluster_queues.keys() {
            let key = ObjectKey::cluster(name);
            let object = ("ClusterQueue", &key);
            let facts = self.quota.facts.cluster_queues.get(name);
            if facts.is_some_and(|facts| facts.order.is_empty()) {
                let said = Said {
                    message: "it has no resource groups".to_owned(),
                    consequence: "no workload that requests anything is admitted",
                    correction: format!("kubectl edit clusterqueue {name}; change spec.resourceGroups"),
                    ..Said::default()
                };
                found.push(finding(Check::ClusterQueueNoFlavor, object, said));
            }
            if let Some(inactive) =
                queues.inactive.get(name).filter(|inactive| !PASSING.contains(&&*inactive.reason))
            {
                let said = Said {
                    message: format!("it is inactive: {}", cause(&inactive.message)),
                    consequence: "none of its workloads is admitted",
                    ..Said::default()
                };
                found.push(finding(Check::ClusterQueueInactive, object, said));
            }
            found.extend(self.unreachable(name, reached.contains(&**name)));
            self.missing_flavors(object, facts.map(|facts| facts.order.iter()).into_iter().flatten(), found);
            self.useless_limits(name, object, found);
        }
    }

    /// Returns whether a ClusterQueue selects any namespace.
    pub(super) fn selects_any(&self, name: &str) -> bool {
        let facts = self.quota.facts.cluster_queues.get(name);
        let selector = facts.and_then(|facts| facts.namespace_selector.as_ref());
        let mut namespaces = self.snapshot.references.namespaces.values();
        selector.is_some_and(|one| namespaces.any(|labels| selector::matches(one, labels)))
    }

    /// Finds a ClusterQueue that no workload can get into.
    fn unreachable(&self, name: &Arc<str>, is_named: bool) -> Option<Finding> {
        let (message, correction) = match (is_named, self.selects_any(name)) {
            (true, true) => return None,
            (false, _) => {
                ("no LocalQueue names it".to_owned(), "create a LocalQueue that names it".to_owned())
            }
            (true, false) => (
                "its namespaceSelector matches no namespace".to_owned(),
                format!("kubectl edit clusterqueue {name}; change spec.namespaceSelector"),
            ),
        };
        let said = Said { message, consequence: "no workload gets into it", correction, ..Said::default() };
        Some(finding(Check::ClusterQueueUnreachable, ("ClusterQueue", &ObjectKey::cluster(name)), said))
    }

    /// Finds flavors of a queue or cohort that do not exist.
    fn missing_flavors<'q>(
        &self,
        object: (&str, &ObjectKey),
        quotas: impl Iterator<Item = &'q crate::quota::FlavorResource>,
        found: &mut Vec<Finding>,
    ) {
        let known = &self.quota.facts.flavors;
        let named: BTreeSet<&Arc<str>> = quotas.map(|fr| &fr.flavor).collect();
        for flavor in named.into_iter().filter(|flavor| !known.contains_key(*flavor)) {
            let near = nearest(flavor, known.keys().map(AsRef::as_ref));
            let said = Said {
                message: format!("ResourceFlavor {flavor} does not exist{}", meant(near)),
                consequence: "the ClusterQueue is inactive until there is one",
                correction: format!("sluice create resourceflavor {flavor}"),
                ..Said::default()
            };
            let mut found_here = finding(Check::FlavorMissing, object, said);
            found_here.metadata.name = format!("{}.{flavor}", found_here.metadata.name);
            found.push(found_here);
        }
    }

    /// Finds limits between a node and its cohort that have no effect.
    fn useless_limits(&self, name: &Arc<str>, object: (&str, &ObjectKey), found: &mut Vec<Finding>) {
        let node = NodeRef::ClusterQueue(Arc::clone(name));
        let has_cohort =
            self.snapshot.queues.cluster_queues.get(name).is_some_and(|queue| queue.parent.is_some());
        let facts = self.quota.facts.cluster_queues.get(name);
        let order = facts.map(|facts| facts.order.as_slice()).unwrap_or_default();
        let (mut lending, mut borrowing) = (None, None);
        for fr in order {
            let usage = self.quota.usage(&node, fr);
            let what = format!("{} {}", fr.flavor, word(&fr.resource));
            if let Some(limit) = usage.limits.lending_limit {
                if !has_cohort {
                    lending = Some("it has a lending limit and no cohort".to_owned());
                } else if limit >= usage.limits.nominal && lending.is_none() {
                    lending = Some(format!("the lending limit of {what} is not below the nominal quota"));
                }
            }
            if let Some(limit) = usage.limits.borrowing_limit {
                let own = usage.subtree_quota.to_i128() + limit.to_i128();
                let most = self.quota.headroom(&node, fr).0.potential;
                if !has_cohort {
                    borrowing = Some("it has a borrowing limit and no cohort".to_owned());
                } else if own > most && borrowing.is_none() {
                    borrowing =
                        Some(format!("the borrowing limit of {what} is above what its cohorts can provide"));
                }
            }
        }
        for (check, message) in [(Check::LendingUseless, lending), (Check::BorrowingUseless, borrowing)] {
            if let Some(message) = message {
                let consequence = "the limit has no effect";
                found.push(finding(check, object, Said { message, consequence, ..Said::default() }));
            }
        }
    }

    pub(super) fn cohorts(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        let mut members: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (name, queue) in &queues.cluster_queues {
            if let Some(parent) = &queue.parent {
                members.entry(parent).or_default().push(("ClusterQueue", name));
            }
        }
        for (name, cohort) in &queues.cohorts {
            if let Some(parent) = &cohort.parent {
                members.entry(parent).or_default().push(("Cohort", name));
            }
        }
        for (name, cohort) in &queues.cohorts {
            let key = ObjectKey::cluster(name);
            if self.quota.path(&NodeRef::Cohort(Arc::clone(name))).is_none() {
                let said = Said {
                    message: "its parents form a cycle".to_owned(),
                    consequence: "no workload below it is admitted",
                    correction: format!("kubectl edit cohort {name}; change spec.parentName"),
                    ..Said::default()
                };
                found.push(finding(Check::CohortCycle, ("Cohort", &key), said));
            }
            let has_object = self.quota.facts.cohorts.contains_key(name);
            if has_object {
                let own = cohort.usage_by_flavor_resource.iter();
                let own = own.filter(|(_, usage)| usage.limits.nominal != Amount::ZERO);
                self.missing_flavors(("Cohort", &key), own.map(|(fr, _)| fr), found);
            }
            let of_cohort = members.get(&**name).map(Vec::as_slice).unwrap_or_default();
            // All names are compared only for a cohort with one member: for each one it would cost the square of the cohorts.
            let similar = || nearest(name, queues.cohorts.keys().map(AsRef::as_ref));
            if let ([(kind, member)], false) = (of_cohort, has_object)
                && let Some(similar) = similar()
            {
                let said = Said {
                    message: format!("Cohort {name} has no other member; {similar}?"),
                    consequence: "it can borrow from no other queue",
                    correction: format!("name cohort {similar} in {kind} {member}"),
                    ..Said::default()
                };
                found.push(finding(Check::CohortSingleMember, (kind, &ObjectKey::cluster(member)), said));
            }
        }
    }
}

/// Returns the cause in the condition of an inactive queue: `Can't admit new workloads: references missing ...`.
fn cause(message: &str) -> &str {
    let cause = message.strip_prefix("Can't admit new workloads: ").unwrap_or(message);
    cause.trim_end_matches('.')
}
