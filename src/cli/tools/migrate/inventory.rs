//! The objects of Kueue and Sluice in a cluster; read again before each decision.

use std::sync::OnceLock;

use anyhow::Context;
use serde_json::Value;

use super::leftovers::Installation;
use super::managers::{self, Managers};
use super::owner::Owner;
use super::steps::STORED;
use crate::api::crd;
use crate::api::visibility::API_SERVICES;
use crate::cli::tools::cluster_objects::CONFIGURATION_FIELD;
use crate::kube::client::{CallError, Caller};
use crate::kube::list::list_path;

/// HTTP status of an object, or a kind, that does not exist.
pub(super) const NOT_FOUND: u16 = 404;
/// Label that both installations have on everything.
pub(super) const SELECTOR: &str = "labelSelector=app.kubernetes.io%2Fname%3Dkueue";
const PAGE_SIZE: u32 = 500;

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
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) path: String,
    pub(super) object: Value,
}

/// A kind of Kueue's definitions.
pub(super) struct DefinedKind {
    /// The definition of this build.
    pub(super) own: &'static Value,
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

    /// Returns the version in which new writes are stored.
    pub(super) fn storage_version(&self) -> Option<&str> {
        let versions = self.definition.as_ref()?.pointer("/spec/versions")?.as_array()?;
        versions.iter().find(|version| version["storage"] == true)?.get("name")?.as_str()
    }

