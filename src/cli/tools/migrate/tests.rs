//! Whole runs on a cluster in memory: killed at each of their writes, against a manager that still runs, and without a right.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use super::fake_cluster::{Death, FakeCluster, NAMESPACE, Outage};
use super::inventory::Inventory;
use super::leftovers::Installation;
use super::obstacles::obstacles;
use super::rights::{self, Access};
use super::steps::Direction;
use super::walk::Walk;
use super::{ClusterArgs, connect, report, require_rights};
use serde_json::json;

const BOTH: [(Direction, Installation); 2] =
    [(Direction::ToSluice, Installation::Sluice), (Direction::ToKueue, Installation::Kueue)];

/// Does one run, with a user that runs the printed commands if `helps`. Returns the result and the printed text.
async fn run(
    cluster: &FakeCluster,
    direction: Direction,
    new: Installation,
    helps: bool,
) -> (anyhow::Result<()>, String) {
    let (caller, text) = (cluster.caller(), RefCell::new(String::new()));
    let print = |line: &str| {
        text.borrow_mut().push_str(line);
        if helps && line.contains("waiting for") {
            cluster.act(new);
        }
        Ok(())
    };
    let walk = Walk { caller: &caller, namespace: NAMESPACE, timeout: Duration::from_mins(1), print: &print };
    let outcome = walk.take(direction).await;
    (outcome, text.into_inner())
}

async fn completed(cluster: &FakeCluster, direction: Direction, new: Installation) {
    let (outcome, text) = run(cluster, direction, new, true).await;
    outcome.unwrap_or_else(|error| panic!("{error:#}\n{text}"));
}

/// A run that dies at any of its writes, before or after it is stored, and is repeated, ends where an undisturbed run does.
#[tokio::test(start_paused = true)]
async fn run_killed_at_any_write_is_repeated_to_the_same_end() {
    for (direction, new) in BOTH {
        let start = || FakeCluster::run_by(new.other());
        let cluster = start();
        completed(&cluster, direction, new).await;
        let (writes, expected) = (cluster.begin_run(None), cluster.content());
        // 11 definitions kept, two entries, two APIServices (three of Sluice), five leftovers, four objects and 11 versions.
        let number = if new == Installation::Kueue { 36 } else { 35 };
        assert_eq!(writes.len(), number, "{writes:?}");
        assert!(expected.1.is_empty(), "stored in v1beta1: {:?}", expected.1);
        for (write, made) in writes.iter().enumerate() {
            for stored in [false, true] {
                let (cluster, death) = (start(), Death { write, stored });
                cluster.begin_run(Some(death));
                let (outcome, text) = run(&cluster, direction, new, true).await;
                assert!(outcome.is_err(), "{death:?} did not end the run:\n{text}");
                cluster.begin_run(None);
                completed(&cluster, direction, new).await;
                assert_eq!(cluster.content(), expected, "{direction:?}, {death:?}: {made}");
            }
        }
        // Each run dies one write later than the one before. (Which objects of a kind are stored again is not recorded.)
        let cluster = start();
        let mut runs = 0;
        loop {
            cluster.begin_run(Some(Death { write: runs, stored: true }));
            let (outcome, text) = run(&cluster, direction, new, true).await;
            if outcome.is_ok() {
                break;
            }
            runs += 1;
            assert!(runs <= writes.len(), "no end:\n{text}");
        }
        assert!(runs > 5, "{runs} runs");
        assert_eq!(cluster.content(), expected, "{direction:?}, killed again and again");
    }
}

/// A run during an outage of the API server, from any call on, whether or not it stored the write, continues by itself and ends
/// where an undisturbed run does.
#[tokio::test(start_paused = true)]
async fn outage_at_any_call_is_waited_for() {
    for (direction, new) in BOTH {
        let cluster = FakeCluster::run_by(new.other());
        completed(&cluster, direction, new).await;
        let (calls, expected) = (cluster.begin_outage(None), cluster.content());
        assert!(calls > 500, "{calls}");
        for from in (0..calls).step_by(31) {
            let (code, stores) = ([None, Some(503), Some(504), Some(500)][from % 4], from % 3 == 0);
            let outage = Outage { from, calls: 20, code, stores };
            let cluster = FakeCluster::run_by(new.other());
            cluster.begin_outage(Some(outage));
            let (outcome, text) = run(&cluster, direction, new, true).await;
            outcome.unwrap_or_else(|error| panic!("{outage:?}: {error:#}\n{text}"));
            assert_eq!(cluster.content(), expected, "{direction:?}, {outage:?}");
            assert!(text.contains("waiting for the API server"), "{outage:?}\n{text}");
        }
    }
}

