//! Kubernetes objects as JSON values, addressed by kind and name. Nothing is decoded into typed structs, so no field is
//! lost.

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GROUP: &str = "kueue.x-k8s.io";

/// A kind that the demo, benchmarks and tests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) plural: &'static str,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $group:expr, $version:literal, $kind:literal, $plural:literal;)*) => {
        impl Kind {
            $($(#[$doc])* pub const $name: Self = Self { group: $group, version: $version, singular: $kind, plural: $plural };)*
        }
    };
}

kinds! {
    /// batch/v1 Job.
    JOB = "batch", "v1", "Job", "jobs";
    /// Pod.
    POD = "", "v1", "Pod", "pods";
    /// Deployment.
    DEPLOYMENT = "apps", "v1", "Deployment", "deployments";
    /// `StatefulSet`.
    STATEFUL_SET = "apps", "v1", "StatefulSet", "statefulsets";
    /// `PodDisruptionBudget`.
    DISRUPTION_BUDGET = "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets";
    /// `EndpointSlice`.
    ENDPOINT_SLICE = "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices";
    /// Node.
    NODE = "", "v1", "Node", "nodes";
    /// `ConfigMap`.
    CONFIG_MAP = "", "v1", "ConfigMap", "configmaps";
    /// Namespace.
    NAMESPACE = "", "v1", "Namespace", "namespaces";
    /// `LimitRange`.
    LIMIT_RANGE = "", "v1", "LimitRange", "limitranges";
    /// `ServiceAccount`.
    SERVICE_ACCOUNT = "", "v1", "ServiceAccount", "serviceaccounts";
    /// Secret.
    SECRET = "", "v1", "Secret", "secrets";
    /// Event of `events.k8s.io`.
    EVENT = "events.k8s.io", "v1", "Event", "events";
    /// Lease.
    LEASE = "coordination.k8s.io", "v1", "Lease", "leases";
    /// `ClusterRole`.
    CLUSTER_ROLE = "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles";
    /// `RoleBinding`.
    ROLE_BINDING = "rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings";
    /// `MutatingWebhookConfiguration`.
    MUTATING_WEBHOOKS = "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations";
    /// `ValidatingWebhookConfiguration`.
    VALIDATING_WEBHOOKS = "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations";
    /// `ValidatingAdmissionPolicy`.
    VALIDATING_POLICY = "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies";
    /// `ValidatingAdmissionPolicyBinding`.
    VALIDATING_POLICY_BINDING = "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings";
    /// `SubjectAccessReview`.
    ACCESS_REVIEW = "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews";
    /// `CustomResourceDefinition`.
    CRD = "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions";
    /// Workload.
    WORKLOAD = GROUP, "v1beta2", "Workload", "workloads";
    /// `ClusterQueue`.
    CLUSTER_QUEUE = GROUP, "v1beta2", "ClusterQueue", "clusterqueues";
    /// `LocalQueue`.
    LOCAL_QUEUE = GROUP, "v1beta2", "LocalQueue", "localqueues";
    /// Cohort.
    COHORT = GROUP, "v1beta2", "Cohort", "cohorts";
    /// `ResourceFlavor`.
    FLAVOR = GROUP, "v1beta2", "ResourceFlavor", "resourceflavors";
    /// Topology.
    TOPOLOGY = GROUP, "v1beta2", "Topology", "topologies";
    /// `AdmissionCheck`.
    ADMISSION_CHECK = GROUP, "v1beta2", "AdmissionCheck", "admissionchecks";
    /// `ProvisioningRequestConfig`.
    PROVISIONING_CONFIG = GROUP, "v1beta2", "ProvisioningRequestConfig", "provisioningrequestconfigs";
    /// `ProvisioningRequest`.
    PROVISIONING_REQUEST = "autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests";
    /// `PodTemplate`.
    POD_TEMPLATE = "", "v1", "PodTemplate", "podtemplates";
    /// `WorkloadPriorityClass`.
    PRIORITY_CLASS = GROUP, "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses";
}

impl Kind {
    /// Creates a kind of another project.
    pub const fn new(
        group: &'static str,
        version: &'static str,
        singular: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, singular, plural }
    }

    /// Returns its apiVersion.
    pub fn api_version(self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns its kind, such as `Job`.
    pub const fn singular(self) -> &'static str {
        self.singular
    }

    /// Returns the resource name as kubectl expects it, such as `jobs.batch`.
    pub fn resource(self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    fn api_resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(self.group, self.version, self.singular),
            self.plural,
        )
    }
}

