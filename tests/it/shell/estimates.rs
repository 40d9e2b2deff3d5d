//! When a workload may be admitted, over HTTP: on its page and in its verdict, from one cluster of two tenants.

use crate::fixtures::estimated_cluster::{Cluster, NAMESPACE, now, object, options};
use crate::fixtures::scripted_client::{RecordedRequests, scripted_client_with_body};
use crate::shell::views::Views;
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::dashboard::{Freshness, Links, PageQuestion, WhatIfPage, WorkloadPage};
use sluice::kube::client::{Caller, all_path};
use sluice::kube::server_clock::ServerClock;
use sluice::scheduler::PendingCounts;
use sluice::server::apis::estimates::AskEstimate as _;
use sluice::server::dashboard::models::{Answering, Models, NoValue, Value as PageValue};
use sluice::server::dashboard::{Settings, router};
use sluice::server::simulations::{Estimates, SimulationSource, WhatIfAnswers};
use sluice::server::user_authorizer::UserAuthorizer;
use sluice::snapshot::{ClusterQueueView, QueueView, Snapshot};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::views::{Answer, Source, Verdict, ViewMetadata, WorkloadView};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tower::ServiceExt as _;

const COMMAND: &str = "in a terminal, sluice why --when computes it";

/// Three CPUs: a run of the namespace `ns` has two for 50 more minutes, one of `other` the third for an unknown time. What waits in `ns`
/// needs all three.
fn objects() -> Vec<(Kind, Value)> {
    let mut cluster = Cluster::new(3, "BestEffortFIFO", "lq");
    cluster.history("lq", [60; 20]);
    cluster.running("own-runs", "lq", 2, 10);
    cluster.pending("w-a", "lq", 3, 5);
    cluster.pending("w-b", "lq", 3, 5);
    cluster.pending("w-off", "lq", 1, 5)["spec"]["active"] = json!(false);
    let own = cluster.objects.len();
    cluster.local_queue("secret-queue", "q");
    cluster.running("secret-runs", "secret-queue", 1, 10);
    cluster.pending("secret-waits", "secret-queue", 1, 20);
    for (number, object) in cluster.objects.iter_mut().enumerate() {
        let namespace = if number < own { "ns" } else { "other" };
        if object["metadata"]["namespace"] == NAMESPACE {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if object["kind"] == "Namespace" {
            object["metadata"]["name"] = json!(namespace);
        }
    }
    let mut other = object("Namespace", "other", &json!({}));
    other["apiVersion"] = json!("v1");
    cluster.objects.push(other);
    cluster.typed()
}

/// Returns a state of two ClusterQueues with this number of pending workloads together, most of them parked.
fn snapshot(pending: usize) -> Snapshot {
    let queue = |pending: PendingCounts| ClusterQueueView { pending, ..ClusterQueueView::default() };
    let parked = PendingCounts { active: 0, inadmissible: pending.saturating_sub(1) };
    let active = PendingCounts { active: 1, inadmissible: 0 };
    let cluster_queues = BTreeMap::from([(Arc::from("a"), queue(parked)), (Arc::from("b"), queue(active))]);
    let queues = Arc::new(QueueView { cluster_queues, ..QueueView::default() });
    Snapshot { queues, ..Snapshot::default() }
}

/// Pages of Workloads with estimates, and of changes; a token is the name of its user.
struct Pages {
    estimates: Arc<Estimates>,
    what_ifs: WhatIfAnswers,
}

impl Models for Pages {
    fn version(&self) -> (String, u64) {
        ("m-0".to_owned(), 1)
    }

    fn freshness(&self) -> Freshness {
        Freshness::Live
    }

    fn answer(&self, question: PageQuestion, access: Access, user: String) -> Answering<'_> {
        Box::pin(async move {
            let query = match question {
                PageQuestion::When(query) => query,
                PageQuestion::WhatIf(query) => {
                    let found = self.what_ifs.what_if(&query, (&access, user.as_str())).await;
                    let refused = found.as_ref().err().cloned().unwrap_or_default();
                    let source = Source::default();
                    return Ok(PageValue::page(WhatIfPage { query, answer: found.ok(), refused, source }));
                }
                _ => return Err(NoValue::Invalid("not a page of this test".to_owned())),
            };
            let (namespace, name) = (query.workload.namespace, query.workload.name);
            let metadata = ViewMetadata { namespace, name, ..ViewMetadata::default() };
            let workload = WorkloadView { metadata, ..WorkloadView::default() };
            let mut view = Verdict { workload, ..Verdict::default() };
            view.estimate = Some(self.estimates.estimate(view.clone(), access, user).await);
            let answer = Answer { view, source: Source::default(), partial: false };
            Ok(PageValue::page(WorkloadPage { answer, cohorts: Vec::new() }))
        })
    }
}

