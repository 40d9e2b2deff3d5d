//! How Kueue's metrics move in the life of a Job, a pod, a pod group, an elastic Job and a RayCluster. Each step of a life lists every
//! series of a ClusterQueue that it changes, and by how much; the expected values follow from Kueue's source, where each family is
//! reported. Deviations that are wanted are rows of COMPATIBILITY.md.

use crate::fixtures::job_server::{JobServer, kind, pod};
use crate::fixtures::server_views::Shown as _;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::admission::AdmissionSettings;
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::frameworks::{NothingRelated, PlayedState, framework};
use sluice::lifecycle::pods_ready::PodsReadyLimits;
use sluice::metrics::counters::Counters;
use sluice::metrics::model::{MetricFamilies, Role};
use sluice::reconciler::CoreSettings;
use std::collections::BTreeMap;

pub(crate) const FAMILIES: MetricFamilies = MetricFamilies {
    cluster_queue_resources: false,
    local_queues: true,
    cohorts: false,
    creation_latency: true,
};

/// Cycles are run for any change, and quota is compared elsewhere.
const LEFT_OUT: [&str; 4] = [
    "kueue_admission_attempt",
    "kueue_cluster_queue_resource_pending",
    "kueue_pending_scheduling_hashes",
    "kueue_build_info",
];

/// A manager, and the values of its metrics page after the last step.
pub(crate) struct Life {
    pub(crate) server: JobServer,
    pub(crate) counters: Counters,
    pub(crate) values: BTreeMap<String, f64>,
}

impl Life {
    /// A queue of as many CPUs, with preemption of lower priority, two priority classes and `waitForPodsReady`.
    pub(crate) fn new(frameworks: &[&str], cpus: &str) -> Self {
        let frameworks = frameworks.iter().map(|name| (*name).to_owned()).collect();
        Self::with_settings(CoreSettings { frameworks, ..CoreSettings::default() }, cpus)
    }

    /// The same with these settings, except `waitForPodsReady`.
    pub(crate) fn with_settings(mut settings: CoreSettings, cpus: &str) -> Self {
        settings.lifecycle.pods_ready = Some(PodsReadyLimits {
            timeout: SignedDuration::from_mins(5),
            recovery_timeout: None,
            max_requeues: None,
            backoff_base: SignedDuration::from_hours(1),
            backoff_max: SignedDuration::from_hours(1),
        });
        let mut server = JobServer::with_settings(settings, AdmissionSettings::default(), cpus);
        for (name, value) in [("low", -10), ("high", 10)] {
            server.create(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
        }
        server.edit_any(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        });
        let mut life = Self { server, counters: Counters::new("linux", FAMILIES), values: BTreeMap::new() };
        life.changes();
        life
    }

    /// Takes a step, and compares what it changes with these words.
    #[track_caller]
    fn step(&mut self, what: &str, act: impl FnOnce(&mut JobServer), expected: &str) {
        act(&mut self.server);
        // The core's own clock ticks once a second.
        self.server.advance(SignedDuration::from_secs(1));
        let mut changes = self.changes();
        changes.sort();
        let words = expected.split("; ").filter(|change| !change.is_empty());
        let mut expected: Vec<String> = words.flat_map(series).collect();
        expected.sort();
        assert_eq!(changes, expected, "{what}:\n{}\n", changes.join("\n"));
    }

