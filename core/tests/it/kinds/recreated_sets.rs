//! Sets that are deleted without their pods and created again, which changes fields that nothing else can change: the pods run on, and
//! each is charged once.

use crate::fixtures::job_server::{JobServer, kind, pod};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

const LWS: &str = "leaderworkerset.x-k8s.io/leaderworkerset";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// A kind of set, with two pods.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Set {
    Stateful,
    LeaderWorker,
}

const SETS: [Set; 2] = [Set::Stateful, Set::LeaderWorker];

impl Set {
    fn kind(self) -> Kind {
        match self {
            Self::Stateful => kind("apps", "StatefulSet"),
            Self::LeaderWorker => kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        }
    }

    const fn parent(self) -> &'static str {
        match self {
            Self::Stateful => "statefulset",
            Self::LeaderWorker => LWS,
        }
    }

    const fn pods(self) -> [&'static str; 2] {
        match self {
            Self::Stateful => ["s-0", "s-1"],
            Self::LeaderWorker => ["s-0", "s-0-1"],
        }
    }

    fn object(self, cpu: &str) -> Value {
        let template = json!({
            "metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": self.parent()}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]},
        });
        let spec = match self {
            Self::Stateful => json!({"replicas": 2, "template": template}),
            Self::LeaderWorker => {
                json!({"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}})
            }
        };
        json!({
            "metadata": {"name": "s", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": spec,
        })
    }

    /// References of a pod to what controls it: the set, or an object between, which has the same UID before and after.
    fn controllers(self, server: &JobServer) -> Value {
        let uid = match self {
            Self::Stateful => server.get(self.kind(), "s").unwrap()["metadata"]["uid"].clone(),
            Self::LeaderWorker => json!("inner"),
        };
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": uid, "controller": true}])
    }

    /// Makes a pod, which waits for its admission, as the controller of the set does.
    fn make(self, server: &mut JobServer, name: &str, cpu: &str) {
        let mut made = pod(name, None);
        made["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": self.parent()});
        made["metadata"]["labels"] = json!({"apps.kubernetes.io/pod-index": "0"});
        if self == Self::LeaderWorker {
            made["metadata"]["labels"] = json!({"leaderworkerset.sigs.k8s.io/name": "s",
                "leaderworkerset.sigs.k8s.io/group-index": "0"});
            if name != "s-0" {
                made["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/leader-name"] = json!("s-0");
            }
        }
        made["metadata"]["finalizers"] = json!([]);
        made["metadata"]["ownerReferences"] = self.controllers(server);
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        server.create(Kind::Pod, made);
    }
}

fn frameworks() -> [&'static str; 3] {
    ["pod", "statefulset", LWS]
}

/// A queue of 3 CPUs with a set of two pods of one CPU, which run.
fn running(set: Set) -> JobServer {
    let mut server = JobServer::new(&frameworks(), "3");
    server.create(set.kind(), set.object("1"));
    for name in set.pods() {
        set.make(&mut server, name, "1");
        assert!(is_started(&server, name), "{set:?} {name}");
        server.run_pod(name);
    }
    server
}

