//! What of a review is read: the fields that rules look at, and of pod templates the text, which is only compared.
//!
//! Invariant: a rule that looks at a further field names it here; until then the field is absent to it. The tests of this
//! module ask every review both ways.

use serde_json::Value;

use super::review::rule_of;
use crate::api::partial::{Allowance, Keep, read};

/// Values that a review of the usual size holds at most: a Workload of eight pod sets has some hundreds.
pub const LIGHT: usize = 4 << 10;
/// Values that any review may hold, objects before and after together: the largest `ClusterQueue` that its schema takes,
/// twice.
const HEAVY: usize = 128 << 10;

/// A body that is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is no JSON.
    Malformed(String),
    /// It holds more than may be looked at.
    TooMany(String),
}

/// Reads an `AdmissionReview` for the rule of a path. A review of more than [`LIGHT`] values is left for
/// [`read_heavy`].
///
/// # Errors
/// It is no JSON or holds too much.
pub fn read_light(path: &str, body: &[u8]) -> Result<Value, Unread> {
    read_within(path, body, LIGHT)
}

/// The same for every review that an API server sends. It takes up to fifty megabytes while it is judged.
///
/// # Errors
/// It is no JSON or holds too much.
pub fn read_heavy(path: &str, body: &[u8]) -> Result<Value, Unread> {
    read_within(path, body, HEAVY)
}

fn read_within(path: &str, body: &[u8], values: usize) -> Result<Value, Unread> {
    let keep = rule_of(path).map_or(&UNKNOWN, |rule| match (rule.group, rule.kind) {
        ("batch", _) => &JOB,
        (_, "Workload") => &WORKLOAD,
        _ => &PLAIN,
    });
    let allowance = Allowance::new(values);
    read(keep, &allowance, body).map_err(|error| {
        if allowance.spent() {
            Unread::TooMany(error.to_string())
        } else {
            Unread::Malformed(error.to_string())
        }
    })
}

/// What `kubectl apply` leaves: the object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

const LABELS: Keep = Keep::Map(&[]);
const ANNOTATIONS: Keep = Keep::Map(&[LAST_APPLIED]);
const KIND: Keep =
    Keep::Fields(&[("group", Keep::Scalar), ("version", Keep::Scalar), ("kind", Keep::Scalar)]);
const METADATA: Keep = Keep::Fields(&[
    ("name", Keep::Scalar),
    ("generateName", Keep::Scalar),
    ("namespace", Keep::Scalar),
    ("uid", Keep::Scalar),
    ("generation", Keep::Scalar),
    ("creationTimestamp", Keep::Scalar),
    ("deletionTimestamp", Keep::Scalar),
    ("labels", LABELS),
    ("annotations", ANNOTATIONS),
    ("finalizers", Keep::Items(1_000, &Keep::Scalar)),
    ("ownerReferences", Keep::Items(1_000, &OWNER)),
]);
const OWNER: Keep = Keep::Fields(&[
    ("apiVersion", Keep::Scalar),
    ("kind", Keep::Scalar),
    ("name", Keep::Scalar),
    ("uid", Keep::Scalar),
    ("controller", Keep::Scalar),
]);

/// A review of an object of this form.
macro_rules! review_of {
    ($object:expr) => {
        Keep::Fields(&[
            ("apiVersion", Keep::Scalar),
            ("kind", Keep::Scalar),
            (
                "request",
                Keep::Fields(&[
                    ("uid", Keep::Scalar),
                    ("kind", KIND),
                    ("subResource", Keep::Scalar),
                    ("name", Keep::Scalar),
                    ("namespace", Keep::Scalar),
                    ("operation", Keep::Scalar),
                    ("dryRun", Keep::Scalar),
                    ("object", $object),
                    ("oldObject", $object),
                ]),
            ),
        ])
    };
}

static UNKNOWN: Keep = review_of!(Keep::Scalar);
static PLAIN: Keep = review_of!(Keep::Fields(&[("metadata", METADATA), ("spec", Keep::Whole)]));

static JOB: Keep = review_of!(Keep::Fields(&[("metadata", METADATA), ("spec", JOB_SPEC)]));
const JOB_SPEC: Keep = Keep::Fields(&[
    ("suspend", Keep::Scalar),
    ("managedBy", Keep::Scalar),
    ("parallelism", Keep::Scalar),
    ("completions", Keep::Scalar),
    ("completionMode", Keep::Scalar),
    ("template", Keep::Fields(&[("metadata", METADATA), ("spec", JOB_POD_SPEC)])),
]);
const JOB_POD_SPEC: Keep =
    Keep::Fields(&[("schedulingGates", Keep::Items(1_000, &Keep::Fields(&[("name", Keep::Scalar)])))]);

/// Longest list of a Workload that is read, where its schema bounds the list at less.
const LISTED: usize = 256;

static WORKLOAD: Keep =
    review_of!(Keep::Fields(&[("metadata", METADATA), ("spec", WORKLOAD_SPEC), ("status", WORKLOAD_STATUS)]));
const WORKLOAD_SPEC: Keep = Keep::Fields(&[("podSets", Keep::Items(LISTED, &POD_SET))]);
const POD_SET: Keep = Keep::Open(&[("template", Keep::Text(&[("metadata", METADATA), ("spec", POD_SPEC)]))]);
const POD_SPEC: Keep = Keep::Fields(&[
    ("resources", RESOURCES),
    ("containers", Keep::Items(usize::MAX, &CONTAINER)),
    ("initContainers", Keep::Items(usize::MAX, &CONTAINER)),
]);
const CONTAINER: Keep = Keep::Fields(&[("resources", RESOURCES)]);
const RESOURCES: Keep = Keep::Fields(&[("requests", LABELS), ("limits", LABELS)]);
const WORKLOAD_STATUS: Keep = Keep::Fields(&[
    ("conditions", Keep::Items(LISTED, &Keep::Whole)),
    ("admission", Keep::Open(&[("podSetAssignments", Keep::Items(LISTED, &ASSIGNMENT))])),
    ("reclaimablePods", Keep::Items(LISTED, &Keep::Whole)),
    ("admissionChecks", Keep::Items(LISTED, &Keep::Whole)),
    ("clusterName", Keep::Scalar),
    ("nominatedClusterNames", Keep::Items(LISTED, &Keep::Scalar)),
]);
/// Where pods go is compared and nothing else; it names every node.
const ASSIGNMENT: Keep = Keep::Open(&[("topologyAssignment", Keep::Text(&[]))]);
