//! The kinds of KubeRay: a head, groups of workers, and the submitter of a RayJob. What KubeRay adds to pods that no template has
//! is in `ray_additions.rs`, what is read from the cluster of a RayJob or a RayService in `ray_child.rs`, and rules of the webhooks
//! are in `ray_rules.rs`.

use super::JobError;
use super::hooks::{Hooks, ReviewField, ReviewScope, RuleSettings};
use super::job_under_review::JobUnderReview;
use super::patch::FieldChange;
use super::ray_additions as additions;
use super::ray_child as child;
use super::ray_rules as rules;
use super::related::{Awaited, Beside, Found, PodSets, Related, RelatedKey};
use super::role_shape::RoleShape;
use super::roles::read_count;
use super::row::{
    Active, Between, Count, CreatedKinds, Elastic, Enabled, FieldPointers, FinishedRule, Flags, Framework,
    LabelValue, ManagedBy, Message, PodLabel, PodLabels, PodSetSource, Pointer, Ready, Reclaimable, Role,
    StatusFields, Test,
};
use super::row_parts::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NAME, NO_RANK, POD};
use super::view::{Gvk, JobHold};
use crate::api::validation::{Errors, Gates};
use serde_json::{Value, json};

const CLUSTER: (&str, &str) = ("ray.io", "RayCluster");
const JOB_STATE: &str = "/status/jobDeploymentStatus";
/// Label of pods with the name of their RayCluster.
const CLUSTER_NAME: &str = "ray.io/cluster";

const FLAGS: Flags = Flags {
    pod_sets_from_spec: false,
    completed_pod_sets: true,
    elastic: Elastic::GatedTemplates,
    // KubeRay deletes the cluster of a RayJob that is suspended, and leaves that of a RayService as it is, then and later.
    resumes_children: false,
    ..JOB_FLAGS
};

/// Where a kind has its cluster, and what it has beside.
#[derive(Debug)]
pub(super) struct Ray {
    /// The cluster.
    pub(super) cluster: Pointer,
    /// Fields of the cluster.
    pub(super) fields: ClusterFields,
    /// Path of the cluster in messages.
    pub(super) shown: &'static str,
    /// Name of the cluster that is created for it.
    pub(super) child: Option<Pointer>,
    /// Where its status names the cluster that is to replace that one.
    pub(super) next_child: Option<Pointer>,
    pub(super) role: RayRole,
}

/// Fields of a cluster, as pointers to the object.
#[derive(Debug)]
pub(super) struct ClusterFields {
    pub(super) autoscaling: Pointer,
    review: &'static [ReviewField],
}

/// What runs on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RayRole {
    Cluster,
    Job,
    Service,
}

/// The pod set of a head.
pub(super) const HEAD: &str = "head";
/// Where the submitter of a RayJob has its template.
pub(super) const SUBMITTER_TEMPLATE: Pointer = "/spec/submitterPodTemplate";
pub(super) const SUBMISSION_MODE: Pointer = "/spec/submissionMode";
/// The mode in which a Job submits a RayJob.
pub(super) const BY_JOB: &str = "K8sJobMode";
pub(super) const SUBMITTER: &str = "submitter";
pub(super) const CLUSTER_SELECTOR: Pointer = "/spec/clusterSelector";
pub(super) const SHUTS_DOWN: Pointer = "/spec/shutdownAfterJobFinishes";

static CLUSTER_HOOKS: Ray = Ray {
    cluster: "/spec",
    fields: ClusterFields {
        autoscaling: "/spec/enableInTreeAutoscaling",
        review: &[ReviewField::Boolean("/spec/enableInTreeAutoscaling")],
    },
    shown: "spec",
    child: None,
    next_child: None,
    role: RayRole::Cluster,
};

static JOB_HOOKS: Ray = Ray {
    cluster: "/spec/rayClusterSpec",
    fields: ClusterFields {
        autoscaling: "/spec/rayClusterSpec/enableInTreeAutoscaling",
        review: &[
            ReviewField::Boolean("/spec/rayClusterSpec/enableInTreeAutoscaling"),
            ReviewField::Boolean(SHUTS_DOWN),
            ReviewField::Text(SUBMISSION_MODE),
            ReviewField::Map(CLUSTER_SELECTOR),
        ],
    },
    shown: "spec.rayClusterSpec",
    child: Some("/status/rayClusterName"),
    next_child: None,
    role: RayRole::Job,
};

static SERVICE_HOOKS: Ray = Ray {
    cluster: "/spec/rayClusterConfig",
    fields: ClusterFields {
        autoscaling: "/spec/rayClusterConfig/enableInTreeAutoscaling",
        review: &[ReviewField::Boolean("/spec/rayClusterConfig/enableInTreeAutoscaling")],
    },
    // Kueue names the field of a RayJob.
    shown: "spec.rayClusterSpec",
    child: Some("/status/activeServiceStatus/rayClusterName"),
    next_child: Some("/status/pendingServiceStatus/rayClusterName"),
    role: RayRole::Service,
};

