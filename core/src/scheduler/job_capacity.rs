//! How often the pods of a job would be placed on a flavor, all pod sets together, for users.
//!
//! Invariants: nothing is changed; quota plays no part; copies are placed as the scheduler places one job after the other.

use super::engine::Engine;
use crate::api::ObjectKey;
use crate::queue::PodSet;
use crate::resources::Requests;
use crate::topology::{AskedFlavor, PlacedCopies, PriorPlacement, TasPodSetRequest};
use std::sync::Arc;

/// Most copies that are counted.
const MAX_COPIES: u64 = 1_000;

/// A Workload whose pods are counted.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPods {
    /// Its key.
    pub workload: ObjectKey,
    /// Its pod sets.
    pub pod_sets: Arc<[PodSet]>,
}

/// How often all pods of a Workload fit on a flavor.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCapacity {
    /// The Workload.
    pub workload: ObjectKey,
    /// Its pod sets.
    pub pod_sets: Vec<JobPodSet>,
    /// Number of copies of all pod sets that are placed one beside the other.
    pub copies: u64,
    /// Name of the pod set of which the next copy is not placed, and why; `None` if that many are enough, or the time was over.
    pub failure: Option<(Arc<str>, String)>,
}

/// A pod set of such a Workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPodSet {
    /// Its name.
    pub name: Arc<str>,
    /// Number of pods.
    pub count: i32,
    /// What one pod asks for on a node.
    pub pod: Requests,
    /// What one pod is charged.
    pub charged: Requests,
}

impl Engine {
    /// Counts the copies of a Workload's pods that fit on a flavor.
    pub(super) fn job_capacity(
        &mut self,
        flavor: AskedFlavor<'_>,
        job: &JobPods,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> JobCapacity {
        let pod_sets = job.pod_sets.iter().map(|set| JobPodSet {
            name: Arc::clone(&set.name),
            count: set.count,
            pod: set.pod_requirements.requests.clone(),
            charged: set.requests.clone(),
        });
        let mut found = JobCapacity {
            workload: job.workload.clone(),
            pod_sets: pod_sets.collect(),
            copies: 0,
            failure: None,
        };
        let explicit = job.pod_sets.iter().find(|set| set.pod_requirements.is_explicit());
        if let Some(set) = explicit.filter(|_| !self.topology.has_topology(flavor.name)) {
            let text = format!("flavor {} does not support topology-aware scheduling", flavor.name);
            found.failure = Some((Arc::clone(&set.name), text));
            return found;
        }
        let placed: Vec<&PodSet> = job.pod_sets.iter().filter(|set| set.count > 0).collect();
        let requests: Vec<TasPodSetRequest> = placed
            .iter()
            .map(|set| TasPodSetRequest {
                flavor: Arc::clone(flavor.name),
                pods: Arc::clone(&set.pod_requirements),
                count: set.count,
                group: set.group.clone(),
                name: Arc::clone(&set.name),
                prior: PriorPlacement::None,
            })
            .collect();
        if requests.is_empty() {
            found.copies = MAX_COPIES;
            return found;
        }
        let gates = self.settings.gates.placement;
        let mut may_go_on = |count: u64| count < MAX_COPIES && keep_going();
        let PlacedCopies { count, failure } =
            self.topology.count_copies(flavor, &requests, gates, &mut may_go_on);
        found.copies = count;
        found.failure =
            failure.and_then(|(index, text)| placed.get(index).map(|set| (Arc::clone(&set.name), text)));
        found
    }
}
