//! Objects by kind and name as JSON values: built, sent and read without typed round trips.

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GROUP: &str = "kueue.x-k8s.io";

/// A kind that tests and demo read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    group: &'static str,
    version: &'static str,
    singular: &'static str,
    plural: &'static str,
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
    /// Event, as the newer group shows it.
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
    fn api_version(self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The plural, as kubectl takes it.
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
    /// With this client's credentials.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The API of one kind; an empty namespace means cluster scope or all namespaces.
    pub fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &kind.api_resource())
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &kind.api_resource())
        }
    }

    /// Creates an object; its apiVersion and kind are filled in.
    pub async fn create(&self, kind: Kind, body: &Value) -> kube::Result<Value> {
        let mut body = body.clone();
        if let Some(map) = body.as_object_mut() {
            map.insert("apiVersion".into(), kind.api_version().into());
            map.insert("kind".into(), kind.singular.into());
        }
        let object: DynamicObject = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let made = self.api(kind, &namespace).create(&PostParams::default(), &object).await?;
        to_value(&made)
    }

    /// The object, or nothing.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> kube::Result<Option<Value>> {
        self.api(kind, namespace).get_opt(name).await?.as_ref().map(to_value).transpose()
    }

    /// The object, or an error that names it.
    pub async fn must_get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value> {
        self.get(kind, namespace, name)
            .await?
            .with_context(|| format!("{} {namespace}/{name} does not exist", kind.singular))
    }

    /// All objects of a kind.
    pub async fn list(&self, kind: Kind, namespace: &str, selector: &str) -> kube::Result<Vec<Value>> {
        let params = ListParams::default().labels(selector);
        self.api(kind, namespace).list(&params).await?.items.iter().map(to_value).collect()
    }

    /// A JSON merge patch.
    pub async fn merge(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> kube::Result<Value> {
        to_value(&self.api(kind, namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// A JSON merge patch of the status subresource.
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

    /// Deletes an object, in the background or as said; an absent one is fine.
    pub async fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        how: PropagationPolicy,
    ) -> kube::Result<()> {
        let params = DeleteParams { propagation_policy: Some(how), ..DeleteParams::default() };
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

/// The text at a JSON pointer, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The hosts in a Workload's first topology assignment, whose only level is the host; none if it has no place.
pub fn assigned_hosts(workload: &Value) -> BTreeSet<String> {
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    let mut hosts = BTreeSet::new();
    for slice in assignment["slices"].as_array().into_iter().flatten() {
        let values = &slice["valuesPerLevel"][0];
        hosts.extend(values["universal"].as_str().map(str::to_owned));
        let (prefix, suffix) = (text(values, "/individual/prefix"), text(values, "/individual/suffix"));
        let roots = values["individual"]["roots"].as_array().into_iter().flatten().filter_map(Value::as_str);
        hosts.extend(roots.map(|root| format!("{prefix}{root}{suffix}")));
    }
    hosts
}

/// The number at a JSON pointer, or 0.
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// One condition of an object's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// "True", "False" or "Unknown"; "" if the condition is not there.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// A condition by its type.
pub fn condition(object: &Value, kind: &str) -> Condition {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = all.and_then(|all| all.iter().find(|c| text(c, "/type") == kind)).unwrap_or(&Value::Null);
    Condition {
        status: text(found, "/status").to_owned(),
        reason: text(found, "/reason").to_owned(),
        message: text(found, "/message").to_owned(),
    }
}

/// Whether a condition is True.
pub fn condition_is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).status == "True"
}

/// An error unless the condition has this status and, unless "", this reason.
pub fn expect_condition(object: &Value, kind: &str, status: &str, reason: &str) -> Result<()> {
    let found = condition(object, kind);
    if found.status != status || (!reason.is_empty() && found.reason != reason) {
        bail!(
            "{} has {kind}={} ({}: {}), not {status} ({reason})",
            text(object, "/metadata/name"),
            found.status,
            found.reason,
            found.message
        );
    }
    Ok(())
}

/// A `ClusterQueue` of one flavor that takes every namespace; `quota` is (resource, nominal, borrowing limit).
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

/// A Cohort, with quota of its own if it names any.
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

/// A `LocalQueue`.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"clusterQueue": cluster_queue}})
}

/// A batch/v1 Job of one container, to be varied.
#[derive(Clone, Debug)]
pub struct Job {
    body: Value,
}

impl Job {
    /// One pod that asks for this much and runs until it is deleted, in a queue.
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

    /// How many pods, all at once.
    #[must_use]
    pub fn pods(mut self, count: i32) -> Self {
        self.body["spec"]["parallelism"] = count.into();
        self.body["spec"]["completions"] = count.into();
        self
    }

    /// How long each pod runs.
    #[must_use]
    pub fn runs_for(self, duration: &str) -> Self {
        self.pod_annotation("sluice.dev/run-for", duration)
    }

    /// An annotation of its pods.
    #[must_use]
    pub fn pod_annotation(mut self, key: &str, value: &str) -> Self {
        self.body["spec"]["template"]["metadata"]["annotations"][key] = value.into();
        self
    }

    /// A label of the Job.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["labels"][key] = value.into();
        self
    }

    /// An annotation of the Job.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Its `WorkloadPriorityClass`.
    #[must_use]
    pub fn priority(self, class: &str) -> Self {
        self.label("kueue.x-k8s.io/priority-class", class)
    }

    /// Sets any field of the Job's spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.body["spec"][field] = value;
        self
    }

    /// Sets any field of the pod template's spec.
    #[must_use]
    pub fn pod_spec(mut self, field: &str, value: Value) -> Self {
        self.body["spec"]["template"]["spec"][field] = value;
        self
    }

    /// The Job's object.
    pub const fn body(&self) -> &Value {
        &self.body
    }
}
