//! A Workload as it comes: its metadata are read, its spec and status not yet, so that what is known of it already is never
//! read.
//!
//! Invariants: a part that cannot be read is an error of whoever reads it, in words that do not depend on how it came.

use crate::cache::interner::{self, Digest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// A Workload as the server told of it.
#[derive(Clone, Debug)]
pub struct WorkloadObject {
    pub(crate) metadata: Box<ObjectMeta>,
    spec: Option<RawField>,
    status: Option<RawField>,
}

/// Spec or status: of a text, or of an object that was taken apart.
#[derive(Clone, Debug)]
enum RawField {
    Text(Box<RawValue>),
    Value(Value),
}

/// The same as it is read, or a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawFieldRef<'a> {
    Text(&'a RawValue),
    Value(&'a Value),
}

impl WorkloadObject {
    /// A Workload of which spec and status are texts.
    pub fn new(metadata: ObjectMeta, spec: Option<Box<RawValue>>, status: Option<Box<RawValue>>) -> Self {
        Self {
            metadata: Box::new(metadata),
            spec: spec.map(RawField::Text),
            status: status.map(RawField::Text),
        }
    }

    /// A whole object taken apart.
    ///
    /// # Errors
    /// Says what of its metadata cannot be read.
    pub(crate) fn from_value(mut object: Value) -> Result<Self, String> {
        let mut take = |part: &str| object.get_mut(part).map(Value::take);
        let metadata =
            take("metadata").map(ObjectMeta::deserialize).transpose().map_err(|e| e.to_string())?;
        Ok(Self {
            metadata: Box::new(metadata.unwrap_or_default()),
            spec: take("spec").map(RawField::Value),
            status: take("status").map(RawField::Value),
        })
    }

    pub(crate) fn spec(&self) -> Option<RawFieldRef<'_>> {
        self.spec.as_ref().map(RawField::borrowed)
    }

    pub(crate) fn status(&self) -> Option<RawFieldRef<'_>> {
        self.status.as_ref().map(RawField::borrowed)
    }
}

impl RawField {
    fn borrowed(&self) -> RawFieldRef<'_> {
        match self {
            Self::Text(text) => RawFieldRef::Text(text),
            Self::Value(value) => RawFieldRef::Value(value),
        }
    }
}

/// What of a spec's text is read apart from the rest.
#[derive(Deserialize)]
struct PodSetsOf<'a> {
    #[serde(borrow, default, rename = "podSets")]
    pod_sets: Option<&'a RawValue>,
}

impl<'a> RawFieldRef<'a> {
    /// Of a spec: its pod sets.
    ///
    /// # Errors
    /// When the spec is no object.
    pub(crate) fn pod_sets(self) -> Result<Option<Self>, String> {
        match self {
            Self::Value(value) => Ok(value.get("podSets").map(RawFieldRef::Value)),
            Self::Text(text) => {
                let spec: PodSetsOf<'a> = serde_json::from_str(text.get()).map_err(|e| e.to_string())?;
                Ok(spec.pod_sets.map(RawFieldRef::Text))
            }
        }
    }

    /// Stands for what it says. A text and the same taken apart have two digests, and are only not shared.
    pub(crate) fn digest(self) -> Digest {
        match self {
            Self::Text(text) => interner::digest_of_text(text.get()),
            Self::Value(value) => interner::digest(value),
        }
    }

    /// What it says.
    ///
    /// # Errors
    /// Says what cannot be read, without a place in a text that nobody sees.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<T, String> {
        match self {
            Self::Text(text) => {
                serde_json::from_str(text.get()).or_else(|_| RawFieldRef::Value(&self.to_value()?).decode())
            }
            Self::Value(value) => T::deserialize(value).map_err(|e| e.to_string()),
        }
    }

    /// It taken apart.
    ///
    /// # Errors
    /// When it is deeper than anything that is read.
    pub(crate) fn to_value(self) -> Result<Value, String> {
        match self {
            Self::Text(text) => serde_json::from_str(text.get()).map_err(|e| e.to_string()),
            Self::Value(value) => Ok(value.clone()),
        }
    }
}
