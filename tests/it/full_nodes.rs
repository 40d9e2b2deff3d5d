//! A pending Workload whose quota is free and whose nodes are full: said once, then what is on them.

use crate::verdict_lines::{kueue, meta, queues, workload};
use serde_json::{Value, json};
use sluice::people::views::{Look, why as why_text};
use sluice::reconciler::CoreSettings;
use sluice::visibility::access::Access;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::views::{Answer, ChangeKind, Source, SourceKind, Verdict};

const LOOK: Look = Look {
    utf8: true,
    color: false,
    width: None,
    headings: true,
    wide: false,
    labels: false,
    csv: false,
    now: jiff::Timestamp::UNIX_EPOCH,
    offset: jiff::tz::Offset::UTC,
};

/// Two nodes of 4 CPUs, each with a workload of 3, and one that needs 2 on a host.
fn objects() -> Vec<Value> {
    let mut objects = queues(&[("q", 20, json!({"cohortName": null}))]);
    objects[1]["spec"] = json!({"nodeLabels": {"pool": "f"}, "topologyName": "t"});
    let host = "kubernetes.io/hostname";
    objects.push(kueue("Topology", "t", "", &json!({"levels": [{"nodeLabel": host}]})));
    for name in ["n1", "n2"] {
        let mut node = meta(name, "");
        node["labels"] = json!({"pool": "f", host: name});
        let status = json!({"allocatable": {"cpu": "4", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]});
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": node, "status": status}));
        let mut runs = workload(&format!("on-{name}"), "q", &[3], true);
        runs["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({"levels": [host],
            "slices": [{"domainCount": 1, "podCounts": {"universal": 3}, "valuesPerLevel": [{"universal": name}]}]});
        objects.push(runs);
    }
    let mut waits = workload("waits", "q", &[2], false);
    waits["spec"]["podSets"][0]["topologyRequest"] = json!({"required": host});
    objects.push(waits);
    objects
}

fn why() -> Verdict {
    let workload = WorkloadName::parse("waits", "ns");
    let question =
        VerdictQuestion { access: Access::everything(), workload, before: None, queue: None, priority: None };
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    OfflineState::load(CoreSettings::default(), objects(), (SourceKind::File, now))
        .verdict(&question)
        .unwrap()
}

#[test]
fn what_is_on_full_nodes_is_named() {
    let found = why();
    let option = found.options.iter().find(|option| option.kind == ChangeKind::Topology).unwrap();
    assert_eq!(option.detail, "on its nodes are n1: ns/on-n1 (3 cpu); n2: ns/on-n2 (3 cpu)");
    let text = why_text(&Answer { view: found, source: Source::default(), partial: false }, false, LOOK);
    assert_eq!(text.matches("allows to fit only").count(), 1, "{text}");
}
