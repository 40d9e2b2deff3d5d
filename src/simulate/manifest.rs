//! Manifests as people write them: YAML or JSON, several documents in a file, lists.
//!
//! A document that cannot be used is a problem with its place, and the others go on.

use super::objects::{describe, text_at};
use super::source_line::line_of_field;
use crate::state::Kind;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Arc;

/// Documents that are not worth a reader of their own.
const MIN_DOCUMENTS_PER_THREAD: usize = 256;

/// Where a document begins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceLocation {
    /// File, or what stands for it.
    pub file: Arc<str>,
    /// Line, from 1; 0 for what has no lines.
    pub line: usize,
}

/// An object and where it came from.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Where it stands.
    pub location: SourceLocation,
    /// Its kind.
    pub kind: Kind,
    /// The object.
    pub object: Value,
    /// Its document, and where in it the object stands.
    source: (Arc<str>, String),
}

impl Manifest {
    /// A problem at a field of the object.
    pub(super) fn problem(&self, reason: String) -> Problem {
        let (document, inside) = &self.source;
        // Several problems are told as a list.
        let path = reason.trim_start_matches('[').split(": ").next().unwrap_or_default();
        let path = if path.contains(' ') { "" } else { path };
        let path = [inside.as_str(), path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let line = self.location.line.saturating_add(line_of_field(document, &path.join(".")));
        let place = SourceLocation { line, ..self.location.clone() };
        Problem { location: place, subject: describe(&self.object), reason }
    }
}

/// What keeps a document from being used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where it stands.
    #[serde(flatten)]
    pub location: SourceLocation,
    /// Kind and name, as far as they are known.
    pub subject: String,
    /// Path of the field and what is wrong with it.
    pub reason: String,
}

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Objects in the order of their documents.
    pub objects: Vec<Manifest>,
    /// Documents that cannot be used.
    pub problems: Vec<Problem>,
    /// Objects of kinds that no decision depends on, by `Kind.group`.
    pub ignored: BTreeMap<String, usize>,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.subject.is_empty() {
            write!(f, "{}: ", self.subject)?;
        }
        f.write_str(&self.reason)
    }
}

impl Manifests {
    /// Reads the documents of a file; objects without a namespace go to the given one.
    pub fn parse(&mut self, file: &str, text: &str, namespace: &str) {
        let file: Arc<str> = Arc::from(file);
        let documents = split_documents(text);
        let objects = parse_all(&documents);
        for ((line, document), object) in documents.into_iter().zip(objects) {
            let place = SourceLocation { file: Arc::clone(&file), line };
            match object {
                Ok(Value::Null) => {}
                Ok(object) => {
                    self.add_object(&place, &(Arc::from(document), String::new()), object, namespace);
                }
                Err((within, reason)) => {
                    let place = SourceLocation { line: line.saturating_add(within), ..place };
                    self.problems.push(Problem { location: place, subject: String::new(), reason });
                }
            }
        }
    }

    /// When the last of the objects was stored by a server, if one was.
    pub fn newest_creation_time(&self) -> Option<Timestamp> {
        let created = |m: &Manifest| text_at(&m.object, "/metadata/creationTimestamp").parse().ok();
        self.objects.iter().filter_map(created).max()
    }

    fn add_object(
        &mut self,
        place: &SourceLocation,
        source: &(Arc<str>, String),
        mut object: Value,
        namespace: &str,
    ) {
        let kind_name = text_at(&object, "/kind").to_owned();
        if let (true, Some(Value::Array(items))) = (kind_name.ends_with("List"), object.get_mut("items")) {
            for (index, item) in std::mem::take(items).into_iter().enumerate() {
                let (document, inside) = source;
                let dot = if inside.is_empty() { "" } else { "." };
                let source = (Arc::clone(document), format!("{inside}{dot}items[{index}]"));
                self.add_object(place, &source, item, namespace);
            }
            return;
        }
        match identify(&object) {
            Ok(Some(kind)) => {
                let object = with_namespace(object, kind, namespace);
                self.objects.push(Manifest { location: place.clone(), kind, object, source: source.clone() });
            }
            Ok(None) => {
                let group = group_of(&object);
                let name = if group.is_empty() { kind_name } else { format!("{kind_name}.{group}") };
                let count = self.ignored.entry(name).or_default();
                *count = count.saturating_add(1);
            }
            Err(reason) => {
                let (place, source) = (place.clone(), source.clone());
                // The kind does not matter: it is not kept.
                let manifest = Manifest { location: place, kind: Kind::Namespace, object, source };
                self.problems.push(manifest.problem(reason));
            }
        }
    }
}

fn group_of(object: &Value) -> &str {
    text_at(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group)
}

