//! The kind JobSet: a pod set for each of its replicated jobs. Its row says everything.
//!
//! Its status counts child Jobs, not pods: `ready`, `succeeded` and `active` of a replicated job are numbers of Jobs.

use super::batch_job::COMPLETION_INDEX;
use super::hooks::NoHooks;
use super::row::{
    Active, Count, CreatedKinds, Family, FinishedRule, Framework, JobFields, Listing, ManagedBy, Message,
    PodSetSource, Rank, Ready, Reclaimable, Role, StatusFields, SubGroups, Test,
};
use super::table::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS};
use super::view::Gvk;

const STATUSES: &str = "/status/replicatedJobsStatus";

pub(super) const ROW: Framework = Framework {
    gvk: Gvk { group: "jobset.x-k8s.io", version: "v1alpha2", kind: "JobSet", plural: "jobsets" },
    name: "jobset.x-k8s.io/jobset",
    listing: Listing { family: Family::Batch, label: "JobSet" },
    served: false,
    role: Role::Suspended,
    fields: JobFields {
        suspend: Some("/spec/suspend"),
        managed_by: Some(ManagedBy {
            field: "/spec/managedBy",
            built_in: "jobset.sigs.k8s.io/jobset-controller",
        }),
        start_time: None,
        server_labels: &[],
    },
    pod_sets: PodSetSource::Array {
        list: "/spec/replicatedJobs",
        name: "/name",
        template: "/template/spec/template",
        count: Count::Product(
            &Count::Field("/replicas"),
            &Count::Job {
                parallelism: "/template/spec/parallelism",
                completions: "/template/spec/completions",
            },
        ),
    },
    rank: Rank {
        index_label: Some(COMPLETION_INDEX),
        sub_groups: Some(SubGroups { label: "jobset.sigs.k8s.io/job-index", count: "/replicas" }),
    },
    status: StatusFields {
        finished: &[
            FinishedRule { when: Test::Condition("Completed"), success: true, message: Message::OfCondition },
            FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
        ],
        active: Active::SumOver(STATUSES, "/active"),
        ready: Ready::SubGroupsOf(STATUSES),
        reclaimable: Reclaimable::SubGroupsOf(STATUSES),
    },
    priority_class: None,
    creates: CreatedKinds::Only(&[JOB]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: JOB_FLAGS,
    hooks: &NoHooks,
};
