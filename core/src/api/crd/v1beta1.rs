//! The schemas of v1beta1, made from those of v1beta2 by the differences between both.
//!
//! A difference that names a field which is not there is an error, so both cannot diverge unnoticed. Bounds equal Kueue's.

use super::super::v1beta1::{
    CONVERSION_PATH, CONVERTED, POD_PRIORITY_CLASS_SOURCE, VERSION, WORKLOAD_PRIORITY_CLASS_SOURCE,
};
use super::builtin::{quantity, taints};
use super::kinds::KindSpec;
use super::rules::{self, checks, holds, merged, subdomain};
use super::schema::{merge, set, sort};
use super::{CrdError, GROUP};
use serde_json::{Map, Value, json};

/// Name of the Service at which API servers have objects converted.
pub const CONVERSION_SERVICE: &str = "kueue-conversion-service";

/// Returns version v1beta1 of each kind by its plural: served, deprecated, never stored.
pub fn versions() -> Result<Vec<(&'static str, Value)>, CrdError> {
    let kinds = super::schemas()?;
    kinds.iter().map(|(kind, schema)| Ok((kind.plural, version(kind, schema)?))).collect()
}

/// Returns name and YAML of a JSON patch for the definition of each kind: it adds the version and, where a webhook converts,
/// the conversion.
pub fn patches() -> Result<Vec<(String, String)>, CrdError> {
    let patch = |(plural, version): (&str, Value)| {
        let mut patch = vec![json!({ "op": "add", "path": "/spec/versions/0", "value": version })];
        if CONVERTED.contains(&format!("{plural}.{GROUP}").as_str()) {
            patch.push(json!({ "op": "add", "path": "/spec/conversion", "value": conversion() }));
        }
        let name = format!("{plural}.yaml");
        let text = super::yaml(&name, &Value::Array(patch))?;
        Ok((name, text))
    };
    versions()?.into_iter().map(patch).collect()
}

/// Returns `spec.conversion` of the kinds that a webhook converts.
fn conversion() -> Value {
    let service = json!({ "name": CONVERSION_SERVICE, "namespace": "kueue-system", "path": CONVERSION_PATH });
    json!({
        "strategy": "Webhook",
        "webhook": { "clientConfig": { "service": service }, "conversionReviewVersions": ["v1"] },
    })
}

fn version(kind: &KindSpec, v1beta2: &Value) -> Result<Value, CrdError> {
    let mut version = super::version(kind, &schema(kind.kind, v1beta2)?);
    for (field, value) in [
        ("name", VERSION.into()),
        ("storage", false.into()),
        ("deprecated", true.into()),
        ("deprecationWarning", format!("{GROUP}/{VERSION} {} is deprecated: use v1beta2", kind.kind).into()),
    ] {
        set(&mut version, field, value);
    }
    if let Some(version) = version.as_object_mut() {
        version.shift_remove("selectableFields");
    }
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for path in columns.into_iter().flatten().filter_map(|column| column.get_mut("jsonPath")) {
        if path == ".spec.cohortName" {
            *path = ".spec.cohort".into();
        }
    }
    Ok(version)
}

/// Changes the schema of a kind to that of v1beta1.
fn schema(kind: &str, v1beta2: &Value) -> Result<Value, CrdError> {
    let mut schema = Edited(v1beta2.clone());
    match kind {
        "AdmissionCheck" => admission_check(&mut schema)?,
        "ClusterQueue" => cluster_queue(&mut schema)?,
        "Cohort" => cohort(&mut schema)?,
        "LocalQueue" => local_queue(&mut schema)?,
        "MultiKueueCluster" => multikueue_cluster(&mut schema)?,
        "MultiKueueConfig" => multikueue_config(&mut schema)?,
        "ProvisioningRequestConfig" => provisioning(&mut schema)?,
        "Topology" => topology(&mut schema)?,
        "Workload" => workload(&mut schema)?,
        "WorkloadPriorityClass" => schema.unset("description", &["maxLength"])?,
        _ => {}
    }
    sort(&mut schema.0);
    Ok(schema.0)
}

/// A schema while it is changed. Paths are as `status.list[].field`; the empty one is the object itself.
struct Edited(Value);

