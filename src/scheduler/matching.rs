//! Whether a flavor suits pods, and whether a label selector selects.

use super::config::Flavor;
use crate::queue::PodSet;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// Why the flavor does not suit the pods, if so.
pub(super) fn mismatch(name: &str, flavor: &Flavor, pods: &PodSet) -> Option<String> {
    let tolerated =
        |taint: &Taint| flavor.tolerations.iter().chain(&pods.tolerations).any(|t| tolerates(t, taint));
    let hard = |taint: &&Taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str());
    if let Some(taint) = flavor.node_taints.iter().filter(hard).find(|taint| !tolerated(taint)) {
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

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
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

/// Requirements on keys that the flavor does not set are left to the nodes; a term of nothing else holds.
fn term_holds(term: &NodeSelectorTerm, labels: &Labels) -> bool {
    let requirements = term.match_expressions.iter().flatten();
    requirements.filter(|r| labels.contains_key(&r.key)).all(|r| node_requirement_holds(r, labels))
}

fn node_requirement_holds(requirement: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let values = requirement.values.as_deref().unwrap_or_default();
    let label = labels.get(&requirement.key);
    let against = || Some((label.and_then(number)?, values.first().and_then(number)?));
    match requirement.operator.as_str() {
        "Gt" => against().is_some_and(|(label, bound)| label > bound),
        "Lt" => against().is_some_and(|(label, bound)| label < bound),
        operator => holds(operator, label, values),
    }
}

fn holds(operator: &str, label: Option<&String>, values: &[String]) -> bool {
    match operator {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => label.is_none_or(|label| !values.contains(label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

/// Whether the selector selects the labels; an absent selector selects nothing, as do unknown operators.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    selector.zip(labels).is_some_and(|(selector, labels)| crate::api::selector::matches(selector, labels))
}
