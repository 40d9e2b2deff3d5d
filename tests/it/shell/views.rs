//! The group of views over TLS: lists, Tables, errors, rights, and the private path to the leader.

use crate::fixtures::client_certificates::{Authority, Identity};
use crate::fixtures::leading_core::{Core, JOB, condition, job, workload};
use crate::shell::history_views::history;
use crate::shell::visibility::{Answer, Server};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sluice::api::names::SUBMITTER_ANNOTATION;
use sluice::cache::Kind;
use sluice::reconciler::{CopiedKeys, CoreSettings, Delta};
use sluice::scheduler::{CapacityQuestion, CapacityReport};
use sluice::server::apis::capacity::{AskCapacity, CapacityCache};
use sluice::server::apis::estimates::AskEstimate;
use sluice::server::apis::question_rate::QuestionRate;
use sluice::server::apis::questions::{
    AUDIENCE, AnswerQuestions, PrivatePath, QUESTIONS_PATH, TokenReviewer,
};
use sluice::server::apis::views::{AskAudit, AuditCache, ViewsGroup};
use sluice::snapshot::{AuditFacts, JobName, NoWorkload};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::history::{HistoryQuestion, HistoryTopic, LineTopic, RingReport};
use sluice::visibility::offline::capacity;
use sluice::visibility::questions::{LeaderAnswer, Question, VerdictQuestion, WorkloadName};
use sluice::visibility::views::{
    Answer as Answered, ManagerView, Source, Verdict, ViewMetadata, WorkloadView,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const GROUP: &str = "/apis/visibility.sluice.dev/v1alpha1";
const ACCOUNT: &str = "system:serviceaccount:kueue-system:kueue-controller-manager";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// A leader that answers, or does not, and keeps the questions.
#[derive(Clone, Default)]
pub(crate) struct Leader {
    pub(crate) answers: Arc<AtomicBool>,
    pub(crate) asked: Arc<Mutex<Vec<Question>>>,
}

impl AnswerQuestions for Leader {
    fn answer(&self, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        self.asked.lock().unwrap().push(question.clone());
        if question == Question::Manager {
            let metadata = ViewMetadata { name: "m-1".to_owned(), ..ViewMetadata::default() };
            let view = ManagerView { metadata, leads: true, ..ManagerView::default() };
            let answer = Answered { view, source: Source::default(), partial: false };
            let answers = self.answers.load(Ordering::Relaxed);
            return Box::pin(async move { answers.then(|| LeaderAnswer::Manager(Box::new(answer))) });
        }
        let metadata = match &question {
            Question::Verdict(asked) => ViewMetadata {
                namespace: asked.workload.namespace.clone(),
                name: asked.workload.name.clone(),
                ..ViewMetadata::default()
            },
            _ => ViewMetadata::default(),
        };
        if let Question::History(question) = question {
            let answers = self.answers.load(Ordering::Relaxed);
            return Box::pin(async move { answers.then(|| history(&question)) });
        }
        let message = "of the leader".to_owned();
        let verdict = Verdict {
            workload: WorkloadView { metadata, message, ..WorkloadView::default() },
            ..Verdict::default()
        };
        let answer = Answered { view: verdict, source: Source::default(), partial: false };
        let answers = self.answers.load(Ordering::Relaxed);
        Box::pin(async move { answers.then(|| LeaderAnswer::Verdict(Box::new(answer))) })
    }
}

/// The core of this replica.
#[derive(Clone, Default)]
pub(crate) struct OwnCore(pub(crate) Arc<Mutex<Option<Core>>>);

impl AskCapacity for OwnCore {
    fn capacity(&self, question: CapacityQuestion) -> BoxFuture<'static, Option<CapacityReport>> {
        let report =
            self.0.lock().unwrap().as_mut().map(|core| capacity(&mut core.state, &question, &mut || true));
        Box::pin(async move { report })
    }
}

