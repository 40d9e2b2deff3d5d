//! Watches webhook configurations by name, to read what they cover and which manager they belong to.

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

/// Watches pairs of configurations by name, the mutating one of each pair first, and evaluates each state; `None` stands for a
/// configuration that does not exist, and the flag is true for a mutating one. Calls `on_change` with the results in the order
/// of the names, once all are known. Returns only if a watch ends.
pub async fn run<T: Clone>(
    client: Client,
    pairs: Vec<[String; 2]>,
    watch: WatchSettings,
    evaluate: impl Fn(Option<&Value>, bool) -> T,
    mut on_change: impl FnMut(Vec<T>),
) {
    let (sender, mut updates) = mpsc::channel(4);
    let mut watches = tokio::task::JoinSet::new();
    let names = pairs.into_iter().flat_map(|pair| KINDS.into_iter().zip(pair));
    for (index, ((kind, plural), name)) in names.enumerate() {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        watches.spawn(watch_object(api, name, watch, sender.clone(), index));
    }
    drop(sender);
    let mut results = BTreeMap::new();
    while let Some((index, object)) = updates.recv().await {
        // The mutating configuration of each pair comes first.
        results.insert(index, evaluate(object.as_ref().map(|object| &object.data), index % KINDS.len() == 0));
        if results.len() == watches.len() {
            on_change(results.values().cloned().collect());
        }
    }
}
