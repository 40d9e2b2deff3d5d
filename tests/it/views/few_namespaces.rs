//! Lists of a reader of few namespaces: all of its pages, in each order, and what their answers and tokens name.

use crate::fixtures::leading_core::{Core, START, condition};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use sluice::api::ObjectKey;
use sluice::cache::interned_templates::InternedTemplates;
use sluice::cache::records::WorkloadRecord;
use sluice::cache::{Kind, WorkloadIndex, WorkloadObject};
use sluice::reconciler::{CoreSettings, Delta};
use sluice::snapshot::Snapshot;
use sluice::visibility::access::Access;
use sluice::visibility::page::PageQuery;
use sluice::visibility::pending_list::{ListOrder, pending_workloads};
use sluice::visibility::recent_list::{RecentList, recent_workloads};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::{ListMetadata, WorkloadView};
use sluice::visibility::workloads::{WorkloadQuery, workloads};
use std::sync::Arc;

/// A word in every name of the other tenants.
const SECRET: &str = "secret";
/// Namespaces, before, between and behind those of the reader.
const NAMESPACES: [&str; 5] = ["a-secret", "ns", "o-secret", "own", "z-secret"];
const OWN: [&str; 2] = ["ns", "own"];
/// LocalQueues of each namespace with their ClusterQueues; there is none of the last name.
const QUEUES: [(&str, &str); 3] = [("lq", "cq"), ("b", "b"), ("missing", "")];

/// A list, and the selector that it is asked with.
#[derive(Clone, Copy, Debug)]
enum List {
    ByName(&'static str),
    Pending(ListOrder, &'static str),
    Recent(RecentList, &'static str),
}

/// All lists, by all queues and by one.
fn lists() -> Vec<List> {
    let mut lists = vec![
        List::ByName("status=all"),
        List::ByName("clusterQueue=cq,status=pending"),
        List::Recent(RecentList::Reserving, ""),
        List::Recent(RecentList::Finished, "status=finished"),
    ];
    for order in ListOrder::ALL {
        lists.extend(
            ["status=pending", "status=pending,clusterQueue=cq"].map(|asked| List::Pending(order, asked)),
        );
    }
    lists
}

impl List {
    fn page(
        self,
        snapshot: &Snapshot,
        access: &Access,
        page: PageQuery,
    ) -> (Vec<WorkloadView>, ListMetadata) {
        let (Self::ByName(asked) | Self::Pending(_, asked) | Self::Recent(_, asked)) = self;
        let selector = WorkloadSelector::parse(asked).unwrap();
        let query = WorkloadQuery { namespace: None, selector, page };
        let found = match self {
            Self::ByName(_) => workloads(snapshot, access, &query),
            Self::Pending(order, _) => pending_workloads(snapshot, access, &query, order),
            Self::Recent(list, _) => recent_workloads(snapshot, access, &query, list),
        };
        found.unwrap()
    }

    /// Returns all pages of this size.
    fn pages(
        self,
        snapshot: &Snapshot,
        access: &Access,
        limit: usize,
    ) -> Vec<(Vec<WorkloadView>, ListMetadata)> {
        let (mut pages, mut page) = (Vec::new(), PageQuery { limit, ..PageQuery::default() });
        loop {
            let (rows, metadata) = self.page(snapshot, access, page.clone());
            page.continue_token.clone_from(&metadata.continue_token);
            pages.push((rows, metadata));
            if page.continue_token.is_empty() {
                return pages;
            }
        }
    }
}

fn own() -> Access {
    Access { namespaces: OWN.map(str::to_owned).into(), ..Access::default() }
}

fn name(row: &WorkloadView) -> String {
    format!("{}/{}", row.metadata.namespace, row.metadata.name)
}

fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "b"}, "spec": {"namespaceSelector": {}, "queueingStrategy": "StrictFIFO", "resourceGroups": quota}}),
    );
    for namespace in NAMESPACES {
        core.put(Kind::Namespace, json!({"metadata": {"name": namespace}}));
        for (name, queue) in QUEUES.into_iter().filter(|(_, queue)| !queue.is_empty()) {
            let metadata = json!({"name": name, "namespace": namespace});
            core.put(Kind::LocalQueue, json!({"metadata": metadata, "spec": {"clusterQueue": queue}}));
        }
    }
    core
}

/// A drawn Workload: namespace, queue, priority, seconds after the start, state and pods.
type Drawn = (usize, usize, i32, i64, usize, i32);

