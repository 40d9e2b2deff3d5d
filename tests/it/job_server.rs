//! A core on a fake API server with one queue: jobs and pods of any kind, whose controllers and kubelets the test plays.

use crate::core_fixture::START;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::admission::{AdmissionSettings, ReviewContext, admit_object, review};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::dashboard::build::without_workload;
use sluice::frameworks::{Framework, JobKind, framework};
use sluice::metrics::gauges;
use sluice::metrics::model::Gauges;
use sluice::reconciler::why_no_workload;
use sluice::reconciler::{CoreSettings, Delta, Effect, Event, Observation, Verb};
use sluice::simulate::Harness;
use sluice::simulate::fake_api_server::FakeApiServer;
use sluice::snapshot::JobName;
use sluice::visibility::access::Access;
use sluice::visibility::findings::audit;
use sluice::visibility::views::Finding;

/// Time within which everything that is due counts as done.
const SETTLING: SignedDuration = SignedDuration::from_secs(5);

/// Returns the kind of a row.
pub(crate) fn kind(group: &str, kind: &str) -> Kind {
    Kind::Job(JobKind::new(framework(group, kind).expect("a row")))
}

pub(crate) struct JobServer {
    harness: Harness,
    admission: AdmissionSettings,
    now: Timestamp,
    /// Events that were emitted.
    pub(crate) events: Vec<Event>,
    /// Observations for metrics.
    pub(crate) observed: Vec<Observation>,
    /// Number of writes.
    pub(crate) writes: usize,
    /// Deletions that the manager has sent, as the object and the version that it was decided on.
    pub(crate) deletions: Vec<(Kind, String, String)>,
    /// Number of writes after which the manager is killed, until it is replaced.
    pub(crate) dies_after: Option<usize>,
}

impl JobServer {
    /// A leading manager of these frameworks, with a queue of as many CPUs.
    pub(crate) fn new(frameworks: &[&str], cpus: &str) -> Self {
        let frameworks = frameworks.iter().map(|name| (*name).to_owned()).collect();
        let settings = CoreSettings { frameworks, ..CoreSettings::default() };
        Self::with_settings(settings, AdmissionSettings::default(), cpus)
    }

