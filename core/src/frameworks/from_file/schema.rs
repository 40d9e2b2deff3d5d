//! The fields of a framework file, as they are written.
//!
//! Invariant: an unknown field is an error, so that a misspelled one is never ignored.

use serde::Deserialize;

/// Version of the format.
pub(super) const API_VERSION: &str = "config.sluice.dev/v1alpha1";
/// Kind of the document.
pub(super) const KIND: &str = "Framework";

/// A kind of jobs, without the version and kind of the document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FrameworkFile {
    /// The custom resource.
    pub(super) resource: Resource,
    /// The boolean field that suspends a job.
    pub(super) suspend: String,
    /// The field that names the controller of a job.
    pub(super) managed_by: Option<ManagedBy>,
    /// The field that names its PriorityClass before its pod templates do.
    pub(super) priority_class_name: Option<String>,
    /// Where its pod templates are.
    pub(super) pod_sets: Vec<PodSets>,
    /// Labels by which the pods of a job are found.
    pub(super) pod_labels: Option<Vec<PodLabel>>,
    /// Labels of its pods that say their rank.
    pub(super) rank: Option<Rank>,
    /// Kinds of the objects that its controller creates and owns.
    pub(super) creates: Vec<Created>,
    /// When a job is finished; the first rule that holds counts.
    pub(super) finished: Vec<Finished>,
    /// When its pods may still run.
    pub(super) active: Active,
    /// When all of its pods are ready or have succeeded.
    pub(super) ready: Test,
}

/// How objects of the kind are addressed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
}

/// The field that names the controller of a job, and the name of the kind's own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ManagedBy {
    pub(super) field: String,
    pub(super) controller: String,
}

/// A place of pod templates.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PodSets {
    /// One template at a fixed place.
    Fixed(FixedPodSet),
    /// A list of roles.
    List(ListedPodSets),
    /// A map of roles.
    Map(MappedPodSets),
}

/// One template at a fixed place. Pointers are those of the object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FixedPodSet {
    pub(super) name: String,
    pub(super) template: String,
    pub(super) count: Count,
}

/// A list of roles. Pointers but that of the list are relative to a role.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListedPodSets {
    pub(super) list: String,
    pub(super) name: String,
    pub(super) template: String,
    pub(super) count: Count,
}

/// A map of roles. Pointers but that of the map are relative to a role.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MappedPodSets {
    pub(super) map: String,
    pub(super) keys: Vec<String>,
    pub(super) template: String,
    pub(super) count: Count,
}

/// Number of pods.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Count {
    /// One pod.
    One,
    /// A field; 1 when absent.
    Field(String),
    /// The pods of a batch/v1 Job spec.
    Job(JobCount),
    /// A field that the controller keeps between two others.
    Between(BetweenCount),
    /// None while a field is true.
    Unless(Box<UnlessCount>),
    /// The product of two numbers.
    Product(Box<(Self, Self)>),
}

/// Fields of a batch/v1 Job spec.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobCount {
    pub(super) parallelism: String,
    pub(super) completions: String,
}

/// A field with the number, 0 when absent, and the fields with the least and the most.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BetweenCount {
    pub(super) field: String,
    pub(super) min: String,
    pub(super) max: String,
}

/// A boolean field, and the number while it is not true.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnlessCount {
    pub(super) field: String,
    pub(super) count: Count,
}

/// A label of all pods of a job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PodLabel {
    pub(super) label: String,
    pub(super) value: LabelValue,
}

/// Value of a label of pods.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum LabelValue {
    /// A field of the job.
    Field(String),
    /// The same for all jobs.
    Text(String),
}

/// Labels of pods that say their rank.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rank {
    pub(super) index_label: String,
    pub(super) groups: Option<Groups>,
}

/// Groups of pods in a pod set, each with indexes of its own. The count is relative to the role.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Groups {
    pub(super) label: String,
    pub(super) count: String,
}

/// A kind of objects; the core group is the empty text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Created {
    pub(super) group: String,
    pub(super) kind: String,
}

/// A rule that says that a job is finished.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {
    pub(super) when: Test,
    pub(super) result: JobResult,
    /// The field with the text for the Workload. Default: the message of the condition that the rule tests, or else a fixed text.
    pub(super) message: Option<String>,
}

/// Result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum JobResult {
    Succeeded,
    Failed,
}

/// When pods of a job may still run.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Active {
    /// When the sum of these counts is not 0.
    Counts(Vec<String>),
    /// When the sum of a count over a list or map is not 0.
    Sum(Sum),
    /// When a test holds.
    When(Test),
}

/// A count of each entry of a list or map.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sum {
    pub(super) over: String,
    pub(super) field: String,
}

/// A test of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Test {
    /// The condition is True.
    Condition(String),
    /// The condition is there and not True.
    NotTrue(String),
    /// The text of a field is one of some.
    Text(TextTest),
    /// The test fails.
    Not(Box<Self>),
    /// All tests hold.
    All(Vec<Self>),
    /// A test holds.
    Any(Vec<Self>),
}

/// A test of a text field. An absent field is the empty text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextTest {
    pub(super) field: String,
    pub(super) values: Vec<String>,
}