/// Deletes the set without its pods, as the garbage collector does. Pods that it controls itself have no controller then.
fn orphan(server: &mut JobServer, set: Set) {
    let workload = server.workload_name();
    let uid = server.get(set.kind(), "s").unwrap()["metadata"]["uid"].clone();
    server.edit(set.kind(), "s", |set| {
        set["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        set["metadata"]["finalizers"] = json!(["orphan"]);
    });
    let release = |object: &mut Value| {
        let owners = object["metadata"]["ownerReferences"].as_array_mut().unwrap();
        owners.retain(|owner| owner["uid"] != uid);
    };
    for name in set.pods() {
        server.edit(Kind::Pod, name, release);
    }
    server.edit(Kind::Workload, &workload, release);
    server.edit(set.kind(), "s", |set| set["metadata"]["finalizers"] = json!([]));
    assert!(server.get(set.kind(), "s").is_none());
}

fn adopt(server: &mut JobServer, set: Set) {
    let controllers = set.controllers(server);
    for name in set.pods() {
        server.edit(Kind::Pod, name, |pod| pod["metadata"]["ownerReferences"] = controllers.clone());
    }
}

fn is_started(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap_or_else(|| panic!("{name} is gone"));
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

/// Checks that the pods run on, in the group that they were in, and that they alone have quota.
fn check(server: &JobServer, workload: &str, case: &str) {
    assert_eq!(server.workload_name(), workload, "{case}: {:?}", server.all(Kind::Workload));
    assert!(server.holds_quota(), "{case}");
    for pod in server.all(Kind::Pod) {
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{case}: {pod}");
        assert_eq!(pod["metadata"]["annotations"][GROUP], *workload, "{case}");
    }
    let conflicts = ["WorkloadNameConflict", "WriteRejected", "ScalingWaits"];
    let said = server.events.iter().find(|event| conflicts.contains(&&*event.reason));
    assert!(said.is_none(), "{case}: {said:?}");
}

/// Ends a pod, and makes the one that replaces it.
fn replace(server: &mut JobServer, set: Set, name: &str, cpu: &str) {
    server.delete_member(name);
    server.end_pod(name);
    assert!(server.get(Kind::Pod, name).is_none(), "it has ended");
    set.make(server, name, cpu);
}

#[test]
fn pods_run_on_with_the_set_that_adopts_them() {
    for set in SETS {
        for restarts in [false, true] {
            let case = format!("{set:?}, restarts: {restarts}");
            let mut server = running(set);
            let workload = server.workload_name();
            orphan(&mut server, set);
            check(&server, &workload, &case);
            if restarts {
                server.create_unseen(set.kind(), set.object("1"));
                let frameworks = frameworks().map(str::to_owned).into();
                server.restart(CoreSettings { frameworks, ..CoreSettings::default() });
            } else {
                server.create(set.kind(), set.object("1"));
            }
            check(&server, &workload, &case);
            adopt(&mut server, set);
            check(&server, &workload, &case);
            let stored = server.get(Kind::Workload, &workload).unwrap();
            let uid = &server.get(set.kind(), "s").unwrap()["metadata"]["uid"];
            assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], *uid, "{case}");
            assert_eq!(stored["metadata"]["labels"]["kueue.x-k8s.io/job-uid"], *uid, "{case}");
            // A pod of the new set takes the place of one of the former.
            let last = set.pods()[1];
            replace(&mut server, set, last, "1");
            assert!(is_started(&server, last), "{case}");
            check(&server, &workload, &case);
            // It may be done again.
            server.run_pod(last);
            orphan(&mut server, set);
            server.create(set.kind(), set.object("1"));
            adopt(&mut server, set);
            check(&server, &workload, &case);
            // Its quota ends with its pods.
            server.delete(set.kind(), "s");
            for name in set.pods() {
                server.delete_member(name);
                server.end_pod(name);
            }
            assert_eq!(server.all(Kind::Workload), Vec::<Value>::new(), "{case}");
        }
    }
}

/// A Workload is not charged for more than it was made for: pods of a set that asks for more wait, and an event says how to go on.
#[test]
fn pods_of_a_larger_set_wait() {
    for set in SETS {
        let mut server = running(set);
        let workload = server.workload_name();
        orphan(&mut server, set);
        server.create(set.kind(), set.object("2"));
        adopt(&mut server, set);
        assert_eq!(server.workload_name(), workload, "{set:?}");
        let last = set.pods()[1];
        replace(&mut server, set, last, "2");
        assert!(!is_started(&server, last), "{set:?}");
        let said = server.events.iter().filter(|event| event.reason == "ScalingWaits").count();
        assert_eq!(said, 1, "{set:?}");
    }
}

