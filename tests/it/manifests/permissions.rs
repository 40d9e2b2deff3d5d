//! The shipped roles grant exactly the permissions that the manager needs with its features, and the roles of users cover each
//! kind.

use crate::fixtures::manifests::{objects, root, texts};
use serde_json::{Value, json};
use sluice::api::config::Configuration;
use sluice::api::crd::v1beta1::CONVERSION_SERVICE;
use sluice::cache::Kind;
use sluice::frameworks::{Enabled, frameworks};
use sluice::kube::certificates::{CertificateMode, CertificateSettings, ObserverCertificate};
use sluice::kube::lease::LeaseSettings;
use sluice::kube::rbac_check;
use sluice::kube::webhook_ownership::ServiceName;
use sluice::lifecycle::{certificates as rotation, lease};
use sluice::reconciler::CoreSettings;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One permission: scope, group, resource, the single object that it is limited to, verb.
type Permission = (&'static str, String, String, Option<String>, String);

fn permission(
    scope: &'static str,
    group: &str,
    resource: &str,
    name: Option<&str>,
    verb: &str,
) -> Permission {
    (scope, group.to_owned(), resource.to_owned(), name.map(str::to_owned), verb.to_owned())
}

/// The role of every API server that lets servers behind it read how it identifies itself.
fn front_proxy_role() -> Value {
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"],
        "resourceNames": ["extension-apiserver-authentication"]});
    json!({"metadata": {"name": "extension-apiserver-authentication-reader"}, "rules": [rule]})
}

/// Permissions of an account by all shipped roles and bindings.
fn granted_permissions(account: &str) -> BTreeSet<Permission> {
    granted_without(account, &[])
}

/// Permissions of an account by the shipped roles and bindings, except those in some files and folders.
fn granted_without(account: &str, left_out: &[&str]) -> BTreeSet<Permission> {
    let is_left_out = |path: &Path| left_out.iter().any(|part| path.starts_with(root().join(part)));
    let mut permissions = BTreeSet::new();
    for (binding, role, scope) in
        [("ClusterRoleBinding", "ClusterRole", "cluster"), ("RoleBinding", "Role", "namespace")]
    {
        let mut roles = objects(role);
        roles.push((PathBuf::new(), front_proxy_role()));
        for (path, binding) in objects(binding) {
            if is_left_out(&path) || binding["subjects"][0]["name"] != account {
                continue;
            }
            assert_eq!(binding["roleRef"]["kind"], role);
            let (_, role) = roles
                .iter()
                .find(|(_, object)| object["metadata"]["name"] == binding["roleRef"]["name"])
                .expect("the bound role exists");
            for rule in role["rules"].as_array().unwrap() {
                let names = texts(&rule["resourceNames"]);
                let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            permissions.extend(
                                names.iter().map(|name| permission(scope, group, resource, *name, verb)),
                            );
                        }
                    }
                }
            }
        }
    }
    permissions
}

/// Which features are on.
#[derive(Clone, Copy)]
struct Features {
    topology: bool,
    provisioning: bool,
    retention: bool,
    own_certificates: bool,
    v1beta1: bool,
    visibility: bool,
}

const ALL_FEATURES: Features = Features {
    topology: true,
    provisioning: true,
    retention: true,
    own_certificates: true,
    v1beta1: true,
    visibility: true,
};

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Manager,
    Webhooks,
    Dashboard,
    History,
}

/// The features of a process that only reads, and serves no resource of an API.
const READS: Features =
    Features { own_certificates: false, v1beta1: false, visibility: false, ..ALL_FEATURES };

/// Permissions that the manager requires with these features.
fn needed_with(features: Features) -> BTreeSet<Permission> {
    needed_by(Part::Manager, features)
}

