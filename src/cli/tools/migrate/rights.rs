//! The rights that a switch needs. They are reviewed before the first step, so that a run does not stop in the middle because
//! one is missing.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::api::crd;
use crate::kube::client::Caller;

/// Access that a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Change,
}

/// Verbs on one resource, in the manager's namespace or in all, that the user must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    /// Plural name, with the subresource if any: `x/status`.
    resource: String,
    in_namespace: bool,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.qualified())
    }
}

/// Verbs, group, resource, and whether in the manager's namespace alone.
type Row = (&'static [&'static str], &'static str, &'static str, bool);

const READ: [Row; 17] = [
    (&["get"], "apiextensions.k8s.io", "customresourcedefinitions", false),
    (&["list"], "apps", "deployments", false),
    (&["list"], "", "pods", true),
    (&["get"], "coordination.k8s.io", "leases", true),
    (&["get"], "", "configmaps", true),
    (&["get"], "admissionregistration.k8s.io", "mutatingwebhookconfigurations", false),
    (&["get"], "admissionregistration.k8s.io", "validatingwebhookconfigurations", false),
    (&["get"], "apiregistration.k8s.io", "apiservices", false),
    (&["list"], "rbac.authorization.k8s.io", "clusterroles", false),
    (&["list"], "rbac.authorization.k8s.io", "clusterrolebindings", false),
    (&["list"], "rbac.authorization.k8s.io", "roles", false),
    (&["list"], "rbac.authorization.k8s.io", "rolebindings", false),
    (&["list"], "", "services", false),
    (&["list"], "policy", "poddisruptionbudgets", true),
    (&["list"], "networking.k8s.io", "networkpolicies", true),
    (&["list"], "admissionregistration.k8s.io", "mutatingadmissionpolicies", false),
    (&["list"], "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", false),
];

const CHANGE: [Row; 12] = [
    (&["patch"], "apiextensions.k8s.io", "customresourcedefinitions", false),
    (&["patch"], "apiextensions.k8s.io", "customresourcedefinitions/status", false),
    (&["patch"], "admissionregistration.k8s.io", "mutatingwebhookconfigurations", false),
    (&["patch"], "admissionregistration.k8s.io", "validatingwebhookconfigurations", false),
    (&["delete"], "apiregistration.k8s.io", "apiservices", false),
    (&["delete"], "rbac.authorization.k8s.io", "clusterrolebindings", false),
    (&["delete"], "rbac.authorization.k8s.io", "rolebindings", false),
    (&["delete"], "", "services", false),
    (&["delete"], "policy", "poddisruptionbudgets", true),
    (&["delete"], "networking.k8s.io", "networkpolicies", true),
    (&["delete"], "admissionregistration.k8s.io", "mutatingadmissionpolicies", false),
    (&["delete"], "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", false),
];

impl Right {
    fn qualified(&self) -> String {
        let (resource, sub) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let sub = if sub.is_empty() { String::new() } else { format!("/{sub}") };
        format!("{resource}{group}{sub}")
    }

    fn review(&self, namespace: &str) -> Value {
        let (resource, sub) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": self.verb, "group": self.group, "resource": resource, "subresource": sub,
                "namespace": if self.in_namespace { namespace } else { "" },
            }},
        })
    }
}

/// Returns all rights that a run needs.
pub(super) fn needed(access: Access) -> anyhow::Result<Vec<Right>> {
    let rows = |rows: &[Row]| -> Vec<Right> {
        let of = |(verbs, group, resource, in_namespace): &Row| {
            let (group, resource, in_namespace) = (*group, (*resource).to_owned(), *in_namespace);
            verbs.iter().map(move |verb| Right { verb, group, resource: resource.clone(), in_namespace })
        };
        rows.iter().flat_map(of).collect()
    };
    let mut all = rows(&READ);
    if access == Access::Change {
        all.extend(rows(&CHANGE));
    }
    for (_, definition) in crd::definitions()? {
        let plural = definition.pointer("/spec/names/plural").and_then(Value::as_str).unwrap_or_default();
        let verbs: &[&'static str] = if access == Access::Change { &["list", "patch"] } else { &["list"] };
        all.extend(verbs.iter().map(|verb| Right {
            verb,
            group: "kueue.x-k8s.io",
            resource: plural.to_owned(),
            in_namespace: false,
        }));
    }
    Ok(all)
}

/// Asks the API server; returns the rights that the user lacks.
pub(super) async fn missing(caller: &Caller, namespace: &str, access: Access) -> anyhow::Result<Vec<Right>> {
    let mut missing = Vec::new();
    for right in needed(access)? {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = caller.post(path, &right.review(namespace)).await?;
        if answer.pointer("/status/allowed") != Some(&Value::Bool(true)) {
            missing.push(right);
        }
    }
    Ok(missing)
}

/// Returns the name of the user; a placeholder if the API server does not answer the review.
pub(super) async fn user(caller: &Caller) -> String {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = caller.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await;
    let name = answer
        .ok()
        .and_then(|answer| Some(answer.pointer("/status/userInfo/username")?.as_str()?.to_owned()));
    name.unwrap_or_else(|| "USER".to_owned())
}

/// Returns the missing rights, and the commands that grant them to a user.
pub(super) fn report(missing: &[Right], user: &str) -> Vec<String> {
    let mut lines: Vec<String> = missing.iter().map(|right| format!("{user} may not {right}")).collect();
    let mut by_verb: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for right in missing {
        by_verb.entry(right.verb).or_default().push(right.qualified());
    }
    lines.push("an administrator grants it by:".to_owned());
    for (verb, resources) in by_verb {
        let (role, resources) = (format!("sluice-migrate-{verb}"), resources.join(","));
        lines.push(format!("kubectl create clusterrole {role} --verb={verb} --resource={resources}"));
        lines.push(format!("kubectl create clusterrolebinding {role} --clusterrole={role} --user={user}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_right_is_named_with_what_grants_it() {
        let all = needed(Access::Change).unwrap();
        let named = |text: &str| all.iter().find(|right| right.to_string() == text).unwrap().clone();
        let missing = [
            named("list deployments.apps"),
            named("delete services"),
            named("patch customresourcedefinitions.apiextensions.k8s.io/status"),
            named("delete apiservices.apiregistration.k8s.io"),
        ];
        let lines = report(&missing, "ann");
        assert_eq!(lines[0], "ann may not list deployments.apps");
        for line in [
            "kubectl create clusterrole sluice-migrate-delete --verb=delete --resource=services,apiservices.apiregistration.k8s.io",
            "kubectl create clusterrolebinding sluice-migrate-delete --clusterrole=sluice-migrate-delete --user=ann",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
        }
        let review = missing[2].review("q");
        assert_eq!(review["spec"]["resourceAttributes"]["subresource"], "status");
        let reads = needed(Access::Read).unwrap();
        assert!(reads.iter().all(|right| ["get", "list"].contains(&right.verb)) && reads.len() < all.len());
    }
}
