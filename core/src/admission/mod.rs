//! Admission reviews: defaulting and validation of objects before the API server stores them, based on the object, a
//! read-only snapshot of the cluster, and the settings.
//!
//! Invariants: `review` is total (it answers any input with the uid of the request and never panics); applying a
//! mutating response twice changes nothing the second time; reviews have no side effects, so dry runs need no special
//! handling.

mod ancestry;
mod child_size;
mod defaults;
mod in_process;
mod job;
mod job_defaults;
mod job_rules;
mod kueue_kinds;
mod lookup;
mod patch;
mod pod;
mod reading;
mod response;
mod review;
mod settings;
mod submitter;
#[cfg(test)]
mod tests;
mod topology;
mod webhook_entries;

pub use ancestry::objects_above;
pub use in_process::admit_object;
pub use reading::{MAX_LIGHT_VALUES, read_heavy, read_light};
pub use response::may_change_soon;
pub use review::{paths, review};
pub use settings::AdmissionSettings;
pub use submitter::SubmitterSettings;
pub use webhook_entries::{kinds_open_without_queue, kinds_without_entry};

use crate::api::ObjectKey;
pub use crate::api::partial::ReadError;
pub use crate::frameworks::OwnerRef;
use crate::frameworks::{ChildGroup, OwnPlace, PodIdentity, PodSetRequests, PodSetSize, Related, SizedChild};

use std::collections::BTreeMap;
use std::sync::Arc;

/// Inputs of a review besides the object: the snapshot of the cluster and the settings.
#[derive(Clone, Copy)]
pub struct ReviewContext<'a> {
    /// Other objects of the cluster.
    pub objects: &'a dyn ObjectLookup,
    /// Settings of admission.
    pub settings: &'a AdmissionSettings,
}

/// Lookups of other objects by reviews.
pub trait ObjectLookup {
    /// Returns the labels of a namespace, or `None` if it is unknown.
    fn namespace_labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>>;
    /// Returns whether a LocalQueue exists.
    fn local_queue_exists(&self, namespace: &str, name: &str) -> bool;
    /// Returns whether a WorkloadPriorityClass named `default` exists.
    fn default_priority_class_exists(&self) -> bool;
    /// Returns whether the `ClusterQueue` of a `LocalQueue` dispatches to worker clusters.
    fn queue_is_multikueue(&self, namespace: &str, local_queue: &str) -> bool;
    /// Returns the objects of other kinds from which jobs are made.
    fn related(&self) -> &dyn Related;
    /// Returns whether all pods are known that are in a queue or below a managed object.
    fn knows_pods(&self) -> bool;
    /// Returns whether the objects of the kind of an owner cannot be read, as a right is missing.
    fn is_unread(&self, _: &OwnerRef) -> bool {
        false
    }
    /// Returns the object of an owner reference, or `None` if it is unknown.
    fn owner(&self, namespace: &str, owner: &OwnerRef) -> Option<OwnerView>;
    /// Returns the objects below a controller that share its quota, in their order.
    fn children(&self, _: &OwnerRef) -> Vec<SizedChild> {
        Vec::new()
    }
    /// Returns the pods of the objects below a controller that get no size apart from that of the job above them, without those of the one
    /// of this group, kind and key.
    fn groups_beside(&self, _: &OwnerRef, _: (&str, &str), _: ObjectKey) -> Vec<ChildGroup> {
        Vec::new()
    }
}

/// The fields of an owner that the ancestor search needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerView {
    /// UID of the object as stored.
    pub uid: String,
    /// Its queue label, if any.
    pub queue_name: Option<String>,
    /// Its place in a queue, if that does not follow from its queue label and its kind.
    pub place: OwnPlace,
    /// Its controller owner.
    pub controller: Option<OwnerRef>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What its Workload is charged for, where objects below it could be made larger than it.
    pub pod_sets: Option<Arc<[PodSetSize]>>,
    /// What one pod of each of these requests by its template.
    pub pod_requests: Option<Arc<[PodSetRequests]>>,
    /// What tells pods that it controls from those that only name it.
    pub pod_identity: PodIdentity,
    /// The account that is recorded in it, if submitters are read and its pods have Workloads of their own.
    pub submitter: Option<Arc<str>>,
}
