//! The architecture as tests: imports and calls point one way, pure packages have no side effects, files and structs stay
//! readable.

use crate::fixtures::packages::{PACKAGES, PURE, SOURCES};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the command line in the order of their dependencies: each may use the folders before it, and the files beside them.
const CLI_PARTS: [&str; 3] = ["manager", "tools", "people"];
/// Folders of the reconciler in the order of their dependencies: each may use and call the folders before it. Files beside
/// the folders are either vocabulary that every folder uses, or the steps of a round, which call the folders.
const RECONCILER_PARTS: [&str; 10] = [
    "writes",
    "scheduler_input",
    "nodes",
    "unit",
    "provisioning",
    "queues",
    "workload",
    "second_pass",
    "membership",
    "kinds",
];
/// Files of the reconciler that every folder may use, and that use no folder. Failpoints are names of points in a second pass,
/// which settings hold.
const RECONCILER_VOCABULARY: [&str; 9] = [
    "events",
    "expiring",
    "failpoints",
    "list_sync",
    "messages",
    "settings",
    "timers",
    "warnings",
    "work_queue",
];
/// Files of the reconciler that implement methods of the whole reconciler or take it, and these methods. May only go down.
const WHOLE_RECONCILER: [usize; 2] = [18, 110];
/// Files of the scheduler that implement methods of the whole engine, and these methods. May only go down.
const WHOLE_ENGINE: [usize; 2] = [21, 192];
/// Maximum number of fields of a struct.
const FIELDS: usize = 15;
/// Structs whose fields something else dictates: the schema of the configuration, the command line, one family per metric.
const WIDE_STRUCTS: [&str; 3] = ["Configuration", "KueueCounters", "ManagerArgs"];
/// Maximum number of lines of a file.
const LINES: usize = 500;
/// Text that must not occur in pure modules.
const IMPURE: [&str; 14] = [
    "async ",
    ".await",
    "tokio::",
    "std::net",
    "std::fs",
    "std::env",
    "std::io::std",
    "std::process",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "TimeZone::system",
];
/// Files that contain such a text all the same. Manifests are parsed on as many threads as the machine has cores; the result is in the
/// order of the documents, whatever their number.
const IMPURE_FILES: [(&str, &str); 1] = [("core/src/simulate/manifest.rs", "std::thread")];

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

/// Returns the paths and texts of the sources below folders of the repository, in the order of their paths.
pub(crate) fn all(folders: &[&str]) -> Vec<(String, String)> {
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

/// The modules of all packages in the order of their dependencies.
fn layers() -> Vec<&'static str> {
    PACKAGES.iter().flat_map(|(_, _, modules)| modules.iter().copied()).collect()
}

