//! Rules for the objects of each kind: the one place that knows all kinds.
//!
//! Invariants: each kind has rules for an object that is stored, for one that is removed, and for the end of a write; a kind
//! whose objects get steps has rules for a step.

mod links;
mod only_read;
mod queues;
mod with_finalizer;
mod workloads;

pub(super) use links::{mark_unread, set_read};

use super::queues::QueueKey;
use super::writes::request::WriteRequest;
use super::{ReconcileKey, Reconciler};
use crate::api::decoding::{DecodeError, readable_part};
use crate::api::{ObjectKey, v1beta2};
use crate::cache::Kind;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// An object from a watch, or from the response to a write.
pub(super) struct Received {
    pub(super) object: Value,
    /// The status that a write of a Workload set, if the response may leave spec and status out.
    pub(super) written: Option<Arc<v1beta2::WorkloadStatus>>,
}

/// An object that cannot be decoded.
pub(super) struct Unread {
    pub(super) problem: DecodeError,
    /// Whether the decodable part was stored.
    pub(super) in_part: bool,
}

impl From<DecodeError> for Unread {
    fn from(problem: DecodeError) -> Self {
        Self { problem, in_part: false }
    }
}

/// Rules for the objects of a kind.
pub(super) trait KindRules {
    /// Stores an object, then configures the scheduler or adds objects to the work queue.
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread>;

    /// Handles that an object can no longer be decoded, or can be decoded again.
    fn follow_readability(&self, _: &mut Reconciler, _: &ObjectKey) {}

    /// Removes an object, then configures the scheduler or adds objects to the work queue.
    fn remove(&self, core: &mut Reconciler, key: &ObjectKey);

    /// Adds an object and the objects that depend on it to the work queue, after a write of the object ended.
    fn follow_write(&self, core: &mut Reconciler, key: &ObjectKey);

    /// Returns the steps of objects of this kind; `None` if they are only read, or get their steps as a unit.
    fn steps(&self) -> Option<&dyn Steps>;
}

/// The steps of an object in a round.
pub(super) trait Steps {
    /// Updates what cycles depend on.
    fn before_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp);

    /// Sends the next write of the object, if it needs one. Statuses of queues are sent after that.
    fn after_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp);
}

/// Returns the rules for the objects of a kind.
pub(super) fn rules(kind: &Kind) -> &dyn KindRules {
    match kind {
        Kind::Namespace => &OnlyRead(only_read::Namespaces),
        Kind::LimitRange => &OnlyRead(only_read::LimitRanges),
        Kind::RuntimeClass => &OnlyRead(only_read::RuntimeClasses),
        Kind::PriorityClass => &OnlyRead(only_read::PriorityClasses),
        Kind::WorkloadPriorityClass => &OnlyRead(only_read::WorkloadPriorityClasses),
        Kind::ProvisioningRequestConfig => &OnlyRead(only_read::ProvisioningRequestConfigs),
        Kind::ProvisioningRequest => &OnlyRead(only_read::ProvisioningRequests),
        Kind::PodTemplate => &OnlyRead(only_read::PodTemplates),
        Kind::Node => &OnlyRead(only_read::Nodes),
        Kind::ResourceFlavor => &Written(with_finalizer::Flavors),
        Kind::Topology => &Written(with_finalizer::Topologies),
        Kind::AdmissionCheck => &Written(with_finalizer::Checks),
        Kind::MultiKueueCluster => &Written(with_finalizer::MultiKueueClusters),
        Kind::Cohort => &Queue(queues::Cohorts),
        Kind::ClusterQueue => &Queue(queues::ClusterQueues),
        Kind::LocalQueue => &Queue(queues::LocalQueues),
        Kind::Workload => &workloads::Workloads,
        Kind::Pod => &workloads::Pods,
        Kind::ReplicaSet => &links::ReplicaSets,
        Kind::Job(kind) => kind,
        Kind::Related(kind) => kind,
    }
}

