//! What the chart renders equals what kustomize builds, object by object, for each variant that both have.

use super::comparison;
use super::helm::Helm;
use super::kustomization::{self, DEFAULT_NAMESPACE, Overlay};
use super::references;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::Path;

const OTHER_NAMESPACE: &str = "batch-queues";

/// The configuration of `config/`, which the values contain word for word.
pub(super) const CONFIGURATION: &str = include_str!("../../../config/manager/controller_manager_config.yaml");

/// Lines of the configuration that belong to the certificates of cert-manager.
const NO_INTERNAL_CERTIFICATES: &str = "internalCertManagement:\n  enable: false\n";

/// Values, and the kustomization to which they correspond.
struct Variant {
    name: &'static str,
    values: Value,
    overlay: Overlay,
}

const DEFAULT: Overlay = Overlay {
    namespace: DEFAULT_NAMESPACE,
    split: false,
    components: &[],
    certificates: "self-managed",
    configuration: "",
};

fn variants() -> Vec<Variant> {
    let manages_all_jobs = "manageJobsWithoutQueueName: true\n";
    let variant = |name, values, overlay| Variant { name, values, overlay };
    vec![
        variant("default values", json!({}), DEFAULT),
        variant("another namespace", json!({}), Overlay { namespace: OTHER_NAMESPACE, ..DEFAULT }),
        variant(
            "cert-manager",
            json!({"enableCertManager": true}),
            Overlay {
                namespace: OTHER_NAMESPACE,
                certificates: "cert-manager",
                configuration: NO_INTERNAL_CERTIFICATES,
                ..DEFAULT
            },
        ),
        variant(
            "jobs without a queue",
            json!({"managerConfig": {"controllerManagerConfigYaml": format!("{CONFIGURATION}{manages_all_jobs}")}}),
            Overlay { components: &["webhooks/manage-all-jobs"], configuration: manages_all_jobs, ..DEFAULT },
        ),
        variant(
            "ports of API servers",
            json!({"networkPolicy": {"apiServerPorts": [443, 6443, 8443, 16443]}}),
            Overlay { components: &["network-policy/api-server-ports"], ..DEFAULT },
        ),
        variant(
            "addresses of API servers",
            json!({"networkPolicy": {"apiServerAddresses": ["192.0.2.1/32"]}}),
            Overlay { components: &["network-policy/api-server-addresses"], ..DEFAULT },
        ),
        variant(
            "client certificates",
            json!({"webhookClientCA": {"configMap": "kueue-webhook-client-ca"}}),
            Overlay { components: &["webhooks/client-ca"], ..DEFAULT },
        ),
        variant(
            "separate webhooks",
            json!({"webhooks": {"separate": true}}),
            Overlay { split: true, ..DEFAULT },
        ),
        variant(
            "Prometheus",
            json!({"enablePrometheus": true}),
            Overlay { components: &["prometheus"], ..DEFAULT },
        ),
        variant(
            "Prometheus of kube-prometheus",
            json!({"enablePrometheus": true, "metrics": {"prometheusServiceAccount": "prometheus-k8s"}}),
            Overlay { components: &["prometheus", "prometheus/kube-prometheus"], ..DEFAULT },
        ),
        variant(
            "separate webhooks with all other choices",
            json!({
                "webhooks": {"separate": true},
                "webhookClientCA": {"configMap": "kueue-webhook-client-ca"},
                "enableCertManager": true,
                "enablePrometheus": true,
                "metrics": {"prometheusServiceAccount": "prometheus-k8s"},
                "networkPolicy": {
                    "apiServerPorts": [443, 6443, 8443, 16443],
                    "apiServerAddresses": ["192.0.2.1/32"],
                },
            }),
            Overlay {
                namespace: OTHER_NAMESPACE,
                split: true,
                components: &[
                    "webhooks/client-ca",
                    "network-policy/api-server-ports",
                    "network-policy/api-server-addresses",
                    "prometheus",
                    "prometheus/kube-prometheus",
                ],
                certificates: "cert-manager",
                configuration: NO_INTERNAL_CERTIFICATES,
            },
        ),
    ]
}

/// Processes beside the manager, which are Deployments of their own.
fn variants_with_readers() -> [Variant; 3] {
    let variant = |name, values, overlay| Variant { name, values, overlay };
    [
        variant(
            "dashboard",
            json!({"dashboard": {"enabled": true}}),
            Overlay { namespace: OTHER_NAMESPACE, components: &["dashboard"], ..DEFAULT },
        ),
        variant(
            "record of history",
            json!({"history": {"enabled": true}}),
            Overlay { namespace: OTHER_NAMESPACE, components: &["history"], ..DEFAULT },
        ),
        variant(
            "record of history with a dashboard and separate webhooks",
            json!({"history": {"enabled": true}, "dashboard": {"enabled": true}, "webhooks": {"separate": true}}),
            Overlay { split: true, components: &["dashboard", "history"], ..DEFAULT },
        ),
    ]
}

fn variants_with_v1beta1() -> [Variant; 2] {
    [
        Variant {
            name: "v1beta1",
            values: json!({"v1beta1": {"enabled": true}}),
            overlay: Overlay { namespace: OTHER_NAMESPACE, components: &["v1beta1"], ..DEFAULT },
        },
        Variant {
            name: "v1beta1 with cert-manager and separate webhooks",
            values: json!({
                "v1beta1": {"enabled": true}, "webhooks": {"separate": true}, "enableCertManager": true,
            }),
            overlay: Overlay {
                namespace: OTHER_NAMESPACE,
                split: true,
                components: &["v1beta1", "v1beta1/cert-manager"],
                certificates: "cert-manager",
                configuration: NO_INTERNAL_CERTIFICATES,
            },
        },
    ]
}

/// Compares all variants.
pub(super) fn check(helm: &Helm, kubectl: &Path) -> Result<()> {
    for variant in variants().into_iter().chain(variants_with_readers()).chain(variants_with_v1beta1()) {
        let compared = compare(helm, kubectl, &variant);
        let count = compared.with_context(|| variant.name)?;
        println!("{}: {count} objects equal those of config/", variant.name);
    }
    Ok(())
}

fn compare(helm: &Helm, kubectl: &Path, variant: &Variant) -> Result<usize> {
    let namespace = variant.overlay.namespace;
    let objects = helm.render(namespace, &variant.values)?;
    references::check(&objects, namespace)?;
    comparison::compare(objects, kustomization::build(kubectl, &variant.overlay)?)
}
