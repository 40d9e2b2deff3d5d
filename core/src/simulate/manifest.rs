//! Parsing of manifests: YAML or JSON, several documents in a file, lists.
//!
//! An invalid document is a problem with its location and does not affect the others.

use super::dump::{self, Dump};
use super::foreign_kinds::{check_known, group_of, unmanaged_queue};
use super::non_finite::NonFinite;
use super::objects::{describe, text_at};
use super::source_line::line_of_field;
use crate::api::time::parse_time;
use crate::cache::Kind;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Arc;

/// Minimum number of documents per parser thread; with fewer, a thread costs more than it gains.
const MIN_DOCUMENTS_PER_THREAD: usize = 256;

/// Start of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceLocation {
    /// File name, or `standard input`, `cluster` or `stored`.
    pub file: Arc<str>,
    /// Line number, starting at 1; 0 if there are no lines.
    pub line: usize,
}

/// An object and its source.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Location of its document.
    pub location: SourceLocation,
    /// Its kind.
    pub kind: Kind,
    /// The object.
    pub object: Value,
    /// Whether it was read from a cluster by `sluice dump`.
    pub dumped: bool,
    source: Source,
}

/// Where an object stands.
#[derive(Clone, Debug)]
struct Source {
    /// Text of its document.
    document: Arc<str>,
    /// Path of the object in the document, if that is a list.
    inside: String,
    /// Numbers of the document that no JSON can have.
    non_finite: Arc<[NonFinite]>,
}

impl Manifest {
    /// Creates a problem; the location is the line of the field that the reason names.
    pub(super) fn problem(&self, reason: String) -> Problem {
        let Source { document, inside, .. } = &self.source;
        // Several errors are formatted as `[first, second]`.
        let path = reason.trim_start_matches('[').split(": ").next().unwrap_or_default();
        let path = if path.contains(' ') { "" } else { path };
        let whole = [inside.as_str(), path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let line = self.location.line.saturating_add(line_of_field(document, &whole.join(".")));
        let location = SourceLocation { line, ..self.location.clone() };
        // An object without a name is named by its place in the list.
        let unnamed = text_at(&self.object, "/metadata/name").is_empty() && !inside.is_empty();
        let reason = match (unnamed, path.is_empty()) {
            (false, _) => reason,
            (true, true) => format!("{inside}: {reason}"),
            (true, false) => format!("{inside}.{reason}"),
        };
        Problem { location, subject: describe(&self.object), reason }
    }
}

/// Why a document or object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Location of the error.
    #[serde(flatten)]
    pub location: SourceLocation,
    /// Kind and name, as far as known.
    pub subject: String,
    /// Path of the field and error.
    pub reason: String,
}

/// Parsed manifests.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Objects in the order of their documents.
    pub objects: Vec<Manifest>,
    /// Invalid documents.
    pub problems: Vec<Problem>,
    /// Number of objects of kinds that do not affect scheduling, by `Kind.group`.
    pub ignored: BTreeMap<String, usize>,
    /// Objects that name a queue and are of kinds that are not managed, with the reason.
    pub not_managed: Vec<String>,
    /// Header of the dump among the files.
    pub dump: Option<Dump>,
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
    /// Parses the documents of a file; objects without a namespace get `namespace`.
    pub fn parse(&mut self, file: &str, text: &str, namespace: &str) {
        let file: Arc<str> = Arc::from(file);
        let documents = split_documents(text);
        let objects = parse_all(&documents);
        let (first, without_dump) = (self.objects.len(), self.dump.is_none());
        for ((line, document), object) in documents.into_iter().zip(objects) {
            let location = SourceLocation { file: Arc::clone(&file), line };
            match object {
                Ok((Value::Null, _)) => {}
                Ok((object, non_finite)) => {
                    let (document, non_finite) = (Arc::from(document), Arc::from(non_finite));
                    let source = Source { document, inside: String::new(), non_finite };
                    self.add_object(&location, &source, object, namespace);
                }
                Err(ParseError { line: offset, reason }) => {
                    let location = SourceLocation { line: line.saturating_add(offset), ..location };
                    self.problems.push(Problem { location, subject: String::new(), reason });
                }
            }
        }
        let dumped = without_dump && self.dump.is_some();
        self.objects.iter_mut().skip(first).for_each(|manifest| manifest.dumped = dumped);
    }

    /// Returns the newest creation time of the objects, if any has one.
    pub fn newest_creation_time(&self) -> Option<Timestamp> {
        let created = |m: &Manifest| parse_time(text_at(&m.object, "/metadata/creationTimestamp"));
        self.objects.iter().filter_map(created).max()
    }

    fn add_object(&mut self, location: &SourceLocation, source: &Source, mut object: Value, namespace: &str) {
        let kind_name = text_at(&object, "/kind").to_owned();
        if let (true, Some(Value::Array(items))) = (kind_name.ends_with("List"), object.get_mut("items")) {
            for (index, item) in std::mem::take(items).into_iter().enumerate() {
                let dot = if source.inside.is_empty() { "" } else { "." };
                let inside = format!("{}{dot}items[{index}]", source.inside);
                self.add_object(location, &Source { inside, ..source.clone() }, item, namespace);
            }
            return;
        }
        if kind_name == dump::KIND && text_at(&object, "/apiVersion") == dump::API_VERSION {
            return self.add_dump(location, source, object);
        }
        let non_finite = source.non_finite.iter().find_map(|number| number.error_in(&source.inside));
        let identified = non_finite.map_or_else(|| identify(&object), Err);
        if matches!(identified, Ok(None)) {
            let named = with_namespace(object.clone(), Kind::Pod, namespace);
            if let Some(reason) = unmanaged_queue(&named) {
                self.not_managed.push(reason);
                return;
            }
        }
        match identified {
            Ok(Some(kind)) => {
                let object = with_namespace(object, kind, namespace);
                self.objects.push(Manifest {
                    location: location.clone(),
                    kind,
                    object,
                    dumped: false,
                    source: source.clone(),
                });
            }
            Ok(None) => {
                let group = group_of(&object);
                let name = if group.is_empty() { kind_name } else { format!("{kind_name}.{group}") };
                let count = self.ignored.entry(name).or_default();
                *count = count.saturating_add(1);
            }
            Err(reason) => {
                self.add_problem(location, source, object, reason);
            }
        }
    }

    fn add_problem(&mut self, location: &SourceLocation, source: &Source, object: Value, reason: String) {
        let (location, source) = (location.clone(), source.clone());
        // The kind is not used: the manifest only creates the problem.
        let manifest = Manifest { location, kind: Kind::Namespace, object, dumped: false, source };
        self.problems.push(manifest.problem(reason));
    }

    /// Adds the header of a dump. Resources that it lacks are problems.
    fn add_dump(&mut self, location: &SourceLocation, source: &Source, document: Value) {
        let header = match Dump::from_document(document.clone()) {
            Ok(_) if self.dump.is_some() => Err("there is another dump before it".to_owned()),
            header => header,
        };
        match header {
            Ok(header) => {
                let missing = |skipped: &dump::SkippedResource| Problem {
                    location: location.clone(),
                    subject: skipped.resource.clone(),
                    reason: format!("not in the dump: {}", skipped.reason),
                };
                self.problems.extend(header.skipped.iter().map(missing));
                self.dump = Some(header);
            }
            Err(reason) => self.add_problem(location, source, document, reason),
        }
    }
}