    /// Returns what has changed since the last call: series of ClusterQueues, each with its labels and the change. A series of the
    /// LocalQueue changes as that of its ClusterQueue.
    #[track_caller]
    pub(crate) fn changes(&mut self) -> Vec<String> {
        for observation in std::mem::take(&mut self.server.observed) {
            self.counters.observe(&observation, Role::Leader);
        }
        let page = sluice::metrics::render(&self.server.gauges(), FAMILIES, Role::Leader).unwrap()
            + &self.counters.render().unwrap();
        let values = parse(&page);
        let names = values.keys().chain(self.values.keys().filter(|name| !values.contains_key(*name)));
        let change = |name: &String| {
            let [is, was] = [&values, &self.values].map(|of| of.get(name).copied().unwrap_or_default());
            (name.clone(), is - was)
        };
        let changes: BTreeMap<String, f64> = names.map(change).filter(|(_, change)| *change != 0.0).collect();
        self.values = values;
        let (local, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(name, _)| name.starts_with("local_queue_"));
        for (name, change) in local {
            let of_queue =
                name.replacen("local_queue_", "", 1).replacen("name=lq,namespace=ns", "cluster_queue=cq", 1);
            let of_queue = of_queue.replacen("cluster_queue=cq,cluster_queue=cq", "cluster_queue=cq", 1);
            let same = changes.get(&of_queue) == Some(change);
            let is_usage = name.contains("resource_") || name.contains("_status");
            assert!(
                same || is_usage,
                "{name} changes by {change} unlike that of its ClusterQueue: {changes:#?}"
            );
        }
        let short = |name: &str| {
            let labels = name.replace("{cluster_queue=cq", "{").replace(",cluster_queue=cq", "");
            labels.replace("{,", "{")
        };
        let line = |(name, change): (&String, &f64)| format!("{} {change:+}", short(name));
        others.into_iter().map(line).collect()
    }
}

/// Returns the series that a change of a table stands for, each with the change: `admitted low` is what an admission of priority class
/// `low` counts. Anything else is a series itself.
fn series(change: &str) -> Vec<String> {
    let words: Vec<&str> = change.split(' ').collect();
    let of_class = |names: &[&str], class: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{name}{{priority_class={}}} +1", class.concat())).collect()
    };
    match &words[..] {
        ["admitted", class @ ..] => of_class(
            &[
                "quota_reserved_workloads_total",
                "quota_reserved_wait_time_seconds_count",
                "admitted_workloads_total",
                "admission_wait_time_seconds_count",
            ],
            class,
        ),
        ["ready", class @ ..] => of_class(
            &["admitted_until_ready_wait_time_seconds_count", "ready_wait_time_seconds_count"],
            class,
        ),
        ["finished", class @ ..] => {
            let mut all = of_class(&["execution_time_seconds_count", "finished_workloads_total"], class);
            all.push("finished_workloads{} +1".to_owned());
            all
        }
        ["evicted", cause, class @ ..] => {
            let (reason, underlying) = cause.split_once('/').unwrap_or((cause, ""));
            let class = class.concat();
            let labels =
                format!("{{reason={reason},underlying_cause={underlying},priority_class={class}}} +1");
            ["evicted_workloads_once_total", "evicted_workloads_total"]
                .map(|name| format!("{name}{labels}"))
                .into()
        }
        ["active", by] => ["admitted_active_workloads", "reserving_active_workloads"]
            .map(|name| format!("{name}{{}} {by}"))
            .into(),
        ["was", "ready", reason] => {
            vec![format!("pods_ready_to_evicted_time_seconds_count{{reason={reason},underlying_cause=}} +1")]
        }
        ["released", reason] => {
            vec![format!("workload_eviction_latency_seconds_count{{reason={reason}}} +1")]
        }
        ["created", kind] => vec![format!("workload_creation_latency_seconds_count{{job_kind={kind}}} +1")],
        ["pending", by] => vec![format!("pending_workloads{{status=inadmissible}} {by}")],
        ["unadmitted", cause, by] => {
            vec![format!("unadmitted_workloads{{reason=NoReservation,underlying_cause={cause}}} {by}")]
        }
        ["gate", gate, is_group, by] => {
            let labels = format!("{{name=kueue.x-k8s.io/{gate},is_group={is_group}}}");
            vec![format!("pod_scheduling_gate_removal_seconds_count{labels} {by}")]
        }
        _ => vec![change.to_owned()],
    }
}