struct Fixture {
    views: Views,
    pages: Router,
    /// Lists are not answered while it is set.
    holds: Arc<AtomicBool>,
    requests: RecordedRequests,
    _retire: watch::Sender<bool>,
}

impl Fixture {
    async fn start() -> Self {
        Self::start_with_pending(1).await
    }

    /// Starts with this number of pending workloads in the published state.
    async fn start_with_pending(pending: usize) -> Self {
        let holds = Arc::<AtomicBool>::default();
        let (held, objects) = (Arc::clone(&holds), Arc::new(objects()));
        let (client, requests) = scripted_client_with_body(move |_, uri, body| {
            if uri.ends_with("reviews") {
                return (201, review(uri, body));
            }
            if held.load(Ordering::Relaxed) {
                return (0, Value::Null);
            }
            let path = uri.split('?').next().unwrap();
            let of_kind = |(kind, _): &&(Kind, Value)| all_path(&kind.resource()) == path;
            let items: Vec<&Value> = objects.iter().filter(of_kind).map(|(_, object)| object).collect();
            (200, json!({"items": items}))
        });
        let caller = Caller::new(client, Duration::from_mins(1));
        let authorizer = UserAuthorizer::new(&caller, "sluice-dashboard");
        let estimates = Arc::new(Estimates::new(SimulationSource {
            caller,
            clock: Arc::new(ServerClock::starting_at(now())),
            published: Arc::new(ArcSwap::from_pointee(snapshot(pending))),
            options: options(None),
        }));
        let (retire, retiring) = watch::channel(false);
        let pages = router(Settings {
            links: Links::below("/").unwrap(),
            authorizer,
            models: Arc::new(Pages {
                what_ifs: WhatIfAnswers::beside(&estimates),
                estimates: Arc::clone(&estimates),
            }),
            tenant_detail: TenantDetail::None,
            objects: None,
            retiring,
        });
        let views = Views::start_with(Some(estimates)).await;
        views.publish();
        views.leader.answers.store(true, Ordering::Relaxed);
        Self { views, pages, holds, requests, _retire: retire }
    }

    async fn page(&self, user: &str, workload: &str) -> String {
        self.shown(user, &format!("/workloads/ns/{workload}?when=1")).await
    }

    /// Returns the page at an address.
    async fn shown(&self, user: &str, address: &str) -> String {
        let request = Request::get(address)
            .header("host", "sluice.example:8443")
            .header("cookie", format!("__Host-sluice={user}"));
        let request = request.body(Body::empty()).unwrap();
        let response = self.pages.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
        text
    }

