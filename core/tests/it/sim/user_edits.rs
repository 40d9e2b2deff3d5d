//! Laws over the edits of users: whatever a user changes on a Job or its Workload, in whatever state, costs a bounded number
//! of writes (I11), and no start gives the Job more than was granted (I22).

use super::laws::{reserved_cpu, seeds, with_write_limit};
use super::world::{Faults, World, condition, pods_of};
use crate::fixtures::builders::sample;
use crate::fixtures::leading_core::JOB;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::fake_api_server::key_of;

pub(super) const QUOTA: i64 = 8;
/// Writes to the Job and its Workload that an edit may cost: stop, restore, replace, queue, admit and start, and the steps
/// that were under way.
const WRITES_PER_EDIT: u32 = 16;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
pub(super) const MIN: &str = "kueue.x-k8s.io/job-min-parallelism";
pub(super) const FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

pub(super) fn key() -> ObjectKey {
    ObjectKey::new("ns", "edited")
}

pub(super) fn job(world: &World) -> Value {
    world.harness.server.get(JOB, &key()).cloned().unwrap_or_default()
}

/// The Workload of the Job, whatever owns it, if it exists. Of the slices of an elastic Job, the one that holds quota.
fn workload(world: &World) -> Option<Value> {
    let name = |w: &Value| w["metadata"]["name"].as_str().unwrap().to_owned();
    let own = |w: &&Value| name(w) == "mine" || name(w).starts_with("job-edited-");
    let rank = |w: &&Value| (holds(w, "Finished"), !holds(w, "QuotaReserved"));
    world.harness.server.all(Kind::Workload).filter(own).min_by_key(rank).cloned()
}

