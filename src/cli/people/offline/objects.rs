//! A read-only API server for the objects of a file: single objects, lists, and discovery.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};

use crate::cache::{ApiResourceInfo, Kind};
use crate::kube::client::{all_path, collection_path};

/// Objects by path.
pub(super) struct StoredObjects {
    by_path: BTreeMap<String, Value>,
    kinds: Vec<ApiResourceInfo>,
}

impl StoredObjects {
    pub(super) fn of(objects: Vec<(Kind, Value)>) -> Self {
        let kinds: Vec<ApiResourceInfo> = super::kinds(&objects).into_iter().map(Kind::resource).collect();
        let path = |kind: Kind, object: &Value| {
            let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let resource = kind.resource();
            let collection = match text("/metadata/namespace") {
                "" => all_path(&resource),
                namespace => collection_path(&resource, namespace),
            };
            format!("{collection}/{}", text("/metadata/name"))
        };
        let by_path = objects.into_iter().map(|(kind, object)| (path(kind, &object), object)).collect();
        Self { by_path, kinds }
    }

    /// Answers a request; nothing can be written.
    pub(super) fn respond(&self, method: &Method, uri: &Uri) -> Response<Body> {
        if *method != Method::GET {
            return failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "a file cannot be changed");
        }
        let path = uri.path().trim_end_matches('/');
        if let Some(object) = self.by_path.get(path) {
            return send(StatusCode::OK, object);
        }
        if let Some(discovery) = self.discovery(path) {
            return send(StatusCode::OK, &discovery);
        }
        if let Some(list) = self.list(path, uri.query().unwrap_or_default()) {
            send(StatusCode::OK, &list)
        } else {
            let name = path.rsplit('/').next().unwrap_or_default();
            failure(StatusCode::NOT_FOUND, "NotFound", &format!("{name:?} is not in the file"))
        }
    }

    /// Returns discovery, in the form of servers without aggregated discovery.
    fn discovery(&self, path: &str) -> Option<Value> {
        let versions = || self.kinds.iter().map(ApiResourceInfo::api_version);
        match path {
            "/api" => return Some(json!({"versions": ["v1"]})),
            "/apis" => {
                let named = |version: &String| version.contains('/');
                let mut groups: Vec<Value> = Vec::new();
                for version in versions().filter(named) {
                    let group = json!({"preferredVersion": {"groupVersion": version}});
                    if !groups.contains(&group) {
                        groups.push(group);
                    }
                }
                return Some(json!({"groups": groups}));
            }
            _ => {}
        }
        let version = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/api/"))?;
        let resources: Vec<Value> = self
            .kinds
            .iter()
            .filter(|kind| kind.api_version() == version)
            .map(|kind| {
                let singular = kind.kind.to_lowercase();
                json!({"name": kind.plural, "singularName": singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": ["get", "list"]})
            })
            .collect();
        (!resources.is_empty()).then(|| json!({"resources": resources}))
    }

    /// Returns the objects of a collection, of one namespace or of all, that the selectors of the query match.
    fn list(&self, path: &str, query: &str) -> Option<Value> {
        let kind = self.kinds.iter().find(|kind| {
            let all = all_path(kind);
            let (base, plural) = all.rsplit_once('/').unwrap_or_default();
            path == all
                || (path.starts_with(&format!("{base}/namespaces/")) && path.ends_with(&format!("/{plural}")))
        });
        // A kind without objects is an empty list.
        let Some(kind) = kind else {
            return path.rsplit('/').next().filter(|plural| is_plural(plural)).map(|_| json!({"items": []}));
        };
        let all = all_path(kind);
        let is_everywhere = path == all;
        let (base, plural) = all.rsplit_once('/')?;
        let inner = format!("/{plural}/");
        let is_member = |known: &str| match known.rsplit_once('/') {
            Some((collection, _)) if is_everywhere => {
                collection == all
                    || (known.starts_with(&format!("{base}/namespaces/")) && known.contains(&inner))
            }
            Some((collection, _)) => collection == path,
            None => false,
        };
        let options = Options::of(query);
        let items: Vec<&Value> = self
            .by_path
            .iter()
            .filter(|(known, object)| is_member(known) && options.matches(object))
            .map(|(_, object)| object)
            .collect();
        Some(
            json!({"apiVersion": kind.api_version(), "kind": format!("{}List", kind.kind), "metadata": {}, "items": items}),
        )
    }
}

/// Whether a segment of a path is the plural of a kind that the core knows.
fn is_plural(segment: &str) -> bool {
    Kind::all().into_iter().any(|kind| kind.resource().plural == segment)
}

/// The selectors of a list: labels that must be equal, and a name.
struct Options {
    labels: Vec<(String, String)>,
    name: Option<String>,
}

impl Options {
    fn of(query: &str) -> Self {
        let uri: Option<Uri> = format!("/?{query}").parse().ok();
        let pairs =
            uri.and_then(|uri| axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
        let pairs = pairs.map(|query| query.0).unwrap_or_default();
        let option =
            |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let labels = option("labelSelector").into_iter().flat_map(|selector| selector.split(','));
        let labels = labels.filter_map(|part| part.split_once('='));
        Self {
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.trim_start_matches('=').to_owned()))
                .collect(),
            name: option("fieldSelector")
                .and_then(|selector| selector.strip_prefix("metadata.name="))
                .map(str::to_owned),
        }
    }

    fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        self.labels
            .iter()
            .all(|(label, value)| labels.and_then(|labels| labels.get(label)?.as_str()) == Some(value))
            && self.name.as_deref().is_none_or(|wanted| name == Some(wanted))
    }
}

