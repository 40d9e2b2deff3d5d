//! The image as an OCI archive, which skopeo, containerd and docker read.
//!
//! Invariant: its digest depends only on the files in it, on the commit and on the version.

use crate::contents::{Contents, Entry, PROGRAM, USER};
use crate::digest;
use crate::layer::{self, Layer};
use crate::libraries::{self, Architecture, Package, System};
use crate::source::{Source, VERSION};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const PREFIX: &str = "org.opencontainers.image";

/// Licences of the program, of glibc and of libgcc.
pub const LICENSES: &str = "Apache-2.0 AND LGPL-2.1-or-later AND GPL-3.0-or-later WITH GCC-exception-3.1";
/// Label that names the Debian packages whose files were copied in.
pub const LIBRARIES_LABEL: &str = "sluice.dev/libraries";
const TITLE: &str = "sluice";
const DESCRIPTION: &str = "Kueue-compatible quota scheduler for Kubernetes";

/// An image.
#[derive(Debug)]
pub struct Image {
    /// The OCI archive.
    pub archive: Vec<u8>,
    /// Digest of the manifest, by which a registry knows the image.
    pub digest: String,
    /// Its architecture.
    pub architecture: Architecture,
    /// Debian packages whose files are in it.
    pub packages: Vec<Package>,
}

/// Returns the labels, in a fixed order.
pub fn labels(source: &Source, packages: &[Package]) -> Vec<(String, String)> {
    let packages: Vec<String> =
        packages.iter().map(|package| format!("{}={}", package.name, package.version)).collect();
    let standard = [
        ("title", TITLE.to_owned()),
        ("description", DESCRIPTION.to_owned()),
        ("version", VERSION.to_owned()),
        ("revision", source.commit.clone()),
        ("created", source.date.to_string()),
        ("licenses", LICENSES.to_owned()),
    ];
    let standard = standard.into_iter().map(|(name, value)| (format!("{PREFIX}.{name}"), value));
    standard.chain([(LIBRARIES_LABEL.to_owned(), packages.join(" "))]).collect()
}

/// Packs a program, with the libraries that it needs, as an image with this name.
pub fn pack(program: &Path, name: &str, source: &Source, system: &dyn System) -> Result<Image> {
    let requirements = libraries::requirements(program, system)?;
    let contents = Contents::collect(program, &source.root, &requirements, system)?;
    let packages = requirements.packages();
    let labels = labels(source, &packages);
    let (archive, digest) = write(&contents, requirements.architecture, name, &labels, source)?;
    Ok(Image { archive, digest, architecture: requirements.architecture, packages })
}

/// Returns archive and digest of the manifest.
fn write(
    contents: &Contents,
    architecture: Architecture,
    name: &str,
    labels: &[(String, String)],
    source: &Source,
) -> Result<(Vec<u8>, String)> {
    let time = source.epoch()?;
    let parts = [("libraries and accounts", &contents.system), ("program", &contents.program)];
    let layers: Vec<Layer> =
        parts.iter().map(|(_, entries)| layer::pack(entries, time)).collect::<Result<_>>()?;
    let created = source.date.to_string();
    let history: Vec<Value> =
        parts.iter().map(|(title, _)| json!({"created": created, "created_by": title})).collect();
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let diff_ids: Vec<&String> = layers.iter().map(|layer| &layer.diff_id).collect();
    let config = to_bytes(&json!({
        "created": created,
        "architecture": architecture.oci(),
        "os": "linux",
        "config": {"User": USER, "Entrypoint": [PROGRAM], "WorkingDir": "/", "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    }))?;
    let layer_descriptors: Vec<Value> =
        layers.iter().map(|layer| descriptor(LAYER_TYPE, &layer.bytes)).collect();
    let manifest = to_bytes(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, &config),
        "layers": layer_descriptors,
        "annotations": labels,
    }))?;
    let digest = digest::oci(&manifest);
    let mut files = index_files(&manifest, architecture, name)?;
    // Docker without containerd's image store reads only this file.
    let blobs: Vec<String> = layers.iter().map(|layer| blob_path(&layer.bytes)).collect();
    let tagged =
        json!([{"Config": blob_path(&config), "RepoTags": [format!("{name}:{VERSION}")], "Layers": blobs}]);
    files.push(Entry::file("manifest.json", 0o644, to_bytes(&tagged)?));
    for blob in [manifest, config].into_iter().chain(layers.into_iter().map(|layer| layer.bytes)) {
        files.push(Entry::file(&blob_path(&blob), 0o644, blob));
    }
    Ok((layer::pack_plain(&files, time)?, digest))
}

fn index_files(manifest: &[u8], architecture: Architecture, name: &str) -> Result<Vec<Entry>> {
    let only = json!({
        "mediaType": MANIFEST_TYPE,
        "digest": digest::oci(manifest),
        "size": manifest.len(),
        "platform": {"architecture": architecture.oci(), "os": "linux"},
        // skopeo selects by the first, containerd names the image by the second.
        "annotations": {
            "org.opencontainers.image.ref.name": VERSION,
            "io.containerd.image.name": format!("{}:{VERSION}", full_name(name)),
        },
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [only]});
    Ok(vec![
        Entry::file("oci-layout", 0o644, to_bytes(&json!({"imageLayoutVersion": "1.0.0"}))?),
        Entry::file("index.json", 0o644, to_bytes(&index)?),
    ])
}

/// Returns a name with its registry, as a kubelet completes it.
fn full_name(name: &str) -> String {
    let first = name.split('/').next().unwrap_or_default();
    let has_registry = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    match (has_registry, name.contains('/')) {
        (true, _) => name.to_owned(),
        (false, true) => format!("docker.io/{name}"),
        (false, false) => format!("docker.io/library/{name}"),
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest::oci(bytes), "size": bytes.len()})
}

