//! The objects that samples of jobs read, such as the runtime of a TrainJob: `config/samples/related`.

use crate::objects::{Kind, text};
use crate::paths;
use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice::frameworks::{Found, Related, RelatedKey, RelatedKind, frameworks};
use std::fs;

/// The objects that samples read.
#[derive(Debug)]
pub struct RelatedSamples(Vec<(RelatedKind, Value)>);

impl RelatedSamples {
    /// Reads the files.
    pub fn read() -> Result<Self> {
        let mut objects = Vec::new();
        for file in fs::read_dir(paths::root().join("config/samples/related"))? {
            let object: Value = serde_saphyr::from_str(&fs::read_to_string(file?.path())?)?;
            let (api, name) = (text(&object, "/apiVersion"), text(&object, "/kind"));
            let mut kinds = frameworks().flat_map(|row| row.related);
            let kind = kinds.find(|kind| kind.gvk.api_version() == api && kind.gvk.kind == name);
            objects.push((*kind.with_context(|| format!("no job reads a {name} of {api}"))?, object));
        }
        Ok(Self(objects))
    }

    /// Returns the objects with their kinds.
    pub fn objects(&self) -> impl Iterator<Item = (Kind, &Value)> {
        self.0.iter().map(|(RelatedKind { gvk, .. }, object)| {
            (Kind::new(gvk.group, gvk.version, gvk.kind, gvk.plural), object)
        })
    }
}

impl Related for RelatedSamples {
    fn find(&self, wanted: &RelatedKey) -> Found<'_> {
        let is_wanted = |(kind, object): &&(RelatedKind, Value)| {
            *kind == wanted.kind && text(object, "/metadata/name") == &*wanted.key.name
        };
        self.0.iter().find(is_wanted).map_or(Found::Missing, |(_, object)| Found::Object(object))
    }
}
