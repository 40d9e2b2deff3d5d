//! What this process needs to be allowed, and whether it is.
//!
//! Invariants: the shipped roles grant exactly these rights (a test compares them); what is missing is told once and
//! makes the replica not ready until it is granted, but ends nothing: all that works without it goes on.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use serde_json::{Value, json};

use super::certificates::{CertificateSettings, Mode};
use super::client::{CallError, Caller};
use super::lease::LeaseSettings;
use crate::state::Kind;

/// Questions at a time.
const AT_ONCE: usize = 4;
/// First and longest pause before missing rights are asked for again.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// What a watch needs.
const READ: [&str; 3] = ["get", "list", "watch"];
const KUEUE: &str = "kueue.x-k8s.io";

/// One thing that the process does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
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
}

impl std::fmt::Display for Right {
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

fn cluster(group: &str, resource: &str, verb: &'static str) -> Right {
    Right { namespace: None, group: group.to_owned(), resource: resource.to_owned(), name: None, verb }
}

/// Everything that a process with these settings does. With `guarded`, readers of the metrics are asked for.
pub fn needed(
    kinds: &[Kind],
    certificates: &CertificateSettings,
    lease: Option<&LeaseSettings>,
    guarded: bool,
) -> Vec<Right> {
    let mut rights: Vec<Right> = Vec::new();
    for kind in kinds {
        let resource = kind.resource();
        rights.extend(READ.map(|verb| cluster(resource.group, resource.plural, verb)));
        if let Kind::Job(_) = kind {
            let (group, plural) = (resource.group, resource.plural);
            rights.extend(["patch", "delete"].map(|verb| cluster(group, plural, verb)));
            rights.push(cluster(group, &format!("{plural}/status"), "patch"));
            // For an owner reference that holds up the deletion of the owner.
            rights.push(cluster(group, &format!("{plural}/finalizers"), "update"));
        }
        if *kind == Kind::Pod {
            rights.extend(["pods", "pods/status"].map(|resource| cluster("", resource, "patch")));
        }
    }
    rights.extend(["create", "patch", "delete"].map(|verb| cluster(KUEUE, "workloads", verb)));
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
    rights.extend(patched.map(|resource| cluster(KUEUE, resource, "patch")));
    rights.extend(["create", "patch"].map(|verb| cluster("events.k8s.io", "events", verb)));
    rights.extend(
        ["create", "delete"].map(|verb| cluster("autoscaling.x-k8s.io", "provisioningrequests", verb)),
    );
    rights.push(cluster("", "podtemplates", "create"));
    if guarded {
        rights.push(cluster("authentication.k8s.io", "tokenreviews", "create"));
        rights.push(cluster("authorization.k8s.io", "subjectaccessreviews", "create"));
    }
    rights.extend(of_certificates(certificates));
    rights.extend(lease.into_iter().flat_map(of_lease));
    rights
}

fn of_certificates(settings: &CertificateSettings) -> Vec<Right> {
    const REGISTRATION: &str = "admissionregistration.k8s.io";
    let ours = settings.mode == Mode::SelfManaged;
    let verbs = || READ.into_iter().chain(ours.then_some("patch"));
    let mut rights = Vec::new();
    for (resource, name) in [
        ("mutatingwebhookconfigurations", &settings.mutating),
        ("validatingwebhookconfigurations", &settings.validating),
    ] {
        let named = |verb| Right { name: Some(name.clone()), ..cluster(REGISTRATION, resource, verb) };
        rights.extend(verbs().map(named));
    }
    let secret = |name: Option<&String>, verb| Right {
        namespace: Some(settings.namespace.clone()),
        name: name.cloned(),
        ..cluster("", "secrets", verb)
    };
    let serving = Some(&settings.serving_secret).filter(|_| settings.folder.is_none());
    for name in serving.into_iter().chain(ours.then_some(&settings.authority_secret)) {
        rights.extend(verbs().map(|verb| secret(Some(name), verb)));
    }
    rights.extend(ours.then(|| secret(None, "create")));
    rights
}

fn of_lease(settings: &LeaseSettings) -> Vec<Right> {
    let lease = |name: Option<&String>, verb| Right {
        namespace: Some(settings.namespace.clone()),
        name: name.cloned(),
        ..cluster("coordination.k8s.io", "leases", verb)
    };
    let name = Some(&settings.name);
    vec![lease(None, "create"), lease(name, "get"), lease(name, "update")]
}

/// Rights that are known to be missing, in words.
#[derive(Debug, Default)]
pub struct Missing(ArcSwap<Vec<String>>);

impl Missing {
    /// What is missing now.
    pub fn list(&self) -> Arc<Vec<String>> {
        self.0.load_full()
    }
}

/// Asks for every right, and again for as long as one is missing.
pub async fn check(caller: Caller, rights: Vec<Right>, missing: Arc<Missing>) {
    let mut open = rights;
    let mut pause = FIRST;
    loop {
        let (refused, unknown) = ask(&caller, open).await;
        let words: Vec<String> = refused.iter().map(ToString::to_string).collect();
        if words != *missing.list() {
            if words.is_empty() {
                tracing::info!("all rights that were missing are there");
            } else {
                let rights = words.join("; ");
                tracing::error!(rights, "rights are missing: the shipped roles grant them (config/rbac)");
            }
            missing.0.store(Arc::new(words));
        }
        open = refused;
        open.extend(unknown);
        if open.is_empty() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST);
    }
}

/// Those that are refused, and those of which nothing is known because the question failed.
async fn ask(caller: &Caller, rights: Vec<Right>) -> (Vec<Right>, Vec<Right>) {
    let answers = futures::stream::iter(rights)
        .map(|right| async move { (allowed(caller, &right).await, right) })
        .buffered(AT_ONCE)
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

async fn allowed(caller: &Caller, right: &Right) -> Result<bool, CallError> {
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
