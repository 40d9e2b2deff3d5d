//! What this process needs to be allowed, and whether it is.
//!
//! Invariants: the shipped roles grant exactly these rights (a test compares them); rights of features that are off are not
//! asked for; all others are asked for at least twice a minute. A right that goes is logged once and shown in a metric until
//! it is back. It ends nothing, and makes the replica not ready only if reviews need it: a replica that cannot write still
//! answers webhooks, which would otherwise refuse every Job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::certificates::{CertificateMode, CertificateSettings};
use super::client::{CallError, Caller};
use super::lease::LeaseSettings;
use super::watch_status::WatchStatuses;
use crate::state::Kind;

/// Questions at a time.
const MAX_CONCURRENT_REVIEWS: usize = 4;
/// Shortest and longest pause before rights are asked for again.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(25);
/// Pause after a call was refused.
const RECHECK_DELAY: Duration = Duration::from_secs(5);
/// A namespace that cannot exist: in it no RoleBinding grants what is needed in the whole cluster.
const NONEXISTENT_NAMESPACE: &str = "-";
/// What a watch needs.
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const KUEUE_GROUP: &str = "kueue.x-k8s.io";

/// One thing that the process does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The namespace; the whole cluster when absent.
    pub namespace: Option<String>,
    /// API group.
    pub group: String,
    /// Resource, with its subresource.
    pub resource: String,
    /// The one object; any when absent.
    pub name: Option<String>,
    /// Verb.
    pub verb: &'static str,
    /// Whether webhooks answer from what is read by it.
    pub needed_for_reviews: bool,
    /// It is needed only where the API server serves this kind.
    pub only_if_served: Option<Kind>,
}

/// What the process does, as far as it is not fixed.
#[derive(Clone, Copy, Debug)]
pub struct PermissionRequirements<'a> {
    /// Kinds that are watched.
    pub kinds: &'a [Kind],
    /// Where certificates are.
    pub certificates: &'a CertificateSettings,
    /// Where the lease is, if there is an election.
    pub lease: Option<&'a LeaseSettings>,
    /// Readers of the metrics are asked for.
    pub authorizes_metrics: bool,
    /// Jobs of deactivated Workloads are deleted after a while.
    pub deletes_jobs: bool,
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, " of {}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " named {name}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        Ok(())
    }
}

fn cluster_permission(group: &str, resource: &str, verb: &'static str) -> Permission {
    let (group, resource) = (group.to_owned(), resource.to_owned());
    Permission {
        namespace: None,
        group,
        resource,
        name: None,
        verb,
        needed_for_reviews: false,
        only_if_served: None,
    }
}

/// Everything that a process with these settings does.
pub fn required_permissions(uses: &PermissionRequirements<'_>) -> Vec<Permission> {
    let mut rights: Vec<Permission> = Vec::new();
    for kind in uses.kinds {
        let resource = kind.resource();
        let read = |verb| Permission {
            needed_for_reviews: kind.is_used_by_webhooks(),
            ..cluster_permission(resource.group, resource.plural, verb)
        };
        rights.extend(READ_VERBS.map(read));
        if let Kind::Job(_) = kind {
            let (group, plural) = (resource.group, resource.plural);
            rights.push(cluster_permission(group, plural, "patch"));
            rights.extend(uses.deletes_jobs.then(|| cluster_permission(group, plural, "delete")));
            rights.push(cluster_permission(group, &format!("{plural}/status"), "patch"));
            // For an owner reference that holds up the deletion of the owner.
            rights.push(cluster_permission(group, &format!("{plural}/finalizers"), "update"));
        }
        if *kind == Kind::Pod {
            rights.extend(["pods", "pods/status"].map(|resource| cluster_permission("", resource, "patch")));
        }
    }
    rights
        .extend(["create", "patch", "delete"].map(|verb| cluster_permission(KUEUE_GROUP, "workloads", verb)));
    let patched = [
        "workloads/status",
        "clusterqueues",
        "clusterqueues/status",
        "localqueues/status",
        "cohorts/status",
        "admissionchecks/status",
        "multikueueclusters/status",
        "resourceflavors",
        "admissionchecks",
        "topologies",
    ];
    rights.extend(patched.map(|resource| cluster_permission(KUEUE_GROUP, resource, "patch")));
    rights.extend(["create", "patch"].map(|verb| cluster_permission("events.k8s.io", "events", verb)));
    // Nothing is asked of an autoscaler that is not there.
    let provisioning = [
        cluster_permission("autoscaling.x-k8s.io", "provisioningrequests", "create"),
        cluster_permission("autoscaling.x-k8s.io", "provisioningrequests", "delete"),
        cluster_permission("", "podtemplates", "create"),
    ];
    rights.extend(
        provisioning.map(|right| Permission { only_if_served: Some(Kind::ProvisioningRequest), ..right }),
    );
    if uses.authorizes_metrics {
        rights.push(cluster_permission("authentication.k8s.io", "tokenreviews", "create"));
        rights.push(cluster_permission("authorization.k8s.io", "subjectaccessreviews", "create"));
    }
    rights.extend(certificate_permissions(uses.certificates));
    rights.extend(uses.lease.into_iter().flat_map(lease_permissions));
    rights
}

