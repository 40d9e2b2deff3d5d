//! Finalizers of objects that others use: each is removed when its last user is gone, whatever the order of deletion.

use crate::fixtures::queue_cluster::Cluster;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

fn objects() -> [(Kind, Value); 4] {
    let spec = json!({"namespaceSelector": {},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "racks", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]});
    [
        (Kind::ClusterQueue, json!({"metadata": {"name": "q"}, "spec": spec})),
        (Kind::ResourceFlavor, json!({"metadata": {"name": "racks"}, "spec": {"topologyName": "t"}})),
        (Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})),
        (
            Kind::AdmissionCheck,
            json!({"metadata": {"name": "c"}, "spec": {"controllerName": "example.com/c"}}),
        ),
    ]
}

#[test]
fn finalizer_is_removed_when_last_user_is_gone() {
    // The order in which they are deleted, by index.
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1], [1, 0, 3, 2], [2, 0, 1, 3]] {
        let mut cluster = Cluster::new(CoreSettings::default());
        for (kind, object) in objects() {
            cluster.create(kind, object);
        }
        cluster.advance_tenths(20, |_, _| ());
        let key = |index: usize| {
            let (kind, object) = &objects()[index];
            (*kind, ObjectKey::cluster(object["metadata"]["name"].as_str().unwrap()))
        };
        for index in order {
            let (kind, key) = key(index);
            let finalizers = &cluster.server.get(kind, &key).unwrap()["metadata"]["finalizers"];
            assert_eq!(finalizers, &json!(["kueue.x-k8s.io/resource-in-use"]), "{key}");
            let now = cluster.now;
            cluster.server.delete(kind, &key, now);
            cluster.advance_tenths(20, |_, _| ());
        }
        let left: Vec<_> = (0..objects().len())
            .map(key)
            .filter(|(kind, key)| cluster.server.get(*kind, key).is_some())
            .collect();
        assert!(left.is_empty(), "deleted in the order {order:?}, these keep their finalizer: {left:?}");
    }
}