    /// Returns the versions in which objects may be stored.
    pub(super) fn stored_versions(&self) -> Vec<&str> {
        let versions = self.definition.as_ref().and_then(|d| d.pointer("/status/storedVersions")?.as_array());
        versions.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// The objects of both installations in a cluster.
pub(super) struct Inventory {
    /// Minor version of Kubernetes, if the API server has one.
    pub(super) minor: Option<u32>,
    pub(super) kinds: Vec<DefinedKind>,
    /// Kinds of Kueue's group that this build does not define, by their plurals.
    pub(super) unknown_kinds: Vec<String>,
    pub(super) managers: Managers,
    /// Text of the configuration.
    pub(super) configuration: Option<String>,
    /// Both webhook configurations.
    pub(super) webhooks: Vec<Placed>,
    /// The APIServices of the visibility API.
    pub(super) api_services: Vec<Placed>,
    /// All other objects with the label of an installation.
    pub(super) labelled: Vec<Placed>,
}

impl Inventory {
    pub(super) async fn read(caller: &Caller, namespace: &str) -> anyhow::Result<Self> {
        let reader = Reader { caller };
        let kinds = reader.kinds().await?;
        let managers = reader.managers(namespace).await?;
        let prefix = managers.prefix();
        let config_map = format!("/api/v1/namespaces/{namespace}/configmaps/{prefix}-manager-config");
        let config_map = reader.get(&config_map).await?;
        let configuration =
            config_map.as_ref().and_then(|map| map.get("data")?.get(CONFIGURATION_FIELD)?.as_str());
        let mut webhooks = Vec::new();
        for kind in ["mutating", "validating"] {
            let path = format!(
                "/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{prefix}-{kind}-webhook-configuration"
            );
            webhooks.extend(reader.get(&path).await?.map(|object| Placed { path, object }));
        }
        let mut api_services = Vec::new();
        for name in API_SERVICES {
            let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
            api_services.extend(reader.get(&path).await?.map(|object| Placed { path, object }));
        }
        Ok(Self {
            minor: minor_version(&reader.get("/version").await?.unwrap_or_default()),
            configuration: configuration.map(str::to_owned),
            labelled: reader.labelled(namespace).await?,
            unknown_kinds: reader.unknown_kinds(&kinds).await?,
            kinds,
            managers,
            webhooks,
            api_services,
        })
    }

    /// Returns the owner of the installation.
    pub(super) fn owner(&self) -> Owner {
        let definition = || self.kinds.iter().find_map(|kind| kind.definition.as_ref());
        self.managers.deployment().or_else(definition).map_or(Owner::Kubectl, Owner::of)
    }

    /// Returns a kind that cannot be read although a manager is available that converts its objects, and why.
    pub(super) fn unread_kind(&self) -> Option<String> {
        let converts =
            [Installation::Kueue, Installation::Sluice].iter().any(|of| self.managers.is_available(*of));
        let unread = |kind: &DefinedKind| Some(format!("{}: {}", kind.name(), kind.objects.as_ref().err()?));
        self.kinds.iter().filter(|_| converts).find_map(unread)
    }

    /// Returns the objects of a kind, by its singular name.
    pub(super) fn objects(&self, kind: &str) -> &[Value] {
        let named = |defined: &&DefinedKind| {
            defined.own.pointer("/spec/names/kind").is_some_and(|name| *name == *kind)
        };
        self.kinds.iter().find(named).and_then(|defined| defined.objects.as_deref().ok()).unwrap_or_default()
    }
}

/// Returns the definitions of this build; generated once, because that takes longer than reading the definitions of a cluster.
fn own_definitions() -> anyhow::Result<&'static [Value]> {
    static DEFINITIONS: OnceLock<Vec<Value>> = OnceLock::new();
    if let Some(known) = DEFINITIONS.get() {
        return Ok(known);
    }
    let all = crd::definitions()?.into_iter().map(|(_, definition)| definition).collect();
    Ok(DEFINITIONS.get_or_init(|| all))
}

/// Returns the minor version; some providers append a sign.
fn minor_version(version: &Value) -> Option<u32> {
    let text = version.get("minor")?.as_str()?;
    text.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()
}

/// Returns whether a definition serves its objects in the version of this build.
fn is_served(definition: Option<&Value>) -> bool {
    let versions = definition.and_then(|definition| definition.pointer("/spec/versions")?.as_array());
    versions.is_some_and(|all| all.iter().any(|v| v["name"] == *STORED && v["served"] == true))
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

    /// Lists a collection; none if its kind is not served.
    async fn list(&self, path: &str, query: &str) -> Result<Vec<Value>, CallError> {
        match list_path(self.caller, path, query, PAGE_SIZE).await {
            Err(error) if error.code() == Some(NOT_FOUND) => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    async fn kinds(&self) -> anyhow::Result<Vec<DefinedKind>> {
        let mut kinds = Vec::new();
        for own in own_definitions()? {
            let text =
                |pointer: &str| own.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (name, plural) = (text("/metadata/name"), text("/spec/names/plural"));
            let definition =
                self.get(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")).await?;
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/{plural}");
            let objects = match list_path(self.caller, &path, "", PAGE_SIZE).await {
                // The server does not answer, which proves nothing about this kind.
                Err(error @ (CallError::Timeout(_) | CallError::Transport(_))) => {
                    return Err(error).with_context(|| format!("cannot list {path}"));
                }
                // A kind that is defined but not served yet has objects all the same.
                Err(error) if error.code() == Some(NOT_FOUND) && !is_served(definition.as_ref()) => {
                    Ok(Vec::new())
                }
                outcome => outcome.map_err(|error| error.to_string()),
            };
            kinds.push(DefinedKind { own, definition, path, objects });
        }
        Ok(kinds)
    }

    /// Returns the kinds of Kueue's group that are served in the version of this build and that this build does not define.
    async fn unknown_kinds(&self, kinds: &[DefinedKind]) -> anyhow::Result<Vec<String>> {
        let served = self.get("/apis/kueue.x-k8s.io/v1beta2").await?.unwrap_or_default();
        let plurals = served.get("resources").and_then(Value::as_array).into_iter().flatten();
        let plurals = plurals.filter_map(|resource| resource.get("name")?.as_str());
        let is_known = |plural: &str| kinds.iter().any(|kind| kind.path.ends_with(&format!("/{plural}")));
        Ok(plurals.filter(|name| !name.contains('/') && !is_known(name)).map(str::to_owned).collect())
    }

    async fn managers(&self, namespace: &str) -> anyhow::Result<Managers> {
        let list =
            async |path: &str| self.list(path, SELECTOR).await.with_context(|| format!("cannot list {path}"));
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", managers::LEASE);
        Ok(Managers {
            namespace: namespace.to_owned(),
            deployments: list("/apis/apps/v1/deployments").await?,
            pods: list(&format!("/api/v1/namespaces/{namespace}/pods")).await?,
            lease: self.get(&lease).await?,
        })
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
        let kinds = own_definitions().unwrap().iter().map(|own| {
            let plural = own["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
            let mut definition = own.clone();
            definition["status"] = serde_json::json!({"storedVersions": ["v1beta2"]});
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/{plural}");
            DefinedKind { own, definition: Some(definition), path, objects: Ok(Vec::new()) }
        });
        Self {
            minor: None,
            kinds: kinds.collect(),
            unknown_kinds: Vec::new(),
            managers: Managers::none("kueue-system"),
            configuration: None,
            webhooks: Vec::new(),
            api_services: Vec::new(),
            labelled: Vec::new(),
        }
    }
}