fn certificate_permissions(settings: &CertificateSettings) -> Vec<Permission> {
    const REGISTRATION: &str = "admissionregistration.k8s.io";
    let ours = settings.mode == CertificateMode::SelfManaged;
    let verbs = || READ_VERBS.into_iter().chain(ours.then_some("patch"));
    let mut rights = Vec::new();
    for (resource, name) in [
        ("mutatingwebhookconfigurations", &settings.mutating),
        ("validatingwebhookconfigurations", &settings.validating),
    ] {
        let named = |verb| Permission {
            name: Some(name.clone()),
            ..cluster_permission(REGISTRATION, resource, verb)
        };
        rights.extend(verbs().map(named));
    }
    let secret = |name: Option<&String>, verb| Permission {
        namespace: Some(settings.namespace.clone()),
        name: name.cloned(),
        ..cluster_permission("", "secrets", verb)
    };
    let serving = Some(&settings.serving_secret).filter(|_| settings.folder.is_none());
    for name in serving.into_iter().chain(ours.then_some(&settings.ca_secret)) {
        rights.extend(verbs().map(|verb| secret(Some(name), verb)));
    }
    rights.extend(ours.then(|| secret(None, "create")));
    rights
}

fn lease_permissions(settings: &LeaseSettings) -> Vec<Permission> {
    let lease = |name: Option<&String>, verb| Permission {
        namespace: Some(settings.namespace.clone()),
        name: name.cloned(),
        ..cluster_permission("coordination.k8s.io", "leases", verb)
    };
    let name = Some(&settings.name);
    vec![lease(None, "create"), lease(name, "get"), lease(name, "update")]
}

/// Rights that are known to be missing.
#[derive(Debug, Default)]
pub struct MissingPermissions(ArcSwap<Vec<Permission>>);

impl MissingPermissions {
    /// What is missing now.
    pub fn list(&self) -> Arc<Vec<Permission>> {
        self.0.load_full()
    }

