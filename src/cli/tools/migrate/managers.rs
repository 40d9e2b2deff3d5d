//! The managers of a cluster: their Deployments and pods, and the Lease for which they compete.
//!
//! Invariant: one installation has replaced the other only when the other has no Deployment and no pod left, and a pod of the
//! new one holds the Lease. Until then `awaited` names the first missing condition.

use serde_json::Value;

use super::leftovers::{Installation, label};

/// Name of the Lease of both installations.
pub(super) const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// Prefix of the names of both installations, unless a release has another name.
const PREFIX: &str = "kueue";
/// Suffix of the name of the manager's Deployment.
const SUFFIX: &str = "-controller-manager";
/// Values of the component's label on Sluice's pods.
const OWN_COMPONENTS: [&str; 2] = ["controller", "webhooks"];

/// Objects that run managers.
pub(super) struct Managers {
    /// Namespace of the switch.
    pub(super) namespace: String,
    /// Deployments with the label of an installation, in all namespaces.
    pub(super) deployments: Vec<Value>,
    /// Pods with the label of an installation, in the namespace of the switch.
    pub(super) pods: Vec<Value>,
    pub(super) lease: Option<Value>,
}

impl Managers {
    #[cfg(test)]
    pub(super) fn none(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), deployments: Vec::new(), pods: Vec::new(), lease: None }
    }

    /// Returns the Deployment of the manager in the namespace, of either installation.
    pub(super) fn deployment(&self) -> Option<&Value> {
        let here = |deployment: &&Value| namespace_of(deployment) == self.namespace;
        let mut all = self.managing().filter(here).filter(|deployment| name_of(deployment).ends_with(SUFFIX));
        all.next()
    }

    /// Returns the Deployments whose pods are managers, or serve a manager's webhooks.
    fn managing(&self) -> impl Iterator<Item = &Value> {
        self.deployments.iter().filter(|deployment| installation_of_deployment(deployment).is_some())
    }

    /// Returns the prefix of the names of an installation.
    pub(super) fn prefix(&self) -> &str {
        self.deployment().and_then(|deployment| name_of(deployment).strip_suffix(SUFFIX)).unwrap_or(PREFIX)
    }

    /// Returns the installation whose Deployment is in the namespace.
    pub(super) fn installation(&self) -> Option<Installation> {
        self.deployment().and_then(installation_of_deployment)
    }

    /// Returns the Deployments of an installation in the namespace, by their names.
    pub(super) fn names_of(&self, of: Installation) -> Vec<&str> {
        let in_namespace = |deployment: &&Value| {
            namespace_of(deployment) == self.namespace && installation_of_deployment(deployment) == Some(of)
        };
        self.managing().filter(in_namespace).map(name_of).collect()
    }

    /// Returns the Deployments in other namespaces: `namespace/name`.
    pub(super) fn in_other_namespaces(&self) -> Vec<String> {
        let other = self.managing().filter(|deployment| namespace_of(deployment) != self.namespace);
        other.map(|deployment| format!("{}/{}", namespace_of(deployment), name_of(deployment))).collect()
    }

    /// Returns whether the Deployment of an installation has an available pod.
    pub(super) fn is_available(&self, of: Installation) -> bool {
        self.deployment().is_some_and(|deployment| {
            let available = deployment.pointer("/status/availableReplicas").and_then(Value::as_i64);
            installation_of_deployment(deployment) == Some(of)
                && !is_ending(deployment)
                && available > Some(0)
        })
    }

    /// Returns the first condition that is missing until `new` has replaced the other installation; `None` if it has. Managers
    /// that do not elect a leader (`elects`) hold no Lease.
    pub(super) fn awaited(&self, new: Installation, elects: bool) -> Option<String> {
        let old = new.other();
        if let Some(name) = self.names_of(old).first() {
            return Some(format!("the deletion of {old:?}'s Deployment {name}"));
        }
        let runs = |pod: &&Value| installation_of_pod(pod) == Some(old) && !has_ended(pod);
        if let Some(pod) = self.pods.iter().find(runs) {
            return Some(format!("the end of {old:?}'s pod {}", name_of(pod)));
        }
        if !self.is_available(new) {
            return Some(format!("an available pod of {new:?}'s Deployment"));
        }
        let holder = self.holder();
        if !elects
            || self.pods.iter().any(|pod| installation_of_pod(pod) == Some(new) && is_held_by(holder, pod))
        {
            return None;
        }
        let held = if holder.is_empty() { "no pod" } else { holder };
        Some(format!("a pod of {new:?}'s to lead: Lease {LEASE} is held by {held}"))
    }

    /// Returns the identity of the Lease's holder; empty if none.
    pub(super) fn holder(&self) -> &str {
        let holder = self.lease.as_ref().and_then(|lease| lease.pointer("/spec/holderIdentity")?.as_str());
        holder.unwrap_or_default()
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn namespace_of(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default()
}

fn is_ending(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn has_ended(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    ["Succeeded", "Failed"].contains(&phase)
}

/// Returns whether an identity belongs to the manager in a pod. It is a host name and a suffix that is unique for each start.
/// The host name is the pod's, or that of the node whose network the pod uses.
fn is_held_by(identity: &str, pod: &Value) -> bool {
    let host = identity.rsplit_once('_').map_or(identity, |(host, _)| host);
    let on_node = pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true));
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    !host.is_empty() && (host == name_of(pod) || on_node && host == node)
}

