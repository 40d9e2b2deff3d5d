//! ProvisioningRequests, their configurations, and the owners of their pod templates.

use super::records::Meta;
use super::{Cache, remove_from_index};
use crate::api::decoding::{DecodeError, decode};
use crate::api::v1beta2::ProvisioningRequestConfigSpec;
use crate::api::{ObjectKey, OwnerRecord};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A ProvisioningRequest: the fields that determine the state of an admission check.
#[derive(Clone, Debug)]
pub(crate) struct RequestRecord {
    pub(crate) meta: Meta,
    /// UID and key of the Workload that owns it.
    pub(crate) owner: Option<(Arc<str>, ObjectKey)>,
    pub(crate) spec: RequestSpec,
    pub(crate) status: RequestStatus,
}

#[derive(Deserialize)]
struct RequestObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: RequestSpec,
    #[serde(default)]
    status: RequestStatus,
}

/// `spec` of a ProvisioningRequest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequestSpec {
    pub(crate) provisioning_class_name: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) pod_sets: Vec<RequestPodSet>,
}

/// An entry of `spec.podSets`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequestPodSet {
    pub(crate) pod_template_ref: TemplateReference,
    pub(crate) count: i32,
}

/// The name of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateReference {
    pub(crate) name: String,
}

/// `status` of a ProvisioningRequest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequestStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) provisioning_class_details: BTreeMap<String, String>,
}

/// ProvisioningRequests and related objects.
#[derive(Clone, Debug, Default)]
pub(super) struct ProvisioningRecords {
    configs: BTreeMap<Arc<str>, ProvisioningRequestConfigSpec>,
    requests: BTreeMap<ObjectKey, RequestRecord>,
    /// Requests by the UID of the Workload that owns them.
    requests_by_workload: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// UIDs of the requests that own pod templates.
    template_owners: BTreeMap<ObjectKey, Arc<str>>,
}

impl ProvisioningRecords {
    /// Returns UID and resourceVersion of a known request.
    pub(super) fn known_version(&self, key: &ObjectKey) -> Option<(&str, &str)> {
        let meta = &self.requests.get(key)?.meta;
        Some((&meta.uid, &meta.resource_version))
    }

    pub(super) fn remove_template(&mut self, key: &ObjectKey) {
        self.template_owners.remove(key);
    }

    pub(super) fn config_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.configs.keys()
    }

    pub(super) fn request_keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.requests.keys()
    }

    pub(super) fn template_keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.template_owners.keys()
    }
}

impl Cache {
    /// Stores or removes a ProvisioningRequestConfig. Returns whether that changed anything.
    pub(crate) fn set_provisioning_config(
        &mut self,
        name: &Arc<str>,
        spec: Option<ProvisioningRequestConfigSpec>,
    ) -> bool {
        let configs = &mut self.provisioning.configs;
        match spec {
            Some(spec) => configs.insert(Arc::clone(name), spec.clone()) != Some(spec),
            None => configs.remove(name).is_some(),
        }
    }

    /// Stores a ProvisioningRequest. Returns the Workloads that owned or own it.
    ///
    /// # Errors
    /// If the ProvisioningRequest cannot be decoded.
    pub(crate) fn ingest_provisioning_request(
        &mut self,
        key: &ObjectKey,
        object: &Value,
    ) -> Result<Vec<ObjectKey>, DecodeError> {
        let read: RequestObject = decode(object)?;
        let owner = OwnerRecord::from_object_meta(&read.metadata).filter(|owner| *owner.kind == *"Workload");
        let owner = owner.map(|owner| (owner.uid, ObjectKey::new(&key.namespace, &owner.name)));
        let mut workloads: Vec<ObjectKey> = self.remove_provisioning_request(key).into_iter().collect();
        if let Some((uid, workload)) = &owner {
            let requests = self.provisioning.requests_by_workload.entry(uid.clone()).or_default();
            requests.insert(key.clone());
            workloads.push(workload.clone());
        }
        let meta = Meta::from_object_meta(&read.metadata);
        let record = RequestRecord { meta, owner, spec: read.spec, status: read.status };
        self.provisioning.requests.insert(key.clone(), record);
        Ok(workloads)
    }

    /// Removes a ProvisioningRequest. Returns the Workload that owned it.
    pub(crate) fn remove_provisioning_request(&mut self, key: &ObjectKey) -> Option<ObjectKey> {
        let (uid, workload) = self.provisioning.requests.remove(key)?.owner?;
        remove_from_index(&mut self.provisioning.requests_by_workload, &uid, key);
        Some(workload)
    }

    /// Stores a pod template if a ProvisioningRequest owns it.
    pub(crate) fn ingest_pod_template(&mut self, key: &ObjectKey, metadata: &ObjectMeta) {
        let owner =
            OwnerRecord::from_object_meta(metadata).filter(|owner| *owner.kind == *"ProvisioningRequest");
        match owner {
            Some(owner) => drop(self.provisioning.template_owners.insert(key.clone(), owner.uid)),
            None => self.provisioning.remove_template(key),
        }
    }

    pub(crate) fn provisioning_config(&self, name: &str) -> Option<&ProvisioningRequestConfigSpec> {
        self.provisioning.configs.get(name)
    }

    pub(crate) fn provisioning_request(&self, key: &ObjectKey) -> Option<&RequestRecord> {
        self.provisioning.requests.get(key)
    }

    /// Returns the requests that a Workload owns, by its UID.
    pub(crate) fn provisioning_requests_of(&self, uid: &str) -> impl Iterator<Item = &RequestRecord> {
        let keys = self.provisioning.requests_by_workload.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.provisioning.requests.get(key))
    }

    /// Returns whether a ProvisioningRequest owns a pod template with this key.
    pub(crate) fn has_pod_template(&self, key: &ObjectKey) -> bool {
        self.provisioning.template_owners.contains_key(key)
    }
}
