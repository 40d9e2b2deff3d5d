//! A release: every file of it in one folder, with checksums and, by a key, signed statements. Also the check that two builds give the same image.

use crate::archive;
use crate::attestation::{self, SigningKey, Subject};
use crate::image::{self, Image};
use crate::libraries::Debian;
use crate::source::{Source, VERSION, check_version};
use crate::{build, changelog, digest, manifests, sbom};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INSTALL: &str = "install.yaml";
const CHANGELOG: &str = "CHANGELOG.md";
/// Name of the file with the checksums of the others.
const CHECKSUMS: &str = "SHA256SUMS";

/// Ends of the names of files that signing adds.
const ENVELOPE: &str = ".dsse.json";
const PUBLIC_KEY: &str = ".pub";

/// What signs a release.
pub struct Signer {
    /// The key.
    pub key: SigningKey,
    /// URI of the machine or service that builds, which has to be trusted where the release is verified.
    pub builder: String,
}

/// What a release is to be.
#[derive(Clone, Copy)]
pub struct ReleaseOptions<'a> {
    /// The version, which must be that of Cargo.toml.
    pub version: &'a str,
    /// Name of the image, with its registry.
    pub name: &'a str,
    /// Nothing is signed without it.
    pub signer: Option<&'a Signer>,
}

/// What the files of an image are called.
pub struct ImageFiles {
    /// The archive.
    pub archive: PathBuf,
    /// The SBOM.
    pub sbom: PathBuf,
}

/// Builds the program in a target folder and packs it.
pub fn build_image(source: &Source, target: &Path, name: &str) -> Result<Image> {
    let program = build::program(source, target)?;
    image::pack(&program, name, source, &Debian)
}

/// Writes archive and SBOM of an image.
pub fn write_image(image: &Image, source: &Source, folder: &Path) -> Result<ImageFiles> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let stem = archive::stem(image.architecture);
    let files = ImageFiles {
        archive: folder.join(format!("{stem}.oci.tar")),
        sbom: folder.join(format!("{stem}.cdx.json")),
    };
    fs::write(&files.archive, &image.archive)?;
    fs::write(&files.sbom, sbom::write(image, source)?)?;
    Ok(files)
}

/// Builds the image in two target folders and returns an error unless both are equal.
pub fn check_image(source: &Source, targets: [&Path; 2], name: &str) -> Result<Image> {
    let [first, second] = targets;
    let first = build_image(source, first, name)?;
    let second = build_image(source, second, name)?;
    ensure!(first.digest == second.digest, "two builds differ: {} and {}", first.digest, second.digest);
    ensure!(first.archive == second.archive, "two archives of {} differ", first.digest);
    Ok(first)
}

/// Returns the changelog since the last tag.
pub fn write_changelog(source: &Source) -> Result<String> {
    let tag = source.last_tag();
    let subjects = source.subjects(tag.as_deref())?;
    Ok(changelog::write(VERSION, &source.date.to_string(), tag.as_deref(), &subjects))
}

/// Writes all files of a release into an empty folder.
pub fn write_release(
    options: &ReleaseOptions<'_>,
    source: &Source,
    target: &Path,
    folder: &Path,
) -> Result<Image> {
    let ReleaseOptions { version, name, signer } = *options;
    check_version(version)?;
    source.check_clean()?;
    let program = build::program(source, target)?;
    let image = image::pack(&program, name, source, &Debian)?;
    remove_old_files(folder)?;
    let files = write_image(&image, source, folder)?;
    let archive = archive::pack(&program, image.architecture, source)?;
    fs::write(folder.join(format!("{}.tar.gz", archive::stem(image.architecture))), archive)?;
    fs::write(folder.join(INSTALL), manifests::install(&source.root, name, &image.digest)?)?;
    let chart = manifests::chart(&source.root, name, &image.digest, source.epoch()?)?;
    fs::write(folder.join(format!("sluice-chart-{VERSION}.tgz")), chart)?;
    fs::write(folder.join(CHANGELOG), write_changelog(source)?)?;
    fs::write(folder.join(CHECKSUMS), checksums(folder)?)?;
    if let Some(signer) = signer {
        sign(signer, source, &image, name, &files)?;
    }
    Ok(image)
}