impl Edited {
    fn at(&mut self, path: &str) -> Result<&mut Value, CrdError> {
        let missing = || CrdError::new(format!("v1beta1: no field {path}"));
        let mut node = &mut self.0;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let name = step.trim_end_matches("[]");
            node = node.get_mut("properties").and_then(|p| p.get_mut(name)).ok_or_else(missing)?;
            if step.ends_with("[]") {
                node = node.get_mut("items").ok_or_else(missing)?;
            }
        }
        Ok(node)
    }

    fn fields(&mut self, path: &str) -> Result<&mut Map<String, Value>, CrdError> {
        let node = self.at(path)?.get_mut("properties").and_then(Value::as_object_mut);
        node.ok_or_else(|| CrdError::new(format!("v1beta1: {path} has no fields")))
    }

    /// Removes a field and returns it.
    fn remove(&mut self, path: &str, field: &str) -> Result<Value, CrdError> {
        let removed = self.fields(path)?.shift_remove(field);
        removed.ok_or_else(|| CrdError::new(format!("v1beta1: {path} has no {field}")))
    }

    fn rename(&mut self, path: &str, from: &str, to: &str) -> Result<(), CrdError> {
        let schema = self.remove(path, from)?;
        self.add(path, to, schema)
    }

    fn add(&mut self, path: &str, field: &str, schema: Value) -> Result<(), CrdError> {
        let earlier = self.fields(path)?.insert(field.to_owned(), schema);
        earlier.map_or(Ok(()), |_| Err(CrdError::new(format!("v1beta1: {path} has {field} already"))))
    }

    /// Removes rules of a field, such as bounds.
    fn unset(&mut self, path: &str, rules: &[&str]) -> Result<(), CrdError> {
        let node = self.at(path)?.as_object_mut();
        let node = node.ok_or_else(|| CrdError::new(format!("v1beta1: {path} has no schema")))?;
        for rule in rules {
            let missing = || CrdError::new(format!("v1beta1: {path} has no rule {rule}"));
            node.shift_remove(*rule).ok_or_else(missing)?;
        }
        Ok(())
    }

    /// Merges rules into a field.
    fn set(&mut self, path: &str, rules: &Value) -> Result<(), CrdError> {
        merge(self.at(path)?, rules);
        Ok(())
    }

    fn unbounded_conditions(&mut self) -> Result<(), CrdError> {
        self.unset("status.conditions", &["maxItems"])
    }
}

fn admission_check(schema: &mut Edited) -> Result<(), CrdError> {
    schema.unset("spec.controllerName", &["minLength", "maxLength"])?;
    for field in ["apiGroup", "kind", "name"] {
        schema.unset(&format!("spec.parameters.{field}"), &["minLength"])?;
    }
    let delay = json!({
        "description": "Has no effect.", "type": "integer", "format": "int64", "default": 15,
    });
    schema.add("spec", "retryDelayMinutes", delay)?;
    schema.unbounded_conditions()
}

fn cluster_queue(schema: &mut Edited) -> Result<(), CrdError> {
    schema.rename("spec", "cohortName", "cohort")?;
    let without_cohort = checks(&[(
        "!has(self.cohort) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true",
        "borrowingLimit must be nil when cohort is empty",
    )]);
    schema.set("spec", &without_cohort)?;
    let checks = json!({
        "description": "AdmissionChecks for all flavors. In v1beta2 they are admissionChecksStrategy, in whose place they are put.",
        "type": "array", "items": { "type": "string", "maxLength": 316 },
    });
    schema.add("spec", "admissionChecks", checks)?;
    let rules = "spec.admissionChecksStrategy.admissionChecks";
    schema.unset("spec.admissionChecksStrategy", &["required"])?;
    schema.unset(rules, &["minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"])?;
    schema.unset(&format!("{rules}[].name"), &["minLength"])?;
    schema.unset(&format!("{rules}[].onFlavors"), &["maxItems", "x-kubernetes-list-type"])?;
    schema.unset("spec.admissionScope.admissionMode", &["enum"])?;
    schema.remove("spec", "concurrentAdmissionPolicy")?;
    for (field, earlier) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        let values = json!({ "enum": ["MayStopSearch", "TryNextFlavor", earlier] });
        schema.set(&format!("spec.flavorFungibility.{field}"), &values)?;
    }
    schema.unset("spec.resourceGroups[].coveredResources", &["x-kubernetes-list-type"])?;
    consumed_resources(schema)?;
    schema.add("status", "pendingWorkloadsStatus", pending_workloads())?;
    schema.unbounded_conditions()
}

fn pending_workloads() -> Value {
    let text = |description: &str| json!({ "description": description, "type": "string" });
    json!({
        "description": "Is not filled; the visibility API has it.",
        "type": "object",
        "required": ["lastChangeTime"],
        "properties": {
            "clusterQueuePendingWorkload": {
                "description": "Pending Workloads at the head of the queue.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A pending Workload.",
                    "type": "object",
                    "required": ["name", "namespace"],
                    "properties": { "name": text("Its name."), "namespace": text("Its namespace.") },
                },
            },
            "lastChangeTime": {
                "description": "Time of the last change of the list.", "type": "string", "format": "date-time",
            },
        },
    })
}

