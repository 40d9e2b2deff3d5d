//! Checks whether the process has the permissions that it needs.
//!
//! Invariants: the shipped roles grant exactly these permissions (a test compares both); permissions of disabled features are
//! not checked; all others are checked at least twice a minute. A lost permission is logged once and shown in a metric until it
//! is granted again. It never ends the process, and makes the replica not ready only if reviews need it: a replica that cannot
//! write still answers webhooks, which would otherwise reject every Job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::certificates::{CertificateMode, CertificateSettings};
use super::client::{CallError, Caller};
use super::lease::LeaseSettings;
use super::watch_status::WatchStatuses;
use super::webhook_ownership::KUEUE_CONFIGURATIONS;
use crate::api::v1beta1::CONVERTED;
use crate::api::visibility::API_SERVICES;
use crate::cache::Kind;
use crate::frameworks::{Framework, frameworks};

/// Maximum number of concurrent access reviews.
const MAX_CONCURRENT_REVIEWS: usize = 4;
/// Shortest and longest delay between two checks.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(25);
/// Delay before the check that a refused call triggers.
const RECHECK_DELAY: Duration = Duration::from_secs(5);
/// A namespace that cannot exist, for checks of cluster-wide permissions: no RoleBinding in it can grant anything.
const NONEXISTENT_NAMESPACE: &str = "-";
/// Verbs that a watch needs.
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const REGISTRATION: &str = "admissionregistration.k8s.io";
/// Namespace and name of the ConfigMap in which API servers publish how they identify themselves to servers behind them.
pub const FRONT_PROXY_CONFIG_MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// One permission that the process needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// Namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// API group.
    pub group: String,
    /// Resource, with its subresource if any.
    pub resource: String,
    /// Name of the only object that it covers; `None` for all.
    pub name: Option<String>,
    /// Verb.
    pub verb: &'static str,
    /// Whether reviews depend on what is read with it.
    pub needed_for_reviews: bool,
    /// Name of the framework whose objects it covers, if any.
    pub framework: Option<&'static str>,
    /// Kind that the API server must serve for it to be needed.
    pub only_if_served: Option<Kind>,
}

/// The settings that determine the permissions to write.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequirements {
    /// Whether Jobs of deactivated Workloads are deleted after a while.
    pub deletes_jobs: bool,
    /// Whether pods are jobs, which are stopped by their deletion.
    pub pods_are_jobs: bool,
}

/// The settings that determine the permissions.
#[derive(Clone, Copy, Debug)]
pub struct PermissionRequirements<'a> {
    /// Watched kinds.
    pub kinds: &'a [Kind],
    /// Kinds of which only the metadata is read.
    pub passing: &'a [Kind],
    /// Settings of certificates.
    pub certificates: &'a CertificateSettings,
    /// Settings of the lease, if there is an election. A process that only reads follows the lease.
    pub lease: Option<&'a LeaseSettings>,
    /// Whether clients of the metrics endpoint are authorized.
    pub authorizes_metrics: bool,
    /// Whether the visibility API is served.
    pub serves_visibility: bool,
    /// What the process writes; `None` if it only reads.
    pub writes: Option<WriteRequirements>,
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
        framework: None,
        only_if_served: None,
    }
}

/// Returns all permissions that a process with these settings needs.
pub fn required_permissions(requirements: &PermissionRequirements<'_>) -> Vec<Permission> {
    let mut permissions: Vec<Permission> = Vec::new();
    for kind in requirements.kinds {
        let resource = kind.resource();
        let read = |verb| Permission {
            needed_for_reviews: kind.is_used_by_webhooks(),
            framework: if let Kind::Job(row) = kind { Some(row.name) } else { None },
            ..cluster_permission(resource.group, resource.plural, verb)
        };
        permissions.extend(READ_VERBS.map(read));
    }
    for kind in requirements.passing {
        let resource = kind.resource();
        permissions.extend(READ_VERBS.map(|verb| cluster_permission(resource.group, resource.plural, verb)));
    }
    if let Some(writes) = requirements.writes {
        permissions.extend(write_permissions(requirements.kinds, writes));
    }
    if requirements.authorizes_metrics || requirements.serves_visibility {
        permissions.push(cluster_permission("authentication.k8s.io", "tokenreviews", "create"));
    }
    if requirements.authorizes_metrics || requirements.serves_visibility {
        permissions.push(cluster_permission("authorization.k8s.io", "subjectaccessreviews", "create"));
    }
    if requirements.serves_visibility {
        permissions.extend(front_proxy_permissions());
    }
    permissions.extend(certificate_permissions(requirements.certificates));
    if requirements.writes.is_some() {
        permissions.extend(ownership_permissions(requirements.certificates));
    }
    let leads = requirements.writes.is_some();
    permissions.extend(requirements.lease.into_iter().flat_map(|lease| lease_permissions(lease, leads)));
    permissions
}

