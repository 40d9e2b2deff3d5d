//! Every served kind of job, from its sample in `config/samples` to its end. The control plane has a controller of batch/v1
//! Jobs; controllers of other kinds are played by the case, which writes the status that the row of the kind reads.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::PropagationPolicy;
use serde_json::{Map, Value, json};
use sluice::frameworks::{Beside, Framework, PlayedState, Role, frameworks};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, expect_condition, text};
use sluice_e2e::paths;
use sluice_e2e::samples::RelatedSamples;
use sluice_e2e::wait::eventually;
use std::fs;

const NODE_LABEL: &str = "e2e.example/pool";
const QUEUE: &str = "main";

/// Each kind is suspended by its webhook, queued, admitted, started with the node labels of its flavor, and finishes or is deleted;
/// then its quota is free.
pub(crate) async fn each_served_kind_runs(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let kinds: Vec<PlayedKind> = frameworks().map(PlayedKind::new).collect::<Result<_>>()?;
    for node in fixture.objects.list(Kind::NODE, "", "").await? {
        let labels = json!({"metadata": {"labels": {NODE_LABEL: "any"}}});
        fixture.objects.merge(Kind::NODE, "", text(&node, "/metadata/name"), &labels).await?;
    }
    let flavor = fixture.create_flavor("pool", json!({"nodeLabels": {NODE_LABEL: "any"}})).await?;
    let resources = [("cpu", "100"), ("memory", "100Gi")]
        .map(|(name, quota)| json!({"name": name, "nominalQuota": quota}));
    let group =
        json!({"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": resources}]});
    fixture.create_queue(QUEUE, "", &[], json!({"resourceGroups": [group]})).await?;
    create_related(fixture).await?;
    for kind in &kinds {
        kind.run(fixture).await.with_context(|| kind.row.name)?;
        note(kind.row.name);
    }
    clear(fixture).await
}

/// Returns the fields of a Configuration that serves all kinds, with the feature gates that they need and these.
pub(crate) fn configuration(gates: &[&str]) -> Value {
    let names: Vec<&str> = frameworks().map(|row| row.name).collect();
    let gates = frameworks().filter_map(|row| row.flags.gate).chain(gates.iter().copied());
    let gates: Map<String, Value> = gates.map(|gate| (gate.to_owned(), json!(true))).collect();
    json!({"integrations": {"frameworks": names}, "featureGates": gates})
}

/// Creates what the samples of jobs read.
pub(crate) async fn create_related(fixture: &Fixture) -> Result<()> {
    for (api, object) in RelatedSamples::read()?.objects() {
        fixture.objects.create(api, object).await?;
    }
    Ok(())
}

/// Deletes what is left of the jobs, and what they read: the next case that needs all kinds has the same control plane.
pub(crate) async fn clear(fixture: &Fixture) -> Result<()> {
    for api in frameworks().map(api_of) {
        for object in fixture.objects.list(api, &fixture.name, "").await? {
            let name = text(&object, "/metadata/name");
            fixture.objects.delete(api, &fixture.name, name, PropagationPolicy::Background).await?;
        }
    }
    eventually("no Workload is left", async || {
        let left = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let names: Vec<&str> = left.iter().map(|workload| text(workload, "/metadata/name")).collect();
        ensure!(names.is_empty(), "{names:?}");
        Ok(())
    })
    .await?;
    for (api, object) in RelatedSamples::read()?.objects() {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        fixture.objects.delete(api, namespace, name, PropagationPolicy::Background).await?;
    }
    Ok(())
}

/// Returns the kind of a row for clients.
pub(crate) const fn api_of(row: &Framework) -> Kind {
    Kind::new(row.gvk.group, row.gvk.version, row.gvk.kind, row.gvk.plural)
}

/// Returns the sample of a kind in a queue, not suspended, so that the webhook has to do it.
pub(crate) fn sample_of(row: &Framework, fixture: &Fixture, queue: &str) -> Result<Value> {
    named_sample(row, fixture, queue, &row.gvk.kind.to_lowercase())
}

