//! What of a review is read: the fields that rules look at, and of pod templates the text, which is only compared.
//!
//! Invariant: a rule that looks at a further field names it here; until then the field is absent to it. The tests of this
//! module ask every review both ways.

use serde_json::Value;

use super::review::rule_for_path;
use crate::api::partial::{Projection, ValueBudget, read_projection};

/// Values that a review of the usual size holds at most: a Workload of eight pod sets has some hundreds.
pub const MAX_LIGHT_VALUES: usize = 4 << 10;
/// Values that any review may hold, objects before and after together: the largest `ClusterQueue` that its schema takes,
/// twice.
const MAX_VALUES: usize = 128 << 10;

/// A body that is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is no JSON.
    Malformed(String),
    /// It holds more than may be looked at.
    TooManyValues(String),
}

/// Reads an `AdmissionReview` for the rule of a path. A review of more than [`LIGHT`] values is left for
/// [`read_heavy`].
///
/// # Errors
/// It is no JSON or holds too much.
pub fn read_light(path: &str, body: &[u8]) -> Result<Value, ReadError> {
    read_within(path, body, MAX_LIGHT_VALUES)
}

/// The same for every review that an API server sends. It takes up to fifty megabytes while it is judged.
///
/// # Errors
/// It is no JSON or holds too much.
pub fn read_heavy(path: &str, body: &[u8]) -> Result<Value, ReadError> {
    read_within(path, body, MAX_VALUES)
}

fn read_within(path: &str, body: &[u8], values: usize) -> Result<Value, ReadError> {
    let keep = rule_for_path(path).map_or(&UNKNOWN, |rule| match (rule.group, rule.kind) {
        ("batch", _) => &JOB,
        (_, "Workload") => &WORKLOAD,
        _ => &PLAIN,
    });
    let allowance = ValueBudget::new(values);
    read_projection(keep, &allowance, body).map_err(|error| {
        if allowance.is_exhausted() {
            ReadError::TooManyValues(error.to_string())
        } else {
            ReadError::Malformed(error.to_string())
        }
    })
}

/// What `kubectl apply` leaves: the object once more.
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

/// A review of an object of this form.
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

/// Longest list of a Workload that is read, where its schema bounds the list at less.
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
/// Where pods go is compared and nothing else; it names every node.
const ASSIGNMENT: Projection =
    Projection::AllFields(&[("topologyAssignment", Projection::FieldsWithText(&[]))]);
