//! Samples of job kinds: `config/samples/<kind>.yaml` is what users submit, and what the tests of every kind start from.

use serde_json::{Value, json};
use sluice::api::validation::Gates;
use sluice::cache::Kind;
use sluice::frameworks::{
    Beside, Found, Framework, JobError, JobView, Related, RelatedKey, Role, frameworks,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Returns the sample of a kind as users submit it.
pub(crate) fn submitted(kind: &Framework) -> Value {
    static READ: Mutex<BTreeMap<&str, Value>> = Mutex::new(BTreeMap::new());
    let mut samples = READ.lock().unwrap_or_else(PoisonError::into_inner);
    samples.entry(kind.gvk.kind).or_insert_with(|| read_sample(kind)).clone()
}

fn read_sample(kind: &Framework) -> Value {
    let file = format!("config/samples/{}.yaml", kind.gvk.kind.to_lowercase());
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file));
    let text = text.unwrap_or_else(|_| panic!("no sample for {}: add {file}", kind.gvk.kind));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the objects that samples read, such as the runtime of a TrainJob: `config/samples/related`.
pub(crate) fn related() -> Vec<(Kind, Value)> {
    RELATED.clone()
}

static RELATED: LazyLock<Vec<(Kind, Value)>> = LazyLock::new(read_related);

fn read_related() -> Vec<(Kind, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/related");
    let mut files: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file| {
        let object: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let group = object["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group);
        let kind = Kind::from_group_kind(group, object["kind"].as_str().unwrap());
        (kind.expect("a kind that a row reads"), object)
    };
    files.into_iter().map(read).collect()
}

/// What samples read, wherever they are.
#[derive(Debug)]
pub(crate) struct RelatedSamples;

impl Related for RelatedSamples {
    fn find(&self, wanted: &RelatedKey) -> Found<'_> {
        let is_wanted = |(kind, object): &&(Kind, Value)| {
            *kind == Kind::Related(wanted.kind) && object["metadata"]["name"] == *wanted.key.name
        };
        RELATED.iter().find(is_wanted).map_or(Found::Missing, |(_, object)| Found::Object(object))
    }
}

/// Decodes a sample, or a job that was made of it.
pub(crate) fn decode(kind: &Framework, job: &Value) -> Result<JobView, JobError> {
    kind.decode_after(job, None, Beside::of(&RelatedSamples))
}

/// Returns the sample of a kind as a server would return it, in another namespace and queue.
pub(crate) fn stored(kind: &Framework) -> Value {
    let mut job = submitted(kind);
    job["metadata"] = json!({
        "name": "train", "namespace": "team", "uid": "0c8e0f4b-2b5f-4b3c-9d57-0d8a7b2f6d01", "generation": 1,
        "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": { "kueue.x-k8s.io/queue-name": "main", "team": "a" },
        "annotations": { "kueue.x-k8s.io/job-min-parallelism": "2", "provreq.kueue.x-k8s.io/x": "1" },
    });
    job["status"] = json!({});
    if kind.gvk.kind == "RayJob" {
        // In the default mode, a start makes the template of the submitter, and a stop leaves it.
        job["spec"]["submissionMode"] = json!("HTTPMode");
    }
    job
}

/// Returns the stored sample of a kind whose pod templates are all this one.
pub(crate) fn with_template(kind: &Framework, template: &Value) -> Value {
    let mut job = stored(kind);
    for pointer in kind.template_pointers(&job) {
        *job.pointer_mut(&pointer).unwrap() = template.clone();
    }
    job
}

/// A sample is suspended, names the queue of the samples, and has pod sets that request resources.
#[test]
fn every_served_kind_has_a_sample() {
    for kind in frameworks() {
        let sample = submitted(kind);
        let name = kind.gvk.kind;
        assert_eq!((&sample["apiVersion"], &sample["kind"]), (&json!(kind.gvk.api_version()), &json!(name)));
        assert_eq!(sample["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a-queue", "{name}");
        assert!(sample["metadata"]["generateName"].is_string(), "{name}: it can be created twice");
        if kind.role != Role::Suspended {
            let held = kind.is_pod() || !kind.mark_templates(&sample, &Gates::default()).is_empty();
            assert!(held, "{name}: its webhook holds its pods");
            continue;
        }
        let view = decode(kind, &stored(kind)).unwrap();
        assert!(view.suspended && view.status.finished.is_none(), "{name}");
        for pointer in kind.template_pointers(&sample) {
            let container = &sample.pointer(&pointer).unwrap()["spec"]["containers"][0];
            assert!(container["resources"]["requests"]["cpu"].is_string(), "{name}: {container}");
        }
        assert!(!view.pod_sets.is_empty(), "{name}");
    }
}