/// Returns the kind, or `None` if it does not affect scheduling.
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
        return check_known(object).map(|()| None);
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

/// Sets the namespace of an object that has none; removes it from cluster-scoped objects.
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

/// Splits a file into documents, each with the line number of its first content.
fn split_documents(text: &str) -> Vec<(usize, &str)> {
    let (mut documents, mut start, mut first, mut offset) = (Vec::new(), 0, 1, 0);
    let mut close = |start: usize, end: usize, first: usize| {
        let document = text.get(start..end).unwrap_or_default();
        let blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let skipped = document.lines().take_while(blank).count();
        if document.lines().nth(skipped).is_some() {
            let rest = document.split_inclusive('\n').take(skipped).map(str::len).sum::<usize>();
            documents.push((first + skipped, document.get(rest..).unwrap_or_default()));
        }
    };
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        if line.trim_end() == "---" || line.starts_with("--- ") {
            close(start, offset, first);
            (start, first) = (end, number + 2);
        }
        offset = end;
    }
    close(start, text.len(), first);
    documents
}

/// Why a document is not an object.
struct ParseError {
    /// Zero-based line in the document.
    line: usize,
    reason: String,
}

/// An object, and its numbers that are not finite.
type Parsed = Result<(Value, Vec<NonFinite>), ParseError>;

/// Parses all documents in order; uses several threads if there are many. The result does not depend on their number, so that the core
/// stays a function of its arguments: the one place in it that asks the machine for anything.
fn parse_all(documents: &[(usize, &str)]) -> Vec<Parsed> {
    let parse =
        |documents: &[(usize, &str)]| documents.iter().map(|(_, text)| parse(text)).collect::<Vec<_>>();
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let per_thread = documents.len().div_ceil(threads).max(MIN_DOCUMENTS_PER_THREAD);
    if documents.len() <= per_thread {
        return parse(documents);
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            documents.chunks(per_thread).map(|part| scope.spawn(move || parse(part))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn parse(document: &str) -> Parsed {
    if document.trim_start().starts_with('{') {
        match serde_json::from_str(document) {
            Ok(value) => return Ok((value, Vec::new())),
            Err(error) if error.is_eof() || document.contains("\":") => {
                let (line, reason) = (error.line().saturating_sub(1), format!("not JSON: {error}"));
                // A number that is too large for JSON is one of YAML.
                return NonFinite::find(document, true).ok_or(ParseError { line, reason });
            }
            Err(_) => {}
        }
    }
    // No size limit, because the user chose the file.
    let options = serde_saphyr::options! { budget: None, with_snippet: false };
    serde_saphyr::from_str_with_options(document, options).map(|value| (value, Vec::new())).or_else(|error| {
        let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).unwrap_or(1);
        let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        let text = text.lines().next().unwrap_or_default();
        // Remove the line number, which is relative to this document and not to the file.
        let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
        let error = ParseError { line: line.saturating_sub(1), reason: format!("not YAML: {text}") };
        NonFinite::find(document, false).ok_or(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_start_at_first_content_line() {
        let text =
            "# a list\n---\n\nkind: A\n---\n# nothing\n---\nkind: B\nname: |\n  ---\n--- # third\nkind: C\n";
        let documents: Vec<(usize, String)> =
            split_documents(text).into_iter().map(|(line, text)| (line, text.trim().to_owned())).collect();
        let expected = [(4, "kind: A"), (8, "kind: B\nname: |\n  ---"), (12, "kind: C")];
        assert_eq!(documents, expected.map(|(line, text)| (line, text.to_owned())));
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
        for (n, (result, (line, _))) in parsed.into_iter().zip(documents).enumerate() {
            let value = result.ok().map(|(value, _)| value);
            assert_eq!(value, (n != MIN_DOCUMENTS_PER_THREAD).then(|| json!({"n": n})), "document {n}");
            assert_eq!(line, 2 * n + 1);
        }
    }
}
