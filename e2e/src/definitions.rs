//! CustomResourceDefinitions of other projects, read from their Go modules. Versions and checksums are pinned, as for
//! the control plane's binaries; no definition is copied into this repository.

use crate::install::{apply, established};
use crate::kubectl::Kubectl;
use crate::objects::{Kind, ObjectClient, text};
use crate::paths;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A Go module below `e2e/controlplane/frameworks`, and the files or folders of definitions in it.
struct FrameworkModule {
    folder: &'static str,
    path: &'static str,
    definitions: &'static [&'static str],
}

/// The projects whose kinds Kueue admits.
const FRAMEWORKS: [FrameworkModule; 8] = [
    FrameworkModule {
        folder: "jobset",
        path: "sigs.k8s.io/jobset",
        definitions: &["config/components/crd/bases"],
    },
    FrameworkModule { folder: "lws", path: "sigs.k8s.io/lws", definitions: &["config/crd/bases"] },
    FrameworkModule {
        folder: "kuberay",
        path: "github.com/ray-project/kuberay/ray-operator",
        definitions: &["config/crd/bases"],
    },
    // All but MPIJob, which it has in an older version.
    FrameworkModule {
        folder: "training-operator",
        path: "github.com/kubeflow/training-operator",
        definitions: &[
            "manifests/base/crds/kubeflow.org_jaxjobs.yaml",
            "manifests/base/crds/kubeflow.org_paddlejobs.yaml",
            "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
            "manifests/base/crds/kubeflow.org_tfjobs.yaml",
            "manifests/base/crds/kubeflow.org_xgboostjobs.yaml",
        ],
    },
    FrameworkModule {
        folder: "mpi-operator",
        path: "github.com/kubeflow/mpi-operator",
        definitions: &["manifests/base/kubeflow.org_mpijobs.yaml"],
    },
    FrameworkModule {
        folder: "trainer",
        path: "github.com/kubeflow/trainer/v2",
        definitions: &["manifests/base/crds"],
    },
    FrameworkModule {
        folder: "spark-operator",
        path: "github.com/kubeflow/spark-operator/v2",
        definitions: &["config/crd/bases"],
    },
    FrameworkModule {
        folder: "appwrapper",
        path: "github.com/project-codeflare/appwrapper",
        definitions: &["config/crd/bases"],
    },
];

impl FrameworkModule {
    /// Returns the folder of its files.
    fn root(&self) -> Result<PathBuf> {
        module(&format!("frameworks/{}", self.folder), self.path)
    }

    /// Returns the definitions, from files in the order of their names.
    fn read(&self) -> Result<Vec<Value>> {
        let root = self.root()?;
        let mut files = Vec::new();
        for path in self.definitions.iter().map(|path| root.join(path)) {
            if path.is_dir() {
                let entries = fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path()));
                files.extend(entries.collect::<std::io::Result<Vec<_>>>()?);
            } else {
                files.push(path);
            }
        }
        files.sort();
        let mut definitions = Vec::new();
        for file in files {
            let yaml = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml)?;
            definitions
                .extend(objects.into_iter().filter(|o| text(o, "/kind") == "CustomResourceDefinition"));
        }
        ensure!(!definitions.is_empty(), "{} has no definitions in {:?}", self.path, self.definitions);
        Ok(definitions)
    }
}

/// Installs the definitions of all job kinds that do not belong to Kubernetes, and waits until they are established.
pub async fn job_kinds(kubectl: &Kubectl, objects: &ObjectClient) -> Result<()> {
    let mut definitions: Vec<Value> =
        FRAMEWORKS.iter().map(FrameworkModule::read).collect::<Result<Vec<_>>>()?.concat();
    definitions.iter_mut().for_each(drop_descriptions);
    apply(kubectl, &definitions)?;
    for definition in &definitions {
        established(objects, text(definition, "/metadata/name")).await?;
    }
    Ok(())
}

/// Removes the descriptions of schemas, which are half of a definition in JSON: the API server decodes, compares, stores and publishes
/// them, and decides nothing by them. A field of that name stays.
fn drop_descriptions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("description").is_some_and(Value::is_string) {
                fields.shift_remove("description");
            }
            fields.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

/// Returns the folder with the files of a project, by the name of its folder in `e2e/controlplane/frameworks`.
pub fn project_files(folder: &str) -> Result<PathBuf> {
    let project = FRAMEWORKS.iter().find(|project| project.folder == folder);
    project.with_context(|| format!("{folder} is no framework"))?.root()
}

/// Returns the folder of a module that `e2e/controlplane/<name>` requires; downloads it if necessary.
pub fn module(name: &str, path: &str) -> Result<PathBuf> {
    let folder = paths::root().join("e2e/controlplane").join(name);
    let output = Command::new("go")
        .current_dir(&folder)
        .env("GOFLAGS", "-mod=mod")
        .args(["mod", "download", "-json", path])
        .output()
        .context("cannot run go")?;
    let download: Value = serde_json::from_slice(&output.stdout).context("go mod download")?;
    ensure!(output.status.success(), "{path}: {}", text(&download, "/Error"));
    Ok(PathBuf::from(text(&download, "/Dir")))
}

/// Installs the definition of `ProvisioningRequest` and waits until it is established.
pub async fn provisioning_requests(kubectl: &Kubectl, objects: &ObjectClient) -> Result<()> {
    let folder = module("autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis")?;
    let file = folder.join("config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml");
    let yaml = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    apply(kubectl, &serde_saphyr::from_multiple(&yaml)?)?;
    established(objects, "provisioningrequests.autoscaling.x-k8s.io").await
}

/// Installs a definition with these names and version that accepts any object, and waits until it is established.
pub async fn permissive(kubectl: &Kubectl, objects: &ObjectClient, kind: Kind) -> Result<()> {
    let name = kind.resource();
    let version = json!({"name": kind.version, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let names = json!({"kind": kind.singular, "plural": kind.plural, "singular": kind.singular.to_lowercase(),
        "listKind": format!("{}List", kind.singular)});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]}});
    apply(kubectl, &[definition])?;
    established(objects, &name).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descriptions_are_dropped() {
        let schema = |description: Option<&str>| {
            let mut field = json!({"type": "string", "enum": ["a", "description"]});
            let mut list = json!({"type": "array", "items": [field]});
            for schema in [&mut field, &mut list] {
                if let Some(text) = description {
                    schema["description"] = json!(text);
                }
            }
            json!({"type": "object", "properties": {"description": field, "list": list}})
        };
        let mut described = schema(Some("What it is."));
        drop_descriptions(&mut described);
        assert_eq!(described, schema(None));
    }
}
