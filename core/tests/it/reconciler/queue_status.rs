//! Frequency of ClusterQueue status writes: at once after a quiet time, once a second while the status keeps changing, and less
//! often while the rate limit is exhausted.

use crate::fixtures::queue_cluster::Cluster;
use serde_json::json;
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, WriteLimits};

#[test]
fn status_change_is_written_within_one_second() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.advance_tenths(100, |_, _| {});
    let first = cluster.advance_tenths(1, |cluster, _| cluster.create_workload("first"));
    assert_eq!(
        (first.len(), cluster.status_field("pendingWorkloads")),
        (1, &json!(0)),
        "at once after a quiet time"
    );

    // One workload is created every tenth of a second; two fit in all.
    let mut late = Vec::new();
    let busy = cluster.advance_tenths(600, |cluster, tenth| {
        let number = |field| cluster.status_field(field).as_i64().unwrap_or(0);
        let counted = number("pendingWorkloads") + number("reservingWorkloads");
        let a_second_ago = i64::from(tenth - 9).max(0);
        if counted < a_second_ago {
            late.push((tenth, counted));
        }
        cluster.create_workload(&format!("w{tenth}"));
    });
    assert_eq!(late, [], "workloads older than a second were not counted");
    let gaps: Vec<f64> = busy.windows(2).map(|neighbours| neighbours[1] - neighbours[0]).collect();
    assert!(gaps.iter().all(|gap| (0.9..1.15).contains(gap)), "once a second: {gaps:?}");

    let end = cluster.advance_tenths(100, |_, _| {});
    assert!(end.len() <= 1, "the last state is written at most once: {end:?}");
    assert_eq!(
        (cluster.status_field("pendingWorkloads"), cluster.status_field("reservingWorkloads")),
        (&json!(599), &json!(2))
    );
}

#[test]
fn status_write_waits_when_rate_limit_is_exhausted() {
    // One low-priority status write per second is allowed, and the pending reason of each workload needs one, too.
    let mut cluster = Cluster::new(CoreSettings {
        writes: WriteLimits { status_writes_per_second: Some(1), ..WriteLimits::default() },
        ..CoreSettings::default()
    });
    cluster.advance_tenths(100, |_, _| {});
    let busy = cluster.advance_tenths(600, |cluster, tenth| cluster.create_workload(&format!("w{tenth}")));
    let gaps: Vec<f64> = busy.windows(2).map(|neighbours| neighbours[1] - neighbours[0]).collect();
    assert!(gaps.iter().all(|gap| (0.9..4.15).contains(gap)), "at most four seconds: {gaps:?}");
    assert!(gaps.iter().filter(|gap| **gap > 3.9).count() > gaps.len() / 2, "mostly four seconds: {gaps:?}");
}

/// The server drops a field that the definition does not have: the write succeeds and changes nothing.
#[test]
fn status_that_server_drops_is_not_written_every_second() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.advance_tenths(100, |_, _| {});
    cluster.undefined_field = Some("reservingWorkloads");
    let first = cluster.advance_tenths(1, |cluster, _| cluster.create_workload("first"));
    assert!(first.len() <= 1, "{first:?}");
    let writes = cluster.advance_tenths(3000, |_, _| {});
    assert!(writes.len() < 16, "{} writes in five minutes: {writes:?}", writes.len());
    assert_eq!(cluster.status_field("reservingWorkloads"), &json!(0));
    // The definition is updated.
    cluster.undefined_field = None;
    cluster.advance_tenths(610, |_, _| {});
    assert_eq!(cluster.status_field("reservingWorkloads"), &json!(1));
}

#[test]
fn active_condition_change_is_written_immediately() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.advance_tenths(200, |cluster, tenth| cluster.create_workload(&format!("w{tenth}")));
    let stopped = cluster.advance_tenths(1, |cluster, _| {
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["stopPolicy"] = json!("Hold");
        });
    });
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert_eq!(cluster.status_field("conditions")[0]["status"], "False");
}