/// [`sample_of`] with another name.
pub(crate) fn named_sample(row: &Framework, fixture: &Fixture, queue: &str, name: &str) -> Result<Value> {
    let file = format!("config/samples/{}.yaml", row.gvk.kind.to_lowercase());
    let sample = fs::read_to_string(paths::root().join(&file));
    let mut object: Value =
        serde_saphyr::from_str(&sample.with_context(|| format!("no sample: add {file}"))?)?;
    object["metadata"] = json!({"name": name, "namespace": fixture.name,
        "labels": {"kueue.x-k8s.io/queue-name": queue}});
    if let Some(suspend) = row.fields.suspend {
        *object.pointer_mut(suspend).context("the sample is not suspended")? = json!(false);
    }
    Ok(object)
}

/// A served kind, and one object of it.
pub(crate) struct PlayedKind {
    pub(crate) row: &'static Framework,
    pub(crate) api: Kind,
    /// Name of its object.
    name: String,
    queue: &'static str,
    /// What samples read.
    related: RelatedSamples,
}

impl PlayedKind {
    fn new(row: &'static Framework) -> Result<Self> {
        Self::named(row, &row.gvk.kind.to_lowercase(), QUEUE)
    }

    /// An object with this name in this LocalQueue.
    pub(crate) fn named(row: &'static Framework, name: &str, queue: &'static str) -> Result<Self> {
        Ok(Self { row, api: api_of(row), name: name.to_owned(), queue, related: RelatedSamples::read()? })
    }

    /// Returns whether the control plane knows neither the kind nor its controller.
    pub(crate) fn is_played(&self) -> bool {
        !matches!(self.row.gvk.group, "" | "apps" | "batch")
    }

    /// Returns the sample of the kind in the queue of the case.
    pub(crate) fn object(&self, fixture: &Fixture) -> Result<Value> {
        named_sample(self.row, fixture, self.queue, &self.name)
    }

    /// A pod is held by its gate, runs on a node of its flavor, and ends.
    async fn run_pod(&self, fixture: &Fixture) -> Result<()> {
        let created = fixture.objects.create(self.api, &self.object(fixture)?).await?;
        let gates = |pod: &Value| pod["spec"]["schedulingGates"].as_array().map_or(0, Vec::len);
        ensure!(gates(&created) > 0, "its webhook did not hold it: {created}");
        let uid = text(&created, "/metadata/uid").to_owned();
        eventually("the pod is admitted, and runs", async || {
            expect_condition(&workload(fixture, &uid).await?, "Admitted", "True", "Admitted")?;
            let pod = self.get(fixture).await?;
            ensure!(gates(&pod) == 0, "it has gates: {pod}");
            ensure!(pod["spec"]["nodeSelector"][NODE_LABEL] == "any", "it has not the labels of the flavor");
            expect_condition(&pod, "Ready", "True", "")
        })
        .await?;
        fixture.wait_for_queue_counts(QUEUE, (0, 1, 1), &[]).await?;
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        fixture.objects.merge(self.api, &fixture.name, &self.name, &patch).await?;
        eventually("the Workload of the pod has finished", async || {
            expect_condition(&workload(fixture, &uid).await?, "Finished", "True", "Succeeded")
        })
        .await?;
        fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0"), ("memory", "0")]).await?;
        self.delete(fixture).await?;
        eventually("the pod and its Workload are deleted", async || {
            ensure!(workload(fixture, &uid).await.is_err(), "its Workload is left");
            Ok(())
        })
        .await
    }

    /// The control plane makes the pods of the object. They are held by their gates, get ready on nodes of their flavor, and their
    /// quota is free when the object is deleted.
    async fn run_with_pods(&self, fixture: &Fixture) -> Result<()> {
        let object = fixture.objects.create(self.api, &self.object(fixture)?).await?;
        let replicas = object["spec"]["replicas"].as_i64().context("the sample has no replicas")?;
        eventually(format!("the pods of {} are ready", self.name), async || {
            let ready = self.get(fixture).await?["status"]["readyReplicas"].as_i64().unwrap_or(0);
            ensure!(ready == replicas, "{ready} of {replicas} pods are ready");
            Ok(())
        })
        .await?;
        for pod in fixture.objects.list(Kind::POD, &fixture.name, "app=sample").await? {
            ensure!(
                pod["spec"]["nodeSelector"][NODE_LABEL] == "any",
                "a pod has not the labels of the flavor"
            );
        }
        let workloads = if self.row.role == Role::PassThrough { replicas } else { 1 };
        fixture.wait_for_queue_counts(QUEUE, (0, workloads, workloads), &[]).await?;
        self.delete(fixture).await?;
        fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0"), ("memory", "0")]).await
    }

