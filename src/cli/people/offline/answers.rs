//! Views from the state of this process, made by the server's own code.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::kube::Client;
use arc_swap::ArcSwap;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::kube::client::Caller;
use crate::scheduler::{CapacityQuestion, CapacityReport};
use crate::server::apis;
use crate::server::apis::access::AccessReviewer;
use crate::server::apis::capacity::{AskCapacity, CapacityCache};
use crate::server::apis::front_proxy::User;
use crate::server::apis::question_rate::QuestionRate;
use crate::server::apis::questions::AnswerQuestions;
use crate::server::apis::views::{AskAudit, AuditCache, ViewsGroup};
use crate::snapshot::{AuditFacts, JobName, NoWorkload};
use crate::visibility::access::TenantDetail;
use crate::visibility::offline::OfflineState;
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::views::{Answer, Source, Verdict, WorkloadView};

use super::Missing;
use crate::cli::people::source::VIEWS;

/// Path of the group.
pub(super) const GROUP_PATH: &str = "/apis/visibility.sluice.dev/";
/// Timeout of a review, which this process itself answers at once.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers for the group of views.
pub(super) struct Answers {
    group: ViewsGroup,
    source: Source,
    is_partial: bool,
}

/// The state, including the engine that explains decisions.
struct State {
    offline: Mutex<OfflineState>,
    source: Source,
    missing: Missing,
}

impl AnswerQuestions for State {
    fn answer(&self, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let answer = match question {
            Question::Verdict(question) => {
                let verdict = self.offline().verdict(&question);
                Some(match verdict {
                    Ok(view) => LeaderAnswer::Verdict(Box::new(Answer {
                        view: if self.missing.decisive { condition_alone(view) } else { view },
                        source: self.source.clone(),
                        partial: self.missing.any,
                    })),
                    Err(error) => LeaderAnswer::Refused(error),
                })
            }
            // This process has no manager, so only verdicts are answered.
            _ => None,
        };
        Box::pin(std::future::ready(answer))
    }
}

impl State {
    fn offline(&self) -> MutexGuard<'_, OfflineState> {
        self.offline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AskCapacity for State {
    fn capacity(&self, question: CapacityQuestion) -> BoxFuture<'static, Option<CapacityReport>> {
        let report = self.offline().capacity(&question);
        Box::pin(std::future::ready(Some(report)))
    }
}

impl AskAudit for State {
    fn audit_facts(&self) -> BoxFuture<'static, Option<AuditFacts>> {
        let facts = self.offline().audit_facts();
        Box::pin(std::future::ready(Some(facts)))
    }

    fn why_no_workload(&self, job: JobName) -> BoxFuture<'static, Option<NoWorkload>> {
        Box::pin(std::future::ready(self.offline().why_no_workload(&job)))
    }
}

impl Answers {
    pub(super) fn new(offline: OfflineState, source: Source, missing: Missing) -> Self {
        let published = Arc::new(ArcSwap::from_pointee(offline.snapshot().clone()));
        let state = Arc::new(State { offline: Mutex::new(offline), source: source.clone(), missing });
        let group = ViewsGroup {
            published,
            access: AccessReviewer::new(&Caller::new(permitting(), REVIEW_TIMEOUT)),
            leader: Arc::<State>::clone(&state),
            rate: Arc::new(QuestionRate::default()),
            audits: Arc::new(AuditCache::new(Arc::<State>::clone(&state)).as_of(source.time)),
            capacity: Arc::new(CapacityCache::new(state)),
            // `why --when` computes it in this process as well.
            estimates: None,
            heard_until: Arc::new(|| None),
            replica: source.replica.clone(),
            tenant_detail: TenantDetail::default(),
        };
        Self { group, source, is_partial: missing.any }
    }

    /// Answers a request below the path of the group.
    pub(super) async fn respond(&self, request: Request<Body>) -> Response<Body> {
        // The version itself: clients read it to distinguish a missing object from a missing group.
        if request.uri().path().trim_end_matches('/') == VIEWS {
            return Response::new(Body::from("{}"));
        }
        let response = apis::answer_as(&self.group, User::default(), request).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else {
            return Response::from_parts(parts, Body::from(bytes));
        };
        // The group's answer names a manager as its source.
        if let Some(fields) = answer.as_object_mut()
            && fields.contains_key("source")
        {
            fields.insert("source".to_owned(), json!(self.source));
            if self.is_partial {
                fields.insert("partial".to_owned(), json!(true));
            }
        }
        let mut headers = parts;
        headers.headers.remove(http::header::CONTENT_LENGTH);
        Response::from_parts(headers, Body::from(answer.to_string()))
    }
}

/// Returns the verdict with the message of the Workload's condition alone, without the engine's findings, which lack the unread
/// objects.
fn condition_alone(verdict: Verdict) -> Verdict {
    Verdict {
        workload: WorkloadView { position: None, first_blocker: None, ..verdict.workload },
        before: verdict.before,
        history: verdict.history,
        checks: verdict.checks,
        admission: verdict.admission,
        ..Verdict::default()
    }
}

/// Returns a client whose reviews allow everything: the user may see all that this process could read.
fn permitting() -> Client {
    let service = tower::service_fn(|_: Request<::kube::client::Body>| async {
        let review = json!({"status": {"allowed": true}});
        Ok::<_, tower::BoxError>(Response::new(Body::from(review.to_string())))
    });
    Client::new(service, "default")
}
