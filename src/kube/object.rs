//! Objects from the API server, decoded in one pass: without typed metadata, and skipping fields that are never used instead
//! of decoding and removing them.

use std::borrow::Cow;
use std::fmt;

use ::kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::metadata::LAST_APPLIED;
use crate::api::partial::scalars_as_values;

const MANAGED_FIELDS: &str = "managedFields";

/// An object without its managed fields and its last applied configuration.
#[derive(Clone, Debug)]
pub struct Object {
    value: Value,
    /// The metadata that a watch needs: name, namespace, UID and resourceVersion.
    identity: Box<ObjectMeta>,
}

impl Object {
    /// Returns the object as JSON.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// Returns name, namespace, UID and resourceVersion; all other metadata are empty.
    pub fn identity(&self) -> &ObjectMeta {
        &self.identity
    }

    /// Returns the object with apiVersion and kind, which items of a list lack.
    pub fn with_type_meta(self, api_version: &str, kind: &str) -> Value {
        let mut value = self.value;
        if let Value::Object(fields) = &mut value {
            fields.insert("apiVersion".into(), api_version.into());
            fields.insert("kind".into(), kind.into());
        }
        value
    }
}

/// An object decoded without spec and status, which the caller already has.
#[derive(Clone, Debug)]
pub struct MetadataOnly(Object);

impl From<MetadataOnly> for Object {
    fn from(metadata_only: MetadataOnly) -> Self {
        metadata_only.0
    }
}

impl<'de> Deserialize<'de> for MetadataOnly {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Object::read(ObjectPart::MetadataOnly, deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(ObjectPart::Object, deserializer)
    }
}

impl Object {
    fn read<'de, D: Deserializer<'de>>(part: ObjectPart, deserializer: D) -> Result<Self, D::Error> {
        let value = part.deserialize(deserializer)?;
        let text = |field: &str| Some(value.get("metadata")?.get(field)?.as_str()?.to_owned());
        let identity = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { value, identity: Box::new(identity) })
    }
}

/// A part of an object in which fields are skipped.
#[derive(Clone, Copy)]
enum ObjectPart {
    Object,
    MetadataOnly,
    Metadata,
    Annotations,
}

impl ObjectPart {
    fn skips(self, field: &str) -> bool {
        match self {
            Self::Object => false,
            Self::MetadataOnly => matches!(field, "spec" | "status"),
            Self::Metadata => field == MANAGED_FIELDS,
            Self::Annotations => field == LAST_APPLIED,
        }
    }

    /// Returns the part for a field, if fields are skipped within it.
    fn child(self, field: &str) -> Option<Self> {
        match (self, field) {
            (Self::Object | Self::MetadataOnly, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "annotations") => Some(Self::Annotations),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for ObjectPart {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObjectPart {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    scalars_as_values!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(item) = items.next_element::<Value>()? {
            values.push(item);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(field) = map.next_key::<String>()? {
            if self.skips(&field) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = match self.child(&field) {
                Some(part) => map.next_value_seed(part)?,
                None => map.next_value()?,
            };
            fields.insert(field, value);
        }
        Ok(Value::Object(fields))
    }
}

impl ::kube::Resource for Object {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.identity
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn managed_fields_and_last_applied_are_skipped() {
        let text = json!({
            "apiVersion": "v1", "kind": "A",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:status": {}}}],
                "annotations": {LAST_APPLIED: "{}", "b": "c"}},
            "status": {"managedFields": [1], "annotations": null},
        });
        let object: Object = serde_json::from_str(&text.to_string()).unwrap();
        let identity = object.identity().clone();
        assert_eq!((identity.name.as_deref(), identity.namespace.as_deref()), (Some("a"), Some("ns")));
        assert_eq!((identity.uid.as_deref(), identity.resource_version.as_deref()), (Some("u"), Some("7")));
        let expected = json!({
            "apiVersion": "v1", "kind": "A",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "annotations": {"b": "c"}},
            "status": {"managedFields": [1], "annotations": null},
        });
        assert_eq!(object.into_value(), expected);

        let metadata_only: MetadataOnly = serde_json::from_str(&text.to_string()).unwrap();
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "annotations": {"b": "c"}});
        assert_eq!(
            Object::from(metadata_only).into_value(),
            json!({"apiVersion": "v1", "kind": "A", "metadata": metadata})
        );
    }

    #[test]
    fn list_item_gets_api_version_and_kind() {
        let object: Object = serde_json::from_str(r#"{"metadata": null}"#).unwrap();
        assert_eq!(
            object.with_type_meta("v1", "A"),
            json!({"metadata": null, "apiVersion": "v1", "kind": "A"})
        );
    }
}