/// An outage that does not end makes the run fail; the error names the step and the call.
#[tokio::test(start_paused = true)]
async fn lasting_outage_is_an_error() {
    let cluster = FakeCluster::run_by(Installation::Kueue);
    cluster.begin_outage(Some(Outage { from: 100, calls: usize::MAX / 2, code: None, stores: false }));
    let (outcome, text) = run(&cluster, Direction::ToSluice, Installation::Sluice, true).await;
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(
        error.contains("step ") && error.contains("/apis/") && error.contains("reset"),
        "{error}\n{text}"
    );
    cluster.begin_outage(None);
    completed(&cluster, Direction::ToSluice, Installation::Sluice).await;
}

/// An API server that has just started answers 404 for a kind that it does not serve yet. Its objects count as unread, not as
/// absent, so that the step does not take them all for stored again.
#[tokio::test(start_paused = true)]
async fn kind_that_is_not_served_yet_is_not_empty() {
    let cluster = FakeCluster::run_by(Installation::Kueue);
    // Each kind takes a call for its definition and one for its objects.
    for kind in 0..11 {
        let outage = Outage { from: 2 * kind + 1, calls: 1, code: Some(404), stores: false };
        cluster.begin_outage(Some(outage));
        let inventory = Inventory::read(&cluster.caller(), NAMESPACE).await.unwrap();
        let unread = inventory.kinds.iter().enumerate().filter(|(_, kind)| kind.objects.is_err());
        assert_eq!(unread.map(|(position, _)| position).collect::<Vec<_>>(), [kind]);
        assert!(inventory.unread_kind().unwrap().contains("404"));
    }
}