impl AskAudit for OwnCore {
    fn audit_facts(&self) -> BoxFuture<'static, Option<AuditFacts>> {
        let facts = self.0.lock().unwrap().as_mut().map(|core| core.state.audit_facts());
        Box::pin(async move { facts })
    }

    fn why_no_workload(&self, job: JobName) -> BoxFuture<'static, Option<NoWorkload>> {
        let found = self
            .0
            .lock()
            .unwrap()
            .as_ref()
            .and_then(|core| sluice::reconciler::why_no_workload(&core.state, &job));
        Box::pin(async move { found })
    }
}

pub(crate) struct Views {
    pub(crate) core: OwnCore,
    pub(crate) server: Server,
    rate: Arc<QuestionRate>,
    pub(crate) leader: Leader,
    leads: Arc<AtomicBool>,
    pub(crate) proxy: Identity,
}

impl Views {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(estimates: Option<Arc<dyn AskEstimate>>) -> Self {
        let (leader, leads) = (Leader::default(), Arc::new(AtomicBool::new(true)));
        let rate = Arc::<QuestionRate>::default();
        let counted = Arc::clone(&rate);
        let core = OwnCore::default();
        let own_core = core.clone();
        let (own, private, is_leading) = (leader.clone(), leader.clone(), Arc::clone(&leads));
        let server = Server::start_with(
            Box::new(move |published, access| {
                vec![Arc::new(ViewsGroup {
                    published: Arc::clone(published),
                    access: access.clone(),
                    leader: Arc::new(own),
                    rate: counted,
                    audits: Arc::new(AuditCache::new(Arc::new(own_core.clone()))),
                    capacity: Arc::new(CapacityCache::new(Arc::new(own_core))),
                    estimates,
                    heard_until: Arc::new(|| None),
                    replica: "m-0".to_owned(),
                    tenant_detail: TenantDetail::Sums,
                })]
            }),
            Box::new(move |caller| {
                Some(Arc::new(PrivatePath {
                    reviewer: TokenReviewer::new(caller, vec![ACCOUNT.to_owned()]),
                    leads: Arc::new(move || is_leading.load(Ordering::Relaxed)),
                    local: Arc::new(private),
                }))
            }),
        )
        .await;
        let ours = Authority::new("ours");
        server.trust(&ours);
        let proxy = ours.user("front-proxy");
        Self { core, server, rate, leader, leads, proxy }
    }

    pub(crate) async fn get_as(&self, user: &str, path: &str, accept: &str) -> Answer {
        let headers = [("x-remote-user", user), ("accept", accept)];
        self.server.get(&format!("{GROUP}{path}"), Some(&self.proxy), &headers).await
    }