    /// Makes the StatefulSets of the object, as its controller does.
    pub(crate) async fn make_replicas(&self, fixture: &Fixture, object: &Value) -> Result<()> {
        let replicas = object["spec"]["replicas"].as_i64().context("the sample has no replicas")?;
        let size = object["spec"]["leaderWorkerTemplate"]["size"].as_i64().context("it has no size")?;
        let set = |name: &str, template: &Value, (start, count): (i64, i64), labels: &Value| {
            let mut template = template.clone();
            for (key, value) in labels.as_object().into_iter().flatten() {
                template["metadata"]["labels"][key] = value.clone();
            }
            let owner = json!({
                "apiVersion": self.row.gvk.api_version(), "kind": self.row.gvk.kind, "name": self.name,
                "uid": object["metadata"]["uid"], "controller": true,
            });
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": fixture.name, "ownerReferences": [owner]},
                "spec": {
                    "replicas": count, "serviceName": name, "podManagementPolicy": "Parallel",
                    "ordinals": {"start": start}, "selector": {"matchLabels": labels}, "template": template,
                },
            })
        };
        let templates = &object["spec"]["leaderWorkerTemplate"];
        let named = |key: &str, value: &str| json!({"app": "sample", "leaderworkerset.sigs.k8s.io/name": self.name, key: value});
        let leaders = named("leaderworkerset.sigs.k8s.io/worker-index", "0");
        let leader_set = set(&self.name, &templates["leaderTemplate"], (0, replicas), &leaders);
        fixture.objects.create(Kind::STATEFUL_SET, &leader_set).await?;
        for index in 0..replicas {
            let leader = format!("{}-{index}", self.name);
            let labels = named("leaderworkerset.sigs.k8s.io/group-index", &index.to_string());
            let mut template = templates["workerTemplate"].clone();
            template["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/leader-name"] = json!(leader);
            fixture
                .objects
                .create(Kind::STATEFUL_SET, &set(&leader, &template, (1, size - 1), &labels))
                .await?;
            eventually("the controller has made the leader", async || {
                let labels = json!({"metadata": {"labels": labels}});
                fixture.objects.merge(Kind::POD, &fixture.name, &leader, &labels).await?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Each replica of the object has a Workload; its pods are held by their gates, get ready on nodes of their flavor, and their quota
    /// is free when the object is deleted.
    async fn run_replicas(&self, fixture: &Fixture) -> Result<()> {
        let object = fixture.objects.create(self.api, &self.object(fixture)?).await?;
        self.make_replicas(fixture, &object).await?;
        let replicas = object["spec"]["replicas"].as_i64().context("the sample has no replicas")?;
        let size = object["spec"]["leaderWorkerTemplate"]["size"].as_i64().context("it has no size")?;
        eventually("all pods are ready on nodes of their flavor", async || {
            let pods = fixture.objects.list(Kind::POD, &fixture.name, "app=sample").await?;
            let count = i64::try_from(pods.len())?;
            ensure!(count == replicas * size, "there are {count} pods");
            for pod in &pods {
                ensure!(pod["spec"]["nodeSelector"][NODE_LABEL] == "any", "no label of the flavor: {pod}");
                expect_condition(pod, "Ready", "True", "")?;
            }
            Ok(())
        })
        .await?;
        fixture.wait_for_queue_counts(QUEUE, (0, replicas, replicas), &[]).await?;
        self.delete(fixture).await?;
        for set in fixture.objects.list(Kind::STATEFUL_SET, &fixture.name, "").await? {
            let name = text(&set, "/metadata/name");
            fixture
                .objects
                .delete(Kind::STATEFUL_SET, &fixture.name, name, PropagationPolicy::Background)
                .await?;
        }
        fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0"), ("memory", "0")]).await
    }

    async fn run(&self, fixture: &Fixture) -> Result<()> {
        match self.row.role {
            Role::Pods => return self.run_pod(fixture).await,
            Role::PassThrough | Role::PodsOfOwner if !self.is_played() => {
                return self.run_with_pods(fixture).await;
            }
            Role::PodsOfOwner => return self.run_replicas(fixture).await,
            Role::Suspended | Role::PassThrough => {}
        }
        let created = fixture.objects.create(self.api, &self.object(fixture)?).await?;
        ensure!(
            self.row.played_job(&created, &self.related)?.suspended,
            "its webhook did not suspend it: {created}"
        );
        let uid = text(&created, "/metadata/uid").to_owned();
        eventually(format!("{} is admitted and started", self.name), async || {
            expect_condition(&workload(fixture, &uid).await?, "Admitted", "True", "Admitted")?;
            let object = self.get(fixture).await?;
            ensure!(!self.row.played_job(&object, &self.related)?.suspended, "it is suspended");
            let pod_sets = self.row.decode_after(&object, None, Beside::of(&self.related))?.pod_sets;
            ensure!(!pod_sets.is_empty(), "it has no pod sets");
            for set in pod_sets {
                let label = set.start_from().node_selector.get(NODE_LABEL);
                ensure!(
                    label.is_some_and(|label| label == "any"),
                    "{} has not the labels of the flavor",
                    set.name
                );
            }
            Ok(())
        })
        .await?;
        self.bring_to(fixture, PlayedState::Ready).await?;
        fixture.wait_for_queue_counts(QUEUE, (0, 1, 1), &[]).await?;
        if self.row.can_finish(true) {
            self.bring_to(fixture, PlayedState::Succeeded).await?;
            eventually(format!("the Workload of {} has finished", self.name), async || {
                expect_condition(&workload(fixture, &uid).await?, "Finished", "True", "Succeeded")
            })
            .await?;
        } else {
            self.delete(fixture).await?;
        }
        fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0"), ("memory", "0")]).await?;
        self.delete(fixture).await?;
        eventually(format!("{} and its Workload are deleted", self.name), async || {
            ensure!(workload(fixture, &uid).await.is_err(), "its Workload is left");
            Ok(())
        })
        .await
    }

    /// Returns whether a test ends the object by its status, or a Job by its pods.
    pub(crate) fn ends(&self) -> bool {
        self.row.role == Role::Suspended && self.row.can_finish(true)
    }

    /// Returns whether the object is suspended now.
    pub(crate) async fn is_suspended(&self, fixture: &Fixture) -> Result<bool> {
        Ok(self.row.played_job(&self.get(fixture).await?, &self.related)?.suspended)
    }

    pub(crate) async fn get(&self, fixture: &Fixture) -> Result<Value> {
        fixture.objects.must_get(self.api, &fixture.name, &self.name).await
    }

    pub(crate) async fn delete(&self, fixture: &Fixture) -> Result<()> {
        let background = PropagationPolicy::Background;
        Ok(fixture.objects.delete(self.api, &fixture.name, &self.name, background).await?)
    }

    /// Writes a state to the status, or lets the pods of a Job reach it.
    pub(crate) async fn bring_to(&self, fixture: &Fixture, state: PlayedState) -> Result<()> {
        if self.is_played() {
            let mut object = self.get(fixture).await?;
            self.row.play(&mut object, &self.related, state, Timestamp::now())?;
            let status = json!({"status": object["status"]});
            fixture.objects.merge_status(self.api, &fixture.name, &self.name, &status).await?;
            return Ok(());
        }
        if state == PlayedState::Succeeded {
            return fixture.finish_job(&self.name).await;
        }
        eventually(format!("the pods of {} are ready", self.name), async || {
            let job = self.row.played_job(&self.get(fixture).await?, &self.related)?;
            ensure!(job.active && job.ready, "{job:?}");
            Ok(())
        })
        .await
    }
}

/// Returns the Workload of the job with this UID.
async fn workload(fixture: &Fixture, uid: &str) -> Result<Value> {
    let selector = format!("kueue.x-k8s.io/job-uid={uid}");
    let found = fixture.objects.list(Kind::WORKLOAD, &fixture.name, &selector).await?;
    ensure!(found.len() <= 1, "it has {} Workloads", found.len());
    found.into_iter().next().context("it has no Workload")
}
