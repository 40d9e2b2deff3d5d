//! How a follower asks the leader: which certificates and addresses it trusts, and what becomes of a call to one that hangs or ends.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use crate::shell::visibility::{Server, clients};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sluice::kube::leader_call::{LeaderCall, LeaderCallError, LeaderCallSettings};
use sluice::kube::lease::{ADDRESS_ANNOTATION, LeaseHolder};
use sluice::server::apis::questions::{
    AUDIENCE, AnswerQuestions, PrivatePath, QUESTIONS_PATH, TokenReviewer,
};
use sluice::visibility::questions::{LeaderAnswer, Question};
use sluice::visibility::views::{Answer, ManagerView, Source};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ACCOUNT: &str = "system:serviceaccount:kueue-system:kueue-controller-manager";
const HOST: &str = "kueue-visibility-server.kueue-system.svc";

struct Leader;

impl AnswerQuestions for Leader {
    fn answer(&self, _: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let answer = Answer { view: ManagerView::default(), source: Source::default(), partial: false };
        Box::pin(async move { Some(LeaderAnswer::Manager(Box::new(answer))) })
    }
}

async fn leader() -> Server {
    Server::start_with(
        Box::new(|_, _| Vec::new()),
        Box::new(|caller| {
            Some(Arc::new(PrivatePath {
                reviewer: TokenReviewer::new(caller, vec![ACCOUNT.to_owned()]),
                leads: Arc::new(|| true),
                local: Arc::new(Leader),
            }))
        }),
    )
    .await
}

/// A follower whose webhooks trust this authority, which has this token.
struct Follower {
    call: LeaderCall,
    holder: Arc<LeaseHolder>,
    token_file: PathBuf,
}

impl Follower {
    async fn new(authority: &str, (token, server_name): (&str, &str)) -> Self {
        let bundle = STANDARD.encode(authority);
        let object = json!({"webhooks": [{"clientConfig": {"caBundle": bundle}}]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/webhooks";
        let router = Router::new().route(path, axum::routing::get(async move || Json(object)));
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(socket, router).await });
        let token_file = std::env::temp_dir().join(format!("leader-token-{}", address.port()));
        std::fs::write(&token_file, token).unwrap();
        let settings = LeaderCallSettings {
            server_name: server_name.to_owned(),
            validating: "webhooks".to_owned(),
            token_file: token_file.clone(),
            path: QUESTIONS_PATH,
        };
        let (caller, holder) = (clients(&format!("http://{address}")).await.call, Arc::default());
        Self { call: LeaderCall::new(&caller, settings, Arc::clone(&holder)), holder, token_file }
    }

    fn sees_leader_at(&self, address: &str) {
        self.sees_lease("m-1", &json!({"holder": "m-1", "address": address}).to_string());
    }

    fn sees_lease(&self, holder: &str, annotation: &str) {
        let lease = json!({"metadata": {"annotations": {ADDRESS_ANNOTATION: annotation}}, "spec": {"holderIdentity": holder}});
        self.holder.read_address(&lease);
    }

    async fn ask(&self) -> Result<Value, LeaderCallError> {
        self.call.ask(&Question::Manager).await
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.token_file);
    }
}

fn own_token() -> String {
    format!("{AUDIENCE}={ACCOUNT}")
}

#[tokio::test]
async fn a_leader_with_our_certificate_is_asked() {
    let leader = leader().await;
    let follower = Follower::new(&leader.authority, (&own_token(), HOST)).await;
    assert!(matches!(follower.ask().await, Err(LeaderCallError::NoAddress)), "no Lease was seen");
    follower.sees_leader_at(&leader.address.to_string());
    for _ in 0..2 {
        let answer = follower.ask().await.unwrap();
        assert!(matches!(serde_json::from_value(answer).unwrap(), LeaderAnswer::Manager(_)));
    }
    // Another controller took the Lease over and kept the annotation.
    follower
        .sees_lease("other", &json!({"holder": "m-1", "address": leader.address.to_string()}).to_string());
    assert!(matches!(follower.ask().await, Err(LeaderCallError::NoAddress)), "a stale address");
}

#[tokio::test]
async fn other_certificates_and_tokens_are_refused() {
    let (leader, other) = (leader().await, leader().await);
    let address = leader.address.to_string();
    for (what, authority, token, name) in [
        ("another authority", &other.authority, own_token(), HOST),
        ("another name", &leader.authority, own_token(), "kueue-webhook-service.kueue-system.svc"),
        (
            "another account",
            &leader.authority,
            format!("{AUDIENCE}=system:serviceaccount:kueue-system:default"),
            HOST,
        ),
        ("another audience", &leader.authority, format!("https://kubernetes.default.svc={ACCOUNT}"), HOST),
        ("a user", &leader.authority, format!("{AUDIENCE}=admin"), HOST),
    ] {
        let follower = Follower::new(authority, (&token, name)).await;
        follower.sees_leader_at(&address);
        assert!(matches!(follower.ask().await, Err(LeaderCallError::Call(_))), "{what}");
    }
    let follower = Follower::new(&leader.authority, (&own_token(), HOST)).await;
    follower.sees_leader_at(&address);
    std::fs::remove_file(&follower.token_file).unwrap();
    assert!(
        matches!(follower.ask().await, Err(LeaderCallError::Token(_))),
        "without a token nothing is sent"
    );
}

/// A leader that ends or hangs in the middle of a call costs its timeout, and the next one is asked afresh.
#[tokio::test]
async fn a_leader_that_dies_in_a_call_is_given_up() {
    let leader = leader().await;
    let follower = Follower::new(&leader.authority, (&own_token(), HOST)).await;
    for hangs in [false, true] {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                if hangs {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                }
                drop(stream);
            }
        });
        follower.sees_leader_at(&address.to_string());
        let began = Instant::now();
        assert!(matches!(follower.ask().await, Err(LeaderCallError::Call(_))));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    follower.sees_leader_at(&leader.address.to_string());
    assert!(follower.ask().await.is_ok());
}