/// Adds the figures that in v1beta2 only LocalQueues have.
fn consumed_resources(schema: &mut Edited) -> Result<(), CrdError> {
    let status = json!({
        "description": "Is filled for LocalQueues only.",
        "type": "object",
        "required": ["consumedResources", "lastUpdate"],
        "properties": {
            "consumedResources": {
                "description": "Usage over time, by resource.",
                "type": "object",
                "additionalProperties": quantity(),
            },
            "lastUpdate": {
                "description": "Time of the last change.", "type": "string", "format": "date-time",
            },
        },
    });
    schema.add("status.fairSharing", "admissionFairSharingStatus", status)
}

fn cohort(schema: &mut Edited) -> Result<(), CrdError> {
    schema.unset("spec.resourceGroups[].coveredResources", &["x-kubernetes-list-type"])?;
    consumed_resources(schema)
}

fn local_queue(schema: &mut Edited) -> Result<(), CrdError> {
    schema.rename("status", "flavorsUsage", "flavorUsage")?;
    schema.add("status", "flavors", flavors_of_queue())?;
    schema.unbounded_conditions()
}

fn flavors_of_queue() -> Value {
    let levels = json!({
        "description": "Node labels of its levels.", "type": "array", "minItems": 1, "maxItems": 16,
        "x-kubernetes-list-type": "atomic", "items": { "type": "string" },
    });
    let resources = json!({
        "description": "Resources of the flavor.", "type": "array", "maxItems": 64,
        "x-kubernetes-list-type": "set", "items": { "type": "string" },
    });
    let labels = json!({
        "description": "Node labels of the flavor.", "type": "object", "maxProperties": 8,
        "x-kubernetes-map-type": "atomic", "additionalProperties": { "type": "string" },
    });
    let mut taints = taints();
    set(&mut taints, "description", "Taints of the flavor's nodes.".into());
    let name =
        |description: &str| merged(json!({ "description": description, "type": "string" }), &subdomain());
    json!({
        "description": "Is not filled; ResourceFlavors have it.",
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "description": "A flavor of the queue.",
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": name("Name of the ResourceFlavor."),
                "nodeLabels": labels,
                "nodeTaints": merged(taints, &rules::atomic(8)),
                "resources": resources,
                "topology": {
                    "description": "Topology of the flavor.",
                    "type": "object",
                    "required": ["levels", "name"],
                    "properties": { "levels": levels, "name": name("Name of the Topology.") },
                },
            },
        },
    })
}

fn multikueue_cluster(schema: &mut Edited) -> Result<(), CrdError> {
    for source in ["kubeConfig", "clusterProfileRef"] {
        let source_schema = schema.remove("spec.clusterSource", source)?;
        schema.add("spec", source, source_schema)?;
    }
    schema.remove("spec", "clusterSource")?;
    schema.set("spec", &json!({ "required": ["kubeConfig"] }))?;
    schema.set("spec.kubeConfig", &json!({ "required": ["location", "locationType"] }))?;
    schema.unset("spec.kubeConfig.location", &["minLength", "maxLength"])?;
    schema.unbounded_conditions()
}

fn multikueue_config(schema: &mut Edited) -> Result<(), CrdError> {
    schema.remove("spec", "quotaManagement")?;
    schema.unset("spec.clusters", &["x-kubernetes-validations"])?;
    schema.set("spec.clusters", &json!({ "x-kubernetes-list-type": "set" }))?;
    schema.unset("spec.clusters[]", &["maxLength"])
}

fn provisioning(schema: &mut Edited) -> Result<(), CrdError> {
    schema.unset("spec.provisioningClassName", &["minLength"])?;
    let selector = "spec.podSetUpdates.nodeSelector";
    schema.unset(selector, &["x-kubernetes-list-type", "x-kubernetes-list-map-keys"])
}

fn topology(schema: &mut Edited) -> Result<(), CrdError> {
    let checks = schema.at("spec.levels")?.pointer_mut("/x-kubernetes-validations/0");
    let check = checks.ok_or_else(|| CrdError::new("v1beta1: levels have no check"))?;
    *check = json!({ "message": "field is immutable", "rule": "self == oldSelf" });
    Ok(())
}

fn workload(schema: &mut Edited) -> Result<(), CrdError> {
    workload_checks(schema)?;
    workload_spec(schema)?;
    workload_admission(schema)?;
    schema.unset("status.admissionChecks[].name", &["minLength"])?;
    schema.unset("status.admissionChecks[].podSetUpdates[].tolerations", &["x-kubernetes-list-type"])?;
    let name = "accumulatedPastExecutionTimeSeconds";
    schema.rename("status", name, "accumulatedPastExexcutionTimeSeconds")?;
    schema.unset("status.clusterName", &["maxLength"])?;
    schema.unset("status.nominatedClusterNames[]", &["maxLength"])?;
    schema.remove("status", "preemptionGates")?;
    schema.unset("status.schedulingStats.evictions", &["maxItems"])?;
    let list = ["maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"];
    schema.unset("status.unhealthyNodes", &list)?;
    schema.unset("status.unhealthyNodes[].name", &["maxLength"])?;
    schema.unbounded_conditions()
}

