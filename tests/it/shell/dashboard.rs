//! The dashboard over HTTP against a scripted API server: signing in, rights, forms of other places, headers, forms of answers, streams.

use crate::fixtures::recorded_pages::{self, RecordedPage};
use crate::fixtures::scripted_client::scripted_client_with_body;
use axum::Router;
use axum::body::Body;
use flate2::read::GzDecoder;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sluice::dashboard::{Freshness, Links, PageQuestion};
use sluice::kube::client::{Caller, Rate};
use sluice::server::dashboard::models::{Answering, Models, NoValue, Value as PageValue};
use sluice::server::dashboard::{Settings, router};
use sluice::server::user_authorizer::UserAuthorizer;
use sluice::snapshot::JobName;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::questions::WorkloadName;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tower::ServiceExt as _;

const HOST: &str = "sluice.example:8443";

/// Recorded values, and the accesses with which they were asked for.
#[derive(Default)]
struct Recorded {
    version: AtomicU64,
    asked: Mutex<Vec<(PageQuestion, Access)>>,
    pending: Mutex<Option<u64>>,
    /// Namespaces in which each user has submitted something; submitters are not known if there are none.
    own: Mutex<Vec<String>>,
}

/// What an address asks for.
fn asked(address: &str) -> PageQuestion {
    PageQuestion::parse(address).unwrap().0
}

impl Recorded {
    /// Returns the value of a page; of the start page, with the number of pending workloads that a test has set.
    fn page(&self, page: &RecordedPage) -> PageValue {
        let mut value = page.value().unwrap();
        if let (Some(pending), "overview") = (*self.pending.lock().unwrap(), page.name) {
            value["pending"] = pending.into();
        }
        PageValue::Page(page.with(value).unwrap())
    }
}

impl Models for Recorded {
    fn version(&self) -> (String, u64) {
        ("recorded".to_owned(), self.version.load(Ordering::SeqCst))
    }

    fn freshness(&self) -> Freshness {
        Freshness::Live
    }

    fn reads_submitters(&self) -> bool {
        !self.own.lock().unwrap().is_empty()
    }

    fn own_namespaces(&self, _: &str) -> Vec<String> {
        self.own.lock().unwrap().clone()
    }

    fn answer(&self, question: PageQuestion, access: Access) -> Answering<'_> {
        self.asked.lock().unwrap().push((question.clone(), access));
        let found = match (recorded_pages::answering(&question), question) {
            (Some(page), _) => Ok(self.page(page)),
            (None, PageQuestion::Job(JobName { namespace, name, .. })) => {
                Ok(PageValue::Redirect(PageQuestion::Workload(WorkloadName { namespace, name })))
            }
            (None, PageQuestion::Overview(_)) => Err(NoValue::NotSynced { progress: "Starting.".to_owned() }),
            (None, question) => Err(NoValue::NotFound {
                text: format!("There is no {}.", question.page().object()),
                similar: vec![("nlp".to_owned(), asked("/clusterqueues/nlp"))],
            }),
        };
        Box::pin(async move { found })
    }
}

/// Counts of reviews, and users without their rights.
#[derive(Default)]
struct Server {
    token_reviews: AtomicU64,
    access_reviews: AtomicU64,
    revoked: Mutex<bool>,
}

