//! The story of one kind: of two equal jobs, of which only one fits into the quota, the second has the higher priority.

use super::ray_dashboards::RayDashboards;
use super::revisions::{Recording, Rules};
use crate::cluster::Cluster;
use crate::objects::{self, Kind, ObjectClient, condition, condition_is_true, expect_condition, text};
use crate::paths;
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Names of the jobs, which are those of their priority classes too.
const LOW: &str = "low";
const HIGH: &str = "high";
const QUEUE: &str = "main";
/// Name of the runtime of TrainJobs.
const RUNTIME: &str = "nodes";
/// How long a pod takes to end once it is deleted: long enough that quota is missed if it is released before.
const ENDING: &str = "2s";
/// For each step of an operator, on a machine that does other work.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A kind and what its jobs are.
pub(super) struct Story {
    pub(super) kind: Kind,
    /// Name of its sample in `config/samples`.
    pub(super) sample: &'static str,
    /// What distinguishes the story from another one of the sample.
    variant: &'static str,
    /// The operators it needs, in the order in which they start.
    pub(super) operators: &'static [&'static str],
    /// Pods of a job of the sample.
    pods: usize,
    /// CPU of these pods, in thousandths.
    cpu: i64,
    /// Changes the sample, which has the name of the job.
    adjust: fn(&mut Value),
    /// Returns an object that the jobs need.
    needs: fn() -> Option<(Kind, Value)>,
    /// A condition of the job that says that it runs.
    runs: Option<&'static str>,
    end: End,
}

