//! Plain pods and pod groups, and the kinds whose pods form groups.
//!
//! A pod without a group is a unit of its own. Several pods with the name of a group make up one Workload of that name;
//! a pod set is a role: all pods of equal shape.

mod actions;
mod compose;
mod review;
mod role_hash;
mod rules;
mod webhook;

use review::PodHooks;
pub(super) use role_hash::pod_shape;
pub use role_hash::role_hash;
pub use webhook::hold_pod;

use super::pod_member::PodMember;
use super::row::{
    Count, CreatedKinds, Enabled, Flags, Framework, LabelValue, PodGrouping, PodLabel, PodLabels,
    PodSetSource, Rank, Role, TemplateMarks, TopologyChecks, WebhookHandler, Webhooks,
};
use super::row_parts::{
    JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NO_FIELDS, NO_STATUS, POD, PODS, READ_ONLY, template_webhooks,
};
use super::set_rules::{LeaderWorkerSetHooks, StatefulSetHooks};
use super::unit::{
    ComposeError, Composed, Membership, PodSetCount, Sources, Stop, Unit, UnitRules, UnitStatus,
};
use super::view::{Gvk, JobView, PodSetInfo};
use super::workload::WorkloadRequest;
use super::{Action, JobError};
use crate::api::names;
use jiff::Timestamp;
use serde_json::Value;

pub(super) static ROW: Framework = Framework {
    gvk: Gvk { group: "", version: "v1", kind: "Pod", plural: "pods" },
    name: "pod",
    short_names: &["po"],
    enabled: Enabled::AsShipped,
    role: Role::Pods,
    fields: NO_FIELDS,
    pod_sets: &[],
    related: &[],
    // Those of its group.
    pods: PodLabels {
        selector: Some(&[PodLabel { key: names::POD_GROUP_NAME, value: LabelValue::SameLabel }]),
        rank: Rank { index_label: Some("kueue.x-k8s.io/pod-group-pod-index"), sub_groups: None },
    },
    status: NO_STATUS,
    // A Spark driver pod owns its executor pods.
    creates: PODS,
    webhooks: Webhooks { handler: WebhookHandler::HoldPod, ..JOB_WEBHOOKS },
    rbac: JOB_RBAC,
    flags: Flags { create_rules_on_update: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &PodHooks,
};

pub(super) static STATEFUL_SET: Framework = Framework {
    gvk: Gvk { group: "apps", version: "v1", kind: "StatefulSet", plural: "statefulsets" },
    name: "statefulset",
    short_names: &["sts"],
    enabled: Enabled::AsShipped,
    role: Role::PodsOfOwner,
    fields: NO_FIELDS,
    pod_sets: &[PodSetSource::Fixed {
        name: "main",
        template: "/spec/template",
        count: Count::Field("/spec/replicas"),
    }],
    related: &[],
    pods: PodLabels {
        selector: None,
        rank: Rank { index_label: Some("apps.kubernetes.io/pod-index"), sub_groups: None },
    },
    status: NO_STATUS,
    creates: PODS,
    webhooks: Webhooks {
        scale: true,
        ..template_webhooks(TemplateMarks {
            templates: &["/spec/template"],
            labels: &[],
            annotations: &[],
            copied_labels: &[],
            ready: "/status/readyReplicas",
        })
    },
    rbac: READ_ONLY,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &StatefulSetHooks,
};

pub(super) static LEADER_WORKER_SET: Framework = Framework {
    gvk: Gvk {
        group: "leaderworkerset.x-k8s.io",
        version: "v1",
        kind: "LeaderWorkerSet",
        plural: "leaderworkersets",
    },
    name: "leaderworkerset.x-k8s.io/leaderworkerset",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::PodsOfOwner,
    fields: NO_FIELDS,
    pod_sets: &[PodSetSource::LeaderAndWorkers {
        leader: "/spec/leaderWorkerTemplate/leaderTemplate",
        workers: "/spec/leaderWorkerTemplate/workerTemplate",
        size: "/spec/leaderWorkerTemplate/size",
    }],
    related: &[],
    pods: PodLabels {
        selector: None,
        rank: Rank { index_label: Some("leaderworkerset.sigs.k8s.io/worker-index"), sub_groups: None },
    },
    status: NO_STATUS,
    creates: CreatedKinds::Only(&[("apps", "StatefulSet"), POD]),
    webhooks: template_webhooks(TemplateMarks {
        templates: &[
            "/spec/leaderWorkerTemplate/leaderTemplate",
            "/spec/leaderWorkerTemplate/workerTemplate",
        ],
        labels: &[],
        annotations: &[(names::POD_GROUP_SERVING_ANNOTATION, "true")],
        copied_labels: &[names::QUEUE_NAME_LABEL, names::PRIORITY_CLASS_LABEL],
        ready: "/status/readyReplicas",
    }),
    rbac: READ_ONLY,
    flags: Flags {
        prebuilt: false,
        topology_checks: TopologyChecks::TemplatesAndGroups,
        pod_grouping: PodGrouping::ByReplica {
            name: "leaderworkerset.sigs.k8s.io/name",
            index: "leaderworkerset.sigs.k8s.io/group-index",
            leader: "leaderworkerset.sigs.k8s.io/leader-name",
        },
        ..JOB_FLAGS
    },
    hooks: &LeaderWorkerSetHooks,
};

/// Rules of pods and pod groups, and of the pods of an owner.
#[derive(Debug)]
pub(super) struct PodRules;

impl UnitRules for PodRules {
    fn view(&self, unit: &Unit<'_>) -> Result<JobView, JobError> {
        compose::view(unit)
    }

    fn workload_name(&self, unit: &Unit<'_>) -> Result<String, JobError> {
        compose::name(unit)
    }

    fn pod_sets(&self, unit: &Unit<'_>, _sources: Sources<'_>) -> Result<Vec<Value>, ComposeError> {
        compose::pod_sets(unit)
    }

    fn compose(
        &self,
        unit: &Unit<'_>,
        _sources: Sources<'_>,
        request: &WorkloadRequest<'_>,
    ) -> Result<Composed, ComposeError> {
        compose::compose(unit, request)
    }

    fn membership(&self, unit: &Unit<'_>, pod_sets: &[PodSetCount<'_>], finished: bool) -> Membership {
        rules::membership(unit, pod_sets, finished)
    }

    fn status(&self, unit: &Unit<'_>, now: Timestamp) -> UnitStatus {
        rules::status(unit, now)
    }

    fn start(&self, unit: &Unit<'_>, infos: &[PodSetInfo]) -> Result<Vec<Action>, JobError> {
        actions::start(unit, infos)
    }

    fn stop(&self, unit: &Unit<'_>, stop: &Stop<'_>) -> Vec<Action> {
        actions::stop(unit, stop)
    }

    fn release(&self, member: &PodMember) -> Option<Action> {
        actions::release(member)
    }

    fn remove(&self, member: &PodMember) -> Vec<Action> {
        actions::remove(member)
    }

    fn disagreement(&self, unit: &Unit<'_>, member: &PodMember) -> Option<String> {
        compose::disagreement(unit, member)
    }

    fn owner_reference(&self, unit: &Unit<'_>, member: &PodMember) -> Option<Value> {
        compose::owner(member, compose::group(unit).is_none()).ok()
    }
}
