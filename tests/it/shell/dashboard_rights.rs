//! The dashboard over HTTP: signing in, rights, and forms of other places.

use crate::fixtures::dashboard_server::{Answer, Fixture, HOST, asked, stream};
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::Value;
use sluice::dashboard::PageQuestion;
use sluice::visibility::access::{Access, TenantDetail};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const OWN: [(&str, &str); 2] = [("origin", "https://sluice.example:8443"), ("sec-fetch-site", "same-origin")];

impl Fixture {
    async fn sign_in(&self, form: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::post("/login").header("host", HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(form.to_owned())).unwrap()).await
    }
}

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

/// A viewer of a namespace asks only about changes that it may make itself. A role may name the job.
#[tokio::test]
async fn a_tenant_asks_about_changes_that_it_may_make() {
    let delete = "/what-if?ns=nlp-train&delete=job%2Fllama-ft";
    let of_workload = "/what-if?ns=nlp-train&delete=workload%2Fjob-llama-ft-7c2-4b1d9";
    let submit = "/what-if?ns=nlp-train&queue=train&pod=cpu%3D1";
    let right = "delete jobs.batch llama-ft";
    for (address, token, denied, missing) in [
        (delete, "tenant", vec![], ""),
        (delete, "tenant", vec!["delete "], ""),
        (delete, "tenant", vec!["delete ", "delete llama-ft"], right),
        (of_workload, "tenant", vec!["delete ", "delete llama-ft"], right),
        (of_workload, "tenant", vec!["delete ", "patch "], ""),
        (submit, "tenant", vec!["delete "], ""),
        (submit, "tenant", vec!["create "], "create jobs.batch"),
        (delete, "admin", vec!["delete ", "delete llama-ft"], ""),
    ] {
        let fixture = Fixture::new("/");
        fixture.server.denies.lock().unwrap().extend(&denied);
        for form in ["html", "json"] {
            let answer = fixture.get(&format!("{address}&o={form}"), token, &[]).await;
            let is_asked = !fixture.recorded.asked.lock().unwrap().is_empty();
            let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::FORBIDDEN };
            assert_eq!((answer.status, is_asked), (status, missing.is_empty()), "{address}: {}", answer.body);
            let said = format!("you have no right to {missing} in namespace nlp-train");
            assert_eq!(answer.body.contains(&said), !missing.is_empty(), "{address}: {}", answer.body);
        }
    }
    let fixture = Fixture::new("/");
    for job in ["a", "b", "a"] {
        let address = format!("/what-if?ns=nlp-train&delete=job%2F{job}");
        assert_eq!(fixture.get(&address, "tenant", &[]).await.status, StatusCode::OK);
    }
    // Of the cluster, of the namespace, and of the jobs in it.
    assert_eq!(fixture.server.access_reviews.load(Ordering::SeqCst), 3);
}

/// A viewer without the view of the cluster starts at what it submitted, and sees of it what it may read: no name of another namespace.
#[tokio::test]
async fn a_tenant_starts_at_what_it_submitted() {
    let fixture = Fixture::new("/");
    let own = |names: &[&str]| {
        *fixture.recorded.own.lock().unwrap() = Some(names.iter().map(ToString::to_string).collect());
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
    *fixture.recorded.own.lock().unwrap() = None;
    assert_eq!(fixture.get("/", "tenant", &[]).await.status, StatusCode::FORBIDDEN);
}

/// The start page of a viewer that has submitted nothing is that of one that may not read where it did: neither has a row.
#[tokio::test]
async fn a_tenant_without_rows_has_a_start_page() {
    let fixture = Fixture::new("/");
    for names in [&["secret-team"][..], &[]] {
        *fixture.recorded.own.lock().unwrap() = Some(names.iter().map(ToString::to_string).collect());
        for (path, status) in [
            ("/", 303),
            ("/mine", 200),
            ("/mine?o=json", 200),
            ("/?o=json", 403),
            ("/pending", 403),
            ("/mine?ns=secret-team", 403),
        ] {
            let answer = fixture.get(path, "tenant", &[]).await;
            assert_eq!(answer.status.as_u16(), status, "{path} of {names:?}");
            assert!(path.contains("secret-team") || !answer.body.contains("secret-team"), "{path}");
        }
        let (status, _) = stream(&fixture, "/events?page=%2Fmine", "tenant").await;
        assert_eq!(status, StatusCode::OK, "{names:?}");
    }
    let questions = fixture.recorded.asked.lock().unwrap().clone();
    let nothing = Access { tenant_detail: TenantDetail::None, ..Access::default() };
    assert!(!questions.is_empty() && questions.iter().all(|(_, access)| *access == nothing), "{questions:?}");
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
