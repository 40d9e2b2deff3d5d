//! Workloads from their watch: spec and status stay raw text. Workloads change more often than any other kind, and the core
//! usually has the same spec and status decoded already.

use std::borrow::Cow;

use ::kube::Resource;
use ::kube::core::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::metadata;
use crate::cache::{Kind, WorkloadObject};
use crate::reconciler::Delta;

/// A Workload with decoded metadata, whose schema is the same for every kind.
#[derive(Clone, Debug, Deserialize)]
pub struct PartialWorkload {
    #[serde(default, deserialize_with = "metadata::read")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

impl From<PartialWorkload> for Delta {
    fn from(workload: PartialWorkload) -> Self {
        let PartialWorkload { metadata, spec, status } = workload;
        Self::Workload(WorkloadObject::new(metadata, spec, status))
    }
}

impl Resource for PartialWorkload {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Kind::Workload.resource().kind.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        Kind::Workload.resource().group.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        Kind::Workload.resource().version.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        Kind::Workload.resource().plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
