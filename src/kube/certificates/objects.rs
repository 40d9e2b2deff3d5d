//! The objects that hold certificates or trust them: their names and paths, and the host names by which clients dial the
//! manager.

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind};
use ::kube::{Api, Client};
use serde_json::json;

use super::{CertificateMode, CertificateSettings};
use crate::api::v1beta1::CONVERTED;
use crate::api::visibility::API_SERVICES;
use crate::kube::serving_certificate::{self, WebhookTarget};

/// An object that is watched, and in self-managed mode written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ManagedObject {
    Serving,
    Ca,
    CaConfigMap,
    /// The Secret of the observer with this index in the settings.
    Observer(usize),
    Mutating,
    Validating,
    /// The CustomResourceDefinition of this name, whose objects are converted.
    Definition(&'static str),
    /// The APIService of this name, for the visibility API.
    ApiService(&'static str),
}

pub(super) const WEBHOOK_OBJECTS: [ManagedObject; 2] = [ManagedObject::Mutating, ManagedObject::Validating];

const REGISTRATION: &str = "admissionregistration.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const AGGREGATION: &str = "apiregistration.k8s.io";

impl ManagedObject {
    /// Returns whether the object has a bundle of authorities that API servers trust, for calls on which the rotation waits.
    pub(super) const fn has_bundle(self) -> bool {
        matches!(self, Self::Mutating | Self::Validating | Self::Definition(_))
    }

    /// Returns group, kind and plural.
    const fn kind(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Serving | Self::Ca | Self::Observer(_) => ("", "Secret", "secrets"),
            Self::CaConfigMap => ("", "ConfigMap", "configmaps"),
            Self::Mutating => (REGISTRATION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            Self::Validating => {
                (REGISTRATION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            }
            Self::Definition(_) => (EXTENSIONS, "CustomResourceDefinition", "customresourcedefinitions"),
            Self::ApiService(_) => (AGGREGATION, "APIService", "apiservices"),
        }
    }

    const fn is_namespaced(self) -> bool {
        matches!(self, Self::Serving | Self::Ca | Self::CaConfigMap | Self::Observer(_))
    }

    /// Returns whether the rotation continues without the object, because certificates of webhooks do not depend on it.
    pub(super) const fn is_optional(self) -> bool {
        matches!(self, Self::CaConfigMap | Self::ApiService(_) | Self::Observer(_))
    }

    /// Returns apiVersion and kind of an object that has a bundle.
    pub(super) fn type_of_bundled(self) -> (String, &'static str) {
        let (group, kind, _) = self.kind();
        (format!("{group}/v1"), kind)
    }

    /// Returns an object without unused fields, above all the schemas of a definition, which are large.
    pub(super) fn used_parts(self, mut object: DynamicObject) -> DynamicObject {
        if matches!(self, Self::Definition(_)) {
            object.data = json!({ "spec": { "conversion": object.data.pointer("/spec/conversion") } });
        }
        object
    }
}

impl CertificateSettings {
    pub(super) fn watched_objects(&self) -> Vec<ManagedObject> {
        let mut slots = vec![ManagedObject::Serving, ManagedObject::Mutating, ManagedObject::Validating];
        if self.mode == CertificateMode::SelfManaged {
            slots.extend([ManagedObject::Ca, ManagedObject::CaConfigMap]);
            slots.extend(self.api_services());
            slots.extend((0..self.observers.len()).map(ManagedObject::Observer));
        }
        slots.extend(self.definitions());
        slots
    }

    /// Returns the definitions whose objects are converted, if this installation converts.
    fn definitions(&self) -> impl Iterator<Item = ManagedObject> + use<> {
        let converts = self.conversion.is_some();
        CONVERTED.into_iter().filter(move |_| converts).map(ManagedObject::Definition)
    }

    /// Returns the APIServices of the visibility API, if this process serves it.
    pub(super) fn api_services(&self) -> impl Iterator<Item = ManagedObject> + use<> {
        let serves = self.visibility.is_some();
        API_SERVICES.into_iter().filter(move |_| serves).map(ManagedObject::ApiService)
    }

    /// Returns the objects with the bundles of authorities.
    pub(super) fn bundled_objects(&self) -> impl Iterator<Item = ManagedObject> + use<> {
        WEBHOOK_OBJECTS.into_iter().chain(self.definitions())
    }

    /// Returns the host names by which the API server dials this manager because of an object.
    pub(super) fn targets(&self, slot: ManagedObject, object: &DynamicObject) -> Vec<WebhookTarget> {
        let mut found = match slot {
            ManagedObject::Definition(name) => {
                let own = self.conversion.iter().chain([&self.service]);
                serving_certificate::conversion_target(name, object, own).into_iter().collect()
            }
            _ => serving_certificate::targets(object),
        };
        if let Some(own) = self.names.first().filter(|_| self.is_observer) {
            // No API server calls this process. Objects that trust the webhooks have to trust its certificate, which has other
            // names.
            for target in &mut found {
                target.host.clone_from(own);
            }
        }
        found
    }

    pub(super) fn name(&self, slot: ManagedObject) -> &str {
        match slot {
            ManagedObject::Serving => &self.serving_secret,
            ManagedObject::Ca => &self.ca_secret,
            ManagedObject::CaConfigMap => &self.ca_config_map,
            ManagedObject::Observer(place) => {
                self.observers.get(place).map_or("", |observer| observer.secret.as_str())
            }
            ManagedObject::Mutating => &self.mutating,
            ManagedObject::Validating => &self.validating,
            ManagedObject::Definition(name) | ManagedObject::ApiService(name) => name,
        }
    }

    pub(super) fn api(&self, slot: ManagedObject, client: &Client) -> (Api<DynamicObject>, String) {
        let (group, kind, plural) = slot.kind();
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api = if slot.is_namespaced() {
            Api::namespaced_with(client.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        (api, self.name(slot).to_owned())
    }

    pub(super) fn path(&self, slot: ManagedObject) -> String {
        let ((group, _, plural), name) = (slot.kind(), self.name(slot));
        if slot.is_namespaced() {
            format!("/api/v1/namespaces/{}/{plural}/{name}", self.namespace)
        } else {
            format!("/apis/{group}/v1/{plural}/{name}")
        }
    }
}
