//! Requests of a scenario, answered as webhooks and the API server do.

use super::super::pod_groups::set_fields;
use super::super::{apply_act, text};
use super::plane::Plane;
use jiff::SignedDuration;
use regex::Regex;
use serde_json::{Value, json};
use sluice_core::admission::{
    AdmissionSettings, ObjectLookup, OwnerRef, OwnerView, ReviewContext, admit_object,
};
use sluice_core::api::ObjectKey;
use sluice_core::api::validation::Gates;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Found, JobKind, Related, RelatedKey, framework, frameworks};
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::BTreeMap;
use std::fmt;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Sets what the API server defaults in a JobSet, TrainJob, MPIJob or LeaderWorkerSet.
fn set_defaults(object: &mut Value) {
    let roles = object.pointer_mut("/spec/replicatedJobs").and_then(Value::as_array_mut);
    for role in roles.into_iter().flatten() {
        role["groupName"] = json!("default");
    }
    if object["kind"] == "LeaderWorkerSet" {
        object["spec"]["leaderWorkerTemplate"]["restartPolicy"] = json!("RecreateGroupOnPodRestart");
        object["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"] = json!(0);
    }
    if object["kind"] == "TrainJob" {
        let built_in =
            [("managedBy", json!("trainer.kubeflow.org/trainjob-controller")), ("suspend", json!(false))];
        for (field, default) in built_in {
            let field = &mut object["spec"][field];
            if field.is_null() {
                *field = default;
            }
        }
    }
    if object["kind"] == "MPIJob" {
        for (field, default) in [
            ("launcherCreationPolicy", json!("AtStartup")),
            ("mpiImplementation", json!("OpenMPI")),
            ("runLauncherAsWorker", json!(false)),
            ("slotsPerWorker", json!(1)),
            ("sshAuthMountPath", json!("/root/.ssh")),
        ] {
            let field = &mut object["spec"][field];
            if field.is_null() {
                *field = default;
            }
        }
    }
}

impl Plane {
    /// Performs a request.
    pub(super) fn act(&mut self, act: &Value) {
        self.advance(SignedDuration::from_secs(1));
        if act["do"] == "wait" {
            return;
        }
        let act = self.resolve(act);
        let path = text(&act["path"]).trim_start_matches('/').to_owned();
        let prefix = format!("/namespaces/{}/", self.namespace);
        let (resource, namespaced) = if let Some((_, rest)) = path.split_once(&prefix) {
            (rest.to_owned(), true)
        } else {
            // The path of the core group is shorter.
            let group = if path.starts_with("api/") { 2 } else { 3 };
            (path.splitn(group + 1, '/').nth(group).unwrap().to_owned(), false)
        };
        let mut parts = resource.split('/');
        let (plural, name) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        if plural == "deployments" {
            return self.act_on_deployment(&act, name);
        }
        if plural == "statefulsets" {
            return self.act_on_stateful_set(&act, name);
        }
        let kind = match plural {
            "clusterqueues" => Kind::ClusterQueue,
            "localqueues" => Kind::LocalQueue,
            "admissionchecks" => Kind::AdmissionCheck,
            "resourceflavors" => Kind::ResourceFlavor,
            "topologies" => Kind::Topology,
            "nodes" => Kind::Node,
            "workloads" => Kind::Workload,
            "pods" => Kind::Pod,
            "jobs" => Kind::Job(JobKind::BATCH_JOB),
            plural => {
                let related = self.kind.related.iter().find(|kind| kind.gvk.plural == plural);
                let row = frameworks().find(|row| row.gvk.plural == plural);
                let job = || Kind::Job(row.map_or(self.kind, JobKind::new));
                related.filter(|_| row.is_none()).map_or_else(job, |kind| Kind::Related(*kind))
            }
        };
        let key = if namespaced { self.key(name) } else { ObjectKey::cluster(name) };
        match text(&act["do"]) {
            "create" => self.act_create(kind, act["body"].clone(), namespaced),
            "delete" => self.delete(kind, &key),
            _ => {
                if act["retry"] == true {
                    self.settle();
                }
                assert!(self.harness.server.get(kind, &key).is_some(), "{key} does not exist: {act}");
                self.harness.server.edit(kind, &key, |object| {
                    apply_act(object, &act);
                    set_defaults(object);
                    let queued = object["metadata"]["labels"][QUEUE].is_string();
                    if let Kind::Job(row) = kind
                        && queued
                    {
                        let marks = row.mark_templates(object, &Gates::default());
                        set_fields(object, &marks);
                    }
                });
            }
        }
        if act["do"] == "create" || kind == Kind::Workload {
            // Each request is answered before the next one is sent.
            self.settle();
        }
    }