fn send(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response
}

fn failure(status: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": status.as_u16(),
    });
    send(status, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredObjects {
        let workload = |namespace: &str, name: &str, job: &str| {
            let metadata =
                json!({"namespace": namespace, "name": name, "labels": {"kueue.x-k8s.io/job-uid": job}});
            (
                Kind::Workload,
                json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata}),
            )
        };
        StoredObjects::of(vec![
            workload("a", "x", "1"),
            workload("a", "y", "2"),
            workload("b", "x", "3"),
            (Kind::ClusterQueue, json!({"metadata": {"name": "cq"}})),
        ])
    }

    #[test]
    fn objects_and_lists_have_the_paths_of_the_server() {
        let stored = stored();
        let base = "/apis/kueue.x-k8s.io/v1beta2";
        let names = |path: &str, query: &str| {
            let list = stored.list(path, query)?;
            let items = list["items"].as_array().unwrap().clone();
            Some(
                items
                    .iter()
                    .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(stored.by_path.contains_key(&format!("{base}/namespaces/a/workloads/x")));
        assert!(stored.by_path.contains_key(&format!("{base}/clusterqueues/cq")));
        for (path, query, expected) in [
            ("namespaces/a/workloads", "limit=5", vec!["x", "y"]),
            ("workloads", "", vec!["x", "y", "x"]),
            ("namespaces/a/workloads", "labelSelector=kueue.x-k8s.io%2Fjob-uid%3D2", vec!["y"]),
            ("namespaces/a/workloads", "fieldSelector=metadata.name%3Dx", vec!["x"]),
            ("clusterqueues", "", vec!["cq"]),
            ("namespaces/c/workloads", "", vec![]),
            ("namespaces/c/localqueues", "", vec![]),
        ] {
            assert_eq!(names(&format!("{base}/{path}"), query).unwrap(), expected, "{path}?{query}");
        }
        assert_eq!(names(&format!("{base}/clusterqueues/none"), ""), None);
        let versions = stored.discovery("/apis").unwrap();
        assert_eq!(versions["groups"][0]["preferredVersion"]["groupVersion"], "kueue.x-k8s.io/v1beta2");
        assert_eq!(stored.discovery(base).unwrap()["resources"].as_array().unwrap().len(), 2);
    }
}