/// Returns the permissions to read how API servers identify themselves.
fn front_proxy_permissions() -> impl Iterator<Item = Permission> {
    let (namespace, name) = FRONT_PROXY_CONFIG_MAP;
    READ_VERBS.into_iter().map(move |verb| Permission {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..cluster_permission("", "configmaps", verb)
    })
}

/// Returns the permissions to write, except on certificates and the lease.
fn write_permissions(kinds: &[Kind], writes: WriteRequirements) -> Vec<Permission> {
    let events = ["create", "patch"].map(|verb| cluster_permission("events.k8s.io", "events", verb));
    kinds.iter().flat_map(|kind| permissions_on(*kind, writes)).chain(events).collect()
}

/// Returns the permissions to write objects of a watched kind. Without a wildcard, so that a new kind decides: that a role lacks a
/// permission is reported only if it is here.
fn permissions_on(kind: Kind, writes: WriteRequirements) -> Vec<Permission> {
    let resource = kind.resource();
    let on = |subresource: &str, verbs: &[&'static str]| -> Vec<Permission> {
        let name = format!("{}{subresource}", resource.plural);
        verbs.iter().map(|verb| cluster_permission(resource.group, &name, verb)).collect()
    };
    let of_autoscaler = |verbs: &[&'static str]| -> Vec<Permission> {
        let only_if_served = Some(Kind::ProvisioningRequest);
        on("", verbs).into_iter().map(|permission| Permission { only_if_served, ..permission }).collect()
    };
    match kind {
        Kind::Job(row) => job_permissions(&row, writes.deletes_jobs),
        // Pods of every kind are ungated and terminated. Where they are jobs, stopping deletes them.
        Kind::Pod if writes.pods_are_jobs => {
            frameworks().filter(|row| row.is_pod()).flat_map(|row| job_permissions(row, true)).collect()
        }
        Kind::Workload => [on("", &["create", "patch", "delete"]), on("/status", &["patch"])].concat(),
        Kind::Pod | Kind::ClusterQueue | Kind::AdmissionCheck => {
            [on("", &["patch"]), on("/status", &["patch"])].concat()
        }
        Kind::ResourceFlavor | Kind::Topology => on("", &["patch"]),
        Kind::Cohort | Kind::LocalQueue | Kind::MultiKueueCluster => on("/status", &["patch"]),
        Kind::ProvisioningRequest => of_autoscaler(&["create", "delete"]),
        Kind::PodTemplate => of_autoscaler(&["create"]),
        Kind::Namespace
        | Kind::LimitRange
        | Kind::RuntimeClass
        | Kind::PriorityClass
        | Kind::WorkloadPriorityClass
        | Kind::ProvisioningRequestConfig
        | Kind::Node
        | Kind::ReplicaSet
        | Kind::Related(_) => Vec::new(),
    }
}

/// Returns the permissions on the objects of a framework, except for reading them.
fn job_permissions(row: &Framework, deletes_jobs: bool) -> Vec<Permission> {
    let (group, plural) = (row.gvk.group, row.gvk.plural);
    let on = |suffix: &str, verbs: &[&'static str]| -> Vec<Permission> {
        let resource = format!("{plural}{suffix}");
        let permission = |verb: &&'static str| Permission {
            framework: Some(row.name),
            ..cluster_permission(group, &resource, verb)
        };
        verbs.iter().map(permission).collect()
    };
    let mut object = on("", row.rbac.object);
    object.retain(|permission| deletes_jobs || permission.verb != "delete");
    [object, on("/status", row.rbac.status), on("/finalizers", row.rbac.finalizers)].concat()
}

/// Returns the permissions to read Kueue's webhook configurations, if this manager's own have other names.
fn ownership_permissions(settings: &CertificateSettings) -> Vec<Permission> {
    let resources = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let own = [&settings.mutating, &settings.validating];
    let mut permissions = Vec::new();
    for (resource, name) in resources.into_iter().zip(KUEUE_CONFIGURATIONS) {
        if own.iter().all(|own| *own != name) {
            let named = |verb| Permission {
                name: Some(name.to_owned()),
                ..cluster_permission(REGISTRATION, resource, verb)
            };
            permissions.extend(READ_VERBS.map(named));
        }
    }
    permissions
}

