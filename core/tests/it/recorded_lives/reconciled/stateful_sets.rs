//! The StatefulSet controller, for the sets that a LeaderWorkerSet consists of: pods with ordinals, made again when they are gone.

use super::super::{apply_act, text};
use super::plane::Plane;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::simulate::fake_api_server::key_of;

impl Plane {
    /// Performs a request on a set.
    pub(super) fn act_on_stateful_set(&mut self, act: &Value, name: &str) {
        if act["do"] == "delete" {
            self.stateful_sets.remove(name);
            return;
        }
        let set = if act["do"] == "create" {
            let mut set = act["body"].clone();
            set["metadata"]["uid"] = json!(format!("uid of set {}", text(&set["metadata"]["name"])));
            set
        } else {
            let mut set = self.stateful_sets[name].clone();
            apply_act(&mut set, act);
            set
        };
        self.stateful_sets.insert(text(&set["metadata"]["name"]).to_owned(), set);
    }

    /// Creates and deletes pods of sets, and deletes sets of which no owner is left.
    pub(super) fn scale_stateful_sets(&mut self) {
        let owners: Vec<Value> = self.harness.server.all(Kind::Job(self.kind)).cloned().collect();
        self.stateful_sets.retain(|_, set| {
            let owner = &set["metadata"]["ownerReferences"][0]["uid"];
            owners.iter().any(|object| object["metadata"]["uid"] == *owner)
        });
        let mut wanted: Vec<(ObjectKey, Value)> = Vec::new();
        for (name, set) in &self.stateful_sets {
            let start = set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
            let replicas = set["spec"]["replicas"].as_i64().unwrap_or(1);
            for ordinal in start..start + replicas {
                let (pod, key) = (format!("{name}-{ordinal}"), self.key(&format!("{name}-{ordinal}")));
                let mut made = set["spec"]["template"].clone();
                made["metadata"]["name"] = json!(pod);
                made["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
                made["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(pod);
                let owner = json!({
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "controller": true,
                    "uid": set["metadata"]["uid"],
                });
                made["metadata"]["ownerReferences"] = json!([owner]);
                made["set"] = json!(name);
                wanted.push((key, made));
            }
        }
        let gone: Vec<ObjectKey> = self
            .harness
            .server
            .all(Kind::Pod)
            .filter(|pod| pod["set"].is_string() && pod["metadata"].get("deletionTimestamp").is_none())
            .map(key_of)
            .filter(|key| wanted.iter().all(|(wanted, _)| wanted != key))
            .collect();
        for key in gone {
            self.delete(Kind::Pod, &key);
        }
        for (key, pod) in wanted {
            if self.harness.server.get(Kind::Pod, &key).is_none() {
                let annotations = &pod["metadata"]["annotations"];
                let held = annotations["kueue.x-k8s.io/pod-suspending-parent"].is_string();
                self.create_pod(pod, held);
            }
        }
    }
}
