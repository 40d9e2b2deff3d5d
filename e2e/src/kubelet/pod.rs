//! The life of one pod on its node: start, probes, restarts, status, end.

use super::container::{Container, ContainerSpec};
use super::network::PodNamespace;
use super::probe::Probe;
use super::volumes::Volumes;
use super::{NodeContext, SYNC_INTERVAL, is_missing, is_outage};
use crate::container::Mount;
use crate::objects::{Kind, number, text};
use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Pause before a container that ended is started again; a kubelet waits longer each time.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// How often the volumes of a pod that is not ready are written again.
const VOLUME_INTERVAL: Duration = Duration::from_secs(3);

/// Runs one pod.
pub(super) struct PodRunner<'a> {
    context: &'a NodeContext,
    pod: Value,
    folder: PathBuf,
    network: PodNamespace,
    mounts: Vec<Mount>,
    readiness: Probe,
    liveness: Probe,
    container: Option<Container>,
    restarts: u32,
    /// Why the container ended before the last restart.
    last_end: Option<&'static str>,
    started: jiff::Timestamp,
    /// The status that was written last.
    written: Option<(bool, u32)>,
}

impl<'a> PodRunner<'a> {
    /// Runs the pod until it is deleted.
    pub(super) async fn run(
        context: &'a NodeContext,
        pod: Value,
        updates: &mut watch::Receiver<Option<Value>>,
    ) -> Result<()> {
        let mut runner = Self::new(context, pod).await?;
        let (mut generation, mut written) = (*context.token_generation.borrow(), Instant::now());
        loop {
            match &*updates.borrow_and_update() {
                None => return Ok(()),
                Some(pod) if pod["metadata"]["deletionTimestamp"].is_string() => {
                    runner.pod = pod.clone();
                    break;
                }
                Some(_) => {}
            }
            let newest = *context.token_generation.borrow();
            // A program may wait for the Secret that it has written.
            let waits = !runner.readiness.passing && written.elapsed() > VOLUME_INTERVAL;
            if newest != generation || waits {
                match runner.write_volumes().await {
                    Ok(()) => generation = newest,
                    // The old ones are there, and are written again later; an installation that is removed loses its account first.
                    Err(error) if is_outage(&error) || is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
                written = Instant::now();
            }
            runner.step().await?;
            tokio::time::sleep(SYNC_INTERVAL).await;
        }
        runner.terminate().await
    }

    async fn new(context: &'a NodeContext, pod: Value) -> Result<Self> {
        let containers = pod["spec"]["containers"].as_array().context("no containers")?;
        ensure!(
            containers.len() == 1 && pod["spec"].get("initContainers").is_none(),
            "one container is handled"
        );
        let container = &containers[0];
        ensure!(container.get("lifecycle").is_none(), "hooks are not handled");
        ensure!(container.get("startupProbe").is_none(), "startup probes are not handled");
        let (readiness, liveness) = (
            Probe::read(container, "readinessProbe", false)?,
            Probe::read(container, "livenessProbe", true)?,
        );
        let folder = context.settings.folder.join(text(&pod, "/metadata/name"));
        fs::create_dir_all(&folder)?;
        let network = context.network.add_pod()?;
        let mut runner = Self {
            context,
            pod,
            folder,
            network,
            mounts: Vec::new(),
            readiness,
            liveness,
            container: None,
            restarts: 0,
            last_end: None,
            started: jiff::Timestamp::now(),
            written: None,
        };
        while let Err(error) = runner.write_volumes().await {
            ensure!(is_outage(&error), "{error:#}");
            tokio::time::sleep(VOLUME_INTERVAL).await;
        }
        runner.start()?;
        Ok(runner)
    }

    async fn write_volumes(&mut self) -> Result<()> {
        let folder = self.folder.join("volumes");
        let volumes = Volumes::new(&self.context.objects, &self.pod, &folder);
        self.mounts = volumes.write(&self.pod["spec"]["containers"][0]).await?;
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let container = &self.pod["spec"]["containers"][0];
        let reference = text(container, "/image");
        let image = self.context.settings.images.get(reference);
        let spec = ContainerSpec {
            pod: &self.pod,
            container,
            image: image.with_context(|| format!("there is no image {reference}"))?,
            folder: &self.folder,
            mounts: &self.mounts,
            network: &self.network,
        };
        let started = Container::start(&spec, &self.context.guard)?;
        self.started = jiff::Timestamp::now();
        self.container = Some(started);
        Ok(())
    }

    /// Restarts the container if it has ended or is not alive, probes it, and writes the status if it changed.
    async fn step(&mut self) -> Result<()> {
        let ended = self.container.as_ref().is_none_or(|container| container.process.check().is_err());
        if ended || !self.liveness.passing {
            self.write_status(false).await?;
            self.last_end = self.container.as_ref().map(Container::end_reason);
            self.stop_container();
            tokio::time::sleep(RESTART_DELAY).await;
            self.restarts += 1;
            self.start()?;
            self.readiness.restart(false);
            self.liveness.restart(true);
        }
        self.record_pid();
        self.readiness.run_if_due(&self.network.address).await;
        self.liveness.run_if_due(&self.network.address).await;
        self.write_status(self.readiness.passing).await
    }

    /// Records the program's process, which is the child of the process that waits for it.
    fn record_pid(&self) {
        let Some(container) = &self.container else { return };
        let waiting = container.process.identity().pid;
        let children = fs::read_to_string(format!("/proc/{waiting}/task/{waiting}/children"));
        let child = children.ok().and_then(|pids| pids.split_whitespace().next()?.parse().ok());
        if let Some(pid) = child {
            let mut pids = self.context.pids.lock().unwrap_or_else(PoisonError::into_inner);
            pids.insert(text(&self.pod, "/metadata/name").to_owned(), pid);
        }
    }

    async fn write_status(&mut self, ready: bool) -> Result<()> {
        if self.written == Some((ready, self.restarts)) {
            return Ok(());
        }
        let now = format!("{:.0}", jiff::Timestamp::now());
        let container = &self.pod["spec"]["containers"][0];
        let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now});
        let started = format!("{:.0}", self.started);
        let last = self.last_end.map(|reason| json!({"terminated": {"reason": reason, "exitCode": 1}}));
        let status = json!({"status": {
            "phase": "Running", "podIP": self.network.address, "podIPs": [{"ip": self.network.address}],
            "startTime": started,
            "conditions": [
                condition("PodScheduled", true), condition("Initialized", true),
                condition("ContainersReady", ready), condition("Ready", ready),
            ],
            "containerStatuses": [{
                "name": container["name"], "image": container["image"], "imageID": "", "ready": ready,
                "started": true, "restartCount": self.restarts, "state": {"running": {"startedAt": started}},
                "lastState": last.unwrap_or_else(|| json!({})),
            }],
        }});
        let (namespace, name) = (text(&self.pod, "/metadata/namespace"), text(&self.pod, "/metadata/name"));
        match self.context.objects.merge_status(Kind::POD, namespace, name, &status).await {
            Ok(_) => self.written = Some((ready, self.restarts)),
            // The pod was deleted: the next step sees it.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let error = error.into();
                // The next step writes it again after an outage.
                ensure!(is_outage(&error), "{error:#}");
            }
        }
        Ok(())
    }

    fn stop_container(&mut self) {
        // Dropping it kills the process and removes its control group.
        self.container = None;
    }

    /// Sends SIGTERM, waits for the grace period, kills, and removes the pod. Probes go on meanwhile.
    async fn terminate(mut self) -> Result<()> {
        let grace = number(&self.pod, "/metadata/deletionGracePeriodSeconds");
        let deadline = Instant::now() + Duration::from_secs(u64::try_from(grace)?);
        if let Some(container) = &self.container {
            container.process.identity().signal("TERM");
        }
        while self.container.as_ref().is_some_and(|container| container.process.check().is_ok())
            && Instant::now() < deadline
        {
            self.readiness.run_if_due(&self.network.address).await;
            self.write_status(self.readiness.passing).await?;
            tokio::time::sleep(SYNC_INTERVAL).await;
        }
        self.stop_container();
        remove(self.context, &self.pod).await
    }
}

/// Removes a pod that has no container when it is deleted, as a kubelet does that could not run it.
pub(super) async fn remove_when_deleted(
    context: &NodeContext,
    mut updates: watch::Receiver<Option<Value>>,
) -> Result<()> {
    let is_deleted =
        |pod: &Option<Value>| pod.as_ref().is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string());
    let Some(pod) = updates.wait_for(is_deleted).await?.clone() else { return Ok(()) };
    remove(context, &pod).await
}

/// Removes the object of a pod whose container has ended.
async fn remove(context: &NodeContext, pod: &Value) -> Result<()> {
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    loop {
        match context.objects.api(Kind::POD, namespace).delete(name, &params).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => {
                let error = error.into();
                ensure!(is_outage(&error), "{error:#}");
                tokio::time::sleep(RESTART_DELAY).await;
            }
        }
    }
}