    pub(crate) async fn post_as(&self, user: &str, path: &str, body: &str) -> Answer {
        let headers = [("x-remote-user", user), ("content-type", "application/json")];
        self.server.send("POST", &format!("{GROUP}{path}"), (Some(&self.proxy), &headers), body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.get_as("ann", path, "application/json").await
    }

    /// Publishes a few pending Workloads of two namespaces.
    pub(crate) fn publish(&self) {
        let copied = CopiedKeys { submitter: Some(SUBMITTER_ANNOTATION.to_owned()), ..CopiedKeys::default() };
        let mut core = Core::new(CoreSettings { copied, ..CoreSettings::default() });
        core.feed(Delta::Leading(false));
        core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
        let queue = json!({"metadata": {"name": "lq", "namespace": "other"}, "spec": {"clusterQueue": "cq"}});
        core.put(Kind::LocalQueue, queue);
        for name in ["a", "b", "c"] {
            core.put(JOB, job(name));
            let mut pending = workload(name, &[condition("QuotaReserved", "False", "WaitingForQuota")]);
            if let Some(user) =
                [("a", "ann"), ("b", "tenant"), ("c", "ünï")].into_iter().find(|(of, _)| *of == name)
            {
                pending["metadata"]["annotations"] = json!({SUBMITTER_ANNOTATION: user.1});
            }
            core.put(Kind::Workload, pending);
        }
        let mut foreign = workload("secret", &[]);
        foreign["metadata"]["namespace"] = json!("other");
        foreign["metadata"]["annotations"] = json!({SUBMITTER_ANNOTATION: "tenant"});
        let mut owner = job("secret");
        owner["metadata"]["namespace"] = json!("other");
        core.put(JOB, owner);
        core.put(Kind::Workload, foreign);
        core.advance_seconds(60);
        self.server.published.store(Arc::new(core.state.snapshot()));
    }
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn views_are_listed_in_pages() {
    let views = Views::start().await;
    for path in ["/workloadviews", "/clusterqueueviews", "/namespaces/ns/workloadviews/w-a/verdict"] {
        let early = views.get(path).await;
        assert_eq!((early.status, &early.json()["reason"]), (503, &json!("ServiceUnavailable")), "{path}");
        assert!(early.head.contains("retry-after: 1"), "{}", early.head);
    }
    views.publish();
    let list = views.get("/workloadviews?limit=3").await.json();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("WorkloadViewList"), &json!("visibility.sluice.dev/v1alpha1"))
    );
    assert_eq!(names(&list), ["w-a", "w-b", "w-c"]);
    assert_eq!(list["items"][0]["kind"], "WorkloadView");
    assert_eq!((&list["source"]["replica"], &list["source"]["role"]), (&json!("m-0"), &json!("follower")));
    let brief = views.get("/workloadviews?limit=3&brief=true").await.json();
    assert_eq!(names(&brief), names(&list));
    let (row, whole) = (brief["items"][0].as_object().unwrap(), &list["items"][0]);
    for (field, value) in row {
        assert!(field == "metadata" || *value == whole[field.as_str()], "{field}: {value} {whole}");
    }
    let fields: Vec<&str> = row.keys().map(String::as_str).collect();
    assert_eq!(fields, ["metadata", "state", "priority", "boost", "since", "position", "needs", "reason"]);
    assert_eq!(row["metadata"], json!({"namespace": "ns", "name": "w-a", "uid": whole["metadata"]["uid"]}));
    let token = list["metadata"]["continue"].as_str().unwrap();
    let rest = views.get(&format!("/workloadviews?limit=3&continue={token}")).await.json();
    assert_eq!(names(&rest), ["w-secret"]);
    assert_eq!(rest["metadata"].get("continue"), None);
    let uid = |uid: &str| format!("/workloadviews?labelSelector=kueue.x-k8s.io%2Fjob-uid%3D{uid}");
    assert_eq!(names(&views.get(&uid("jobs-b")).await.json()), ["w-b"]);
    assert_eq!(
        names(&views.get("/workloadviews?labelSelector=!kueue.x-k8s.io%2Fjob-uid").await.json()),
        [""; 0]
    );
    let in_order =
        views.get("/workloadviews?fieldSelector=clusterQueue%3Dcq%2Cstatus%3Dpending&limit=1").await.json();
    assert_eq!(in_order["metadata"]["remainingItemCount"], 3, "{in_order}");
    let counted = views.get("/workloadviews?limit=3&count=true").await.json();
    assert_eq!((names(&counted), &counted["metadata"]["remainingItemCount"]), (names(&list), &json!(1)));
    let queues = views.get("/localqueueviews?limit=1").await.json();
    assert_eq!(queues["metadata"]["remainingItemCount"], 1, "{queues}");
    let one = views.get("/namespaces/ns/workloadviews/w-a").await.json();
    assert_eq!((&one["kind"], &one["position"]["of"]), (&json!("WorkloadView"), &json!(4)));
    assert_eq!(names(&views.get("/clusterqueueviews").await.json()), ["cq"]);
    assert_eq!(views.get("/clusterqueueviews/cq").await.json()["pending"]["total"], 4);
    assert_eq!(names(&views.get("/cohortviews").await.json()), ["org", "team"]);
    assert_eq!(names(&views.get("/namespaces/ns/localqueueviews").await.json()), ["lq"]);
    assert_eq!(names(&views.get("/localqueueviews").await.json()), ["lq", "lq"]);
}

