//! Partial decoding of reviews: only the fields that rules read, and pod templates additionally as text for comparison.
//!
//! Invariant: a field that a rule reads must be decoded, otherwise it is absent for the rule. Fields of jobs are those that
//! the row of the kind names. The tests compare the responses to fully and partially decoded reviews.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::LazyLock;

use serde_json::Value;

use super::review::rule_for_path;
use crate::api::partial::{Projection, ReadError, read_within};
use crate::frameworks::{
    Count, Framework, Pointer, ReviewField, Role, RoleFields, RoleName, RoleReader, RoleShape, WebhookHandler,
};

/// Maximum number of values of a review that [`read_light`] decodes; a Workload with eight pod sets has some hundreds.
pub const MAX_LIGHT_VALUES: usize = 4 << 10;
/// Maximum number of values of any review, old and new object together: enough for twice the largest `ClusterQueue`
/// that the schema accepts.
const MAX_VALUES: usize = 128 << 10;

/// Decodes an `AdmissionReview` for the rule of a path. A review of more than [`MAX_LIGHT_VALUES`] values is an error;
/// use [`read_heavy`] for it.
///
/// # Errors
/// The body is not JSON or has too many values.
pub fn read_light(path: &str, body: &[u8]) -> Result<Value, ReadError> {
    read(path, body, MAX_LIGHT_VALUES)
}

/// Decodes any `AdmissionReview` that an API server sends. Its evaluation takes up to fifty megabytes.
///
/// # Errors
/// The body is not JSON or has too many values.
pub fn read_heavy(path: &str, body: &[u8]) -> Result<Value, ReadError> {
    read(path, body, MAX_VALUES)
}

