//! A row of the table of frameworks: what a kind of job is, as data.
//!
//! Invariant: a row says where its fields are and what they mean; how to read and patch them is the same code for all
//! rows. Only what no row can say is a hook.

pub use super::count::{Between, Count};
use super::hooks::Hooks;
use super::related::RelatedKind;
use super::role_shape::RoleShape;
use super::view::Gvk;

/// A JSON pointer (RFC 6901).
pub type Pointer = &'static str;

/// The number of pods that terminate, as batch/v1 Jobs count them.
pub(super) const TERMINATING: Pointer = "/status/terminating";

/// A framework of Kueue.
#[derive(Debug)]
pub struct Framework {
    /// How its objects are addressed.
    pub gvk: Gvk,
    /// Name in `integrations.frameworks`.
    pub name: &'static str,
    /// Short names by which users may name the kind, those of kubectl.
    pub short_names: &'static [&'static str],
    /// Which configurations enable it, as with Kueue.
    pub enabled: Enabled,
    /// How its pods are held back until admission.
    pub role: Role,
    /// Fields of the spec.
    pub fields: FieldPointers,
    /// Where its pod templates are, in the order of its pod sets. A kind without any makes them by a hook, or its pods say what they
    /// are.
    pub pod_sets: &'static [PodSetSource],
    /// Kinds of other objects from which a hook completes its pod sets.
    pub related: &'static [RelatedKind],
    /// Labels of its pods.
    pub pods: PodLabels,
    /// Fields of the status.
    pub status: StatusFields,
    /// Kinds that its controller creates and owns.
    pub creates: CreatedKinds,
    /// Its entries in the webhook configurations.
    pub webhooks: Webhooks,
    /// Permissions that the manager needs on its objects.
    pub rbac: Rbac,
    /// What it supports.
    pub flags: Flags,
    /// What the row cannot say.
    pub hooks: &'static dyn Hooks,
}

/// How pods of a kind are held back until admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The object has a field that suspends it.
    Suspended,
    /// Each pod, or group of pods, has a Workload; each pod is held by a scheduling gate, and stopping deletes it.
    Pods,
    /// The object has a Workload for its pods; each pod is held by a scheduling gate, and stopping deletes it.
    PodsOfOwner,
    /// The webhook marks the pod template; each pod is a job of its own. The object has no Workload.
    PassThrough,
}

/// Which configurations enable a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    /// The shipped one, and those without a list of frameworks.
    ByDefault,
    /// The shipped one. The shipped manifests have its webhooks and permissions.
    AsShipped,
    /// Those that list it. A component of its own has its webhooks and permissions.
    WhenListed,
    /// All: a file describes it, and the process was started with the file.
    ByFile,
}

/// Fields of the spec.
#[derive(Clone, Copy, Debug)]
pub struct FieldPointers {
    /// Suspends the job when true; false when absent.
    pub suspend: Option<Pointer>,
    /// Names the controller that runs the job.
    pub managed_by: Option<ManagedBy>,
    /// Start time in the status. While it is set, and while there are active pods, the templates are immutable: a stop
    /// suspends the job, and when no pod is left clears the start time and restores the templates. Without it, one write
    /// does all.
    pub start_time: Option<Pointer>,
    /// Labels that the API server adds to the template. They identify the job and are not part of the pod set.
    pub server_labels: &'static [&'static str],
    /// Names the PriorityClass of its pods before their templates do.
    pub priority_class: Option<Pointer>,
    /// What its roles say of their pods.
    pub roles: RoleShape,
}

/// The field that names the controller of a job.
#[derive(Clone, Copy, Debug)]
pub struct ManagedBy {
    /// The field.
    pub field: Pointer,
    /// The value of the kind's own controller, which equals an absent field.
    pub built_in: &'static str,
}

/// A place of pod templates. Pointers of a role are relative to it, those of a source to the object.
#[derive(Clone, Copy, Debug)]
pub enum PodSetSource {
    /// One template at a fixed place.
    Fixed {
        /// Name of the pod set.
        name: &'static str,
        /// The template.
        template: Pointer,
        /// Number of pods.
        count: Count,
    },
    /// An array of roles. It is patched by RFC 6902, as a merge patch replaces an array as a whole.
    Array {
        /// The array.
        list: Pointer,
        /// Name of a role.
        name: Pointer,
        /// Template of a role.
        template: Pointer,
        /// Number of pods of a role.
        count: Count,
    },
    /// A map of roles by name.
    Map {
        /// The map.
        map: Pointer,
        /// Keys of the roles, in the order of their pod sets.
        order: &'static [&'static str],
        /// Whether entries with other keys are roles as well, after these: the controller makes pods of them. Otherwise they are
        /// not read.
        others: bool,
        /// Template of a role.
        template: Pointer,
        /// Number of pods of a role.
        count: Count,
    },
    /// A leader and its workers: pod sets `leader` and `worker`, or `main` if the leader has no template of its own.
    LeaderAndWorkers {
        /// Template of the leader.
        leader: Pointer,
        /// Template of the workers.
        workers: Pointer,
        /// Number of pods, with the leader.
        size: Pointer,
    },
}