fn certificate_permissions(settings: &CertificateSettings) -> Vec<Permission> {
    let self_managed = settings.mode == CertificateMode::SelfManaged;
    let verbs = || READ_VERBS.into_iter().chain(self_managed.then_some("patch"));
    let mut permissions = Vec::new();
    for (resource, name) in [
        ("mutatingwebhookconfigurations", &settings.mutating),
        ("validatingwebhookconfigurations", &settings.validating),
    ] {
        let named = |verb| Permission {
            name: Some(name.clone()),
            ..cluster_permission(REGISTRATION, resource, verb)
        };
        permissions.extend(verbs().map(named));
    }
    let converted = CONVERTED.into_iter().filter(|_| settings.conversion.is_some());
    permissions.extend(converted.flat_map(|name| {
        let named = move |verb| Permission {
            name: Some(name.to_owned()),
            ..cluster_permission("apiextensions.k8s.io", "customresourcedefinitions", verb)
        };
        verbs().map(named)
    }));
    let api_services = API_SERVICES.into_iter().filter(|_| self_managed && settings.visibility.is_some());
    permissions.extend(api_services.flat_map(|name| {
        let named = move |verb| Permission {
            name: Some(name.to_owned()),
            ..cluster_permission("apiregistration.k8s.io", "apiservices", verb)
        };
        verbs().map(named)
    }));
    let secret = |name: &String, verb| Permission {
        namespace: Some(settings.namespace.clone()),
        name: Some(name.clone()),
        ..cluster_permission("", "secrets", verb)
    };
    if self_managed {
        let of_config_map =
            |verb| Permission { resource: "configmaps".to_owned(), ..secret(&settings.ca_config_map, verb) };
        permissions.extend(verbs().map(of_config_map));
    }
    let serving = Some(&settings.serving_secret).filter(|_| settings.folder.is_none());
    let observers = settings.observers.iter().filter(|_| self_managed).map(|observer| &observer.secret);
    for name in serving.into_iter().chain(self_managed.then_some(&settings.ca_secret)).chain(observers) {
        permissions.extend(verbs().map(|verb| secret(name, verb)));
    }
    permissions
}

fn lease_permissions(settings: &LeaseSettings, leads: bool) -> Vec<Permission> {
    let lease = |name: Option<&String>, verb| Permission {
        namespace: Some(settings.namespace.clone()),
        name: name.cloned(),
        ..cluster_permission("coordination.k8s.io", "leases", verb)
    };
    let name = Some(&settings.name);
    let mut permissions = vec![lease(name, "get")];
    if leads {
        permissions.extend([lease(None, "create"), lease(name, "update")]);
    }
    permissions
}

/// Permissions known to be missing.
#[derive(Debug, Default)]
pub struct MissingPermissions {
    missing: ArcSwap<Vec<Permission>>,
    /// Whether all permissions have been checked once.
    checked: AtomicBool,
}

impl MissingPermissions {
    /// Returns the missing permissions.
    pub fn list(&self) -> Arc<Vec<Permission>> {
        self.missing.load_full()
    }

    /// Returns whether each permission is known to be granted or missing.
    pub fn is_known(&self) -> bool {
        self.checked.load(Ordering::Acquire)
    }