#[tokio::test]
async fn tables_have_the_columns_of_the_command_line() {
    let views = Views::start().await;
    views.publish();
    let table = views.get_as("ann", "/namespaces/ns/workloadviews?limit=2", TABLE).await.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns = table["columnDefinitions"].as_array().unwrap();
    let shown: Vec<&str> =
        columns.iter().filter(|c| c["priority"] == 0).map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(shown, ["Name", "State", "Wait", "Pos", "Prio", "Needs", "Reason"]);
    let row = &table["rows"][0];
    assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
    assert_eq!((&row["cells"][0], &row["cells"][6]), (&json!("w-a"), &json!("WaitingForQuota")));
    assert_eq!(
        (&row["object"]["kind"], &row["object"]["metadata"]["namespace"]),
        (&json!("PartialObjectMetadata"), &json!("ns"))
    );
    assert!(table["metadata"]["continue"].is_string());
    let one = views.get_as("ann", "/clusterqueueviews/cq?includeObject=Object", TABLE).await.json();
    assert_eq!(one["rows"][0]["object"]["kind"], "ClusterQueueView");
    assert_eq!(
        views.get_as("ann", "/workloadviews", "application/vnd.kubernetes.protobuf").await.status,
        406
    );
}

#[tokio::test]
async fn bad_questions_are_refused() {
    let views = Views::start().await;
    views.publish();
    for (path, status, named) in [
        ("/workloadviews?limit=x", 400, "limit"),
        ("/workloadviews?limit=-1", 400, "limit"),
        ("/workloadviews?continue=x", 400, "continue"),
        ("/workloadviews?brief=yes", 400, "brief: \"yes\" is neither true nor false"),
        ("/workloadviews?count=2", 400, "count: \"2\" is neither true nor false"),
        ("/workloadviews?fieldSelector=status%3Druning", 400, "unknown status \"runing\""),
        ("/workloadviews?labelSelector=a%20b", 400, "labelSelector: \"a b\" is no requirement"),
        ("/clusterqueueviews?labelSelector=a%3Db", 400, "labelSelector: clusterqueueviews"),
        ("/clusterqueueviews?fieldSelector=status%3Dpending", 400, "fieldSelector: clusterqueueviews"),
        ("/workloadviews?includeObject=Half", 200, ""),
        ("/workloadviews?watch=true", 405, "watch"),
        ("/workloadviews?watch=True", 405, "watch"),
        ("/workloadviews?watch=", 405, "watch"),
        ("/workloadviews?watch=false", 200, ""),
        ("/namespaces/ns/workloadviews/w-x", 404, "w-x"),
        ("/namespaces/ns/workloadviews/w-a/verdict?before=w-x", 400, "before"),
        ("/namespaces/ns/workloadviews/w-a/verdict?queue=nothing", 400, "queue"),
        ("/namespaces/ns/workloadviews/w-x/verdict", 404, "w-x"),
        ("/clusterqueueviews/nothing", 404, "nothing"),
        ("/workloadviews/w-a", 404, ""),
        ("/namespaces/ns/clusterqueueviews", 404, ""),
        ("/namespaces/ns/workloadviews/w-a/other", 404, ""),
    ] {
        let answer = views.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(named), "{path}: {message}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let path = format!("{GROUP}/namespaces/ns/workloadviews/w-a");
        let answer =
            views.server.request(method, &path, Some(&views.proxy), &[("x-remote-user", "ann")]).await;
        assert_eq!(answer.status, 405, "{method}");
    }
    let half = views.get_as("ann", "/workloadviews?includeObject=Half", TABLE).await;
    assert_eq!(half.status, 400);
}

