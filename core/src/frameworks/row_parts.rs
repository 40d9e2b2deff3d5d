//! Parts that rows share, of which most kinds take some as they are.
//!
//! Invariant: no part belongs to one kind; what only one kind has is in its file.

use super::role_shape::RoleShape;
use super::row::{
    Active, CreatedKinds, Elastic, FailurePolicy, FieldPointers, Flags, LabelValue, PodGrouping, PodLabels,
    Rank, Rbac, Ready, Reclaimable, StatusFields, TemplateMarks, TopologyChecks, WebhookHandler, Webhooks,
};

/// A controller that creates pods alone.
pub(super) const PODS: CreatedKinds = CreatedKinds::Only(&[POD]);
pub(super) const POD: (&str, &str) = ("", "Pod");
pub(super) const JOB: (&str, &str) = ("batch", "Job");

/// Webhooks of a kind that is defaulted when it is created. Objects without a queue must not depend on the manager.
pub(super) const JOB_WEBHOOKS: Webhooks = Webhooks {
    handler: WebhookHandler::Suspend,
    mutate: &["CREATE"],
    validate: &["CREATE", "UPDATE"],
    scale: false,
    with_queue: FailurePolicy::Fail,
    without_queue: FailurePolicy::Ignore,
};

/// Returns the webhooks of a kind whose pod templates are marked, when it is created and when it is changed.
pub(super) const fn template_webhooks(marks: TemplateMarks) -> Webhooks {
    Webhooks { handler: WebhookHandler::MarkTemplates(marks), mutate: &["CREATE", "UPDATE"], ..JOB_WEBHOOKS }
}

/// Permissions on a kind that is suspended and started, and whose Workload holds up its deletion.
pub(super) const JOB_RBAC: Rbac =
    Rbac { object: &["delete", "patch"], status: &["patch"], finalizers: &["update"] };

/// Permissions on a kind that is only read.
pub(super) const READ_ONLY: Rbac = Rbac { object: &[], status: &[], finalizers: &[] };

/// Rank labels of a kind without them.
pub(super) const NO_RANK: Rank = Rank { index_label: None, sub_groups: None };

/// The value of a label of pods with the name of their object.
pub(super) const NAME: LabelValue = LabelValue::Field("/metadata/name");

/// Labels of pods that have none of their object.
pub(super) const NO_LABELS: PodLabels = PodLabels { selector: None, rank: NO_RANK };

/// Fields of a kind without a suspend field.
pub(super) const NO_FIELDS: FieldPointers = FieldPointers {
    suspend: None,
    managed_by: None,
    start_time: None,
    server_labels: &[],
    priority_class: None,
    roles: RoleShape::Template,
};

/// Status of a kind whose objects are not jobs, or whose members say it.
pub(super) const NO_STATUS: StatusFields = StatusFields {
    finished: &[],
    active: Active::Counts(&[]),
    ready: Ready::Hook,
    reclaimable: Reclaimable::None,
};

/// Flags of most kinds that can be suspended.
pub(super) const JOB_FLAGS: Flags = Flags {
    pod_sets_from_spec: true,
    completed_pod_sets: false,
    elastic: Elastic::No,
    prebuilt: true,
    resumes_children: true,
    create_rules_on_update: true,
    topology_checks: TopologyChecks::TemplatesAndGroups,
    gate: None,
    pod_grouping: PodGrouping::Together,
};
