//! Gates whose effect is a write of the core, an answer of a webhook or a metric.

use super::{Row, core_settings};
use crate::fixtures::job_samples::RelatedSamples;
use crate::fixtures::leading_core::{Core, JOB, condition, job, reserving_workload, workload, writes};
use crate::fixtures::metrics_page::page_of_everything;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sluice::admission::{AdmissionSettings, ObjectLookup, OwnerRef, OwnerView, ReviewContext, review};
use sluice::api::config::Configuration;
use sluice::cache::Kind;
use sluice::cli::manager::config_mapping;
use sluice::frameworks::Related;
use std::collections::BTreeMap;

const LOCAL_QUEUE_METRICS: &str = "metrics: {localQueueMetrics: {enable: true}}";

pub(super) const ROWS: [Row; 8] = [
    Row {
        gate: "AssignQueueLabelsForPods",
        play: labels_of_pods,
        enabled: "cluster-queue-name local-queue-name podset",
        disabled: "podset",
        ..Row::ALONE
    },
    Row {
        gate: "FinishOrphanedWorkloads",
        play: orphan,
        enabled: "OwnerNotFound",
        disabled: "QuotaReserved",
        ..Row::ALONE
    },
    Row {
        gate: "LocalQueueMetrics",
        sections: LOCAL_QUEUE_METRICS,
        play: |configuration| has_family(configuration, "kueue_local_queue_pending_workloads"),
        enabled: "served",
        disabled: "absent",
    },
    Row {
        gate: "MetricForWorkloadCreationLatency",
        play: |configuration| has_family(configuration, "kueue_workload_creation_latency_seconds"),
        enabled: "served",
        disabled: "absent",
        ..Row::ALONE
    },
    Row {
        gate: "MetricsForCohorts",
        play: |configuration| has_family(configuration, "kueue_cohort_info"),
        enabled: "served",
        disabled: "absent",
        ..Row::ALONE
    },
    Row {
        gate: "MultiKueue",
        play: managed_by,
        enabled: r#""kueue.x-k8s.io/multikueue""#,
        disabled: "null",
        ..Row::ALONE
    },
    Row { gate: "ReclaimablePods", play: charged_cpu, enabled: "0", disabled: "1000", ..Row::ALONE },
    Row {
        gate: "WorkloadIdentifierAnnotations",
        play: workloads_beside_prebuilt,
        enabled: "0 created",
        disabled: "1 created",
        ..Row::ALONE
    },
];

fn core(configuration: &Configuration) -> Core {
    Core::new(core_settings(configuration))
}

/// Suffixes of Kueue's labels that the start of a Job gives to its pods.
fn labels_of_pods(configuration: &Configuration) -> String {
    let mut core = core(configuration);
    core.put(JOB, job("j"));
    let admitted = ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", "x"));
    let starts = writes(&core.put(Kind::Workload, reserving_workload("j", &admitted)), JOB);
    let labels = starts[0].body["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    let suffixes = labels.keys().filter_map(|label| label.strip_prefix("kueue.x-k8s.io/"));
    let mut suffixes: Vec<&str> = suffixes.collect();
    suffixes.sort_unstable();
    suffixes.join(" ")
}

/// Reason of the first condition of a Workload that was made for a Job and has lost its owner.
fn orphan(configuration: &Configuration) -> String {
    let mut orphan = workload("j", &[]);
    orphan["metadata"]["ownerReferences"] = json!([]);
    let written = writes(&core(configuration).put(Kind::Workload, orphan), Kind::Workload);
    written[0].body["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

/// CPU in thousandths that the queue charges for an admitted Workload of one pod, which will not run again.
fn charged_cpu(configuration: &Configuration) -> String {
    let mut core = core(configuration);
    let admitted = ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", "x"));
    let mut object = reserving_workload("j", &admitted);
    object["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
    core.put(Kind::Workload, object);
    core.advance_seconds(1);
    let snapshot = core.state.snapshot();
    let usage = snapshot.queues.cluster_queues["cq"].usage_by_flavor_resource.values();
    usage.map(|charged| charged.usage.get()).sum::<i64>().to_string()
}

/// A Job names its prebuilt Workload by an annotation.
fn workloads_beside_prebuilt(configuration: &Configuration) -> String {
    let mut named = job("j");
    named["metadata"]["annotations"] = json!({"kueue.x-k8s.io/prebuilt-workload-name": "mine"});
    format!("{} created", writes(&core(configuration).put(JOB, named), Kind::Workload).len())
}

fn has_family(configuration: &Configuration, family: &str) -> String {
    let page = page_of_everything(config_mapping::metric_families(configuration));
    let is_served = page.lines().any(|line| line.starts_with(&format!("# TYPE {family} ")));
    if is_served { "served" } else { "absent" }.to_owned()
}

/// A namespace whose queues have a check of MultiKueue.
struct MultiKueueQueues(BTreeMap<String, String>);

impl ObjectLookup for MultiKueueQueues {
    fn namespace_labels(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        Some(&self.0)
    }
    fn local_queue_exists(&self, _: &str, _: &str) -> bool {
        true
    }
    fn default_priority_class_exists(&self) -> bool {
        false
    }
    fn queue_is_multikueue(&self, _: &str, _: &str) -> bool {
        true
    }
    fn related(&self) -> &dyn Related {
        &RelatedSamples
    }
    fn knows_pods(&self) -> bool {
        true
    }
    fn owner(&self, _: &str, _: &OwnerRef) -> Option<OwnerView> {
        None
    }
}

/// `spec.managedBy` of a new Job, as the webhook leaves it.
fn managed_by(configuration: &Configuration) -> String {
    let objects = MultiKueueQueues(BTreeMap::new());
    let settings: AdmissionSettings = config_mapping::admission_settings(configuration, "sluice-system");
    let object = job("j");
    let request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "ns", "name": "j", "object": object,
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"}}});
    let answer =
        review("/mutate-batch-v1-job", &request, &ReviewContext { objects: &objects, settings: &settings });
    // Without a patch nothing is changed.
    let patch = BASE64_STANDARD.decode(answer["response"]["patch"].as_str().unwrap_or("W10=")).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    let managed_by = patch.into_iter().find(|operation| operation["path"] == "/spec/managedBy");
    managed_by.map_or(Value::Null, |operation| operation["value"].clone()).to_string()
}