/// Writes the statements about all files in the folder of an image, and about what the image contains, with the public key.
fn sign(signer: &Signer, source: &Source, image: &Image, name: &str, files: &ImageFiles) -> Result<()> {
    let folder = files.archive.parent().context("no folder")?;
    let of_image = Subject::of_image(image, name);
    let mut subjects = vec![of_image.clone()];
    for file in file_names(folder)? {
        subjects.push(Subject::of_file(&folder.join(file))?);
    }
    let provenance = attestation::provenance(&subjects, source, image, name, &signer.builder)?;
    let sbom = fs::read_to_string(&files.sbom)?;
    let contents = attestation::contents(&[of_image, Subject::of_file(&files.archive)?], &sbom)?;
    let stem = archive::stem(image.architecture);
    for (file, statement) in
        [(format!("sluice-{VERSION}.provenance"), provenance), (format!("{stem}.cdx"), contents)]
    {
        fs::write(folder.join(file + ENVELOPE), signer.key.envelope(&statement)?)?;
    }
    fs::write(folder.join(format!("sluice-{VERSION}{PUBLIC_KEY}")), signer.key.public_pem())?;
    Ok(())
}

/// Removes the files of an earlier release, which would be in the checksums. Any other file is an error.
fn remove_old_files(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_image_file = name.starts_with("sluice-")
            && [".oci.tar", ".cdx.json", ".tar.gz", ".tgz", ENVELOPE, PUBLIC_KEY]
                .iter()
                .any(|end| name.ends_with(end));
        let is_ours = is_image_file || [INSTALL, CHANGELOG, CHECKSUMS].contains(&name.as_str());
        ensure!(is_ours, "{} is no file of a release; move it elsewhere", path.display());
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the names of the files of a folder in their order.
fn file_names(folder: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Returns the checksums of all files of a folder, in the format of sha256sum.
fn checksums(folder: &Path) -> Result<String> {
    let mut text = String::new();
    for name in file_names(folder)? {
        let bytes = fs::read(folder.join(&name)).with_context(|| name.clone())?;
        writeln!(text, "{}  {name}", digest::hex(&bytes))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;
    use crate::libraries::Architecture;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use serde_json::{Value, json};
    use std::process::Command;

    fn source(changed: &[&str]) -> Source {
        let changed = changed.iter().map(|&file| file.to_owned()).collect();
        let date = "2026-01-02T03:04:05Z".parse().unwrap();
        Source { root: "/nonexistent".into(), commit: "abc".into(), date, changed }
    }

    #[test]
    fn release_is_refused_before_anything_is_built() {
        let nowhere = Path::new("/nonexistent");
        let refuse = |version: &str, source: &Source| {
            let options = ReleaseOptions { version, name: "sluice", signer: None };
            write_release(&options, source, nowhere, nowhere).err().unwrap().to_string()
        };
        let wrong = refuse("9.9.9", &source(&[]));
        assert!(wrong.contains("9.9.9") && wrong.contains(VERSION), "{wrong}");
        let dirty = refuse(VERSION, &source(&[" M src/lib.rs"]));
        assert!(dirty.contains("src/lib.rs"), "{dirty}");
    }

    #[test]
    fn only_files_of_a_release_are_removed() {
        let folder = std::env::temp_dir().join(format!("sluice-old-release-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in [
            "sluice-0.0.1-linux-amd64.oci.tar",
            "sluice-0.0.1-linux-amd64.tar.gz",
            "sluice-chart-0.0.1.tgz",
            "sluice-0.0.1.provenance.dsse.json",
            "sluice-0.0.1.pub",
            INSTALL,
            CHANGELOG,
            CHECKSUMS,
        ] {
            fs::write(folder.join(name), "").unwrap();
        }
        remove_old_files(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(folder.join("notes"), "").unwrap();
        let message = remove_old_files(&folder).unwrap_err().to_string();
        assert!(message.contains("notes") && folder.join("notes").exists(), "{message}");
        fs::remove_dir_all(folder).unwrap();
    }

    /// The programs of another implementation (release/verify) accept what was signed, and nothing that was changed after it.
    #[test]
    fn another_implementation_verifies_signatures() {
        let folder = std::env::temp_dir().join(format!("sluice-signed-{}", std::process::id()));
        let dist = folder.join("dist");
        fs::create_dir_all(&dist).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let source = Source { root: root.to_owned(), ..source(&[]) };
        let image = Image {
            archive: b"archive".to_vec(),
            digest: digest::oci(b"manifest"),
            architecture: Architecture::Amd64,
            packages: Vec::new(),
        };
        let stem = archive::stem(image.architecture);
        let files = ImageFiles {
            archive: dist.join(format!("{stem}.oci.tar")),
            sbom: dist.join(format!("{stem}.cdx.json")),
        };
        fs::write(&files.archive, &image.archive).unwrap();
        fs::write(&files.sbom, r#"{"bomFormat": "CycloneDX", "specVersion": "1.5"}"#).unwrap();
        fs::write(dist.join(INSTALL), "kind: List\n").unwrap();
        let key = |name: &str| {
            let path = folder.join(name);
            let document =
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
            fs::write(&path, pem::encode(&pem::Pem::new("PRIVATE KEY", document.unwrap().as_ref()))).unwrap();
            SigningKey::read(&path).unwrap()
        };
        let signer = Signer { key: key("key.pem"), builder: "https://builder.example".to_owned() };
        sign(&signer, &source, &image, "sluice", &files).unwrap();
        let public = dist.join(format!("sluice-{VERSION}.pub"));
        let other = folder.join("other.pub");
        fs::write(&other, key("other.pem").public_pem()).unwrap();
        let program = folder.join("verify");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program).arg(".").current_dir(root.join("release/verify"));
        command::output(&mut build).unwrap();
        let verify = |key: &Path, envelope: &Path| {
            command::output(Command::new(&program).arg(key).arg(envelope).arg(&dist))
                .map_err(|error| error.to_string())
        };
        let provenance = dist.join(format!("sluice-{VERSION}.provenance.dsse.json"));
        let contents = dist.join(format!("{stem}.cdx.dsse.json"));
        let verified = verify(&public, &provenance).unwrap();
        assert!(verified.starts_with(attestation::PROVENANCE), "{verified}");
        assert!(verified.contains(&image.digest[7..]) && verified.contains(INSTALL), "{verified}");
        let verified = verify(&public, &contents).unwrap();
        assert!(verified.starts_with(attestation::CYCLONEDX), "{verified}");

        let refused = |key: &Path, envelope: &Path, words: &str| {
            let message = verify(key, envelope).unwrap_err();
            assert!(message.contains(words), "{message}");
        };
        refused(&other, &provenance, "signature");
        let signed: Value = serde_json::from_str(&fs::read_to_string(&provenance).unwrap()).unwrap();
        let with = |change: &dyn Fn(&mut Value)| {
            let payload = BASE64.decode(signed["payload"].as_str().unwrap()).unwrap();
            let mut statement: Value = serde_json::from_slice(&payload).unwrap();
            change(&mut statement);
            let mut changed = signed.clone();
            changed["payload"] = BASE64.encode(statement.to_string()).into();
            let path = folder.join("changed.json");
            fs::write(&path, changed.to_string()).unwrap();
            path
        };
        refused(&public, &with(&|statement| statement["predicate"]["runDetails"] = json!({})), "signature");
        refused(
            &public,
            &with(&|statement| statement["subject"][0]["digest"] = json!({"sha256": "0".repeat(64)})),
            "signature",
        );
        fs::write(dist.join(INSTALL), "kind: Lost\n").unwrap();
        refused(&public, &provenance, INSTALL);
        fs::write(dist.join(INSTALL), "kind: List\n").unwrap();
        // Two files that changed their names.
        fs::rename(&files.sbom, folder.join("moved")).unwrap();
        fs::rename(&files.archive, &files.sbom).unwrap();
        fs::rename(folder.join("moved"), &files.archive).unwrap();
        refused(&public, &provenance, &stem);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn keys_of_other_forms_are_refused_by_name() {
        let folder = std::env::temp_dir().join(format!("sluice-keys-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("key.pem");
        for (tag, words) in [
            ("EC PRIVATE KEY", "SEC 1"),
            ("PUBLIC KEY", "public key"),
            ("ENCRYPTED PRIVATE KEY", "encrypted"),
            ("ENCRYPTED SIGSTORE PRIVATE KEY", "encrypted"),
            ("RSA PRIVATE KEY", "RSA PRIVATE KEY"),
            ("PRIVATE KEY", "P-256"),
        ] {
            fs::write(&path, pem::encode(&pem::Pem::new(tag, b"nothing".as_slice()))).unwrap();
            let message = format!("{:#}", SigningKey::read(&path).err().unwrap());
            assert!(message.contains("key.pem") && message.contains(words), "{tag}: {message}");
        }
        fs::write(&path, "nothing").unwrap();
        assert!(format!("{:#}", SigningKey::read(&path).err().unwrap()).contains("PEM"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let folder = std::env::temp_dir().join(format!("sluice-checksums-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("b"), "abc").unwrap();
        fs::write(folder.join("a"), "").unwrap();
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n\
            ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n";
        assert_eq!(checksums(&folder).unwrap(), expected);
        fs::remove_dir_all(folder).unwrap();
    }
}
