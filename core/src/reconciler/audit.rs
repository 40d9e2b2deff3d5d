//! The core's answer to an audit: facts from objects that no snapshot contains.
//!
//! Invariants: nothing is changed; the answer costs a pass over nodes and jobs, which is why audits ask at most once a minute.

use super::CoreSettings;
use super::unit::comparison::is_charged_as_before;
use super::unit::units::Units;
use super::unit::units::is_managed_by_other_controller;
use crate::api::ObjectKey;
use crate::cache::Cache;
use crate::frameworks::{JobKind, JobView};
use crate::history::Ring;
use crate::scheduler::Engine;
use crate::snapshot::{AuditFacts, AuditedFlavor};
use crate::topology::{AskedFlavor, FlavorSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of entries of a list with names of jobs.
const MAX_ENTRIES: usize = 1_000;

/// The input of an audit.
pub(super) struct Audit<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a CoreSettings,
    pub(super) engine: &'a mut Engine,
    pub(super) history: &'a Ring,
}

impl Audit<'_> {
    /// Returns the facts that an audit reads beside the snapshot.
    pub(super) fn facts(&mut self) -> AuditFacts {
        let flavors = self.audited_flavors();
        let mut facts = AuditFacts {
            knows_nodes: self.settings.engine.gates.topology,
            flavors,
            checks: self
                .cache
                .checks()
                .map(|(name, check)| (Arc::clone(name), is_active(&check.object)))
                .collect(),
            classes: self.cache.workload_class_names().cloned().collect(),
            ..AuditFacts::default()
        };
        self.audit_jobs(&mut facts);
        self.audit_local_queues(&mut facts);
        facts
    }

    /// Finds LocalQueues that no Workload uses.
    fn audit_local_queues(&self, facts: &mut AuditFacts) {
        let history = self.history.view();
        facts.recorded_since = history.records_from();
        let mut used: BTreeSet<ObjectKey> =
            self.cache.workloads().filter_map(|(_, record)| record.local_queue()).collect();
        let recorded = history.records.iter().map(|record| &record.workload);
        used.extend(recorded.map(|workload| ObjectKey::new(&workload.key.namespace, &workload.local_queue)));
        let unused = self.cache.local_queues().filter(|(key, _)| !used.contains(*key));
        facts.unused_queues =
            unused.map(|(key, record)| (key.clone(), record.meta.created)).take(MAX_ENTRIES).collect();
    }

    const fn units(&self) -> Units<'_> {
        Units { cache: self.cache, settings: self.settings }
    }

    fn audited_flavors(&mut self) -> BTreeMap<Arc<str>, AuditedFlavor> {
        let specs: Vec<(Arc<str>, FlavorSpec)> = self
            .cache
            .flavors()
            .map(|(name, record)| {
                let spec = &record.object.spec;
                let topology = Arc::from(spec.topology_name.as_deref().unwrap_or_default());
                let (node_labels, tolerations) = (spec.node_labels.clone(), spec.tolerations.clone());
                (Arc::clone(name), FlavorSpec { node_labels, tolerations, topology })
            })
            .collect();
        let topology = self.engine.topology_mut();
        let audited = |(name, spec): (Arc<str>, FlavorSpec)| {
            let asked = AskedFlavor { name: &name, spec: &spec };
            let (amounts, nodes) = (topology.node_amounts(asked), topology.flavor_nodes(asked));
            let topology = Some(spec.topology).filter(|name| !name.is_empty());
            (name, AuditedFlavor { node_labels: spec.node_labels, topology, amounts, nodes })
        };
        specs.into_iter().map(audited).collect()
    }

    /// Counts jobs that run without being queued, and jobs whose priority class does not exist.
    fn audit_jobs(&self, facts: &mut AuditFacts) {
        let with_queues: BTreeSet<&Arc<str>> =
            self.cache.local_queues().map(|(key, _)| &key.namespace).collect();
        for ((kind, key), view) in self.cache.jobs() {
            if view.deleting || view.status.finished.is_some() {
                continue;
            }
            if let Some(class) = &view.options.priority_class
                && self.cache.workload_priority(class).is_none()
                && self.units().manages_job(*kind, view)
            {
                count(&mut facts.missing_classes, (Arc::clone(&key.namespace), Arc::clone(class)));
            }
            if let Some(uncharged) = self.uncharged(*kind, key, view)
                && facts.low_charges.len() < MAX_ENTRIES
            {
                facts.low_charges.insert((kind.gvk.kind, key.clone()), uncharged);
            }
            if with_queues.contains(&key.namespace) && self.runs_past_queues(*kind, view) {
                count(&mut facts.unmanaged_jobs, (Arc::clone(&key.namespace), kind.gvk.kind));
            }
        }
    }

    /// Returns the requests of a job beyond the charge of its Workload, which an earlier version of the manager made.
    fn uncharged(&self, kind: JobKind, key: &ObjectKey, view: &JobView) -> Option<String> {
        let found = view.related.since_start.found.as_ref().filter(|found| !found.uncharged.is_empty())?;
        let record = self.units().workload_of_job(kind, key)?;
        is_charged_as_before(record, view).then(|| found.uncharged_text())
    }

    /// Returns whether a job runs in a managed namespace although neither it nor an owner is in a queue.
    fn runs_past_queues(&self, kind: JobKind, view: &JobView) -> bool {
        let units = self.units();
        !view.suspended
            && view.queue_name.is_none()
            && units.manages_namespace(&view.key.namespace)
            && !units.manages_job(kind, view)
            && !is_managed_by_other_controller(kind, view)
            && units.ancestor_of(kind, view).is_none()
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(number) = counts.get_mut(&key) {
        *number = number.saturating_add(1);
    } else if counts.len() < MAX_ENTRIES {
        counts.insert(key, 1);
    }
}

/// Returns whether the condition `Active` of a check holds, which its controller writes.
fn is_active(check: &crate::api::v1beta2::AdmissionCheck) -> bool {
    check.status.conditions.iter().any(|condition| condition.type_ == "Active" && condition.status == "True")
}