/// The kind, if decisions depend on it.
fn identify(object: &Value) -> Result<Option<Kind>, String> {
    if !object.is_object() {
        return Err("must be an object".to_owned());
    }
    for field in ["apiVersion", "kind"] {
        if object.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(format!("{field}: Required value"));
        }
    }
    let Some(kind) = Kind::from_group_kind(group_of(object), text_at(object, "/kind")) else {
        return Ok(None);
    };
    let (wanted, version) = (kind.resource().api_version(), text_at(object, "/apiVersion"));
    if version != wanted {
        return Err(format!("apiVersion: Unsupported value: {version:?}: it must be {wanted:?}"));
    }
    let metadata = object.get("metadata");
    if metadata.is_some_and(|metadata| !metadata.is_object()) {
        return Err("metadata: Invalid value: must be an object".to_owned());
    }
    let no_text =
        |field: &&str| metadata.and_then(|metadata| metadata.get(*field)).is_some_and(|v| !v.is_string());
    if let Some(field) = ["name", "generateName", "namespace"].into_iter().find(no_text) {
        return Err(format!("metadata.{field}: Invalid value: must be a string"));
    }
    if text_at(object, "/metadata/name").is_empty() && text_at(object, "/metadata/generateName").is_empty() {
        return Err("metadata.name: Required value".to_owned());
    }
    Ok(Some(kind))
}

/// The object in its namespace.
fn with_namespace(mut object: Value, kind: Kind, namespace: &str) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if kind.resource().namespaced {
            let own = metadata.entry("namespace").or_insert(Value::Null);
            if own.as_str().is_none_or(str::is_empty) {
                *own = json!(namespace);
            }
        } else {
            metadata.shift_remove("namespace");
        }
    }
    object
}

/// The documents of a file, each with the line at which its content begins.
fn split_documents(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut start, mut first, mut at) = (Vec::new(), 0, 1, 0);
    let mut close = |start: usize, end: usize, first: usize| {
        let document = text.get(start..end).unwrap_or_default();
        let blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let skipped = document.lines().take_while(blank).count();
        if document.lines().nth(skipped).is_some() {
            let rest = document.split_inclusive('\n').take(skipped).map(str::len).sum::<usize>();
            found.push((first + skipped, document.get(rest..).unwrap_or_default()));
        }
    };
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = at + line.len();
        if line.trim_end() == "---" || line.starts_with("--- ") {
            close(start, at, first);
            (start, first) = (end, number + 2);
        }
        at = end;
    }
    close(start, text.len(), first);
    found
}

/// An object, or why there is none, with the number of lines before that.
type Parsed = Result<Value, (usize, String)>;

/// All documents in their order; many are read side by side.
fn parse_all(documents: &[(usize, &str)]) -> Vec<Parsed> {
    let parse =
        |documents: &[(usize, &str)]| documents.iter().map(|(_, text)| parse(text)).collect::<Vec<_>>();
    let readers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let each = documents.len().div_ceil(readers).max(MIN_DOCUMENTS_PER_THREAD);
    if documents.len() <= each {
        return parse(documents);
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = documents.chunks(each).map(|part| scope.spawn(move || parse(part))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn parse(document: &str) -> Parsed {
    if document.trim_start().starts_with('{') {
        match serde_json::from_str(document) {
            Ok(value) => return Ok(value),
            Err(error) if error.is_eof() || document.contains("\":") => {
                return Err((error.line().saturating_sub(1), format!("not JSON: {error}")));
            }
            Err(_) => {}
        }
    }
    // The file is the user's own: it may be as large as he likes.
    let options = serde_saphyr::options! { budget: None, with_snippet: false };
    serde_saphyr::from_str_with_options(document, options).map_err(|error| {
        let line = error.location().and_then(|at| usize::try_from(at.line()).ok()).unwrap_or(1);
        let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        let text = text.lines().next().unwrap_or_default();
        // That is the line in this document, not in the file.
        let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
        (line.saturating_sub(1), format!("not YAML: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_start_at_first_content_line() {
        let text =
            "# a list\n---\n\nkind: A\n---\n# nothing\n---\nkind: B\nname: |\n  ---\n--- # third\nkind: C\n";
        let found: Vec<(usize, String)> =
            split_documents(text).into_iter().map(|(line, text)| (line, text.trim().to_owned())).collect();
        let want = [(4, "kind: A"), (8, "kind: B\nname: |\n  ---"), (12, "kind: C")];
        assert_eq!(found, want.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn many_documents_keep_order_and_lines() {
        let total = 3 * MIN_DOCUMENTS_PER_THREAD;
        let text = |n| {
            if n == MIN_DOCUMENTS_PER_THREAD { "a: [\n---\n".to_owned() } else { format!("n: {n}\n---\n") }
        };
        let text: String = (0..total).map(text).collect();
        let documents = split_documents(&text);
        let parsed = parse_all(&documents);
        assert_eq!((documents.len(), parsed.len()), (total, total));
        for (n, (found, (line, _))) in parsed.into_iter().zip(documents).enumerate() {
            assert_eq!(found.ok(), (n != MIN_DOCUMENTS_PER_THREAD).then(|| json!({"n": n})), "document {n}");
            assert_eq!(line, 2 * n + 1);
        }
    }
}
