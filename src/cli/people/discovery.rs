//! The resources of the API server, and the names that users give them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::pages::encoded;
use crate::kube::client::{CallError, Caller};

/// Content type of the discovery of all groups at once.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const NOT_FOUND: u16 = 404;

/// A resource that the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedResource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// Empty if the server does not have it.
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    short_names: Vec<String>,
}

impl ServedResource {
    /// Whether the resource is Workload, so that `TYPE/NAME` names the Workload itself and no job.
    pub(crate) fn is_workload(&self) -> bool {
        self.group == crate::api::GROUP && self.kind == "Workload"
    }

    /// Returns `plural.group`, or the plural alone of the core group.
    pub(crate) fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the path of the objects in a namespace; of all objects without a namespace, or if the resource has no
    /// namespaces.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let base = group_path(&self.api_version());
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{base}/namespaces/{}/{}", encoded(namespace), self.plural)
            }
            _ => format!("{base}/{}", self.plural),
        }
    }

    /// Returns the path of an object.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(Some(namespace)), encoded(name))
    }

    fn is_named(&self, name: &str) -> bool {
        let kind = self.kind.to_lowercase();
        self.plural == name
            || self.singular == name
            || kind == name
            || self.short_names.iter().any(|short| short == name)
    }
}

fn group_path(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

/// The resources of the server, read on demand and kept for the duration of the command.
pub(crate) struct Discovery<'a> {
    caller: &'a Caller,
    by_version: BTreeMap<String, Vec<ServedResource>>,
    all: Option<Vec<ServedResource>>,
}

impl<'a> Discovery<'a> {
    pub(crate) fn new(caller: &'a Caller) -> Self {
        Self { caller, by_version: BTreeMap::new(), all: None }
    }

