//! What a cluster has of Kueue and of Sluice; read again before each decision.

use anyhow::Context;
use serde_json::Value;

use super::owner::Owner;
use crate::api::crd;
use crate::kube::client::{CallError, Caller};

/// Name of the manager's Deployment in both installations.
pub(super) const DEPLOYMENT: &str = "kueue-controller-manager";
/// Name of the Lease of both.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// HTTP status of an object, or a kind, that does not exist.
pub(super) const NOT_FOUND: u16 = 404;
/// Label that both installations have on everything.
const SELECTOR: &str = "labelSelector=app.kubernetes.io%2Fname%3Dkueue";
const PAGE_SIZE: u32 = 500;
/// Field of the ConfigMap with the manager's configuration.
const CONFIGURATION: &str = "controller_manager_config.yaml";

/// Collections in which installations leave objects; `{}` is the namespace of the manager.
const COLLECTIONS: [&str; 9] = [
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/api/v1/services",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
];

/// An object and its path on the API server.
pub(super) struct Placed {
    pub(super) path: String,
    pub(super) object: Value,
}

/// A kind that a definition of Kueue defines.
pub(super) struct DefinedKind {
    /// The definition of this build.
    pub(super) own: Value,
    /// The definition in the cluster; `None` if there is none.
    pub(super) definition: Option<Value>,
    /// Path of all objects in v1beta2.
    pub(super) path: String,
    /// The objects, or why they cannot be read.
    pub(super) objects: Result<Vec<Value>, String>,
}

impl DefinedKind {
    /// Returns the name of the definition.
    pub(super) fn name(&self) -> &str {
        self.own.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the versions in which objects may be stored.
    pub(super) fn stored_versions(&self) -> Vec<&str> {
        let versions = self.definition.as_ref().and_then(|d| d.pointer("/status/storedVersions")?.as_array());
        versions.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// What a cluster has.
pub(super) struct Inventory {
    /// Namespace of the manager.
    pub(super) namespace: String,
    pub(super) kinds: Vec<DefinedKind>,
    pub(super) deployment: Option<Value>,
    pub(super) lease: Option<Value>,
    /// Text of the configuration.
    pub(super) configuration: Option<String>,
    /// Both webhook configurations.
    pub(super) webhooks: Vec<Placed>,
    /// The APIServices of the visibility API.
    pub(super) api_services: Vec<Placed>,
    /// Whatever else has the label of an installation.
    pub(super) labelled: Vec<Placed>,
}

impl Inventory {
    pub(super) async fn read(caller: &Caller, namespace: &str) -> anyhow::Result<Self> {
        let reader = Reader { caller };
        let kinds = reader.kinds().await?;
        let in_namespace = |group: &str, rest: &str| format!("{group}/namespaces/{namespace}/{rest}");
        let deployment =
            reader.get(&in_namespace("/apis/apps/v1", &format!("deployments/{DEPLOYMENT}"))).await?;
        let lease =
            reader.get(&in_namespace("/apis/coordination.k8s.io/v1", &format!("leases/{LEASE}"))).await?;
        let config_map = reader.get(&in_namespace("/api/v1", "configmaps/kueue-manager-config")).await?;
        let configuration = config_map.as_ref().and_then(|map| map.get("data")?.get(CONFIGURATION)?.as_str());
        let mut webhooks = Vec::new();
        for (plural, name) in [
            ("mutatingwebhookconfigurations", "kueue-mutating-webhook-configuration"),
            ("validatingwebhookconfigurations", "kueue-validating-webhook-configuration"),
        ] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
            webhooks.extend(reader.get(&path).await?.map(|object| Placed { path, object }));
        }
        let mut api_services = Vec::new();
        for version in ["v1beta1", "v1beta2"] {
            let path =
                format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.visibility.kueue.x-k8s.io");
            api_services.extend(reader.get(&path).await?.map(|object| Placed { path, object }));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            configuration: configuration.map(str::to_owned),
            labelled: reader.labelled(namespace).await?,
            kinds,
            deployment,
            lease,
            webhooks,
            api_services,
        })
    }

    /// Returns who owns the installation.
    pub(super) fn owner(&self) -> Owner {
        let definition = || self.kinds.iter().find_map(|kind| kind.definition.as_ref());
        self.deployment.as_ref().or_else(definition).map_or(Owner::Kubectl, Owner::of)
    }

    /// Returns the objects of a kind, by its singular name.
    pub(super) fn objects(&self, kind: &str) -> &[Value] {
        let named = |defined: &&DefinedKind| {
            defined.own.pointer("/spec/names/kind").is_some_and(|name| *name == *kind)
        };
        self.kinds.iter().find(named).and_then(|defined| defined.objects.as_deref().ok()).unwrap_or_default()
    }
}

struct Reader<'a> {
    caller: &'a Caller,
}

impl Reader<'_> {
    async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.caller.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(NOT_FOUND) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
        }
    }

    /// Lists a collection page by page; none if its kind is not served.
    async fn list(&self, path: &str, query: &str) -> Result<Vec<Value>, CallError> {
        let (mut objects, mut token) = (Vec::new(), String::new());
        loop {
            let page = self.caller.get(&format!("{path}?limit={PAGE_SIZE}&continue={token}&{query}")).await;
            let mut page = match page {
                Err(error) if error.code() == Some(NOT_FOUND) => return Ok(objects),
                page => page?,
            };
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                objects.extend(items);
            }
            let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
            if next.is_empty() {
                return Ok(objects);
            }
            next.clone_into(&mut token);
        }
    }

    async fn kinds(&self) -> anyhow::Result<Vec<DefinedKind>> {
        let mut kinds = Vec::new();
        for (_, own) in crd::definitions()? {
            let text =
                |pointer: &str| own.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (name, plural) = (text("/metadata/name"), text("/spec/names/plural"));
            let definition =
                self.get(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")).await?;
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/{plural}");
            let objects = self.list(&path, "").await.map_err(|error| error.to_string());
            kinds.push(DefinedKind { own, definition, path, objects });
        }
        Ok(kinds)
    }

    async fn labelled(&self, namespace: &str) -> anyhow::Result<Vec<Placed>> {
        let mut all = Vec::new();
        for collection in COLLECTIONS {
            let collection = collection.replace("{}", namespace);
            let objects = self.list(&collection, SELECTOR).await;
            for object in objects.with_context(|| format!("cannot list {collection}"))? {
                let text =
                    |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let (group, plural) = collection.rsplit_once('/').unwrap_or_default();
                let (of, name) = (text("/metadata/namespace"), text("/metadata/name"));
                let path = if of.is_empty() || group.contains("/namespaces/") {
                    format!("{collection}/{name}")
                } else {
                    format!("{group}/namespaces/{of}/{plural}/{name}")
                };
                all.push(Placed { path, object });
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
impl Inventory {
    /// A cluster with the definitions of this build, without objects, Deployment and webhooks.
    pub(super) fn with_definitions() -> Self {
        let kinds = crd::definitions().unwrap().into_iter().map(|(_, own)| {
            let plural = own["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
            let mut definition = own.clone();
            definition["status"] = serde_json::json!({"storedVersions": ["v1beta2"]});
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/{plural}");
            DefinedKind { own, definition: Some(definition), path, objects: Ok(Vec::new()) }
        });
        Self {
            namespace: "kueue-system".to_owned(),
            kinds: kinds.collect(),
            deployment: None,
            lease: None,
            configuration: None,
            webhooks: Vec::new(),
            api_services: Vec::new(),
            labelled: Vec::new(),
        }
    }
}
