//! Topology assignments of slices that shrank.
//!
//! Invariant: remaining pods keep their domains; the domains of the others are free for other workloads.

use super::ungating::domain_of_pod;
use crate::api::names;
use crate::api::v1beta2::Admission;
use crate::cache::Cache;
use crate::cache::nodes::placement_of;
use crate::cache::pods::{PodRecord, WorkloadPod};
use crate::cache::records::WorkloadRecord;
use crate::topology::{Placement, encode};

/// Returns the admission of a running slice without the domains of surplus pods; `None` if there are none. A slice shrinks after
/// these pods have ended.
pub(crate) fn admission_after_shrink(cache: &Cache, record: &WorkloadRecord) -> Option<Admission> {
    let old = record.status.admission.as_ref()?;
    if !record.annotations.is_slice || !record.may_run() {
        return None;
    }
    let mut admission = old.clone();
    for set in &mut admission.pod_set_assignments {
        let asked = record.pod_sets().iter().find(|known| *known.name == *set.name)?.count;
        let Some(placement) = placement_of(set).filter(|placement| placement.pod_count() > asked) else {
            continue;
        };
        let running = running_pods(cache, record, &set.name, &placement);
        let left =
            placement.cut_to(asked, |at| running.get(at).map_or(0, |pods| i32::try_from(*pods).unwrap_or(0)));
        set.topology_assignment = (!left.domains.is_empty()).then(|| encode(&left));
    }
    (admission != *old).then_some(admission)
}

/// Returns the number of pods in each domain.
fn running_pods(cache: &Cache, record: &WorkloadRecord, pod_set: &str, placement: &Placement) -> Vec<usize> {
    let key = &record.meta.key;
    let runs = |(_, pod, member): &(_, &PodRecord, &WorkloadPod)| {
        *member.pod_set == *pod_set && !member.has_gate(names::TOPOLOGY_GATE) && cache.belongs_to(pod, key)
    };
    let pods = cache.pods_of(key).filter(runs);
    let domains: Vec<usize> = pods
        .filter_map(|(_, pod, member)| domain_of_pod(cache, placement, pod.node.as_ref(), member))
        .collect();
    (0..placement.domains.len()).map(|at| domains.iter().filter(|domain| **domain == at).count()).collect()
}