impl Hooks for Ray {
    fn complete_pod_sets(
        &self,
        job: &Value,
        mut pod_sets: Vec<Value>,
        beside: Beside<'_>,
    ) -> Result<PodSets, JobError> {
        additions::complete(self, job, &mut pod_sets)?;
        let awaited = child::count(self, job, beside, &mut pod_sets)?;
        Ok(awaited
            .map_or(PodSets::Known(pod_sets), |object| PodSets::Await(Awaited { object, problem: None })))
    }

    fn related(&self, job: &Value) -> Result<Vec<RelatedKey>, JobError> {
        if self.role == RayRole::Service { child::named_by(self, job) } else { child::read_by(self, job) }
    }

    fn slice(&self, job: &Value, generation: i64) -> Result<String, JobError> {
        child::slice(self, job, generation)
    }

    fn outdated_annotation(
        &self,
        job: &Value,
        related: &dyn Related,
    ) -> Result<Option<(&'static str, String)>, JobError> {
        child::outdated_annotation(self, job, related)
    }

    /// Kueue leaves the field of a RayJob out when it is false.
    fn not_suspended(&self) -> Value {
        if self.role == RayRole::Job { Value::Null } else { Value::Bool(false) }
    }

    /// Once each group was charged for its replicas alone.
    fn as_charged_before(&self, job: &Value) -> Option<Value> {
        let list = format!("{}/workerGroupSpecs", self.cluster);
        let mut former = job.clone();
        let mut differs = false;
        for group in former.pointer_mut(&list)?.as_array_mut()? {
            let now = read_count(group, "", &WORKERS).ok()?;
            let fields = group.as_object_mut()?;
            fields.retain(|field, _| !matches!(&**field, "minReplicas" | "maxReplicas" | "suspend"));
            if fields.get("replicas").is_none_or(Value::is_null) {
                fields.insert("replicas".to_owned(), json!(1));
            }
            differs |= read_count(group, "", &WORKERS).ok()? != now;
        }
        differs.then_some(former)
    }

    fn hold(&self, job: &Value) -> Result<JobHold, JobError> {
        child::hold(self, job)
    }

    fn may_have_pods(&self, job: &Value, related: &dyn Related) -> Result<Option<bool>, JobError> {
        if additions::cleans_up(self, job)? {
            return Ok(Some(true));
        }
        if self.role == RayRole::Service {
            return Ok(child::are_stopped(self, job, related)?.then_some(false));
        }
        if child::hold(self, job)? != JobHold::Held {
            return Ok(None);
        }
        let children = child::read_by(self, job)?;
        Ok(Some(children.iter().any(|child| related.find(child) != Found::Missing)))
    }

    fn place_of(&self, _job: &Value, pod_set: &str) -> Option<String> {
        (self.role == RayRole::Job && pod_set == SUBMITTER).then(|| SUBMITTER_TEMPLATE.to_owned())
    }

    /// A RayJob that selects a cluster runs on the quota of that cluster.
    fn skips(&self, job: &Value) -> bool {
        let selector = job.pointer(CLUSTER_SELECTOR).and_then(Value::as_object);
        self.role == RayRole::Job && selector.is_some_and(|labels| !labels.is_empty())
    }

    /// Adds an empty head to a cluster without one, as Kueue's webhook does: the schema then refuses the parts of the head that
    /// are missing. A RayJob may have no cluster.
    fn defaults(&self, job: &Value, _gates: &Gates) -> Vec<FieldChange> {
        let part = |pointer: &str| job.pointer(pointer).is_some_and(|part| !part.is_null());
        if part(&format!("{}/headGroupSpec", self.cluster))
            || self.role == RayRole::Job && !part(self.cluster)
        {
            return Vec::new();
        }
        let path: Vec<&str> = self.cluster.split('/').skip(1).chain(["headGroupSpec"]).collect();
        let head = json!({"rayStartParams": null, "template": {"spec": {"containers": null}}});
        vec![FieldChange::new(&path, head)]
    }

    fn is_sized_apart_from_owner(&self) -> bool {
        self.role == RayRole::Cluster
    }

    /// KubeRay deletes the cluster of a RayJob that is suspended.
    fn keeps_suspended_children(&self) -> bool {
        self.role == RayRole::Service
    }

    fn copy_annotations(&self) -> &'static [&'static str] {
        if self.role == RayRole::Cluster { &child::COPY_ANNOTATIONS } else { &[] }
    }

    fn review_fields(&self) -> &'static [ReviewField] {
        self.fields.review
    }

    fn review_scope(
        &self,
        job: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
    ) -> ReviewScope {
        rules::scope(self, job, old, settings)
    }

    fn shown_path(&self, path: String) -> String {
        match self.role {
            RayRole::Service => path.replacen("spec.rayClusterConfig", self.shown, 1),
            RayRole::Cluster | RayRole::Job => path,
        }
    }

    fn validate_change(
        &self,
        job: &JobUnderReview<'_>,
        _old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        rules::validate(self, job, settings, errors);
    }
}

pub(super) const fn gvk(kind: &'static str, plural: &'static str) -> Gvk {
    Gvk { group: "ray.io", version: "v1", kind, plural }
}

