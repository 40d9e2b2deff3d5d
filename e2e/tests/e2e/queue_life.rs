//! Queues, their cohort and their flavor come, change, go and come again, while Jobs wait for each of these: what happens in the
//! cells of watch faults that are about queues. Each change lets a Job start, so that one that the manager never sees is noticed.

use crate::fixture::Fixture;
use crate::watch_faults::{Event, wait_until_gone};
use anyhow::Result;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::objects::{self, Kind, text};

/// Jobs of a queue that have quota at once.
pub(crate) const MOST_JOBS: usize = 2;

pub(crate) const EVENTS: [Event; 12] = [
    ("flavor-added", "/resourceflavors", "ADDED", |_| true),
    ("flavor-changed", "/resourceflavors", "MODIFIED", |flavor| flavor["spec"]["nodeTaints"].is_null()),
    ("flavor-deleted", "/resourceflavors", "DELETED", |_| true),
    ("cohort-added", "/cohorts", "ADDED", |_| true),
    ("cohort-changed", "/cohorts", "MODIFIED", has_quota),
    ("cohort-deleted", "/cohorts", "DELETED", |_| true),
    ("queue-added", "/clusterqueues", "ADDED", |_| true),
    ("queue-changed", "/clusterqueues", "MODIFIED", has_quota),
    ("queue-deleted", "/clusterqueues", "DELETED", |_| true),
    ("local-added", "/localqueues", "ADDED", |_| true),
    ("local-changed", "/localqueues", "MODIFIED", |queue| queue["spec"]["stopPolicy"] == "None"),
    ("local-deleted", "/localqueues", "DELETED", |_| true),
];

fn has_quota(object: &Value) -> bool {
    text(object, "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota") == "1"
}

/// A flavor with a taint, a cohort and a ClusterQueue without quota, and a LocalQueue that holds: a Job waits. It runs on the cohort's
/// quota when each of them but the ClusterQueue has changed, and a second one when that has. All are deleted and come
/// again, and a third Job runs.
pub(crate) async fn play(fixture: &Fixture, name: &str) -> Result<()> {
    let objects = &fixture.objects;
    let full = fixture.own_name(name);
    let [first, second, third] = ["first", "second", "third"].map(|job| format!("{job}-{name}"));
    fixture.submit(fixture.job(&first, name, "1")).await?;
    let taint = json!({"key": "e2e.example/closed", "value": "yes", "effect": "NoSchedule"});
    fixture.create_flavor(name, json!({"nodeTaints": [taint]})).await?;
    fixture.create_tracked(Kind::COHORT, objects::cohort(&full, "", &full, &[("cpu", "0", None)])).await?;
    let queue = |quota| objects::cluster_queue(&full, &full, &full, &[("cpu", quota, None)]);
    fixture.create_tracked(Kind::CLUSTER_QUEUE, queue("0")).await?;
    let mut held = objects::local_queue(&fixture.name, name, &full);
    held["spec"]["stopPolicy"] = "Hold".into();
    objects.create(Kind::LOCAL_QUEUE, &held).await?;
    fixture.wait_until_pending(&first, "").await?;

    fixture.set_spec(Kind::FLAVOR, "", &full, json!({"nodeTaints": null})).await?;
    let quota = objects::cohort(&full, "", &full, &[("cpu", "1", None)]);
    fixture.set_spec(Kind::COHORT, "", &full, quota["spec"].clone()).await?;
    fixture.set_spec(Kind::LOCAL_QUEUE, &fixture.name, name, json!({"stopPolicy": "None"})).await?;
    fixture.wait_until_running(&first).await?;
    fixture.submit(fixture.job(&second, name, "1")).await?;
    fixture.wait_until_pending(&second, "").await?;
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &full, queue("1")["spec"].clone()).await?;
    fixture.wait_until_running(&second).await?;
    fixture.finish_job(&first).await?;
    fixture.finish_job(&second).await?;

    let all = [
        (Kind::LOCAL_QUEUE, fixture.name.as_str(), name),
        (Kind::CLUSTER_QUEUE, "", &full),
        (Kind::COHORT, "", &full),
        (Kind::FLAVOR, "", &full),
    ];
    for (kind, namespace, name) in all {
        objects.delete(kind, namespace, name, PropagationPolicy::Background).await?;
        wait_until_gone(fixture, kind, namespace, name).await?;
    }
    fixture.submit(fixture.job(&third, name, "1")).await?;
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": full}})).await?;
    objects.create(Kind::COHORT, &objects::cohort(&full, "", &full, &[])).await?;
    objects.create(Kind::CLUSTER_QUEUE, &queue("1")).await?;
    objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, name, &full)).await?;
    fixture.wait_until_running(&third).await?;
    fixture.finish_job(&third).await?;
    fixture.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await
}