/// Whether the Job may grow while it runs: its pods are held by a gate.
fn is_elastic(job: &Value) -> bool {
    let gates = job["spec"]["template"]["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == "kueue.x-k8s.io/elastic-job"))
}

/// Whether a slice with this number of pods waits for quota.
fn waits(world: &World, pods: i64) -> bool {
    let waiting = |w: &Value| {
        w["spec"]["podSets"][0]["count"] == pods && !holds(w, "Finished") && !holds(w, "QuotaReserved")
    };
    world.harness.server.all(Kind::Workload).any(waiting)
}

pub(super) fn holds(workload: &Value, kind: &str) -> bool {
    condition(workload, kind) == Some("True")
}

fn granted_pods(workload: &Value) -> Option<i64> {
    workload.pointer("/status/admission/podSetAssignments/0/count").and_then(Value::as_i64)
}

fn request(object: &Value, template: &str) -> Value {
    object[template]["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
}

pub(super) fn cluster(seed: u64) -> World {
    let mut world = World::new(seed, &with_write_limit(seed, CoreSettings::default()));
    world.jobs_never_end = true;
    world.create(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
    for (name, value) in [("low", 1), ("high", 9)] {
        world.create(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
    }
    let spec = json!({"nodeLabels": {"pool": "f"}, "tolerations": [{"key": "pool", "operator": "Exists"}]});
    world.create(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": spec}));
    let flavor = json!({"name": "f", "resources": [{"name": "cpu", "nominalQuota": QUOTA}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    world.create(Kind::ClusterQueue, json!({"metadata": {"name": "a"}, "spec": spec}));
    for name in ["a", "b"] {
        let spec = json!({"clusterQueue": "a"});
        world.create(Kind::LocalQueue, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}));
    }
    world
}

fn create_job(world: &mut World) {
    let mut job = super::laws::job("edited", "a", 2);
    match world.random_below(4) {
        0 => {
            job["spec"].as_object_mut().unwrap().remove("completions");
        }
        1 => job["spec"]["completions"] = json!(6),
        2 => job["spec"]["completionMode"] = json!("Indexed"),
        _ => job["metadata"]["annotations"] = json!({MIN: "1"}),
    }
    world.create(JOB, job);
}

/// The text, or no value.
fn text(on: bool, text: &str) -> Value {
    if on { json!(text) } else { Value::Null }
}

/// One edit that the API server accepts.
fn edit(world: &mut World) {
    let size = world.random_below(6);
    let pick = world.random_below(20);
    let old = job(world);
    let mutable = old["spec"]["suspend"] == json!(true) && old["status"]["active"].as_i64().unwrap_or(0) == 0;
    let on = world.random_below(2) == 0;
    let change: Box<dyn FnOnce(&mut Value)> = match pick {
        // Most edits change the size, because a running Job accepts little else.
        0..=5 => Box::new(move |j| {
            j["spec"]["parallelism"] = json!(size);
            if j["spec"]["completionMode"] == json!("Indexed") {
                j["spec"]["completions"] = json!(size);
            }
        }),
        6..=8 => Box::new(move |j| j["spec"]["suspend"] = json!(on)),
        9 => Box::new(move |j| {
            set(j, &["metadata", "labels", QUEUE], text(size > 0, if on { "a" } else { "b" }));
        }),
        10 => Box::new(move |j| {
            set(j, &["metadata", "labels", CLASS], text(size > 0, if on { "low" } else { "high" }));
        }),
        11 => Box::new(move |j| {
            set(j, &["metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds"], text(on, "999999"));
        }),
        12 => Box::new(move |j| set(j, &["metadata", "annotations", MIN], text(size > 0, &size.to_string()))),
        13 => Box::new(move |j| set(j, &["metadata", "annotations", FOLLOW], text(on, "true"))),
        14 => Box::new(move |j| {
            let name = if size > 2 { "elastic-job" } else { "admission-gated-by" };
            let value = if size > 2 { "true" } else { "example.com/gate" };
            set(j, &["metadata", "annotations", &format!("kueue.x-k8s.io/{name}")], text(on, value));
        }),
        _ if !mutable => Box::new(|_| {}),
        15..=16 => Box::new(move |j| {
            let requests = &mut j["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"];
            requests["cpu"] = json!(if on { "2" } else { "1" });
        }),
        17 => Box::new(move |j| {
            set(j, &["spec", "template", "spec", "nodeSelector", "zone"], text(on, "z"));
        }),
        18 => Box::new(move |j| {
            let tolerations = json!([{"key": "spot", "operator": "Exists"}]);
            j["spec"]["template"]["spec"]["tolerations"] = if on { tolerations } else { json!([]) };
        }),
        _ => Box::new(move |j| {
            set(j, &["spec", "template", "metadata", "labels", "app"], text(on, "x"));
        }),
    };
    world.harness.server.edit(JOB, &key(), change);
}

/// One edit of the Job's Workload that the API server accepts.
fn edit_workload(world: &mut World) {
    let Some(old) = workload(world) else { return };
    let key = key_of(&old);
    let now = world.now;
    let free = !holds(&old, "QuotaReserved");
    let (size, on) = (1 + world.random_below(5), world.random_below(2) == 0);
    match world.random_below(16) {
        0..=1 => world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(on)),
        2 => world.harness.server.delete(Kind::Workload, &key, now),
        3 => world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["priority"] = json!(size)),
        4 => world.harness.server.edit(Kind::Workload, &key, |w| {
            w["spec"]["maximumExecutionTimeSeconds"] = json!(999_999 + size);
        }),
        5 => world.harness.server.edit(Kind::Workload, &key, |w| {
            set(w, &["metadata", "annotations", "kueue.x-k8s.io/priority-boost"], json!(size.to_string()));
        }),
        6 if free => world.harness.server.edit(Kind::Workload, &key, |w| {
            w["spec"]["podSets"][0]["count"] = json!(size);
        }),
        7 if free => world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["queueName"] = json!("b")),
        8 if free => world.harness.server.edit(Kind::Workload, &key, |w| {
            w["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["image"] = json!("other");
        }),
        9 if free => world.harness.server.edit(Kind::Workload, &key, |w| {
            w["spec"]["priorityClassRef"] =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"});
        }),
        10 => world.harness.server.edit(Kind::Workload, &key, |w| {
            set(w, &["metadata", "labels", JOB_UID], text(size > 2, "other"));
        }),
        11..=14 => {
            let owners = other_owners(world);
            world.harness.server.edit(Kind::Workload, &key, |w| {
                w["metadata"]["ownerReferences"] = owners;
                if on {
                    set(w, &["metadata", "labels", JOB_UID], Value::Null);
                }
            });
        }
        _ => world.harness.server.edit(Kind::Workload, &key, |w| w["metadata"]["finalizers"] = json!([])),
    }
}

/// No owners, or another one: a Job, or an object that does not exist.
fn other_owners(world: &mut World) -> Value {
    let (name, uid) = match world.random_below(4) {
        0 => ("absent", json!("absent")),
        1 => {
            world.create(JOB, super::laws::job("other", "a", 1));
            let other = world.harness.server.get(JOB, &ObjectKey::new("ns", "other")).unwrap();
            ("other", other["metadata"]["uid"].clone())
        }
        _ => return json!([]),
    };
    json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true}])
}

/// Sets a field, or removes it if the value is null, as an edit of a user would.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    let (last, parents) = path.split_last().unwrap();
    let mut place = object;
    for name in parents {
        place = &mut place[*name];
    }
    if !value.is_null() {
        place[*last] = value;
    } else if let Some(fields) = place.as_object_mut() {
        fields.remove(*last);
    }
}

