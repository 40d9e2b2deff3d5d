//! Watches the webhook configurations for whether Jobs without a queue are held back while no manager answers.

use std::collections::BTreeMap;

use ::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use ::kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;

use super::watch::{WatchSettings, watch_object};

/// The registered kinds, with their plurals.
const KINDS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];

/// Follows the two configurations by their names, the mutating one first, and tells whether each satisfies `holds`. Ends
/// only when it cannot watch any more.
pub async fn run(
    client: Client,
    names: [String; 2],
    watch: WatchSettings,
    holds: fn(&Value) -> bool,
    tell: impl Fn(bool),
) {
    let (sender, mut seen) = mpsc::channel(4);
    let mut watches = tokio::task::JoinSet::new();
    for ((kind, plural), name) in KINDS.into_iter().zip(names) {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        watches.spawn(watch_object(api, name, watch, sender.clone(), kind));
    }
    drop(sender);
    let mut known = BTreeMap::new();
    while let Some((kind, object)) = seen.recv().await {
        known.insert(kind, object.is_some_and(|object| holds(&object.data)));
        if known.len() == KINDS.len() {
            tell(known.values().all(|held| *held));
        }
    }
}
