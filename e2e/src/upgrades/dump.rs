//! A dump: the objects that a build has stored, the definitions that it was installed with, and its configuration.

use super::kinds;
use crate::cluster::Stored;
use crate::install::{NAMESPACE, V1BETA1};
use crate::objects::{ObjectClient, text};
use crate::paths;
use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a dump.
const FACTS: &str = "dump.json";
const OBJECTS: &str = "objects.jsonl";
const DEFINITIONS: &str = "definitions.jsonl";
/// Bytes of all files of a dump.
const LIMIT: usize = 2_000_000;

/// What is known of a dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Facts {
    /// The commit of the build: the last one that changed it.
    commit: String,
    /// Version of the API server.
    kubernetes: String,
    /// When the manager ended.
    written: Timestamp,
    /// Configuration of the manager, without addresses.
    configuration: Value,
}

/// What a build has stored.
#[derive(Clone, Debug)]
pub struct Dump {
    facts: Facts,
    /// Of all kinds, with all metadata but their versions.
    objects: Vec<Value>,
    /// CustomResourceDefinitions of Kueue's kinds.
    definitions: Vec<Value>,
}

/// Returns the folders of all kept dumps.
pub fn folders() -> Result<Vec<PathBuf>> {
    let folder = paths::root().join("e2e/upgrades");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut found: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    found.retain(|path| path.join(FACTS).is_file());
    found.sort();
    ensure!(!found.is_empty(), "{} has no dump", folder.display());
    Ok(found)
}

impl Dump {
    /// Reads all objects of a cluster whose manager has ended, but none in the namespaces of the control plane. Definitions are those of
    /// the manifests.
    pub async fn of_cluster(
        objects: &ObjectClient,
        manifests: Vec<Value>,
        configuration: Value,
        (commit, kubernetes): (String, String),
    ) -> Result<Self> {
        let written = Timestamp::now();
        let mut found = Vec::new();
        for kind in kinds::all() {
            for mut object in objects.list(kind, "", "").await? {
                let place = [text(&object, "/metadata/namespace"), text(&object, "/metadata/name")]
                    .map(str::to_owned);
                let of_plane = |name: &String| {
                    name.starts_with("kube-") || [NAMESPACE, "default"].contains(&name.as_str())
                };
                if of_plane(&place[0]) || (kind.singular() == "Namespace" && of_plane(&place[1])) {
                    continue;
                }
                // Items of a list have neither.
                object["apiVersion"] = kind.api_version().into();
                object["kind"] = kind.singular().into();
                object["metadata"].as_object_mut().context("no metadata")?.remove("resourceVersion");
                found.push(object);
            }
        }
        let is_definition = |object: &Value| text(object, "/kind") == "CustomResourceDefinition";
        let definitions = manifests.into_iter().filter(is_definition).collect();
        let facts = Facts { commit, kubernetes, written, configuration };
        Ok(Self { facts, objects: found, definitions })
    }

    /// Reads the files of a dump.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = |file: &str| {
            let path = folder.join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let lines = |file: &str| -> Result<Vec<Value>> {
            text(file)?.lines().map(|line| serde_json::from_str(line).context(file.to_owned())).collect()
        };
        let facts = serde_json::from_str(&text(FACTS)?).context(FACTS)?;
        Ok(Self { facts, objects: lines(OBJECTS)?, definitions: lines(DEFINITIONS)? })
    }

    /// Writes the files of the dump, one object a line, unless they are too large or name the machine.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let lines =
            |all: &[Value]| all.iter().map(|object| format!("{object}\n")).collect::<Vec<_>>().concat();
        let files = [
            (FACTS, serde_json::to_string_pretty(&self.facts)? + "\n"),
            (OBJECTS, lines(&self.objects)),
            (DEFINITIONS, lines(&self.definitions)),
        ];
        let size: usize = files.iter().map(|(_, text)| text.len()).sum();
        ensure!(size <= LIMIT, "the dump has {size} bytes, at most {LIMIT} are kept");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = Some(host.trim()).filter(|name| name.len() > 3).unwrap_or("no host name");
        for (file, text) in &files {
            for word in ["PRIVATE KEY", "CERTIFICATE", host] {
                ensure!(!text.contains(word), "{file} would have {word:?}");
            }
        }
        fs::create_dir_all(folder)?;
        files.iter().try_for_each(|(file, text)| fs::write(folder.join(file), text))?;
        Ok(())
    }

    /// The commit of the build.
    pub fn commit(&self) -> &str {
        &self.facts.commit
    }

    /// Configuration of the manager.
    pub const fn configuration(&self) -> &Value {
        &self.facts.configuration
    }

    /// Flags of the manager beside its configuration.
    pub fn flags() -> Vec<String> {
        vec![V1BETA1.1.to_owned()]
    }

    /// Its definitions.
    pub fn definitions(&self) -> &[Value] {
        &self.definitions
    }

    /// Returns the objects as if the dump had been written now.
    pub fn objects_now(&self) -> Vec<Value> {
        let age = Timestamp::now().duration_since(self.facts.written);
        // Whole seconds, so that times are as exact as they were.
        let age = SignedDuration::from_secs(age.as_secs());
        let mut objects = self.objects.clone();
        for object in &mut objects {
            shift(object, age);
        }
        objects
    }

    /// Returns what a control plane begins with, with these definitions or, if there are none, those of this version.
    pub fn stored(objects: &[Value], definitions: &[Value]) -> Result<Stored> {
        let objects = objects.iter().map(|object| Ok((kinds::key(object)?, object.to_string())));
        Ok(Stored { objects: objects.collect::<Result<_>>()?, definitions: definitions.to_vec() })
    }
}

/// Moves all times in an object.
fn shift(value: &mut Value, by: SignedDuration) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| shift(field, by)),
        Value::Array(all) => all.iter_mut().for_each(|element| shift(element, by)),
        Value::String(text) if text.len() >= 20 && text.ends_with('Z') => {
            if let Ok(time) = text.parse::<Timestamp>()
                && let Ok(moved) = time.checked_add(by)
            {
                *text = if text.contains('.') { format!("{moved:.6}") } else { format!("{moved:.0}") };
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_keep_their_form_and_others_stay() {
        let mut object = json!({"a": [{"at": "2026-01-01T00:00:00Z"}], "b": "2026-01-01T00:00:00.000001Z",
            "name": "a-workload-with-a-long-name-Z", "n": 1});
        shift(&mut object, SignedDuration::from_secs(61));
        let expected = json!({"a": [{"at": "2026-01-01T00:01:01Z"}], "b": "2026-01-01T00:01:01.000001Z",
            "name": "a-workload-with-a-long-name-Z", "n": 1});
        assert_eq!(object, expected);
    }
}
