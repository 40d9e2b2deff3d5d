//! Discovery: which groups, versions and resources there are, in all forms that API servers and clients ask for.
//!
//! Invariant: it is answered without lists, rights or calls, because an API server that gets no answer counts the group as
//! unavailable, which keeps every namespace of the cluster from being deleted.

use serde_json::{Value, json};

use super::group::{GroupDescription, ResourceDescription};
use super::negotiation::accepted;

/// Form of the answer to `/apis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discovery {
    /// Groups, versions and resources in one answer, in this version of its group.
    Aggregated(&'static str),
    /// Groups and versions without resources.
    Groups,
}

impl Discovery {
    /// Returns the known form that the client prefers; `None` if it accepts none.
    pub(super) fn of(header: Option<&str>) -> Option<Self> {
        accepted(header).iter().filter(|one| one.is_json()).find_map(|one| match one.parameter("as") {
            "" => Some(Self::Groups),
            "APIGroupDiscoveryList" if one.parameter("g") == "apidiscovery.k8s.io" => {
                ["v2", "v2beta1"].into_iter().find(|v| *v == one.parameter("v")).map(Self::Aggregated)
            }
            _ => None,
        })
    }

    /// Returns the media type of the answer.
    pub(super) fn media_type(self) -> String {
        match self {
            Self::Aggregated(version) => {
                format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
            }
            Self::Groups => "application/json".to_owned(),
        }
    }

    /// Returns the answer about groups.
    pub(super) fn document<'a>(self, groups: impl Iterator<Item = &'a GroupDescription>) -> Value {
        match self {
            Self::Aggregated(version) => json!({
                "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
                "metadata": {}, "items": groups.map(aggregated_group).collect::<Vec<_>>(),
            }),
            Self::Groups => json!({
                "kind": "APIGroupList", "apiVersion": "v1",
                "groups": groups.map(group_with_versions).collect::<Vec<_>>(),
            }),
        }
    }
}

fn group_with_versions(group: &GroupDescription) -> Value {
    let version =
        |version: &&str| json!({"groupVersion": format!("{}/{version}", group.name), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// Returns the answer to `/apis/GROUP`.
pub(super) fn group(group: &GroupDescription) -> Value {
    let mut document = group_with_versions(group);
    if let Some(fields) = document.as_object_mut() {
        fields.insert("kind".into(), "APIGroup".into());
        fields.insert("apiVersion".into(), "v1".into());
    }
    document
}

fn add_short_names(entry: &mut Value, resource: &ResourceDescription) {
    if let Some(fields) = entry.as_object_mut().filter(|_| !resource.short_names.is_empty()) {
        fields.insert("shortNames".into(), json!(resource.short_names));
    }
}

/// Returns the answer to `/apis/GROUP/VERSION`.
pub(super) fn resources(group: &GroupDescription, version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in group.resources {
        let ResourceDescription { plural, singular, kind, namespaced, verbs, subresources, .. } = resource;
        let mut entry = json!({
            "name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs,
        });
        add_short_names(&mut entry, resource);
        resources.push(entry);
        for part in *subresources {
            resources.push(json!({
                "name": format!("{plural}/{}", part.name), "singularName": "", "namespaced": namespaced,
                "kind": part.kind, "verbs": part.verbs,
            }));
        }
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{}/{version}", group.name),
        "resources": resources,
    })
}

fn aggregated_group(group: &GroupDescription) -> Value {
    let version = |version: &&str| {
        let response = |kind: &str| json!({"group": group.name, "version": version, "kind": kind});
        let resource = |resource: &ResourceDescription| {
            let parts = resource.subresources.iter().map(|part| {
                json!({"subresource": part.name, "responseKind": response(part.kind), "verbs": part.verbs})
            });
            let mut entry = json!({
                "resource": resource.plural, "responseKind": response(resource.kind),
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": resource.singular, "verbs": resource.verbs,
                "subresources": parts.collect::<Vec<_>>(),
            });
            add_short_names(&mut entry, resource);
            entry
        };
        let resources: Vec<Value> = group.resources.iter().map(resource).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"metadata": {"name": group.name}, "versions": versions})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_discovery_is_answered_only_where_it_is_asked_for() {
        let both = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        for (header, expected) in [
            (None, Some(Discovery::Groups)),
            (Some("application/json"), Some(Discovery::Groups)),
            (Some(both), Some(Discovery::Aggregated("v2"))),
            (
                Some("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
                Some(Discovery::Aggregated("v2beta1")),
            ),
            (Some("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList"), None),
            (Some("application/vnd.kubernetes.protobuf"), None),
        ] {
            assert_eq!(Discovery::of(header), expected, "{header:?}");
        }
        let media = Discovery::Aggregated("v2").media_type();
        assert_eq!(Discovery::of(Some(&media)), Some(Discovery::Aggregated("v2")));
    }
}