fn blob_path(bytes: &[u8]) -> String {
    format!("blobs/sha256/{}", digest::hex(bytes))
}

fn to_bytes(value: &Value) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Content;
    use crate::unpack::ImageArchive;
    use std::fs;

    fn source() -> Source {
        let date = "2026-01-02T03:04:05Z".parse().unwrap();
        Source { root: "/".into(), commit: "abc".into(), date, changed: Vec::new() }
    }

    fn contents() -> Contents {
        Contents {
            system: vec![
                Entry::file("lib/libc.so.6", 0o755, vec![1; 3000]),
                Entry::file("etc/passwd", 0o644, b"nonroot\n".to_vec()),
            ],
            program: vec![
                Entry::file("sluice", 0o755, vec![2; 5000]),
                Entry { path: "manager".into(), mode: 0o777, content: Content::Link("sluice".into()) },
            ],
        }
    }

    fn packed(contents: &Contents, source: &Source) -> (Vec<u8>, String) {
        let package =
            Package { name: "libc6".into(), version: "2.36-9".into(), architecture: "amd64".into() };
        write(contents, Architecture::Amd64, "sluice", &labels(source, &[package]), source).unwrap()
    }

    #[test]
    fn same_input_gives_same_archive_in_any_order() {
        let first = packed(&contents(), &source());
        let mut reversed = contents();
        reversed.system.reverse();
        reversed.program.reverse();
        assert_eq!(packed(&reversed, &source()), first);
        let later = Source { commit: "def".into(), ..source() };
        assert_ne!(packed(&contents(), &later).1, first.1, "the commit is part of the image");
        let mut other = contents();
        other.program[0] = Entry::file("sluice", 0o755, vec![3; 5000]);
        assert_ne!(packed(&other, &source()).1, first.1, "the program is part of the image");
    }

    #[test]
    fn archive_unpacks_to_its_contents() {
        let (archive, digest) = packed(&contents(), &source());
        let image = ImageArchive::read(&archive).unwrap();
        assert_eq!(image.digest, digest);
        let config = &image.config["config"];
        assert_eq!((config["User"].as_str(), config["Entrypoint"][0].as_str()), (Some(USER), Some(PROGRAM)));
        assert_eq!(config["Labels"][LIBRARIES_LABEL], "libc6=2.36-9");
        assert_eq!(config["Labels"]["org.opencontainers.image.created"], "2026-01-02T03:04:05Z");
        let folder = std::env::temp_dir().join(format!("sluice-image-{}", std::process::id()));
        image.unpack(&folder).unwrap();
        assert_eq!(fs::read(folder.join("manager")).unwrap(), vec![2; 5000]);
        assert_eq!(fs::read_to_string(folder.join("etc/passwd")).unwrap(), "nonroot\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn changed_blob_is_noticed() {
        let (mut archive, _) = packed(&contents(), &source());
        let place = archive.windows(7).position(|window| window == b"nonroot");
        assert_eq!(place, None, "layers are compressed");
        let place = archive.windows(12).position(|window| window == b"\"os\":\"linux\"").unwrap();
        archive[place + 6] = b'm';
        let error = ImageArchive::read(&archive).unwrap_err();
        assert!(error.to_string().contains("has the digest"), "{error:#}");
    }

    #[test]
    fn names_are_completed_as_a_kubelet_does() {
        for (name, full) in [
            ("sluice", "docker.io/library/sluice"),
            ("team/sluice", "docker.io/team/sluice"),
            ("registry.example/sluice", "registry.example/sluice"),
            ("localhost/sluice", "localhost/sluice"),
            ("registry:5000/sluice", "registry:5000/sluice"),
        ] {
            assert_eq!(full_name(name), full);
        }
    }
}
