//! Obstacles to a switch: fields that a step would lose, managers that run beside it, and settings that the manager would
//! refuse.

use std::collections::BTreeSet;

use serde_json::Value;

use super::inventory::{DefinedKind, Inventory};
use super::schema;
use super::steps::STORED;
use crate::cli::manager::settings;

/// Versions that the definitions of Sluice have, with `config/v1beta1`.
const VERSIONS: [&str; 2] = ["v1beta1", STORED];

/// Fields of pods, each with the minor version of Kubernetes that no longer has it: no job of such a cluster has such a field,
/// but the definitions of an older Kueue do.
const GONE_FROM_PODS: [(&str, u32); 1] = [("workloadRef", 36)];

/// Returns the obstacles, one text for each.
pub(super) fn obstacles(inventory: &Inventory) -> Vec<String> {
    let managers = &inventory.managers;
    let (namespace, in_other_namespaces) = (&managers.namespace, managers.in_other_namespaces());
    if managers.deployment().is_none()
        && in_other_namespaces.is_empty()
        && inventory.kinds.iter().all(|kind| kind.definition.is_none())
    {
        let text = "neither Kueue nor Sluice is installed in this cluster: there is nothing to change; docs/install.md says how to \
                    install Sluice";
        return vec![text.to_owned()];
    }
    let mut found: Vec<String> = in_other_namespaces
        .into_iter()
        .map(|name| {
            format!("Deployment {name} runs a manager in another namespace than {namespace}: two would work; give its namespace with --namespace, or delete it")
        })
        .collect();
    for kind in &inventory.kinds {
        match &kind.definition {
            None => found.push(format!(
                "definition {} does not exist: apply it again, as the others; if it was deleted, all its objects were deleted with it",
                kind.name()
            )),
            Some(definition) => found.extend(of_kind(inventory, kind, definition)),
        }
    }
    if let Some(text) = &inventory.configuration {
        let checked = settings::document_of(text, "configuration", None)
            .and_then(|document| settings::checked("configuration", document));
        found.extend(checked.err().map(|error| format!("{error:#}")));
    }
    // A list that changes while its pages are read may have an object twice, and so give the same text twice.
    let mut seen = BTreeSet::new();
    found.retain(|text| seen.insert(text.clone()));
    found
}

fn of_kind(inventory: &Inventory, kind: &DefinedKind, definition: &Value) -> Vec<String> {
    let name = kind.name();
    let mut found = Vec::new();
    if definition.pointer("/metadata/deletionTimestamp").is_some() {
        found.push(format!("definition {name} is being deleted, and all its objects with it"));
    }
    let unknown = kind.stored_versions().into_iter().filter(|version| !VERSIONS.contains(version));
    found.extend(unknown.map(|version| {
        format!("{name}: objects may be stored in version {version}, which Sluice does not know: have them stored in {STORED}, and remove {version} from status.storedVersions")
    }));
    let Some(own) = schema::of_version(kind.own, STORED) else { return found };
    let Some(theirs) = schema::of_version(definition, STORED) else {
        found.push(format!("{name} has no version {STORED}: upgrade Kueue to 0.17 or newer first"));
        return found;
    };
    let lacking = schema::lacking(own, theirs);
    match &kind.objects {
        Ok(objects) => found.extend(losses(name, own, &lacking, objects)),
        // Without a manager nothing converts objects that are stored in another version. Starting one is the next step.
        Err(error) if inventory.managers.installation().is_some() => {
            found.push(format!("{name} cannot be read: {error}"));
        }
        Err(error) => {
            let used = lacking.iter().filter(|path| !is_gone(path, inventory.minor));
            let used: Vec<String> = used.map(|path| path.join(".")).collect();
            found.extend((!used.is_empty()).then(|| {
                format!(
                    "{name} cannot be read ({error}), and has fields that Sluice does not know ({}): start Kueue's manager again, so that the objects can be checked",
                    used.join(", ")
                )
            }));
        }
    }
    found
}

/// Returns whether a path is a field of pods that this minor version of Kubernetes no longer has.
fn is_gone(path: &[String], minor: Option<u32>) -> bool {
    let [.., template, spec, field] = path else { return false };
    let gone = GONE_FROM_PODS.iter().find(|(name, _)| name == field);
    template == "template" && spec == "spec" && gone.is_some_and(|(_, since)| minor >= Some(*since))
}

