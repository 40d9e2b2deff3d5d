//! The contract of controllers that make their own Workloads. The case plays the operator of an invented kind, Simulation, and runs
//! the check that `make third-party` runs.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::definitions;
use sluice_e2e::objects::{Kind, ObjectClient, condition, condition_is_true, text};
use sluice_e2e::third_party::{Breach, Check, Limits, Manifest, Rule};
use std::convert::Infallible;
use std::time::Duration;

const SIMULATION: Kind = Kind::new("lab.example.com", "v1", "Simulation", "simulations");
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// How often the operator looks at its objects.
const STEP: Duration = Duration::from_millis(200);
/// Checks that run at the same time.
const CHECKS: usize = 3;

/// What the operator does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    MakesNoWorkload,
    StartsEarly,
    StartsTooFew,
    IgnoresFlavor,
    KeepsRunning,
    ReleasesEarly,
    ForgetsFinished,
    StartsOnce,
    ForgetsDeletion,
}

/// The operator keeps the contract. It copies the queue name to its pods, which are not queued themselves.
pub(crate) async fn controller_keeps_contract(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let before = install(cluster, fixture).await?;
    check(fixture, Fault::None).await?;
    remove(cluster, fixture, &before).await
}

/// Each fault of the operator is reported as the rule that it breaks.
pub(crate) async fn broken_rules_are_named(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let before = install(cluster, fixture).await?;
    let faults = [
        (Fault::MakesNoWorkload, Rule::Workload),
        (Fault::StartsEarly, Rule::Waits),
        (Fault::StartsTooFew, Rule::Starts),
        (Fault::IgnoresFlavor, Rule::Assignment),
        (Fault::KeepsRunning, Rule::Stops),
        (Fault::ReleasesEarly, Rule::Releases),
        (Fault::ForgetsFinished, Rule::Finishes),
        (Fault::StartsOnce, Rule::Restarts),
        (Fault::ForgetsDeletion, Rule::Deletes),
    ];
    stream::iter(faults)
        .map(async |(fault, rule)| {
            let error = check(fixture, fault).await.err().with_context(|| format!("{fault:?} passed"))?;
            let breach = error.downcast_ref::<Breach>();
            let breach = breach.with_context(|| format!("{fault:?} was not seen: {error:#}"))?;
            ensure!(breach.rule == rule, "{fault:?} was reported as: {breach}");
            note(format!("{fault:?}: {breach}"));
            anyhow::Ok(())
        })
        .buffer_unordered(CHECKS)
        .try_collect::<Vec<()>>()
        .await?;
    remove(cluster, fixture, &before).await
}

async fn install(cluster: &mut Cluster, fixture: &Fixture) -> Result<Value> {
    definitions::permissive(&fixture.kubectl, &fixture.objects, SIMULATION).await?;
    let integrations = json!({"frameworks": ["batch/job", "pod"],
        "externalFrameworks": ["Simulation.v1.lab.example.com"]});
    cluster.reconfigure(&json!({"integrations": integrations})).await
}

async fn remove(cluster: &mut Cluster, fixture: &Fixture, before: &Value) -> Result<()> {
    let background = PropagationPolicy::Background;
    fixture.objects.delete(Kind::CRD, "", &SIMULATION.resource(), background).await?;
    cluster.reconfigure(before).await?;
    Ok(())
}

/// Runs the check beside an operator.
async fn check(fixture: &Fixture, fault: Fault) -> Result<()> {
    let name = fixture.own_name(&format!("{fault:?}").to_lowercase());
    // Long enough that a job is evicted before its pods end.
    let endless = [Fault::KeepsRunning, Fault::ReleasesEarly].contains(&fault);
    let manifest = format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: input}}
