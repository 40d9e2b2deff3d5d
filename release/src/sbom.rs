//! The SBOM of the image in CycloneDX 1.5: the crates that are linked into the program, those of this repository included, and the
//! Debian packages whose files are copied in. The list of crates is cargo's, for the features and the target of the build.

use crate::crates::{APPLICATION, CrateGraph};
use crate::image::Image;
use crate::libraries::Package;
use crate::source::{Source, VERSION};
use anyhow::{Context as _, Result, ensure};
use cyclonedx_bom::external_models::date_time::DateTime;
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::component::{Classification, Component, Components, Scope};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;
use cyclonedx_bom::prelude::{Bom, SpecVersion, Validate as _};
use std::collections::BTreeMap;
use std::fs;

/// Name of the image's component.
const IMAGE_NAME: &str = "sluice-image";

/// Returns the SBOM of an image as JSON.
pub fn write(image: &Image, source: &Source) -> Result<String> {
    let graph = CrateGraph::read(&source.root, image.architecture)?;
    let checksums = checksums(&fs::read_to_string(source.root.join("Cargo.lock"))?);
    let bom = assemble(&graph, &checksums, image, source)?;
    let validated = bom.validate_version(SpecVersion::V1_5);
    ensure!(validated.passed(), "the SBOM is not valid CycloneDX: {validated:?}");
    let mut bytes = Vec::new();
    bom.output_as_json(&mut bytes, SpecVersion::V1_5)?;
    let mut text = String::from_utf8(bytes)?;
    text.push('\n');
    Ok(text)
}

/// Reads the checksums of a Cargo.lock by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        value.map(|value| value.trim_end_matches('"').to_owned())
    };
    let read =
        |block: &str| Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?));
    lock.split("[[package]]").filter_map(read).collect()
}

fn assemble(
    graph: &CrateGraph,
    checksums: &BTreeMap<(String, String), String>,
    image: &Image,
    source: &Source,
) -> Result<Bom> {
    let reference = |(name, version): &(String, String)| format!("pkg:cargo/{name}@{version}");
    let mut components = Vec::new();
    for (key, found) in &graph.crates {
        let kind =
            if found.name == APPLICATION { Classification::Application } else { Classification::Library };
        let mut component = component(kind, &found.name, &found.version, &reference(key))?;
        if !found.license.is_empty() {
            component.licenses = Some(Licenses(vec![LicenseChoice::expression(&found.license)]));
        }
        component.hashes = checksums.get(key).map(|checksum| sha256(checksum));
        components.push(component);
    }
    let mut packages = Vec::new();
    for package in &image.packages {
        let purl = package_url(package);
        let mut component = component(Classification::Library, &package.name, &package.version, &purl)?;
        if let Some(license) = license_of(&package.name) {
            component.licenses = Some(Licenses(vec![LicenseChoice::expression(license)]));
        }
        components.push(component);
        packages.push(purl);
    }
    let root = component(
        Classification::Container,
        IMAGE_NAME,
        VERSION,
        &format!("pkg:oci/{APPLICATION}@{}", image.digest.replace(':', "%3A")),
    )?;
    let root = Component { hashes: image.digest.strip_prefix("sha256:").map(sha256), ..root };
    let application = reference(&(APPLICATION.to_owned(), VERSION.to_owned()));
    let mut dependencies = vec![Dependency {
        dependency_ref: root.bom_ref.clone().unwrap_or_default(),
        dependencies: std::iter::once(application).chain(packages).collect(),
    }];
    dependencies.extend(graph.edges.iter().map(|(from, to)| Dependency {
        dependency_ref: reference(from),
        dependencies: to.iter().map(reference).collect(),
    }));
    let metadata = Metadata {
        timestamp: Some(DateTime::try_from(source.date.to_string())?),
        component: Some(root),
        ..Metadata::default()
    };
    Ok(Bom {
        // A random serial number would make each SBOM of a release another one.
        serial_number: None,
        metadata: Some(metadata),
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    })
}

/// Returns a component whose reference is its package URL.
fn component(kind: Classification, name: &str, version: &str, purl: &str) -> Result<Component> {
    let mut component = Component::new(kind, name, version, Some(purl.to_owned()));
    component.purl = Some(purl.parse::<Purl>().ok().context("package URL")?);
    component.scope = Some(Scope::Required);
    Ok(component)
}

fn package_url(package: &Package) -> String {
    let version = package.version.replace('+', "%2B");
    format!("pkg:deb/debian/{}@{version}?arch={}", package.name, package.architecture)
}

/// The licences of what is copied from these packages.
fn license_of(package: &str) -> Option<&'static str> {
    match package {
        "libc6" => Some("LGPL-2.1-or-later"),
        "libgcc-s1" => Some("GPL-3.0-or-later WITH GCC-exception-3.1"),
        _ => None,
    }
}

fn sha256(hex: &str) -> Hashes {
    Hashes(vec![Hash { alg: HashAlgorithm::SHA_256, content: HashValue(hex.to_owned()) }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates::tests::TREE;
    use crate::libraries::Architecture;
    use serde_json::Value;

    const LOCK: &str = "[[package]]\nname = \"c\"\nversion = \"3.0.0\"\nsource = \"registry\"\nchecksum = \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"\n\n[[package]]\nname = \"sluice\"\nversion = \"0.1.0\"\n";

    #[test]
    fn sbom_names_crates_and_packages() {
        let package = |name: &str, version: &str| Package {
            name: name.into(),
            version: version.into(),
            architecture: "amd64".into(),
        };
        let image = Image {
            archive: Vec::new(),
            digest: crate::digest::oci(b"x"),
            architecture: Architecture::Amd64,
            packages: vec![package("libc6", "2.36-9+deb12u14")],
        };
        let date = "2026-01-02T03:04:05Z".parse().unwrap();
        let source = Source { root: "/".into(), commit: "abc".into(), date, changed: Vec::new() };
        let bom = assemble(&CrateGraph::parse(TREE).unwrap(), &checksums(LOCK), &image, &source).unwrap();
        assert!(bom.validate_version(SpecVersion::V1_5).passed());
        let mut bytes = Vec::new();
        bom.output_as_json(&mut bytes, SpecVersion::V1_5).unwrap();
        let json: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["specVersion"], "1.5");
        assert_eq!(json["metadata"]["timestamp"], "2026-01-02T03:04:05Z");
        let urls: Vec<&str> = json["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["purl"].as_str().unwrap())
            .collect();
        assert_eq!(urls.len(), 6);
        assert_eq!(urls[5], "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64");
        assert_eq!(json["components"][2]["hashes"][0]["alg"], "SHA-256");
        // The program's other packages are libraries without a checksum: they come from the commit.
        assert_eq!(urls[3..5], ["pkg:cargo/sluice@0.1.0", "pkg:cargo/sluice-core@0.1.0"]);
        assert_eq!(json["components"][3]["type"], "application");
        assert_eq!(json["components"][4]["type"], "library");
        assert!(json["components"][4]["hashes"].is_null());
        assert_eq!(json["components"][5]["licenses"][0]["expression"], "LGPL-2.1-or-later");
        assert_eq!(json["dependencies"][0]["dependsOn"][1], urls[5]);
    }
}
