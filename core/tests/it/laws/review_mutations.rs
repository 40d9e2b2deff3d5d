//! AdmissionReviews with randomly changed bytes and structure: each is answered or refused, and none causes a panic or an
//! oversized answer.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use sluice_core::admission::{
    AdmissionSettings, ObjectLookup, OwnerRef, OwnerView, ReadError, ReviewContext, paths, read_heavy,
    read_light, review,
};
use sluice_core::api::validation::Gates;
use sluice_core::frameworks::{Framework, Related, ReviewField, frameworks};

use crate::fixtures::job_samples::{RelatedSamples, with_template};
use crate::fixtures::recorded_reviews::cases;

use super::long_histories::SeededRandom;
use crate::fixtures::builders::{sample, seed_and_multiplier};

/// Mutants per run; outside soak runs half of them.
const MUTANTS: u32 = 100_000;
/// Recorded objects of each suite that are mutated.
const RECORDED_PER_SUITE: usize = 40;
/// Longest answer sent.
const MAX_ANSWER_BYTES: usize = 1 << 20;
const GATES: [&str; 6] = [
    "AdmissionGatedBy",
    "PriorityBoost",
    "ElasticJobsViaWorkloadSlices",
    "ConcurrentAdmission",
    "TASMultiLayerTopology",
    "MultiKueue",
];
/// Fragments of JSON that challenge parsers.
const JSON_FRAGMENTS: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "null",
    "-",
    "1e999",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\u{fffd}",
    "true",
    "{\"\":0}",
    "[[[[",
    "0",
    "\n",
    "\"object\":",
];

struct FixedLookup(BTreeMap<String, String>);

impl ObjectLookup for FixedLookup {
    fn namespace_labels(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        Some(&self.0)
    }
    fn local_queue_exists(&self, _: &str, name: &str) -> bool {
        name == "default"
    }
    fn default_priority_class_exists(&self) -> bool {
        true
    }
    fn queue_is_multikueue(&self, _: &str, _: &str) -> bool {
        true
    }
    fn related(&self) -> &dyn Related {
        &RelatedSamples
    }
    fn knows_pods(&self) -> bool {
        true
    }

    fn owner(&self, _: &str, owner: &OwnerRef) -> Option<OwnerView> {
        Some(OwnerView { uid: owner.name.clone(), ..OwnerView::default() })
    }
}

/// Path of a webhook, and an object for it.
type ReviewSample = (&'static str, Value);

/// The sample of a kind that has what rules on labels, annotations, templates and the kind's own fields read.
fn job_samples(row: &Framework, metadata: &Value, template: &Value) -> Vec<ReviewSample> {
    let mut job = with_template(row, template);
    job["metadata"] = metadata.clone();
    for field in row.hooks.review_fields() {
        let names = field.pointer().split('/').skip(1);
        *names.fold(&mut job, |object, name| &mut object[name]) = match field {
            ReviewField::Text(_) => json!("Indexed"),
            ReviewField::Boolean(_) => json!(true),
            ReviewField::Map(_) => json!({"a": "b"}),
            ReviewField::Integer(_) => json!(2),
        };
    }
    let own = [true, false].map(|mutating| row.webhook_path(mutating));
    paths().filter(|path| own.iter().any(|own| own == path)).map(|path| (path, job.clone())).collect()
}

fn own_samples() -> Vec<ReviewSample> {
    let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
        "spec": {"containers": [{"name": "c", "image": "x", "env": [{"name": "A", "value": "1"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}], "schedulingGates": [{"name": "g"}]}});
    let metadata = json!({"name": "w", "namespace": "ns", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        "annotations": {"kueue.x-k8s.io/admission-gated-by": "a.io/b", "kueue.x-k8s.io/elastic-job": "true",
            "kueue.x-k8s.io/job-min-parallelism": "1"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "o", "controller": true}]});
    let workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata,
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 2, "minCount": 1, "template": template,
            "topologyRequest": {"podSetSliceSize": 1, "podSetSliceRequiredTopology": "rack"}}]},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 2,
                "resourceUsage": {"cpu": "2"}, "topologyAssignment": {"levels": ["host"], "slices": []}}]},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}]}});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources":
        [{"name": "cpu", "nominalQuota": 1, "lendingLimit": "1"}]}]}]);
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"cohortName": "c", "resourceGroups": groups, "fairSharing": {"weight": "1"},
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["f"]}]}}});
    let cohort = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"},
        "spec": {"parentName": "p", "resourceGroups": groups}});
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"},
        "spec": {"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "a", "effect": "NoSchedule"}], "tolerations": [{"key": "a"}]}});
    let on = |stem: &str, object: &Value| {
        let matching = paths().filter(|path| path.ends_with(stem));
        matching.map(|path| (path, object.clone())).collect::<Vec<_>>()
    };
    [
        frameworks().flat_map(|row| job_samples(row, &metadata, &template)).collect(),
        on("-workload", &workload),
        on("-clusterqueue", &queue),
        on("-cohort", &cohort),
        on("-resourceflavor", &flavor),
        vec![("/validate--v1-pod", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}))],
    ]
    .concat()
}

