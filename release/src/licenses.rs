//! The licence texts of everything in the image, which have to be passed on with it: those of the program, of the crates and
//! the standard library that are linked into it, and of the Debian packages whose libraries are copied in.
//!
//! Invariant: each crate has its own text, or one that stands beside it in the image; otherwise there is no image.

use crate::build;
use crate::command;
use crate::contents::{Entry, FILE_MODE};
use crate::crates::{APPLICATION, Crate, CrateGraph, CrateId};
use crate::libraries::{Architecture, Package, System};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian has the licences of its packages.
const DOCUMENTS: &str = "usr/share/doc";
/// Where Debian has the texts of common licences, which those of packages refer to.
const COMMON: &str = "usr/share/common-licenses";
const COMMON_PACKAGE: &str = "base-files";
/// The licence whose text is that of Sluice itself.
const OWN_LICENSE: &str = "Apache-2.0";
/// The Rust project's list of copyrights and licences in the standard library.
const RUST_LIBRARY: &str = "COPYRIGHT-library.html";
/// Beginnings of the names of files with a licence, in upper case.
const FILE_NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
const RULE: &str = "--------------------------------------------------------------------------------";

/// Returns the texts for Debian packages, and the common ones that those refer to.
pub fn of_packages(packages: &[Package], system: &dyn System) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut common = BTreeSet::new();
    for package in packages {
        let entry = debian_text(&format!("{DOCUMENTS}/{}/copyright", package.name), &package.name, system)?;
        let text = String::from_utf8_lossy(entry.bytes());
        common.extend(common_licenses(&text).map(str::to_owned));
        entries.push(entry);
    }
    for name in common {
        entries.push(debian_text(&format!("{COMMON}/{name}"), COMMON_PACKAGE, system)?);
    }
    Ok(entries)
}

fn debian_text(path: &str, package: &str, system: &dyn System) -> Result<Entry> {
    let bytes = fs::read(system.root().join(path)).with_context(|| {
        format!(
            "cannot read /{path}, a licence text of the Debian package {package} that has to be in the image; \
             to restore it: apt-get install --reinstall {package}"
        )
    })?;
    Ok(Entry::file(path, FILE_MODE, bytes))
}

/// Names of the common licences that a text refers to by their path.
fn common_licenses(text: &str) -> impl Iterator<Item = &str> {
    text.split(COMMON).skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('/')?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-.+".contains(c));
        let name = rest.get(..end.unwrap_or(rest.len()))?.trim_end_matches('.');
        Some(name).filter(|name| !name.is_empty())
    })
}

/// Returns the texts for the program of a checkout: its own, those of its crates, and that of the standard library.
pub fn of_program(root: &Path, architecture: Architecture) -> Result<Vec<Entry>> {
    let graph = CrateGraph::read(root, architecture)?;
    let metadata = command::output(build::cargo(root).args([
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        architecture.rust_target(),
    ]))?;
    let folders = crate_folders(&serde_json::from_str(&metadata)?);
    let mut texts = CrateTexts::default();
    for (id, linked) in graph.crates.iter().filter(|(_, linked)| linked.name != APPLICATION) {
        let folder = folders.get(id).with_context(|| format!("cargo metadata has no crate {id:?}"))?;
        texts.add(linked, folder)?;
    }
    let sysroot = command::output(build::tool("rustc", root).args(["--print", "sysroot"]))?;
    let library = Path::new(sysroot.trim()).join("share/doc/rust").join(RUST_LIBRARY);
    let library = fs::read(&library).with_context(|| {
        format!(
            "cannot read {}, the licences of Rust's standard library, of rustup's component rustc",
            library.display()
        )
    })?;
    let own = root.join("LICENSE");
    let own = fs::read(&own).with_context(|| own.display().to_string())?;
    let entry =
        |name: &str, bytes| Entry::file(&format!("{DOCUMENTS}/{APPLICATION}/{name}"), FILE_MODE, bytes);
    Ok(vec![
        entry("LICENSE", own),
        entry("LICENSES-crates", texts.write().into_bytes()),
        entry("COPYRIGHT-rust-library.html", library),
    ])
}

/// Returns the folders of the crates in the output of `cargo metadata`.
fn crate_folders(metadata: &Value) -> BTreeMap<CrateId, PathBuf> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let folder = |package: &Value| {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        let manifest = PathBuf::from(text("manifest_path")?);
        Some(((text("name")?, text("version")?), manifest.parent()?.to_owned()))
    };
    packages.filter_map(folder).collect()
}

/// Licence texts of crates. A text that several crates have is kept once.
#[derive(Default)]
struct CrateTexts {
    /// One line for each crate.
    crates: Vec<String>,
    /// The texts in the order in which they came, each with its files.
    texts: Vec<(String, Vec<String>)>,
}

