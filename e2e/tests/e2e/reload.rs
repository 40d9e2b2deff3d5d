//! A configuration that changes while the manager runs, as an update of a mounted ConfigMap changes it.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::wait::eventually;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The files that the manager reads, as links into a folder that each update replaces.
struct Mount {
    configuration: PathBuf,
    updates: u32,
}

impl Mount {
    fn of(cluster: &Cluster) -> Result<Self> {
        let name = &cluster.manager()?.settings().name;
        Ok(Self { configuration: cluster.plane.folder().join(format!("{name}.yaml")), updates: 0 })
    }

    fn folder(&self) -> &Path {
        self.configuration.parent().unwrap_or(Path::new("/"))
    }

    fn log_level(&self) -> PathBuf {
        self.folder().join("log-level")
    }

    /// Replaces both files; without a level its file is missing.
    fn update(&mut self, configuration: &Value, level: Option<&str>) -> Result<()> {
        self.updates += 1;
        let data = self.folder().join(format!("..data-{}", self.updates));
        fs::create_dir_all(&data)?;
        let replace = |path: &Path, text: &str| -> Result<()> {
            let file = data.join(path.file_name().context("no file")?);
            fs::write(&file, text)?;
            let link = data.join("link");
            symlink(&file, &link)?;
            Ok(fs::rename(link, path)?)
        };
        match level {
            Some(level) => replace(&self.log_level(), level)?,
            None => fs::remove_file(self.log_level())?,
        }
        replace(&self.configuration, &serde_json::to_string_pretty(configuration)?)
    }
}

/// A shorter timeout evicts a workload that waits already, and the log level changes, in the same process; a setting that needs a
/// restart is named in the log and changes nothing, nor does a file that cannot be read.
pub(crate) async fn times_and_log_level_follow_the_files(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let before = cluster.reconfigure(&json!({"waitForPodsReady": {"timeout": "10m"}})).await?;
    let mut mount = Mount::of(cluster)?;
    let mut configuration: Value = serde_json::from_str(&fs::read_to_string(&mount.configuration)?)?;
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let slow = fixture.job("slow", "main", "1").pod_spec("nodeSelector", json!({"e2e.example/none": "none"}));
    fixture.submit(slow).await?;
    fixture.wait_for_condition("slow", "Admitted", "True", "Admitted").await?;

    configuration["waitForPodsReady"] = json!({"timeout": "soon"});
    mount.update(&configuration, Some("debug"))?;
    wait_for_log(cluster, &["configuration cannot be read again", "waitForPodsReady.timeout"]).await?;
    wait_for_log(cluster, &["log level changed", "debug"]).await?;

    let strategy = json!({"backoffLimitCount": 0});
    configuration["waitForPodsReady"] = json!({"timeout": "2s", "requeuingStrategy": strategy});
    configuration["manageJobsWithoutQueueName"] = json!(true);
    mount.update(&configuration, None)?;
    let needs_restart = ["these settings need a restart", "manageJobsWithoutQueueName"];
    wait_for_log(cluster, &needs_restart).await?;
    let in_force = "waitForPodsReady.timeout, waitForPodsReady.requeuingStrategy.backoffLimitCount";
    wait_for_log(cluster, &["these settings are in force", in_force]).await?;
    eventually("the workload is deactivated, as it may not be requeued", async || {
        let workload = fixture.workload("slow").await?;
        ensure!(workload["spec"]["active"] == false, "{}", workload["status"]);
        Ok(())
    })
    .await?;
    // Nothing has restarted the process: its log has one start.
    cluster.manager()?.process().check()?;
    fs::remove_file(&mount.configuration)?;
    cluster.reconfigure(&before).await.map(drop)
}

/// Waits until a line of the manager's log has all these words.
async fn wait_for_log(cluster: &Cluster, words: &[&str]) -> Result<()> {
    eventually(format!("the log has {words:?}"), async || {
        let log = fs::read_to_string(cluster.manager()?.log())?;
        ensure!(log.lines().any(|line| words.iter().all(|word| line.contains(word))), "no such line");
        Ok(())
    })
    .await
}
