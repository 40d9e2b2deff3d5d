//! A reconciler on a fake API server, with a garbage collector and a ReplicaSet controller.

use super::super::pod_groups::{set_fields, store_pod};
use super::super::{context, text};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::api::validation::Gates;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{JobKind, hold_pod};
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::{CopiedKeys, CoreSettings, Delta, Effect, Write, WriteOutcome};
use sluice_core::simulate::Harness;
use sluice_core::simulate::fake_api_server::{FakeApiServer, key_of};
use std::collections::{BTreeMap, BTreeSet};

const BEGIN: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// Time within which everything that is due counts as done.
const SETTLING: SignedDuration = SignedDuration::from_secs(5);

/// What goes wrong while a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// Another client changes an object before each second write of it.
    Conflicts,
    /// The manager is killed after each write, before it sees the response.
    Kills,
}

pub(super) struct Plane {
    pub(super) harness: Harness,
    fault: Fault,
    /// Whether the manager is to be started again.
    killed: bool,
    /// Number of faults so far.
    faults: usize,
    /// Number of writes by object.
    attempts: BTreeMap<(Kind, ObjectKey), u32>,
    now: Timestamp,
    pub(super) namespace: String,
    /// The kind of the scenario's jobs.
    pub(super) kind: JobKind,
    settings: CoreSettings,
    /// Deployments by name.
    pub(super) deployments: BTreeMap<String, Value>,
    /// StatefulSets by name.
    pub(super) stateful_sets: BTreeMap<String, Value>,
    pod_count: usize,
    /// What must hold after each write.
    pub(super) law: fn(&FakeApiServer),
    /// Names of Workloads, seen so far, as recordings show them.
    pub(super) shown_names: BTreeMap<String, String>,
}

pub(super) fn settings(kind: JobKind) -> CoreSettings {
    let mut settings = CoreSettings {
        added_job_kinds: [kind].into(),
        copied: CopiedKeys { labels: vec!["example.com/team".to_owned()], submitter: None },
        ..CoreSettings::default()
    };
    settings.frameworks.insert(kind.name.to_owned());
    settings.writes.queue_status_interval = None;
    settings.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: SignedDuration::from_mins(30),
        recovery_timeout: Some(SignedDuration::from_mins(30)),
        max_requeues: None,
        backoff_base: SignedDuration::from_secs(60),
        backoff_max: SignedDuration::from_secs(3600),
    });
    settings
}

impl Plane {
    pub(super) fn new(kind: JobKind, namespace: &str, fault: Fault) -> Self {
        Self::with_settings(settings(kind), kind, namespace, fault)
    }

    pub(super) fn with_settings(
        settings: CoreSettings,
        kind: JobKind,
        namespace: &str,
        fault: Fault,
    ) -> Self {
        let mut plane = Self {
            harness: Harness::new(settings.clone(), FakeApiServer::new(true)),
            settings,
            fault,
            killed: true,
            faults: 0,
            attempts: BTreeMap::new(),
            now: BEGIN,
            namespace: namespace.to_owned(),
            kind,
            deployments: BTreeMap::new(),
            stateful_sets: BTreeMap::new(),
            pod_count: 0,
            law: |_| (),
            shown_names: BTreeMap::new(),
        };
        plane.harness.server.create(Kind::Namespace, json!({"metadata": {"name": namespace}}), BEGIN);
        // Flavors, priority classes and runtimes that all scenarios share.
        for object in context() {
            let kind = match text(&object["body"]["kind"]) {
                "ResourceFlavor" => Kind::ResourceFlavor,
                "WorkloadPriorityClass" => Kind::WorkloadPriorityClass,
                "PriorityClass" => Kind::PriorityClass,
                _ => {
                    let api = text(&object["body"]["apiVersion"]);
                    let group = api.split_once('/').map_or("", |(group, _)| group);
                    let known = Kind::from_group_kind(group, text(&object["body"]["kind"]));
                    let Some(kind) = known.filter(|kind| matches!(kind, Kind::Related(_))) else { continue };
                    kind
                }
            };
            plane.harness.server.create(kind, object["body"].clone(), BEGIN);
        }
        plane.settle();
        plane
    }