/// Permissions that a part requires.
fn needed_by(part: Part, features: Features) -> BTreeSet<Permission> {
    let (writes, reads_all) = (part == Part::Manager, part != Part::Webhooks);
    // What records history follows no leader.
    let looks_at_lease = matches!(part, Part::Manager | Part::Dashboard);
    let mut core = CoreSettings::default();
    core.gates.provisioning_requests = features.provisioning;
    // The same role is for pods of elastic jobs.
    (core.engine.gates.topology, core.gates.elastic_jobs) = (features.topology, features.topology);
    core.frameworks.extend(frameworks().map(|row| row.name.to_owned()));
    let (passing, reads_whole) = (core.passing_kinds(), matches!(part, Part::Dashboard | Part::History));
    let kinds = if reads_all { core.kinds() } else { core.kinds_for_reviews() };
    let defaults = Configuration::default();
    let serving = defaults.internal_cert_management.webhook_secret_name.clone();
    let name = |kind: &str| objects(kind)[0].1["metadata"]["name"].as_str().unwrap().to_owned();
    let day = Duration::from_hours(24);
    let service = |name| ServiceName { namespace: "kueue-system".to_owned(), name };
    let certificates = CertificateSettings {
        folder: None,
        namespace: "kueue-system".to_owned(),
        ca_secret: format!("{serving}-ca"),
        ca_config_map: format!("{serving}-ca-bundle"),
        serving_secret: match part {
            Part::Manager | Part::Webhooks => serving,
            Part::Dashboard => "kueue-dashboard-server-cert".to_owned(),
            Part::History => "kueue-history-server-cert".to_owned(),
        },
        mutating: name("MutatingWebhookConfiguration"),
        validating: name("ValidatingWebhookConfiguration"),
        service: service(defaults.internal_cert_management.webhook_service_name.clone()),
        conversion: features.v1beta1.then(|| service(CONVERSION_SERVICE.to_owned())),
        visibility: features.visibility.then(|| service("kueue-visibility-server".to_owned())),
        names: Vec::new(),
        observers: ["kueue-dashboard-server-cert", "kueue-history-server-cert"]
            .map(|secret| ObserverCertificate { secret: secret.to_owned(), names: Vec::new() })
            .into(),
        is_observer: false,
        mode: if features.own_certificates {
            CertificateMode::SelfManaged
        } else {
            CertificateMode::External
        },
        rotation: rotation::RotationSettings {
            ca_lifetime: day,
            leaf_lifetime: day,
            overlap: day,
            retirement: day,
        },
    };
    let election = lease::ElectionSettings {
        identity: "a".to_owned(),
        lease_duration: day,
        renew_deadline: day,
        retry_period: day,
    };
    let namespace = "kueue-system".to_owned();
    let lease =
        LeaseSettings { namespace, name: defaults.leader_election.resource_name, election, address: None };
    let required = rbac_check::required_permissions(&rbac_check::PermissionRequirements {
        kinds: &kinds,
        passing: if reads_whole { &[] } else { &passing },
        certificates: &certificates,
        lease: looks_at_lease.then_some(&lease),
        serves_visibility: features.visibility,
        authorizes_metrics: true,
        writes: writes.then_some(rbac_check::WriteRequirements {
            deletes_jobs: features.retention,
            pods_are_jobs: core.manages_pods(),
        }),
    });
    let scope =
        |item: &rbac_check::Permission| if item.namespace.is_some() { "namespace" } else { "cluster" };
    required.iter().map(|r| permission(scope(r), &r.group, &r.resource, r.name.as_deref(), r.verb)).collect()
}

#[test]
fn manager_role_equals_needed_permissions() {
    assert_permissions(&granted_permissions("kueue-controller-manager"), &needed_with(ALL_FEATURES));
}

/// Without the role of a feature, the manager has exactly the permissions that it needs while the feature is off. So it is with
/// cert-manager: it may then neither write a Secret nor a webhook configuration.
#[test]
fn permissions_follow_features() {
    let cases = [
        ("config/rbac/topology_role.yaml", Features { topology: false, ..ALL_FEATURES }),
        ("config/rbac/provisioning_role.yaml", Features { provisioning: false, ..ALL_FEATURES }),
        ("config/rbac/retention", Features { retention: false, ..ALL_FEATURES }),
        ("config/v1beta1", Features { v1beta1: false, ..ALL_FEATURES }),
        ("config/visibility", Features { visibility: false, ..ALL_FEATURES }),
    ];
    for (left_out, features) in cases {
        let granted = granted_without("kueue-controller-manager", &[left_out]);
        assert_permissions(&granted, &needed_with(features));
    }
    let certificates = "config/visibility/certificates_role.yaml";
    let left_out = ["webhook-certs/self-managed", "config/v1beta1", certificates];
    let features = Features { own_certificates: false, v1beta1: false, ..ALL_FEATURES };
    assert_permissions(&granted_without("kueue-controller-manager", &left_out), &needed_with(features));
    let created = |permission: &Permission| permission.2 == "secrets" && permission.4 == "create";
    assert!(!granted_permissions("kueue-controller-manager").iter().any(created));
}

