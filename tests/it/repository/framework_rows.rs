//! Each part of a row of the table of frameworks is read by code, no row takes parts of the row of another kind, and what rows
//! consist of names no kind.

use crate::fixtures::packages::SOURCES;
use regex::Regex;
use sluice::frameworks::frameworks;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "core/src/frameworks";
/// Files that say what a row consists of.
const DEFINITIONS: [&str; 2] = ["row.rs", "role_shape.rs"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the sources below a folder by path, without comments and without their tests.
fn sources(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\n").filter(|part| !part.contains("mod tests {"));
            let code = code.flat_map(str::lines);
            let code = code.filter(|line| !line.trim_start().starts_with("//"));
            files.insert(path, code.collect::<Vec<_>>().join("\n") + "\n");
        }
    }
    files
}

/// Returns the code of all packages by path, without comments and without its tests.
fn all_sources() -> BTreeMap<PathBuf, String> {
    SOURCES.iter().flat_map(|folder| sources(&root().join(folder))).collect()
}

/// Returns the code of all packages, without the definition of rows and without the rows.
fn reading_code() -> String {
    let row = Regex::new(r"(?ms)^(?:pub\(super\) )?(?:(?:static|const) \w+: [^;=]+ =.*?;\n|const fn .*?^\})")
        .unwrap();
    let definitions = DEFINITIONS.map(|name| root().join(FOLDER).join(name));
    let files = all_sources().into_iter().filter(|(path, _)| !definitions.contains(path));
    let in_rows = root().join(FOLDER);
    let code =
        files.map(
            |(path, text)| {
                if path.starts_with(&in_rows) { row.replace_all(&text, "").into_owned() } else { text }
            },
        );
    code.collect::<Vec<_>>().join("\n")
}

/// How code names a value of a part of a row, as a regular expression. Only what is read by such a name counts, because many
/// other values have fields of the same names.
const NAMES: [(&str, &str); 15] = [
    ("DescribedRole", r"(?:role|described\(\)\?)"),
    ("FieldPointers", r"fields"),
    ("FinishedRule", r"rule"),
    ("Flags", r"flags"),
    ("Framework", r"(?:row|self|kind|known|row\(\))"),
    ("InjectedFields", r"(?:fields|injected)"),
    ("ManagedBy", r"(?:managed_by|rule)"),
    ("PodLabel", r"label"),
    ("PodLabels", r"pods"),
    ("Rank", r"rank"),
    ("Rbac", r"rbac"),
    ("StatusFields", r"status"),
    ("SubGroups", r"groups"),
    ("TemplateMarks", r"marks"),
    ("Webhooks", r"webhooks"),
];

/// Types that a row consists of, with the names of their fields or variants.
fn parts(kind: &str, member: &Regex) -> BTreeMap<String, Vec<String>> {
    let read = |name: &str| fs::read_to_string(root().join(FOLDER).join(name)).unwrap();
    let text = DEFINITIONS.map(read).concat();
    let block = Regex::new(&format!(r"(?ms)^pub {kind} (\w+) \{{\n(.*?)^\}}")).unwrap();
    let members = |body: &str| member.captures_iter(body).map(|found| found[1].to_owned()).collect();
    block.captures_iter(&text).map(|found| (found[1].to_owned(), members(&found[2]))).collect()
}

