//! Description of an API group: versions and resources. Discovery, OpenAPI and routes follow from it, so that another group
//! needs only a description and a handler.

use axum::body::Bytes;
use axum::response::Response;
use futures::future::BoxFuture;
use serde_json::Value;

use super::front_proxy::User;
use super::negotiation::Format;

/// An API group.
#[derive(Clone, Copy, Debug)]
pub struct GroupDescription {
    /// DNS name of the group, as in `apiVersion`.
    pub name: &'static str,
    /// Versions, the preferred one first.
    pub versions: &'static [&'static str],
    /// Resources of all versions.
    pub resources: &'static [ResourceDescription],
    /// Returns the schemas of a version, by name without the prefix of `schema_prefix`.
    pub schemas: fn(version: &str) -> Vec<(&'static str, Value)>,
    /// Prefix of version and name in the names of schemas.
    pub schema_prefix: &'static str,
}

/// A resource.
#[derive(Clone, Copy, Debug)]
pub struct ResourceDescription {
    /// Plural name.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Short names.
    pub short_names: &'static [&'static str],
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Verbs; empty if only subresources are served.
    pub verbs: &'static [&'static str],
    /// Options of the query of its lists.
    pub options: &'static [QueryOption],
    /// Description in OpenAPI, as `kubectl explain` shows it.
    pub description: &'static str,
    /// Subresources, each a path segment after the name.
    pub subresources: &'static [SubresourceDescription],
}

/// A subresource.
#[derive(Clone, Copy, Debug)]
pub struct SubresourceDescription {
    /// Path segment of the subresource.
    pub name: &'static str,
    /// Kind of the answer, which is the name of its schema.
    pub kind: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Options of the query.
    pub options: &'static [QueryOption],
    /// Description in OpenAPI, as `kubectl explain` shows it.
    pub description: &'static str,
}

/// An option of a query.
#[derive(Clone, Copy, Debug)]
pub struct QueryOption {
    /// Name of the query parameter.
    pub name: &'static str,
    /// Type of the value, as in OpenAPI.
    pub kind: &'static str,
    /// Description in OpenAPI, as `kubectl explain` shows it.
    pub description: &'static str,
}

/// A request that the client may make.
#[derive(Clone, Debug)]
pub struct ResourceRequest {
    /// User of the request, authorized for the target.
    pub user: User,
    /// Requested resource or object.
    pub target: ResourcePath,
    /// Query of the URL.
    pub query: Option<String>,
    /// Form of the answer that the client prefers.
    pub format: Format,
    /// Body of a request to create; empty otherwise.
    pub body: Bytes,
}

impl ResourceRequest {
    /// Returns the first value of an option of the query.
    pub fn option(&self, name: &str) -> Option<String> {
        first_option(self.query.as_deref(), name)
    }
}

/// Returns the first value of an option of a query.
pub(super) fn first_option(query: Option<&str>, name: &str) -> Option<String> {
    let uri: http::Uri = format!("/?{}", query.unwrap_or_default()).parse().ok()?;
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok()?;
    pairs.0.into_iter().find(|(option, _)| option == name).map(|(_, value)| value)
}

/// A resource in the path of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath {
    /// Group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Subresource; empty for the resource itself.
    pub subresource: &'static str,
    /// Namespace; empty for resources of the cluster, and for lists of all namespaces.
    pub namespace: String,
    /// Name of the object; empty for lists.
    pub name: String,
}

/// Answers the requests to a group.
pub trait ApiGroup: Send + Sync {
    /// Returns the description of the group.
    fn description(&self) -> &'static GroupDescription;

    /// Answers a request with a verb of a described resource. The user is authorized already.
    fn answer(&self, request: ResourceRequest) -> BoxFuture<'static, Response>;
}

impl GroupDescription {
    /// Returns the version of this name.
    pub(super) fn version(&self, name: &str) -> Option<&'static str> {
        self.versions.iter().find(|version| **version == name).copied()
    }

    /// Parses a path below `/apis/GROUP/`. Returns version, resource, name and subresource, and the verbs on them.
    pub(super) fn parse(&self, path: &[String]) -> Option<(ResourcePath, &'static [&'static str])> {
        let (version, rest) = path.split_first()?;
        let version = self.version(version)?;
        let (namespace, rest) = match rest {
            [namespaces, namespace, rest @ ..] if namespaces == "namespaces" && !rest.is_empty() => {
                (Some(namespace), rest)
            }
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(name), None),
            [plural, name, subresource] => (plural, Some(name), Some(subresource)),
            _ => return None,
        };
        let resource = self.resources.iter().find(|known| known.plural == plural)?;
        // Namespaced objects may also be listed over all namespaces.
        let is_everywhere = resource.namespaced && namespace.is_none();
        if resource.namespaced != namespace.is_some() && !(is_everywhere && name.is_none()) {
            return None;
        }
        let (subresource, verbs) = match subresource {
            Some(name) => {
                let known = resource.subresources.iter().find(|known| known.name == name)?;
                (known.name, known.verbs)
            }
            None if resource.verbs.is_empty() => return None,
            None => ("", resource.verbs),
        };
        let path = ResourcePath {
            group: self.name,
            version,
            resource: resource.plural,
            subresource,
            namespace: namespace.cloned().unwrap_or_default(),
            name: name.cloned().unwrap_or_default(),
        };
        Some((path, verbs))
    }
}
