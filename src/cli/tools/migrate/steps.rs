//! The steps of both directions. The state of a step follows from the cluster: done, due changes, or a command for the user.

use serde_json::{Value, json};

use super::inventory::{DefinedKind, Inventory};
use super::leftovers::{self, Installation};
use super::obstacles::obstacles;
use super::owner::Situation;
use crate::cli::manager::settings;
use crate::kube::client::Content;

/// Required storage version of all objects.
pub(super) const STORED: &str = "v1beta2";

/// Direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToSluice,
    ToKueue,
}

/// One write on the API server.
pub(super) struct Change {
    /// Text about the change.
    pub(super) what: String,
    pub(super) verb: http::Method,
    pub(super) path: String,
    pub(super) content: Content,
    pub(super) body: Option<Value>,
}

impl Change {
    /// Deletes an object.
    pub(super) fn delete(path: &str) -> Self {
        Self {
            what: format!("delete {path}"),
            verb: http::Method::DELETE,
            path: path.to_owned(),
            content: Content::Json,
            body: None,
        }
    }

    /// Merges a patch into an object.
    fn merge(what: String, path: String, body: Value) -> Self {
        Self { what, verb: http::Method::PATCH, path, content: Content::Merge, body: Some(body) }
    }
}

/// State of a step.
pub(super) enum State {
    Done,
    /// Refused, with the reasons: it would lose something.
    Refused(Vec<String>),
    /// These writes are due.
    Changes(Vec<Change>),
    /// The user must run these commands.
    Command {
        lines: Vec<String>,
        waits_for: String,
    },
}

impl State {
    fn refused_by(reasons: Vec<String>) -> Self {
        if reasons.is_empty() { Self::Done } else { Self::Refused(reasons) }
    }

    fn due(changes: Vec<Change>) -> Self {
        if changes.is_empty() { Self::Done } else { Self::Changes(changes) }
    }
}

/// One step.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) state: fn(&Inventory) -> State,
}

/// Returns the steps of a direction, in their order.
pub(super) fn of(direction: Direction) -> Vec<Step> {
    let step = |title, state| Step { title, state };
    let preparation = [
        step("nothing stands in the way", |cluster| State::refused_by(obstacles(cluster))),
        step("the owner keeps the definitions", keep_definitions),
    ];
    let rest = match direction {
        Direction::ToSluice => vec![
            step("Sluice's manager replaces Kueue's", |cluster| replaced_by(cluster, Installation::Sluice)),
            step("no webhook entry of Kueue is unanswered", |cluster| {
                State::due(leftovers::stale_entries(cluster, Installation::Kueue))
            }),
            step("no visibility API points at nothing", |cluster| {
                without_dead_api_services(cluster, Installation::Kueue)
            }),
            step("nothing of Kueue acts or grants", |cluster| left(cluster, Installation::Kueue)),
            step("everything is stored in v1beta2", stored_in_one_version),
        ],
        Direction::ToKueue => vec![
            step("Kueue's manager replaces Sluice's", |cluster| replaced_by(cluster, Installation::Kueue)),
            step("no webhook entry of Sluice is left", |cluster| {
                State::due(leftovers::stale_entries(cluster, Installation::Sluice))
            }),
            step("no visibility API points at nothing", |cluster| {
                without_dead_api_services(cluster, Installation::Sluice)
            }),
            step("nothing of Sluice acts or grants", |cluster| left(cluster, Installation::Sluice)),
            step("everything is stored in v1beta2", stored_in_one_version),
        ],
    };
    preparation.into_iter().chain(rest).collect()
}

/// Keeps the definitions. An owner that deletes objects that its source no longer has would delete them between the two
/// installations.
fn keep_definitions(inventory: &Inventory) -> State {
    let mut changes = Vec::new();
    for (kind, definition) in
        inventory.kinds.iter().filter_map(|kind| Some((kind, kind.definition.as_ref()?)))
    {
        let Some((mark, value)) = inventory.owner().keeping_mark() else { continue };
        let annotations = definition.pointer("/metadata/annotations");
        if annotations.and_then(|all| all.get(mark)).is_none_or(|found| *found != value) {
            changes.push(Change::merge(
                format!("annotate {} with {mark}={value}", kind.name()),
                format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", kind.name()),
                json!({"metadata": {"annotations": {mark: value}}}),
            ));
        }
    }
    State::due(changes)
}

/// Returns whether the manager elects a leader; true if its configuration cannot be read.
fn elects_leader(inventory: &Inventory) -> bool {
    let text = inventory.configuration.as_deref().unwrap_or_default();
    let document = settings::document_of(text, "configuration", None).unwrap_or_default();
    document.pointer("/leaderElection/leaderElect") != Some(&Value::Bool(false))
}

