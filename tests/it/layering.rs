//! The architecture as tests: imports point one way, pure modules have no side effects, files stay readable.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules in the order of their dependencies: each may use the modules before it.
const LAYERS: [&str; 17] = [
    "resources",
    "api",
    "topology",
    "quota",
    "queue",
    "scheduler",
    "lifecycle",
    "frameworks",
    "cache",
    "snapshot",
    "reconciler",
    "admission",
    "simulate",
    "metrics",
    "kube",
    "server",
    "cli",
];
/// Number of layers that only decide: without tasks, clock, environment or network.
const PURE: usize = 14;
/// Maximum number of lines of a file.
const LINES: usize = 500;
/// Text that must not occur in pure modules.
const IMPURE: [&str; 9] = [
    "async ",
    ".await",
    "tokio::",
    "std::net",
    "std::fs",
    "std::env",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn all(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in folders {
        sources(&root().join(folder), &mut files);
    }
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            (name, text)
        })
        .collect()
}

fn layer_of(file: &str) -> Option<usize> {
    let module = file.strip_prefix("src/")?.split(['/', '.']).next()?;
    LAYERS.iter().position(|layer| *layer == module)
}

/// Modules named after `crate::` in a line, including modules in braces.
fn imports(line: &str) -> Vec<&str> {
    let Some((_, rest)) = line.split_once("crate::") else { return Vec::new() };
    match rest.strip_prefix('{') {
        Some(list) => {
            list.split(',').filter_map(|part| part.trim().split([':', '}', ';', ' ']).next()).collect()
        }
        None => rest.split([':', ';', ' ', ',', '(', ')', '>']).next().into_iter().collect(),
    }
}

#[test]
fn imports_point_one_way() {
    let mut wrong = Vec::new();
    for (file, text) in all(&["src"]) {
        let Some(own_layer) = layer_of(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            for module in imports(line) {
                if LAYERS.iter().position(|layer| *layer == module).is_some_and(|used| used > own_layer) {
                    wrong.push(format!("{file}:{}: {} uses {module}", number + 1, LAYERS[own_layer]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_layers_contain_no_side_effects() {
    let mut wrong = Vec::new();
    for (file, text) in all(&["src"]) {
        if layer_of(&file).is_none_or(|layer| layer >= PURE) || file.ends_with("tests.rs") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in
            code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            if let Some(word) = IMPURE.iter().find(|word| line.contains(*word)) {
                wrong.push(format!("{file}:{}: {word}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_have_module_docs_and_stay_under_limit() {
    let mut wrong = Vec::new();
    for (file, text) in all(&["src", "tests", "e2e/src", "e2e/tests", "benches"]) {
        let lines = text.lines().count();
        if lines > LINES {
            wrong.push(format!("{file}: {lines} lines, at most {LINES}"));
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{file}: does not start with its purpose (//!)"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Kueue is moving the quota that counts out of the spec, so only `quota_groups` in `api` reads it there.
#[test]
fn quota_is_read_through_one_function() {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let reads_spec = |text: &str| text.lines().filter(is_code).any(|line| line.contains(".resource_groups"));
    let readers: Vec<String> =
        all(&["src"]).into_iter().filter(|(_, text)| reads_spec(text)).map(|(file, _)| file).collect();
    let outside: Vec<&String> = readers.iter().filter(|file| !file.starts_with("src/api/")).collect();
    assert!(outside.is_empty(), "use `quota_groups`: {outside:?}");
    for file in ["src/api/v1beta2/cluster_queue.rs", "src/api/v1beta2/cohort.rs"] {
        assert!(readers.iter().any(|reader| reader == file), "{file} no longer reads the quota");
    }
}

#[test]
fn library_lists_layers_in_order() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let listed: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(listed, LAYERS);
}