    /// Stores the missing permissions, and logs each change once.
    fn store(&self, refused: Vec<Permission>) {
        let previous = self.list();
        let describe = |permissions: &[Permission], without: &[Permission]| {
            let new = permissions.iter().filter(|permission| !without.contains(permission));
            new.map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let (newly_missing, newly_granted) = (describe(&refused, &previous), describe(&previous, &refused));
        if !newly_missing.is_empty() {
            tracing::error!(
                permissions = newly_missing,
                "missing RBAC permissions; apply config/rbac, and the component of the feature that needs them"
            );
        }
        if !newly_granted.is_empty() {
            tracing::info!(permissions = newly_granted, "missing RBAC permissions have been granted");
        }
        self.missing.store(Arc::new(refused));
    }
}

/// Inputs and outputs of the permission checks.
pub struct PermissionCheck {
    /// Makes the calls, with its own rate limit, so that checks do not delay writes.
    pub caller: Caller,
    /// Permissions to check.
    pub permissions: Vec<Permission>,
    /// States of the watches, from which the served kinds follow.
    pub watch_statuses: WatchStatuses,
    /// Receives the result.
    pub missing_permissions: Arc<MissingPermissions>,
    /// Notified when a call was refused, because a permission may just have been removed.
    pub recheck: Arc<Notify>,
}

/// Checks all permissions periodically.
///
/// Two calls list the granted rules, in the namespace of the manager and cluster-wide. Only permissions not listed there,
/// possibly granted by an authorizer that lists no rules, are reviewed one by one.
pub async fn run_permission_checks(check: PermissionCheck) {
    let mut delay = MIN_CHECK_INTERVAL;
    loop {
        let served = |permission: &Permission| {
            permission.only_if_served.is_none_or(|kind| !check.watch_statuses.is_not_served(kind))
        };
        let permissions: Vec<Permission> =
            check.permissions.iter().filter(|permission| served(permission)).cloned().collect();
        let rules = fetch_rules(&check.caller, &permissions).await;
        let not_listed: Vec<Permission> =
            permissions.into_iter().filter(|permission| !is_granted(&rules, permission)).collect();
        let previously_missing = check.missing_permissions.list();
        let (mut refused, unknown) = review_each(&check.caller, not_listed).await;
        // A permission whose review failed keeps its previous state.
        let all_reviewed = unknown.is_empty();
        refused.extend(unknown.into_iter().filter(|permission| previously_missing.contains(permission)));
        refused.sort();
        let all_granted = refused.is_empty() && all_reviewed;
        check.missing_permissions.store(refused);
        if all_reviewed {
            check.missing_permissions.checked.store(true, Ordering::Release);
        }
        delay =
            if all_granted { MAX_CHECK_INTERVAL } else { delay.saturating_mul(2).min(MAX_CHECK_INTERVAL) };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = check.recheck.notified() => {
                // Bounds the rate of checks while a write is refused repeatedly.
                tokio::time::sleep(RECHECK_DELAY).await;
                delay = MIN_CHECK_INTERVAL;
            }
        }
    }
}

/// Listed rules by namespace.
type RulesByNamespace = BTreeMap<Option<String>, Value>;

async fn fetch_rules(caller: &Caller, permissions: &[Permission]) -> RulesByNamespace {
    let namespaces: BTreeSet<&Option<String>> =
        permissions.iter().map(|permission| &permission.namespace).collect();
    let mut rules = RulesByNamespace::new();
    for namespace in namespaces {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace.as_deref().unwrap_or(NONEXISTENT_NAMESPACE)},
        });
        match caller.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await {
            Ok(mut response) => {
                let resource_rules = response.pointer_mut("/status/resourceRules").map(Value::take);
                rules.insert(namespace.clone(), resource_rules.unwrap_or_default());
            }
            Err(error) => tracing::debug!(%error, "rules review failed"),
        }
    }
    rules
}

/// Returns whether a listed rule grants a permission. RBAC rules are additive, so none can revoke another.
fn is_granted(rules: &RulesByNamespace, permission: &Permission) -> bool {
    let rules = rules.get(&permission.namespace).and_then(Value::as_array);
    rules.into_iter().flatten().any(|rule| {
        let has = |field: &str, wanted: &[&str]| {
            let listed = rule.get(field).and_then(Value::as_array);
            listed.into_iter().flatten().filter_map(Value::as_str).any(|entry| wanted.contains(&entry))
        };
        let any_name = rule.get("resourceNames").and_then(Value::as_array).is_none_or(Vec::is_empty);
        let grants_name = || permission.name.as_deref().is_some_and(|name| has("resourceNames", &[name]));
        has("verbs", &["*", permission.verb])
            && has("apiGroups", &["*", &permission.group])
            && has("resources", &["*", &permission.resource])
            && (any_name || grants_name())
    })
}

/// Reviews permissions one by one. Returns the denied ones, and the ones whose review failed.
async fn review_each(caller: &Caller, permissions: Vec<Permission>) -> (Vec<Permission>, Vec<Permission>) {
    let results = futures::stream::iter(permissions)
        .map(|permission| async move { (review_access(caller, &permission).await, permission) })
        .buffered(MAX_CONCURRENT_REVIEWS)
        .collect::<Vec<_>>()
        .await;
    let (mut refused, mut unknown) = (Vec::new(), Vec::new());
    for (result, permission) in results {
        match result {
            Ok(true) => {}
            Ok(false) => refused.push(permission),
            Err(error) => {
                tracing::debug!(%permission, %error, "access review failed");
                unknown.push(permission);
            }
        }
    }
    (refused, unknown)
}

async fn review_access(caller: &Caller, permission: &Permission) -> Result<bool, CallError> {
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((&permission.resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": permission.namespace, "group": permission.group, "resource": resource,
            "subresource": subresource, "name": permission.name, "verb": permission.verb,
        }},
    });
    let response = caller.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
    Ok(response.pointer("/status/allowed") == Some(&Value::Bool(true)))
}