#[tokio::test]
async fn rights_decide_what_a_view_holds() {
    let views = Views::start().await;
    views.publish();
    for path in ["/workloadviews", "/clusterqueueviews", "/namespaces/ns/workloadviews/w-a/verdict"] {
        assert_eq!(views.get_as("eve", path, "*/*").await.status, 403, "{path}");
    }
    for path in ["/workloadviews", "/clusterqueueviews/cq", "/cohortviews", "/localqueueviews"] {
        assert_eq!(views.get_as("tenant", path, "*/*").await.status, 403, "{path}");
    }
    let own = views.get_as("tenant", "/namespaces/ns/workloadviews", "*/*").await;
    assert_eq!(own.status, 200);
    assert!(!own.body.contains("secret"), "{}", own.body);
    let reviews = views.server.reviews.0.lock().unwrap().clone();
    let asked = reviews.iter().map(|review| &review["resourceAttributes"]).find(|asked| {
        asked["resource"] == "clusterqueueviews" && asked["verb"] == "list" && asked["subresource"] == ""
    });
    assert!(asked.is_some(), "whether the user sees the cluster");
    // The leader is asked with this access.
    let verdict =
        views.get_as("tenant", "/namespaces/ns/workloadviews/w-a/verdict?before=other/w-b", "*/*").await;
    assert_eq!(verdict.status, 400, "without the leader it is refused here: {}", verdict.body);
    let Question::Verdict(question) = views.leader.asked.lock().unwrap()[0].clone() else { panic!() };
    assert_eq!(question.access, Access::to_namespace("ns", TenantDetail::Sums));
    assert_eq!(question.before, Some(WorkloadName::parse("other/w-b", "")));
}

#[tokio::test]
async fn the_leader_says_how_it_is() {
    let views = Views::start().await;
    views.publish();
    assert_eq!(views.get("/managerviews").await.status, 503, "no leader answers");
    views.leader.answers.store(true, Ordering::Relaxed);
    assert_eq!(names(&views.get("/managerviews").await.json()), ["m-1"]);
    assert_eq!(views.get("/managerviews/m-1").await.json()["leads"], true);
    assert_eq!(views.get("/managerviews/m-2").await.status, 404);
    let table = views.get_as("ann", "/managerviews", TABLE).await.json();
    assert_eq!(table["rows"][0]["cells"][1], "leader");
    assert_eq!(views.get_as("tenant", "/managerviews", "*/*").await.status, 403);
}

#[tokio::test]
async fn verdicts_are_those_of_the_leader_or_partial() {
    let views = Views::start().await;
    views.publish();
    let path = "/namespaces/ns/workloadviews/w-a/verdict";
    let own = views.get(path).await.json();
    assert_eq!(
        (&own["kind"], &own["partial"], &own["reason"]),
        (&json!("Verdict"), &json!(true), &json!("WaitingForQuota"))
    );
    views.leader.answers.store(true, Ordering::Relaxed);
    let of_leader = views.get(path).await.json();
    assert_eq!((of_leader.get("partial"), &of_leader["message"]), (None, &json!("of the leader")));
    let mut refused = false;
    for _ in 0..5 {
        // A second may begin between the two.
        while views.rate.admits("ann") {}
        refused |= views.get(path).await.status == 429;
    }
    assert!(refused, "one user asks without end");
    assert_eq!(views.get_as("bob", path, "*/*").await.status, 200, "another user is not affected");
}

