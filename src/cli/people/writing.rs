//! The one function by which commands write, so that `--dry-run` and preconditions hold for every verb.
//!
//! Invariant: a client dry run sends nothing; a server dry run sends every write with `dryRun=All`.

use http::Method;
use serde_json::{Value, json};

use super::closed::Closed;
use crate::kube::client::{CallError, Caller, Content};

/// Value of `--dry-run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// Write.
    #[default]
    None,
    /// Send nothing.
    Client,
    /// Send; the server checks the write and stores nothing.
    Server,
}

impl DryRun {
    /// Returns the parser of the flag.
    pub(crate) fn parser() -> Closed<Self> {
        Closed::new(|| vec!["none", "client", "server"], Self::parse)
    }

    /// Reads the value of the flag.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "client" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            other => {
                Err(format!("invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\""))
            }
        }
    }

    /// Returns the end of a line about a write.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (client dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// A write of one object.
#[derive(Clone, Debug)]
pub(crate) enum Write<'a> {
    /// Creates an object in a collection.
    Create(&'a Value),
    /// Merges a patch into the object that was read: it fails with a conflict if the object has changed since.
    Patch { read: &'a Value, patch: Value },
    /// Deletes the object with this UID, and no other of its name.
    Delete { uid: &'a str },
}

/// Sends writes.
pub(crate) struct Writer<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) dry_run: DryRun,
}

impl Writer<'_> {
    /// Sends a write to a path and returns the object that the server answers; `None` in a client dry run.
    pub(crate) async fn send(&self, path: &str, write: Write<'_>) -> Result<Option<Value>, CallError> {
        let path = match self.dry_run {
            DryRun::Client => return Ok(None),
            DryRun::Server => format!("{path}?dryRun=All"),
            DryRun::None => path.to_owned(),
        };
        let (verb, content, body) = match write {
            Write::Create(object) => (Method::POST, Content::Json, object.clone()),
            Write::Patch { read, mut patch } => {
                let version = read.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                let uid = read.pointer("/metadata/uid").cloned().unwrap_or_default();
                if let Value::Object(fields) = &mut patch {
                    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
                    if let Value::Object(metadata) = metadata {
                        metadata.insert("resourceVersion".to_owned(), version);
                        metadata.insert("uid".to_owned(), uid);
                    }
                }
                (Method::PATCH, Content::Merge, patch)
            }
            Write::Delete { uid } => {
                let mut options =
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
                // An API server ignores the options of the query if the body has options.
                if let (DryRun::Server, Value::Object(fields)) = (self.dry_run, &mut options) {
                    fields.insert("dryRun".to_owned(), json!(["All"]));
                }
                (Method::DELETE, Content::Json, options)
            }
        };
        self.caller.call(verb, &path, content, Some(&body)).await.map(Some)
    }
}

/// Applies a merge patch to an object as the server would, for the output of a client dry run.
pub(crate) fn merged(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}