const fn fields(suspend: &'static str) -> FieldPointers {
    FieldPointers {
        suspend: Some(suspend),
        managed_by: Some(ManagedBy { field: "/spec/managedBy", built_in: "ray.io/kuberay-operator" }),
        start_time: None,
        server_labels: &[],
        priority_class: None,
        roles: RoleShape::Template,
    }
}

const fn status(finished: &'static [FinishedRule], active: Test, ready: Test) -> StatusFields {
    StatusFields {
        finished,
        active: Active::When(active),
        ready: Ready::When(ready),
        reclaimable: Reclaimable::None,
    }
}

/// The workers of a group, as KubeRay makes them. The definition sets 0 replicas where the field is left out.
pub(super) const WORKERS: Count = Count::Unless(
    "/suspend",
    &Count::Product(
        &Count::Between(Between { count: "/replicas", least: "/minReplicas", most: "/maxReplicas" }),
        &Count::AtLeastOne("/numOfHosts"),
    ),
);

const fn groups(list: Pointer) -> PodSetSource {
    PodSetSource::Array { list, name: "/groupName", template: "/template", count: WORKERS }
}

/// Its operator says that a RayCluster is not suspended from the first pod that it makes until the last one is gone; the state is that of
/// a cluster whose pods are all ready. Operators before KubeRay 1.3 say the state alone: for them the pods themselves are counted, of
/// which some may have been made and not be known yet.
pub(super) const CLUSTER_ACTIVE: Test = Test::Any(&[Test::NotTrue("RayClusterSuspended"), CLUSTER_READY]);
const CLUSTER_READY: Test = Test::Text("/status/state", &["ready"]);

pub(super) static RAY_CLUSTER: Framework = Framework {
    gvk: gvk("RayCluster", "rayclusters"),
    name: "ray.io/raycluster",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: fields("/spec/suspend"),
    pod_sets: &[
        PodSetSource::Fixed { name: HEAD, template: "/spec/headGroupSpec/template", count: Count::One },
        groups("/spec/workerGroupSpecs"),
    ],
    related: &[],
    pods: PodLabels { selector: Some(&[PodLabel { key: CLUSTER_NAME, value: NAME }]), rank: NO_RANK },
    status: status(&[], CLUSTER_ACTIVE, CLUSTER_READY),
    // A Job cleans up the storage of its head node.
    creates: CreatedKinds::Only(&[POD, JOB]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: FLAGS,
    hooks: &CLUSTER_HOOKS,
};

pub(super) static RAY_JOB: Framework = Framework {
    gvk: gvk("RayJob", "rayjobs"),
    name: "ray.io/rayjob",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: fields("/spec/suspend"),
    pod_sets: &[
        PodSetSource::Fixed {
            name: HEAD,
            template: "/spec/rayClusterSpec/headGroupSpec/template",
            count: Count::One,
        },
        groups("/spec/rayClusterSpec/workerGroupSpecs"),
    ],
    related: &[child::CLUSTERS],
    pods: PodLabels {
        selector: Some(&[PodLabel { key: CLUSTER_NAME, value: LabelValue::Field("/status/rayClusterName") }]),
        rank: NO_RANK,
    },
    status: status(
        &[
            FinishedRule {
                when: Test::All(&[
                    Test::Text(JOB_STATE, &["Complete", "Failed"]),
                    Test::Text("/status/jobStatus", &["SUCCEEDED"]),
                ]),
                success: true,
                message: Message::Field("/status/message"),
            },
            FinishedRule {
                when: Test::Text(JOB_STATE, &["Complete", "Failed"]),
                success: false,
                message: Message::Field("/status/message"),
            },
        ],
        Test::Not(&Test::Text(JOB_STATE, &["", "Suspended"])),
        Test::Text("/status/rayClusterStatus/state", &["ready"]),
    ),
    // The submitter is a Job.
    creates: CreatedKinds::Only(&[CLUSTER, JOB]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    // The webhook of its cluster adds the gate.
    flags: Flags { elastic: Elastic::GatedByChild, ..FLAGS },
    hooks: &JOB_HOOKS,
};

pub(super) static RAY_SERVICE: Framework = Framework {
    gvk: gvk("RayService", "rayservices"),
    name: "ray.io/rayservice",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: fields("/spec/rayClusterConfig/suspend"),
    pod_sets: &[
        PodSetSource::Fixed {
            name: HEAD,
            template: "/spec/rayClusterConfig/headGroupSpec/template",
            count: Count::One,
        },
        groups("/spec/rayClusterConfig/workerGroupSpecs"),
    ],
    related: &[child::CLUSTERS],
    pods: PodLabels {
        selector: Some(&[PodLabel {
            key: CLUSTER_NAME,
            value: LabelValue::Field("/status/activeServiceStatus/rayClusterName"),
        }]),
        rank: NO_RANK,
    },
    status: status(&[], Test::Condition("Ready"), Test::Condition("Ready")),
    creates: CreatedKinds::Only(&[CLUSTER]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: FLAGS,
    hooks: &SERVICE_HOOKS,
};
