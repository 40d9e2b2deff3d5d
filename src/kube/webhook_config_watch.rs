//! Watches the webhook configurations to learn whether Jobs without a queue are held back while no manager responds.

use std::collections::BTreeMap;

use ::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use ::kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;

use super::watch::{WatchSettings, watch_object};

/// The watched kinds, with their plurals.
const KINDS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];

/// Watches two configurations by name, the mutating one first, and calls `on_change` with whether both satisfy `predicate`.
/// Returns only if a watch ends.
pub async fn run(
    client: Client,
    names: [String; 2],
    watch: WatchSettings,
    predicate: fn(&Value) -> bool,
    on_change: impl Fn(bool),
) {
    let (sender, mut updates) = mpsc::channel(4);
    let mut watches = tokio::task::JoinSet::new();
    for ((kind, plural), name) in KINDS.into_iter().zip(names) {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        watches.spawn(watch_object(api, name, watch, sender.clone(), kind));
    }
    drop(sender);
    let mut results = BTreeMap::new();
    while let Some((kind, object)) = updates.recv().await {
        results.insert(kind, object.is_some_and(|object| predicate(&object.data)));
        if results.len() == KINDS.len() {
            on_change(results.values().all(|holds| *holds));
        }
    }
}
