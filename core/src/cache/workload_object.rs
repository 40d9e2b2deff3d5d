//! A Workload as it is received: metadata is decoded; spec and status are not, so that parts that are already known are
//! never decoded.
//!
//! Invariants: an invalid spec or status is an error only when it is decoded, and the error message does not depend on
//! whether the part was received as text or as a JSON value.

use crate::api::decoding::{DecodeError, decode, readable_part};
use crate::api::v1beta2::{WorkloadSpec, WorkloadStatus};
use crate::cache::interner::{self, Digest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// A Workload as the API server sent it.
#[derive(Clone, Debug)]
pub struct WorkloadObject {
    pub(crate) metadata: Box<ObjectMeta>,
    spec: Option<RawField>,
    status: Option<RawField>,
}

/// An undecoded spec or status: JSON text, or a parsed JSON value.
#[derive(Clone, Debug)]
enum RawField {
    Text(Box<RawValue>),
    Value(Value),
}

/// A borrowed [`RawField`], or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawFieldRef<'a> {
    Text(&'a RawValue),
    Value(&'a Value),
}

impl WorkloadObject {
    /// Creates a Workload with spec and status as JSON text.
    pub fn new(metadata: ObjectMeta, spec: Option<Box<RawValue>>, status: Option<Box<RawValue>>) -> Self {
        Self {
            metadata: Box::new(metadata),
            spec: spec.map(RawField::Text),
            status: status.map(RawField::Text),
        }
    }

    /// Creates a Workload from a parsed object.
    ///
    /// # Errors
    /// If the metadata cannot be decoded.
    pub fn from_value(mut object: Value) -> Result<Self, DecodeError> {
        let mut take = |part: &str| object.get_mut(part).map(Value::take);
        let metadata: Option<ObjectMeta> = take("metadata").as_ref().map(decode).transpose()?;
        Ok(Self {
            metadata: Box::new(metadata.unwrap_or_default()),
            spec: take("spec").map(RawField::Value),
            status: take("status").map(RawField::Value),
        })
    }

    /// Returns the Workload without what cannot be decoded of its spec and its status.
    pub(crate) fn readable_part(&self) -> Self {
        fn part<T: DeserializeOwned>(field: Option<RawFieldRef<'_>>) -> Option<RawField> {
            readable_part::<T>(&field?.to_value().ok()?).map(RawField::Value)
        }
        Self {
            metadata: self.metadata.clone(),
            spec: part::<WorkloadSpec>(self.spec()),
            status: part::<WorkloadStatus>(self.status()),
        }
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

/// The field of a spec's text that is decoded separately from the others.
#[derive(Deserialize)]
struct PodSetsOf<'a> {
    #[serde(borrow, default, rename = "podSets")]
    pod_sets: Option<&'a RawValue>,
}

impl<'a> RawFieldRef<'a> {
    /// Returns the undecoded `podSets` of a spec.
    ///
    /// # Errors
    /// If the spec is not an object.
    pub(crate) fn pod_sets(self) -> Result<Option<Self>, DecodeError> {
        match self {
            Self::Value(value) => Ok(value.get("podSets").map(RawFieldRef::Value)),
            Self::Text(text) => {
                let spec: PodSetsOf<'a> = serde_json::from_str(text.get())?;
                Ok(spec.pod_sets.map(RawFieldRef::Text))
            }
        }
    }

    /// Returns the digest of the part. Text and the parsed value of the same text have different digests; the only
    /// effect is that the decoded value is not shared.
    pub(crate) fn digest(self) -> Digest {
        match self {
            Self::Text(text) => interner::digest_of_text(text.get()),
            Self::Value(value) => interner::digest(value),
        }
    }

    /// Decodes the part.
    ///
    /// # Errors
    /// If the part cannot be decoded. The message has no line and column: users never see the text that they refer to.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<T, DecodeError> {
        match self {
            Self::Text(text) => {
                serde_json::from_str(text.get()).or_else(|_| RawFieldRef::Value(&self.to_value()?).decode())
            }
            Self::Value(value) => decode(value),
        }
    }

    /// Parses the part.
    ///
    /// # Errors
    /// If the part is nested deeper than the parser permits.
    pub(crate) fn to_value(self) -> Result<Value, DecodeError> {
        match self {
            Self::Text(text) => Ok(serde_json::from_str(text.get())?),
            Self::Value(value) => Ok(value.clone()),
        }
    }
}
