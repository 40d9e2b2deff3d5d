//! The true obstacle of a pending workload as a sentence, and what would remove it.
//!
//! Invariants: what stays is said in full, with the amounts that decide it; another workload has its name, and what it lacks its amount,
//! only as far as the reader lets them through.

use super::obstacle::{BehindHead, Obstacle};
use crate::api::reason::PendingReason;
use crate::api::{ObjectKey, names};
use crate::queue::{Blocker, BlockerKind, FlavorMismatch, NeverFits, WrongFlavor};
use crate::resources::{Amount, format_quantity};
use crate::topology::{HOSTNAME_LABEL, TopologyLimit};

/// A reader of sentences about obstacles.
pub trait ObstacleReader {
    /// The name of a workload, for a reader that may see it.
    fn name(&self, key: &ObjectKey) -> Option<String>;
    /// What is missing of a blocker of a workload in the unit of the quota, for a reader that may see it.
    fn missing(&self, key: &ObjectKey, blocker: &Blocker) -> Option<String>;
    /// The most that the node of a blocker can have, for a reader that may see it.
    fn limit(&self, blocker: &Blocker) -> Option<String>;
}

impl NeverFits {
    /// Whether quota alone stays in the way.
    pub const fn is_quota(&self) -> bool {
        self.limit.is_none() && self.wrong.is_none()
    }

    /// Returns what stays in the way of a workload of a ClusterQueue.
    pub fn text(&self, queue: &str, reader: &dyn ObstacleReader) -> String {
        if let Some(limit) = &self.limit {
            return limit_text(limit);
        }
        if let Some(wrong) = &self.wrong {
            return wrong_text(queue, wrong, self);
        }
        let stays =
            |blocker: &&Blocker| matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::Undeclared);
        let Some(blocker) = self.blockers.iter().find(stays).or(self.blockers.first()) else {
            return String::new();
        };
        match (&blocker.kind, &blocker.node) {
            (BlockerKind::Undeclared, _) => {
                format!("ClusterQueue {queue} has no quota of {}", blocker.resource)
            }
            (BlockerKind::NeverFits, Some(node)) => {
                let (resource, flavor) = (&blocker.resource, &blocker.flavor);
                let most = reader.limit(blocker);
                most.map_or_else(
                    || format!("it requests more {resource} in {flavor} than {node} can have"),
                    |most| {
                        let request = format_quantity(resource, blocker.requested);
                        format!(
                            "it requests {request} {resource} in {flavor}, and {node} can have at most {most}"
                        )
                    },
                )
            }
            _ => blocker.to_string(),
        }
    }

    /// Returns what has to change: for readers that may change the cluster, or what the owner of the workload can do alone.
    pub fn remedy(&self, queue: &str, changes_cluster: bool) -> String {
        let of_cluster = || self.remedy_of_cluster(queue);
        let of_cluster = changes_cluster.then(of_cluster).flatten();
        of_cluster.unwrap_or_else(|| self.remedy_of_workload(queue))
    }

    /// Returns the remedy that changes objects of the cluster; `None` if only the workload can be corrected.
    fn remedy_of_cluster(&self, queue: &str) -> Option<String> {
        if let Some(limit) = &self.limit {
            let nodes = if limit.too_large.is_some() { "larger nodes" } else { "nodes" };
            return Some(format!("{}, or add {nodes} to {}", self.remedy_of_workload(queue), limit.flavor));
        }
        match &self.wrong {
            Some(WrongFlavor { mismatch, .. }) => {
                let is_of_queue =
                    matches!(mismatch, FlavorMismatch::NoFlavorWith { .. } | FlavorMismatch::Other(_));
                let edit =
                    || format!("kubectl edit clusterqueue {queue}; correct its flavors, or the pod template");
                is_of_queue.then(edit)
            }
            None if self.blockers.iter().any(|blocker| blocker.kind == BlockerKind::Undeclared) => {
                Some(format!("kubectl edit clusterqueue {queue}; change spec.resourceGroups"))
            }
            None => Some("raise the quota, or ask for less".to_owned()),
        }
    }

    /// Returns the remedy that changes the workload alone.
    fn remedy_of_workload(&self, queue: &str) -> String {
        if let Some(limit) = &self.limit {
            let smaller = limit.too_large.is_some();
            return if smaller { "ask for smaller pods" } else { "ask for fewer pods, or for a wider level" }
                .to_owned();
        }
        let annotation = names::UNCONSTRAINED_TOPOLOGY_ANNOTATION;
        match self.wrong.as_ref().map(|wrong| (&wrong.mismatch, &wrong.flavor)) {
            Some((FlavorMismatch::NeedsTopologyRequest, _)) => {
                format!("add the annotation {annotation} to the pod template")
            }
            Some((FlavorMismatch::HasNoTopology, _)) => {
                "remove the annotation about a topology from the pod template, or ask for a flavor that has one"
                    .to_owned()
            }
            Some((FlavorMismatch::LacksLevel, flavor)) => {
                format!("ask for a level that the topology of {flavor} has")
            }
            Some((FlavorMismatch::RequestsNothing { pod_set }, _)) => {
                format!("let the pods of {pod_set} request a resource of {queue}, or no topology")
            }
            Some((FlavorMismatch::NoFlavorWith { .. } | FlavorMismatch::Other(_), _)) => {
                "correct the pod template".to_owned()
            }
            None => {
                let is_undeclared = |blocker: &&Blocker| blocker.kind == BlockerKind::Undeclared;
                let undeclared = self.blockers.iter().find(is_undeclared);
                undeclared.map_or_else(
                    || "ask for less".to_owned(),
                    |blocker| format!("ask for no {}, or in another queue", blocker.resource),
                )
            }
        }
    }
}

