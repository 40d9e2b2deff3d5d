//! What each operator is started with: no election of a leader, no certificates of its own making, every port chosen by us.

use crate::manager::merge;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// An operator.
pub(super) struct Operator {
    /// Name of its program and of its project's folder in `e2e/controlplane/frameworks`.
    pub(super) name: &'static str,
    /// Returns its arguments; may write files into its folder.
    pub(super) arguments: fn(&Place<'_>) -> Result<Vec<String>>,
    /// Folder of its project whose kustomization has its webhooks; `None` if its objects need none: webhooks that only validate are
    /// left out where the operator cannot serve them with a certificate for 127.0.0.1.
    pub(super) webhooks: Option<&'static str>,
    /// Port at which it serves them, if it chooses the port itself.
    pub(super) fixed_webhook_port: Option<u16>,
    /// Objects that must exist before it starts.
    pub(super) prepared: fn(&Place<'_>) -> Vec<Value>,
    /// Returns variables of its environment.
    pub(super) environment: fn(&Place<'_>) -> Vec<(&'static str, String)>,
    /// A file that it waits for when it starts, whatever is in it.
    pub(super) awaited_file: Option<&'static str>,
    /// Port and path of its probe, if it chooses the port itself.
    pub(super) fixed_probe: Option<(u16, &'static str)>,
}

/// Where an operator runs.
pub(super) struct Place<'a> {
    /// Its files.
    pub(super) folder: &'a Path,
    /// Port of its probes.
    pub(super) health: u16,
    /// Port of its webhooks.
    pub(super) webhooks: u16,
    /// Port of the dashboards of Ray clusters.
    pub(super) ray_dashboards: u16,
}

/// Where controller-runtime looks for the certificate of webhooks, below the folder of temporary files.
const CERTIFICATES: &str = "k8s-webhook-server/serving-certs";

impl Place<'_> {
    /// Returns the folder of its certificate.
    pub(super) fn certificates(&self) -> PathBuf {
        self.folder.join(CERTIFICATES)
    }
}

/// All operators, each before those that need it.
pub(super) const OPERATORS: [Operator; 7] = [
    Operator {
        arguments: |place| with_folder(place, "config.jobset.x-k8s.io/v1alpha1"),
        webhooks: Some("config/default"),
        ..Operator::named("jobset")
    },
    Operator {
        arguments: |place| with_folder(place, "config.lws.x-k8s.io/v1alpha1"),
        webhooks: Some("config/default"),
        ..Operator::named("lws")
    },
    Operator {
        // It always elects a leader.
        arguments: |_| Ok(flags(&["--lock-namespace=default", "--kube-api-qps=100", "--kube-api-burst=200"])),
        fixed_probe: Some((8080, "/healthz")),
        ..Operator::named("mpi-operator")
    },
    Operator {
        arguments: |place| {
            let mut all = flags(&["--metrics-bind-address=0", "--kube-api-qps=100", "--kube-api-burst=200"]);
            // All but MPIJob, whose definition is that of the MPI operator.
            all.extend(
                ["tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob"]
                    .map(|kind| format!("--enable-scheme={kind}")),
            );
            all.push(format!("--health-probe-bind-address=127.0.0.1:{}", place.health));
            all.push(format!("--webhook-server-port={}", place.webhooks));
            Ok(all)
        },
        prepared: objects_of_training_operator,
        awaited_file: Some("/tmp/k8s-webhook-server/serving-certs/tls.crt"),
        ..Operator::named("training-operator")
    },
    Operator {
        arguments: |place| {
            let probes = format!("--health-probe-bind-address=127.0.0.1:{}", place.health);
            Ok(flags(&["--metrics-addr=0", "--enable-leader-election=false", &probes]))
        },
        // For its calls by plain HTTP, which are those to dashboards and to pods that serve applications.
        environment: |place| vec![("HTTP_PROXY", format!("http://127.0.0.1:{}", place.ray_dashboards))],
        ..Operator::named("kuberay")
    },
    Operator {
        arguments: |place| {
            let certificates = json!({"certManagement": {"enable": false}});
            configured(place, "config.trainer.kubeflow.org/v1alpha1", &json!({}), &certificates)
        },
        webhooks: Some("manifests/base/webhook"),
        ..Operator::named("trainer")
    },
    Operator {
        webhooks: Some("config/default"),
        fixed_webhook_port: Some(9443),
        prepared: objects_of_appwrapper,
        environment: |_| vec![("NAMESPACE", APPWRAPPER_NAMESPACE.to_owned())],
        ..Operator::named("appwrapper")
    },
];

const APPWRAPPER_NAMESPACE: &str = "appwrapper-system";

impl Operator {
    /// An operator without arguments, webhooks and files.
    const fn named(name: &'static str) -> Self {
        Self {
            name,
            arguments: |_| Ok(Vec::new()),
            webhooks: None,
            fixed_webhook_port: None,
            prepared: |_| Vec::new(),
            environment: |_| Vec::new(),
            awaited_file: None,
            fixed_probe: None,
        }
    }
}

fn flags(all: &[&str]) -> Vec<String> {
    all.iter().map(|&flag| flag.to_owned()).collect()
}

/// Its webhooks, which are left out, would only validate.
fn objects_of_training_operator(_: &Place<'_>) -> Vec<Value> {
    let name = "validator.training-operator.kubeflow.org";
    let mut all = objects_for_certificates("kubeflow", "training-operator-webhook-cert");
    all.push(webhooks_without_rules("ValidatingWebhookConfiguration", name));
    all
}

/// It reads its configuration from this ConfigMap. The configurations that it names an authority in are not those that are called:
/// its certificate is for a Service.
fn objects_of_appwrapper(place: &Place<'_>) -> Vec<Value> {
    let named = "none.appwrapper.codeflare.dev";
    let configuration = json!({
        "certManagement": {"certificateDir": place.certificates(),
            "mutatingWebhookConfigName": named, "validatingWebhookConfigName": named},
        "controllerManager": {"metrics": {"bindAddress": "0"},
            "health": {"bindAddress": format!("127.0.0.1:{}", place.health)}},
    });
    let mut all = objects_for_certificates(APPWRAPPER_NAMESPACE, "appwrapper-webhook-server-cert");
    all.extend(
        ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
            .map(|kind| webhooks_without_rules(kind, named)),
    );
    all.push(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "appwrapper-operator-config", "namespace": APPWRAPPER_NAMESPACE},
        "data": {"config.yaml": configuration.to_string()}}));
    all
}