    /// A leading manager with these settings.
    pub(crate) fn with_settings(core: CoreSettings, admission: AdmissionSettings, cpus: &str) -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let admission = AdmissionSettings { passing: core.passing(), ..admission };
        let harness = Harness::new(core, FakeApiServer::new(true).with_schemas().unwrap());
        let mut server = Self {
            harness,
            admission,
            now,
            events: Vec::new(),
            observed: Vec::new(),
            writes: 0,
            deletions: Vec::new(),
            dies_after: None,
        };
        let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": [
            {"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "1000Gi"}]}]}]);
        for (kind, object) in [
            (Kind::Namespace, json!({"metadata": {"name": "ns"}})),
            (Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}})),
            (
                Kind::ClusterQueue,
                json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}),
            ),
            (
                Kind::LocalQueue,
                json!({"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}),
            ),
        ] {
            server.harness.server.create(kind, object, now);
        }
        server.harness.server.watch_events.clear();
        let lists = server.harness.lists();
        server.feed(lists);
        server.feed(vec![Delta::Leading(true)]);
        server.settle();
        server
    }

    /// Replaces the manager by one that reads everything again.
    pub(crate) fn restart(&mut self, settings: CoreSettings) {
        self.dies_after = None;
        let lists = self.harness.restart(settings);
        self.feed(lists);
        self.feed(vec![Delta::Leading(true)]);
        self.settle();
    }

    /// Replaces the manager by one that reads everything again; an object was changed while there was none.
    pub(crate) fn restart_after_edit(
        &mut self,
        settings: CoreSettings,
        (kind, name): (Kind, &str),
        change: impl FnOnce(&mut Value),
    ) {
        self.harness.server.edit(kind, &ObjectKey::new("ns", name), change);
        self.harness.server.watch_events.clear();
        self.restart(settings);
    }

    /// Replaces the manager by one that reads everything again; an object was deleted while there was none.
    pub(crate) fn restart_after_deletion(&mut self, settings: CoreSettings, kind: Kind, name: &str) {
        self.harness.server.delete(kind, &ObjectKey::new("ns", name), self.now);
        self.harness.server.watch_events.clear();
        self.restart(settings);
    }

    /// Changes an object of which a manager that is to be replaced takes no note.
    pub(crate) fn edit_unseen(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.harness.server.edit(kind, &ObjectKey::new("ns", name), change);
    }

    /// Creates an object of which a manager that is to be replaced takes no note.
    pub(crate) fn create_unseen(&mut self, kind: Kind, object: Value) {
        assert!(self.harness.server.create(kind, object, self.now).is_some(), "the name exists");
    }

    /// Stores an object with the UID and the time that it says, of which a manager that is to be replaced takes no note.
    pub(crate) fn load_unseen(&mut self, kind: Kind, object: Value) {
        self.harness.server.load(kind, object, self.now);
        self.harness.server.watch_events.clear();
    }

    /// Returns why a job has no Workload, as the page about it says it.
    pub(crate) fn page_without_workload(&self, kind: &str, name: &str) -> Option<String> {
        let job = JobName { namespace: "ns".to_owned(), kind: kind.to_owned(), name: name.to_owned() };
        let why = why_no_workload(&self.harness.core, &job)?;
        Some(without_workload(("ns", kind, name), &why))
    }

    /// Returns what an audit finds.
    pub(crate) fn audit(&mut self) -> Vec<String> {
        let facts = self.harness.core.audit_facts();
        let snapshot = self.harness.core.snapshot();
        let found = audit((&snapshot, Some(&facts)), &Access::everything(), (None, self.now)).unwrap();
        let text = |one: &Finding| {
            let object = &one.object;
            format!(
                "{} {} {}/{}: {}",
                one.check.as_str(),
                object.kind,
                object.namespace,
                object.name,
                one.message
            )
        };
        found.iter().map(text).collect()
    }

    /// Creates an object of a row as a user: its webhooks default and validate it first.
    ///
    /// # Errors
    /// A webhook has refused it.
    pub(crate) fn submit(&mut self, row: &'static Framework, object: Value) -> Result<(), String> {
        let object = self.admit(row, object, None)?;
        self.create(Kind::of_job(JobKind::new(row)), object);
        Ok(())
    }

    /// Returns an object that is created, or that replaces another one, as its webhooks leave it.
    ///
    /// # Errors
    /// A webhook has refused it.
    pub(crate) fn admit(&self, row: &Framework, object: Value, old: Option<&Value>) -> Result<Value, String> {
        let snapshot = self.harness.core.snapshot();
        let ctx = ReviewContext { objects: &snapshot, settings: &self.admission };
        let admitted = admit_object((row.gvk.group, row.gvk.kind), object, old, |_| Ok(()), &ctx);
        admitted.map(|(object, _warnings)| object)
    }

    /// Returns the answer to a review: whether it is allowed, and the message.
    pub(crate) fn review(&self, path: &str, request: &Value) -> (bool, String) {
        let snapshot = self.harness.core.snapshot();
        let ctx = ReviewContext { objects: &snapshot, settings: &self.admission };
        let answer = review(path, &json!({"request": request}), &ctx);
        let message = answer["response"]["status"]["message"].as_str().unwrap_or_default().to_owned();
        (answer["response"]["allowed"] == true, message)
    }

    /// Returns the gauges of the metrics page.
    pub(crate) fn gauges(&self) -> Gauges {
        gauges(&self.harness.core.snapshot(), self.now)
    }

    /// The API server refuses lists of a kind.
    pub(crate) fn forbid(&mut self, kind: Kind) {
        self.feed(vec![Delta::Unread { kind }]);
        self.settle();
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn create(&mut self, kind: Kind, object: Value) {
        let created = self.harness.server.create(kind, object, self.now);
        assert!(created.is_some(), "the name exists");
        self.settle();
    }

    /// Creates an object with the UID and the time that it says.
    pub(crate) fn load(&mut self, kind: Kind, object: Value) {
        self.harness.server.load(kind, object, self.now);
        self.settle();
    }

    pub(crate) fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.edit_any(kind, &ObjectKey::new("ns", name), change);
    }

    /// Changes an object that may have no namespace.
    pub(crate) fn edit_any(&mut self, kind: Kind, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        self.harness.server.edit(kind, key, change);
        self.settle();
    }

    /// Changes an object without a namespace.
    pub(crate) fn edit_cluster_object(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.harness.server.edit(kind, &ObjectKey::cluster(name), change);
        self.settle();
    }

    /// Deletes an object without a namespace.
    pub(crate) fn delete_cluster_object(&mut self, kind: Kind, name: &str) {
        self.harness.server.delete(kind, &ObjectKey::cluster(name), self.now);
        self.settle();
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        self.harness.server.delete(kind, &ObjectKey::new("ns", name), self.now);
        self.settle();
    }

    /// Deletes an object from which another client takes its finalizers before the manager sees the deletion.
    pub(crate) fn remove_by_force(&mut self, kind: Kind, name: &str) {
        let key = ObjectKey::new("ns", name);
        self.harness.server.delete(kind, &key, self.now);
        self.harness.server.edit(kind, &key, |object| object["metadata"]["finalizers"] = json!([]));
        self.settle();
    }

    /// Deletes the namespace: its objects are deleted by others, and nothing can be created in it.
    pub(crate) fn delete_namespace(&mut self) {
        let now = self.now.to_string();
        self.harness.server.edit(Kind::Namespace, &ObjectKey::cluster("ns"), |namespace| {
            namespace["metadata"]["deletionTimestamp"] = json!(now);
            namespace["metadata"]["finalizers"] = json!(["test/contents"]);
            namespace["status"] = json!({"phase": "Terminating"});
        });
        self.settle();
    }

    /// Deletes a pod whose Workload stays, as it has other owners.
    pub(crate) fn delete_member(&mut self, name: &str) {
        let now = self.now.to_string();
        self.edit(Kind::Pod, name, |pod| pod["metadata"]["deletionTimestamp"] = json!(now));
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.harness.server.get(kind, &ObjectKey::new("ns", name))
    }

    /// Returns an object without a namespace.
    pub(crate) fn get_cluster_object(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.harness.server.get(kind, &ObjectKey::cluster(name))
    }

    /// Returns the objects of a kind.
    pub(crate) fn all(&self, kind: Kind) -> Vec<Value> {
        self.harness.server.all(kind).cloned().collect()
    }

    /// Returns the name of the only Workload.
    pub(crate) fn workload_name(&self) -> String {
        let workloads = self.all(Kind::Workload);
        let [workload] = &workloads[..] else { panic!("{workloads:?}") };
        workload["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Returns status and reason of a condition of the only Workload.
    pub(crate) fn condition(&self, kind: &str) -> Option<(String, String)> {
        let workload = self.get(Kind::Workload, &self.workload_name())?;
        let conditions = workload["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        Some((text("status"), text("reason")))
    }

    /// Returns whether the only Workload holds quota.
    pub(crate) fn holds_quota(&self) -> bool {
        self.condition("QuotaReserved").is_some_and(|(status, _)| status == "True")
    }

    /// Returns the names of the Workloads that the queues are charged for, whether they exist or not.
    pub(crate) fn charged(&self) -> Vec<String> {
        let queues = self.harness.core.list_queues(10).cluster_queues;
        queues.iter().flat_map(|queue| &queue.workloads.first).map(|key| key.name.to_string()).collect()
    }

    /// Deactivates the only Workload.
    pub(crate) fn deactivate(&mut self) {
        let name = self.workload_name();
        self.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(false));
    }

    /// Changes the number of CPUs of the queue.
    pub(crate) fn edit_queue(&mut self, cpus: &str) {
        self.edit_any(Kind::ClusterQueue, &ObjectKey::new("", "cq"), |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(cpus);
        });
    }

    /// Lets a pod run on a node. It stays when it is deleted, until it has ended.
    pub(crate) fn run_pod(&mut self, name: &str) {
        self.edit(Kind::Pod, name, |pod| {
            pod["spec"]["nodeName"] = json!("n");
            pod["status"] = json!({"phase": "Running"});
            let finalizers = &mut pod["metadata"]["finalizers"];
            let mut all = finalizers.as_array().cloned().unwrap_or_default();
            all.push(json!("test/kubelet"));
            *finalizers = json!(all);
        });
    }

    /// Removes a pod whose containers have ended.
    pub(crate) fn end_pod(&mut self, name: &str) {
        self.edit(Kind::Pod, name, |pod| {
            pod["status"]["phase"] = json!("Failed");
            pod["metadata"]["finalizers"] = json!([]);
        });
    }

    pub(crate) fn advance(&mut self, time: SignedDuration) {
        self.now = self.now.checked_add(time).unwrap();
        self.feed(vec![Delta::Tick]);
        self.settle();
    }

    /// Lets the manager act until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        let end = self.now.checked_add(SETTLING).unwrap();
        for _ in 0..2_000 {
            let deltas: Vec<Delta> = self.harness.server.watch_events.drain(..).collect();
            if !deltas.is_empty() {
                self.feed(deltas);
                continue;
            }
            let Some(due) = self.harness.core.next_due().filter(|due| *due <= end) else { return };
            self.now = self.now.max(due);
            self.feed(vec![Delta::Tick]);
        }
        panic!("does not settle");
    }

    fn feed(&mut self, mut deltas: Vec<Delta>) {
        while !deltas.is_empty() {
            for effect in self.harness.core.apply_all(deltas, self.now) {
                match effect {
                    Effect::Write(write) => {
                        if let Some(left) = &mut self.dies_after {
                            if *left == 0 {
                                return;
                            }
                            *left -= 1;
                        }
                        self.writes += 1;
                        if write.verb == Verb::Delete {
                            let version = write.body["preconditions"]["resourceVersion"].to_string();
                            let deletion = (write.kind, write.key.name.to_string(), version);
                            assert!(!self.deletions.contains(&deletion), "sent twice: {deletion:?}");
                            self.deletions.push(deletion);
                        }
                        self.harness.execute(write, self.now);
                    }
                    Effect::Refetch { kind, key } => self.harness.read(kind, key),
                    Effect::Event(event) => self.events.push(event),
                    Effect::Observe(observation) => self.observed.push(observation),
                    Effect::LogWaitingHead { .. } => {}
                }
            }
            deltas = self.harness.inbox.drain(..).collect();
            assert_eq!(self.harness.core.ledger_drift(), 0, "the ledger has drifted");
        }
    }
}

/// A pod that waits for admission, as its webhook makes it; in a group if `group` names one.
pub(crate) fn pod(name: &str, group: Option<(&str, usize)>) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "annotations": {"kueue.x-k8s.io/role-hash": "role"},
            "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "lq"},
            "finalizers": ["kueue.x-k8s.io/managed"]},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    });
    if let Some((group, total)) = group {
        let annotations = &mut pod["metadata"]["annotations"];
        annotations["kueue.x-k8s.io/pod-group-name"] = json!(group);
        annotations["kueue.x-k8s.io/pod-group-total-count"] = json!(total.to_string());
    }
    pod
}