impl CrateTexts {
    /// Adds the texts in the folder of a crate. They may be further down, where it contains sources of another project.
    fn add(&mut self, linked: &Crate, folder: &Path) -> Result<()> {
        let title = format!("{} {}", linked.name, linked.version);
        let mut files = BTreeSet::new();
        list_texts(folder, &mut files).with_context(|| folder.display().to_string())?;
        ensure!(
            !files.is_empty() || linked.license == OWN_LICENSE,
            "the crate {title} ({}) has no file with its licence, and the image has only the text of {OWN_LICENSE}",
            linked.license
        );
        let note = if files.is_empty() { ": the text is in LICENSE" } else { "" };
        self.crates.push(format!("{title} ({}){note}", linked.license));
        for file in files {
            let text = String::from_utf8_lossy(&fs::read(&file)?).replace("\r\n", "\n").trim_end().to_owned();
            let from = format!("{title}: {}", file.strip_prefix(folder)?.display());
            match self.texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, files)) => files.push(from),
                None => self.texts.push((text, vec![from])),
            }
        }
        Ok(())
    }

    fn write(&self) -> String {
        let mut document = format!(
            "The crates in /{APPLICATION} and their licences; below, each text once, after the files that have it.\n\n{}\n",
            self.crates.join("\n")
        );
        for (text, files) in &self.texts {
            // Writing to a string cannot fail.
            let _ = write!(document, "\n{RULE}\n{}\n{RULE}\n{text}\n", files.join("\n"));
        }
        document
    }
}

/// Collects the files with a licence below a folder.
fn list_texts(folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_code = path.extension().is_some_and(|extension| extension == "rs");
        if kind.is_dir() {
            list_texts(&path, files)?;
        } else if FILE_NAMES.iter().any(|start| name.starts_with(start)) && !is_code {
            files.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A root with the given files.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("sluice-licenses-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl System for Files {
        fn root(&self) -> &Path {
            &self.0
        }

        fn owner(&self, _: &Path) -> Result<Package> {
            unreachable!("licences are found by the name of the package")
        }
    }

    fn package(name: &str) -> Package {
        Package { name: name.into(), version: "1".into(), architecture: "amd64".into() }
    }

    fn linked(name: &str, license: &str) -> Crate {
        Crate { name: name.into(), version: "1.0.0".into(), license: license.into() }
    }

    #[test]
    fn packages_have_their_text_and_those_that_it_refers_to() {
        let text = "see `/usr/share/common-licenses/GPL-3', or /usr/share/common-licenses/LGPL.\n";
        let system = Files::new(
            "packages",
            &[
                ("usr/share/doc/libc6/copyright", text),
                ("usr/share/common-licenses/GPL-3", "gpl"),
                ("usr/share/common-licenses/LGPL", "lgpl"),
                ("usr/share/common-licenses/Artistic", "unused"),
            ],
        );
        let entries = of_packages(&[package("libc6")], &system).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "usr/share/doc/libc6/copyright",
                "usr/share/common-licenses/GPL-3",
                "usr/share/common-licenses/LGPL"
            ]
        );
    }

    #[test]
    fn missing_text_names_file_and_package() {
        let refers = [("usr/share/doc/libc6/copyright", "/usr/share/common-licenses/GPL-3")];
        for (files, name, path, package_to_install) in [
            (&[][..], "libc6", "/usr/share/doc/libc6/copyright", "--reinstall libc6"),
            (&refers[..], "libc6", "/usr/share/common-licenses/GPL-3", "--reinstall base-files"),
        ] {
            let system = Files::new("missing", files);
            let error = of_packages(&[package(name)], &system).unwrap_err().to_string();
            assert!(error.contains(path) && error.ends_with(package_to_install), "{error}");
        }
    }

    #[test]
    fn equal_texts_stand_once_and_nested_ones_are_found() {
        let files = Files::new(
            "crates",
            &[
                ("a/LICENSE-MIT", "Copyright A\r\n"),
                ("a/src/license.rs", "code"),
                ("b/LICENSE.md", "Copyright A\n\n"),
                ("b/vendored/COPYING", "Copyright C\n"),
            ],
        );
        let mut texts = CrateTexts::default();
        texts.add(&linked("a", "MIT"), &files.0.join("a")).unwrap();
        texts.add(&linked("b", "MIT AND BSD-2-Clause"), &files.0.join("b")).unwrap();
        let document = texts.write();
        for expected in [
            "\na 1.0.0 (MIT)\nb 1.0.0 (MIT AND BSD-2-Clause)\n",
            &format!("{RULE}\na 1.0.0: LICENSE-MIT\nb 1.0.0: LICENSE.md\n{RULE}\nCopyright A\n"),
            &format!("{RULE}\nb 1.0.0: vendored/COPYING\n{RULE}\nCopyright C\n"),
        ] {
            assert!(document.contains(expected), "{document}");
        }
        assert_eq!(document.matches("Copyright A").count(), 1);
        assert!(!document.contains("code"), "{document}");
    }

    #[test]
    fn crate_without_text_is_refused_unless_its_licence_is_ours() {
        let files = Files::new("none", &[("a/Cargo.toml", "")]);
        let folder = files.0.join("a");
        let mut texts = CrateTexts::default();
        texts.add(&linked("a", "Apache-2.0"), &folder).unwrap();
        assert!(texts.write().contains("a 1.0.0 (Apache-2.0): the text is in LICENSE"));
        let error = texts.add(&linked("b", "MIT"), &folder).unwrap_err().to_string();
        assert!(error.contains("the crate b 1.0.0 (MIT) has no file with its licence"), "{error}");
    }

    #[test]
    fn folders_are_those_of_the_manifests() {
        let package = json!({"name": "a", "version": "1.0.0", "manifest_path": "/crates/a-1.0.0/Cargo.toml"});
        let folders = crate_folders(&json!({"packages": [package]}));
        assert_eq!(folders[&("a".to_owned(), "1.0.0".to_owned())], Path::new("/crates/a-1.0.0"));
    }
}