/// One step of the cluster: the manager starts the Job only at the granted size, and when no pod of an earlier run is left.
fn step(world: &mut World, seed: u64) {
    let before = job(world);
    world.step();
    let after = job(world);
    if before["spec"]["suspend"] != json!(true) || after["spec"]["suspend"] == json!(true) {
        return;
    }
    let workload = workload(world).unwrap();
    let active = before["status"]["active"].as_i64().unwrap_or(0);
    assert_eq!(active, 0, "seed {seed}: started beside the pods of an earlier run: {before}");
    let granted = granted_pods(&workload);
    let gated = is_elastic(&after);
    assert!(
        gated || Some(pods_of(&after)) == granted,
        "seed {seed}: started with {after} on the grant {workload}"
    );
    let (asks, has) =
        (request(&after["spec"], "template"), request(&workload["spec"]["podSets"][0], "template"));
    assert_eq!(asks, has, "seed {seed}: started with {after} on the grant {workload}");
}

/// Writes to the Job and to Workloads.
fn writes(world: &World) -> u32 {
    let counted = |name: &str| name.starts_with("Workload ") || name.contains("Job");
    world.writes.iter().filter(|(name, _)| counted(name)).map(|(_, count)| count).sum()
}

/// What a user expects once nothing moves: the Job runs if its Workload is admitted, at the size that the user set, and is
/// suspended without pods otherwise.
fn check_converged(world: &World, seed: u64) {
    let job = job(world);
    let active = job["status"]["active"].as_i64().unwrap_or(0);
    let runs = job["spec"]["suspend"] != json!(true);
    // Quota is held for pods alone, whichever Workload holds it.
    let pods = world.harness.server.all(JOB).filter(|j| j["spec"]["suspend"] != json!(true));
    let requests =
        pods.map(|j| pods_of(j) * request(&j["spec"], "template").as_str().unwrap().parse::<i64>().unwrap());
    let grown = runs && is_elastic(&job) && waits(world, pods_of(&job));
    assert!(grown || reserved_cpu(world) == requests.sum::<i64>(), "seed {seed}: {job}");
    let Some(workload) = workload(world) else {
        assert!(job["metadata"]["labels"].get(QUEUE).is_none(), "seed {seed}: {job} waits for a Workload");
        return assert!(!runs, "seed {seed}: {job} runs without a Workload");
    };
    let owners = &workload["metadata"]["ownerReferences"];
    assert_eq!(owners[0]["uid"], job["metadata"]["uid"], "seed {seed}: {workload}");
    assert_ne!(condition(&workload, "Finished"), Some("True"), "seed {seed}: {job} waits: {workload}");
    let admitted = holds(&workload, "Admitted") && !holds(&workload, "Finished");
    assert_eq!(runs, admitted, "seed {seed}: {job} {workload}");
    assert_eq!(active, if runs { pods_of(&job) } else { 0 }, "seed {seed}: {job}");
    if admitted && !grown {
        let charged = workload["spec"]["podSets"][0]["count"].as_i64().min(granted_pods(&workload));
        assert_eq!(charged, Some(active), "seed {seed}: {job} {workload}");
    }
    assert!(reserved_cpu(world) <= QUOTA, "seed {seed}");
}

