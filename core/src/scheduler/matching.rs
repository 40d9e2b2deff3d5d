//! Matching of pods with flavors, and of labels with selectors.

use super::config::Flavor;
use crate::topology::{PodRequirements, prevents_scheduling, requirement_holds, tolerates};
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// Returns why the flavor does not suit the pods, or `None` if it does.
pub(super) fn flavor_mismatch(name: &str, flavor: &Flavor, pods: &PodRequirements) -> Option<String> {
    let tolerated =
        |taint: &Taint| flavor.tolerations.iter().chain(&pods.tolerations).any(|t| tolerates(t, taint));
    if let Some(taint) =
        flavor.node_taints.iter().filter(|taint| prevents_scheduling(taint)).find(|taint| !tolerated(taint))
    {
        let value = taint.value.as_deref().map(|value| format!("={value}")).unwrap_or_default();
        return Some(format!("untolerated taint {}{value}:{} in flavor {name}", taint.key, taint.effect));
    }
    let labels = &flavor.node_labels;
    let selected =
        pods.node_selector.iter().all(|(key, value)| labels.get(key).is_none_or(|label| label == value));
    let terms = &pods.required_affinity;
    if selected && (terms.is_empty() || terms.iter().any(|term| term_holds(term, labels))) {
        return None;
    }
    Some(format!("flavor {name} doesn't match node affinity"))
}

/// Ignores requirements on keys that the flavor does not set, since nodes may set them; a term without others holds.
fn term_holds(term: &NodeSelectorTerm, labels: &Labels) -> bool {
    let requirements = term.match_expressions.iter().flatten();
    requirements.filter(|r| labels.contains_key(&r.key)).all(|r| requirement_holds(r, labels))
}

/// Whether the selector matches the labels; absent selectors and unknown operators match nothing.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    selector.zip(labels).is_some_and(|(selector, labels)| crate::api::selector::matches(selector, labels))
}
