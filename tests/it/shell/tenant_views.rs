//! The group of views for a tenant, resource by resource: each is forbidden in the cluster, and in the own namespace names no other
//! tenant. A resource or subresource without a row fails.

use crate::fixtures::tenants::{SECRET, core};
use crate::shell::views::Views;
use sluice::server::apis::views::GROUP;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::questions::Question;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Resource and subresource, and what follows the resource in paths of the own namespace.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// Resources of which this replica answers from its state.
const OF_STATE: [Row; 5] = [
    (
        "workloadviews",
        "",
        &[
            "",
            "?fieldSelector=status%3Dall",
            "?fieldSelector=clusterQueue%3Dcq,status%3Dpending",
            "?fieldSelector=localQueue%3Dsecret-lq",
            "?fieldSelector=mine%3Dtrue,status%3Dall",
            "/was-preempted",
        ],
    ),
    (
        "workloadviews",
        "verdict",
        &["/waits/verdict", "/was-preempted/verdict", "/runs/verdict", "/waits/verdict?when=true"],
    ),
    ("localqueueviews", "", &["", "/lq"]),
    ("localqueueviews", "capacity", &["/lq/capacity", "/lq/capacity?pod=cpu%3D1"]),
    ("findings", "", &[""]),
];
/// Resources of which the leader answers from its history, with the access that it is given.
const OF_HISTORY: [Row; 3] = [
    ("preemptions", "", &["", "?preemptor=secret-head"]),
    ("usagereports", "", &["", "?by=namespace"]),
    ("usagerecords", "", &["", "?rollup=day"]),
];

#[test]
fn each_resource_of_a_namespace_has_a_row() {
    let rows: BTreeSet<(&str, &str)> =
        OF_STATE.iter().chain(&OF_HISTORY).map(|(resource, part, _)| (*resource, *part)).collect();
    let namespaced = GROUP.resources.iter().filter(|resource| resource.namespaced);
    let served: BTreeSet<(&str, &str)> = namespaced
        .flat_map(|resource| {
            let parts = resource.subresources.iter().map(|part| part.name);
            [""].into_iter().chain(parts).map(move |part| (resource.plural, part))
        })
        .collect();
    assert_eq!(rows, served);
}

#[tokio::test]
async fn a_tenant_reads_its_namespace_and_no_name_of_another() {
    let views = Views::start().await;
    let core = core();
    views.server.published.store(Arc::new(core.state.snapshot()));
    *views.core.0.lock().unwrap() = Some(core);
    let get = async |path: String| {
        let answer = views.get_as("tenant", &path, "*/*").await;
        (answer.status, answer.body)
    };
    let mut shown = String::new();
    for (resource, _, paths) in OF_STATE {
        for path in paths {
            let (status, body) = get(format!("/namespaces/ns/{resource}{path}")).await;
            assert_eq!(status, 200, "{resource}{path}: {body}");
            assert!(!body.contains(SECRET), "{resource}{path}: {body}");
            shown.push_str(&body);
        }
    }
    assert!(shown.contains("was-preempted"), "{shown}");
    views.leader.answers.store(true, Ordering::Relaxed);
    for (resource, _, paths) in OF_HISTORY {
        for path in paths {
            let (status, body) = get(format!("/namespaces/ns/{resource}{path}")).await;
            assert_eq!(status, 200, "{resource}{path}: {body}");
            let asked = views.leader.asked.lock().unwrap().last().cloned();
            let Some(Question::History(asked)) = asked else { panic!("{resource}{path}: {asked:?}") };
            assert_eq!(asked.access, Access::to_namespace("ns", TenantDetail::Sums), "{resource}{path}");
        }
    }
    for resource in GROUP.resources {
        let (status, body) = get(format!("/{}", resource.plural)).await;
        assert_eq!(status, 403, "{}: {body}", resource.plural);
        assert!(!body.contains(SECRET), "{}: {body}", resource.plural);
        if !resource.namespaced && resource.verbs.contains(&"get") {
            let (status, body) = get(format!("/{}/secret-cq", resource.plural)).await;
            assert_eq!(status, 403, "{}: {body}", resource.plural);
        }
    }
}
