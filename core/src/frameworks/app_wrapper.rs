//! The kind AppWrapper: objects in an object. Its pod sets are where each wrapped object has pod templates: as the status says, as the
//! component declares, or, for kinds that the controller knows, as their rows read them.
//!
//! Invariants: the wrapped objects are not changed. A start lists what it adds beside them, and the controller merges it. No pod set is
//! charged for fewer pods than its object makes: what the status says is what the controller reads, `replicas` alone of a Ray cluster.

use super::JobError;
use super::hooks::Hooks;
use super::read::{self, malformed};
use super::related::{Beside, PodSets};
use super::role_shape::RoleShape;
use super::roles::{PodRole, read_roles};
use super::row::{
    Active, CreatedKinds, Enabled, FieldPointers, FinishedRule, Flags, Framework, ManagedBy, Message,
    Pointer, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::row_parts::{JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NO_LABELS, NO_RANK};
use super::table::framework;
use super::topology::topology_request;
use super::view::Gvk;
use super::workload::clean_template;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const COMPONENTS: Pointer = "/spec/components";
const COMPONENT_STATUS: Pointer = "/status/componentStatus";
const PHASE: Pointer = "/status/phase";
const INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
const GROUP_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
const GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";

/// Kinds with rows whose pod sets the controller finds by itself.
const KNOWN: [(&str, &str, &str); 5] = [
    ("batch", "v1", "Job"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("kubeflow.org", "v1", "PyTorchJob"),
    ("ray.io", "v1", "RayCluster"),
    ("ray.io", "v1", "RayJob"),
];

/// Fields of a pod that quota and placement depend on. Others, such as the environment of a container, may change while the
/// AppWrapper is queued.
const POD_FIELDS: [&str; 14] = [
    "affinity",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "tolerations",
    "topologySpreadConstraints",
];
const CONTAINER_FIELDS: [&str; 7] =
    ["name", "image", "command", "args", "resources", "restartPolicy", "securityContext"];

pub(super) static ROW: Framework = Framework {
    gvk: Gvk {
        group: "workload.codeflare.dev",
        version: "v1beta2",
        kind: "AppWrapper",
        plural: "appwrappers",
    },
    name: "workload.codeflare.dev/appwrapper",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: FieldPointers {
        suspend: Some("/spec/suspend"),
        managed_by: Some(ManagedBy {
            field: "/spec/managedBy",
            built_in: "workload.codeflare.dev/appwrapper-controller",
        }),
        start_time: None,
        server_labels: &[],
        priority_class: None,
        roles: RoleShape::Listed,
    },
    pod_sets: &[],
    related: &[],
    // Each wrapped object has pods with labels of its own.
    pods: NO_LABELS,
    status: StatusFields {
        finished: &[
            FinishedRule {
                when: Test::Text(PHASE, &["Succeeded"]),
                success: true,
                message: Message::Text("AppWrapper finished successfully"),
            },
            FinishedRule {
                when: Test::All(&[
                    Test::Text(PHASE, &["Failed"]),
                    Test::Not(&Test::Condition("ResourcesDeployed")),
                ]),
                success: false,
                message: Message::Text("AppWrapper failed"),
            },
        ],
        active: Active::When(Test::Condition("QuotaReserved")),
        ready: Ready::When(Test::Condition("PodsReady")),
        reclaimable: Reclaimable::None,
    },
    creates: CreatedKinds::Any,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags {
        pod_sets_from_spec: false,
        completed_pod_sets: true,
        // It deletes them, and makes others.
        resumes_children: false,
        create_rules_on_update: false,
        topology_checks: TopologyChecks::None,
        ..JOB_FLAGS
    },
    hooks: &AppWrapper,
};

/// Additions to the row.
#[derive(Debug)]
struct AppWrapper;

impl Hooks for AppWrapper {
    fn complete_pod_sets(
        &self,
        job: &Value,
        _pod_sets: Vec<Value>,
        _beside: Beside<'_>,
    ) -> Result<PodSets, JobError> {
        let sets = wrapped_sets(job)?.into_iter().map(|(name, set)| set.pod_set(&name));
        sets.collect::<Result<_, _>>().map(PodSets::Known)
    }

    /// Kueue leaves the field out when it is false.
    fn not_suspended(&self) -> Value {
        Value::Null
    }

    fn as_charged_before(&self, job: &Value) -> Option<Value> {
        let mut former = job.clone();
        let mut differs = false;
        for (number, component) in former.pointer_mut(COMPONENTS)?.as_array_mut()?.iter_mut().enumerate() {
            let Some(object) = component.get_mut("template") else { continue };
            if let Some(mut listed) = listed(job, number).ok()? {
                if raise(&mut listed, object).ok()? {
                    // Without its kind it is charged for what is listed alone.
                    object.as_object_mut()?.remove("kind");
                    differs = true;
                }
                continue;
            }
            let Some(row) = known_row(object) else { continue };
            if let Some(charged) = row.hooks.as_charged_before(object) {
                (*object, differs) = (charged, true);
            }
        }
        differs.then_some(former)
    }

    fn place_of(&self, job: &Value, pod_set: &str) -> Option<String> {
        let sets = wrapped_sets(job).ok()?;
        sets.into_iter().find(|(name, _)| name == pod_set).map(|(_, set)| set.place)
    }
}

/// A pod set of a wrapped object.
struct WrappedSet<'a> {
    /// Where the start of its pods lists what it adds.
    place: String,
    /// Where the wrapped template has its annotations.
    annotations: String,
    template: &'a Value,
    count: i32,
    index_label: Option<String>,
    /// Label and number of the groups of pods in it.
    groups: Option<(String, i32)>,
}

/// Where a wrapped object has a pod set.
struct Declared {
    /// The template, as a pointer to the wrapped object.
    template: String,
    count: i32,
    index_label: Option<String>,
    groups: Option<(String, i32)>,
}

/// Returns the pod sets of all components, in order, with their names.
fn wrapped_sets(job: &Value) -> Result<Vec<(String, WrappedSet<'_>)>, JobError> {
    let name = read::string(job, "/metadata/name")?.unwrap_or_default();
    let components = read::list(job, COMPONENTS)?;
    let mut sets = Vec::new();
    for (number, component) in components.iter().enumerate() {
        let path = format!("{COMPONENTS}/{number}");
        let object = component.get("template").unwrap_or(&Value::Null);
        let in_template = |error| read::below(&format!("{path}/template"), error);
        let declared = match listed(job, number)? {
            Some(mut listed) => {
                raise(&mut listed, object).map_err(in_template)?;
                listed
            }
            None => inferred(object).map_err(in_template)?,
        };
        for (position, set) in declared.into_iter().enumerate() {
            let template = object.pointer(&set.template).filter(|template| template.is_object());
            let template = template.ok_or_else(|| {
                malformed(&format!("{path}/podSets/{position}/path"), "is not the path of a pod template")
            })?;
            let Declared { template: pointer, count, index_label, groups } = set;
            let annotations = format!("{path}/template{pointer}/metadata/annotations");
            let place = format!("{path}/podSetInfos/{position}");
            let name = format!("{name}-{}", sets.len());
            sets.push((name, WrappedSet { place, annotations, template, count, index_label, groups }));
        }
    }
    Ok(sets)
}

/// Returns the pod sets of a component that the status lists, or else the component itself; `None` if neither does.
fn listed(job: &Value, number: usize) -> Result<Option<Vec<Declared>>, JobError> {
    let components = read::list(job, COMPONENTS)?;
    let known = read::list(job, COMPONENT_STATUS)?;
    if let Some(status) = known.get(number).filter(|_| known.len() == components.len()) {
        let place = format!("{COMPONENT_STATUS}/{number}");
        return read_declared(read::list(status, "/podSets")?, &place).map(Some);
    }
    let own = components.get(number).map(|component| read::list(component, "/podSets")).transpose()?;
    let own = own.filter(|own| !own.is_empty());
    own.map(|own| read_declared(own, &format!("{COMPONENTS}/{number}"))).transpose()
}

/// Raises the counts of listed pod sets to those that are found in their object, of which the controller reads less. Returns whether
/// one was raised.
fn raise(listed: &mut [Declared], object: &Value) -> Result<bool, JobError> {
    let mut is_raised = false;
    for found in inferred(object)? {
        let fewer = |set: &&mut Declared| set.template == found.template && set.count < found.count;
        for set in listed.iter_mut().filter(fewer) {
            (set.count, is_raised) = (found.count, true);
        }
    }
    Ok(is_raised)
}

/// Reads pod sets that a component or the status declares.
fn read_declared(sets: &[Value], owner: &str) -> Result<Vec<Declared>, JobError> {
    let read = |set: &Value| {
        let path = read::string(set, "/path")?.unwrap_or_default();
        let annotations = read::string_map(set, "/annotations")?;
        let groups = annotations.get(GROUP_COUNT).and_then(|count| count.parse().ok());
        Ok(Declared {
            template: pointer_of(path).ok_or_else(|| malformed("/path", "is no path into the template"))?,
            count: read::count(set, "/replicas")?.unwrap_or(1),
            index_label: annotations.get(INDEX_LABEL).cloned(),
            groups: annotations.get(GROUP_LABEL).cloned().zip(groups),
        })
    };
    let located = |(position, set): (usize, &Value)| {
        read(set).map_err(|error| read::below(&format!("{owner}/podSets/{position}"), error))
    };
    sets.iter().enumerate().map(located).collect()
}

/// Returns a path like `template.spec.groups[0].template` as a pointer to the wrapped object, which the path calls `template`.
fn pointer_of(path: &str) -> Option<String> {
    let mut rest = path.strip_prefix("template")?;
    let mut pointer = String::new();
    while !rest.is_empty() {
        let (step, end) = if let Some(index) = rest.strip_prefix('[') {
            let (index, end) = index.split_once(']')?;
            index.parse::<usize>().ok()?;
            (index, end)
        } else {
            let field = rest.strip_prefix('.')?;
            let length = field.find(['.', '[']).unwrap_or(field.len());
            field.split_at_checked(length).filter(|(field, _)| !field.is_empty())?
        };
        pointer = format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"));
        rest = end;
    }
    Some(pointer)
}

/// Returns the row of a wrapped object if the controller finds its pod sets by itself.
fn known_row(object: &Value) -> Option<&'static Framework> {
    let api = object.get("apiVersion")?.as_str()?;
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    let kind = object.get("kind")?.as_str()?;
    framework(group, kind).filter(|_| KNOWN.contains(&(group, version, kind)))
}