impl Server {
    /// The admin sees the cluster, the tenant the namespace nlp-train; the token of another audience belongs to the admin.
    fn respond(&self, uri: &str, body: &Value) -> (u16, Value) {
        if uri.contains("tokenreviews") {
            self.token_reviews.fetch_add(1, Ordering::SeqCst);
            let token = body["spec"]["token"].as_str().unwrap_or_default();
            let (user, audience) = match token {
                "admin" => ("ml-admin", "sluice-dashboard"),
                "tenant" => ("system:serviceaccount:nlp-train:nlp-user", "sluice-dashboard"),
                "other-audience" => ("ml-admin", "https://kubernetes.default.svc"),
                _ if token.len() > 3_000 => ("ml-admin", "sluice-dashboard"),
                _ => return (201, json!({"status": {"authenticated": false}})),
            };
            let user = json!({"username": user, "groups": ["g"], "extra": {"k": ["v"]}});
            return (201, json!({"status": {"authenticated": true, "user": user, "audiences": [audience]}}));
        }
        self.access_reviews.fetch_add(1, Ordering::SeqCst);
        let (spec, attributes) = (&body["spec"], &body["spec"]["resourceAttributes"]);
        assert_eq!(attributes["group"], "visibility.sluice.dev");
        assert_eq!((&attributes["verb"], &spec["groups"]), (&json!("list"), &json!(["g"])));
        let whole = spec["user"] == "ml-admin";
        let tenant = attributes["resource"] == "workloadviews" && attributes["namespace"] == "nlp-train";
        let allowed = (whole || tenant) && !*self.revoked.lock().unwrap();
        (201, json!({"status": {"allowed": allowed}}))
    }
}