    /// Starts the manager: it reads everything before it leads.
    fn start(&mut self) {
        let lists = self.harness.restart(self.settings.clone());
        self.feed(lists);
        self.feed(vec![Delta::Leading(true)]);
    }

    /// Returns how often something went wrong.
    pub(super) fn faults(&self) -> usize {
        self.faults
    }

    pub(super) fn advance(&mut self, time: SignedDuration) {
        self.now = self.now.checked_add(time).unwrap();
    }

    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    pub(super) fn create(&mut self, kind: Kind, object: &Value) {
        let created = self.harness.server.create(kind, object.clone(), self.now);
        assert!(created.is_some(), "exists: {object}");
    }

    /// Stores a new pod as the server does; its webhook holds it if `held`.
    pub(super) fn create_pod(&mut self, pod: Value, held: bool) {
        self.pod_count += 1;
        // The hash of a role contains what the server's admission plugins added before.
        let mut pod = store_pod(pod, self.pod_count);
        pod["metadata"]["namespace"] = json!(self.namespace);
        if held {
            let changes = hold_pod(&pod, &Gates::default()).unwrap();
            set_fields(&mut pod, &changes);
        }
        self.create(Kind::Pod, &pod);
    }

    /// Deletes an object; it stays while it has finalizers.
    pub(super) fn delete(&mut self, kind: Kind, key: &ObjectKey) {
        let now = self.now.to_string();
        self.harness.server.edit(kind, key, |object| object["metadata"]["deletionTimestamp"] = json!(now));
    }