fn put(core: &mut Core, number: usize, (namespace, queue, priority, later, state, pods): Drawn) {
    let (namespace, queue) = (NAMESPACES[namespace], QUEUES[queue]);
    let prefix = if OWN.contains(&namespace) { "w" } else { SECRET };
    let mut waits = condition("QuotaReserved", "False", "WaitingForQuota");
    // A queue says this of all workloads behind its head, also of those of other namespaces.
    waits["message"] = json!("behind a-secret/secret-0 in the StrictFIFO ClusterQueue b");
    let reserved = condition("QuotaReserved", "True", "QuotaReserved");
    let conditions = match state {
        0 => vec![],
        1 => vec![waits],
        2 => vec![reserved],
        _ => vec![reserved, condition("Finished", "True", "Succeeded")],
    };
    let mut status = json!({"conditions": conditions});
    if state >= 2 {
        status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": [
            {"name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": pods.to_string()}}]});
    }
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let created = Timestamp::from_second(START + later).unwrap().to_string();
    core.put(
        Kind::Workload,
        json!({
            "metadata": {"name": format!("{prefix}-{number}"), "namespace": namespace, "creationTimestamp": created},
            "spec": {"queueName": queue.0, "priority": priority, "podSets": [{"name": "main", "count": pods, "template": template}]},
            "status": status,
        }),
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The pages hold the own workloads in the order of the whole list, each is full but the last, and no byte of them, nor of a
    /// decoded token, names another tenant.
    #[test]
    fn pages_are_the_own_part_of_the_whole_list(
        all in prop::collection::vec((0..NAMESPACES.len(), 0..QUEUES.len(), -1_i32..2, 0_i64..4, 0_usize..4, 1_i32..4), 0..40),
        limit in 1_usize..7,
    ) {
        let mut core = core();
        for (number, drawn) in all.into_iter().enumerate() {
            put(&mut core, number, drawn);
        }
        core.now = Timestamp::from_second(START + 120).unwrap();
        core.feed(Delta::Tick);
        let snapshot = core.state.snapshot();
        for list in lists() {
            let whole = list.pages(&snapshot, &Access::everything(), 500);
            let is_own = |row: &&WorkloadView| OWN.contains(&row.metadata.namespace.as_str());
            let expected: Vec<String> = whole.iter().flat_map(|(rows, _)| rows).filter(is_own).map(name).collect();
            let pages = list.pages(&snapshot, &own(), limit);
            let found: Vec<String> = pages.iter().flat_map(|(rows, _)| rows).map(name).collect();
            prop_assert_eq!(found, expected, "{:?}", list);
            let (_, full) = pages.split_last().unwrap();
            for (rows, metadata) in full {
                prop_assert_eq!(rows.len(), limit, "{:?}: a page that is not full", list);
                prop_assert_eq!(metadata.remaining_item_count, None, "{:?}: a number that others change", list);
                let token = URL_SAFE_NO_PAD.decode(&metadata.continue_token).unwrap();
                let token = String::from_utf8(token).unwrap();
                prop_assert!(!token.contains(SECRET), "{list:?}: {token}");
            }
            let text = json!(pages).to_string();
            prop_assert!(!text.contains(SECRET), "{list:?}: {text}");
        }
    }
}

/// More workloads of others before the own ones than a page may pass over do not end the list.
#[test]
fn workloads_of_others_do_not_end_a_list() {
    let object = json!({
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": "2027-01-15T08:00:00Z"},
        "spec": {"queueName": "lq", "podSets": []},
    });
    let object = WorkloadObject::from_value(object).unwrap();
    let record = WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap();
    let mut index = WorkloadIndex::default();
    let mut add = |namespace: &str, number: u32| {
        let mut record = record.clone();
        record.meta.key = ObjectKey::new(namespace, &format!("w-{number:05}"));
        index.insert(&Arc::new(record));
    };
    for (namespace, count) in [("a-secret", 20_001), ("own", 3)] {
        for number in 0..count {
            add(namespace, number);
        }
    }
    let snapshot = Snapshot { synced: true, workloads: index, ..Snapshot::default() };
    for list in lists() {
        let pages = list.pages(&snapshot, &own(), 2);
        let names: Vec<Vec<String>> = pages.iter().map(|(rows, _)| rows.iter().map(name).collect()).collect();
        match list {
            List::Recent(..) => assert_eq!(names, [Vec::<String>::new()], "{list:?}"),
            // No ClusterQueue has them.
            List::ByName(asked) | List::Pending(_, asked) if asked.contains("clusterQueue") => {
                assert_eq!(names.concat(), Vec::<String>::new(), "{list:?}");
            }
            _ => assert_eq!(names, [vec!["own/w-00000", "own/w-00001"], vec!["own/w-00002"]], "{list:?}"),
        }
    }
}