fn read(path: &str, body: &[u8], values: usize) -> Result<Value, ReadError> {
    let projection = rule_for_path(path).map_or_else(|| &*UNKNOWN, |rule| &rule.projection);
    read_within(projection, values, body)
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

static UNKNOWN: LazyLock<Projection> = LazyLock::new(|| review_of(Projection::Scalar));

/// Returns the projection of a review from the projection of its object. Its fields live as long as the program: call it
/// once per path.
fn review_of(object: Projection) -> Projection {
    let request = [
        ("uid", Projection::Scalar),
        ("kind", KIND),
        ("subResource", Projection::Scalar),
        ("name", Projection::Scalar),
        ("namespace", Projection::Scalar),
        ("operation", Projection::Scalar),
        ("dryRun", Projection::Scalar),
        ("options", fields([("fieldManager", Projection::Scalar)])),
        ("userInfo", fields([("username", Projection::Scalar)])),
        ("object", object),
        ("oldObject", object),
    ];
    fields([("apiVersion", Projection::Scalar), ("kind", Projection::Scalar), ("request", fields(request))])
}

fn fields(fields: impl IntoIterator<Item = (&'static str, Projection)>) -> Projection {
    Projection::Fields(fields.into_iter().collect::<Vec<_>>().leak())
}

/// Returns the projection of reviews of one of Kueue's kinds.
pub(super) fn kueue_review(kind: &str) -> Projection {
    review_of(if kind == "Workload" { WORKLOAD } else { PLAIN })
}

const PLAIN: Projection = Projection::Fields(&[("metadata", METADATA), ("spec", Projection::Whole)]);

/// Returns the projection of reviews of a job kind: the fields that its row and its own rules name.
pub(super) fn job_review(row: &Framework) -> Projection {
    let mut object = FieldTree::default();
    object.insert("/metadata", METADATA);
    let managed_by = row.fields.managed_by.map(|rule| rule.field);
    for pointer in row.fields.suspend.into_iter().chain(managed_by) {
        object.insert(pointer, Projection::Scalar);
    }
    for field in row.hooks.review_fields() {
        let map = matches!(field, ReviewField::Map(_));
        object.insert(field.pointer(), if map { LABELS } else { Projection::Scalar });
    }
    for part in row.hooks.reviewed_parts() {
        object.insert(part, Projection::Whole);
    }
    match row.webhooks.handler {
        WebhookHandler::Suspend => {}
        // The role of a pod follows from its whole spec.
        WebhookHandler::HoldPod => object.insert("/spec", Projection::Whole),
        WebhookHandler::MarkTemplates(marks) => {
            object.insert(marks.ready, Projection::Scalar);
            marks.templates.iter().for_each(|template| object.insert(template, TEMPLATE));
        }
    }
    let mut roles = ProjectedRoles { row, object: &mut object };
    for source in row.pod_sets {
        let Ok(()) = source.walk(&mut roles);
    }
    if let (Role::PodsOfOwner, WebhookHandler::MarkTemplates(marks)) = (row.role, row.webhooks.handler) {
        // What makes pods equal for quota must not change, and is in the whole spec.
        marks.templates.iter().for_each(|template| object.insert(template, WHOLE_TEMPLATE));
        object.insert("/status/replicas", Projection::Scalar);
    }
    review_of(object.into_projection())
}

/// Adds the fields of roles to those of an object. A place is the way from the object to a role.
struct ProjectedRoles<'a> {
    row: &'a Framework,
    object: &'a mut FieldTree,
}

impl RoleReader for ProjectedRoles<'_> {
    type Place = Vec<Step>;
    type Error = Infallible;

    fn object(&mut self) -> Vec<Step> {
        Vec::new()
    }

    fn has(&mut self, _field: Pointer) -> bool {
        true
    }

    fn items(&mut self, list: Pointer) -> Result<Vec<Vec<Step>>, Infallible> {
        Ok(vec![vec![Step::Field(list), Step::Items]])
    }

    fn entry(&mut self, map: Pointer, key: &'static str) -> Option<Vec<Step>> {
        Some(vec![Step::Field(map), Step::Key(key)])
    }

    fn role(&mut self, place: Vec<Step>, fields: RoleFields<'_>) -> Result<(), Infallible> {
        let tree = place.into_iter().fold(&mut *self.object, |tree, step| tree.below(step));
        if let RoleName::Field(name) = fields.name {
            tree.insert(name, Projection::Scalar);
        }
        match self.row.fields.roles {
            RoleShape::Template | RoleShape::Patched(_) | RoleShape::Listed => {
                tree.insert(fields.template, TEMPLATE);
            }
            RoleShape::Described(role) => {
                let described = tree.at(fields.template);
                described.insert(role.injected.annotations, LABELS);
                described.insert(role.injected.scheduling_gates, GATES);
            }
        }
        tree.insert_count(fields.count);
        Ok(())
    }
}

/// A step from an object to a role.
#[derive(Clone, Copy)]
enum Step {
    /// To a field.
    Field(Pointer),
    /// To the entry of a map.
    Key(&'static str),
    /// To each item of a list.
    Items,
}

/// Maximum number of decoded roles of a job; no kind's schema allows more.
const MAX_ROLES: usize = 1_000;

const TEMPLATE: Projection = Projection::Fields(&[("metadata", METADATA), ("spec", JOB_POD_SPEC)]);
const WHOLE_TEMPLATE: Projection = Projection::Fields(&[("metadata", METADATA), ("spec", Projection::Whole)]);
/// With what the requests of a pod follow from, which those of a job above may be compared with.
const JOB_POD_SPEC: Projection = Projection::Fields(&[
    ("schedulingGates", GATES),
    ("resources", RESOURCES),
    ("containers", Projection::Items(usize::MAX, &JOB_CONTAINER)),
    ("initContainers", Projection::Items(usize::MAX, &JOB_CONTAINER)),
    ("resourceClaims", Projection::Items(usize::MAX, &CLAIM)),
    ("runtimeClassName", Projection::Scalar),
]);
const CLAIM: Projection = Projection::Fields(&[
    ("name", Projection::Scalar),
    ("resourceClaimName", Projection::Scalar),
    ("resourceClaimTemplateName", Projection::Scalar),
]);
const JOB_CONTAINER: Projection =
    Projection::Fields(&[("resources", RESOURCES), ("restartPolicy", Projection::Scalar)]);
const GATES: Projection = Projection::Items(1_000, &Projection::Fields(&[("name", Projection::Scalar)]));

/// Fields of an object by name, from which a projection is made.
#[derive(Default)]
struct FieldTree {
    fields: BTreeMap<&'static str, Self>,
    /// The projection of a field that is decoded as such.
    leaf: Option<Projection>,
    /// Fields of the items of a list.
    items: Option<Box<Self>>,
}

impl FieldTree {
    fn insert(&mut self, pointer: Pointer, leaf: Projection) {
        self.at(pointer).leaf = Some(leaf);
    }

