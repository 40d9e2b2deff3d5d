//! CustomResourceDefinitions of the eleven kinds of the API group, generated from the Rust types.
//!
//! Names, types and descriptions come from the types; bounds, defaults, list keys and CEL rules come from `rules`. A
//! rule for a type or field that does not exist is an error, so rules and types cannot diverge. The files under `crds/`
//! are the output of this module, byte for byte; `make generate` writes them.

mod builtin;
mod kinds;
pub mod pod_template;
mod rules;
mod schema;
pub mod served;
pub mod v1beta1;

use super::GROUP;
use super::v1beta2::VERSION;
use kinds::KindSpec;
use serde_json::{Value, json};
use std::fmt;

/// Why the definitions cannot be generated. Only a defect of the source causes it; a test detects it.
#[derive(Debug)]
pub struct CrdError(String);

impl fmt::Display for CrdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CrdError {}

impl CrdError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Returns the short names of a kind of Kueue, as kubectl takes them; none of another kind.
pub fn short_names(kind: &str) -> &'static [&'static str] {
    kinds::KINDS.iter().find(|spec| spec.kind == kind).map_or(&[], |spec| spec.short_names)
}

/// Returns file name and definition of each kind, in the order of the names.
pub fn definitions() -> Result<Vec<(String, Value)>, CrdError> {
    let kinds = schemas()?;
    Ok(kinds.iter().map(|(kind, schema)| (file_name(kind), definition(kind, schema))).collect())
}

/// Returns each kind with the schema of v1beta2.
fn schemas() -> Result<Vec<(&'static KindSpec, Value)>, CrdError> {
    let rules = rules::all();
    let template = pod_template::shipped()?;
    let mut used = Vec::new();
    let mut schemas = Vec::new();
    for kind in kinds::KINDS {
        let mut builder = schema::Builder::new((kind.schema)(), kind.kind, &rules, &template)?;
        let mut schema = builder.root()?;
        for path in kind.omitted_fields {
            schema::remove(&mut schema, path)?;
        }
        used.extend(builder.into_used());
        schemas.push((kind, schema));
    }
    rules.check_used(&used)?;
    Ok(schemas)
}

/// Returns file name and YAML of each file in `crds/`, including the kustomization.
pub fn all() -> Result<Vec<(String, String)>, CrdError> {
    let mut files = Vec::new();
    let mut listed = String::new();
    for (name, definition) in definitions()? {
        let text = yaml(&name, &definition)?;
        listed.push_str("- ");
        listed.push_str(&name);
        listed.push('\n');
        files.push((name, text));
    }
    let kustomization = format!(
        "# Generated from core/src/api; do not edit.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{listed}"
    );
    files.push(("kustomization.yaml".to_owned(), kustomization));
    Ok(files)
}

/// Returns a generated file.
fn yaml(name: &str, content: &Value) -> Result<String, CrdError> {
    // Folded block scalars would not preserve double spaces in CEL rules.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let body = serde_saphyr::to_string_with_options(content, options)
        .map_err(|e| CrdError::new(format!("{name}: {e}")))?;
    Ok(format!("# Generated from core/src/api; do not edit.\n{body}"))
}

fn file_name(kind: &KindSpec) -> String {
    format!("{GROUP}_{}.yaml", kind.plural)
}

fn definition(kind: &KindSpec, schema: &Value) -> Value {
    let mut names = json!({
        "kind": kind.kind,
        "listKind": format!("{}List", kind.kind),
        "plural": kind.plural,
        "singular": kind.kind.to_ascii_lowercase(),
    });
    schema::set(&mut names, "shortNames", json!(kind.short_names));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{GROUP}", kind.plural),
            "labels": { "app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "crd" },
        },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [version(kind, schema)],
        },
    })
}

/// Returns the version of a definition.
fn version(kind: &KindSpec, schema: &Value) -> Value {
    let mut version = json!({ "name": VERSION, "served": true, "storage": true });
    if !kind.columns.is_empty() {
        schema::set(&mut version, "additionalPrinterColumns", kind.columns());
    }
    schema::set(&mut version, "schema", json!({ "openAPIV3Schema": schema }));
    if !kind.selectable_fields.is_empty() {
        let fields: Vec<Value> =
            kind.selectable_fields.iter().map(|path| json!({ "jsonPath": path })).collect();
        schema::set(&mut version, "selectableFields", Value::Array(fields));
    }
    if kind.has_status {
        schema::set(&mut version, "subresources", json!({ "status": {} }));
    }
    version
}