fn run_edits(seed: u64, faults: Faults) {
    let mut world = cluster(seed);
    create_job(&mut world);
    world.faults = faults;
    let mut edits = 1;
    for _ in 0..=world.random_below(6) {
        for _ in 0..world.random_below(120) {
            step(&mut world, seed);
        }
        if world.random_below(4) == 0 {
            edit_workload(&mut world);
        } else {
            edit(&mut world);
        }
        edits += 1;
    }
    let faultless = faults.manager_kills == 0;
    world.faults = Faults::default();
    let mut quiet = 0;
    for _ in 0..20_000 {
        let before = world.harness.server.get(JOB, &key()).cloned();
        step(&mut world, seed);
        quiet = if world.is_quiet() && before == world.harness.server.get(JOB, &key()).cloned() {
            quiet + 1
        } else {
            0
        };
        if quiet > 200 {
            break;
        }
    }
    assert!(quiet > 200, "seed {seed}: writes without end: {:#?}\n{:#?}", world.writes, job(&world));
    if faultless {
        let most = WRITES_PER_EDIT * edits;
        assert!(writes(&world) <= most, "seed {seed}: {edits} edits: {:#?}", world.writes);
    }
    check_converged(&world, seed);
    // Mostly a moment, and sometimes until each backoff has ended.
    let wait = SignedDuration::from_secs(if seed.is_multiple_of(20) { 125 } else { 5 });
    let (before, end) = (writes(&world), world.now.checked_add(wait).unwrap());
    while world.now < end {
        step(&mut world, seed);
    }
    assert_eq!(writes(&world), before, "seed {seed}: writes in an idle cluster: {:#?}", world.writes);
}

#[test]
fn i11_edits_cost_bounded_writes() {
    for seed in seeds(0..u64::from(sample(120, 2))) {
        run_edits(seed, Faults::default());
    }
}

#[test]
fn i11_edits_settle_under_faults() {
    for seed in seeds(1000..1040) {
        run_edits(
            seed,
            Faults { lost_responses: 60, dropped_writes: 60, manager_kills: 3, concurrent_writes: 30 },
        );
    }
}

/// The Workload of a resized Job that the user made is finished as out of sync, but not before the pods are gone and the
/// template is restored.
#[test]
fn prebuilt_workload_keeps_quota_until_pods_are_gone() {
    for seed in seeds(0..20) {
        let mut world = cluster(seed);
        let mut job = super::laws::job("edited", "a", 2);
        let template = job["spec"]["template"].clone();
        let pod_sets = json!([{"name": "main", "count": 2, "template": template}]);
        let spec = json!({"queueName": "a", "active": true, "podSets": pod_sets});
        let prebuilt = json!({"metadata": {"name": "mine", "namespace": "ns"}, "spec": spec});
        set(&mut job, &["metadata", "labels", "kueue.x-k8s.io/prebuilt-workload-name"], json!("mine"));
        // In either order, and with writes of the Workload under way.
        let mut objects = [(JOB, job), (Kind::Workload, prebuilt)];
        objects.rotate_left(usize::from(seed.is_multiple_of(2)));
        for (kind, object) in objects {
            world.create(kind, object);
            for _ in 0..10 * seed {
                world.step();
            }
        }
        let pods = |world: &World| self::job(world)["status"]["active"].as_i64().unwrap_or(0);
        for _ in 0..2_000 {
            world.step();
        }
        assert_eq!(pods(&world), 2, "seed {seed}");
        world.harness.server.edit(JOB, &key(), |j| j["spec"]["parallelism"] = json!(1));
        for _ in 0..2_000 {
            step(&mut world, seed);
            let workload = workload(&world).unwrap();
            assert!(!holds(&workload, "Finished") || pods(&world) == 0, "seed {seed}: {workload}");
        }
        assert!(holds(&workload(&world).unwrap(), "Finished"), "seed {seed}");
        let template = &self::job(&world)["spec"]["template"];
        assert_eq!(template["metadata"]["labels"].get("kueue.x-k8s.io/podset"), None, "seed {seed}");
    }
}

