//! The true obstacle of a pending Workload as a sentence.
//!
//! Invariants: a sentence is here only where the blockers and their amounts do not say it; another Workload has its name only for who
//! may see its namespace, and what it asks for only for who may see sums.

use super::amounts::{amount_view, plain_amount_view};
use super::verdict::Asked;
use crate::api::ObjectKey;
use crate::api::names;
use crate::queue::{Blocker, BlockerKind, FlavorMismatch, NeverFits, WrongFlavor};
use crate::quota::FlavorResource;
use crate::scheduler::{BehindHead, Obstacle};
use crate::topology::{HOSTNAME_LABEL, TopologyLimit};

impl Asked<'_> {
    /// Returns the obstacle as a sentence without its full stop; empty where the blockers say it.
    pub(super) fn obstacle(&self, obstacle: &Obstacle) -> String {
        match obstacle {
            Obstacle::None | Obstacle::Object | Obstacle::InUse => String::new(),
            Obstacle::NeverFits(never) => match self.never_text(never) {
                Some(text) if never.wrong.is_some() => {
                    format!("It can never be admitted as it is: {text}")
                }
                Some(text) => format!("It can never be admitted: {text}"),
                None => String::new(),
            },
            Obstacle::Behind(behind) => self.behind_text(behind),
        }
    }

    /// What stays in the way, if nodes or flavors do; quota has its own sentence.
    fn never_text(&self, never: &NeverFits) -> Option<String> {
        if let Some(limit) = &never.limit {
            return Some(limit_text(limit));
        }
        never.wrong.as_ref().map(|wrong| self.wrong_text(wrong, never))
    }

    fn wrong_text(&self, wrong: &WrongFlavor, never: &NeverFits) -> String {
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
                format!("no flavor of {} has {key}={value}{near}", self.queue.as_str())
            }
            FlavorMismatch::Other(text) => {
                let others = never.blockers.iter().map(ToString::to_string);
                let others: Vec<String> = others.filter(|other| **other != **text).collect();
                std::iter::once(text.to_string()).chain(others).collect::<Vec<_>>().join(", ")
            }
        }
    }

    fn behind_text(&self, behind: &BehindHead) -> String {
        let queue = self.queue.as_str();
        let head =
            format!("Behind {}, the head of the StrictFIFO ClusterQueue {queue}", self.named(&behind.head));
        let Some((key, never)) = &behind.never else {
            let lacks = behind.lacks.iter().find_map(|blocker| self.lacking(blocker));
            return lacks.map_or_else(|| head.clone(), |lacks| format!("{head}, which {lacks}"));
        };
        let sees = self.rows.access.sees(&key.namespace);
        let why = never
            .blockers
            .first()
            .filter(|_| sees)
            .map(|first| self.never_text(never).unwrap_or_else(|| first.to_string()));
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        if *key == behind.head {
            format!("{head}, which can never be admitted{why}; all behind it wait without end")
        } else {
            let name = self.named(key);
            format!(
                "{head}. Before it is {name}, too, which can never be admitted{why}; all behind that wait without end"
            )
        }
    }

    /// The name of a Workload, for who may see it.
    fn named(&self, key: &ObjectKey) -> String {
        if self.rows.access.sees(&key.namespace) {
            key.to_string()
        } else {
            "a workload of another namespace".to_owned()
        }
    }

    /// `lacks 24 nvidia.com/gpu in a100`.
    fn lacking(&self, blocker: &Blocker) -> Option<String> {
        match &blocker.kind {
            BlockerKind::InUse => {
                let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
                let available = self.quota().headroom(&self.queue, &fr).0.available;
                let missing = blocker.requested.to_i128().saturating_sub(available).max(0);
                let amount = amount_view(&self.quota().facts.units, &self.queue, &fr, missing).value;
                let amount = if self.rows.access.sees_sums() { format!("{amount} ") } else { String::new() };
                Some(format!("lacks {amount}{} in {}", fr.resource, fr.flavor))
            }
            BlockerKind::NodesInUse(_) => Some("waits for nodes that others use".to_owned()),
            _ => None,
        }
    }
}

fn limit_text(limit: &TopologyLimit) -> String {
    let TopologyLimit { flavor, pods, level, most, .. } = limit;
    if let Some((resource, request, largest)) = &limit.too_large {
        let amount = |amount: i128| plain_amount_view(resource, amount).value;
        let domain = if *limit.narrowest == *HOSTNAME_LABEL { "node" } else { &limit.narrowest };
        return format!(
            "a pod asks for {} {resource}, the largest {domain} of {flavor} has {}",
            amount(request.to_i128()),
            amount(largest.to_i128())
        );
    }
    // Where each pod set fits alone, or pods are placed in slices, only the placement itself says what is lacking.
    if most >= pods || *most <= 0 {
        return limit.text.to_string();
    }
    if level.is_empty() {
        return format!("{pods} pods, of which the empty nodes of {flavor} take {most} together");
    }
    let wider = match limit.wider.as_deref() {
        None => String::new(),
        Some("") => ". In more than one of them they fit".to_owned(),
        Some(wider) => format!(". Within one {wider} it fits"),
    };
    format!("{pods} pods within one {level}; the largest takes {most}{wider}")
}
