//! A pending Workload whose quota is free and whose nodes are full: said once, then what is on them. The page of the flavor shows it,
//! to a tenant its own part.

use crate::fixtures::offline_objects::{kueue, meta, queues, workload};
use crate::views::obstacles::{LOOK, why};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::dashboard::{FlavorPage, FlavorQuery, HeatCell, Page, Request, Scope, build};
use sluice::people::views::why as why_text;
use sluice::reconciler::CoreSettings;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::flavors;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::ModelError;
use sluice::visibility::views::{Answer, ChangeKind, OccupantView, Source, SourceKind};

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
    objects.push(on_one_host("waits", 2));
    objects
}

/// A pending workload of which all pods need one host.
fn on_one_host(name: &str, pods: u32) -> Value {
    let mut waits = workload(name, "q", &[pods], false);
    waits["spec"]["podSets"][0]["topologyRequest"] = json!({"required": "kubernetes.io/hostname"});
    waits
}

/// The queue has 14 CPUs left, and the workloads ahead ask for more: as long as no node has room, that is no obstacle.
#[test]
fn no_quota_is_asked_for_where_nodes_alone_are_in_the_way() {
    for strategy in ["BestEffortFIFO", "StrictFIFO"] {
        let mut objects = objects();
        objects.extend((0..6).map(|index| {
            let mut ahead = on_one_host(&format!("ahead-{index}"), 3);
            ahead["spec"]["priority"] = json!(9);
            ahead
        }));
        let is_queue = |object: &&mut Value| object["kind"] == "ClusterQueue";
        objects.iter_mut().find(is_queue).unwrap()["spec"]["queueingStrategy"] = json!(strategy);
        let quota_lines = |objects: &[Value]| {
            let found = why(objects, "waits");
            let lines = found.options.iter();
            let lines = lines.filter(|option| matches!(option.kind, ChangeKind::Wait | ChangeKind::Quota));
            let lines: Vec<String> = lines.map(|option| option.detail.clone()).collect();
            let answer = Answer { view: found, source: Source::default(), partial: false };
            (lines, why_text(&answer, false, LOOK))
        };
        let (lines, text) = quota_lines(&objects);
        assert!(lines.is_empty(), "{strategy}: {lines:?}");
        assert!(!text.contains("must be released") && !text.contains("would be enough"), "{text}");
        // With less quota than the workload asks for, quota is in the way, too.
        let queue = objects.iter_mut().find(is_queue).unwrap();
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("7");
        let (lines, _) = quota_lines(&objects);
        assert_eq!(lines.len(), 2, "{strategy}: {lines:?}");
    }
}

#[test]
fn what_is_on_full_nodes_is_named() {
    let found = why(&objects(), "waits");
    let option = found.options.iter().find(|option| option.kind == ChangeKind::Topology).unwrap();
    assert_eq!(option.detail, "on its nodes are n1: ns/on-n1 (3 cpu); n2: ns/on-n2 (3 cpu)");
    let text = why_text(&Answer { view: found, source: Source::default(), partial: false }, false, LOOK);
    assert_eq!(text.matches("allows to fit only").count(), 1, "{text}");
}