    /// Returns the resource of a kind; `None` if the server has none.
    pub(crate) async fn of_kind(
        &mut self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ServedResource>, CallError> {
        if !self.by_version.contains_key(api_version) {
            let read = match self.caller.get(&group_path(api_version)).await {
                Ok(list) => resources_of_version(api_version, &list),
                Err(error) if error.code() == Some(NOT_FOUND) => Vec::new(),
                Err(error) => return Err(error),
            };
            self.by_version.insert(api_version.to_owned(), read);
        }
        let known = self.by_version.get(api_version).into_iter().flatten();
        Ok(known.into_iter().find(|resource| resource.kind == kind).cloned())
    }

    /// Returns the resource that a user means by `NAME`, `NAME.GROUP` or `NAME.VERSION.GROUP`: the first in the server's order.
    pub(crate) async fn find(&mut self, name: &str) -> Result<Option<ServedResource>, CallError> {
        let name = name.to_lowercase();
        if self.all.is_none() {
            self.all = Some(self.read_all().await?);
        }
        let all = self.all.as_deref().unwrap_or_default();
        let (resource, group) = name.split_once('.').unwrap_or((&name, ""));
        let full = group.split_once('.');
        let by_version = full.and_then(|(version, group)| {
            all.iter().find(|r| r.is_named(resource) && r.version == version && r.group == group)
        });
        let by_group = || all.iter().find(|r| r.is_named(resource) && (group.is_empty() || r.group == group));
        Ok(by_version.or_else(by_group).cloned())
    }

    async fn read_all(&self) -> Result<Vec<ServedResource>, CallError> {
        let core = self.caller.get_as("/api", AGGREGATED).await?;
        let groups = self.caller.get_as("/apis", AGGREGATED).await?;
        let mut all = Vec::new();
        for list in [&core, &groups] {
            if let Some(items) = list.get("items").and_then(Value::as_array) {
                all.extend(items.iter().flat_map(resources_of_group));
                continue;
            }
            // A server without aggregated discovery.
            let versions = list.get("versions").and_then(Value::as_array).into_iter().flatten();
            let core_versions = versions.filter_map(Value::as_str).map(str::to_owned);
            let named = list.get("groups").and_then(Value::as_array).into_iter().flatten();
            let preferred =
                named.filter_map(|group| group.pointer("/preferredVersion/groupVersion")?.as_str());
            for version in core_versions.chain(preferred.map(str::to_owned)).collect::<Vec<_>>() {
                match self.caller.get(&group_path(&version)).await {
                    Ok(list) => all.extend(resources_of_version(&version, &list)),
                    // A group that does not answer hides no other group.
                    Err(CallError::Status { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(all)
    }
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Reads an APIResourceList; subresources are left out.
fn resources_of_version(api_version: &str, list: &Value) -> Vec<ServedResource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resources = list.get("resources").and_then(Value::as_array).into_iter().flatten();
    let resources = resources.filter(|resource| !text(resource, "name").contains('/'));
    let read = |resource: &Value| ServedResource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: text(resource, "name"),
        singular: text(resource, "singularName"),
        kind: text(resource, "kind"),
        namespaced: resource.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
        short_names: texts(resource, "shortNames"),
    };
    resources.map(read).collect()
}

/// Reads an APIGroupDiscovery.
fn resources_of_group(group: &Value) -> Vec<ServedResource> {
    let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let versions = group.get("versions").and_then(Value::as_array).into_iter().flatten();
    let of_version = |version: &Value| {
        let number = text(version, "version");
        let resources = version.get("resources").and_then(Value::as_array).into_iter().flatten();
        let read = |resource: &Value| ServedResource {
            group: name.to_owned(),
            version: number.clone(),
            plural: text(resource, "resource"),
            singular: text(resource, "singularResource"),
            kind: resource
                .pointer("/responseKind/kind")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            namespaced: text(resource, "scope") == "Namespaced",
            short_names: texts(resource, "shortNames"),
        };
        resources.map(read).collect::<Vec<_>>()
    };
    versions.flat_map(of_version).collect()
}

/// Splits `TYPE/NAME`; `None` for a text without a slash.
pub(crate) fn type_and_name(text: &str) -> Result<Option<(&str, &str)>, String> {
    match text.split('/').collect::<Vec<_>>()[..] {
        [kind, name] => Ok(Some((kind, name))),
        [_] => Ok(None),
        _ => Err("arguments in resource/name form may not have more than one slash".to_owned()),
    }
}

/// Reads a flag that names a job.
pub(crate) fn job_name(text: &str) -> Result<String, String> {
    match type_and_name(text)? {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => Err("TYPE[.GROUP]/NAME expected".to_owned()),
    }
}

/// Reads a flag that names a Workload, or a job.
pub(crate) fn workload_name(text: &str) -> Result<String, String> {
    match type_and_name(text)? {
        None if !text.is_empty() => Ok(text.to_owned()),
        _ => job_name(text).map_err(|_| "NAME or TYPE[.GROUP]/NAME expected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_of_discovery_agree() {
        let list = json!({"resources": [
            {"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "shortNames": ["jb"]},
            {"name": "jobs/status", "singularName": "", "namespaced": true, "kind": "Job"},
        ]});
        let group = json!({"metadata": {"name": "batch"}, "versions": [{"version": "v1", "resources": [
            {"resource": "jobs", "responseKind": {"group": "", "version": "", "kind": "Job"}, "scope": "Namespaced",
             "singularResource": "job", "shortNames": ["jb"], "subresources": [{"subresource": "status"}]}]}]});
        let jobs = resources_of_version("batch/v1", &list);
        assert_eq!(jobs, resources_of_group(&group));
        let job = &jobs[0];
        assert_eq!((job.full_name().as_str(), job.api_version().as_str()), ("jobs.batch", "batch/v1"));
        assert_eq!(job.object("a", "b"), "/apis/batch/v1/namespaces/a/jobs/b");
        assert!(["job", "jobs", "jb"].iter().all(|name| job.is_named(name)) && !job.is_named("cronjob"));
    }

    #[test]
    fn names_have_one_slash() {
        assert_eq!(type_and_name("job/x"), Ok(Some(("job", "x"))));
        assert_eq!(type_and_name("x"), Ok(None));
        assert!(type_and_name("a/b/c").is_err());
        for (text, of_job, of_workload) in [
            ("job/x", true, true),
            ("x", false, true),
            ("", false, false),
            ("job/", false, false),
            ("/x", false, false),
            ("a/b/c", false, false),
        ] {
            assert_eq!(
                (job_name(text).is_ok(), workload_name(text).is_ok()),
                (of_job, of_workload),
                "{text}"
            );
        }
    }
}