/// Reads and writes objects with one user's credentials.
#[derive(Clone)]
pub struct ObjectClient {
    client: Client,
}

impl ObjectClient {
    /// Uses this client's credentials.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the client.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the API of one kind; an empty namespace means cluster scope or all namespaces.
    pub fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &kind.api_resource())
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &kind.api_resource())
        }
    }

    /// Creates an object; sets its apiVersion and kind.
    pub async fn create(&self, kind: Kind, body: &Value) -> kube::Result<Value> {
        let mut body = body.clone();
        if let Some(map) = body.as_object_mut() {
            map.insert("apiVersion".into(), kind.api_version().into());
            map.insert("kind".into(), kind.singular.into());
        }
        let object: DynamicObject = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let created = self.api(kind, &namespace).create(&PostParams::default(), &object).await?;
        to_value(&created)
    }

    /// Returns the object, or `None` if it does not exist.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> kube::Result<Option<Value>> {
        self.api(kind, namespace).get_opt(name).await?.as_ref().map(to_value).transpose()
    }

    /// Returns the object; an error names it if it does not exist.
    pub async fn must_get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value> {
        self.get(kind, namespace, name)
            .await?
            .with_context(|| format!("{} {namespace}/{name} does not exist", kind.singular))
    }

    /// Lists the objects of a kind that match a label selector.
    pub async fn list(&self, kind: Kind, namespace: &str, selector: &str) -> kube::Result<Vec<Value>> {
        let params = ListParams::default().labels(selector);
        self.api(kind, namespace).list(&params).await?.items.iter().map(to_value).collect()
    }

    /// Applies a JSON merge patch; returns the result.
    pub async fn merge(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> kube::Result<Value> {
        to_value(&self.api(kind, namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Applies a JSON merge patch to the status subresource; returns the result.
    pub async fn merge_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> kube::Result<Value> {
        to_value(
            &self
                .api(kind, namespace)
                .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
                .await?,
        )
    }

    /// Deletes an object with this propagation policy; succeeds if it does not exist.
    pub async fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        propagation: PropagationPolicy,
    ) -> kube::Result<()> {
        let params = DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default() };
        match self.api(kind, namespace).delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn to_value(object: &DynamicObject) -> kube::Result<Value> {
    serde_json::to_value(object).map_err(kube::Error::SerdeError)
}

/// Returns the string at a JSON pointer, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the hosts in the topology assignment of a Workload's first pod set; its lowest level must be the host. Empty
/// without an assignment.
pub fn assigned_hosts(workload: &Value) -> BTreeSet<String> {
    assigned_domains(&workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"])
}

/// Returns the values of the lowest level of a topology assignment, as the names of hosts. Empty without an assignment.
pub fn assigned_domains(assignment: &Value) -> BTreeSet<String> {
    let mut domains = BTreeSet::new();
    for slice in assignment["slices"].as_array().into_iter().flatten() {
        let levels = slice["valuesPerLevel"].as_array();
        let values = levels.and_then(|levels| levels.last()).unwrap_or(&Value::Null);
        domains.extend(values["universal"].as_str().map(str::to_owned));
        let (prefix, suffix) = (text(values, "/individual/prefix"), text(values, "/individual/suffix"));
        let roots = values["individual"]["roots"].as_array().into_iter().flatten().filter_map(Value::as_str);
        domains.extend(roots.map(|root| format!("{prefix}{root}{suffix}")));
    }
    domains
}

/// Returns the number at a JSON pointer, or 0.
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// One condition of an object's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// "True", "False" or "Unknown"; "" if the object has no such condition.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// Returns a condition by its type; all fields are "" if it does not exist.
pub fn condition(object: &Value, kind: &str) -> Condition {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = all.and_then(|all| all.iter().find(|c| text(c, "/type") == kind)).unwrap_or(&Value::Null);
    Condition {
        status: text(found, "/status").to_owned(),
        reason: text(found, "/reason").to_owned(),
        message: text(found, "/message").to_owned(),
    }
}

/// Returns whether a condition is True.
pub fn condition_is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).status == "True"
}

/// Returns an error unless the condition has this status and reason; reason "" matches any.
pub fn expect_condition(object: &Value, kind: &str, status: &str, reason: &str) -> Result<()> {
    let found = condition(object, kind);
    if found.status != status || (!reason.is_empty() && found.reason != reason) {
        bail!(
            "{} has {kind}={} ({}: {}), expected {status} ({reason})",
            text(object, "/metadata/name"),
            found.status,
            found.reason,
            found.message
        );
    }
    Ok(())
}

/// Builds a `ClusterQueue` with one flavor that selects every namespace; `quota` is (resource, nominal, borrowing
/// limit).
pub fn cluster_queue(name: &str, cohort: &str, flavor: &str, quota: &[(&str, &str, Option<&str>)]) -> Value {
    let mut body = json!({
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group(flavor, quota)]},
    });
    if !cohort.is_empty() {
        body["spec"]["cohortName"] = cohort.into();
    }
    body
}

