//! A release: every file of it in one folder, with checksums. Also the check that two builds give the same image.

use crate::archive;
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
    version: &str,
    source: &Source,
    target: &Path,
    name: &str,
    folder: &Path,
) -> Result<Image> {
    check_version(version)?;
    source.check_clean()?;
    let program = build::program(source, target)?;
    let image = image::pack(&program, name, source, &Debian)?;
    remove_old_files(folder)?;
    write_image(&image, source, folder)?;
    let archive = archive::pack(&program, image.architecture, source)?;
    fs::write(folder.join(format!("{}.tar.gz", archive::stem(image.architecture))), archive)?;
    fs::write(folder.join(INSTALL), manifests::install(&source.root, name, &image.digest)?)?;
    let chart = manifests::chart(&source.root, name, &image.digest, source.epoch()?)?;
    fs::write(folder.join(format!("sluice-chart-{VERSION}.tgz")), chart)?;
    fs::write(folder.join(CHANGELOG), write_changelog(source)?)?;
    fs::write(folder.join(CHECKSUMS), checksums(folder)?)?;
    Ok(image)
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
            && [".oci.tar", ".cdx.json", ".tar.gz", ".tgz"].iter().any(|end| name.ends_with(end));
        let is_ours = is_image_file || [INSTALL, CHANGELOG, CHECKSUMS].contains(&name.as_str());
        ensure!(is_ours, "{} is no file of a release; move it elsewhere", path.display());
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the checksums of all files of a folder, in the format of sha256sum.
fn checksums(folder: &Path) -> Result<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut text = String::new();
    for name in names {
        let bytes = fs::read(folder.join(&name)).with_context(|| name.clone())?;
        writeln!(text, "{}  {name}", digest::hex(&bytes))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(changed: &[&str]) -> Source {
        let changed = changed.iter().map(|&file| file.to_owned()).collect();
        let date = "2026-01-02T03:04:05Z".parse().unwrap();
        Source { root: "/nonexistent".into(), commit: "abc".into(), date, changed }
    }

    #[test]
    fn release_is_refused_before_anything_is_built() {
        let nowhere = Path::new("/nonexistent");
        let refuse = |version: &str, source: &Source| {
            write_release(version, source, nowhere, "sluice", nowhere).unwrap_err().to_string()
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