    /// Lets all controllers act until nothing is left to do.
    pub(super) fn settle(&mut self) {
        let end = self.now.checked_add(SETTLING).unwrap();
        for _ in 0..5000 {
            if std::mem::take(&mut self.killed) {
                self.start();
                continue;
            }
            let deltas: Vec<Delta> = self.harness.server.watch_events.drain(..).collect();
            if !deltas.is_empty() {
                self.feed(deltas);
                continue;
            }
            self.scale_deployments();
            self.scale_stateful_sets();
            self.collect_garbage();
            if !self.harness.server.watch_events.is_empty() {
                continue;
            }
            match self.harness.core.next_due().filter(|due| *due <= end) {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.feed(vec![Delta::Tick]);
                }
                None => return,
            }
        }
        panic!("{} does not settle", self.namespace);
    }

    /// Applies deltas, and the answers to what follows from them.
    fn feed(&mut self, mut deltas: Vec<Delta>) {
        while !deltas.is_empty() {
            for effect in self.harness.core.apply_all(deltas, self.now) {
                match effect {
                    Effect::Write(write) => {
                        self.meddle(&write);
                        self.harness.execute(write, self.now);
                        let answer = self.harness.inbox.back();
                        let refused = matches!(answer, Some(Delta::Written(result))
                            if matches!(result.outcome, WriteOutcome::Rejected { .. }));
                        assert!(!refused, "{answer:?}");
                        (self.law)(&self.harness.server);
                        if self.fault == Fault::Kills {
                            (self.killed, self.faults) = (true, self.faults + 1);
                            return;
                        }
                    }
                    Effect::Refetch { kind, key } => self.harness.read(kind, key),
                    Effect::Event(_) | Effect::Observe(_) | Effect::LogWaitingHead { .. } => {}
                }
            }
            deltas = self.harness.inbox.drain(..).collect();
            assert_eq!(self.harness.core.ledger_drift(), 0, "the ledger has drifted");
        }
    }

    /// Changes an object that is about to be written, each second time, as another client.
    fn meddle(&mut self, write: &Write) {
        let attempts = self.attempts.entry((write.kind, write.key.clone())).or_default();
        *attempts += 1;
        let attempt = *attempts;
        if self.fault == Fault::Conflicts && attempt % 2 == 1 {
            let known = self.harness.server.get(write.kind, &write.key).is_some();
            self.faults += usize::from(known);
            self.harness.server.edit(write.kind, &write.key, |object| object["meddled"] = json!(attempt));
        }
    }

    /// Deletes Workloads of which no owner is left.
    fn collect_garbage(&mut self) {
        let uid = |object: &Value| text(&object["metadata"]["uid"]).to_owned();
        let kinds = [Kind::Pod, Kind::Job(JobKind::BATCH_JOB), Kind::Job(self.kind)];
        let uids: BTreeSet<String> =
            kinds.into_iter().flat_map(|kind| self.harness.server.all(kind).map(uid)).collect();
        let is_orphan = |workload: &&Value| {
            let owners = workload["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| {
                !owners.is_empty() && owners.iter().all(|owner| !uids.contains(text(&owner["uid"])))
            }) && workload["metadata"]["deletionTimestamp"].is_null()
        };
        let orphans: Vec<ObjectKey> =
            self.harness.server.all(Kind::Workload).filter(is_orphan).map(key_of).collect();
        for key in orphans {
            self.delete(Kind::Workload, &key);
        }
        self.remove_references(&uids);
    }

    /// Removes the references of Workloads to owners that are gone, beside others that are not.
    fn remove_references(&mut self, uids: &BTreeSet<String>) {
        let is_left = |owner: &Value| uids.contains(text(&owner["uid"]));
        let dangles = |workload: &&Value| {
            let owners = workload["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(is_left) && !owners.iter().all(is_left))
        };
        let keys: Vec<ObjectKey> =
            self.harness.server.all(Kind::Workload).filter(dangles).map(key_of).collect();
        for key in keys {
            self.harness.server.edit(Kind::Workload, &key, |workload| {
                let owners = workload["metadata"]["ownerReferences"].as_array_mut();
                if let Some(owners) = owners {
                    owners.retain(is_left);
                }
            });
        }
    }

    /// Creates and deletes pods of Deployments. In a rollout, pods of the old template go before the new ones come, if the
    /// strategy says so; otherwise a quarter of the new ones comes first, and old ones go as these get ready, which none does.
    fn scale_deployments(&mut self) {
        for (name, deployment) in self.deployments.clone() {
            let template = &deployment["spec"]["template"];
            let revision = template.to_string();
            let (mut current, mut old) = (Vec::new(), Vec::new());
            for pod in self.harness.server.all(Kind::Pod).filter(|pod| pod["deployment"] == *name) {
                let ended = pod["metadata"].get("deletionTimestamp").is_some();
                let list = if pod["revision"] == *revision { &mut current } else { &mut old };
                if !ended {
                    list.push(key_of(pod));
                }
            }
            if deployment["spec"]["strategy"]["type"] == "Recreate" {
                for key in std::mem::take(&mut old) {
                    self.delete(Kind::Pod, &key);
                }
            }
            let wanted = usize::try_from(deployment["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap();
            for key in current.iter().skip(wanted) {
                self.delete(Kind::Pod, key);
            }
            let most = if old.is_empty() { wanted } else { wanted.div_ceil(4) };
            for _ in current.len()..most {
                let mut pod = template.clone();
                pod["metadata"]["name"] = json!(format!("{name}-{}", self.pod_count));
                pod["spec"]["restartPolicy"] = json!("Always");
                pod["deployment"] = json!(name);
                pod["revision"] = json!(revision);
                let held = template["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true";
                self.create_pod(pod, held);
            }
        }
        let gone: Vec<ObjectKey> = self
            .harness
            .server
            .all(Kind::Pod)
            .filter(|pod| pod["deployment"].as_str().is_some_and(|name| !self.deployments.contains_key(name)))
            .map(key_of)
            .collect();
        for key in gone {
            self.delete(Kind::Pod, &key);
        }
    }
}