#[test]
fn every_path_has_a_sample() {
    let samples = own_samples();
    let missing: Vec<&str> = paths().filter(|path| samples.iter().all(|(own, _)| own != path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Objects of recorded requests.
fn recorded_samples() -> Vec<ReviewSample> {
    let mut samples = Vec::new();
    for path in paths().filter(|path| path.starts_with("/validate-")) {
        let bodies = cases(path.rsplit('-').next().unwrap())
            .into_iter()
            .map(|mut case| case["request"]["body"].take())
            .filter(|body| body["spec"].is_object());
        samples.extend(bodies.take(RECORDED_PER_SUITE).map(|body| (path, body)));
    }
    samples
}

fn as_review((path, object): &ReviewSample, random: &mut SeededRandom) -> (&'static str, Value) {
    let (group, version) =
        object["apiVersion"].as_str().unwrap_or("v1").split_once('/').unwrap_or(("", "v1"));
    let update = random.below(2) == 0;
    let request = json!({
        "uid": "705ab4f5", "kind": {"group": group, "version": version, "kind": object["kind"]}, "namespace": "ns",
        "operation": if update { "UPDATE" } else { "CREATE" }, "object": object,
        "oldObject": if update { object.clone() } else { Value::Null },
    });
    (path, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))
}

/// Returns the way to a random value of the tree: the number of a child at each level.
fn random_way(mut value: &Value, random: &mut SeededRandom) -> Vec<usize> {
    let mut way = Vec::new();
    loop {
        let count = match value {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if count == 0 || random.below(8) == 0 {
            return way;
        }
        let index = random.index_below(count);
        way.push(index);
        value = match value {
            Value::Object(map) => map.values().nth(index).unwrap(),
            Value::Array(items) => &items[index],
            _ => unreachable!("ways to values without children were returned above"),
        };
    }
}

/// Returns the value at the end of a way.
fn at<'a>(value: &'a mut Value, way: &[usize]) -> &'a mut Value {
    way.iter().fold(value, |value, index| match value {
        Value::Object(map) => map.values_mut().nth(*index).unwrap(),
        Value::Array(items) => &mut items[*index],
        _ => unreachable!("it is the way of another value"),
    })
}

fn odd_value(random: &mut SeededRandom) -> Value {
    match random.below(20) {
        0 => json!([]),
        1 => json!({}),
        2 => json!(""),
        3 => json!(true),
        4 => json!(-1),
        5 => json!(i64::MIN),
        6 => json!(u64::MAX),
        7 => json!(0.5),
        8 => json!("-9223372036854775809"),
        9 => json!("1e30"),
        10 => json!("a,,b"),
        11 => json!("Bad_"),
        12 => json!({"": 0}),
        13 => json!([[[{}]]]),
        14 => json!("True"),
        15 => json!("2026-01-01T00:00:00Z"),
        16 => json!("x".repeat(random.index_below(3_000))),
        17 => json!(",".repeat(random.index_below(3_000))),
        18 => json!({"name": "main", "count": -1}),
        _ => Value::Null,
    }
}

fn mutate_structure(review: &mut Value, random: &mut SeededRandom) {
    for _ in 0..=random.below(4) {
        let way = random_way(review, random);
        let other = at(review, &way).clone();
        let odd = odd_value(random);
        let way = random_way(review, random);
        let target = at(review, &way);
        match (random.below(6), target) {
            (0, Value::Object(map)) if !map.is_empty() => {
                let name = map.keys().nth(random.index_below(map.len())).unwrap().clone();
                map.shift_remove(&name);
            }
            (1, Value::Object(map)) => {
                drop(map.insert(JSON_FRAGMENTS[random.index_below(JSON_FRAGMENTS.len())].to_owned(), other));
            }
            (2, Value::Array(items)) if !items.is_empty() => {
                let item = items[random.index_below(items.len())].clone();
                items.extend(std::iter::repeat_n(item, random.index_below(300)));
            }
            (3, target) => *target = json!([target.take()]),
            (4, target) => *target = other,
            (_, target) => *target = odd,
        }
    }
}

fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut SeededRandom) {
    for _ in 0..=random.below(3) {
        let start = random.index_below(bytes.len() + 1);
        let end = (start + random.index_below(40)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(start..end)),
            1 => bytes.truncate(start),
            2 => {
                let piece = JSON_FRAGMENTS[random.index_below(JSON_FRAGMENTS.len())];
                bytes
                    .splice(start..start, piece.bytes().cycle().take(random.index_below(200)))
                    .for_each(drop);
            }
            3 => {
                let copied = bytes[start..end].to_vec();
                let to = random.index_below(bytes.len() + 1);
                bytes.splice(to..to, copied).for_each(drop);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(start) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

/// Whether the review was answered rather than refused.
fn is_answered(path: &str, body: &[u8], ctx: &ReviewContext<'_>) -> bool {
    let read = match read_light(path, body) {
        Err(ReadError::TooManyValues(_)) => read_heavy(path, body),
        read => read,
    };
    let Ok(read) = read else { return false };
    let answer = review(path, &read, ctx);
    assert_eq!(answer["kind"], "AdmissionReview");
    assert!(answer["response"]["allowed"].is_boolean());
    let uid = read.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default();
    assert_eq!(answer["response"]["uid"], uid);
    assert!(answer.to_string().len() <= MAX_ANSWER_BYTES + uid.len(), "{} bytes", answer.to_string().len());
    true
}

#[test]
fn mutated_reviews_are_answered_or_refused() {
    let (seed, times) = seed_and_multiplier("mutations");
    let mutants = u64::from(sample(MUTANTS, 2)) * times;
    let subjects = [own_samples(), recorded_samples()].concat();
    let cluster = FixedLookup(BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "ns".to_owned())]));
    let gates = Gates::new(GATES.iter().map(|gate| ((*gate).to_owned(), true)).collect());
    let settings = [
        AdmissionSettings::default(),
        AdmissionSettings { manage_jobs_without_queue_name: true, gates, ..AdmissionSettings::default() },
    ];
    let mut answered_count = 0_u64;
    for number in 0..mutants {
        // Each mutant follows from its own seed, which a failure names.
        let own_seed = seed.wrapping_add(number);
        let mut random = SeededRandom(own_seed);
        let (path, mut mutant) = as_review(&subjects[random.index_below(subjects.len())], &mut random);
        let ctx = ReviewContext { objects: &cluster, settings: &settings[random.index_below(2)] };
        if random.below(3) > 0 {
            mutate_structure(&mut mutant, &mut random);
        }
        let mut body = mutant.to_string().into_bytes();
        if random.below(3) == 0 {
            mutate_bytes(&mut body, &mut random);
        }
        let Ok(answered) = catch_unwind(AssertUnwindSafe(|| is_answered(path, &body, &ctx))) else {
            panic!("PROPTEST_RNG_SEED={own_seed}: {path}: {}", String::from_utf8_lossy(&body));
        };
        answered_count += u64::from(answered);
    }
    let percent = answered_count * 100 / mutants;
    println!("{percent} in 100 mutants were answered, the others refused");
    assert!((30..100).contains(&percent), "{percent} in 100: the mutants are too tame or too wild");
}