struct Fixture {
    server: Arc<Server>,
    recorded: Arc<Recorded>,
    router: Router,
    retire: watch::Sender<bool>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Fixture {
    fn new(prefix: &str) -> Self {
        let (server, recorded) = (Arc::<Server>::default(), Arc::<Recorded>::default());
        let scripted = Arc::clone(&server);
        let (client, _) = scripted_client_with_body(move |_, uri, body| scripted.respond(uri, body));
        let exhausted = Rate { per_second: 0.0, burst: 1.0 };
        let caller = Caller::new(client, Duration::from_secs(5)).with_rate(Some(exhausted));
        let (retire, retiring) = watch::channel(false);
        let router = router(Settings {
            links: Links::below(prefix).unwrap(),
            authorizer: UserAuthorizer::new(&caller, "sluice-dashboard"),
            models: recorded.clone(),
            tenant_detail: TenantDetail::None,
            objects: None,
            retiring,
        });
        Self { server, recorded, router, retire }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = if parts.headers.contains_key("content-encoding") {
            let mut text = String::new();
            GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
            text
        } else {
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// Asks with a token in the cookie, and more headers.
    async fn get(&self, path: &str, token: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::get(path).header("host", HOST);
        if !token.is_empty() {
            request = request.header("cookie", format!("__Host-sluice={token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn sign_in(&self, form: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::post("/login").header("host", HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(form.to_owned())).unwrap()).await
    }
}

const OWN: [(&str, &str); 2] = [("origin", "https://sluice.example:8443"), ("sec-fetch-site", "same-origin")];

#[tokio::test]
async fn pages_need_a_token_for_the_audience() {
    let fixture = Fixture::new("/");
    for token in ["", "junk", "other-audience"] {
        for path in ["/", "/pending", "/workloads/a/b", "/none", "/clusterqueues/x"] {
            let answer = fixture.get(path, token, &[]).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {token}");
            assert!(
                answer.body.contains("kubectl create token ACCOUNT -n NAMESPACE --audience=sluice-dashboard"),
                "{path}"
            );
            assert!(answer.body.contains(&format!("name=\"next\" value=\"{path}\"")), "{path}");
            assert_eq!(answer.body.contains("The token is not valid"), !token.is_empty());
        }
        let json = fixture.get("/pending?o=json", token, &[]).await;
        assert_eq!(json.status, StatusCode::UNAUTHORIZED);
        assert_eq!(serde_json::from_str::<Value>(&json.body).unwrap()["reason"], "Unauthorized");
    }
    assert!(fixture.recorded.asked.lock().unwrap().is_empty(), "no model was asked");
    let bearer = fixture.get("/", "", &[("authorization", "Bearer admin")]).await;
    assert_eq!(bearer.status, StatusCode::OK);
    assert_eq!(fixture.get("/healthz", "", &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn access_is_that_of_the_user_and_few_reviews_are_made() {
    let fixture = Fixture::new("/");
    let page = fixture.get("/namespaces/nlp-train", "tenant", &[]).await;
    assert_eq!(page.status, StatusCode::OK);
    for number in 0..200 {
        let path = format!("/namespaces/ns-{}", number % 2);
        assert_eq!(fixture.get(&path, "tenant", &[]).await.status, StatusCode::FORBIDDEN);
    }
    for (path, right) in [
        ("/", "list clusterqueueviews"),
        ("/pending", "list clusterqueueviews"),
        ("/clusterqueues/nlp", "list clusterqueueviews"),
        ("/preemptions", "list clusterqueueviews"),
        ("/preemptions?ns=rank", "list workloadviews"),
        ("/workloads/rank/w", "list workloadviews"),
    ] {
        let answer = fixture.get(path, "tenant", &[]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.body.contains(right), "{path}");
        assert!(answer.body.contains("--serviceaccount=nlp-train:nlp-user"), "{path}");
        let json = fixture.get(path, "tenant", &[("accept", "application/json")]).await;
        let status: Value = serde_json::from_str(&json.body).unwrap();
        assert!(status["message"].as_str().unwrap().contains(right), "{status}");
    }
    let questions = fixture.recorded.asked.lock().unwrap().clone();
    let expected = Access::to_namespace("nlp-train", TenantDetail::None);
    assert_eq!(questions, [(asked("/namespaces/nlp-train"), expected)]);
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    assert_eq!(count(&fixture.server.token_reviews), 1);
    // Of the cluster, and of each of four namespaces that were asked for.
    assert_eq!(count(&fixture.server.access_reviews), 5);
    fixture.get("/workloads/rank/w", "admin", &[]).await;
    let (_, access) = fixture.recorded.asked.lock().unwrap().last().cloned().unwrap();
    assert!(access.cluster && access.sees("rank"));
}

/// A viewer without the view of the cluster starts at what it submitted, and sees of it what it may read: no name of another namespace.
#[tokio::test]
async fn a_tenant_starts_at_what_it_submitted() {
    let fixture = Fixture::new("/");
    let own = |names: &[&str]| {
        *fixture.recorded.own.lock().unwrap() = names.iter().map(ToString::to_string).collect()
    };
    own(&["secret-team", "nlp-train"]);
    let start = fixture.get("/", "tenant", &[]).await;
    assert_eq!(
        (start.status, &start.headers["location"]),
        (StatusCode::SEE_OTHER, &"/mine".parse().unwrap())
    );
    assert_eq!(fixture.get("/?o=json", "tenant", &[]).await.status, StatusCode::FORBIDDEN);
    let page = fixture.get("/mine", "tenant", &[]).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    assert!(!page.body.contains("secret-team"));
    let (status, _) = stream(&fixture, "/events?page=%2Fmine", "tenant").await;
    assert_eq!(status, StatusCode::OK);
    let user = "system:serviceaccount:nlp-train:nlp-user";
    let access = Access::to_namespace("nlp-train", TenantDetail::None);
    let questions = fixture.recorded.asked.lock().unwrap().clone();
    assert!(
        !questions.is_empty()
            && questions
                .iter()
                .all(|asked| *asked == (PageQuestion::mine().for_viewer(user), access.clone()))
    );
    // The admin has another page, although the address is the same.
    assert_eq!(fixture.get("/", "admin", &[]).await.status, StatusCode::OK);
    assert_eq!(fixture.get("/mine", "admin", &[]).await.status, StatusCode::OK);
    let (last, access) = fixture.recorded.asked.lock().unwrap().last().cloned().unwrap();
    assert_eq!((last.viewer(), access.cluster), ("ml-admin", true));
    assert_eq!(fixture.get("/mine?ns=secret-team", "tenant", &[]).await.status, StatusCode::FORBIDDEN);
    own(&["secret-team"]);
    for (path, status) in
        [("/", 403), ("/mine", 403), ("/mine?ns=nlp-train", 200), ("/events?page=%2Fmine", 403)]
    {
        let answer = fixture.get(path, "tenant", &[]).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert!(!answer.body.contains("secret-team"), "{path}");
    }
    own(&[]);
    assert_eq!(fixture.get("/", "tenant", &[]).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn junk_tokens_do_not_delay_a_user() {
    let fixture = Fixture::new("/");
    assert_eq!(fixture.get("/", "admin", &[]).await.status, StatusCode::OK);
    let junk = futures::future::join_all((0..200).map(|number| {
        let fixture = &fixture;
        async move { fixture.get("/", &format!("junk-{number}"), &[]).await.status }
    }));
    let (_, good) = tokio::join!(tokio::time::timeout(Duration::from_millis(300), junk), async {
        fixture.get("/pending", "admin", &[]).await.status
    });
    assert_eq!(good, StatusCode::OK);
    let reviewed = fixture.server.token_reviews.load(Ordering::SeqCst);
    assert!(reviewed <= 40, "{reviewed} reviews");
}

#[tokio::test]
async fn forms_of_other_places_are_refused() {
    let fixture = Fixture::new("/");
    let own = OWN[0];
    for headers in [
        &[][..],
        &[("origin", "null")],
        &[("origin", "https://evil.example")],
        &[own, ("sec-fetch-site", "cross-site")],
        &[own, ("sec-fetch-site", "same-site")],
    ] {
        let answer = fixture.sign_in("token=admin&next=%2F", headers).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
        assert!(!answer.headers.contains_key("set-cookie"), "{headers:?}");
        let request = Request::post("/logout").header("host", HOST);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = fixture.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    assert_eq!(fixture.server.token_reviews.load(Ordering::SeqCst), 0);
    for path in ["/", "/pending", "/logout"] {
        let request = Request::delete(path).header("host", HOST).body(Body::empty()).unwrap();
        assert_eq!(fixture.send(request).await.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

#[tokio::test]
async fn signing_in_keeps_the_token_and_goes_on() {
    let fixture = Fixture::new("/");
    for (token, next, cookies) in
        [("admin".to_owned(), "/pending?cq=nlp", 2), ("x".repeat(3_686), "/", 2), ("x".repeat(7_066), "/", 2)]
    {
        let form = format!("token={token}&next={}", sluice::dashboard::encode(next));
        let answer = fixture.sign_in(&form, &OWN).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{} bytes: {}", token.len(), answer.body);
        assert_eq!(answer.headers["location"], next);
        let kept: Vec<&str> =
            answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(kept.len(), cookies);
        let pairs: Vec<&str> = kept.iter().map(|text| text.split(';').next().unwrap()).collect();
        let returned = fixture.get(next, "", &[("cookie", &pairs.join("; "))]).await;
        assert_eq!(returned.status, StatusCode::OK, "{} bytes", token.len());
    }
    let large = fixture.sign_in(&format!("token={}", "x".repeat(7_270)), &OWN).await;
    assert_eq!(large.status, StatusCode::BAD_REQUEST);
    assert!(large.body.contains("token too large for cookies: 7.1 kB, at most 7 kB"), "{}", large.body);
    let evil = fixture.sign_in("token=admin&next=%2F%2Fevil.example", &OWN).await;
    assert_eq!(evil.headers["location"], "/");
    let wrong = fixture.sign_in("token=marker-of-a-token&next=%2Fpending", &OWN).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(!wrong.body.contains("marker-of-a-token") && wrong.body.contains("value=\"/pending\""));
    let out = Request::post("/logout").header("host", HOST).header(OWN[0].0, OWN[0].1);
    let out = fixture.send(out.body(Body::empty()).unwrap()).await;
    assert_eq!((out.status, &out.headers["location"]), (StatusCode::SEE_OTHER, &"/login".parse().unwrap()));
    assert!(
        out.headers.get_all("set-cookie").iter().all(|value| value.to_str().unwrap().contains("Max-Age=0"))
    );
}

#[tokio::test]
async fn every_answer_has_strict_headers() {
    let fixture = Fixture::new("/a/b");
    let mut seen = BTreeMap::new();
    for (path, token) in [
        ("/a/b", "admin"),
        ("/a/b/", "admin"),
        ("/a/b/pending", "admin"),
        ("/a/b/pending?o=csv", "admin"),
        ("/a/b/pending?limit=x", "admin"),
        ("/a/b/none", "admin"),
        ("/a/b/cohorts/x", "admin"),
        ("/a/b/", ""),
        ("/a/b/login", ""),
        ("/a/b/healthz", ""),
        ("/", "admin"),
        ("/pending", "admin"),
        ("/a/b/events", "admin"),
    ] {
        let cookie = format!("__Secure-sluice={token}");
        let answer = fixture.get(path, "", &[("cookie", &cookie)]).await;
        let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert!(header("content-security-policy").unwrap().contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(header("x-content-type-options").unwrap(), "nosniff", "{path}");
        assert_eq!(header("cache-control").unwrap(), "no-store", "{path}");
        assert_eq!(header("referrer-policy").unwrap(), "same-origin", "{path}");
        assert_eq!(header("access-control-allow-origin"), None, "{path}");
        seen.insert((path, token), answer.status.as_u16());
    }
    let expected = BTreeMap::from([
        (("/a/b", "admin"), 200),
        (("/a/b/", "admin"), 200),
        (("/a/b/pending", "admin"), 200),
        (("/a/b/pending?o=csv", "admin"), 200),
        (("/a/b/pending?limit=x", "admin"), 400),
        (("/a/b/none", "admin"), 404),
        (("/a/b/cohorts/x", "admin"), 503),
        (("/a/b/", ""), 401),
        (("/a/b/login", ""), 200),
        (("/a/b/healthz", ""), 200),
        (("/", "admin"), 404),
        (("/pending", "admin"), 404),
        (("/a/b/events", "admin"), 400),
    ]);
    assert_eq!(seen, expected);
    let page = fixture.get("/a/b/", "", &[("cookie", "__Secure-sluice=admin")]).await;
    let style = page.body.split('"').find(|text| text.ends_with("sluice.css")).unwrap();
    let style = fixture.get(style, "", &[]).await;
    assert_eq!(style.headers["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(style.headers["content-type"], "text/css; charset=utf-8");
}

#[tokio::test]
async fn answers_have_the_form_that_was_asked_for() {
    let fixture = Fixture::new("/");
    let plain = fixture.get("/", "admin", &[]).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let packed = fixture.get("/", "admin", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let length: usize = packed.headers["content-length"].to_str().unwrap().parse().unwrap();
    assert!(length < 64 << 10 && length * 3 < plain.body.len(), "{length} of {}", plain.body.len());
    for headers in [&[("accept", "application/json")][..], &[]] {
        let path = if headers.is_empty() { "/pending?o=json" } else { "/pending" };
        let answer = fixture.get(path, "admin", headers).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(value["items"].as_array().unwrap().len(), 12);
    }
    let csv = fixture.get("/pending?o=csv", "admin", &[]).await;
    assert_eq!(
        (csv.headers["content-type"].to_str().unwrap(), csv.body.lines().count()),
        ("text/csv; charset=utf-8", 13)
    );
    let csv = fixture.get("/preemptions?o=csv", "admin", &[]).await;
    assert!(csv.body.starts_with("time,victim_namespace,") && csv.body.lines().count() == 4, "{}", csv.body);
    assert_eq!(fixture.get("/?o=csv", "admin", &[]).await.status, StatusCode::BAD_REQUEST);
    let job = fixture.get("/jobs/nlp-train/job/x", "admin", &[]).await;
    assert_eq!(
        (job.status, job.headers["location"].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/workloads/nlp-train/x")
    );
    let missing = fixture.get("/clusterqueues/nlpx", "admin", &[]).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.body.contains("href=\"/clusterqueues/nlp\""));
    assert!(missing.body.contains("There is no ClusterQueue nlpx."), "{}", missing.body);
    let missing = fixture.get("/clusterqueues/nlpx?o=json", "admin", &[]).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.body.contains("There is no ClusterQueue nlpx. Similar: nlp."), "{}", missing.body);
    let starting = fixture.get("/cohorts/x", "admin", &[]).await;
    assert_eq!(
        (starting.status, &starting.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"5".parse().unwrap())
    );
    let typed = fixture.get("/namespaces?ns=nlp-train", "tenant", &[]).await;
    assert_eq!(typed.headers["location"], "/namespaces/nlp-train");
}

/// Reads events of a stream until one of this name.
async fn next_event(body: &mut Body, name: &str) -> String {
    let reading = async {
        loop {
            let frame = body.frame().await.expect("an event").unwrap();
            let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
            if text.contains(&format!("event: {name}\n")) {
                return text;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(2), reading).await.unwrap()
}

async fn stream(fixture: &Fixture, path: &str, token: &str) -> (StatusCode, Body) {
    let request = Request::get(path).header("cookie", format!("__Host-sluice={token}"));
    let response = fixture.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    (response.status(), response.into_body())
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_what_changed_until_the_right_ends() {
    let fixture = Fixture::new("/");
    let (status, mut body) = stream(&fixture, "/events?page=%2F", "admin").await;
    assert_eq!(status, StatusCode::OK);
    let first = next_event(&mut body, "swap").await;
    assert!(
        first.contains("id: recorded:0") && first.contains("\\\"facts\\\"") | first.contains("\"facts\"")
    );
    *fixture.recorded.pending.lock().unwrap() = Some(1_285);
    fixture.recorded.version.fetch_add(1, Ordering::SeqCst);
    let swap = next_event(&mut body, "swap").await;
    assert!(swap.contains("1,285") && swap.contains("\"lede\"") && !swap.contains("\"tree\""), "{swap}");
    next_event(&mut body, "beat").await;
    *fixture.server.revoked.lock().unwrap() = true;
    let begun = tokio::time::Instant::now();
    next_event(&mut body, "reload").await;
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert!(body.frame().await.is_none(), "the stream has ended");
    let (status, _) = stream(&fixture, "/events?page=%2F", "admin").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

/// Each rendering of such a page would cost a simulation.
#[tokio::test]
async fn a_page_without_updates_has_no_stream() {
    let fixture = Fixture::new("/");
    let page = "/events?page=%2Fwhat-if%3Fadd%3D2%26like%3Dh1";
    assert_eq!(stream(&fixture, page, "admin").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(stream(&fixture, page, "tenant").await.0, StatusCode::FORBIDDEN);
    assert!(fixture.recorded.asked.lock().unwrap().is_empty(), "nothing was computed");
    let answer = fixture.get("/what-if?add=2&like=h1&for=1h", "admin", &[]).await;
    assert!(answer.status == StatusCode::OK && !answer.body.contains("data-events"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_replica_that_retires_says_so() {
    let fixture = Fixture::new("/");
    let (_, mut body) = stream(&fixture, "/events?page=%2Fnamespaces%2Fnlp-train", "tenant").await;
    next_event(&mut body, "swap").await;
    fixture.retire.send_replace(true);
    next_event(&mut body, "bye").await;
    assert!(body.frame().await.is_none());
    for (path, token) in [("/events?page=%2F", "tenant"), ("/events?page=%2F", "")] {
        assert_eq!(stream(&fixture, path, token).await.0, StatusCode::FORBIDDEN);
    }
}