/// Returns the pod sets that the controller finds in an object; none of a kind that it does not know.
fn inferred(object: &Value) -> Result<Vec<Declared>, JobError> {
    let api = read::string(object, "/apiVersion")?.unwrap_or_default();
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    let kind = read::string(object, "/kind")?.unwrap_or_default();
    let plain = |template: &str, count| {
        vec![Declared { template: template.to_owned(), count, index_label: None, groups: None }]
    };
    match (group, version, kind) {
        ("", "v1", "Pod") => return Ok(plain("", 1)),
        ("apps", "v1", "Deployment" | "StatefulSet") => {
            return Ok(plain("/spec/template", read::count(object, "/spec/replicas")?.unwrap_or(1)));
        }
        _ => {}
    }
    let Some(row) = known_row(object) else { return Ok(Vec::new()) };
    let role = |role: PodRole<'_>| Declared {
        template: role.pointer,
        count: role.count,
        index_label: row.pods.rank.index_label.map(str::to_owned),
        groups: row.pods.rank.sub_groups.map(|groups| groups.label.to_owned()).zip(role.sub_groups),
    };
    Ok(read_roles(row, object)?.into_iter().map(role).collect())
}

impl WrappedSet<'_> {
    /// Returns the entry for `spec.podSets` of the Workload.
    fn pod_set(&self, name: &str) -> Result<Value, JobError> {
        let annotations = read::string_map(self.template, "/metadata/annotations")?;
        let mut set = json!({"name": name, "count": self.count, "template": self.pod_template()?});
        if let Some(request) = self.topology_request(&annotations)?
            && let Some(fields) = set.as_object_mut()
        {
            fields.insert("topologyRequest".to_owned(), request);
        }
        Ok(set)
    }

    fn topology_request(&self, annotations: &BTreeMap<String, String>) -> Result<Option<Value>, JobError> {
        let mut request =
            topology_request(annotations, &NO_RANK, None, &self.annotations)?.unwrap_or_else(|| json!({}));
        if let Some(fields) = request.as_object_mut() {
            if let Some(label) = &self.index_label {
                fields.insert("podIndexLabel".to_owned(), json!(label));
            }
            if let Some((label, count)) = &self.groups {
                fields.insert("subGroupIndexLabel".to_owned(), json!(label));
                fields.insert("subGroupCount".to_owned(), json!(count));
            }
        }
        Ok(Some(request).filter(|request| request.as_object().is_some_and(|fields| !fields.is_empty())))
    }

    fn pod_template(&self) -> Result<Value, JobError> {
        let pick = |object: &Value, names: &[&str]| -> Map<String, Value> {
            let field = |name: &&str| Some(((*name).to_owned(), object.get(*name)?.clone()));
            names.iter().filter_map(field).collect()
        };
        let stored = self.template.get("spec").filter(|spec| spec.is_object());
        let stored = stored.ok_or_else(|| malformed(&self.place, "belongs to a template without a spec"))?;
        let mut spec = pick(stored, &POD_FIELDS);
        spec.entry("restartPolicy").or_insert_with(|| json!("Always"));
        for list in ["initContainers", "containers"] {
            let no_list =
                |_| malformed(&self.place, format!("belongs to a template whose spec.{list} is no list"));
            let containers = read::list(stored, &format!("/{list}")).map_err(no_list)?.iter();
            let containers: Vec<Value> =
                containers.map(|container| Value::Object(pick(container, &CONTAINER_FIELDS))).collect();
            if !containers.is_empty() {
                spec.insert(list.to_owned(), Value::Array(containers));
            }
        }
        let metadata = self.template.get("metadata").unwrap_or(&Value::Null);
        let template = json!({"metadata": pick(metadata, &["labels", "annotations"]), "spec": spec});
        Ok(clean_template(&template))
    }
}

#[cfg(test)]
mod tests;