/// What an operator needs that makes certificates for a Service, stores them in a Secret and names their authority in webhook
/// configurations, before it starts controllers.
fn objects_for_certificates(namespace: &str, secret: &str) -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace}}),
    ]
}

/// A webhook configuration that is never called: the API server cannot call Services here.
fn webhooks_without_rules(kind: &str, name: &str) -> Value {
    let webhook = json!({"name": "none.operators.sluice.dev", "clientConfig": {"url": "https://127.0.0.1/"},
        "admissionReviewVersions": ["v1"], "sideEffects": "None"});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [webhook]})
}

/// The arguments of an operator whose configuration names the folder of certificates.
fn with_folder(place: &Place<'_>, api_version: &str) -> Result<Vec<String>> {
    let folder = json!({"certDir": place.certificates()});
    configured(place, api_version, &folder, &json!({"internalCertManagement": {"enable": false}}))
}

/// Writes the configuration that operators made with kubebuilder read; returns the argument that names it.
fn configured(place: &Place<'_>, api_version: &str, webhook: &Value, more: &Value) -> Result<Vec<String>> {
    let mut configuration = json!({
        "apiVersion": api_version, "kind": "Configuration",
        "leaderElection": {"leaderElect": false},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{}", place.health)},
        "webhook": {"host": "127.0.0.1", "port": place.webhooks},
    });
    merge(&mut configuration, more);
    merge(&mut configuration["webhook"], webhook);
    let path = place.folder.join("configuration.yaml");
    std::fs::write(&path, configuration.to_string())?;
    Ok(vec![format!("--config={}", path.display())])
}
