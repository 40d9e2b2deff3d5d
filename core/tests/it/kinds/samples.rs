//! The samples are complete.

use crate::fixtures::job_samples::{decode, stored, submitted};
use serde_json::json;
use sluice_core::api::validation::Gates;
use sluice_core::frameworks::{Role, frameworks};

/// A sample is suspended, names the queue of the samples, and has pod sets that request resources.
#[test]
fn every_served_kind_has_a_sample() {
    for kind in frameworks() {
        let sample = submitted(kind);
        let name = kind.gvk.kind;
        assert_eq!((&sample["apiVersion"], &sample["kind"]), (&json!(kind.gvk.api_version()), &json!(name)));
        assert_eq!(sample["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a-queue", "{name}");
        assert!(sample["metadata"]["generateName"].is_string(), "{name}: it can be created twice");
        if kind.role != Role::Suspended {
            let held = kind.is_pod() || !kind.mark_templates(&sample, &Gates::default()).is_empty();
            assert!(held, "{name}: its webhook holds its pods");
            continue;
        }
        let view = decode(kind, &stored(kind)).unwrap();
        assert!(view.suspended && view.status.finished.is_none(), "{name}");
        for pointer in kind.template_pointers(&sample) {
            let container = &sample.pointer(&pointer).unwrap()["spec"]["containers"][0];
            assert!(container["resources"]["requests"]["cpu"].is_string(), "{name}: {container}");
        }
        assert!(!view.pod_sets.is_empty(), "{name}");
    }
}