/// Assignments have hosts alone; the topology's other levels come from the nodes, also from one that takes no pods at present.
#[test]
fn a_host_is_named_below_its_domains() {
    let mut objects = objects();
    let rack = "example.com/rack";
    for object in &mut objects {
        match object["kind"].as_str().unwrap() {
            "Topology" => {
                object["spec"]["levels"] =
                    json!([{"nodeLabel": rack}, {"nodeLabel": "kubernetes.io/hostname"}]);
            }
            "Node" => object["metadata"]["labels"][rack] = json!("r7"),
            _ => {}
        }
    }
    let domains = |objects: &[Value]| {
        let admission = why(objects, "on-n2").admission.unwrap();
        admission.pod_sets[0].domains.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(domains(&objects), ["r7/n2"]);
    let is_host = |object: &&mut Value| object["kind"] == "Node" && object["metadata"]["name"] == "n2";
    objects.iter_mut().find(is_host).unwrap()["spec"] = json!({"unschedulable": true});
    assert_eq!(domains(&objects), ["r7/n2"]);
    objects.retain(|object| object["kind"] != "Node");
    assert_eq!(domains(&objects), ["n2"], "the node is gone");
}

/// Returns each cell of a map that has workloads, with their names and amounts.
fn occupied(page: &FlavorPage) -> Vec<String> {
    let blocks = page.map.iter().flat_map(|map| &map.blocks);
    let cells = blocks.flat_map(|block| &block.rows).flat_map(|row| &row.cells);
    let text = |cell: &HeatCell| {
        let name =
            |there: &OccupantView| format!("{}/{} {}", there.namespace, there.name, there.amount.value);
        let names: Vec<String> = cell.workloads.iter().map(name).collect();
        format!("{}: {}", cell.name, names.join(", "))
    };
    cells.filter(|cell| !cell.workloads.is_empty() || cell.others > 0).map(text).collect()
}

#[test]
fn a_flavor_shows_a_tenant_its_own_nodes_and_a_sum() {
    let mut all = objects();
    let foreign = all.iter_mut().find(|object| object["metadata"]["name"] == "on-n1").unwrap();
    foreign["metadata"]["namespace"] = json!("other");
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let mut state = OfflineState::load(CoreSettings::default(), all, (SourceKind::File, now));
    let report = state.capacity(&flavors::question(Some("f"), "", "").unwrap());
    let page = |access: &Access, namespace: &str| {
        let query =
            FlavorQuery { flavor: "f".to_owned(), namespace: namespace.to_owned(), ..FlavorQuery::default() };
        build::flavor_page(state.snapshot(), access, (&query, Source::default()), &report)
    };
    let everything = page(&Access::everything(), "").unwrap();
    assert_eq!(occupied(&everything), ["n1: other/on-n1 3", "n2: ns/on-n2 3"]);
    let own = page(&Access::to_namespace("ns", TenantDetail::Sums), "ns").unwrap();
    assert_eq!(occupied(&own), ["n2: ns/on-n2 3"]);
    let rest = own.map.as_ref().and_then(|map| map.rest.as_ref()).unwrap();
    assert_eq!((rest.domains, rest.free.value.as_str()), (1, "1"));
    let text = own.json().unwrap();
    for hidden in ["on-n1", "\"n1\"", "\"other\""] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    // Queues of `other` have no flavor, the second viewer sees another namespace, the third no sums.
    for (access, namespace) in [
        (Access::to_namespace("other", TenantDetail::Sums), "other"),
        (Access::to_namespace("other", TenantDetail::Sums), "ns"),
        (Access::to_namespace("ns", TenantDetail::None), "ns"),
        (Access::to_namespace("ns", TenantDetail::Sums), ""),
    ] {
        assert_eq!(page(&access, namespace), Err(ModelError::NotFound));
    }
}

/// A tenant asks for the pods that fit, and gets the counts of `capacity --queue`, without a command that is refused.
#[test]
fn a_tenant_gets_the_capacity_of_its_queues() {
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let mut state = OfflineState::load(CoreSettings::default(), objects(), (SourceKind::File, now));
    let access = Access::to_namespace("ns", TenantDetail::Sums);
    let asked = state.capacity(&flavors::question(None, "cpu=1", "").unwrap());
    let key = ObjectKey::new("ns", "q");
    let expected = flavors::queue_capacity(state.snapshot(), &access, (&key, Some(&asked))).unwrap();
    let largest = expected.flavors[0].levels.iter().map(|level| level.largest_gang).max();
    assert_eq!(largest, Some(2), "{expected:?}");
    for flavor in [None, Some("f")] {
        let report = state.capacity(&flavors::question(flavor, "cpu=1", "").unwrap());
        let query = FlavorQuery {
            flavor: flavor.unwrap_or_default().to_owned(),
            pod: "cpu=1".to_owned(),
            namespace: "ns".to_owned(),
            ..FlavorQuery::default()
        };
        let source = Source::default();
        let page = build::flavor_page(state.snapshot(), &access, (&query, source), &report).unwrap();
        assert_eq!(page.local_queues, std::slice::from_ref(&expected), "{flavor:?}");
        let request = Request { scope: Scope::Namespace("ns".to_owned()), ..Request::default() };
        let html = page.html(&request).unwrap();
        assert!(html.contains("Pods of cpu=1</th>") && !html.contains("what-if --"), "{html}");
    }
}

/// Charged workloads without pods are on no node of a flavor without a topology yet: each line of an answer counts them as used.
#[test]
fn a_job_has_one_count_in_all_lines() {
    for (charged, gang, copies) in [(0, 2, 1), (1, 1, 0), (2, 0, 0)] {
        let mut objects = objects();
        objects.retain(|object| object["kind"] != "Topology");
        objects[1]["spec"] = json!({"nodeLabels": {"pool": "f"}});
        for object in objects.iter_mut().filter(|object| object["kind"] == "Workload") {
            object["spec"]["podSets"][0].as_object_mut().unwrap().remove("topologyRequest");
            if let Some(sets) = object.pointer_mut("/status/admission/podSetAssignments") {
                sets[0].as_object_mut().unwrap().remove("topologyAssignment");
            }
        }
        if charged > 0 {
            objects.push(workload("charged", "q", &[charged], true));
        }
        let now = "2027-01-15T09:00:00Z".parse().unwrap();
        let mut state = OfflineState::load(CoreSettings::default(), objects, (SourceKind::File, now));
        let report = state.capacity(&flavors::question(Some("f"), "", "ns/waits").unwrap());
        for queue in [None, Some("q")] {
            let found = flavors::flavors(state.snapshot(), &Access::everything(), (&report, queue)).unwrap();
            let (level, job) = (found[0].levels.last().unwrap(), found[0].job.as_ref().unwrap());
            assert_eq!((level.largest_gang, job.copies), (gang, copies), "{charged} {queue:?}: {job:?}");
            assert_eq!(found[0].resources[0].free.value, gang.to_string());
            assert!(job.limited_by.ends_with("free beside what is charged"), "{}", job.limited_by);
        }
    }
}