#[test]
fn every_field_of_a_row_is_read() {
    let structs = parts("struct", &Regex::new(r"(?m)^    pub (\w+):").unwrap());
    assert_eq!(structs.keys().collect::<Vec<_>>(), NAMES.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let code = reading_code();
    let mut unread = Vec::new();
    for ((part, fields), (_, names)) in structs.iter().zip(NAMES) {
        for field in fields {
            let read = Regex::new(&format!(r"\b{names}\s*\.{field}\b[^(]")).unwrap();
            if !read.is_match(&code) {
                unread.push(format!("{part}.{field}"));
            }
        }
    }
    assert!(unread.is_empty(), "no code reads {unread:?}: use it, or remove it from the rows");
}

/// All variants but one have code of their own; what is not another variant is the one.
#[test]
fn every_variant_of_a_row_is_read() {
    let enums = parts("enum", &Regex::new(r"(?m)^    (\w+)(?:[,({]| \{)").unwrap());
    let (code, files) = (reading_code(), sources(&root().join(FOLDER)));
    let mut unread = Vec::new();
    for (part, variants) in &enums {
        assert!(variants.len() > 1, "{part}: {variants:?}");
        let block = Regex::new(&format!(r"(?ms)^impl {part} \{{.*?^\}}")).unwrap();
        let own: Vec<&str> =
            files.values().flat_map(|text| block.find_iter(text)).map(|found| found.as_str()).collect();
        let own = own.join("\n");
        let matched = |variant: &&String| {
            let named = |name: &str, code: &str| {
                Regex::new(&format!(r"\b{name}::{variant}\b")).unwrap().is_match(code)
            };
            named(part, &code) || named("Self", &own)
        };
        let others: Vec<_> = variants.iter().filter(|variant| !matched(variant)).collect();
        if others.len() > 1 {
            unread.push(format!("{part}: {others:?}"));
        }
    }
    assert!(unread.is_empty(), "no code tells these apart: {unread:?}");
}

#[test]
fn no_row_takes_parts_of_another_kind() {
    let row = Regex::new(r"static (\w+): Framework =").unwrap();
    let files = sources(&root().join(FOLDER));
    let rows: BTreeSet<String> =
        files.values().flat_map(|text| row.captures_iter(text)).map(|found| found[1].to_owned()).collect();
    assert!(rows.contains("RAY_CLUSTER") && rows.contains("ROW"), "{rows:?}");
    let names = rows.into_iter().collect::<Vec<_>>().join("|");
    let taken = Regex::new(&format!(r"\.\.(?:\w+::)*(?:{names})\b|\b(?:{names})\.\w+")).unwrap();
    for (path, text) in &files {
        let found: Vec<&str> = taken.find_iter(text).map(|found| found.as_str()).collect();
        assert!(found.is_empty(), "{}: {found:?}: share a constant instead", path.display());
    }
}

/// What a row consists of, and the handle on it, are below the rows; the table is above them. So a part of a row is read without
/// reading a kind.
#[test]
fn parts_of_rows_name_neither_rows_nor_their_rules() {
    let folder = root().join(FOLDER);
    let files = sources(&folder);
    let row = Regex::new(r"static \w+: Framework =").unwrap();
    let is_above = |text: &str| row.is_match(text) || text.contains("impl UnitRules for");
    let module = |path: &Path| {
        let below = path.strip_prefix(&folder).unwrap().with_extension("");
        below.iter().next().unwrap().to_string_lossy().into_owned()
    };
    let mut above: BTreeSet<String> =
        files.iter().filter(|(_, text)| is_above(text)).map(|(path, _)| module(path)).collect();
    assert!(["batch_job", "pod_group", "suspended"].iter().all(|kind| above.contains(*kind)), "{above:?}");
    above.extend(["table", "unit_rules"].map(str::to_owned));
    let import = Regex::new(r"\bsuper::(\w+)").unwrap();
    for name in ["job_kind.rs", "role_shape.rs", "row.rs", "row_parts.rs"] {
        let used = import.captures_iter(&files[&folder.join(name)]).map(|found| found[1].to_owned());
        let used: Vec<String> = used.filter(|module| above.contains(module)).collect();
        assert!(used.is_empty(), "{name} uses {used:?}");
    }
    let constant = Regex::new(r"super::table::(?:\{[^}]*)?\b[A-Z]{2}").unwrap();
    for (path, text) in &files {
        assert!(!constant.is_match(text), "{}: constants of rows are in row_parts.rs", path.display());
    }
}

/// Kinds whose names are also words: the column of a job, and the type of a limit for pods.
const WORDS: [&str; 2] = ["Job", "Pod"];
/// The file that lists the kinds of Kubernetes itself, whether they are jobs or not.
const KINDS_OF_KUBERNETES: &str = "core/src/simulate/foreign_kinds.rs";

/// What differs between kinds is in their rows, so that a new kind needs no other code.
#[test]
fn no_other_code_names_a_kind() {
    let kinds = frameworks().map(|row| row.gvk.kind);
    let names: Vec<&str> = kinds.filter(|kind| !WORDS.contains(kind)).collect();
    assert!(names.contains(&"JobSet") && names.contains(&"SparkApplication"), "{names:?}");
    let literal = Regex::new(&format!("\"(?:{})\"", names.join("|"))).unwrap();
    let except = [root().join(FOLDER), root().join(KINDS_OF_KUBERNETES)];
    for (path, text) in all_sources() {
        if except.iter().any(|except| path.starts_with(except)) {
            continue;
        }
        let found: Vec<&str> = literal.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(found.is_empty(), "{}: {found:?}: the row of the kind may say what it needs", path.display());
    }
}