/// The module of a source, as its place in the order of dependencies; none for the root of a package.
fn layer_of(file: &str) -> Option<usize> {
    let below = SOURCES.iter().find_map(|folder| file.strip_prefix(folder)?.strip_prefix('/'))?;
    let module = below.split(['/', '.']).next()?;
    layers().iter().position(|layer| *layer == module)
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
    let layers = layers();
    let (mut wrong, mut checked) = (Vec::new(), BTreeSet::new());
    for (file, text) in all(&SOURCES) {
        let Some(own_layer) = layer_of(&file) else { continue };
        checked.insert(layers[own_layer]);
        for (number, line) in text.lines().enumerate() {
            for module in imports(line) {
                if layers.iter().position(|layer| *layer == module).is_some_and(|used| used > own_layer) {
                    wrong.push(format!("{file}:{}: {} uses {module}", number + 1, layers[own_layer]));
                }
            }
        }
    }
    assert_eq!(checked.len(), layers.len(), "modules without sources: {checked:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_packages_contain_no_side_effects() {
    let (mut wrong, mut excepted) = (Vec::new(), BTreeSet::new());
    for (file, text) in all(&SOURCES[..PURE]).into_iter().filter(|(file, _)| !file.ends_with("tests.rs")) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in
            code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for word in IMPURE.into_iter().filter(|word| line.contains(word)) {
                match IMPURE_FILES.into_iter().find(|exception| *exception == (file.as_str(), word)) {
                    Some(exception) => {
                        excepted.insert(exception);
                    }
                    None => wrong.push(format!("{file}:{}: {word}", number + 1)),
                }
            }
        }
    }
    assert_eq!(excepted, BTreeSet::from(IMPURE_FILES), "these exceptions occur");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_have_module_docs_and_stay_under_limit() {
    let mut wrong = Vec::new();
    let others =
        ["core/tests", "tests", "e2e/src", "e2e/controlplane/src", "e2e/tests", "release/src", "benches"];
    for (file, text) in all(&SOURCES).into_iter().chain(all(&others)) {
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
        all(&SOURCES).into_iter().filter(|(_, text)| reads_spec(text)).map(|(file, _)| file).collect();
    let outside: Vec<&String> = readers.iter().filter(|file| !file.starts_with("core/src/api/")).collect();
    assert!(outside.is_empty(), "use `quota_groups`: {outside:?}");
    for file in ["core/src/api/v1beta2/cluster_queue.rs", "core/src/api/v1beta2/cohort.rs"] {
        assert!(readers.iter().any(|reader| reader == file), "{file} no longer reads the quota");
    }
}

/// A second reading of the policies could let a view call preemption possible that the scheduler refuses. The shell decides nothing:
/// flags of `create` have the names of these fields.
#[test]
fn preemption_policies_are_read_in_one_file() {
    let fields = "reclaim_within_cohort|borrow_within_cohort|within_cluster_queue";
    // A method has the name of one of them.
    let field = Regex::new(&format!(r"\.(?:{fields})[^\w(]")).unwrap();
    let files = all(&SOURCES[..PURE]).into_iter().filter(|(file, _)| !file.starts_with("core/src/api/"));
    let readers: Vec<String> =
        files.filter(|(_, text)| field.is_match(&code(text))).map(|(file, _)| file).collect();
    assert_eq!(readers, ["core/src/scheduler/preemption/policy.rs"], "use `PreemptionPolicy`");
}

#[test]
fn packages_list_their_modules_in_order() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (index, (package, folder, modules)) in PACKAGES.iter().enumerate() {
        let text = fs::read_to_string(root().join(folder).join("lib.rs")).unwrap();
        let listed: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
        assert_eq!(&listed, modules, "{folder}/lib.rs");
        let docs = text.replace("\n//! ", " ");
        assert_eq!(docs.contains("All are pure:"), index < PURE, "{folder}/lib.rs says whether it is pure");
        for module in *modules {
            let row = format!("\n| `{module}` | `{package}` |");
            assert!(page.contains(&row), "ARCHITECTURE.md: {module} is in {package}");
        }
    }
}

/// Returns the imports between modules as pairs of places in the order of dependencies: a module, and one that it imports.
fn imported() -> BTreeSet<(usize, usize)> {
    let layers = layers();
    let mut found = BTreeSet::new();
    for (file, text) in all(&SOURCES) {
        let Some(own) = layer_of(&file) else { continue };
        let text = code(&text);
        let names = text.lines().flat_map(imports);
        let below = names.filter_map(|name| layers.iter().position(|layer| *layer == name));
        found.extend(below.filter(|below| *below != own).map(|below| (own, below)));
    }
    found
}

/// Returns the arrows of a Mermaid picture as pairs of nodes.
fn arrows(picture: &str) -> BTreeSet<(&str, &str)> {
    let mut arrows = BTreeSet::new();
    for line in picture.lines() {
        let chain: Vec<Vec<&str>> =
            line.split("-->").map(|nodes| nodes.split('&').map(str::trim).collect()).collect();
        for pair in chain.windows(2) {
            for from in &pair[0] {
                arrows.extend(pair[1].iter().map(|to| (*from, *to)));
            }
        }
    }
    arrows
}

#[test]
fn arrows_of_a_picture_are_read() {
    let picture = "flowchart TB\n    subgraph box [name]\n        a & b --> c --> d\n    end\n";
    assert_eq!(arrows(picture), BTreeSet::from([("a", "c"), ("b", "c"), ("c", "d")]));
}

/// The picture is the structure: its arrows are imports and lead downwards, and each import follows from them. Mermaid puts a
/// node into the first box that names it, so a box names the modules of its package alone.
#[test]
fn picture_shows_modules_and_their_imports() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, picture) = page.split_once("\n## Packages\n").expect("a section on packages");
    let (_, picture) = picture.split_once("```mermaid\n").expect("a picture");
    let (picture, _) = picture.split_once("```").expect("the end of the picture");
    for (package, _, modules) in PACKAGES {
        let (_, inside) = picture.split_once(&format!(" [{package}]\n")).expect(package);
        let (inside, _) = inside.split_once("    end\n").expect(package);
        let named: BTreeSet<&str> = arrows(inside).into_iter().flat_map(|(from, to)| [from, to]).collect();
        assert_eq!(named, modules.iter().copied().collect::<BTreeSet<&str>>(), "{package}");
    }
    let layers = layers();
    let place = |name: &str| {
        let place = layers.iter().position(|layer| *layer == name);
        place.unwrap_or_else(|| panic!("{name} is no module"))
    };
    let drawn: BTreeSet<(usize, usize)> =
        arrows(picture).into_iter().map(|(from, to)| (place(from), place(to))).collect();
    let imported = imported();
    // What arrows lead to from each module; that of earlier modules is complete, as arrows lead to them alone.
    let mut reached = vec![BTreeSet::new(); layers.len()];
    for (from, to) in &drawn {
        assert!(to < from, "{} --> {} leads upwards", layers[*from], layers[*to]);
        assert!(imported.contains(&(*from, *to)), "{} does not import {}", layers[*from], layers[*to]);
        let below = reached[*to].clone();
        reached[*from].extend(below);
        reached[*from].insert(*to);
    }
    for (from, to) in imported {
        assert!(reached[from].contains(&to), "no arrows lead from {} to {}", layers[from], layers[to]);
    }
}

