//! What a workload would get if nothing were in use: quota and nodes empty, and no other workload before it.
//!
//! Invariant: it follows from the workload, the configuration and the nodes alone, never from usage or order, so that it holds for a
//! whole class until one of these changes.

use super::Blocker;
use crate::api::reason::PendingReason;
use crate::quota::FlavorResource;
use crate::resources::Amount;
use crate::topology::TopologyLimit;
use std::sync::Arc;

/// What a workload would get if nothing were in use.
#[derive(Clone, Debug, PartialEq)]
pub enum Alone {
    /// It would be admitted with this usage.
    Fits(Vec<(FlavorResource, Amount)>),
    /// It would not be admitted: waiting does not help.
    Never(Arc<NeverFits>),
}

impl Alone {
    /// Why it would not be admitted.
    pub fn never(&self) -> Option<&Arc<NeverFits>> {
        match self {
            Self::Never(never) => Some(never),
            Self::Fits(_) => None,
        }
    }
}

/// Why a workload can never be admitted as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct NeverFits {
    /// Reason that the verdict would have.
    pub reason: PendingReason,
    /// What stays in the way, of the first pod sets that get no flavor.
    pub blockers: Vec<Blocker>,
    /// What the empty nodes of a flavor lack.
    pub limit: Option<TopologyLimit>,
    /// The flavor that the pods ask for and do not match, if no other one is in the way.
    pub wrong: Option<WrongFlavor>,
}

/// The flavor that pods ask for, and why it does not take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongFlavor {
    /// The flavor whose labels the node selector names, or the only one; empty if no flavor has what is selected, or the pods get none.
    pub flavor: Arc<str>,
    /// What does not match.
    pub mismatch: FlavorMismatch,
}

/// Why a flavor does not take pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlavorMismatch {
    /// It has a topology, and the pods request none.
    NeedsTopologyRequest,
    /// The pods request a topology, and it has none.
    HasNoTopology,
    /// Its topology lacks the level that the pods request.
    LacksLevel,
    /// No flavor of the ClusterQueue has this label; a similar value that one has.
    NoFlavorWith {
        /// Key of the node selector.
        key: String,
        /// Value of the node selector.
        value: String,
        /// The value of a flavor that is nearest.
        near: Option<String>,
    },
    /// The pods request a topology, and nothing of which the ClusterQueue has quota: no flavor is chosen for them.
    RequestsNothing {
        /// Name of the pod set.
        pod_set: Arc<str>,
    },
    /// Another reason, as a text.
    Other(Arc<str>),
}