/// What may stand between a queued object and its pods is read although the shipped configuration does not enable its kind.
#[test]
fn kinds_that_are_not_enabled_are_read() {
    let enabled = frameworks()
        .filter(|row| row.enabled != Enabled::WhenListed)
        .map(|row| row.name.to_owned())
        .collect();
    let passing = CoreSettings { frameworks: enabled, ..CoreSettings::default() }.passing_kinds();
    assert!(passing.len() > 1 && passing.contains(&Kind::ReplicaSet), "{passing:?}");
    for account in ["kueue-controller-manager", "kueue-webhooks"] {
        let granted = granted_without(account, &["config/frameworks"]);
        for resource in passing.iter().map(|kind| kind.resource()) {
            for verb in ["get", "list", "watch"] {
                let needed = permission("cluster", resource.group, resource.plural, None, verb);
                assert!(granted.contains(&needed), "{account}: {needed:?}");
            }
        }
    }
}

/// The account of the webhooks, where they are a Deployment of their own, only reads.
#[test]
fn webhooks_role_equals_needed_permissions() {
    assert_reads("kueue-webhooks", Part::Webhooks);
}

/// The account of the dashboard reads what the manager reads, and creates reviews of its users.
#[test]
fn dashboard_role_equals_needed_permissions() {
    assert_reads("kueue-dashboard", Part::Dashboard);
}

/// The account of what records history reads what the manager reads, and creates reviews of the manager's tokens.
#[test]
fn history_role_equals_needed_permissions() {
    assert_reads("kueue-history", Part::History);
    let lease = |permission: &Permission| permission.2 == "leases";
    assert!(!granted_permissions("kueue-history").iter().any(lease), "no leader is asked");
}

/// The chart replaces the generated rules by those of the listed kinds. Pods are read with any kinds, for their nodes.
#[test]
fn pods_are_read_with_any_listed_kinds() {
    for file in ["config/dashboard/role.yaml", "config/history/role.yaml"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let (fixed, _) = text.split_once("# BEGIN generated").unwrap();
        assert!(fixed.contains(" pods,"), "{file}");
    }
}

/// An account has what its part needs, and creates nothing but reviews.
fn assert_reads(account: &str, part: Part) {
    let granted = granted_permissions(account);
    assert_permissions(&granted, &needed_by(part, READS));
    for permission in granted {
        let reads = ["get", "list", "watch"].contains(&permission.4.as_str());
        assert!(reads || permission.2.ends_with("reviews"), "{permission:?}");
    }
}

fn assert_permissions(granted: &BTreeSet<Permission>, needed: &BTreeSet<Permission>) {
    let missing: Vec<_> = needed.difference(granted).collect();
    let excess: Vec<_> = granted.difference(needed).collect();
    assert!(missing.is_empty() && excess.is_empty(), "missing: {missing:#?}\nin excess: {excess:#?}");
}

/// Everything that a batch admin configures can be granted: each kind of Sluice has an editor and a viewer role.
#[test]
fn editor_and_viewer_roles_are_aggregated() {
    let roles = objects("ClusterRole");
    let definitions = objects("CustomResourceDefinition");
    let names = |field: &str, object: &Value| object["spec"]["names"][field].as_str().unwrap().to_owned();
    let mut kinds: Vec<(String, String)> =
        definitions.iter().map(|(_, object)| (names("singular", object), names("plural", object))).collect();
    kinds.retain(|(kind, _)| kind != "render"); // The sample of a kind that is not ours.
    assert_eq!(kinds.len(), 11);
    kinds.push(("job".to_owned(), "jobs".to_owned()));
    for (kind, plural) in kinds {
        for side in ["editor", "viewer"] {
            let name = format!("kueue-{kind}-{side}-role");
            let (_, role) = roles.iter().find(|(_, r)| r["metadata"]["name"] == name.as_str()).expect(&name);
            let labels = &role["metadata"]["labels"];
            assert_eq!(labels["rbac.kueue.x-k8s.io/role"], format!("{kind}-{side}"));
            assert_eq!(labels["rbac.kueue.x-k8s.io/batch-admin"], "true", "{name}");
            let user = kind == "job" || (side == "viewer" && ["localqueue", "workload"].contains(&&*kind));
            assert_eq!(labels.get("rbac.kueue.x-k8s.io/batch-user").is_some(), user, "{name}");
            let admin = labels.get("rbac.authorization.k8s.io/aggregate-to-admin").is_some();
            assert_eq!(admin, side == "viewer", "{name}");
            assert_eq!(texts(&role["rules"][0]["resources"]), [plural.as_str()], "{name}");
            let verbs = texts(&role["rules"][0]["verbs"]);
            assert_eq!(verbs.contains(&"create"), side == "editor", "{name}");
        }
    }
}