/// Labels of the pods of an object.
#[derive(Clone, Copy, Debug)]
pub struct PodLabels {
    /// Labels that the pods of an object have, and no others; `None` if its controller gives them none.
    pub selector: Option<&'static [PodLabel]>,
    /// Labels that say their rank.
    pub rank: Rank,
}

/// A label of all pods of an object.
#[derive(Clone, Copy, Debug)]
pub struct PodLabel {
    /// Key of the label.
    pub key: &'static str,
    /// Where its value is.
    pub value: LabelValue,
}

/// Where the value of a label of pods is.
#[derive(Clone, Copy, Debug)]
pub enum LabelValue {
    /// A field of the object. While it is absent or empty, the pods are not known.
    Field(Pointer),
    /// The label with the same key of the object; empty when absent.
    SameLabel,
    /// The same for all objects of the kind.
    Text(&'static str),
}

/// Labels of pods from which their rank in a topology assignment follows.
#[derive(Clone, Copy, Debug)]
pub struct Rank {
    /// Label with the index of a pod.
    pub index_label: Option<&'static str>,
    /// Groups of pods in a pod set, each with indexes of its own.
    pub sub_groups: Option<SubGroups>,
}

/// Groups of pods in a pod set.
#[derive(Clone, Copy, Debug)]
pub struct SubGroups {
    /// Label with the index of the group.
    pub label: &'static str,
    /// Number of groups, relative to the role; 1 when absent.
    pub count: Pointer,
}

/// Fields of the status.
#[derive(Clone, Copy, Debug)]
pub struct StatusFields {
    /// When a job is finished: the first rule that holds counts. Without rules it never finishes.
    pub finished: &'static [FinishedRule],
    /// When its pods may still run.
    pub active: Active,
    /// When all of its pods are ready or have succeeded.
    pub ready: Ready,
    /// Which pods are no longer needed.
    pub reclaimable: Reclaimable,
}

/// A rule that says that a job is finished.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRule {
    /// When it is.
    pub when: Test,
    /// Whether it succeeded.
    pub success: bool,
    /// Text for the Workload.
    pub message: Message,
}

/// Text of a finished job.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// Message of the condition that the rule tests.
    OfCondition,
    /// A field; empty when absent.
    Field(Pointer),
    /// A fixed text.
    Text(&'static str),
}

/// A test of an object.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// The condition is True.
    Condition(&'static str),
    /// The condition is there and not True.
    NotTrue(&'static str),
    /// The text of a field is one of these; an absent field is the empty text.
    Text(Pointer, &'static [&'static str]),
    /// The test fails.
    Not(&'static Self),
    /// All tests hold.
    All(&'static [Self]),
    /// A test holds.
    Any(&'static [Self]),
}

/// When pods of a job may still run.
#[derive(Clone, Copy, Debug)]
pub enum Active {
    /// When the sum of these counts is not 0.
    Counts(&'static [Pointer]),
    /// When the sum of a count over an array or map is not 0.
    SumOver(Pointer, Pointer),
    /// When a test holds.
    When(Test),
}

/// When all pods of a job are ready or have succeeded.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// When a test holds.
    When(Test),
    /// When the sum of `ready` and `succeeded` over this array equals the sum of the sub-groups of all roles.
    SubGroupsOf(Pointer),
    /// When a hook says so.
    Hook,
}

/// Which pods of a job are no longer needed.
#[derive(Clone, Copy, Debug)]
pub enum Reclaimable {
    /// None.
    None,
    /// The pods of the succeeded sub-groups of each role, counted by the entries of this array.
    SubGroupsOf(Pointer),
    /// Those that a hook names.
    Hook,
}

/// Kinds that a controller creates, as (group, kind).
#[derive(Clone, Copy, Debug)]
pub enum CreatedKinds {
    /// These.
    Only(&'static [(&'static str, &'static str)]),
    /// Any kind, because the object wraps arbitrary objects.
    Any,
}

impl CreatedKinds {
    /// Returns whether the controller creates objects of a kind, given as (group, kind).
    pub fn includes(&self, kind: (&str, &str)) -> bool {
        match self {
            Self::Only(kinds) => kinds.contains(&kind),
            Self::Any => true,
        }
    }
}

/// Entries of the webhook configurations. Objects that name a queue and those that do not have entries of their own,
/// because only the former depend on the manager.
#[derive(Clone, Copy, Debug)]
pub struct Webhooks {
    /// How a new object is kept from running.
    pub handler: WebhookHandler,
    /// Operations that are defaulted.
    pub mutate: &'static [&'static str],
    /// Operations that are validated.
    pub validate: &'static [&'static str],
    /// Whether a change of the number of replicas by the subresource `scale` is validated.
    pub scale: bool,
    /// What happens to objects that name a queue while no manager answers.
    pub with_queue: FailurePolicy,
    /// What happens to other objects.
    pub without_queue: FailurePolicy,
}

/// How a webhook keeps the pods of an object from running before admission.
#[derive(Clone, Copy, Debug)]
pub enum WebhookHandler {
    /// It suspends the object.
    Suspend,
    /// The object is a pod: it gets scheduling gates.
    HoldPod,
    /// It marks the pod templates, so that the webhook of pods holds their pods.
    MarkTemplates(TemplateMarks),
}

/// Marks of pod templates, beside the annotation with the name of the framework.
#[derive(Clone, Copy, Debug)]
pub struct TemplateMarks {
    /// The templates. Those that an object lacks are not marked.
    pub templates: &'static [Pointer],
    /// Labels.
    pub labels: &'static [(&'static str, &'static str)],
    /// Annotations.
    pub annotations: &'static [(&'static str, &'static str)],
    /// Labels of the object whose values are copied.
    pub copied_labels: &'static [&'static str],
    /// Number of ready pods. While it is 0, the object counts as suspended.
    pub ready: Pointer,
}

/// What the API server does with a request that no webhook answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Refuses it.
    Fail,
    /// Accepts it.
    Ignore,
}