    /// Takes in what was found, and tells of each change once.
    fn store(&self, refused: Vec<Permission>) {
        let known = self.list();
        let words = |rights: &[Permission], without: &[Permission]| {
            let new = rights.iter().filter(|right| !without.contains(right));
            new.map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let (gone, back) = (words(&refused, &known), words(&known, &refused));
        if !gone.is_empty() {
            tracing::error!(rights = gone, "rights are missing: the shipped roles grant them (config/rbac)");
        }
        if !back.is_empty() {
            tracing::info!(rights = back, "rights that were missing are granted");
        }
        self.0.store(Arc::new(refused));
    }
}

/// What is asked for, how, and who hears of it.
pub struct PermissionCheck {
    /// Makes the calls: at a rate of its own, so that questions take nothing from writes.
    pub caller: Caller,
    /// What is asked for.
    pub permissions: Vec<Permission>,
    /// Which kinds the API server serves.
    pub watch_statuses: WatchStatuses,
    /// Where the answer goes.
    pub missing_permissions: Arc<MissingPermissions>,
    /// Told when a call was refused: a right may just have gone.
    pub recheck: Arc<Notify>,
}

/// Asks for all rights again and again.
///
/// Two calls tell what the rules grant, in the namespace of the manager and everywhere; only what they do not name, or
/// what an authorizer grants that lists no rules, is asked for one by one.
pub async fn run_permission_checks(asking: PermissionCheck) {
    let mut pause = MIN_CHECK_INTERVAL;
    loop {
        let served = |right: &Permission| {
            right.only_if_served.is_none_or(|kind| !asking.watch_statuses.is_not_served(kind))
        };
        let rights: Vec<Permission> =
            asking.permissions.iter().filter(|right| served(right)).cloned().collect();
        let rules = fetch_rules(&asking.caller, &rights).await;
        let open: Vec<Permission> = rights.into_iter().filter(|right| !is_granted(&rules, right)).collect();
        let known = asking.missing_permissions.list();
        let (mut refused, unknown) = review_each(&asking.caller, open).await;
        // What cannot be asked for is as it was.
        let settled = unknown.is_empty();
        refused.extend(unknown.into_iter().filter(|right| known.contains(right)));
        refused.sort();
        let all_there = refused.is_empty() && settled;
        asking.missing_permissions.store(refused);
        pause = if all_there { MAX_CHECK_INTERVAL } else { pause.saturating_mul(2).min(MAX_CHECK_INTERVAL) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = asking.recheck.notified() => {
                // A write that is refused again and again is no reason to ask all the time.
                tokio::time::sleep(RECHECK_DELAY).await;
                pause = MIN_CHECK_INTERVAL;
            }
        }
    }
}

/// Rules by namespace, as far as the server lists them.
type RulesByNamespace = BTreeMap<Option<String>, Value>;

async fn fetch_rules(caller: &Caller, rights: &[Permission]) -> RulesByNamespace {
    let namespaces: BTreeSet<&Option<String>> = rights.iter().map(|right| &right.namespace).collect();
    let mut rules = RulesByNamespace::new();
    for namespace in namespaces {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace.as_deref().unwrap_or(NONEXISTENT_NAMESPACE)},
        });
        match caller.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await {
            Ok(mut answer) => {
                let listed = answer.pointer_mut("/status/resourceRules").map(Value::take);
                rules.insert(namespace.clone(), listed.unwrap_or_default());
            }
            Err(error) => tracing::debug!(%error, "rules review"),
        }
    }
    rules
}

/// Whether a listed rule grants a right. Rules only add up: what one grants, no other takes away.
fn is_granted(rules: &RulesByNamespace, right: &Permission) -> bool {
    let rules = rules.get(&right.namespace).and_then(Value::as_array);
    rules.into_iter().flatten().any(|rule| {
        let has = |field: &str, wanted: &[&str]| {
            let listed = rule.get(field).and_then(Value::as_array);
            listed.into_iter().flatten().filter_map(Value::as_str).any(|entry| wanted.contains(&entry))
        };
        let any_name = rule.get("resourceNames").and_then(Value::as_array).is_none_or(Vec::is_empty);
        let named = || right.name.as_deref().is_some_and(|name| has("resourceNames", &[name]));
        has("verbs", &["*", right.verb])
            && has("apiGroups", &["*", &right.group])
            && has("resources", &["*", &right.resource])
            && (any_name || named())
    })
}

/// Those that are refused, and those of which nothing is known because the question failed.
async fn review_each(caller: &Caller, rights: Vec<Permission>) -> (Vec<Permission>, Vec<Permission>) {
    let answers = futures::stream::iter(rights)
        .map(|right| async move { (review_access(caller, &right).await, right) })
        .buffered(MAX_CONCURRENT_REVIEWS)
        .collect::<Vec<_>>()
        .await;
    let (mut refused, mut unknown) = (Vec::new(), Vec::new());
    for (answer, right) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => refused.push(right),
            Err(error) => {
                tracing::debug!(%right, %error, "access review");
                unknown.push(right);
            }
        }
    }
    (refused, unknown)
}

async fn review_access(caller: &Caller, right: &Permission) -> Result<bool, CallError> {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": right.namespace, "group": right.group, "resource": resource,
            "subresource": subresource, "name": right.name, "verb": right.verb,
        }},
    });
    let answer = caller.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
    Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}
