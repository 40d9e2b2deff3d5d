//! Objects that one installation leaves behind after the other has replaced it.

use serde_json::Value;

use super::inventory::{Inventory, Placed};
use super::steps::Change;
use crate::admission;
use crate::kube::client::Content;

/// Suffixes of entries that only Sluice has.
const OWN_ENTRIES: [&str; 2] = ["-default-queue.kb.io", "-no-queue.kb.io"];

/// The installation that an object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installation {
    Kueue,
    Sluice,
}

impl Installation {
    /// Returns the other installation.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Kueue => Self::Sluice,
            Self::Sluice => Self::Kueue,
        }
    }
}

/// Returns a label of an object.
pub(super) fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(name)?.as_str()
}

/// Returns the installation that alone has applied an object. Kueue labels all its objects with `control-plane`, Sluice with a
/// component. An object with both labels was applied by both installations, because the labels of the first one stay unless the
/// second one uses the same field manager.
pub(super) fn installation(object: &Value) -> Option<Installation> {
    let component = label(object, "app.kubernetes.io/component");
    let own = component.is_some_and(|component| ["controller", "webhooks"].contains(&component));
    match (own, label(object, "control-plane").is_some()) {
        (true, false) => Some(Installation::Sluice),
        (false, true) => Some(Installation::Kueue),
        (true, true) | (false, false) => None,
    }
}

/// Returns the objects of an installation that the other one does not need, and that have effects: bindings, policies and
/// Services.
pub(super) fn with_effect(inventory: &Inventory, of: Installation) -> Vec<&Placed> {
    let has_effect = |placed: &&Placed| {
        let path = &placed.path;
        let kinds =
            ["bindings/", "/poddisruptionbudgets/", "/networkpolicies/", "/mutatingadmissionpolicies/"];
        let is_service = path.contains("/services/")
            && ["-visibility-server", "-conversion-service"].iter().any(|name| path.ends_with(name));
        is_service || kinds.iter().any(|kind| path.contains(kind))
    };
    let own = inventory.labelled.iter().filter(|placed| installation(&placed.object) == Some(of));
    own.filter(has_effect).collect()
}

/// Returns the deletions of these objects.
pub(super) fn deletions(placed: &[&Placed]) -> Vec<Change> {
    placed.iter().map(|placed| Change::delete(&placed.path)).collect()
}

/// Returns the changes that remove webhook entries: of Sluice's, the entries that Kueue does not have; of Kueue's, the entries
/// at paths that Sluice does not serve. Each change fails if the entries have changed since they were read.
pub(super) fn stale_entries(inventory: &Inventory, of: Installation) -> Vec<Change> {
    let is_stale = |entry: &Value| {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        let path = entry.pointer("/clientConfig/service/path").and_then(Value::as_str);
        match of {
            Installation::Sluice => OWN_ENTRIES.iter().any(|suffix| name.ends_with(suffix)),
            Installation::Kueue => path.is_some_and(|path| admission::paths().all(|served| served != path)),
        }
    };
    inventory.webhooks.iter().filter_map(|placed| without_entries(placed, is_stale)).collect()
}

fn without_entries(placed: &Placed, is_stale: impl Fn(&Value) -> bool) -> Option<Change> {
    let entries = placed.object.get("webhooks")?.as_array()?;
    let (stale, kept): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(|entry| is_stale(entry));
    let names: Vec<&str> = stale.iter().filter_map(|entry| entry.get("name")?.as_str()).collect();
    (!names.is_empty()).then(|| {
        let version = placed.object.pointer("/metadata/resourceVersion");
        let body = serde_json::json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/webhooks", "value": kept},
        ]);
        Change {
            what: format!("remove from {} the entries {}", placed.path, names.join(", ")),
            verb: http::Method::PATCH,
            path: placed.path.clone(),
            content: Content::JsonPatch,
            body: Some(body),
        }
    })
}

/// Returns the APIServices of an installation that the API server cannot reach: while they exist, no namespace can be deleted.
pub(super) fn dead_api_services(inventory: &Inventory, of: Installation) -> Vec<&Placed> {
    let is_dead =
        |placed: &&Placed| installation(&placed.object) == Some(of) && !is_available(&placed.object);
    inventory.api_services.iter().filter(is_dead).collect()
}

/// Returns whether the API server reaches an APIService.
pub(super) fn is_available(api_service: &Value) -> bool {
    let conditions = api_service.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Available" && c["status"] == "True"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn placed(path: &str, object: Value) -> Placed {
        Placed { path: path.to_owned(), object }
    }

    #[test]
    fn installations_differ_by_labels() {
        let of = |labels: Value| installation(&json!({"metadata": {"labels": labels}}));
        let own = json!({"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "controller"});
        assert_eq!(of(own), Some(Installation::Sluice));
        let both =
            json!({"control-plane": "controller-manager", "app.kubernetes.io/component": "controller"});
        assert_eq!(of(both), None);
        assert_eq!(of(json!({"app.kubernetes.io/name": "kueue"})), None, "a user's");
        let service =
            json!({"control-plane": "controller-manager", "app.kubernetes.io/component": "metrics-service"});
        assert_eq!(of(service), Some(Installation::Kueue));
    }

    #[test]
    fn only_entries_that_nothing_serves_are_removed() {
        let entry =
            |name: &str, path: &str| json!({"name": name, "clientConfig": {"service": {"path": path}}});
        let object = json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
            entry("mjob.kb.io", "/mutate-batch-v1-job"),
            entry("mfuture.kb.io", "/mutate-future"),
            entry("mjob-default-queue.kb.io", "/mutate-batch-v1-job"),
        ]});
        let inventory = Inventory { webhooks: vec![placed("/w", object)], ..Inventory::with_definitions() };
        let kept = |of| {
            let body = stale_entries(&inventory, of).remove(0).body.unwrap();
            let names = body[1]["value"].as_array().unwrap().iter().map(|e| e["name"].to_string());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(kept(Installation::Kueue), r#""mjob.kb.io" "mjob-default-queue.kb.io""#);
        assert_eq!(kept(Installation::Sluice), r#""mjob.kb.io" "mfuture.kb.io""#);
    }
}
