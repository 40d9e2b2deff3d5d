//! The dashboard over HTTPS: signing in, pages, JSON and CSV, streams of updates.
//!
//! Invariants: nothing is shown before token and permission are reviewed; only signing in and out are POST requests, and both
//! are refused from another origin; tokens are in no log, error or stored value; addresses outside the path prefix are not
//! found.

mod answer;
mod changes;
mod events;
pub mod models;
mod objects;
mod requests;
mod session;
mod signing_in;
mod viewer;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use tokio::sync::watch;

use self::events::Streams;
use self::models::{Models, NoValue, Value};
use self::session::Cookies;
use crate::dashboard::{Links, PageQuestion};
use crate::kube::client::Caller;
use crate::server::apis::question_rate::QuestionRate;
use crate::server::shared_answers::SharedAnswers;
use crate::server::user_authorizer::UserAuthorizer;
use crate::visibility::access::{Access, TenantDetail};

/// Largest form, in bytes: a token that fits no cookie must still be read, so that the error can name its size.
const MAX_FORM_BYTES: usize = 64 << 10;

/// How long the value of a page is shared by viewers with the same access: too short for a user to notice.
const VALUE_TTL: Duration = Duration::from_millis(500);

/// Parts of the dashboard.
pub struct Settings {
    /// Builds addresses below the path prefix.
    pub links: Links,
    /// Reviews users.
    pub authorizer: UserAuthorizer,
    /// Makes the values of pages.
    pub models: Arc<dyn Models>,
    /// Details of shared queues that viewers of a namespace may see.
    pub tenant_detail: TenantDetail,
    /// Reads objects with the tokens of viewers; `None` if their tokens are not for the API server.
    pub objects: Option<Caller>,
    /// True once browsers should use another replica.
    pub retiring: watch::Receiver<bool>,
}

/// State that handlers share.
pub(crate) struct Dashboard {
    links: Links,
    cookies: Cookies,
    authorizer: UserAuthorizer,
    models: Arc<dyn Models>,
    tenant_detail: TenantDetail,
    objects: Option<Caller>,
    retiring: watch::Receiver<bool>,
    streams: Streams,
    rate: QuestionRate,
    /// Recent values of pages, by page and access, each with the least version of its state.
    values: SharedAnswers<(u64, Arc<Value>)>,
    /// Recently rendered pages for streams, by page and access, with the same version.
    rendered: SharedAnswers<(u64, Arc<str>)>,
}

impl Dashboard {
    /// Returns the value of a page, which viewers with the same access share, and the least version of the state that it shows.
    async fn value(
        &self,
        question: &PageQuestion,
        (access, user): (&Access, &str),
    ) -> Result<(u64, Arc<Value>), NoValue> {
        let make = async {
            let (_, version) = self.models.version();
            let value = self.models.answer(question.clone(), access.clone(), user.to_owned()).await?;
            Ok((version, Arc::new(value)))
        };
        self.values.get(page_key(question, access), make).await
    }
}

/// Returns the key of a page for an access, different for every page and access, and for every viewer of a page that belongs to
/// one viewer.
fn page_key(question: &PageQuestion, access: &Access) -> String {
    // Serializing an access does not fail; if it did, its debug form would be as distinct.
    let access = serde_json::to_string(access).unwrap_or_else(|_| format!("{access:?}"));
    // A name has any characters: its length says where the address begins.
    let viewer = question.viewer();
    format!("{access} {} {viewer} {}", viewer.len(), question.address())
}

/// Returns the routes.
pub fn router(settings: Settings) -> Router {
    let dashboard = Arc::new(Dashboard {
        cookies: Cookies::below(&settings.links),
        links: settings.links,
        authorizer: settings.authorizer,
        models: settings.models,
        tenant_detail: settings.tenant_detail,
        objects: settings.objects,
        retiring: settings.retiring,
        streams: Streams::default(),
        rate: QuestionRate::default(),
        values: SharedAnswers::for_time(VALUE_TTL),
        rendered: SharedAnswers::for_time(events::BATCH),
    });
    let at = |path: &str| dashboard.links.to(path);
    let mut routes = Router::new()
        .route(&at("/healthz"), get(|| async { "ok\n" }))
        .route(&at("/assets/{hash}/{name}"), get(requests::asset))
        .route(&at("/login"), post(signing_in::sign_in).get(signing_in::form))
        .route(&at("/logout"), post(signing_in::sign_out))
        .route(&at("/namespaces"), get(requests::choose_namespace))
        .route(&at("/events"), get(events::stream))
        .route(&at("/objects/{*name}"), get(objects::object))
        .route(&at("/"), get(requests::page))
        .route(&at("/{*path}"), get(requests::page));
    if !dashboard.links.prefix().is_empty() {
        // The prefix without a slash is the start page too.
        routes = routes.route(dashboard.links.prefix(), get(requests::page));
    }
    let routes = routes
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .fallback(requests::outside)
        .with_state(Arc::clone(&dashboard));
    routes.layer(middleware::map_response(|response| async { answer::with_strict_headers(response) }))
}