fn replaced_by(inventory: &Inventory, new: Installation) -> State {
    match inventory.managers.awaited(new, elects_leader(inventory)) {
        None => State::Done,
        Some(waits_for) => {
            State::Command { lines: inventory.owner().replacement(&Situation::of(inventory, new)), waits_for }
        }
    }
}

fn without_dead_api_services(inventory: &Inventory, of: Installation) -> State {
    State::due(leftovers::deletions(&leftovers::dead_api_services(inventory, of)))
}

fn left(inventory: &Inventory, of: Installation) -> State {
    State::due(leftovers::deletions(&leftovers::with_effect(inventory, of)))
}

/// Writes each object of a kind that may be stored in another version, then removes that version from `storedVersions`. The
/// server stores an object again even if a write changes nothing.
fn stored_in_one_version(inventory: &Inventory) -> State {
    let mut changes = Vec::new();
    for kind in &inventory.kinds {
        let versions = kind.stored_versions();
        // A Kueue that stores another version would keep storing it.
        if versions.is_empty() || versions == [STORED] || kind.storage_version() != Some(STORED) {
            continue;
        }
        let objects = match &kind.objects {
            Ok(objects) => objects,
            Err(error) => return State::Refused(vec![format!("{} cannot be read: {error}", kind.name())]),
        };
        changes.extend(objects.iter().map(|object| store_again(kind, object)));
        changes.push(Change::merge(
            format!("{}: storedVersions is [{STORED}]", kind.name()),
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}/status", kind.name()),
            json!({"status": {"storedVersions": [STORED]}}),
        ));
    }
    State::due(changes)
}

fn store_again(kind: &DefinedKind, object: &Value) -> Change {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let (group, plural) = kind.path.rsplit_once('/').unwrap_or_default();
    let path = if namespace.is_empty() {
        format!("{}/{name}", kind.path)
    } else {
        format!("{group}/namespaces/{namespace}/{plural}/{name}")
    };
    Change::merge(format!("store {plural} {namespace}/{name} again"), path, json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tools::migrate::inventory::Placed;

    /// Position of a kind.
    fn position(inventory: &Inventory, name: &str) -> usize {
        inventory.kinds.iter().position(|kind| kind.name() == name).unwrap()
    }

    #[test]
    fn objects_are_stored_again_before_the_versions_say_so() {
        let mut inventory = Inventory::with_definitions();
        let workloads = position(&inventory, "workloads.kueue.x-k8s.io");
        inventory.kinds[workloads].objects = Ok(vec![json!({"metadata": {"namespace": "n", "name": "w"}})]);
        assert!(matches!(stored_in_one_version(&inventory), State::Done));
        let definition = inventory.kinds[workloads].definition.as_mut().unwrap();
        definition["status"] = json!({"storedVersions": ["v1beta1", "v1beta2"]});
        let State::Changes(changes) = stored_in_one_version(&inventory) else { panic!("nothing is due") };
        let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/apis/kueue.x-k8s.io/v1beta2/namespaces/n/workloads/w",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io/status"
            ]
        );
        inventory.kinds[workloads].objects = Err("429".to_owned());
        assert!(matches!(stored_in_one_version(&inventory), State::Refused(_)));
        // A version that an old Kueue stores.
        let versions =
            inventory.kinds[workloads].definition.as_mut().unwrap()["spec"]["versions"].as_array_mut();
        versions.unwrap()[0]["storage"] = false.into();
        assert!(matches!(stored_in_one_version(&inventory), State::Done));
    }

    #[test]
    fn no_defined_object_is_deleted() {
        let mut inventory = Inventory::with_definitions();
        let kueue = json!({"metadata": {"labels": {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}}});
        let own = json!({"metadata": {"labels": {"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "controller"}}});
        let paths = [
            "clusterrolebindings/a",
            "clusterroles/b",
            "services/kueue-visibility-server",
            "services/kueue-webhook-service",
        ];
        for object in [&kueue, &own] {
            let placed = paths.map(|path| Placed { path: format!("/x/{path}"), object: object.clone() });
            inventory.labelled.extend(placed);
            inventory
                .api_services
                .push(Placed { path: "/x/apiservices/v1".to_owned(), object: object.clone() });
        }
        for direction in [Direction::ToSluice, Direction::ToKueue] {
            let due = of(direction).into_iter().filter_map(|step| match (step.state)(&inventory) {
                State::Changes(changes) => Some(changes),
                _ => None,
            });
            let deleted: Vec<String> = due
                .flatten()
                .filter(|change| change.verb == http::Method::DELETE)
                .map(|change| change.path)
                .collect();
            assert_eq!(
                deleted,
                ["/x/apiservices/v1", "/x/clusterrolebindings/a", "/x/services/kueue-visibility-server"]
            );
        }
    }
}