    fn act_create(&mut self, kind: Kind, mut object: Value, namespaced: bool) {
        if namespaced {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        let queued = object["metadata"]["labels"][QUEUE].is_string();
        match kind {
            Kind::Pod => {
                // Its owner is queued in its place.
                let owned = object["metadata"]["ownerReferences"].is_array();
                return self.create_pod(object, queued && !owned);
            }
            Kind::Job(kind) => {
                object = self.admit(kind, object);
                set_defaults(&mut object);
            }
            Kind::Workload => object["spec"]["active"] = json!(true),
            _ => {}
        }
        self.create(kind, &object);
    }

    /// Returns a new job as the webhooks leave it.
    fn admit(&self, kind: JobKind, job: Value) -> Value {
        let frameworks = [JobKind::BATCH_JOB, self.kind].map(|kind| kind.name.to_owned()).into();
        let settings = AdmissionSettings { frameworks, ..AdmissionSettings::default() };
        let ctx = ReviewContext { objects: self, settings: &settings };
        let named = (kind.gvk.group, kind.gvk.kind);
        admit_object(named, job, None, |_| Ok(()), &ctx).expect("what is refused is compared elsewhere").0
    }

    fn act_on_deployment(&mut self, act: &Value, name: &str) {
        let mut deployment = match text(&act["do"]) {
            "create" => act["body"].clone(),
            "delete" => {
                self.deployments.remove(name);
                return;
            }
            _ => {
                let mut deployment = self.deployments[name].clone();
                apply_act(&mut deployment, act);
                deployment
            }
        };
        if deployment["metadata"]["labels"][QUEUE].is_string() {
            let row = framework("apps", "Deployment").expect("a row");
            let changes = row.mark_templates(&deployment, &Gates::default());
            set_fields(&mut deployment, &changes);
        }
        self.deployments.insert(text(&deployment["metadata"]["name"]).to_owned(), deployment);
    }

    /// Replaces the names that only a run knows.
    fn resolve(&self, act: &Value) -> Value {
        let mut words = act.to_string().replace("$NS", &self.namespace);
        let pods: Vec<String> =
            self.harness.server.all(Kind::Pod).map(|pod| key_of(pod).name.to_string()).collect();
        for (number, name) in pods.iter().enumerate() {
            words = words.replace(&format!("$POD{{{number}}}"), name);
        }
        let reference = Regex::new(r"\$(WL|UID)\{([^/}]+)/([^}/]+)(?:/([0-9]+))?\}").unwrap();
        let resolved = reference.replace_all(&words, |found: &regex::Captures<'_>| {
            let kind = if &found[2] == "Pod" { Kind::Pod } else { Kind::Job(self.kind) };
            let kind = if &found[2] == "Job" { Kind::Job(JobKind::BATCH_JOB) } else { kind };
            let owner = self.harness.server.get(kind, &self.key(&found[3])).expect("the owner exists");
            let uid = text(&owner["metadata"]["uid"]);
            if &found[1] == "UID" {
                return uid.to_owned();
            }
            let replica = found.get(4).map_or(Value::Null, |index| json!(index.as_str()));
            let owned = |workload: &&Value| {
                let metadata = &workload["metadata"];
                let index = &metadata["annotations"]["kueue.x-k8s.io/component-workload-index"];
                metadata["ownerReferences"][0]["uid"] == *uid && *index == replica
            };
            let workload = self.harness.server.all(Kind::Workload).find(owned).expect("the Workload exists");
            key_of(workload).name.to_string()
        });
        serde_json::from_str(&resolved).unwrap()
    }
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of the plane")
    }
}

impl Related for Plane {
    fn find(&self, object: &RelatedKey) -> Found<'_> {
        let stored = self.harness.server.get(Kind::Related(object.kind), &object.key);
        stored.map_or(Found::Missing, Found::Object)
    }
}

/// What the webhooks look up.
impl ObjectLookup for Plane {
    fn namespace_labels(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        Some(&NONE)
    }
    fn local_queue_exists(&self, namespace: &str, name: &str) -> bool {
        self.harness.server.get(Kind::LocalQueue, &ObjectKey::new(namespace, name)).is_some()
    }
    fn default_priority_class_exists(&self) -> bool {
        false
    }
    fn queue_is_multikueue(&self, _: &str, _: &str) -> bool {
        false
    }
    fn related(&self) -> &dyn Related {
        self
    }
    fn knows_pods(&self) -> bool {
        true
    }

    fn owner(&self, _: &str, owner: &OwnerRef) -> Option<OwnerView> {
        let kind = Kind::Job(JobKind::new(framework(owner.group(), &owner.kind)?));
        let owner = &self.harness.server.get(kind, &self.key(&owner.name))?["metadata"];
        let queue_name = owner["labels"][QUEUE].as_str().map(str::to_owned);
        Some(OwnerView { uid: text(&owner["uid"]).to_owned(), queue_name, ..OwnerView::default() })
    }
}
