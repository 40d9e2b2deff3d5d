//! Jobs whose pod sets are made from another object as well: a change of the object concerns the jobs that read it, and a job
//! waits as it is while the object is not known.

use crate::fixtures::leading_core::{Core, job, writes};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{
    Awaited, Beside, Flags, Found, Framework, Gvk, Hooks, JobError, JobKind, PodSets, RelatedKey, RelatedKind,
};
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Verb};
use std::collections::BTreeSet;

const SIZE: RelatedKind = RelatedKind {
    gvk: Gvk { group: "example.com", version: "v1", kind: "Size", plural: "sizes" },
    namespaced: true,
    in_reviews: false,
};

/// The annotation of a run that names its size.
const NAME: &str = "/metadata/annotations/size";

/// A kind of job whose number of pods is in another object.
static RUN: Framework = Framework {
    gvk: Gvk { group: "example.com", version: "v1", kind: "Run", plural: "runs" },
    name: "example.com/run",
    short_names: &[],
    related: &[SIZE],
    hooks: &SizeHooks,
    enabled: JobKind::BATCH_JOB.row().enabled,
    role: JobKind::BATCH_JOB.row().role,
    fields: JobKind::BATCH_JOB.row().fields,
    pod_sets: JobKind::BATCH_JOB.row().pod_sets,
    pods: JobKind::BATCH_JOB.row().pods,
    status: JobKind::BATCH_JOB.row().status,
    creates: JobKind::BATCH_JOB.row().creates,
    webhooks: JobKind::BATCH_JOB.row().webhooks,
    rbac: JobKind::BATCH_JOB.row().rbac,
    flags: Flags { completed_pod_sets: true, ..JobKind::BATCH_JOB.row().flags },
};

#[derive(Debug)]
struct SizeHooks;

fn size_of(run: &Value) -> RelatedKey {
    let name = run.pointer(NAME).and_then(Value::as_str).unwrap_or_default();
    RelatedKey { kind: SIZE, key: ObjectKey::new("ns", name) }
}

impl Hooks for SizeHooks {
    fn related(&self, run: &Value) -> Result<Vec<RelatedKey>, JobError> {
        Ok(vec![size_of(run)])
    }

    fn complete_pod_sets(
        &self,
        run: &Value,
        mut pod_sets: Vec<Value>,
        beside: Beside<'_>,
    ) -> Result<PodSets, JobError> {
        let name = size_of(run);
        let Found::Object(size) = beside.related.find(&name) else {
            return Ok(PodSets::Await(Awaited { object: name, problem: None }));
        };
        pod_sets[0]["count"] = size["pods"].clone();
        Ok(PodSets::Known(pod_sets))
    }
}

const KIND: Kind = Kind::Job(JobKind::new(&RUN));
const SIZES: Kind = Kind::Related(SIZE);

fn core() -> Core {
    let core = Core::new(CoreSettings {
        frameworks: BTreeSet::from(["batch/job".to_owned(), RUN.name.to_owned()]),
        added_job_kinds: [JobKind::new(&RUN)].into(),
        ..CoreSettings::default()
    });
    assert!(core.state.kinds().contains(&SIZES), "the kinds that jobs read are watched");
    core
}

fn run(name: &str, size: &str) -> Value {
    let mut run = job(name);
    run["metadata"]["annotations"] = json!({"size": size});
    run
}

fn size(pods: i32) -> Value {
    json!({"metadata": {"name": "large", "namespace": "ns"}, "pods": pods})
}

/// Keys of the runs that are read again.
fn read_again(effects: &[Effect]) -> Vec<String> {
    let read = |effect: &Effect| match effect {
        Effect::Refetch { kind, key } if *kind == KIND => Some(key.name.to_string()),
        _ => None,
    };
    effects.iter().filter_map(read).collect()
}

fn notes<'a>(effects: &'a [Effect]) -> Vec<&'a str> {
    let note = |effect: &'a Effect| match effect {
        Effect::Event(event) => Some(event.note.as_str()),
        _ => None,
    };
    effects.iter().filter_map(note).collect()
}

/// Answers the reads of one run.
fn answer(core: &mut Core, run: &Value) -> Vec<Effect> {
    let key = ObjectKey::new("ns", run["metadata"]["name"].as_str().unwrap());
    core.feed(Delta::Read { kind: KIND, key, object: Some(run.clone()) })
}

#[test]
fn job_waits_until_object_is_known_and_follows_it() {
    let mut core = core();
    core.feed(Delta::Restarted { kind: SIZES });
    let waiting = core.with_server_metadata(KIND, run("a", "large"));
    let effects = core.feed(Delta::Applied { kind: KIND, object: waiting.clone() });
    assert!(writes(&effects, Kind::Workload).is_empty(), "{effects:?}");
    assert_eq!(notes(&effects), ["Size ns/large is not known yet"]);
    core.put(KIND, run("b", "other"));

    let effects = core.put(SIZES, size(5));
    assert_eq!(read_again(&effects), ["a"], "the other run reads another object");
    let effects = answer(&mut core, &waiting);
    let created = writes(&effects, Kind::Workload);
    assert_eq!((created.len(), created[0].verb), (1, Verb::Create));
    assert_eq!(created[0].body["spec"]["podSets"][0]["count"], 5);

    // The Workload exists, and the object changes: the Workload follows, because it has no quota yet.
    core.feed(Delta::Leading(false));
    let workload = core.with_server_metadata(Kind::Workload, created[0].body.clone());
    core.feed(Delta::Applied { kind: Kind::Workload, object: workload });
    let effects = core.put(SIZES, size(6));
    assert_eq!(read_again(&effects), ["a"]);
    let key = ObjectKey::new("ns", "a");
    let read = Delta::Read { kind: KIND, key, object: Some(waiting) };
    let effects = core.feed_all([Delta::Leading(true), read]);
    let counts: Vec<_> = writes(&effects, Kind::Workload)
        .iter()
        .map(|write| (write.verb, write.body["spec"]["podSets"][0]["count"].clone()))
        .collect();
    assert_eq!(counts, [(Verb::Merge, json!(6))], "{effects:?}");
}

#[test]
fn job_awaits_object_that_was_missing() {
    let mut core = core();
    let waiting = core.with_server_metadata(KIND, run("a", "large"));
    let effects = core.feed(Delta::Applied { kind: KIND, object: waiting });
    assert!(writes(&effects, Kind::Workload).is_empty());
    core.feed(Delta::Restarted { kind: SIZES });
    assert_eq!(
        read_again(&core.feed(Delta::Synced { kind: SIZES })),
        ["a"],
        "the list may have changed the answer"
    );
    let effects = core.put(SIZES, size(1));
    assert_eq!(read_again(&effects), ["a"]);
}

#[test]
fn running_job_without_workload_is_stopped_while_its_pod_sets_are_unknown() {
    let mut core = core();
    core.feed(Delta::Restarted { kind: SIZES });
    let mut running = run("a", "large");
    running["spec"]["suspend"] = json!(false);
    running["status"]["active"] = json!(1);
    let effects = core.put(KIND, running);
    let patches: Vec<_> =
        writes(&effects, KIND).iter().map(|write| write.body["spec"]["suspend"].clone()).collect();
    assert_eq!(patches, [json!(true)], "{effects:?}");
}