/// Parses the series of Kueue's families; of histograms the counts. Labels are sorted as on the page, without quotes and role.
pub(crate) fn parse(page: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("kueue_")) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        if name.ends_with("_bucket")
            || name.ends_with("_sum")
            || LEFT_OUT.iter().any(|other| name.starts_with(other))
        {
            continue;
        }
        let labels = labels.trim_end_matches('}').replace('"', "");
        let labels: Vec<&str> =
            labels.split(',').filter(|label| !label.starts_with("replica_role")).collect();
        let name = name.trim_start_matches("kueue_");
        values.insert(format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap());
    }
    values
}

/// A Job of pods of one CPU.
pub(crate) fn job(name: &str, pods: i32, class: &str) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({"metadata": {"name": name, "namespace": "ns", "labels": {
            "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": class}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": template}})
}

fn set_status(server: &mut JobServer, name: &str, status: &Value) {
    server.edit(kind("batch", "Job"), name, |job| job["status"] = status.clone());
}

fn ready(server: &mut JobServer, name: &str, pods: i32) {
    set_status(server, name, &json!({"active": pods, "ready": pods}));
}

pub(crate) fn complete(server: &mut JobServer, name: &str) {
    let end = json!({"type": "Complete", "status": "True", "message": "done"});
    set_status(server, name, &json!({"conditions": [end]}));
}

/// A pod is ready on a node.
fn pod_ready(server: &mut JobServer, name: &str) {
    server.run_pod(name);
    server.edit(Kind::Pod, name, |pod| {
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
}

fn pod_ends(server: &mut JobServer, name: &str, phase: &str) {
    server.edit(Kind::Pod, name, |pod| pod["status"] = json!({"phase": phase}));
}

#[test]
fn job_is_preempted_and_runs_again() {
    let mut life = Life::new(&["batch/job"], "2");
    let batch = framework("batch", "Job").unwrap();
    life.step(
        "created",
        |server| server.submit(batch, job("l", 2, "low")).unwrap(),
        "admitted low; active +1; created Job",
    );
    life.step("ready", |server| ready(server, "l", 2), "ready low");
    life.step(
        "a job of higher priority",
        |server| server.submit(batch, job("h", 2, "high")).unwrap(),
        "evicted Preempted low; pending +1; was ready Preempted; preempted_workloads_total{preempting_cluster_queue=cq,reason=InClusterQueue} +1; unadmitted WaitingForPreemptedWorkloads +1; created Job",
    );
    life.step(
        "pods are gone",
        |server| ready(server, "l", 0),
        "admitted high; unadmitted WaitingForPreemptedWorkloads -1; unadmitted WaitingForQuota +1; released Preempted",
    );
    life.step(
        "the other one ends",
        |server| complete(server, "h"),
        "admitted low; finished high; pending -1; unadmitted WaitingForQuota -1",
    );
    life.step("ends", |server| complete(server, "l"), "finished low; active -1");
}

#[test]
fn single_pod() {
    let mut life = Life::new(&["pod"], "2");
    life.step(
        "created",
        |server| server.create(Kind::Pod, pod("p", None)),
        "admitted; active +1; gate admission false +1; created Pod",
    );
    life.step("ready", |server| pod_ready(server, "p"), "ready");
    life.step("ends", |server| pod_ends(server, "p", "Succeeded"), "finished; active -1");
}

#[test]
fn pod_group_loses_a_pod() {
    let mut life = Life::new(&["pod"], "2");
    let create = |name: &'static str| {
        move |server: &mut JobServer| server.create(Kind::Pod, pod(name, Some(("g", 2))))
    };
    life.step("first pod", create("p-0"), "");
    life.step("second pod", create("p-1"), "admitted; active +1; gate admission true +2; created Pod");
    life.step("first is ready", |server| pod_ready(server, "p-0"), "");
    life.step("second is ready", |server| pod_ready(server, "p-1"), "ready");
    life.step("one fails", |server| pod_ends(server, "p-1", "Failed"), "");
    life.step("is replaced", create("p-2"), "gate admission true +1");
    life.step("the new one is ready", |server| pod_ready(server, "p-2"), "");
    life.step(
        "deactivated",
        |server| {
            server.edit(Kind::Workload, "g", |workload| workload["spec"]["active"] = json!(false));
        },
        "evicted Deactivated; was ready Deactivated",
    );
    life.step(
        "pods have ended",
        |server| {
            for name in ["p-0", "p-2"] {
                server.end_pod(name);
            }
        },
        "active -1; unadmitted Deactivated +1; released Deactivated",
    );
}

/// A pod of the elastic Job, as its controller makes it.
fn pod_of(server: &JobServer, name: &str) -> Value {
    let job = server.get(kind("batch", "Job"), "a").unwrap();
    let mut pod = job["spec"]["template"].clone();
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!("ns");
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a",
        "uid": job["metadata"]["uid"], "controller": true}]);
    pod
}

