//! `dump`, its replay and `simulate --from-cluster` with a job of every kind, one that is admitted and one that waits.

use crate::cases::note;
use crate::debugging::dump_and_replay;
use crate::fixture::Fixture;
use crate::job_kinds::{api_of, clear, create_related, named_sample};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice::frameworks::{Framework, frameworks};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;

/// Each queue, whether its quota is enough for all kinds, and the list of the report that its jobs are in.
const QUEUES: [(&str, &str, &str); 2] = [("roomy", "200", "admitted"), ("full", "0", "pending")];

/// Of every kind a job is admitted and another waits: the dump replays as the cluster itself, and both lists have all of them.
pub(crate) async fn every_kind_is_dumped_and_replayed(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    create_related(fixture).await?;
    for (queue, quota, _) in QUEUES {
        fixture
            .create_queue(queue, "", &[("cpu", quota, None), ("memory", "1000Gi", None)], json!({}))
            .await?;
        for row in frameworks() {
            fixture
                .objects
                .create(api_of(row), &named_sample(row, fixture, queue, &job_name(row, queue))?)
                .await?;
        }
    }
    wait_until_decided(fixture).await?;
    let report = dump_and_replay(cluster, |report| check(report, fixture)).await?;
    note(format!(
        "{} rows of admitted, {} of pending jobs",
        rows(&report, "admitted").len(),
        rows(&report, "pending").len()
    ));
    clear(fixture).await
}

fn job_name(row: &Framework, queue: &str) -> String {
    format!("{}-{queue}", row.gvk.kind.to_lowercase())
}

/// Waits until each Workload has quota or not, as its queue says. All kinds have made theirs then: a Deployment by its pods.
async fn wait_until_decided(fixture: &Fixture) -> Result<()> {
    eventually("all Workloads are admitted or wait", async || {
        let workloads = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        for row in frameworks() {
            for (queue, _, list) in QUEUES {
                let name = format!("{}-", job_name(row, queue));
                let mut own =
                    workloads.iter().filter(|workload| text(workload, "/metadata/name").contains(&name));
                let decided = |workload: &&Value| {
                    condition_is_true(workload, "Admitted") == (list == "admitted")
                        && !workload["status"]["conditions"].is_null()
                };
                ensure!(own.next().is_some_and(|first| decided(&first)), "{name}: none, or not {list}");
                ensure!(own.all(|workload| decided(&workload)), "{name}: one is not {list}");
            }
        }
        Ok(())
    })
    .await
}

fn rows<'a>(report: &'a Value, list: &str) -> Vec<&'a str> {
    report[list].as_array().into_iter().flatten().map(|row| text(row, "/job")).collect()
}

/// Checks that each job is in the list of its queue, and in no other. A Deployment is there by the names of its pods.
fn check(report: &Value, fixture: &Fixture) -> Result<()> {
    for row in frameworks() {
        for (queue, _, list) in QUEUES {
            let prefix = format!("{}/{}", fixture.name, job_name(row, queue));
            for (_, _, other) in QUEUES {
                let found = rows(report, other).iter().any(|job| job.starts_with(&prefix));
                ensure!(found == (other == list), "{prefix}: {other}: {found}: {report}");
            }
        }
    }
    ensure!(report["ignored"] == json!({}) && report["problems"] == json!([]), "{report}");
    Ok(())
}