/// Paths such as `sluice::quota` name the modules of all packages, so that tests need not know where a module is.
#[test]
fn library_has_the_modules_of_all_packages() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for (package, _, modules) in &PACKAGES[..PURE] {
        let start = format!("\npub use {}::{{", package.replace('-', "_"));
        let (_, list) = text.split_once(&start).unwrap_or_else(|| panic!("src/lib.rs has no {package}"));
        let (list, _) = list.split_once('}').unwrap();
        let mut listed: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let mut expected = modules.to_vec();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected, "{package}");
    }
}

/// The manager knows no other command. Tools take its settings, and verbs for users what tools read of a cluster.
#[test]
fn command_line_folders_depend_one_way() {
    let import = Regex::new(r"\b(?:crate::cli|super)(?:::super)*::(\{[^;]*\}|\w+)").unwrap();
    let name = Regex::new(r"\w+").unwrap();
    let part_of = |name: &str| CLI_PARTS.iter().position(|part| *part == name);
    let (mut wrong, mut used_parts) = (Vec::new(), BTreeSet::new());
    for (file, text) in all(&["src/cli"]).into_iter().filter(|(file, _)| file != "src/cli/mod.rs") {
        let folder = file["src/cli/".len()..].split_once('/').map(|(folder, _)| folder);
        let own = folder.map(|folder| part_of(folder).unwrap_or_else(|| panic!("{folder} is not listed")));
        for found in import.captures_iter(&code(&text)) {
            for used in name.find_iter(&found[1]).filter_map(|name| part_of(name.as_str())) {
                used_parts.insert(used);
                if own.is_none_or(|own| used > own) {
                    wrong.push(format!("{file} uses {}", CLI_PARTS[used]));
                }
            }
        }
    }
    assert_eq!(used_parts.len(), CLI_PARTS.len(), "imports were not found: {used_parts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The folder of a file of the reconciler; none for files beside the folders.
fn reconciler_part(file: &str) -> Option<usize> {
    let folder = file.strip_prefix("core/src/reconciler/")?.split_once('/')?.0;
    Some(
        RECONCILER_PARTS
            .iter()
            .position(|part| *part == folder)
            .unwrap_or_else(|| panic!("{folder} is not listed")),
    )
}

/// Code without comments and tests.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The bodies of the blocks that implement methods of the whole reconciler.
fn reconciler_blocks(text: &str) -> Vec<&str> {
    blocks_of("Reconciler", text)
}

/// The bodies of the blocks that implement methods of a type.
fn blocks_of<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
    let block = Regex::new(&format!(r"(?ms)^impl {name} \{{$(.*?)^\}}$")).unwrap();
    block.captures_iter(text).map(|captures| captures.get(1).unwrap().as_str()).collect()
}

#[test]
fn reconciler_parts_depend_one_way() {
    let method = Regex::new(r"(?m)^    (?:pub(?:\([^)]*\))? )?(?:const )?fn (\w+)").unwrap();
    let call = Regex::new(r"\bself\s*\.(\w+)\(").unwrap();
    let import = Regex::new(r"\b(?:crate::reconciler|super::super)::(\w+)").unwrap();
    let files: Vec<_> =
        all(&["core/src/reconciler"]).into_iter().map(|(file, text)| (file, code(&text))).collect();
    let mut defined_in = BTreeMap::new();
    for (file, text) in &files {
        for methods in reconciler_blocks(text) {
            let names = method.captures_iter(methods).map(|captures| captures[1].to_owned());
            defined_in.extend(names.map(|name| (name, file.clone())));
        }
    }
    assert!(defined_in.contains_key("apply_all"), "the methods of the reconciler were not found");
    let mut wrong = Vec::new();
    for (file, text) in &files {
        let Some(own) = reconciler_part(file) else { continue };
        // What a part calls on another part, it imports; methods of the whole reconciler it does not.
        let blocks = reconciler_blocks(text);
        let calls = blocks.iter().flat_map(|methods| call.captures_iter(methods));
        for name in calls.map(|captures| captures.get(1).unwrap().as_str()) {
            let Some(other) = defined_in.get(name).filter(|other| *other != file) else { continue };
            // Views and contexts are made in one place; stages of a round call the parts, not the other way round.
            let stage = || other != "core/src/reconciler/mod.rs";
            if reconciler_part(other).map_or_else(stage, |part| part > own) {
                wrong.push(format!("{file} calls {name} of {other}"));
            }
        }
        for module in import.captures_iter(text).map(|captures| captures.get(1).unwrap().as_str()) {
            let is_vocabulary = RECONCILER_VOCABULARY.contains(&module);
            let is_type = module.starts_with(char::is_uppercase);
            let part = RECONCILER_PARTS.iter().position(|part| *part == module);
            if !is_vocabulary && !is_type && part.is_none_or(|part| part > own) {
                wrong.push(format!("{file} uses {module}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What every folder uses is below all of them.
#[test]
fn reconciler_vocabulary_uses_no_folder() {
    let import = Regex::new(r"\b(?:crate::reconciler|super)::(\w+|\{)").unwrap();
    let mut wrong = Vec::new();
    for name in RECONCILER_VOCABULARY {
        let file = format!("core/src/reconciler/{name}.rs");
        let text = code(&fs::read_to_string(root().join(&file)).unwrap());
        for module in import.captures_iter(&text).map(|captures| captures.get(1).unwrap().as_str()) {
            if !RECONCILER_VOCABULARY.contains(&module) && !module.starts_with(char::is_uppercase) {
                wrong.push(format!("{file} uses {module}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Logic belongs to the part that owns the fields, and to views and contexts of what a step needs.
#[test]
fn few_files_see_the_whole_reconciler() {
    let whole = Regex::new(r"\bimpl Reconciler\b|&(?:'\w+ )?(?:mut )?Reconciler\b").unwrap();
    let method = Regex::new(r"(?m)^    (?:pub(?:\([^)]*\))? )?(?:const )?fn \w+").unwrap();
    let files: Vec<_> =
        all(&["core/src/reconciler"]).into_iter().map(|(file, text)| (file, code(&text))).collect();
    let whole: Vec<&str> =
        files.iter().filter(|(_, text)| whole.is_match(text)).map(|(file, _)| file.as_str()).collect();
    let methods = files.iter().flat_map(|(_, text)| reconciler_blocks(text));
    let methods: usize = methods.map(|block| method.find_iter(block).count()).sum();
    let reached = [whole.len(), methods];
    assert!(
        reached.iter().zip(WHOLE_RECONCILER).all(|(now, limit)| *now <= limit),
        "{reached:?} files and methods, at most {WHOLE_RECONCILER:?}:\n{}",
        whole.join("\n")
    );
}

/// Every method of the engine reaches all of its fields: the input of a new step belongs in a view of its own.
#[test]
fn few_files_see_the_whole_engine() {
    let method = Regex::new(r"(?m)^    (?:pub(?:\([^)]*\))? )?(?:const )?fn \w+").unwrap();
    let (mut whole, mut methods) = (Vec::new(), 0);
    for (file, text) in all(&["core/src/scheduler"]) {
        let text = code(&text);
        let blocks = blocks_of("Engine", &text);
        if !blocks.is_empty() {
            let number: usize = blocks.into_iter().map(|block| method.find_iter(block).count()).sum();
            methods += number;
            whole.push(format!("{file}: {number}"));
        }
    }
    let reached = [whole.len(), methods];
    assert!(methods > 0, "the methods of the engine were not found");
    assert!(
        reached.iter().zip(WHOLE_ENGINE).all(|(now, limit)| *now <= limit),
        "{reached:?} files and methods, at most {WHOLE_ENGINE:?}:\n{}",
        whole.join("\n")
    );
}

#[test]
fn structs_stay_small() {
    let header = Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))? )?struct (\w+)[^;({]*\{").unwrap();
    let field = Regex::new(r"(?m)^\s+(?:pub(?:\([^)]*\))? )?(?:r#)?\w+: ").unwrap();
    let mut wrong = Vec::new();
    for (file, text) in all(&SOURCES) {
        let text = code(&text);
        for captures in header.captures_iter(&text) {
            let body = &text[captures.get(0).unwrap().end()..];
            let body = body.split("\n}").next().unwrap_or_default();
            let fields = field.find_iter(body).count();
            if fields > FIELDS && !WIDE_STRUCTS.contains(&&captures[1]) {
                wrong.push(format!("{file}: {} has {fields} fields, at most {FIELDS}", &captures[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