impl Obstacle {
    /// Returns the obstacle of a workload of a ClusterQueue as a sentence without its full stop; empty if none is known.
    pub fn sentence(&self, queue: &str, reader: &dyn ObstacleReader) -> String {
        match self {
            Self::None | Self::InUse => String::new(),
            Self::Object(verdict) => verdict.to_string(),
            Self::NeverFits(never) => {
                let as_it_is = if never.wrong.is_some() { " as it is" } else { "" };
                format!("It can never be admitted{as_it_is}: {}", never.text(queue, reader))
            }
            Self::Behind(behind) => behind_text(behind, queue, reader),
        }
    }

    /// Returns the reason that a condition would have, made of the state as it is now; `None` if the verdict says it.
    pub fn reason(&self) -> Option<PendingReason> {
        match self {
            Self::None | Self::InUse => None,
            Self::Object(verdict) => Some(verdict.reason),
            Self::NeverFits(never) => Some(never.reason),
            Self::Behind(_) => Some(PendingReason::WaitingForQuota),
        }
    }
}

fn wrong_text(queue: &str, wrong: &WrongFlavor, never: &NeverFits) -> String {
    let flavor = &wrong.flavor;
    match &wrong.mismatch {
        FlavorMismatch::NeedsTopologyRequest => format!(
            "{flavor} takes only pods with a topology: add {}: \"true\" to the annotations of the pod template",
            names::UNCONSTRAINED_TOPOLOGY_ANNOTATION
        ),
        FlavorMismatch::HasNoTopology => format!(
            "{flavor} has no topology, and the pods request one: remove the annotation, or ask for a flavor that has one"
        ),
        FlavorMismatch::LacksLevel => {
            format!("the topology of {flavor} does not contain the level that the pods request")
        }
        FlavorMismatch::NoFlavorWith { key, value, near } => {
            let near = near.as_ref().map(|near| format!("; {near}?")).unwrap_or_default();
            format!("no flavor of {queue} has {key}={value}{near}")
        }
        FlavorMismatch::RequestsNothing { pod_set } => format!(
            "the pods of {pod_set} request a topology, and nothing of which {queue} has quota, so that no flavor is chosen for them"
        ),
        FlavorMismatch::Other(text) => {
            let others = never.blockers.iter().map(ToString::to_string);
            let others: Vec<String> = others.filter(|other| **other != **text).collect();
            std::iter::once(text.to_string()).chain(others).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The name of a workload, or what a reader of another namespace reads in its place.
fn named(key: &ObjectKey, reader: &dyn ObstacleReader) -> String {
    reader.name(key).unwrap_or_else(|| "a workload of another namespace".to_owned())
}

fn behind_text(behind: &BehindHead, queue: &str, reader: &dyn ObstacleReader) -> String {
    let head =
        format!("Behind {}, the head of the StrictFIFO ClusterQueue {queue}", named(&behind.head, reader));
    let Some((key, never)) = &behind.never else {
        let lacks = behind.lacks.iter().find_map(|blocker| lacking((&behind.head, blocker), reader));
        return lacks.map_or_else(|| head.clone(), |lacks| format!("{head}, which {lacks}"));
    };
    let why = reader.name(key).map(|_| format!(": {}", never.text(queue, reader))).unwrap_or_default();
    if *key == behind.head {
        format!("{head}, which can never be admitted{why}; all behind it wait without end")
    } else {
        let name = named(key, reader);
        format!(
            "{head}. Before it is {name}, too, which can never be admitted{why}; all behind that wait without end"
        )
    }
}

/// `lacks 24 nvidia.com/gpu in a100`.
fn lacking((key, blocker): (&ObjectKey, &Blocker), reader: &dyn ObstacleReader) -> Option<String> {
    match &blocker.kind {
        BlockerKind::InUse => {
            let amount = reader.missing(key, blocker).map(|amount| format!("{amount} ")).unwrap_or_default();
            Some(format!("lacks {amount}{} in {}", blocker.resource, blocker.flavor))
        }
        BlockerKind::NodesInUse(_) => Some("waits for nodes that others use".to_owned()),
        _ => None,
    }
}

fn limit_text(limit: &TopologyLimit) -> String {
    let TopologyLimit { flavor, pods, level, most, .. } = limit;
    let beside = if limit.beside_others { " beside pods that hold no quota" } else { "" };
    if let Some((resource, request, largest)) = &limit.too_large {
        let amount = |amount: &Amount| format_quantity(resource, *amount);
        let domain = if *limit.narrowest == *HOSTNAME_LABEL { "node" } else { &limit.narrowest };
        return format!(
            "a pod asks for {} {resource}, the largest {domain} of {flavor} has {}{beside}",
            amount(request),
            amount(largest)
        );
    }
    // Where each pod set fits alone, or pods are placed in slices, only the placement itself says what is lacking.
    if most >= pods || *most <= 0 {
        return format!("on the nodes of {flavor}{beside}, {}", limit.text);
    }
    if level.is_empty() {
        let empty = if limit.beside_others { "" } else { "empty " };
        return format!("{pods} pods, of which the {empty}nodes of {flavor} take {most} together{beside}");
    }
    let wider = match limit.wider.as_deref() {
        None => String::new(),
        Some("") => ". In more than one of them they fit".to_owned(),
        Some(wider) => format!(". Within one {wider} it fits"),
    };
    format!("{pods} pods within one {level} of {flavor}; the largest takes {most}{beside}{wider}")
}