/// The event names what differs and nothing else, with both numbers and both queues.
#[test]
fn what_the_next_set_asks_for_is_said() {
    let three = |set: Set, object: &mut Value| match set {
        Set::Stateful => object["spec"]["replicas"] = json!(3),
        Set::LeaderWorker => object["spec"]["leaderWorkerTemplate"]["size"] = json!(3),
    };
    let queue =
        |object: &mut Value| object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("other");
    for set in SETS {
        let cases = [
            (("2", 2, false), "for pods with other requests"),
            (("1", 3, false), "for 3 pods instead of 2"),
            (("1", 2, true), "for queue other instead of queue lq"),
            (
                ("2", 3, true),
                "for pods with other requests and for 3 pods instead of 2 and for queue other instead of queue lq",
            ),
        ];
        for ((cpu, pods, in_other_queue), expected) in cases {
            let mut server = running(set);
            let other =
                json!({"metadata": {"name": "other", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
            server.create(Kind::LocalQueue, other);
            orphan(&mut server, set);
            let mut object = set.object(cpu);
            if pods == 3 {
                three(set, &mut object);
            }
            if in_other_queue {
                queue(&mut object);
            }
            server.create(set.kind(), object);
            adopt(&mut server, set);
            let said: Vec<&str> = server
                .events
                .iter()
                .filter(|event| event.reason == "ScalingWaits")
                .map(|event| &*event.note)
                .collect();
            let [note] = said[..] else { panic!("{set:?} {expected}: {said:?}") };
            assert!(note.contains(&format!(", but asks {expected}. The Workload")), "{set:?}: {note}");
        }
    }
}

/// A set whose pods are deleted with it is another one: the next one of its name waits for their quota.
#[test]
fn set_that_is_deleted_with_its_pods_leaves_nothing_to_the_next_one() {
    let set = Set::Stateful;
    let mut server = running(set);
    let before = server.workload_name();
    for name in set.pods() {
        server.delete_member(name);
    }
    server.delete(set.kind(), "s");
    server.create(set.kind(), set.object("1"));
    for name in set.pods() {
        server.end_pod(name);
    }
    let after = server.workload_name();
    assert!(after != before && server.holds_quota(), "{after}");
}

/// A set that goes before its pods does not leave them to the next one, which may ask for something else: it waits for their quota.
/// Objects between may hide from the manager that they go.
#[test]
fn next_set_waits_for_the_end_of_pods_that_go_with_the_former() {
    for set in SETS {
        let mut server = running(set);
        server.edit_queue("4");
        let before = server.workload_name();
        // It is gone, and the garbage collector has yet to come.
        server.edit(set.kind(), "s", |set| {
            set["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        });
        assert!(server.get(set.kind(), "s").is_none());
        server.create(set.kind(), set.object("2"));
        let own = server.all(Kind::Workload).len();
        assert_eq!(own, if set == Set::Stateful { 2 } else { 1 }, "{set:?}");
        for name in set.pods() {
            server.delete_member(name);
            server.end_pod(name);
        }
        if set == Set::Stateful {
            server.delete(Kind::Workload, &before);
        }
        let after = server.workload_name();
        assert!(after != before && server.holds_quota(), "{set:?}: {after}");
        for name in set.pods() {
            set.make(&mut server, name, "2");
            assert!(is_started(&server, name), "{set:?} {name}");
        }
    }
}

/// Before its pods were admitted, a set that is created again takes their place in the queue over.
#[test]
fn waiting_pods_start_with_the_next_set() {
    for set in SETS {
        let mut server = JobServer::new(&frameworks(), "1");
        server.create(set.kind(), set.object("1"));
        for name in set.pods() {
            set.make(&mut server, name, "1");
            assert!(!is_started(&server, name), "{set:?}");
        }
        let workload = server.workload_name();
        orphan(&mut server, set);
        server.create(set.kind(), set.object("1"));
        adopt(&mut server, set);
        assert_eq!(server.workload_name(), workload, "{set:?}");
        server.edit_queue("2");
        for name in set.pods() {
            assert!(is_started(&server, name), "{set:?}");
        }
    }
}

/// A set that is made smaller takes over what waits, and its Workload follows, as that of a set that stays.
#[test]
fn waiting_pods_start_with_a_smaller_set() {
    let set = Set::Stateful;
    for created_again in [false, true] {
        let case = format!("created again: {created_again}");
        let mut server = JobServer::new(&frameworks(), "1");
        server.create(set.kind(), set.object("1"));
        for name in set.pods() {
            set.make(&mut server, name, "1");
        }
        let workload = server.workload_name();
        if created_again {
            orphan(&mut server, set);
            let mut smaller = set.object("1");
            smaller["spec"]["replicas"] = json!(1);
            server.create(set.kind(), smaller);
            adopt(&mut server, set);
        } else {
            server.edit(set.kind(), "s", |set| set["spec"]["replicas"] = json!(1));
        }
        server.delete_member("s-1");
        server.end_pod("s-1");
        assert!(is_started(&server, "s-0"), "{case}: {:?}", server.events);
        check(&server, &workload, &case);
    }
}

/// Between two sets of a name, their pods are a group, which waits for pods that it lacks. The next set makes these itself.
#[test]
fn waiting_leader_starts_with_the_next_set() {
    let set = Set::LeaderWorker;
    let mut server = JobServer::new(&frameworks(), "1");
    server.create(set.kind(), set.object("1"));
    let [leader, worker] = set.pods();
    set.make(&mut server, leader, "1");
    let workload = server.workload_name();
    set.make(&mut server, worker, "1");
    orphan(&mut server, set);
    server.delete_member(worker);
    server.end_pod(worker);
    server.create(set.kind(), set.object("1"));
    assert_eq!(server.workload_name(), workload);
    server.edit_queue("2");
    assert!(is_started(&server, leader), "{:?}", server.all(Kind::Workload));
}

/// A client takes the owners from a Workload that was taken over: the set is its owner again, and makes none beside it.
#[test]
fn workload_that_was_taken_over_keeps_its_set() {
    for set in SETS {
        let mut server = running(set);
        let workload = server.workload_name();
        orphan(&mut server, set);
        server.create(set.kind(), set.object("1"));
        adopt(&mut server, set);
        server
            .edit(Kind::Workload, &workload, |workload| workload["metadata"]["ownerReferences"] = json!([]));
        check(&server, &workload, &format!("{set:?}"));
        let stored = server.get(Kind::Workload, &workload).unwrap();
        let uid = &server.get(set.kind(), "s").unwrap()["metadata"]["uid"];
        let owners = stored["metadata"]["ownerReferences"].as_array().unwrap();
        assert!(owners.iter().any(|owner| owner["uid"] == *uid), "{set:?}: {owners:?}");
    }
}