/// A run makes only calls whose rights were reviewed before.
#[tokio::test(start_paused = true)]
async fn calls_take_no_other_rights() {
    let needed: BTreeSet<String> =
        rights::needed(Access::Change).unwrap().iter().map(ToString::to_string).collect();
    for (direction, new) in BOTH {
        let cluster = FakeCluster::run_by(new.other());
        completed(&cluster, direction, new).await;
        let used = cluster.used_rights();
        assert!(used.len() > 25, "{used:?}");
        assert_eq!(used.difference(&needed).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn finished_switch_has_no_write_left_and_touches_nothing_of_others() {
    for (direction, new) in BOTH {
        let cluster = FakeCluster::run_by(new.other());
        completed(&cluster, direction, new).await;
        cluster.begin_run(None);
        completed(&cluster, direction, new).await;
        assert!(cluster.begin_run(None).is_empty());
        for path in ["clusterrolebindings/shared", "clusterrolebindings/own", "clusterroles/kueue-old-role"] {
            assert!(cluster.get(&format!("/apis/rbac.authorization.k8s.io/v1/{path}")).is_some(), "{path}");
        }
        // Then the way back.
        let (back, old) = if direction == Direction::ToSluice { BOTH[1] } else { BOTH[0] };
        completed(&cluster, back, old).await;
        assert!(cluster.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/a").is_some());
    }
}

/// While the other manager runs, only the owner's marks are written, and the run prints what it waits for.
#[tokio::test(start_paused = true)]
async fn running_manager_is_waited_for() {
    for (direction, new) in BOTH {
        let cluster = FakeCluster::run_by(new.other());
        let (outcome, text) = run(&cluster, direction, new, false).await;
        let error = format!("{:#}", outcome.unwrap_err());
        let deployment = format!("the deletion of {:?}'s Deployment kueue-controller-manager", new.other());
        assert!(error.contains("step 3 of 7") && error.contains(&deployment), "{error}");
        assert_eq!(text.matches("run this").count(), 1, "{text}");
        let writes = cluster.begin_run(None);
        assert!(
            writes
                .iter()
                .all(|write| write.starts_with("PATCH") && write.contains("/customresourcedefinitions/")),
            "{writes:?}"
        );
        // The next missing condition is printed when it changes.
        cluster.act(new);
        let (outcome, _) = run(&cluster, direction, new, false).await;
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.contains(&format!("the end of {:?}'s pod", new.other())), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_missing_right_stops_a_run_before_its_first_write() {
    let cluster = FakeCluster::run_by(Installation::Kueue);
    let caller = cluster.caller();
    require_rights(&caller, NAMESPACE, Access::Change).await.unwrap();
    for access in [Access::Read, Access::Change] {
        for right in rights::needed(access).unwrap() {
            let right = right.to_string();
            cluster.deny(&right);
            let error = require_rights(&caller, NAMESPACE, access).await.unwrap_err().to_string();
            let (verb, resource) = right.split_once(' ').unwrap();
            assert!(error.contains(&format!("ann may not {right}")), "{error}");
            assert!(error.contains(&format!("--verb={verb} --resource={resource}")), "{error}");
            assert!(error.contains("--user=ann"), "{error}");
        }
    }
    assert!(cluster.begin_run(None).is_empty());
}

/// A switch that a user did by hand in part is completed or refused, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn half_a_switch_by_hand_is_finished_or_refused() {
    let read = async |cluster: &FakeCluster| Inventory::read(&cluster.caller(), NAMESPACE).await.unwrap();
    // The Deployment was deleted, everything else is left: objects cannot be read, and there is no obstacle.
    let cluster = FakeCluster::run_by(Installation::Kueue);
    cluster.act(Installation::Sluice);
    let inventory = read(&cluster).await;
    assert!(inventory.objects("Workload").is_empty() && obstacles(&inventory).is_empty());
    assert!(report::text(&inventory, &[]).contains("no Deployment of a manager in kueue-system"));
    completed(&cluster, Direction::ToSluice, Installation::Sluice).await;
    assert!(cluster.content().1.is_empty());
    // One definition was deleted, and with it its objects.
    let cluster = FakeCluster::run_by(Installation::Kueue);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cohorts.kueue.x-k8s.io";
    let definition = cluster.get(path).unwrap();
    cluster.remove(path);
    let (outcome, text) = run(&cluster, Direction::ToSluice, Installation::Sluice, true).await;
    assert!(outcome.is_err() && text.contains("cohorts.kueue.x-k8s.io does not exist"), "{text}");
    assert!(cluster.begin_run(None).is_empty());
    // The definition was applied again; it has no objects at first.
    cluster.put(path, definition);
    completed(&cluster, Direction::ToSluice, Installation::Sluice).await;
    // A newer Kueue: an object uses a field that would be lost.
    let cluster = FakeCluster::run_by(Installation::Kueue);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io";
    let mut definition = cluster.get(path).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["future"] =
        json!({"type": "string"});
    cluster.put(path, definition);
    let object = json!({"metadata": {"namespace": "team", "name": "new"}, "spec": {"future": "x"}});
    cluster.put("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/new", object);
    let (outcome, text) = run(&cluster, Direction::ToSluice, Installation::Sluice, true).await;
    assert!(outcome.is_err() && text.contains("team/new has spec.future"), "{text}");
    assert!(cluster.begin_run(None).is_empty());
}

#[tokio::test(start_paused = true)]
async fn preview_writes_nothing_and_marks_later_steps() {
    let cluster = FakeCluster::run_by(Installation::Kueue);
    let (caller, text) = (cluster.caller(), RefCell::new(String::new()));
    let print = |line: &str| {
        text.borrow_mut().push_str(line);
        Ok(())
    };
    let walk = Walk { caller: &caller, namespace: NAMESPACE, timeout: Duration::ZERO, print: &print };
    assert!(!walk.preview(Direction::ToSluice).await.unwrap());
    assert!(cluster.begin_run(None).is_empty());
    let text = text.borrow();
    assert!(
        text.contains("nothing of Kueue acts or grants, as far as the command above leaves it"),
        "{text}"
    );
}

/// No file, another context, and a server that does not answer: each error names the flags and settings that select the
/// cluster.
#[tokio::test]
async fn a_wrong_cluster_is_named() {
    // The first client of a process needs it; another test may have installed it.
    crate::kube::cryptography::install();
    let folder = std::env::temp_dir().join(format!("sluice-migrate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    for (file, context, part) in [
        (folder.join("missing"), None, "failed to read kubeconfig"),
        (file.clone(), Some("other"), "other"),
        (file, None, "no API server answers"),
    ] {
        let args = ClusterArgs {
            kubeconfig: Some(file),
            context: context.map(str::to_owned),
            namespace: NAMESPACE.to_owned(),
        };
        let error = connect(&args).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains(part) && error.contains("--kubeconfig and --context"), "{part}: {error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
