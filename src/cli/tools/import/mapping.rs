//! The LocalQueue into which a pod is imported, by rules that are tried in order.
//!
//! Invariant: the first rule that matches decides; a pod that no rule matches is an error; it is never left out.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

/// One rule of a mapping file, in Kueue's form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Rule {
    #[serde(rename = "match")]
    matches: Match,
    to_local_queue: String,
    skip: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Match {
    priority_class_name: String,
    labels: BTreeMap<String, String>,
}

/// Assignment of pods to queues.
#[derive(Clone, Debug)]
pub(super) enum Mapping {
    /// By rules.
    Rules(Vec<Rule>),
    /// The value of this label is the name of the queue.
    Label(String),
}

/// Result of a mapping for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Queue(String),
    Skip,
}

impl Mapping {
    /// Reads a mapping file.
    pub(super) fn from_yaml(text: &str, file: &str) -> anyhow::Result<Self> {
        let rules: Vec<Rule> =
            serde_saphyr::from_str(text).with_context(|| format!("mapping file {file}"))?;
        ensure!(!rules.is_empty(), "mapping file {file} has no rules");
        for (position, rule) in rules.iter().enumerate() {
            ensure!(
                rule.skip == rule.to_local_queue.is_empty(),
                "mapping file {file}: rule {position} needs either toLocalQueue or skip: true"
            );
        }
        Ok(Self::Rules(rules))
    }

    /// Maps the values of a label; without pairs a value is the name of the queue.
    pub(super) fn by_label(label: &str, pairs: &BTreeMap<String, String>) -> Self {
        if pairs.is_empty() {
            return Self::Label(label.to_owned());
        }
        let rule = |(value, queue): (&String, &String)| Rule {
            matches: Match {
                labels: BTreeMap::from([(label.to_owned(), value.clone())]),
                ..Match::default()
            },
            to_local_queue: queue.clone(),
            skip: false,
        };
        Self::Rules(pairs.iter().map(rule).collect())
    }

    /// Returns the result for a pod; `None` if no rule matches.
    pub(super) fn target(&self, pod: &Value) -> Option<Target> {
        let label = |name: &str| pod.pointer("/metadata/labels")?.get(name)?.as_str();
        let class = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or_default();
        match self {
            Self::Label(name) => {
                label(name).filter(|queue| !queue.is_empty()).map(|queue| Target::Queue(queue.to_owned()))
            }
            Self::Rules(rules) => {
                let matches = |rule: &&Rule| {
                    let of_class = &rule.matches.priority_class_name;
                    (of_class.is_empty() || of_class == class)
                        && rule
                            .matches
                            .labels
                            .iter()
                            .all(|(name, value)| label(name).unwrap_or_default() == value)
                };
                let rule = rules.iter().find(matches)?;
                Some(if rule.skip { Target::Skip } else { Target::Queue(rule.to_local_queue.clone()) })
            }
        }
    }
}

/// Reads `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} must be NAME=VALUE"))?;
    if name.is_empty() {
        return Err(format!("{text:?} has no name"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "the callers write the labels in place")]
    fn pod(class: &str, labels: Value) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"priorityClassName": class}})
    }

    #[test]
    fn first_rule_that_matches_decides() {
        let text = "
- match:
    priorityClassName: preemptible
    labels: {kind: cpu}
  toLocalQueue: spare
- match:
    labels: {project: alpha, kind: gpu}
  toLocalQueue: alpha-gpu
- match:
    labels: {project: alpha}
  skip: true
";
        let mapping = Mapping::from_yaml(text, "f").unwrap();
        let queue = |name: &str| Some(Target::Queue(name.to_owned()));
        assert_eq!(mapping.target(&pod("preemptible", json!({"kind": "cpu"}))), queue("spare"));
        assert_eq!(mapping.target(&pod("other", json!({"kind": "cpu"}))), None);
        assert_eq!(
            mapping.target(&pod("other", json!({"project": "alpha", "kind": "gpu"}))),
            queue("alpha-gpu")
        );
        assert_eq!(mapping.target(&pod("", json!({"project": "alpha"}))), Some(Target::Skip));
        assert_eq!(mapping.target(&json!({"metadata": {}})), None);
    }

    #[test]
    fn labels_map_by_pairs_or_by_name() {
        let pairs = BTreeMap::from([("a".to_owned(), "queue-a".to_owned())]);
        let queue = |name: &str| Some(Target::Queue(name.to_owned()));
        let mapped = Mapping::by_label("team", &pairs);
        assert_eq!(mapped.target(&pod("", json!({"team": "a"}))), queue("queue-a"));
        assert_eq!(mapped.target(&pod("", json!({"team": "b"}))), None);
        let named = Mapping::by_label("team", &BTreeMap::new());
        assert_eq!(named.target(&pod("", json!({"team": "b"}))), queue("b"));
        assert_eq!(named.target(&pod("", json!({}))), None);
    }

    #[test]
    fn wrong_files_and_pairs_are_named() {
        for (text, part) in [
            ("- match: {}", "rule 0 needs either"),
            ("- {match: {}, toLocalQueue: a, skip: true}", "rule 0 needs either"),
            ("- {match: {}, toQueue: a}", "toQueue"),
            ("a: b", "mapping file f"),
            ("", "mapping file f"),
            ("[]", "mapping file f has no rules"),
        ] {
            let error = format!("{:#}", Mapping::from_yaml(text, "f").unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(pair("a").is_err() && pair("=b").is_err());
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
    }
}
