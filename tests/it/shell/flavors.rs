//! Flavors and findings over TLS: what nodes have, how many pods fit, and what cannot work.

use crate::fixtures::leading_core::Core;
use crate::shell::views::{TABLE, Views};
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::reconciler::CoreSettings;
use std::sync::Arc;

/// A flavor with two hosts, of which one is cordoned.
fn put_nodes(core: &mut Core) {
    core.put(Kind::Topology, json!({"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}}));
    core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "racked"}, "spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"}}));
    for (name, cordoned) in [("n0", false), ("n1", false), ("n2", true)] {
        core.put(Kind::Node, json!({
            "metadata": {"name": name, "labels": {"pool": "gpu", "rack": "r0", "kubernetes.io/hostname": name}},
            "spec": {"unschedulable": cordoned},
            "status": {"allocatable": {"cpu": "16", "example.com/gpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }
}

#[tokio::test]
async fn flavors_say_what_fits() {
    let views = Views::start().await;
    assert_eq!(views.get("/flavorviews").await.status, 429, "the core answers nothing");
    views.publish();
    let mut core = Core::new(CoreSettings::default());
    put_nodes(&mut core);
    let quota = json!({"metadata": {"name": "gpus"}, "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["example.com/gpu"],
        "flavors": [{"name": "racked", "resources": [{"name": "example.com/gpu", "nominalQuota": "6"}]}]}]}});
    core.put(Kind::ClusterQueue, quota);
    let mine = json!({"metadata": {"name": "mine", "namespace": "ns"}, "spec": {"clusterQueue": "gpus"}});
    core.put(Kind::LocalQueue, mine);
    core.advance_seconds(60);
    views.server.published.store(Arc::new(core.state.snapshot()));
    *views.core.0.lock().unwrap() = Some(core);
    let list = views.get("/flavorviews").await.json();
    assert_eq!(list["kind"], "FlavorViewList");
    let racked = views.get("/flavorviews/racked").await.json();
    assert_eq!(
        racked["metadata"],
        json!({"name": "racked", "uid": "resourceflavors-racked", "creationTimestamp": racked["metadata"]["creationTimestamp"]})
    );
    assert_eq!(
        (&racked["topology"], &racked["nodes"]),
        (&json!("racks"), &json!({"total": 3, "schedulable": 2}))
    );
    let gpu = &racked["resources"][0];
    let value = |name: &str| gpu[name]["value"].as_str().unwrap();
    assert_eq!(
        ["schedulable", "quota", "slack", "charged", "others", "free"].map(value),
        ["16", "6", "10", "0", "0", "16"]
    );
    assert_eq!(racked["pod"][0]["amount"]["value"], "8", "all of the scarcest resource of the largest node");
    let gangs = |view: &Value| -> Vec<(String, u64, String)> {
        let levels = view["levels"].as_array().unwrap().iter();
        levels
            .map(|level| {
                let limit = level["limitedBy"].as_str().unwrap_or_default().to_owned();
                (
                    level["level"].as_str().unwrap_or_default().to_owned(),
                    level["largestGang"].as_u64().unwrap(),
                    limit,
                )
            })
            .collect()
    };
    let gpu = "example.com/gpu";
    let expected = |rows: [(&str, u64, &str); 3]| {
        rows.map(|(level, gang, limit)| (level.to_owned(), gang, limit.to_owned()))
    };
    assert_eq!(
        gangs(&racked),
        expected([("kubernetes.io/hostname", 1, gpu), ("rack", 2, gpu), ("", 2, gpu)])
    );
    assert_eq!((&racked["levels"][0]["where"], &racked["levels"][0]["more"]), (&json!("r0/n0"), &json!(1)));
    assert_eq!(racked["domains"].as_array().unwrap().len(), 3);
    assert_eq!(racked["domains"][2]["schedulable"], false);
    let bounded =
        views.get("/flavorviews/racked?pod=example.com%2Fgpu%3D2,cpu%3D6&clusterQueue=gpus").await.json();
    assert_eq!(
        gangs(&bounded),
        expected([("kubernetes.io/hostname", 0, "quota"), ("rack", 0, "quota"), ("", 0, "quota")]),
        "the queue has no cpu"
    );
    let bounded = views.get("/flavorviews/racked?pod=example.com%2Fgpu%3D2&clusterQueue=gpus").await.json();
    assert_eq!(
        gangs(&bounded),
        expected([("kubernetes.io/hostname", 3, "quota"), ("rack", 3, "quota"), ("", 3, "quota")])
    );
    let table = views.get_as("ann", "/flavorviews", TABLE).await.json();
    let cells =
        &table["rows"].as_array().unwrap().iter().find(|row| row["cells"][0] == "racked").unwrap()["cells"];
    assert_eq!((&cells[1], &cells[8], &cells[9]), (&json!("2/3"), &json!(gpu), &json!("2")));
    for (path, status, named) in [
        ("/flavorviews/none", 404, "none"),
        ("/flavorviews/racked?pod=gpu", 400, "RESOURCE=QUANTITY"),
        ("/flavorviews/racked?clusterQueue=gpu", 400, "clusterqueue \"gpu\" not found; similar: gpus"),
    ] {
        let answer = views.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(named), "{path}: {message}");
    }
    assert_eq!(views.get_as("tenant", "/flavorviews", "*/*").await.status, 403);
    own_queue_of_a_tenant(&views).await;
}

/// A user of a namespace learns what a LocalQueue of its own may use, and no name of a node.
async fn own_queue_of_a_tenant(views: &Views) {
    let path = "/namespaces/ns/localqueueviews/mine/capacity";
    let ask = async |query: &str| views.get_as("tenant", &format!("{path}{query}"), "*/*").await;
    let quota = ask("").await.json();
    assert_eq!((&quota["kind"], &quota["clusterQueue"]), (&json!("QueueCapacity"), &json!("gpus")));
    let flavor = &quota["flavors"][0];
    assert_eq!(
        (&flavor["flavor"], &flavor["quota"][0]["available"]["value"]),
        (&json!("racked"), &json!("6"))
    );
    assert_eq!((flavor.get("levels"), flavor["quota"][0].get("shared")), (None, None));
    let counted = ask("?pod=example.com%2Fgpu%3D2").await;
    assert!(!counted.body.contains("n0") && !counted.body.contains("r0"), "{}", counted.body);
    let counted = counted.json();
    let anywhere = counted["flavors"][0]["levels"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(anywhere, json!({"largestGang": 3, "limitedBy": "quota"}));
    assert_eq!(ask("?pod=gpu").await.status, 400);
    let none = views.get_as("tenant", "/namespaces/ns/localqueueviews/none/capacity", "*/*").await;
    assert_eq!(none.status, 404, "{}", none.body);
    let table = views.get_as("tenant", path, TABLE).await.json();
    assert_eq!(table["rows"][0]["cells"], json!(["mine", "gpus", true, "6 example.com/gpu racked", ""]));
}

#[tokio::test]
async fn findings_are_listed_for_their_reader() {
    let views = Views::start().await;
    assert_eq!(views.get("/clusterfindings").await.status, 503);
    views.publish();
    let mut core = Core::new(CoreSettings::default());
    for name in ["lq", "gone"] {
        core.put(
            Kind::LocalQueue,
            json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": "nothing"}}),
        );
    }
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": "empty"}, "spec": {"namespaceSelector": {}}}));
    core.advance_seconds(60);
    views.server.published.store(Arc::new(core.state.snapshot()));
    *views.core.0.lock().unwrap() = Some(core);
    let all = views.get("/clusterfindings").await.json();
    let shown: Vec<(&Value, &Value)> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (&item["check"], &item["object"]["name"]))
        .collect();
    assert!(shown.contains(&(&json!("localqueue-orphan"), &json!("gone"))), "{shown:?}");
    assert!(shown.contains(&(&json!("clusterqueue-no-flavor"), &json!("empty"))), "{shown:?}");
    assert!(all["checkedAt"].is_string() && all["items"][0]["kind"] == "Finding", "{all}");
    assert_eq!(views.get_as("tenant", "/clusterfindings", "*/*").await.status, 403);
    let own = views.get_as("tenant", "/namespaces/ns/findings?limit=1", "*/*").await.json();
    assert_eq!(
        (&own["items"][0]["object"]["name"], own["items"].as_array().unwrap().len()),
        (&json!("gone"), 1)
    );
    let token = own["metadata"]["continue"].as_str().unwrap();
    let rest = views
        .get_as("tenant", &format!("/namespaces/ns/findings?limit=1&continue={token}"), "*/*")
        .await
        .json();
    assert_eq!(rest["items"][0]["object"]["name"], "lq");
    let table = views.get_as("ann", "/namespaces/ns/findings", TABLE).await.json();
    assert_eq!(table["rows"][0]["cells"][2], "localqueue-orphan");
}