/// The name in an object gives no right: what a user submitted is listed only where the user may read.
#[tokio::test]
async fn users_list_what_they_submitted() {
    let views = Views::start().await;
    views.publish();
    let list = async |user: &str, path: &str, selector: &str| {
        views.get_as(user, &format!("{path}?fieldSelector={selector}"), "*/*").await
    };
    let (all, own, other) =
        ("/workloadviews", "/namespaces/ns/workloadviews", "/namespaces/other/workloadviews");
    assert_eq!(names(&list("ann", all, "mine%3Dtrue").await.json()), ["w-a"]);
    assert_eq!(names(&list("tenant", own, "mine%3Dtrue,status%3Dall").await.json()), ["w-b"]);
    assert_eq!(names(&list("tenant", other, "mine%3Dtrue").await.json()), ["w-secret"]);
    assert!(names(&list("bob", all, "mine%3Dtrue").await.json()).is_empty());
    assert_eq!(list("tenant", all, "mine%3Dtrue").await.status, 403);
    assert_eq!(list("eve", own, "mine%3Dtrue").await.status, 403);
    let refused = list("ann", own, "mine%3Dfalse").await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("mine takes true alone"), "{}", refused.body);
}

#[tokio::test]
async fn only_our_processes_ask_by_the_private_path() {
    let views = Views::start().await;
    views.publish();
    views.leader.answers.store(true, Ordering::Relaxed);
    let question = Question::Verdict(VerdictQuestion {
        access: Access::to_namespace("ns", TenantDetail::Sums),
        workload: WorkloadName::parse("w-a", "ns"),
        before: None,
        queue: None,
        priority: None,
    });
    let body = json!(question).to_string();
    let ask = async |token: &str, body: &str| {
        let header = format!("Bearer {token}");
        let headers = [("authorization", header.as_str()), ("content-type", "application/json")];
        views.server.send("POST", QUESTIONS_PATH, (None, &headers), body).await
    };
    let own = format!("{AUDIENCE}={ACCOUNT}");
    let answer = ask(&own, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(matches!(serde_json::from_str(&answer.body).unwrap(), LeaderAnswer::Verdict(_)));
    assert_eq!(*views.leader.asked.lock().unwrap(), [question]);
    for token in [
        format!("{AUDIENCE}=system:serviceaccount:kueue-system:default"),
        format!("{AUDIENCE}=system:serviceaccount:other:kueue-controller-manager"),
        format!("https://kubernetes.default.svc={ACCOUNT}"),
        format!("{AUDIENCE}=admin"),
        "nothing".to_owned(),
    ] {
        assert_eq!(ask(&token, &body).await.status, 403, "{}", token.chars().take(80).collect::<String>());
    }
    let without = views.server.send("POST", QUESTIONS_PATH, (None, &[]), &body).await;
    assert_eq!(without.status, 403);
    // The API server's certificate opens nothing here.
    let user = [("x-remote-user", "ann")];
    assert_eq!(
        views.server.send("POST", QUESTIONS_PATH, (Some(&views.proxy), &user), &body).await.status,
        403
    );
    assert_eq!(
        views.server.get(QUESTIONS_PATH, None, &[("authorization", &format!("Bearer {own}"))]).await.status,
        405
    );
    for body in ["{", "{\"verdict\": 1}", &"x".repeat(70_000)] {
        assert_eq!(ask(&own, body).await.status, 400);
    }
    views.leads.store(false, Ordering::Relaxed);
    assert_eq!(
        ask(&own, &body).await.status,
        503,
        "a replica that does not lead does not answer for the leader"
    );
    assert_eq!(views.leader.asked.lock().unwrap().len(), 1);
    // Each replica tells its own history; what another one recorded, and since when, is for the leader.
    let lines = |is_own: bool| {
        let topic = HistoryTopic::Lines(LineTopic { cluster_queue: None, points: 1 });
        Question::History(HistoryQuestion { access: Access::everything(), topic, own: is_own })
    };
    let report = RingReport {
        replica: "m-2".to_owned(),
        address: "10.0.0.1:8082".to_owned(),
        from: jiff::Timestamp::UNIX_EPOCH,
    };
    views.leader.answers.store(false, Ordering::Relaxed);
    for (question, status) in [(lines(true), 429), (lines(false), 503), (Question::Ring(report), 503)] {
        let body = serde_json::to_string(&question).unwrap();
        assert_eq!(ask(&own, &body).await.status, status, "{body}");
    }
}
