//! Filters nodes for pods by node selector, node affinity and taints.

use super::pod_requirements::PodRequirements;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use std::collections::BTreeMap;

/// Labels by key.
pub type LabelMap = BTreeMap<String, String>;

/// Why a node excludes pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exclusion {
    Affinity,
    NodeSelector,
    Taint(String),
}

/// Returns whether a taint excludes pods that do not tolerate it.
pub fn prevents_scheduling(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// Returns whether the toleration matches the taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let value_of = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, effect) = (value_of(&toleration.key), value_of(&toleration.effect));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && value_of(&toleration.value) == value_of(&taint.value),
        _ => false,
    }
}

/// Returns whether labels match a requirement.
pub fn requirement_holds(requirement: &NodeSelectorRequirement, labels: &LabelMap) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let values = requirement.values.as_deref().unwrap_or_default();
    let label = labels.get(&requirement.key);
    let numbers = || Some((label.and_then(number)?, values.first().and_then(number)?));
    match requirement.operator.as_str() {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => label.is_none_or(|label| !values.contains(label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => numbers().is_some_and(|(label, bound)| label > bound),
        "Lt" => numbers().is_some_and(|(label, bound)| label < bound),
        _ => false,
    }
}

/// Returns whether a node matches a term. An empty term matches no node.
fn term_holds(term: &NodeSelectorTerm, name: &str, labels: &LabelMap) -> bool {
    let (expressions, fields) =
        (term.match_expressions.as_deref().unwrap_or_default(), term.match_fields.as_deref());
    let fields = fields.unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let name_field = LabelMap::from([("metadata.name".to_owned(), name.to_owned())]);
    expressions.iter().all(|r| requirement_holds(r, labels))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement_holds(r, &name_field))
}

/// Returns why a node excludes the pods, if it does. The flavor adds `extra_tolerations`.
pub(super) fn find_exclusion(
    pods: &PodRequirements,
    extra_tolerations: &[Toleration],
    name: &str,
    labels: &LabelMap,
    taints: &[Taint],
) -> Option<Exclusion> {
    let tolerated = |taint: &Taint| {
        pods.tolerations.iter().chain(extra_tolerations).any(|toleration| tolerates(toleration, taint))
    };
    if let Some(taint) = taints.iter().find(|taint| prevents_scheduling(taint) && !tolerated(taint)) {
        let value = taint.value.as_deref().filter(|value| !value.is_empty());
        let value = value.map(|value| format!("={value}")).unwrap_or_default();
        return Some(Exclusion::Taint(format!("{}{value}:{}", taint.key, taint.effect)));
    }
    if !pods.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return Some(Exclusion::NodeSelector);
    }
    let terms = &pods.required_affinity;
    let matches = terms.is_empty() || terms.iter().any(|term| term_holds(term, name, labels));
    (!matches).then_some(Exclusion::Affinity)
}

/// Returns the sum of the weights of the preferred terms that the node matches.
pub(super) fn preferred_affinity_score(pods: &PodRequirements, name: &str, labels: &LabelMap) -> i64 {
    let matching = pods.preferred_affinity.iter().filter(|term| {
        let preference = &term.preference;
        let is_empty = preference.match_expressions.as_deref().unwrap_or_default().is_empty()
            && preference.match_fields.as_deref().unwrap_or_default().is_empty();
        !is_empty && term_holds(preference, name, labels)
    });
    matching.fold(0_i64, |sum, term| sum.saturating_add(i64::from(term.weight)))
}