    async fn verdict(&self, user: &str, workload: &str) -> Value {
        let path = format!("/namespaces/ns/workloadviews/{workload}/verdict?when=true");
        let answer = self.views.get_as(user, &path, "application/json").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Number of lists that were asked for.
    fn lists(&self) -> usize {
        self.requests.lock().unwrap().iter().filter(|(_, uri, ..)| uri.contains('?')).count()
    }

    /// Waits until this many lists have been asked for.
    async fn has_lists(&self, number: usize) {
        let waiting = async {
            while self.lists() < number {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.unwrap();
    }
}

/// The user `tenant` sees the namespace `ns`, others see everything.
fn review(uri: &str, body: &Value) -> Value {
    if uri.ends_with("tokenreviews") {
        let user = json!({"username": body["spec"]["token"], "groups": []});
        return json!({"status": {"authenticated": true, "user": user, "audiences": ["sluice-dashboard"]}});
    }
    let is_own = body["spec"]["resourceAttributes"]["namespace"] == "ns";
    json!({"status": {"allowed": body["spec"]["user"] != "tenant" || is_own}})
}

#[tokio::test]
async fn a_tenant_learns_when_and_no_name_of_another_tenant() {
    let fixture = Fixture::start().await;
    let page = fixture.page("tenant", "w-a").await;
    assert!(page.contains("14:50 UTC") && page.contains("ns/own-runs must end"), "{page}");
    assert!(!page.contains("secret"), "{page}");
    let verdict = fixture.verdict("tenant", "w-a").await;
    let estimate = &verdict["estimate"];
    assert_eq!(
        (&estimate["notBefore"], &estimate["mustEnd"]),
        (&json!("2026-11-26T14:50:00Z"), &json!(["ns/own-runs"]))
    );
    assert!(!verdict.to_string().contains("secret"), "{verdict}");
    // An answer is kept for its access, not for the Workload.
    let whole = fixture.verdict("ann", "w-a").await;
    assert_eq!(whole["estimate"]["unknown"], json!(["other/secret-runs"]), "{whole}");
    assert!(fixture.page("ann", "w-a").await.contains("other/secret-runs"));
}

/// The leader is needed for the verdict alone. The API and pages take each other's words for yes and no.
#[tokio::test]
async fn an_estimate_needs_no_leader() {
    let fixture = Fixture::start().await;
    fixture.views.leader.answers.store(false, Ordering::Relaxed);
    for (value, is_asked) in [("true", true), ("1", true), ("false", false), ("0", false), ("", false)] {
        let path = format!("/namespaces/ns/workloadviews/w-a/verdict?when={value}");
        let answer = fixture.views.get_as("tenant", &path, "application/json").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let verdict = answer.json();
        let expected = is_asked.then(|| json!("2026-11-26T14:50:00Z"));
        assert_eq!(
            (&verdict["partial"], verdict["estimate"].get("notBefore")),
            (&json!(true), expected.as_ref())
        );
    }
    let path = "/namespaces/ns/workloadviews/w-a/verdict?when=soon";
    let refused = fixture.views.get_as("tenant", path, "application/json").await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("is neither true nor false"), "{}", refused.body);
}

/// The page may be a bookmark: what it asks about has started, ended or gone since.
#[tokio::test]
async fn a_workload_that_does_not_wait_gets_the_reason() {
    let fixture = Fixture::start().await;
    for (workload, expected) in [
        ("own-runs", "it is not pending (Admitted)"),
        ("lq-0", "it has finished"),
        ("w-off", "it is deactivated: sluice resume workload lets it wait again"),
        ("gone", "it has been deleted"),
        // Of another namespace, so that none of this name is in its own.
        ("secret-waits", "it has been deleted"),
    ] {
        for user in ["tenant", "ann"] {
            let page = fixture.page(user, workload).await;
            assert!(page.contains(expected), "{workload}: {page}");
        }
    }
}

#[tokio::test]
async fn pages_and_verdicts_count_together_and_the_third_gets_the_command() {
    let fixture = Fixture::start().await;
    fixture.holds.store(true, Ordering::Relaxed);
    let two = async { tokio::join!(fixture.page("tenant", "w-a"), fixture.verdict("ann", "w-b")) };
    let others = async {
        fixture.has_lists(2).await;
        let busy = format!("too many questions are being computed: {COMMAND}");
        assert_eq!(fixture.verdict("bob", "w-c").await["estimate"], json!({"refused": busy}));
        // Pages are shared for a moment by all that have the same access.
        let page = fixture.page("bob", "w-d").await;
        assert!(page.contains(&busy), "{page}");
        let own = "your last question is still being computed";
        // The command refuses a user that may not list the whole cluster.
        let refused = json!({"refused": format!("{own}: ask again in a moment")});
        assert_eq!(fixture.verdict("tenant", "w-c").await["estimate"], refused);
        let page = fixture.page("ann", "w-e").await;
        assert!(page.contains(&format!("{own}: {COMMAND}")), "{page}");
        for (user, change, why) in [
            ("bob", "stop=workload%2Fw-a", "too many questions are being computed"),
            ("ann", "stop=workload%2Fw-b", "your last question is still being computed"),
        ] {
            let page = fixture.shown(user, &format!("/what-if?ns=ns&{change}")).await;
            assert!(page.contains(&format!("{why}: ask in a terminal")), "{page}");
            assert!(page.contains("sluice what-if --stop workload/w-"), "the page has the command: {page}");
        }
        assert_eq!(fixture.lists(), 2, "nothing is read for a question beyond the bounds");
    };
    tokio::select! {
        answers = two => panic!("nothing lists the objects: {answers:?}"),
        () = others => {}
    }
}

#[tokio::test]
async fn beyond_the_bound_of_pending_workloads_nothing_is_listed() {
    let what_if = "/what-if?ns=ns&stop=workload%2Fw-a";
    let fixture = Fixture::start_with_pending(20_001).await;
    let why = "20001 workloads are pending, and at most 20000 are simulated on request: ";
    for page in [fixture.page("ann", "w-a").await, fixture.shown("ann", what_if).await] {
        assert!(page.contains(why), "{page}");
    }
    assert_eq!(fixture.lists(), 0);
    let fixture = Fixture::start_with_pending(20_000).await;
    for page in [fixture.page("ann", "w-a").await, fixture.shown("ann", what_if).await] {
        assert!(!page.contains("are simulated on request"), "{page}");
    }
    assert!(fixture.lists() > 0);
}