---
apiVersion: lab.example.com/v1
kind: Simulation
metadata: {{name: sample, labels: {{{QUEUE_LABEL}: any}}}}
spec:
  pods: 3
  template:
    metadata: {{annotations: {{sluice.dev/run-for: {}}}}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers: [{{name: main, image: simulation, resources: {{requests: {{cpu: 100m, memory: 1Mi}}}}}}]
",
        if endless { "10m" } else { "8s" }
    );
    let check = Check {
        objects: fixture.objects.clone(),
        name: name.clone(),
        manifest: Manifest::parse(&manifest)?,
        node_label: ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        limits: Limits {
            reaction: Duration::from_secs(if fault == Fault::None { 60 } else { 15 }),
            run: Duration::from_mins(2),
            quiet: Duration::from_secs(1),
        },
    };
    let operator = Operator { objects: &fixture.objects, prefix: name, fault };
    tokio::select! {
        outcome = check.run() => outcome,
        Err(error) = operator.run() => Err(error.context("the operator failed")),
    }
}

/// The operator of the Simulations in the namespaces with a prefix.
struct Operator<'a> {
    objects: &'a ObjectClient,
    prefix: String,
    fault: Fault,
}

impl Operator<'_> {
    /// Runs until an error that does not come from a race with the deletion or change of an object.
    async fn run(&self) -> Result<Infallible> {
        loop {
            if let Err(error) = self.step().await {
                let code = error.downcast_ref::<kube::Error>().and_then(|error| match error {
                    kube::Error::Api(status) => Some(status.code),
                    _ => None,
                });
                // 403: the namespace is terminating.
                if !matches!(code, Some(403 | 404 | 409)) {
                    return Err(error);
                }
            }
            tokio::time::sleep(STEP).await;
        }
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        let mut objects = self.objects.list(kind, "", "").await?;
        objects.retain(|object| text(object, "/metadata/namespace").starts_with(&self.prefix));
        Ok(objects)
    }

    async fn step(&self) -> Result<()> {
        let workloads = self.list(Kind::WORKLOAD).await?;
        for simulation in self.list(SIMULATION).await? {
            let is_of = |workload: &&Value| {
                text(workload, "/metadata/ownerReferences/0/uid") == text(&simulation, "/metadata/uid")
            };
            match workloads.iter().find(is_of) {
                Some(workload) => self.follow(Some(&simulation), workload).await?,
                None if self.fault == Fault::MakesNoWorkload => {}
                None => self.create_workload(&simulation).await?,
            }
        }
        // The Workload outlives the Simulation by its finalizer: it has quota, until the pods have ended.
        for workload in workloads.iter().filter(|workload| is_deleting(workload)) {
            self.follow(None, workload).await?;
        }
        Ok(())
    }

    async fn create_workload(&self, simulation: &Value) -> Result<()> {
        let metadata = &simulation["metadata"];
        let pods = json!({"name": "main", "count": simulation["spec"]["pods"],
            "template": simulation["spec"]["template"]});
        let body = json!({
            "metadata": {
                "name": format!("simulation-{}", text(simulation, "/metadata/name")),
                "namespace": metadata["namespace"], "ownerReferences": [owner(simulation)],
                "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            },
            "spec": {"queueName": metadata["labels"][QUEUE_LABEL], "podSets": [pods]},
        });
        self.objects.create(Kind::WORKLOAD, &body).await?;
        Ok(())
    }

    /// Does what the Workload says. `simulation` is `None` when it is being deleted.
    async fn follow(&self, simulation: Option<&Value>, workload: &Value) -> Result<()> {
        let namespace = text(workload, "/metadata/namespace");
        let holds = |kind| condition_is_true(workload, kind);
        if holds("Finished") {
            return Ok(());
        }
        let pods = self.objects.list(Kind::POD, namespace, "").await?;
        let running: Vec<&Value> = pods.iter().filter(|pod| !has_ended(pod)).collect();
        let evicted = holds("Evicted");
        let mut may_run = holds("Admitted") && !evicted && !is_deleting(workload);
        may_run |= self.fault == Fault::StartsEarly;
        may_run &= self.fault != Fault::StartsOnce
            || workload.pointer("/status/schedulingStats/evictions").is_none();
        if let Some(simulation) = simulation.filter(|_| may_run) {
            return self.start(simulation, workload, &pods).await;
        }
        let keeps_running = [Fault::KeepsRunning, Fault::ReleasesEarly].contains(&self.fault);
        for pod in running.iter().filter(|pod| !keeps_running && !is_deleting(pod)) {
            let name = text(pod, "/metadata/name");
            self.objects.delete(Kind::POD, namespace, name, PropagationPolicy::Background).await?;
        }
        let ended = running.is_empty() || self.fault == Fault::ReleasesEarly;
        let given_up = evicted || (is_deleting(workload) && self.fault != Fault::ForgetsDeletion);
        if holds("QuotaReserved") && ended && given_up {
            let message = condition(workload, "Evicted").message;
            self.set_condition(workload, ("QuotaReserved", "False"), "Pending", &message).await?;
        }
        Ok(())
    }

    /// Creates the pods that are missing, and reports when all have ended.
    async fn start(&self, simulation: &Value, workload: &Value, pods: &[Value]) -> Result<()> {
        let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
        let asked = &workload["spec"]["podSets"][0]["count"];
        let count = assignment.get("count").unwrap_or(asked).as_u64().context("no count")?;
        let count = if self.fault == Fault::StartsTooFew { count - 1 } else { count };
        for index in 0..count {
            let name = format!("{}-{index}", text(simulation, "/metadata/name"));
            if !pods.iter().any(|pod| text(pod, "/metadata/name") == name) {
                let pod = self.pod(&name, simulation, workload, assignment).await?;
                self.objects.create(Kind::POD, &pod).await?;
            }
        }
        let ended = pods.iter().filter(|pod| has_ended(pod)).count();
        if u64::try_from(ended)? == count && self.fault != Fault::ForgetsFinished {
            self.set_condition(workload, ("Finished", "True"), "Succeeded", "All pods have ended").await?;
        }
        Ok(())
    }

    /// Builds a pod with the node labels and tolerations of its flavors.
    async fn pod(&self, name: &str, owned_by: &Value, workload: &Value, admitted: &Value) -> Result<Value> {
        let template = &workload["spec"]["podSets"][0]["template"];
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = workload["metadata"]["namespace"].clone();
        pod["metadata"]["ownerReferences"] = json!([owner(owned_by)]);
        if self.fault == Fault::None {
            pod["metadata"]["labels"][QUEUE_LABEL] = workload["spec"]["queueName"].clone();
        }
        if self.fault == Fault::IgnoresFlavor {
            return Ok(pod);
        }
        let mut flavors: Vec<&str> = admitted["flavors"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, name)| name.as_str())
            .collect();
        flavors.sort_unstable();
        flavors.dedup();
        let mut tolerations = Vec::new();
        for flavor in flavors {
            let flavor = self.objects.must_get(Kind::FLAVOR, "", flavor).await?;
            for (label, value) in flavor["spec"]["nodeLabels"].as_object().into_iter().flatten() {
                pod["spec"]["nodeSelector"][label] = value.clone();
            }
            tolerations.extend(flavor["spec"]["tolerations"].as_array().into_iter().flatten().cloned());
        }
        pod["spec"]["tolerations"] = json!(tolerations);
        Ok(pod)
    }

    /// Writes a condition, on the version of the Workload that was read. A cleared reservation has no admission.
    async fn set_condition(
        &self,
        workload: &Value,
        (kind, status): (&str, &str),
        reason: &str,
        message: &str,
    ) -> Result<()> {
        let mut conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != kind);
        conditions.push(json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": jiff::Timestamp::now().to_string()}));
        let mut patch = json!({"status": {"conditions": conditions},
            "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}});
        if kind == "QuotaReserved" {
            patch["status"]["admission"] = Value::Null;
        }
        let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
        self.objects.merge_status(Kind::WORKLOAD, namespace, name, &patch).await?;
        Ok(())
    }
}

fn owner(simulation: &Value) -> Value {
    json!({"apiVersion": "lab.example.com/v1", "kind": "Simulation", "controller": true,
        "name": simulation["metadata"]["name"], "uid": simulation["metadata"]["uid"]})
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}