/// Returns the installation of a manager's Deployment by its selector. Kueue's selects by `control-plane`.
pub(super) fn installation_of_deployment(deployment: &Value) -> Option<Installation> {
    let selector = deployment.pointer("/spec/selector/matchLabels")?;
    if selector.get("control-plane").is_some_and(|value| value == "controller-manager") {
        return Some(Installation::Kueue);
    }
    let component = selector.get("app.kubernetes.io/component").and_then(Value::as_str);
    component.filter(|component| OWN_COMPONENTS.contains(component)).map(|_| Installation::Sluice)
}

/// Returns the installation of a manager's pod. Only Sluice's pods have a component.
fn installation_of_pod(pod: &Value) -> Option<Installation> {
    let component = label(pod, "app.kubernetes.io/component");
    if component.is_some_and(|component| OWN_COMPONENTS.contains(&component)) {
        return Some(Installation::Sluice);
    }
    label(pod, "control-plane").filter(|value| *value == "controller-manager").map(|_| Installation::Kueue)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// A Deployment with this number of available pods.
    pub(in crate::cli::tools::migrate) fn deployment(
        of: Installation,
        namespace: &str,
        available: i64,
    ) -> Value {
        let selector = match of {
            Installation::Kueue => json!({"control-plane": "controller-manager"}),
            Installation::Sluice => json!({"app.kubernetes.io/component": "controller"}),
        };
        json!({
            "metadata": {"namespace": namespace, "name": "kueue-controller-manager"},
            "spec": {"selector": {"matchLabels": selector}}, "status": {"availableReplicas": available},
        })
    }

    /// A pod of a manager that runs.
    pub(in crate::cli::tools::migrate) fn pod(of: Installation, name: &str) -> Value {
        let labels = match of {
            Installation::Kueue => json!({"control-plane": "controller-manager"}),
            Installation::Sluice => {
                json!({"control-plane": "controller-manager", "app.kubernetes.io/component": "controller"})
            }
        };
        json!({"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}})
    }

    #[test]
    fn manager_is_replaced_when_nothing_of_the_other_is_left_and_the_new_one_leads() {
        let mut managers = Managers::none("q");
        let awaited = |managers: &Managers, part: &str| {
            let found = managers.awaited(Installation::Sluice, true);
            assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{part}: {found:?}");
        };
        managers.deployments = vec![deployment(Installation::Kueue, "q", 1)];
        managers.pods = vec![pod(Installation::Kueue, "old")];
        managers.lease = Some(json!({"spec": {"holderIdentity": "old_1234"}}));
        awaited(&managers, "deletion of Kueue's Deployment kueue-controller-manager");
        managers.deployments = vec![deployment(Installation::Sluice, "q", 2)];
        awaited(&managers, "end of Kueue's pod old");
        managers.pods = vec![pod(Installation::Sluice, "new")];
        awaited(&managers, "held by old_1234");
        assert_eq!(managers.awaited(Installation::Sluice, false), None);
        managers.lease = Some(json!({"spec": {"holderIdentity": ""}}));
        awaited(&managers, "held by no pod");
        managers.lease = Some(json!({"spec": {"holderIdentity": "new_1-5f"}}));
        assert_eq!(managers.awaited(Installation::Sluice, true), None);
        managers.deployments[0]["status"]["availableReplicas"] = 0.into();
        awaited(&managers, "available pod of Sluice's Deployment");
        assert!(managers.awaited(Installation::Kueue, true).is_some());
    }

    #[test]
    fn names_follow_the_release_and_holders_may_use_the_network_of_a_node() {
        let mut managers = Managers::none("q");
        assert_eq!(managers.prefix(), "kueue");
        managers.deployments = vec![deployment(Installation::Kueue, "q", 1)];
        managers.deployments[0]["metadata"]["name"] = "batch-kueue-controller-manager".into();
        managers.deployments.push(deployment(Installation::Kueue, "other", 1));
        // A Deployment of Kueue that is no manager.
        managers
            .deployments
            .push(json!({"metadata": {"namespace": "third", "name": "kueue-kueueviz-backend"},
            "spec": {"selector": {"matchLabels": {"app": "kueueviz-backend"}}}}));
        assert_eq!(managers.prefix(), "batch-kueue");
        assert_eq!(managers.in_other_namespaces(), ["other/kueue-controller-manager"]);
        let mut on_node = pod(Installation::Kueue, "p");
        on_node["spec"] = json!({"hostNetwork": true, "nodeName": "n_1"});
        assert!(is_held_by("n_1_5f", &on_node) && is_held_by("p_5f", &on_node));
        assert!(!is_held_by("", &on_node) && !is_held_by("other_5f", &on_node));
    }
}
