//! Which nodes pods may go to: selectors, node affinity, taints.

use super::pod_requirements::PodRequirements;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use std::collections::BTreeMap;

/// Labels by key.
pub type LabelMap = BTreeMap<String, String>;

/// What keeps pods from a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exclusion {
    Affinity,
    NodeSelector,
    Taint(String),
}

/// Whether a taint keeps pods that do not tolerate it away.
pub fn prevents_scheduling(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// Whether the toleration covers the taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}

/// Whether labels meet a requirement.
pub fn requirement_holds(requirement: &NodeSelectorRequirement, labels: &LabelMap) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let values = requirement.values.as_deref().unwrap_or_default();
    let label = labels.get(&requirement.key);
    let against = || Some((label.and_then(number)?, values.first().and_then(number)?));
    match requirement.operator.as_str() {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => label.is_none_or(|label| !values.contains(label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => against().is_some_and(|(label, bound)| label > bound),
        "Lt" => against().is_some_and(|(label, bound)| label < bound),
        _ => false,
    }
}

/// Whether a node meets a term; one that says nothing is met by no node.
fn term_holds(term: &NodeSelectorTerm, name: &str, labels: &LabelMap) -> bool {
    let (expressions, fields) =
        (term.match_expressions.as_deref().unwrap_or_default(), term.match_fields.as_deref());
    let fields = fields.unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let own = LabelMap::from([("metadata.name".to_owned(), name.to_owned())]);
    expressions.iter().all(|r| requirement_holds(r, labels))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement_holds(r, &own))
}

/// What keeps the pods from a node with these labels and taints; `beside` are tolerations that they are given.
pub(super) fn find_exclusion(
    pods: &PodRequirements,
    beside: &[Toleration],
    name: &str,
    labels: &LabelMap,
    taints: &[Taint],
) -> Option<Exclusion> {
    let tolerated =
        |taint: &Taint| pods.tolerations.iter().chain(beside).any(|toleration| tolerates(toleration, taint));
    if let Some(taint) = taints.iter().find(|taint| prevents_scheduling(taint) && !tolerated(taint)) {
        let value = taint.value.as_deref().filter(|value| !value.is_empty());
        let value = value.map(|value| format!("={value}")).unwrap_or_default();
        return Some(Exclusion::Taint(format!("{}{value}:{}", taint.key, taint.effect)));
    }
    if !pods.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return Some(Exclusion::NodeSelector);
    }
    let terms = &pods.required_affinity;
    let met = terms.is_empty() || terms.iter().any(|term| term_holds(term, name, labels));
    (!met).then_some(Exclusion::Affinity)
}

/// Sum of the weights of preferred terms that the node meets.
pub(super) fn preferred_affinity_score(pods: &PodRequirements, name: &str, labels: &LabelMap) -> i64 {
    let met = pods.preferred_affinity.iter().filter(|term| {
        let preference = &term.preference;
        let says_nothing = preference.match_expressions.as_deref().unwrap_or_default().is_empty()
            && preference.match_fields.as_deref().unwrap_or_default().is_empty();
        !says_nothing && term_holds(preference, name, labels)
    });
    met.fold(0_i64, |sum, term| sum.saturating_add(i64::from(term.weight)))
}
