//! The submitter of a job, as its Workload and lists have it.

use crate::fixtures::leading_core::{Core, JOB, condition, job, workload, writes};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::api::names::SUBMITTER_ANNOTATION;
use sluice::cache::Kind;
use sluice::dashboard::{MineQuery, build};
use sluice::reconciler::{CopiedKeys, CoreSettings, Delta};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::own_workloads::{OwnWorkloads, own_namespaces};
use sluice::visibility::page::PageQuery;
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::Source;
use sluice::visibility::workloads::{WorkloadQuery, workloads};

const LABEL: &str = "example.com/user";

fn core_with(key: Option<&str>) -> Core {
    let copied = CopiedKeys { submitter: key.map(str::to_owned), ..CopiedKeys::default() };
    Core::new(CoreSettings { copied, ..CoreSettings::default() })
}

/// Returns the Workload that is made for a job with an annotation and a label.
fn created(core: &mut Core, name: &str, annotation: &str, label: &str) -> Value {
    let mut owner = job(name);
    owner["metadata"]["annotations"] = json!({SUBMITTER_ANNOTATION: annotation});
    owner["metadata"]["labels"][LABEL] = json!(label);
    let effects = core.put(JOB, owner);
    let mut made = Value::Null;
    core.land(&effects, &mut made);
    assert!(writes(&effects, Kind::Workload).len() == 1 && made["kind"] == "Workload", "{effects:?}");
    made
}

/// Without a key nothing is copied, whatever the job says.
#[test]
fn workloads_name_the_submitter_of_their_job() {
    for (key, expected) in
        [(None, None), (Some(SUBMITTER_ANNOTATION), Some("ann")), (Some(LABEL), Some("bob"))]
    {
        let made = created(&mut core_with(key), "a", "ann", "bob");
        assert_eq!(made["metadata"]["annotations"][SUBMITTER_ANNOTATION].as_str(), expected, "{key:?}");
    }
}

/// Two users of two namespaces: a name in an object of another namespace shows nothing of it.
#[test]
fn users_list_what_they_submitted_where_they_may_read() {
    let mut core = core_with(Some(SUBMITTER_ANNOTATION));
    for (name, user) in [("a", "ann"), ("b", "bob"), ("c", "ann\n<b>/"), ("d", " ünï")] {
        created(&mut core, name, user, "");
    }
    core.advance_seconds(1);
    let snapshot = core.state.snapshot();
    let listed = |access: &Access, user: &str| -> Vec<String> {
        let selector = WorkloadSelector::parse("status=all,mine=true").unwrap().for_reader(user);
        let query = WorkloadQuery { namespace: None, selector, page: PageQuery::default() };
        let (rows, _) = workloads(&snapshot, access, &query).unwrap();
        rows.into_iter().filter_map(|row| Some(row.job?.name)).collect()
    };
    let (all, own) = (Access::everything(), Access::to_namespace("ns", TenantDetail::Sums));
    for access in [&all, &own] {
        assert_eq!(listed(access, "ann"), ["a"]);
        assert_eq!(listed(access, "bob"), ["b"]);
        assert_eq!(listed(access, "ann\n<b>/"), ["c"]);
        for user in [" ünï", "ünï"] {
            assert_eq!(listed(access, user), ["d"], "as a webhook and as an aggregated API get the name");
        }
        assert!(listed(access, "").is_empty() && listed(access, "eve").is_empty());
    }
    assert!(listed(&Access::to_namespace("other", TenantDetail::Sums), "ann").is_empty());
    let unknown = WorkloadSelector::parse("mine=true").unwrap();
    let query = WorkloadQuery { namespace: None, selector: unknown, page: PageQuery::default() };
    assert!(workloads(&snapshot, &all, &query).unwrap().0.is_empty(), "the reader is not known");
}

/// Identity providers give names of any length and with any characters. A longer name than the bound is that of no submitter.
#[test]
fn a_long_name_with_line_ends_is_compared_as_it_is() {
    let mut core = core_with(Some(SUBMITTER_ANNOTATION));
    let longest = "a/\r\n".repeat(256);
    let longer = format!("{longest}b");
    created(&mut core, "a", &longest, "");
    created(&mut core, "b", &longer, "");
    core.advance_seconds(1);
    let snapshot = core.state.snapshot();
    let access = Access::to_namespace("ns", TenantDetail::Sums);
    for (user, expected) in [(&longest, vec!["a"]), (&longer, vec![]), (&"a/".to_owned(), vec![])] {
        let selector = WorkloadSelector::parse("status=all,mine=true").unwrap().for_reader(user);
        let query = WorkloadQuery { namespace: None, selector, page: PageQuery::default() };
        let (rows, _) = workloads(&snapshot, &access, &query).unwrap();
        let names: Vec<String> = rows.into_iter().filter_map(|row| Some(row.job?.name)).collect();
        assert_eq!(names, expected, "{} bytes", user.len());
        let asked = MineQuery { namespace: String::new(), user: user.clone() };
        let page = build::mine_page(&snapshot, &access, (&asked, Source::default())).unwrap();
        let of_all = [&page.workloads.pending, &page.workloads.running, &page.workloads.finished];
        let shown: usize = of_all.iter().map(|list| list.items.len()).sum();
        assert_eq!(shown, expected.len(), "{} bytes", user.len());
    }
}