    /// Returns the fields after a step.
    fn below(&mut self, step: Step) -> &mut Self {
        match step {
            Step::Field(pointer) => self.at(pointer),
            Step::Key(key) => self.fields.entry(key).or_default(),
            Step::Items => self.items.get_or_insert_default(),
        }
    }

    fn at(&mut self, pointer: Pointer) -> &mut Self {
        pointer.split('/').skip(1).fold(self, |tree, field| tree.fields.entry(field).or_default())
    }

    fn insert_count(&mut self, count: &Count) {
        for field in count.fields() {
            self.insert(field, Projection::Scalar);
        }
    }

    fn into_projection(self) -> Projection {
        let below = |(name, tree): (&'static str, Self)| (name, tree.into_projection());
        if let Some(items) = self.items {
            return Projection::Items(MAX_ROLES, Box::leak(Box::new(items.into_projection())));
        }
        self.leaf.unwrap_or_else(|| fields(self.fields.into_iter().map(below)))
    }
}

/// Maximum length of decoded lists of a Workload; the schema limits are lower.
const MAX_LIST_ITEMS: usize = 256;

const WORKLOAD: Projection =
    Projection::Fields(&[("metadata", METADATA), ("spec", WORKLOAD_SPEC), ("status", WORKLOAD_STATUS)]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::partial::{ValueBudget, read_projection};
    use crate::frameworks::several_sources::{SEVERAL, job, reviewed};
    use serde_json::json;

    /// What is decoded of a review of a kind with several sources suffices for its rules, and no more is decoded.
    #[test]
    fn roles_of_all_sources_are_decoded() {
        let projection: &'static Projection = Box::leak(Box::new(job_review(&SEVERAL)));
        let review = json!({"request": {"object": job()}}).to_string();
        let decoded = read_projection(projection, &ValueBudget::new(10_000), review.as_bytes()).unwrap();
        let object = &decoded["request"]["object"];
        assert_eq!(reviewed(object), reviewed(&job()));
        assert_eq!(object["spec"]["groups"][0].get("other"), None, "{object}");
        assert_eq!(object["spec"]["others"].get("Ignored"), None, "{object}");
    }

    /// What the requests of a pod follow from is decoded, and no more of its containers.
    #[test]
    fn requests_of_templates_are_decoded() {
        let resources = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": 5}});
        let spec = json!({
            "initContainers": [{"restartPolicy": "Always", "resources": resources}],
            "containers": [{"resources": resources}],
            "resources": resources,
        });
        let mut whole = spec.clone();
        whole["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
        let projection: &'static Projection = Box::leak(Box::new(job_review(&SEVERAL)));
        let object = json!({"spec": {"head": {"template": {"spec": whole}}}});
        let review = json!({"request": {"object": object}}).to_string();
        let decoded = read_projection(projection, &ValueBudget::new(10_000), review.as_bytes()).unwrap();
        assert_eq!(decoded["request"]["object"]["spec"]["head"]["template"]["spec"], spec);
    }
}