/// Verbs that the manager needs, without those that every watched kind needs: get, list and watch.
#[derive(Clone, Copy, Debug)]
pub struct Rbac {
    /// On the objects. `delete` is needed only with a retention policy, but for pods: a stop deletes them.
    pub object: &'static [&'static str],
    /// On the status.
    pub status: &'static [&'static str],
    /// On the finalizers, for owner references with `blockOwnerDeletion`.
    pub finalizers: &'static [&'static str],
}

/// What a kind supports.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// Whether its pod sets depend on the spec alone, so that they are read once per generation.
    pub pod_sets_from_spec: bool,
    /// Whether a hook completes the pod sets that its sources say.
    pub completed_pod_sets: bool,
    /// Whether a job may be resized while it runs, and where its pods get the gate that holds them until they have quota.
    pub elastic: Elastic,
    /// Whether a job may name an existing Workload.
    pub prebuilt: bool,
    /// Whether its controller suspends and resumes the jobs that it has made as the object itself is.
    pub resumes_children: bool,
    /// Whether the rules for names and limits of new objects hold for each update as well.
    pub create_rules_on_update: bool,
    /// Which topology annotations its webhook checks.
    pub topology_checks: TopologyChecks,
    /// The feature gate without which a configuration may not name the kind.
    pub gate: Option<&'static str>,
    /// Which of its pods share a Workload, if it has one for its pods.
    pub pod_grouping: PodGrouping,
}

/// Which pods of an object share a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodGrouping {
    /// All that it controls.
    Together,
    /// Those of each replica. They name the object and the index of their replica in labels.
    ByReplica {
        /// Label with the name of the object.
        name: &'static str,
        /// Label with the index.
        index: &'static str,
        /// Annotation of all pods of a replica but its leader.
        leader: &'static str,
    },
}

/// Whether a job may be resized while it runs, and where its pods get their scheduling gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elastic {
    /// It may not.
    No,
    /// Its own pod templates have the gate.
    GatedTemplates,
    /// The templates of an object that it creates have the gate: that object is elastic as well.
    GatedByChild,
}

/// Which topology annotations a webhook checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyChecks {
    /// None.
    None,
    /// Those of the only pod template; its slices are compared with the number of pods if it has no other fault.
    TemplateThenSlices,
    /// Those of each pod template.
    Templates,
    /// Those of each pod template, and the groups that pod sets form.
    TemplatesAndGroups,
}

impl Framework {
    /// Returns whether this version reads the pod sets of its objects.
    pub const fn reads_pod_sets(&self) -> bool {
        !self.pod_sets.is_empty() || self.flags.completed_pod_sets
    }

    /// Returns whether each replica of its objects has a Workload of its own.
    pub const fn has_replicas(&self) -> bool {
        matches!(self.flags.pod_grouping, PodGrouping::ByReplica { .. })
    }

    /// Returns whether its objects are pods.
    pub const fn is_pod(&self) -> bool {
        matches!(self.role, Role::Pods)
    }

    /// Returns whether the status says when all pods of a suspended object have ended. That of most kinds leaves out pods that
    /// terminate: its operator counts none as soon as it has deleted them, or counts other objects than pods.
    pub fn tells_end_of_pods(&self) -> bool {
        let counts_terminating =
            matches!(self.status.active, Active::Counts(counts) if counts.contains(&TERMINATING));
        self.role != Role::Suspended || counts_terminating
    }

    /// Returns the path of its webhook, as controller-runtime builds it.
    pub fn webhook_path(&self, mutating: bool) -> String {
        let verb = if mutating { "mutate" } else { "validate" };
        let group = self.gvk.group.replace('.', "-");
        format!("/{verb}-{group}-{}-{}", self.gvk.version, self.gvk.kind.to_lowercase())
    }
}
