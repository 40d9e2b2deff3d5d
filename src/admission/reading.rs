//! Partial decoding of reviews: only the fields that rules read, and pod templates additionally as text for comparison.
//!
//! Invariant: a field that a rule reads must be listed here, otherwise it is absent for the rule. The tests compare the
//! responses to fully and partially decoded reviews.

use serde_json::Value;

use super::review::rule_for_path;
use crate::api::partial::{Projection, ValueBudget, read_projection};

/// Maximum number of values of a review that [`read_light`] decodes; a Workload with eight pod sets has some hundreds.
pub const MAX_LIGHT_VALUES: usize = 4 << 10;
/// Maximum number of values of any review, old and new object together: enough for twice the largest `ClusterQueue`
/// that the schema accepts.
const MAX_VALUES: usize = 128 << 10;

/// Why a review body is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is not JSON.
    Malformed(String),
    /// It has more values than allowed.
    TooManyValues(String),
}

/// Decodes an `AdmissionReview` for the rule of a path. A review of more than [`MAX_LIGHT_VALUES`] values is an error;
/// use [`read_heavy`] for it.
///
/// # Errors
/// The body is not JSON or has too many values.
pub fn read_light(path: &str, body: &[u8]) -> Result<Value, ReadError> {
    read_within(path, body, MAX_LIGHT_VALUES)
}

/// Decodes any `AdmissionReview` that an API server sends. Its evaluation takes up to fifty megabytes.
///
/// # Errors
/// The body is not JSON or has too many values.
pub fn read_heavy(path: &str, body: &[u8]) -> Result<Value, ReadError> {
    read_within(path, body, MAX_VALUES)
}

fn read_within(path: &str, body: &[u8], values: usize) -> Result<Value, ReadError> {
    let projection = rule_for_path(path).map_or(&UNKNOWN, |rule| match (rule.group, rule.kind) {
        ("batch", _) => &JOB,
        (_, "Workload") => &WORKLOAD,
        _ => &PLAIN,
    });
    let budget = ValueBudget::new(values);
    read_projection(projection, &budget, body).map_err(|error| {
        if budget.is_exhausted() {
            ReadError::TooManyValues(error.to_string())
        } else {
            ReadError::Malformed(error.to_string())
        }
    })
}

/// Annotation of `kubectl apply` that contains a copy of the object; not decoded.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

const LABELS: Projection = Projection::Map(&[]);
const ANNOTATIONS: Projection = Projection::Map(&[LAST_APPLIED]);
const KIND: Projection = Projection::Fields(&[
    ("group", Projection::Scalar),
    ("version", Projection::Scalar),
    ("kind", Projection::Scalar),
]);
const METADATA: Projection = Projection::Fields(&[
    ("name", Projection::Scalar),
    ("generateName", Projection::Scalar),
    ("namespace", Projection::Scalar),
    ("uid", Projection::Scalar),
    ("generation", Projection::Scalar),
    ("creationTimestamp", Projection::Scalar),
    ("deletionTimestamp", Projection::Scalar),
    ("labels", LABELS),
    ("annotations", ANNOTATIONS),
    ("finalizers", Projection::Items(1_000, &Projection::Scalar)),
    ("ownerReferences", Projection::Items(1_000, &OWNER)),
]);
const OWNER: Projection = Projection::Fields(&[
    ("apiVersion", Projection::Scalar),
    ("kind", Projection::Scalar),
    ("name", Projection::Scalar),
    ("uid", Projection::Scalar),
    ("controller", Projection::Scalar),
]);

/// Defines the projection of a review from the projection of its object.
macro_rules! review_of {
    ($object:expr) => {
        Projection::Fields(&[
            ("apiVersion", Projection::Scalar),
            ("kind", Projection::Scalar),
            (
                "request",
                Projection::Fields(&[
                    ("uid", Projection::Scalar),
                    ("kind", KIND),
                    ("subResource", Projection::Scalar),
                    ("name", Projection::Scalar),
                    ("namespace", Projection::Scalar),
                    ("operation", Projection::Scalar),
                    ("dryRun", Projection::Scalar),
                    ("object", $object),
                    ("oldObject", $object),
                ]),
            ),
        ])
    };
}

static UNKNOWN: Projection = review_of!(Projection::Scalar);
static PLAIN: Projection =
    review_of!(Projection::Fields(&[("metadata", METADATA), ("spec", Projection::Whole)]));

static JOB: Projection = review_of!(Projection::Fields(&[("metadata", METADATA), ("spec", JOB_SPEC)]));
const JOB_SPEC: Projection = Projection::Fields(&[
    ("suspend", Projection::Scalar),
    ("managedBy", Projection::Scalar),
    ("parallelism", Projection::Scalar),
    ("completions", Projection::Scalar),
    ("completionMode", Projection::Scalar),
    ("template", Projection::Fields(&[("metadata", METADATA), ("spec", JOB_POD_SPEC)])),
]);
const JOB_POD_SPEC: Projection = Projection::Fields(&[(
    "schedulingGates",
    Projection::Items(1_000, &Projection::Fields(&[("name", Projection::Scalar)])),
)]);

/// Maximum length of decoded lists of a Workload; the schema limits are lower.
const MAX_LIST_ITEMS: usize = 256;

static WORKLOAD: Projection = review_of!(Projection::Fields(&[
    ("metadata", METADATA),
    ("spec", WORKLOAD_SPEC),
    ("status", WORKLOAD_STATUS)
]));
const WORKLOAD_SPEC: Projection =
    Projection::Fields(&[("podSets", Projection::Items(MAX_LIST_ITEMS, &POD_SET))]);
const POD_SET: Projection = Projection::AllFields(&[(
    "template",
    Projection::FieldsWithText(&[("metadata", METADATA), ("spec", POD_SPEC)]),
)]);
const POD_SPEC: Projection = Projection::Fields(&[
    ("resources", RESOURCES),
    ("containers", Projection::Items(usize::MAX, &CONTAINER)),
    ("initContainers", Projection::Items(usize::MAX, &CONTAINER)),
]);
const CONTAINER: Projection = Projection::Fields(&[("resources", RESOURCES)]);
const RESOURCES: Projection = Projection::Fields(&[("requests", LABELS), ("limits", LABELS)]);
const WORKLOAD_STATUS: Projection = Projection::Fields(&[
    ("conditions", Projection::Items(MAX_LIST_ITEMS, &Projection::Whole)),
    (
        "admission",
        Projection::AllFields(&[("podSetAssignments", Projection::Items(MAX_LIST_ITEMS, &ASSIGNMENT))]),
    ),
    ("reclaimablePods", Projection::Items(MAX_LIST_ITEMS, &Projection::Whole)),
    ("admissionChecks", Projection::Items(MAX_LIST_ITEMS, &Projection::Whole)),
    ("clusterName", Projection::Scalar),
    ("nominatedClusterNames", Projection::Items(MAX_LIST_ITEMS, &Projection::Scalar)),
]);
/// The topology assignment is kept as text, because it is only compared and names every node.
const ASSIGNMENT: Projection =
    Projection::AllFields(&[("topologyAssignment", Projection::FieldsWithText(&[]))]);
