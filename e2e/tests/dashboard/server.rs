//! A dashboard that shows recorded values, with an API server that knows three tokens.

use anyhow::{Context as _, Result};
use http::{Request, Response};
use kube::client::Body;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sluice::dashboard::{Freshness, Links, PageQuestion};
use sluice::kube::client::Caller;
use sluice::server::dashboard::models::{Answering, Models, NoValue, Value as PageValue};
use sluice::server::dashboard::{Settings, router};
use sluice::server::listener::{Listener, ListenerLimits, ListenerStop};
use sluice::server::user_authorizer::UserAuthorizer;
use sluice::visibility::access::{Access, TenantDetail};
use sluice_e2e::certs::CertificateAuthority;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::recorded_pages::{self, RecordedPage};

/// Token of a user who sees the cluster.
pub(crate) const ADMIN: &str = "admin-token";
/// Tokens of users with long names, who see the cluster.
pub(crate) const LONG: [&str; 3] = ["account-token", "issuer-token", "longest-token"];
/// Token of a user who sees the namespace nlp-train.
pub(crate) const TENANT: &str = "tenant-token";

/// Values that pages show, which tests change.
#[derive(Default)]
pub(crate) struct Recorded {
    version: AtomicU64,
    freshness: Mutex<Freshness>,
    starting: Mutex<bool>,
    /// Changes to recorded values: name of the page, pointer, value.
    changes: Mutex<Vec<(&'static str, &'static str, Value)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorded {
    /// Changes a field of a recorded value.
    pub(crate) fn change(&self, page: &'static str, pointer: &'static str, value: Value) {
        lock(&self.changes).push((page, pointer, value));
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets how fresh the data is.
    pub(crate) fn set_freshness(&self, freshness: Freshness) {
        *lock(&self.freshness) = freshness;
    }

    /// Sets whether the lists are not complete.
    pub(crate) fn set_starting(&self, starting: bool) {
        *lock(&self.starting) = starting;
    }

    /// Returns a page with the changes to its value.
    fn page(&self, page: &RecordedPage) -> serde_json::Result<PageValue> {
        let mut value = page.value()?;
        for (changed, pointer, new) in lock(&self.changes).iter() {
            if *changed == page.name
                && let Some(field) = value.pointer_mut(pointer)
            {
                *field = new.clone();
            }
        }
        page.with(value).map(PageValue::Page)
    }

    fn value(&self, question: &PageQuestion) -> Result<PageValue, NoValue> {
        if *lock(&self.starting) {
            let progress = "This replica waits for the first lists of workloads.".to_owned();
            return Err(NoValue::NotSynced { progress });
        }
        let page = recorded_pages::answering(question).ok_or_else(|| NoValue::NotFound {
            text: format!("There is no {}, or none that you may see.", question.page().object()),
            similar: Vec::new(),
        })?;
        self.page(page).map_err(|error| NoValue::Invalid(error.to_string()))
    }
}

impl Models for Recorded {
    fn version(&self) -> (String, u64) {
        ("recorded".to_owned(), self.version.load(Ordering::SeqCst))
    }

    fn freshness(&self) -> Freshness {
        lock(&self.freshness).clone()
    }

    fn answer(&self, question: PageQuestion, _: Access, _: String) -> Answering<'_> {
        Box::pin(async move { self.value(&question) })
    }
}

/// Answers reviews: of the admin all, of the tenant those about nlp-train.
fn review(uri: &str, body: &Value) -> Value {
    if uri.contains("tokenreviews") {
        let user = match body["spec"]["token"].as_str() {
            Some(ADMIN) => "ml-admin".to_owned(),
            Some(TENANT) => "nlp-user".to_owned(),
            Some("account-token") => "system:serviceaccount:default:dashboard-viewer".to_owned(),
            Some("issuer-token") => {
                "https://login.example.com/auth/realms/research-and-development#5f1c9a7e-2b1d-4f0e-9a51-0c3d8f7b6e21".to_owned()
            }
            Some("longest-token") => format!("system:serviceaccount:{}:{}", "n".repeat(63), "a".repeat(253)),
            _ => return json!({"status": {"authenticated": false}}),
        };
        let user = json!({"username": user, "groups": ["system:authenticated"]});
        return json!({"status": {"authenticated": true, "user": user, "audiences": body["spec"]["audiences"]}});
    }
    let (user, attributes) = (&body["spec"]["user"], &body["spec"]["resourceAttributes"]);
    json!({"status": {"allowed": user != "nlp-user" || attributes["namespace"] == "nlp-train"}})
}

fn caller() -> Caller {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let (parts, body) = request.into_parts();
        let bytes = http_body_util::BodyExt::collect(body).await?.to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let answer = review(&parts.uri.to_string(), &body).to_string();
        let response = Response::builder().status(201).header("content-type", "application/json");
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response.body(Body::from(answer.into_bytes()))?)
    });
    Caller::new(kube::Client::new(service, "default"), Duration::from_secs(5))
}

/// A running dashboard.
pub(crate) struct Server {
    /// `https://127.0.0.1:PORT` with the path prefix.
    pub(crate) address: String,
    pub(crate) recorded: Arc<Recorded>,
    serving: JoinHandle<()>,
    _stop: watch::Sender<bool>,
    _retiring: watch::Sender<bool>,
}

impl Server {
    /// Starts a dashboard below a path prefix.
    pub(crate) async fn start(prefix: &str) -> Result<Self> {
        let links = Links::below(prefix).map_err(anyhow::Error::msg)?;
        let recorded = Arc::<Recorded>::default();
        let (stop, stopped) = watch::channel(false);
        let (retire, retiring) = watch::channel(false);
        let router = router(Settings {
            links,
            authorizer: UserAuthorizer::new(&caller(), "sluice-dashboard"),
            models: recorded.clone(),
            tenant_detail: TenantDetail::default(),
            objects: None,
            retiring: retiring.clone(),
        });
        let pair = CertificateAuthority::new("dashboard")?.server("dashboard", &["127.0.0.1"])?;
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        let provider = Arc::new(sluice::kube::cryptography::provider());
        let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut tls = tls.with_no_client_auth().with_single_cert(vec![certificate], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let any = vec!["127.0.0.1:0".parse().context("an address")?];
        let limits = ListenerLimits::default();
        let listener = Listener::bind("dashboard", any, Some(Arc::new(tls)), router, limits).await?;
        let address = format!("https://{}{}", listener.address()?, prefix.trim_end_matches('/'));
        let serving = tokio::spawn(listener.run(ListenerStop { retiring, stop: stopped }));
        Ok(Self { address, recorded, serving, _stop: stop, _retiring: retire })
    }

    /// Ends it as a crash does: its listener is closed, and its connections with that.
    pub(crate) fn kill(&self) {
        self.serving.abort();
    }
}
