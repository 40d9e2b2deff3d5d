//! Reads the API server's audit log: which account sent which requests.

use crate::objects::text;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// One completed request.
#[derive(Clone, Debug)]
pub struct AuditedRequest {
    /// User name of the account.
    pub user: String,
    /// create, update, patch, apply, delete, deletecollection, get, list or watch.
    pub verb: String,
    /// Resource and subresource, such as `workloads/status`.
    pub resource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// HTTP status code.
    pub code: i64,
    /// The client's `User-Agent`.
    pub user_agent: String,
}

impl AuditedRequest {
    /// Returns whether it may have changed an object. Reviews (of tokens, of access) are created but never stored.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.resource.ends_with("reviews")
    }

    fn read(entry: &Value) -> Self {
        let subresource = text(entry, "/objectRef/subresource");
        let resource = text(entry, "/objectRef/resource");
        Self {
            user: text(entry, "/user/username").to_owned(),
            verb: text(entry, "/verb").to_owned(),
            resource: if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            },
            namespace: text(entry, "/objectRef/namespace").to_owned(),
            name: text(entry, "/objectRef/name").to_owned(),
            code: entry.pointer("/responseStatus/code").and_then(Value::as_i64).unwrap_or_default(),
            user_agent: text(entry, "/userAgent").to_owned(),
        }
    }
}

/// A position in the audit log.
#[derive(Clone, Debug)]
pub struct AuditCursor {
    path: PathBuf,
    position: u64,
}

impl AuditCursor {
    /// Starts at the beginning of the log.
    pub fn from_start(path: &Path) -> Self {
        Self { path: path.to_owned(), position: 0 }
    }

    /// Starts at the current end of the log. A line that is half written there belongs to a request completed before.
    pub fn from_end(path: &Path) -> Result<Self> {
        let position = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
        Ok(Self { path: path.to_owned(), position })
    }

    /// Returns the requests completed since this position and advances to the end.
    pub fn read_new(&mut self) -> Result<Vec<AuditedRequest>> {
        let mut file = File::open(&self.path)?;
        ensure!(file.metadata()?.len() >= self.position, "{} was truncated or rotated", self.path.display());
        // From the byte before on: it tells whether a line starts at the position.
        file.seek(SeekFrom::Start(self.position.saturating_sub(1)))?;
        let mut reader = BufReader::new(file);
        if self.position > 0 && !self.skip_started_line(&mut reader)? {
            return Ok(Vec::new());
        }
        let mut requests = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            let length = reader.read_line(&mut line)?;
            if length == 0 || !line.ends_with('\n') {
                return Ok(requests);
            }
            self.position += u64::try_from(length)?;
            let entry: Value = serde_json::from_str(&line)?;
            if text(&entry, "/stage") == "ResponseComplete" {
                requests.push(AuditedRequest::read(&entry));
            }
        }
    }

    /// Advances to the next start of a line, from the byte before this position. Returns `false` if its end is not written yet.
    fn skip_started_line(&mut self, reader: &mut impl BufRead) -> Result<bool> {
        let mut rest = Vec::new();
        reader.read_until(b'\n', &mut rest)?;
        if !rest.ends_with(b"\n") {
            return Ok(false);
        }
        self.position += u64::try_from(rest.len() - 1)?;
        Ok(true)
    }

    /// Returns the writes of one account since this position and advances to the end.
    pub fn new_writes_by(&mut self, user: &str) -> Result<Vec<AuditedRequest>> {
        Ok(self
            .read_new()?
            .into_iter()
            .filter(|request| request.user == user && request.is_write())
            .collect())
    }
}

/// Counts requests by verb and resource.
pub fn count_by_verb_and_resource(requests: &[AuditedRequest]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn half_written_line_at_the_start_is_skipped() {
        let line = |name: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"create","objectRef":{{"resource":"jobs","name":"{name}"}}}}"#
            )
        };
        let path = std::env::temp_dir().join(format!("sluice-audit-{}.log", std::process::id()));
        let (before, begun, after) = (line("before"), line("begun"), line("after"));
        let (written, rest) = begun.split_at(20);
        fs::write(&path, format!("{before}\n{written}")).unwrap();
        let mut cursor = AuditCursor::from_end(&path).unwrap();
        let none_while_half_written = cursor.read_new().unwrap();
        fs::write(&path, format!("{before}\n{written}{rest}\n{after}\n")).unwrap();
        let first = cursor.read_new().unwrap();
        let again = cursor.read_new().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(none_while_half_written.is_empty() && again.is_empty());
        assert_eq!(first.iter().map(|request| request.name.as_str()).collect::<Vec<_>>(), ["after"]);
    }
}