/// Builds a Cohort; without its own quota if `quota` is empty.
pub fn cohort(name: &str, parent: &str, flavor: &str, quota: &[(&str, &str, Option<&str>)]) -> Value {
    let mut body = json!({"metadata": {"name": name}, "spec": {}});
    if !parent.is_empty() {
        body["spec"]["parentName"] = parent.into();
    }
    if !quota.is_empty() {
        body["spec"]["resourceGroups"] = json!([group(flavor, quota)]);
    }
    body
}

fn group(flavor: &str, quota: &[(&str, &str, Option<&str>)]) -> Value {
    let covered: Vec<&str> = quota.iter().map(|(resource, ..)| *resource).collect();
    let resources: Vec<Value> = quota
        .iter()
        .map(|(resource, nominal, borrowing)| {
            let mut entry = json!({"name": resource, "nominalQuota": nominal});
            if let Some(limit) = borrowing {
                entry["borrowingLimit"] = (*limit).into();
            }
            entry
        })
        .collect();
    json!({"coveredResources": covered, "flavors": [{"name": flavor, "resources": resources}]})
}

/// Builds a `LocalQueue`.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"clusterQueue": cluster_queue}})
}

/// Builder for a batch/v1 Job with one container.
#[derive(Clone, Debug)]
pub struct Job {
    body: Value,
}

impl Job {
    /// Starts with one pod with these requests, which runs until it is deleted; no queue label if `queue` is "".
    pub fn new(namespace: &str, name: &str, queue: &str, requests: &[(&str, &str)]) -> Self {
        let requests: serde_json::Map<String, Value> =
            requests.iter().map(|(resource, amount)| ((*resource).to_owned(), (*amount).into())).collect();
        let mut body = json!({
            "metadata": {"namespace": namespace, "name": name, "labels": {}},
            "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {
                "metadata": {"annotations": {}},
                "spec": {"restartPolicy": "Never", "containers": [
                    {"name": "main", "image": "work:1", "resources": {"requests": requests}},
                ]},
            }},
        });
        if !queue.is_empty() {
            body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue.into();
        }
        Self { body }
    }

    /// Sets parallelism and completions.
    #[must_use]
    pub fn pods(mut self, count: i32) -> Self {
        self.body["spec"]["parallelism"] = count.into();
        self.body["spec"]["completions"] = count.into();
        self
    }

    /// Sets how long each pod runs.
    #[must_use]
    pub fn runs_for(self, duration: &str) -> Self {
        self.pod_annotation("sluice.dev/run-for", duration)
    }

    /// Adds a pod annotation.
    #[must_use]
    pub fn pod_annotation(mut self, key: &str, value: &str) -> Self {
        self.body["spec"]["template"]["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Adds a label to the Job.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["labels"][key] = value.into();
        self
    }

    /// Adds an annotation to the Job.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Sets its `WorkloadPriorityClass`.
    #[must_use]
    pub fn priority(self, class: &str) -> Self {
        self.label("kueue.x-k8s.io/priority-class", class)
    }

    /// Sets a field of the Job's spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.body["spec"][field] = value;
        self
    }

    /// Sets a field of the pod template's spec.
    #[must_use]
    pub fn pod_spec(mut self, field: &str, value: Value) -> Self {
        self.body["spec"]["template"]["spec"][field] = value;
        self
    }

    /// Returns the Job as a JSON object.
    pub const fn body(&self) -> &Value {
        &self.body
    }
}