/// How a job ends.
enum End {
    /// By the end of its pods; last of those whose names contain this, with which some operators see the end of the job.
    Pods { last: &'static str },
    /// By the end of its pods whose names contain this. Its operator deletes the others then; by Kueue's rules they have no quota.
    SomePods(&'static str),
    /// By what it has submitted, and then by the end of its submitter. Its operator deletes the cluster then; by Kueue's rules it has
    /// no quota.
    Submission,
    /// It runs until it is deleted.
    Deletion,
}

/// What most stories have.
const PLAIN: Story = Story {
    kind: Kind::JOB,
    sample: "",
    variant: "",
    operators: &[],
    pods: 3,
    cpu: 2500,
    adjust: |_| {},
    needs: || None,
    runs: None,
    end: End::Pods { last: "" },
};

/// A job of the training operator.
const fn training_job(names: [&'static str; 3], pods: usize, cpu: i64, last: &'static str) -> Story {
    let [singular, plural, sample] = names;
    Story {
        kind: Kind::new("kubeflow.org", "v1", singular, plural),
        sample,
        operators: &["training-operator"],
        pods,
        cpu,
        end: End::Pods { last },
        ..PLAIN
    }
}

/// All stories.
pub(super) const STORIES: [Story; 14] = [
    Story {
        kind: Kind::new("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
        sample: "jobset",
        operators: &["jobset"],
        ..PLAIN
    },
    Story {
        kind: Kind::new("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
        sample: "leaderworkerset",
        operators: &["lws"],
        pods: 4,
        cpu: 2000,
        end: End::Deletion,
        ..PLAIN
    },
    Story {
        kind: Kind::new("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
        sample: "mpijob",
        operators: &["mpi-operator"],
        // Otherwise workers run on after the launcher.
        adjust: |job| job["spec"]["runPolicy"]["cleanPodPolicy"] = "Running".into(),
        end: End::SomePods("launcher"),
        ..PLAIN
    },
    training_job(["PyTorchJob", "pytorchjobs", "pytorchjob"], 3, 3000, "master"),
    training_job(["TFJob", "tfjobs", "tfjob"], 3, 2500, "worker-0"),
    training_job(["XGBoostJob", "xgboostjobs", "xgboostjob"], 3, 3000, "master"),
    training_job(["PaddleJob", "paddlejobs", "paddlejob"], 3, 3000, "master"),
    training_job(["JAXJob", "jaxjobs", "jaxjob"], 2, 2000, "worker-0"),
    Story {
        kind: Kind::new("ray.io", "v1", "RayCluster", "rayclusters"),
        sample: "raycluster",
        operators: &["kuberay"],
        end: End::Deletion,
        ..PLAIN
    },
    Story {
        kind: Kind::new("ray.io", "v1", "RayJob", "rayjobs"),
        sample: "rayjob",
        operators: &["kuberay"],
        pods: 4,
        cpu: 3000,
        end: End::Submission,
        ..PLAIN
    },
    Story {
        kind: Kind::new("ray.io", "v1", "RayService", "rayservices"),
        sample: "rayservice",
        operators: &["kuberay"],
        adjust: |service| {
            let applications = json!({"applications": [{"name": "app", "import_path": "work:app"}]});
            service["spec"]["serveConfigV2"] = applications.to_string().into();
        },
        runs: Some("Ready"),
        end: End::Deletion,
        ..PLAIN
    },
    Story {
        kind: Kind::new("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
        sample: "trainjob",
        operators: &["jobset", "trainer"],
        pods: 2,
        cpu: 2000,
        adjust: |job| job["spec"]["runtimeRef"]["name"] = RUNTIME.into(),
        needs: || Some(training_runtime()),
        ..PLAIN
    },
    Story { adjust: name_component, ..WRAPPER },
    Story {
        variant: "-two-kinds",
        pods: 3,
        cpu: 2500,
        adjust: |wrapper| {
            name_component(wrapper);
            let name = format!("{}-served", text(wrapper, "/metadata/name"));
            if let Some(components) = wrapper["spec"]["components"].as_array_mut() {
                components.push(json!({"template": wrapped_deployment(&name)}));
            }
        },
        end: End::Deletion,
        ..WRAPPER
    },
];

/// A Job in an AppWrapper.
const WRAPPER: Story = Story {
    kind: Kind::new("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers"),
    sample: "appwrapper",
    operators: &["appwrapper"],
    pods: 2,
    cpu: 2000,
    runs: Some("PodsReady"),
    ..PLAIN
};

/// Names the wrapped Job, and leaves it to Sluice to suspend the AppWrapper.
fn name_component(wrapper: &mut Value) {
    wrapper["spec"]["suspend"] = false.into();
    let name = format!("{}-work", text(wrapper, "/metadata/name"));
    wrapper["spec"]["components"][0]["template"]["metadata"]["name"] = name.into();
}

/// A Deployment with one pod.
fn wrapped_deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    let container = json!({"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "500m"}}});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}})
}

/// A runtime with the steps that train alone.
fn training_runtime() -> (Kind, Value) {
    let kind =
        Kind::new("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes");
    let pod =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "work:1"}]}});
    let job = json!({"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": pod}});
    let jobs = json!([{"name": "node", "replicas": 1, "template": job}]);
    let spec =
        json!({"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}});
    (kind, json!({"metadata": {"name": RUNTIME}, "spec": spec}))
}

impl Story {
    /// Returns its name, which is that of its namespace.
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.sample, self.variant)
    }

    /// Runs the story and checks all revisions, also those of a story that does not come to its end. Returns what was seen.
    pub(super) async fn run(&self, cluster: &Cluster, ray_dashboards: &RayDashboards) -> Result<String> {
        let stage = Stage { story: self, namespace: self.name(), objects: &cluster.objects, ray_dashboards };
        stage.prepare().await?;
        let recording = Recording::start(&cluster.objects, &stage.namespace).await?;
        let outcome = stage.play().await;
        let rules = Rules {
            jobs: &[LOW, HIGH],
            quota: self.cpu,
            pods_outlive_jobs: matches!(self.end, End::SomePods(_) | End::Submission),
        };
        let seen = recording.check(&rules);
        match (outcome, seen) {
            (Ok(()), seen) => Ok(seen?.to_string()),
            (Err(error), Ok(seen)) => Err(error.context(format!("the revisions are right ({seen})"))),
            (Err(error), Err(wrong)) => Err(error.context(format!("{wrong:#}"))),
        }
    }
}

/// The namespace of a story.
struct Stage<'a> {
    story: &'a Story,
    namespace: String,
    objects: &'a ObjectClient,
    ray_dashboards: &'a RayDashboards,
}

impl Stage<'_> {
    /// Makes the namespace, and queues with quota for one job.
    async fn prepare(&self) -> Result<()> {
        let (objects, name) = (self.objects, &*self.namespace);
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": name}})).await?;
        objects.create(Kind::FLAVOR, &json!({"metadata": {"name": name}})).await?;
        let cpu = format!("{}m", self.story.cpu);
        let mut queue =
            objects::cluster_queue(name, "", name, &[("cpu", &cpu, None), ("memory", "1Ti", None)]);
        queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
        objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(name, QUEUE, name)).await?;
        if let Some((kind, mut object)) = (self.story.needs)() {
            end_slowly(&mut object);
            objects.create(kind, &object).await?;
        }
        for (class, value) in [(LOW, 1), (HIGH, 2)] {
            let class = json!({"metadata": {"name": format!("{name}-{class}")}, "value": value});
            objects.create(Kind::PRIORITY_CLASS, &class).await?;
        }
        self.eventually("the default service account exists", async || {
            objects.must_get(Kind::SERVICE_ACCOUNT, name, "default").await.map(drop)
        })
        .await
    }

    async fn play(&self) -> Result<()> {
        self.create(LOW).await?;
        self.wait_until_running(LOW).await?;
        self.create(HIGH).await?;
        self.wait_until_running(HIGH).await?;
        self.expect_preempted(LOW).await?;
        self.end(HIGH).await?;
        self.wait_until_running(LOW).await?;
        self.end(LOW).await?;
        self.wait_until_quota_is_free().await
    }

    async fn eventually<T>(&self, what: &str, probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        within(TIMEOUT, what, probe).await
    }

    /// Creates a job from the sample.
    async fn create(&self, job: &str) -> Result<()> {
        let file = format!("config/samples/{}.yaml", self.story.sample);
        let sample = fs::read_to_string(paths::root().join(&file)).with_context(|| file.clone())?;
        let mut object: Value = serde_saphyr::from_str(&sample)?;
        let class = format!("{}-{job}", self.namespace);
        object["metadata"] = json!({"name": job, "namespace": self.namespace,
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": class}});
        (self.story.adjust)(&mut object);
        end_slowly(&mut object);
        self.objects.create(self.story.kind, &object).await.context(file)?;
        Ok(())
    }

    /// Returns the Workloads of a job, by their names.
    async fn workloads(&self, job: &str) -> Result<Vec<Value>> {
        let mut all = self.objects.list(Kind::WORKLOAD, &self.namespace, "").await?;
        all.retain(|workload| text(workload, "/metadata/name").contains(&format!("-{job}-")));
        Ok(all)
    }

    /// Returns the pods of a job, by their names.
    async fn pods(&self, job: &str) -> Result<Vec<Value>> {
        let mut all = self.objects.list(Kind::POD, &self.namespace, "").await?;
        all.retain(|pod| text(pod, "/metadata/name").starts_with(&format!("{job}-")));
        Ok(all)
    }

    /// Waits until a job is admitted and has all its pods and no others, and they are ready.
    async fn wait_until_running(&self, job: &str) -> Result<()> {
        let expected = self.story.pods;
        self.eventually(&format!("{job} runs"), async || {
            let workloads = self.workloads(job).await?;
            ensure!(!workloads.is_empty(), "it has no Workload");
            for workload in &workloads {
                expect_condition(workload, "Admitted", "True", "Admitted")?;
            }
            let pods = self.pods(job).await?;
            let ready = pods.iter().filter(|pod| condition_is_true(pod, "Ready")).count();
            ensure!((pods.len(), ready) == (expected, expected), "of {} pods {ready} are ready", pods.len());
            if let Some(runs) = self.story.runs {
                let object = self.objects.must_get(self.story.kind, &self.namespace, job).await?;
                ensure!(condition_is_true(&object, runs), "it is not {runs}: {}", object["status"]);
            }
            Ok(())
        })
        .await
    }

    async fn expect_preempted(&self, job: &str) -> Result<()> {
        for workload in self.workloads(job).await? {
            let evicted = condition(&workload, "Evicted");
            ensure!(evicted.reason == "Preempted", "{job} was not preempted: {evicted:?}");
        }
        let pods = self.pods(job).await?;
        let running = pods.iter().filter(|pod| pod["spec"].get("schedulingGates").is_none()).count();
        ensure!(running == 0, "{job} has {running} pods beside the preemptor");
        Ok(())
    }

    /// Ends a job, and waits until its Workloads have finished or are gone.
    async fn end(&self, job: &str) -> Result<()> {
        match self.story.end {
            End::Pods { last } => {
                self.end_pods(job, |name| !name.contains(last)).await?;
                self.end_pods(job, |name| name.contains(last)).await?;
            }
            End::SomePods(part) => self.end_pods(job, |name| name.contains(part)).await?,
            End::Submission => {
                self.ray_dashboards.end(&self.namespace, job);
                // Other pods have the name of their cluster, which has that of the job.
                self.end_pods(job, |name| name.matches('-').count() == 1).await?;
            }
            End::Deletion => return self.delete(job).await,
        }
        self.eventually(&format!("{job} has finished"), async || {
            for workload in self.workloads(job).await? {
                expect_condition(&workload, "Finished", "True", "Succeeded")?;
            }
            Ok(())
        })
        .await
    }

    /// Lets pods succeed, and waits until they have.
    async fn end_pods(&self, job: &str, selects: impl Fn(&str) -> bool) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        for pod in self.pods(job).await? {
            let name = text(&pod, "/metadata/name");
            if selects(name) {
                self.objects.merge(Kind::POD, &self.namespace, name, &patch).await?;
            }
        }
        self.eventually(&format!("pods of {job} have ended"), async || {
            let mut pods = self.pods(job).await?;
            pods.retain(|pod| {
                selects(text(pod, "/metadata/name")) && text(pod, "/status/phase") == "Running"
            });
            ensure!(pods.is_empty(), "{} run", pods.len());
            Ok(())
        })
        .await
    }

    /// Deletes a job in the foreground: in the background its quota is free at once, as in Kueue.
    async fn delete(&self, job: &str) -> Result<()> {
        let foreground = PropagationPolicy::Foreground;
        self.objects.delete(self.story.kind, &self.namespace, job, foreground).await?;
        self.eventually(&format!("nothing is left of {job}"), async || {
            let (workloads, pods) = (self.workloads(job).await?.len(), self.pods(job).await?.len());
            ensure!((workloads, pods) == (0, 0), "{workloads} Workloads and {pods} pods are left");
            Ok(())
        })
        .await
    }

    async fn wait_until_quota_is_free(&self) -> Result<()> {
        self.eventually("the quota is free", async || {
            let queue = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.namespace).await?;
            let used = queue.pointer("/status/flavorsReservation/0/resources").and_then(Value::as_array);
            for resource in used.context("the queue has no usage")? {
                ensure!(text(resource, "/total") == "0", "{resource} is reserved");
            }
            Ok(())
        })
        .await
    }
}

/// Annotates each pod template in a manifest so that its pods take time to end.
fn end_slowly(value: &mut Value) {
    if value["spec"]["containers"].is_array() {
        value["metadata"]["annotations"]["sluice.dev/terminate-after"] = ENDING.into();
        return;
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(end_slowly),
        Value::Array(items) => items.iter_mut().for_each(end_slowly),
        _ => {}
    }
}
