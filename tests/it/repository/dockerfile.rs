//! The Dockerfile, compared with the builder of the image: the same files, user, entry point and labels.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sluice_release::contents::{KUEUE_PROGRAM, PLUGINS, PROGRAM, USER};
use sluice_release::image;
use sluice_release::libraries::Package;
use sluice_release::source::{Source, VERSION};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Instructions of each stage, with continued lines joined and comments left out.
fn stages() -> Vec<Vec<(String, String)>> {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut stages: Vec<Vec<(String, String)>> = Vec::new();
    for line in lines.join("\n").replace("\\\n", " ").lines().filter(|line| !line.trim().is_empty()) {
        let (name, rest) = line.split_once(' ').unwrap();
        if name == "FROM" {
            stages.push(Vec::new());
        } else if stages.is_empty() {
            // An argument of the first stage's image.
            continue;
        }
        stages.last_mut().unwrap().push((name.to_owned(), rest.trim().to_owned()));
    }
    stages
}

fn values<'a>(stage: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    stage.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
}

/// Names and values in quotes of a LABEL or ARG instruction.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"').unwrap();
        pairs.insert(name.trim().to_owned(), value.to_owned());
        rest = after;
    }
    pairs
}

#[test]
fn image_has_a_link_for_each_name_of_the_program() {
    let mut links: Vec<&str> = std::iter::once(KUEUE_PROGRAM).chain(PLUGINS).map(|path| &path[1..]).collect();
    let mut names: Vec<&str> = sluice::cli::links().collect();
    links.sort_unstable();
    names.sort_unstable();
    assert_eq!(links, names);
}

#[test]
fn image_runs_the_same_program_as_the_same_user() {
    let stages = stages();
    let [_, last] = &stages[..] else { panic!("expected two stages: {stages:?}") };
    assert_eq!(values(last, "FROM"), ["scratch"]);
    assert_eq!(values(last, "USER"), [USER]);
    assert_eq!(values(last, "ENTRYPOINT"), [format!("[\"{PROGRAM}\"]")]);
    assert_eq!(values(last, "WORKDIR"), ["/"]);
    // The files are written by the builder of the image, so they are the same.
    assert_eq!(values(last, "COPY"), ["--from=builder /rootfs/ /"]);
    for (name, _) in last {
        assert!(
            ["FROM", "ARG", "COPY", "LABEL", "WORKDIR", "USER", "ENTRYPOINT"].contains(&name.as_str()),
            "{name} in an image without a shell"
        );
    }
}

#[test]
fn labels_are_those_of_the_builder() {
    let stages = stages();
    let last = stages.last().unwrap();
    let package = Package { name: "p".into(), version: "1".into(), architecture: "a".into() };
    let date = "2026-01-02T03:04:05Z".parse().unwrap();
    let source = Source { root: root(), commit: "abc".into(), date, changed: Vec::new() };
    let built: BTreeMap<String, String> = image::labels(&source, &[package]).into_iter().collect();
    let written: BTreeMap<String, String> = values(last, "LABEL").into_iter().flat_map(pairs).collect();
    assert_eq!(written.keys().collect::<Vec<_>>(), built.keys().collect::<Vec<_>>());
    let arguments: BTreeMap<String, String> = values(last, "ARG").into_iter().flat_map(pairs).collect();
    assert_eq!(arguments["VERSION"], VERSION);
    for (name, value) in &written {
        match value.strip_prefix('$') {
            Some(argument) => assert!(arguments.contains_key(argument), "{name} needs ARG {argument}"),
            None => assert_eq!(value, &built[name], "{name}"),
        }
    }
}

#[test]
fn builder_has_the_pinned_compiler_and_uses_the_lock_file() {
    let stages = stages();
    let builder = &stages[0];
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")).unwrap();
    let version = channel.trim_end_matches('"');
    // Without --platform here, so that the builder runs on the platform that is asked for. Its image can be passed by a digest.
    assert_eq!(values(builder, "FROM"), ["${BUILDER} AS builder"]);
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let (before, _) = text.split_once("\nFROM ").unwrap();
    assert!(before.ends_with(&format!("\nARG BUILDER=\"rust:{version}-bookworm\"")), "{before}");
    assert!(
        !text.contains("sha256:") || text.contains("sha256:…"),
        "a digest that was read from no registry"
    );
    let run = values(builder, "RUN").concat();
    for command in run.split("&&").filter(|command| command.contains("cargo ")) {
        assert!(command.contains("--locked"), "{command}");
    }
    assert!(run.contains("rootfs --program target/release/sluice /rootfs"), "{run}");
    for variable in ["SLUICE_GIT_COMMIT=\"$REVISION\"", "SLUICE_BUILD_DATE=\"$CREATED\""] {
        assert!(run.contains(variable), "{variable}");
    }
}

#[test]
fn build_context_has_the_sources_and_no_results() {
    let text = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let ignored: Vec<&str> = text.lines().collect();
    for folder in ["target", "dist", ".git"] {
        assert!(ignored.contains(&folder), "{folder} would be sent to the builder");
    }
    // With it, rustup would download clippy and rustfmt in each build.
    assert!(ignored.contains(&"rust-toolchain.toml"));
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let members = members.split('"').filter(|part| part.chars().all(char::is_alphanumeric));
    for path in
        ["Cargo.lock", "LICENSE", "src", "crds"].into_iter().chain(members.filter(|name| !name.is_empty()))
    {
        assert!(Path::new(&root()).join(path).exists(), "{path}");
        assert!(!ignored.contains(&path), "{path} is needed");
    }
}
