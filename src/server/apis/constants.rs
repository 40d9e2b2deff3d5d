//! Answers that are constants of the program: discovery, OpenAPI and the version, made once.
//!
//! Invariant: an answer costs a look-up and a copy of a pointer, whatever the client asks.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::discovery::{self, Discovery};
use super::group::GroupDescription;
use super::negotiation::Format;
use super::{openapi, status};
use crate::metrics::build;

/// A document with its tag.
#[derive(Clone, Debug)]
struct Document {
    body: Bytes,
    media_type: String,
    tag: String,
}

impl Document {
    fn new(document: &Value, media_type: &str) -> Self {
        let tag = format!("\"{}\"", openapi::etag(document));
        Self { body: Bytes::from(document.to_string()), media_type: media_type.to_owned(), tag }
    }

    /// Returns the document, or `304 Not Modified` if the client has it.
    fn respond(&self, headers: &HeaderMap) -> Response {
        let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let mut response = if known == Some(&self.tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            self.body.clone().into_response()
        };
        for (name, value) in [(CONTENT_TYPE, &*self.media_type), (ETAG, &self.tag), (VARY, "Accept")] {
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// All constant answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Constants {
    /// Documents by path, without slashes at its ends.
    documents: BTreeMap<String, Document>,
    /// Documents of the path `apis`, by their form.
    groups: Vec<(Discovery, Document)>,
}

impl Constants {
    pub(super) fn new(groups: &[&GroupDescription]) -> Self {
        let json = |document: &Value| Document::new(document, "application/json");
        let all = || groups.iter().copied();
        let version = json!({"gitVersion": build::describe(), "major": "", "minor": ""});
        let mut documents = BTreeMap::from([
            ("openapi/v2".to_owned(), json(&openapi::v2(all()))),
            ("openapi/v3".to_owned(), json(&openapi::v3_index(all()))),
            ("version".to_owned(), json(&version)),
        ]);
        for group in all() {
            let path = format!("apis/{}", group.name);
            for version in group.versions {
                let document = json(&discovery::resources(group, version));
                documents.insert(format!("{path}/{version}"), document);
                documents.insert(format!("openapi/v3/{path}/{version}"), json(&openapi::v3(group, version)));
            }
            documents.insert(path, json(&discovery::group(group)));
        }
        let form = |form: Discovery| (form, Document::new(&form.document(all()), &form.media_type()));
        let forms = [Discovery::Groups, Discovery::Aggregated("v2"), Discovery::Aggregated("v2beta1")];
        Self { documents, groups: forms.map(form).into() }
    }

    /// Answers a request for a constant; `None` for other paths. `path` has no slashes at its ends.
    pub(super) fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let document = match path {
            "livez" | "readyz" | "healthz" => return Some("ok".into_response()),
            "apis" => {
                let wanted = Discovery::of(accept);
                self.groups.iter().find(|(form, _)| Some(*form) == wanted).map(|(_, document)| document)
            }
            path => {
                let known = self.documents.get(path)?;
                Some(known).filter(|_| Format::of(accept) == Some(Format::Json))
            }
        };
        Some(match document {
            Some(document) => document.respond(headers),
            None => status::not_acceptable("application/json"),
        })
    }
}