/// A kind of which objects are stored, and which other clients write.
trait Stored {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError>;

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey);
}

/// A kind whose objects get no steps. What needs a write of one (a ProvisioningRequest, a pod template) gets the step when
/// the write ends.
struct OnlyRead<T>(T);

impl<T: Stored> KindRules for OnlyRead<T> {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        Ok(self.0.store(core, key, &received.object)?)
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        self.0.remove(core, key);
    }

    fn follow_write(&self, _: &mut Reconciler, _: &ObjectKey) {}

    fn steps(&self) -> Option<&dyn Steps> {
        None
    }
}

/// A kind whose objects have a finalizer or a status that says whether they are active.
struct Written<T>(T);

/// The writes of a kind.
trait NextWrite: Stored {
    const KIND: Kind;
    /// The type as which objects are decoded.
    type Object: DeserializeOwned;

    /// Returns the next write of an object, if it needs one.
    fn next_write(&self, core: &Reconciler, key: &ObjectKey, now: Timestamp) -> Option<WriteRequest>;

    /// Handles that an object can no longer be decoded, or can be decoded again: ClusterQueues that refer to it are inactive as
    /// long as it cannot be decoded.
    fn follow_readability(&self, core: &mut Reconciler, _: &ObjectKey) {
        core.reconfigure_cluster_queues();
    }
}

/// Stores an object, or the part of it that can be decoded.
fn store_as_far_as_readable<T: NextWrite>(
    kind: &T,
    core: &mut Reconciler,
    key: &ObjectKey,
    object: &Value,
) -> Result<(), Unread> {
    kind.store(core, key, object).map_err(|problem| {
        let part = readable_part::<T::Object>(object);
        let in_part = part.is_some_and(|part| kind.store(core, key, &part).is_ok());
        Unread { problem, in_part }
    })
}

impl<T: NextWrite> KindRules for Written<T> {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        store_as_far_as_readable(&self.0, core, key, &received.object)
    }

    fn follow_readability(&self, core: &mut Reconciler, key: &ObjectKey) {
        self.0.follow_readability(core, key);
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        self.0.remove(core, key);
    }

    fn follow_write(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.work_queue.add(ReconcileKey::Object(T::KIND, key.clone()));
    }

    fn steps(&self) -> Option<&dyn Steps> {
        Some(self)
    }
}

impl<T: NextWrite> Steps for Written<T> {
    fn before_cycles(&self, _: &mut Reconciler, _: &ObjectKey, _: Timestamp) {}

    fn after_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
        send_next_write(&self.0, core, key, now);
    }
}

/// A kind whose objects have a status with counts and usage, sent with the other statuses of queues.
struct Queue<T>(T);

/// The steps of a kind of queue.
trait QueueSteps: NextWrite {
    /// Returns the object whose status is sent.
    fn queue_key(&self, key: &ObjectKey) -> QueueKey;

    /// Updates what cycles depend on.
    fn update(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp);
}

impl<T: QueueSteps> KindRules for Queue<T> {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        store_as_far_as_readable(&self.0, core, key, &received.object)
    }

    fn follow_readability(&self, core: &mut Reconciler, key: &ObjectKey) {
        self.0.follow_readability(core, key);
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        self.0.remove(core, key);
    }

    fn follow_write(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.work_queue.add(ReconcileKey::Object(T::KIND, key.clone()));
    }

    fn steps(&self) -> Option<&dyn Steps> {
        Some(self)
    }
}

impl<T: QueueSteps> Steps for Queue<T> {
    fn before_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
        self.0.update(core, key, now);
        core.queues.mark_status_stale(self.0.queue_key(key));
    }

    fn after_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
        send_next_write(&self.0, core, key, now);
    }
}

fn send_next_write<T: NextWrite>(kind: &T, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
    if core.may_step(&ReconcileKey::Object(T::KIND, key.clone()), now) {
        let request = kind.next_write(core, key, now);
        core.start(request, now);
    }
}