/// The page of two users, and of one that may not read the namespace.
#[test]
fn pages_show_what_their_viewer_submitted() {
    let mut core = core_with(Some(SUBMITTER_ANNOTATION));
    for (name, user) in [("a", "ann"), ("b", "bob"), ("c", "ann"), ("d", "ann")] {
        created(&mut core, name, user, "");
    }
    core.advance_seconds(1);
    let snapshot = core.state.snapshot();
    let page = |access: &Access, user: &str, namespace: &str| {
        let query = MineQuery { namespace: namespace.to_owned(), user: user.to_owned() };
        build::mine_page(&snapshot, access, (&query, Source::default())).unwrap()
    };
    let own = Access::to_namespace("ns", TenantDetail::Sums);
    for (user, total) in [("ann", 3), ("bob", 1), ("eve", 0), ("", 0)] {
        let found = page(&own, user, "");
        let of_all = [&found.workloads.pending, &found.workloads.running, &found.workloads.finished];
        assert_eq!(of_all.map(|list| list.total).iter().sum::<u64>(), total, "{user}");
        assert_eq!(
            of_all.map(|list| list.items.len()).iter().sum::<usize>(),
            usize::try_from(total).unwrap(),
            "{user}"
        );
        assert_eq!(found.local_queues.len(), 1, "what is free in the namespace of {user}");
        assert_eq!(page(&own, user, "ns").workloads, found.workloads, "{user}");
    }
    let other = page(&Access::to_namespace("other", TenantDetail::Sums), "ann", "");
    assert_eq!((other.workloads, other.local_queues), (OwnWorkloads::default(), Vec::new()));
    assert_eq!(own_namespaces(&snapshot, "ann", 8), ["ns"]);
    assert!(own_namespaces(&snapshot, "eve", 8).is_empty() && own_namespaces(&snapshot, "ann", 0).is_empty());
}

/// A Workload that has ended, so that no queue has it.
fn ended(name: &str, user: &str) -> Value {
    let mut workload = workload(name, &[condition("Finished", "True", "Succeeded")]);
    workload["metadata"]["annotations"] = json!({SUBMITTER_ANNOTATION: user});
    workload
}

/// A page passes over at most 20,000 workloads: what is behind as many of another user is found by its submitter.
#[test]
fn lists_of_a_submitter_cost_what_the_submitter_has() {
    let mut core = core_with(Some(SUBMITTER_ANNOTATION));
    let numbers: Vec<usize> = (0..20_001).collect();
    for part in numbers.chunks(1_000) {
        let named = part.iter().map(|number| ended(&format!("a{number:05}"), "bob"));
        let deltas: Vec<Delta> = named.map(|object| core.applied_delta(Kind::Workload, object)).collect();
        core.feed_all(deltas);
    }
    for name in ["x", "y", "z"] {
        core.put(Kind::Workload, ended(name, "ann"));
    }
    let snapshot = core.state.snapshot();
    let page = |namespace: Option<&str>, limit: usize, token: &str| {
        let selector = WorkloadSelector::parse("status=all,mine=true").unwrap().for_reader("ann");
        let page = PageQuery { limit, continue_token: token.to_owned() };
        let query = WorkloadQuery { namespace: namespace.map(str::to_owned), selector, page };
        let (rows, metadata) = workloads(&snapshot, &Access::everything(), &query).unwrap();
        let names: Vec<String> = rows.into_iter().map(|row| row.metadata.name).collect();
        (names, metadata.continue_token)
    };
    for namespace in [None, Some("ns")] {
        let (all, end) = page(namespace, 10, "");
        assert_eq!(all, ["w-x", "w-y", "w-z"], "{namespace:?}");
        let (first, token) = page(namespace, 2, "");
        assert_eq!(first, ["w-x", "w-y"], "{namespace:?}");
        let (rest, last) = page(namespace, 2, &token);
        assert_eq!(rest, ["w-z"], "{namespace:?}");
        assert!(end.is_empty() && !token.is_empty() && last.is_empty(), "{namespace:?}");
    }
    assert!(page(Some("other"), 10, "").0.is_empty());
}

#[test]
fn the_index_of_submitters_follows_and_is_empty_without_a_key() {
    let names = |core: &Core, user: &str| -> Vec<String> {
        let index = core.state.snapshot().workloads;
        let own = index.of_submitter(user, ObjectKey::new("", ""));
        own.map(|key| key.name.to_string()).collect()
    };
    for (key, found) in [(Some(SUBMITTER_ANNOTATION), vec!["w-a"]), (None, vec![])] {
        let mut core = core_with(key);
        core.put(Kind::Workload, ended("a", "ann"));
        assert_eq!(names(&core, "ann"), found, "{key:?}");
        assert_eq!(core.state.snapshot().workloads.reads_submitters(), key.is_some());
        core.put(Kind::Workload, ended("a", "bob"));
        assert!(names(&core, "ann").is_empty());
        assert_eq!(names(&core, "bob"), found, "{key:?}");
        let (kind, key) = (Kind::Workload, ObjectKey::new("ns", "w-a"));
        core.feed(Delta::Deleted { kind, key, uid: "workloads-w-a".into() });
        assert!(names(&core, "bob").is_empty());
    }
}