/// A user creates a Job from the object of one that runs: what the start of that one added neither fails the start of the
/// copy nor prevents that its template is restored.
#[test]
fn copy_of_a_running_job_starts_and_is_restored() {
    let mut world = cluster(1);
    let original = super::laws::job("original", "a", 2);
    world.create(JOB, original);
    assert!(world.run_until_idle(20_000));
    let running = world.harness.server.get(JOB, &ObjectKey::new("ns", "original")).cloned().unwrap();
    assert_eq!(running["spec"]["suspend"], json!(false));
    let copied = |part: &str| running["spec"]["template"]["metadata"][part].clone();
    // With all that the start added, or with the label of the pod set alone.
    for (name, labels, annotations) in [
        ("copy", copied("labels"), copied("annotations")),
        ("part", json!({"kueue.x-k8s.io/podset": "main"}), json!({})),
    ] {
        let mut copy = super::laws::job(name, "a", 2);
        copy["spec"]["template"]["metadata"] = json!({"labels": labels, "annotations": annotations});
        world.create(JOB, copy.clone());
        assert!(world.run_until_idle(20_000));
        let key = ObjectKey::new("ns", name);
        let job = world.harness.server.get(JOB, &key).cloned().unwrap();
        assert_eq!(job["spec"]["suspend"], json!(false), "{name}: {job:#}");
        assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], json!({"pool": "f"}), "{name}");
        let uid = &job["metadata"]["uid"];
        let owned = |w: &&Value| w.pointer("/metadata/ownerReferences/0/uid") == Some(uid);
        let workload = world.harness.server.all(Kind::Workload).find(owned).map(key_of).unwrap();
        let named = &job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/workload"];
        assert_eq!(*named, json!(*workload.name), "{name}");
        world.harness.server.edit(Kind::Workload, &workload, |w| w["spec"]["active"] = json!(false));
        assert!(world.run_until_idle(20_000));
        let stopped = &world.harness.server.get(JOB, &key).unwrap()["spec"]["template"];
        for part in ["labels", "annotations"] {
            let wanted = &copy["spec"]["template"]["metadata"][part];
            assert_eq!(&stopped["metadata"][part], wanted, "{name}: {stopped:#}");
        }
        assert_eq!(stopped["spec"]["nodeSelector"].get("pool"), None, "{name}: {stopped:#}");
    }
}

/// A start that the pod template contradicts is reported on the Job, with both values.
#[test]
fn failed_start_is_reported_on_the_job() {
    let mut world = cluster(1);
    let mut contradicting = super::laws::job("edited", "a", 2);
    contradicting["spec"]["template"]["metadata"]["labels"] = json!({"kueue.x-k8s.io/podset": "other"});
    world.create(JOB, contradicting);
    assert!(world.run_until_idle(20_000));
    let named = |(on, reason): &(ObjectKey, String)| *on == key() && reason == "FailedToStart";
    let position = world.events.iter().position(named).unwrap();
    assert!(world.event_warnings[position], "it is a warning");
    let note = &world.event_notes[position];
    assert!(note.contains("contradict") && note.contains("\"other\"") && note.contains("\"main\""), "{note}");
}

/// A user suspends a running Job and moves it to another queue in one write.
#[test]
fn suspended_job_moves_to_the_queue_that_it_names() {
    for seed in seeds(0..20) {
        let mut world = cluster(seed);
        world.jobs_never_end = true;
        world.create(JOB, super::laws::job("edited", "a", 2));
        assert!(world.run_until_idle(20_000));
        world.harness.server.edit(JOB, &key(), |job| {
            job["spec"]["suspend"] = json!(true);
            job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("elsewhere");
        });
        assert!(world.run_until_idle(20_000), "seed {seed}");
        let workload = world.harness.server.all(Kind::Workload).next().cloned().unwrap();
        assert_eq!(workload["spec"]["queueName"], "elsewhere", "seed {seed}");
        assert!(!holds(&workload, "QuotaReserved"), "seed {seed}: {:#}", workload["status"]);
        assert_eq!(job(&world)["spec"]["suspend"], json!(true), "seed {seed}");
        // What the start added belongs to the queue that it left.
        let metadata = &job(&world)["spec"]["template"]["metadata"];
        for field in ["labels", "annotations"] {
            assert!(
                metadata[field].as_object().is_none_or(serde_json::Map::is_empty),
                "seed {seed}: {metadata:#}"
            );
        }
    }
}
