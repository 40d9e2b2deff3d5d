//! What the roles of a kind of job say of their pods, and where a start adds to it.
//!
//! Invariant: a row names the places; starts and stops of all shapes are the same code.

use super::row::Pointer;

/// What a role says of its pods.
#[derive(Clone, Copy, Debug)]
pub enum RoleShape {
    /// It has a pod template.
    Template,
    /// It describes its pods by fields of its own, from which a hook makes the template.
    Described(DescribedRole),
    /// Its template is not in the job, but follows from the job and other objects when it starts: a later change of those does not
    /// concern it as long as it runs. A start writes patches of the templates, a list of which a hook names the place. This is where
    /// an item of the list adds.
    Patched(InjectedFields),
    /// Its template is left as it is: what a start adds is listed in another place of the object, which a hook names, and merged
    /// by the controller. A stop removes the list.
    Listed,
}

/// A role that describes its pods by fields of its own. What a source of pod sets calls the template is the role.
#[derive(Clone, Copy, Debug)]
pub struct DescribedRole {
    /// What a start adds to. A stop sets it to what the made template had.
    pub injected: InjectedFields,
    /// The template below the role that the controller completes. A start creates it, with the container that the made one has.
    pub template: Pointer,
    /// A node selector of the object for all of its roles. Where it is set, it stands in for theirs, and a start moves it to
    /// them.
    pub shared_node_selector: Pointer,
}

/// Where a start adds to what describes a pod.
#[derive(Clone, Copy, Debug)]
pub struct InjectedFields {
    /// Labels.
    pub labels: Pointer,
    /// Annotations.
    pub annotations: Pointer,
    /// Node selector.
    pub node_selector: Pointer,
    /// Tolerations.
    pub tolerations: Pointer,
    /// Scheduling gates.
    pub scheduling_gates: Pointer,
}

/// Those of a pod template.
pub(super) const IN_TEMPLATE: InjectedFields = InjectedFields {
    labels: "/metadata/labels",
    annotations: "/metadata/annotations",
    node_selector: "/spec/nodeSelector",
    tolerations: "/spec/tolerations",
    scheduling_gates: "/spec/schedulingGates",
};

/// Those of an item of a list of additions.
const IN_LIST: InjectedFields = InjectedFields {
    labels: "/labels",
    annotations: "/annotations",
    node_selector: "/nodeSelector",
    tolerations: "/tolerations",
    scheduling_gates: "/schedulingGates",
};

impl RoleShape {
    /// Returns whether a start lists what it adds.
    pub const fn is_listed(&self) -> bool {
        matches!(self, Self::Listed)
    }

    /// Returns whether what a job runs is decided when it starts.
    pub const fn is_decided_at_start(&self) -> bool {
        matches!(self, Self::Patched(_))
    }

    /// Returns where a start adds to what describes a pod.
    pub const fn injected(&self) -> InjectedFields {
        match self {
            Self::Template => IN_TEMPLATE,
            Self::Described(role) => role.injected,
            Self::Patched(fields) => *fields,
            Self::Listed => IN_LIST,
        }
    }

    /// Returns the fields of a role that describes its pods itself.
    pub const fn described(&self) -> Option<&DescribedRole> {
        match self {
            Self::Template | Self::Patched(_) | Self::Listed => None,
            Self::Described(role) => Some(role),
        }
    }
}