/// Replaces the four checks of the reference to a priority class, and that of the spec.
fn workload_checks(schema: &mut Edited) -> Result<(), CrdError> {
    let was_reserved = holds("oldSelf", "QuotaReserved");
    let both = format!(
        "({was_reserved} && has(oldSelf.spec.priorityClassSource) && has(self.spec.priorityClassSource)"
    );
    let source =
        format!("{both}) ? (oldSelf.spec.priorityClassSource == self.spec.priorityClassSource) : true");
    let name = format!(
        "{both} && (self.spec.priorityClassSource != '{WORKLOAD_PRIORITY_CLASS_SOURCE}') && has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName)) ? (oldSelf.spec.priorityClassName == self.spec.priorityClassName) : true"
    );
    let check = |rule: &str, message: &str| json!({ "message": message, "rule": rule });
    let own = schema.at("")?.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut);
    let own = own.ok_or_else(|| CrdError::new("v1beta1: Workload has no checks"))?;
    own.retain(|check| !check.to_string().contains("priorityClassRef"));
    let replacement = [
        check(&source, "priorityClassSource is immutable while workload quota reserved"),
        check(
            &name,
            &format!(
                "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to {WORKLOAD_PRIORITY_CLASS_SOURCE}"
            ),
        ),
    ];
    // After the check of the number of pod sets.
    drop(own.splice(1..1, replacement));
    let priority = checks(&[(
        "has(self.priorityClassName) ? has(self.priority) : true",
        "priority should not be nil when priorityClassName is set",
    )]);
    schema.set("spec", &priority)
}

fn workload_spec(schema: &mut Edited) -> Result<(), CrdError> {
    schema.set("spec", &json!({ "required": ["podSets"] }))?;
    schema.remove("spec", "preemptionGates")?;
    schema.remove("spec", "priorityClassRef")?;
    let name =
        merged(json!({ "description": "Name of the priority class.", "type": "string" }), &subdomain());
    schema.add("spec", "priorityClassName", name)?;
    let source = json!({
        "description": "What priorityClassName names: a WorkloadPriorityClass, the PriorityClass of the pods, or nothing.",
        "type": "string",
        "default": "",
        "enum": [WORKLOAD_PRIORITY_CLASS_SOURCE, POD_PRIORITY_CLASS_SOURCE, ""],
    });
    schema.add("spec", "priorityClassSource", source)?;
    schema.set("spec.podSets[]", &json!({ "required": ["count", "template"] }))?;
    let request = "spec.podSets[].topologyRequest";
    schema.remove(request, "podsetSliceRequiredTopologyConstraints")?;
    for field in [
        "podIndexLabel",
        "podSetGroupName",
        "podSetSliceRequiredTopology",
        "preferred",
        "required",
        "subGroupIndexLabel",
    ] {
        schema.unset(&format!("{request}.{field}"), &["maxLength"])?;
    }
    schema.unset(&format!("{request}.subGroupCount"), &["minimum"])
}

fn workload_admission(schema: &mut Edited) -> Result<(), CrdError> {
    schema.set("status.admission", &json!({ "required": ["clusterQueue", "podSetAssignments"] }))?;
    let assignment = "status.admission.podSetAssignments[]";
    schema.set(assignment, &json!({ "required": ["name"] }))?;
    schema.unset(&format!("{assignment}.delayedTopologyRequest"), &["enum", "maxLength"])?;
    let topology = format!("{assignment}.topologyAssignment");
    schema.unset(&topology, &["x-kubernetes-validations"])?;
    schema.set(&topology, &json!({ "required": ["domains", "levels"] }))?;
    schema.unset(&format!("{topology}.levels[]"), &["maxLength"])?;
    schema.remove(&topology, "slices")?;
    let values = json!({
        "description": "Its value for each level.", "type": "array", "minItems": 1, "maxItems": 16,
        "x-kubernetes-list-type": "atomic", "items": { "type": "string" },
    });
    let domains = json!({
        "description": "Assigned domains.",
        "type": "array",
        "items": {
            "description": "A domain with its number of pods.",
            "type": "object",
            "required": ["count", "values"],
            "properties": {
                "count": {
                    "description": "Number of pods in the domain.",
                    "type": "integer", "format": "int32", "minimum": 1,
                },
                "values": values,
            },
        },
    });
    schema.add(&topology, "domains", domains)
}
