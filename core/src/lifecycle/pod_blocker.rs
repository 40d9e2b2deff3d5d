//! What keeps pods of an admitted Workload from running, although it has the quota: a scheduling gate of another controller, or
//! nodes that do not take them.
//!
//! Invariant: the identity of what blocks has neither amounts nor the words of the scheduler, which change while nothing else
//! does, so that it is reported once.

use crate::api::names;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Maximum number of pods that a text names for each blocker.
const NAMED_PODS: usize = 3;
/// Maximum number of characters of the scheduler's message that are kept.
const MESSAGE_CHARS: usize = 300;

/// What keeps a pod from running.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodBlocker {
    /// It has these scheduling gates, none of which this manager removes.
    ForeignGates(Vec<String>),
    /// The scheduler found no node; its message.
    NoNode(String),
}

/// What blocks the pods of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedPods {
    /// What is the same as long as the same blocks.
    pub identity: String,
    /// Text for users, with pods, gates and the message of the scheduler.
    pub text: String,
}

impl PodBlocker {
    /// Returns what blocks a pod without a node that has these gates, and of which the scheduler says this. While a gate of this
    /// manager is left, that is what the pod waits for.
    pub fn of<'a>(gates: impl IntoIterator<Item = &'a str>, unschedulable: Option<&str>) -> Option<Self> {
        let own = [names::ADMISSION_GATE, names::TOPOLOGY_GATE, names::ELASTIC_JOB_ANNOTATION];
        let gates: BTreeSet<&str> = gates.into_iter().collect();
        if gates.iter().any(|gate| own.contains(gate)) {
            return None;
        }
        if !gates.is_empty() {
            return Some(Self::ForeignGates(gates.into_iter().map(str::to_owned).collect()));
        }
        unschedulable.map(|message| Self::NoNode(message.chars().take(MESSAGE_CHARS).collect()))
    }
}

impl BlockedPods {
    /// Describes pods by their names; `None` if there are none.
    pub fn of<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodBlocker)>) -> Option<Self> {
        let mut gated: BTreeMap<&[String], Vec<&str>> = BTreeMap::new();
        let mut without_node: Option<(&str, Vec<&str>)> = None;
        for (name, blocker) in pods {
            match blocker {
                PodBlocker::ForeignGates(gates) => gated.entry(gates).or_default().push(name),
                PodBlocker::NoNode(message) => {
                    without_node.get_or_insert_with(|| (message, Vec::new())).1.push(name);
                }
            }
        }
        let (mut identity, mut texts) = (String::new(), Vec::new());
        for (gates, pods) in gated {
            let gates = gates.join(", ");
            let _ = write!(identity, "{gates};");
            texts.push(format!("scheduling gates of other controllers ({gates}) hold {}", listed(&pods)));
        }
        if let Some((message, pods)) = without_node {
            identity.push_str("no node");
            texts.push(format!("no node takes {}: {message}", listed(&pods)));
        }
        let text = format!("Admitted, but {}", texts.join("; "));
        (!texts.is_empty()).then_some(Self { identity, text })
    }
}

/// Returns the first names, and the number of the others.
fn listed(names: &[&str]) -> String {
    let first = names.iter().take(NAMED_PODS).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_PODS) {
        0 if names.len() == 1 => format!("pod {first}"),
        0 => format!("pods {first}"),
        more => format!("pods {first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_of_this_manager_block_first() {
        let own = PodBlocker::of([names::ADMISSION_GATE, "example.com/license"], None);
        let foreign = PodBlocker::of(["example.com/license"], Some("0/1 nodes are available"));
        let no_node = PodBlocker::of([], Some("0/1 nodes are available"));
        assert_eq!(own, None);
        assert_eq!(foreign, Some(PodBlocker::ForeignGates(vec!["example.com/license".to_owned()])));
        assert_eq!(no_node, Some(PodBlocker::NoNode("0/1 nodes are available".to_owned())));
        assert_eq!(PodBlocker::of([], None), None);
    }

    #[test]
    fn text_names_pods_gates_and_the_message() {
        let gate = PodBlocker::ForeignGates(vec!["example.com/license".to_owned()]);
        let (few, none) =
            (PodBlocker::NoNode("2 nodes".to_owned()), PodBlocker::NoNode("0 nodes".to_owned()));
        let blocked =
            BlockedPods::of([("a", &gate), ("b", &few), ("c", &none), ("d", &none), ("e", &none)]).unwrap();
        let text = "Admitted, but scheduling gates of other controllers (example.com/license) hold pod a; \
            no node takes pods b, c, d and 1 more: 2 nodes";
        assert_eq!(blocked.text, text);
        let later = BlockedPods::of([("a", &gate), ("c", &none)]).unwrap();
        assert_eq!(later.identity, blocked.identity, "amounts change while nothing else does");
        assert_eq!(BlockedPods::of([]), None);
    }
}