#[test]
fn elastic_job_grows() {
    let mut life = Life::new(&["batch/job"], "4");
    let batch = framework("batch", "Job").unwrap();
    let mut elastic = job("a", 1, "low");
    elastic["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    elastic["spec"]["completions"] = Value::Null;
    let resize = |pods: i32| {
        move |server: &mut JobServer| {
            server.edit(kind("batch", "Job"), "a", |job| {
                job["spec"]["parallelism"] = json!(pods);
                job["metadata"]["generation"] = json!(pods);
            });
        }
    };
    life.step(
        "created",
        |server| server.submit(batch, elastic).unwrap(),
        "admitted low; active +1; created Job",
    );
    life.step(
        "first pod",
        |server| server.create(Kind::Pod, pod_of(server, "a-0")),
        "gate elastic-job false +1",
    );
    life.step("ready", |server| ready(server, "a", 1), "ready low");
    life.step("second pod", |server| server.create(Kind::Pod, pod_of(server, "a-1")), "");
    life.step(
        "grows",
        resize(3),
        "admitted low; finished low; gate elastic-job false +1; replaced_workload_slices_total{} +1",
    );
    life.step("its pods are ready", |server| ready(server, "a", 3), "ready low");
    life.step("asks for more than there is", resize(5), "pending +1; unadmitted ExceedsMaxQuota +1");
    life.step(
        "asks for less",
        resize(4),
        "admitted low; finished low; pending -1; replaced_workload_slices_total{} +1; unadmitted ExceedsMaxQuota -1",
    );
    life.step("shrinks", resize(2), "ready low");
    life.step("ends", |server| complete(server, "a"), "finished low; active -1");
}

/// Pods of a group and a single pod, on nodes that a topology describes.
#[test]
fn pods_with_a_topology() {
    let mut life = Life::new(&["pod"], "4");
    let server = &mut life.server;
    let levels = json!([{"nodeLabel": "kubernetes.io/hostname"}]);
    server.create(Kind::Topology, json!({"metadata": {"name": "hosts"}, "spec": {"levels": levels}}));
    let capacity = json!({"cpu": "8", "memory": "8Gi", "pods": "20"});
    server.create(Kind::Node, json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n", "pool": "racks"}}, "spec": {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}}));
    server.edit_any(Kind::ResourceFlavor, &ObjectKey::cluster("f"), |flavor| {
        flavor["spec"] = json!({"nodeLabels": {"pool": "racks"}, "topologyName": "hosts"});
    });
    life.changes();
    let create = |name: &'static str, group: Option<(&'static str, usize)>| {
        move |server: &mut JobServer| {
            let mut pod = pod(name, group);
            pod["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] =
                json!("kubernetes.io/hostname");
            pod["spec"]["schedulingGates"] =
                json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
            server.create(Kind::Pod, pod);
        }
    };
    life.step(
        "single pod",
        create("p", None),
        "admitted; active +1; gate admission false +1; gate topology false +1; created Pod",
    );
    life.step("first of a group", create("g-0", Some(("g", 2))), "");
    life.step(
        "second of a group",
        create("g-1", Some(("g", 2))),
        "admitted; active +1; gate admission true +2; gate topology true +2; created Pod",
    );
}

/// A Job that has ended without quota finishes in the ClusterQueue of its LocalQueue; with Kueue, in none.
#[test]
fn end_without_quota() {
    let mut life = Life::new(&["batch/job"], "2");
    let batch = framework("batch", "Job").unwrap();
    life.step(
        "too large",
        |server| server.submit(batch, job("a", 3, "low")).unwrap(),
        "pending +1; unadmitted ExceedsMaxQuota +1; created Job",
    );
    life.step(
        "ends",
        |server| complete(server, "a"),
        "finished_workloads_total{priority_class=low} +1; finished_workloads{} +1; pending -1; unadmitted ExceedsMaxQuota -1",
    );
}

/// A slice that another one replaces while both wait has not given its quota to it.
#[test]
fn waiting_slice_is_replaced() {
    let mut life = Life::new(&["batch/job"], "2");
    let mut elastic = job("a", 3, "low");
    elastic["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    elastic["spec"]["completions"] = Value::Null;
    let batch = framework("batch", "Job").unwrap();
    life.step(
        "too large",
        |server| server.submit(batch, elastic).unwrap(),
        "pending +1; unadmitted ExceedsMaxQuota +1; created Job",
    );
    life.step(
        "another slice",
        |server| {
            let old = server.workload_name();
            let mut slice = server.get(Kind::Workload, &old).unwrap().clone();
            let metadata = slice["metadata"].as_object_mut().unwrap();
            metadata.retain(|field, _| {
                !["uid", "resourceVersion", "creationTimestamp"].contains(&field.as_str())
            });
            metadata["name"] = json!("newer");
            slice["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] =
                json!(format!("ns/{old}"));
            slice["status"] = json!({});
            server.create(Kind::Workload, slice);
        },
        "finished_workloads_total{priority_class=low} +1; finished_workloads{} +1",
    );
}

#[test]
fn ray_cluster_is_deactivated() {
    let mut life = Life::new(&["ray.io/raycluster"], "4");
    let ray = framework("ray.io", "RayCluster").unwrap();
    let of_ray = kind("ray.io", "RayCluster");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples/raycluster.yaml");
    let mut object: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    object["metadata"] =
        json!({"name": "r", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    let play = |state: PlayedState| {
        move |server: &mut JobServer| {
            let now = server.now();
            server.edit(of_ray, "r", |object| ray.play(object, &NothingRelated, state, now).unwrap());
        }
    };
    life.step(
        "created",
        |server| server.submit(ray, object).unwrap(),
        "admitted; active +1; created RayCluster",
    );
    life.step("ready", play(PlayedState::Ready), "ready");
    life.step("deactivated", JobServer::deactivate, "evicted Deactivated; was ready Deactivated");
    life.step(
        "pods are gone",
        play(PlayedState::Stopped),
        "active -1; unadmitted Deactivated +1; released Deactivated",
    );
    let activate = |server: &mut JobServer| {
        let name = server.workload_name();
        server.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(true));
    };
    life.step("activated", activate, "admitted; active +1; unadmitted Deactivated -1");
    // The first eviction for this reason was counted.
    life.step(
        "deactivated again",
        JobServer::deactivate,
        "evicted_workloads_total{reason=Deactivated,underlying_cause=,priority_class=} +1; active -1; unadmitted Deactivated +1; released Deactivated",
    );
    life.step("activated again", activate, "admitted; active +1; unadmitted Deactivated -1");
    life.step(
        "never ready",
        |server| server.advance(SignedDuration::from_mins(6)),
        "evicted PodsReadyTimeout/WaitForStart; active -1; pending +1; unadmitted PendingEvaluation +1; released PodsReadyTimeout",
    );
    life.step("deleted", |server| server.delete(of_ray, "r"), "pending -1; unadmitted PendingEvaluation -1");
}