/// Returns the losses and refusals by Sluice's definitions, with one object for each field.
fn losses(kind: &str, own: &Value, lacking: &[Vec<String>], objects: &[Value]) -> Vec<String> {
    let of = |object: &Value| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        if namespace.is_empty() { format!("{kind}: {name}") } else { format!("{kind}: {namespace}/{name}") }
    };
    let dropped = lacking.iter().filter_map(|path| {
        let user = objects.iter().find(|object| schema::has(object, path))?;
        Some(format!("{} has {}, which Sluice does not know and would lose", of(user), path.join(".")))
    });
    let refused = objects.iter().filter_map(|object| {
        let (path, value) = schema::outside(own, object)?;
        Some(format!("{} has {path}: {value}, a value that Sluice does not know", of(object)))
    });
    dropped.chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tools::migrate::leftovers::Installation;
    use crate::cli::tools::migrate::managers::tests::deployment;
    use serde_json::json;

    /// Position of a kind.
    fn position(inventory: &Inventory, name: &str) -> usize {
        inventory.kinds.iter().position(|kind| kind.name() == name).unwrap()
    }

    /// Adds a field to the definition in the cluster.
    fn add_field(inventory: &mut Inventory, kind: usize, name: &str) {
        let versions = &mut inventory.kinds[kind].definition.as_mut().unwrap()["spec"]["versions"];
        let version = versions.as_array_mut().unwrap().iter_mut().find(|v| v["name"] == "v1beta2").unwrap();
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][name] =
            json!({"type": "string"});
    }

    fn expect(inventory: &Inventory, parts: &[&str]) {
        let found = obstacles(inventory);
        for part in parts {
            assert!(found.iter().any(|line| line.contains(part)), "{part}: {found:?}");
        }
        assert_eq!(found.len(), parts.len(), "{found:?}");
    }

    #[test]
    fn losses_are_refused() {
        let mut inventory = Inventory::with_definitions();
        expect(&inventory, &[]);
        let flavors = position(&inventory, "resourceflavors.kueue.x-k8s.io");
        let workloads = position(&inventory, "workloads.kueue.x-k8s.io");
        let queues = position(&inventory, "clusterqueues.kueue.x-k8s.io");
        let topologies = position(&inventory, "topologies.kueue.x-k8s.io");
        add_field(&mut inventory, queues, "future");
        expect(&inventory, &[]);
        inventory.kinds[queues].objects = Ok(vec![
            json!({"metadata": {"name": "a"}, "spec": {"future": "x"}}),
            json!({"metadata": {"name": "b"}, "spec": {"queueingStrategy": "Random"}}),
        ]);
        inventory.kinds[flavors].definition = None;
        inventory.kinds[workloads].definition.as_mut().unwrap()["metadata"]["deletionTimestamp"] =
            "2026-01-01T00:00:00Z".into();
        inventory.kinds[topologies].definition.as_mut().unwrap()["status"] =
            json!({"storedVersions": ["v1beta2", "v1"]});
        inventory.configuration =
            Some("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nunknown: 1\n".to_owned());
        expect(
            &inventory,
            &[
                "clusterqueues.kueue.x-k8s.io: a has spec.future",
                "b has spec.queueingStrategy: \"Random\"",
                "resourceflavors.kueue.x-k8s.io does not exist",
                "is being deleted",
                "topologies.kueue.x-k8s.io: objects may be stored in version v1,",
                "unknown",
            ],
        );
    }

    #[test]
    fn each_obstacle_is_listed_once() {
        let mut inventory = Inventory::with_definitions();
        let queues = position(&inventory, "clusterqueues.kueue.x-k8s.io");
        let object = json!({"metadata": {"name": "b"}, "spec": {"queueingStrategy": "Random"}});
        inventory.kinds[queues].objects = Ok(vec![object.clone(), object]);
        expect(&inventory, &["b has spec.queueingStrategy: \"Random\""]);
        inventory.kinds[queues].objects = Ok(Vec::new());
        inventory.configuration =
            Some("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nunknown: 1\n".to_owned());
        let found = obstacles(&inventory);
        let report = super::super::report::text(&inventory, &found);
        assert_eq!(report.matches("unknown: unknown field").count(), 1, "{report}");
    }

    #[test]
    fn unreadable_objects_wait_for_a_manager_unless_they_may_be_lost() {
        let mut inventory = Inventory::with_definitions();
        inventory.kinds[0].objects = Err("429".to_owned());
        expect(&inventory, &[]);
        add_field(&mut inventory, 0, "future");
        expect(&inventory, &["does not know (spec.future): start Kueue's manager again"]);
        inventory.managers.deployments = vec![deployment(Installation::Kueue, "kueue-system", 1)];
        expect(&inventory, &["cannot be read: 429"]);
    }

    /// Kueue 0.17 defines a field of pods of Kubernetes 1.35, which 1.36 no longer has.
    #[test]
    fn field_gone_from_pods_is_no_loss() {
        let mut inventory = Inventory::with_definitions();
        let workloads = position(&inventory, "workloads.kueue.x-k8s.io");
        let versions = &mut inventory.kinds[workloads].definition.as_mut().unwrap()["spec"]["versions"];
        let version = versions.as_array_mut().unwrap().iter_mut().find(|v| v["name"] == "v1beta2").unwrap();
        let pod_sets =
            &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["podSets"];
        pod_sets["items"]["properties"]["template"]["properties"]["spec"]["properties"]["workloadRef"] =
            json!({"type": "object"});
        inventory.kinds[workloads].objects = Err("429".to_owned());
        for (minor, parts) in [
            (Some(36), &[][..]),
            (Some(35), &["(spec.podSets.[].template.spec.workloadRef)"]),
            (None, &["workloadRef"]),
        ] {
            inventory.minor = minor;
            expect(&inventory, parts);
        }
    }

    #[test]
    fn wrong_namespace_and_missing_installation_are_named() {
        let mut inventory = Inventory::with_definitions();
        inventory.managers.deployments = vec![deployment(Installation::Kueue, "other", 1)];
        expect(
            &inventory,
            &["Deployment other/kueue-controller-manager runs a manager in another namespace"],
        );
        inventory.managers.deployments.clear();
        for kind in &mut inventory.kinds {
            kind.definition = None;
        }
        expect(&inventory, &["neither Kueue nor Sluice is installed"]);
        let old = json!({"spec": {"versions": [{"name": "v1beta1", "storage": true}]}});
        inventory.kinds[0].definition = Some(old);
        let found = obstacles(&inventory);
        assert!(found[0].contains("has no version v1beta2: upgrade Kueue"), "{found:?}");
    }
}
