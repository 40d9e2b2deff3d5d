//! Sends questions to the leader, by the address in the annotation of the Lease, or to another replica, by the address that it
//! reported to the leader.
//!
//! Invariants: the leader's certificate is verified by the name of the visibility Service and the authority that the webhooks
//! trust; a call has a short timeout, so that an answer without the leader's part is not late; a process without a token asks
//! nothing.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::kube::{Client, Config};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::Value;

use super::client::Caller;
use super::lease::LeaseHolder;

/// Longest time of a call.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client is used before the authority is read again.
const CLIENT_TTL: Duration = Duration::from_mins(1);

/// Settings of calls to the leader.
#[derive(Clone, Debug)]
pub struct LeaderCallSettings {
    /// Name of the visibility Service in certificates, as `NAME.NAMESPACE.svc`.
    pub server_name: String,
    /// Name of the ValidatingWebhookConfiguration, which has the authority.
    pub validating: String,
    /// File with the token of this process for the leader's audience.
    pub token_file: PathBuf,
    /// Path on the leader's listener.
    pub path: &'static str,
}

/// A client of the leader and of other replicas.
pub struct LeaderCall {
    caller: Caller,
    settings: LeaderCallSettings,
    holder: Arc<LeaseHolder>,
    client: Mutex<Option<KnownClient>>,
}

#[derive(Clone)]
struct KnownClient {
    address: String,
    made: Instant,
    client: Client,
}

/// Why the leader did not answer.
#[derive(Debug, thiserror::Error)]
pub enum LeaderCallError {
    /// The Lease names no leader, or one without an address of its own.
    #[error("the Lease has no address of the leader")]
    NoAddress,
    /// This process has no token.
    #[error("token for the leader: {0}")]
    Token(std::io::Error),
    /// The authority cannot be read.
    #[error("authority of the leader's certificate: {0}")]
    Authority(String),
    /// The leader refused, or did not answer in time.
    #[error("{0}")]
    Call(String),
}

impl LeaderCall {
    /// Returns a client that reads the leader's address from this holder.
    pub fn new(caller: &Caller, settings: LeaderCallSettings, holder: Arc<LeaseHolder>) -> Self {
        Self { caller: caller.clone(), settings, holder, client: Mutex::default() }
    }

    /// Sends a question to the leader and returns the answer.
    ///
    /// # Errors
    /// There is no leader, or it did not answer.
    pub async fn ask(&self, question: &impl serde::Serialize) -> Result<Value, LeaderCallError> {
        let address = self.holder.address().ok_or(LeaderCallError::NoAddress)?;
        self.ask_at(&address, question).await
    }

    /// Sends a question to a replica and returns the answer.
    ///
    /// # Errors
    /// The replica did not answer.
    pub async fn ask_at(
        &self,
        address: &str,
        question: &impl serde::Serialize,
    ) -> Result<Value, LeaderCallError> {
        self.ask_within(address, question, TIMEOUT).await
    }

    /// Sends a question to a replica, and waits this long for the answer.
    ///
    /// # Errors
    /// The replica did not answer.
    pub async fn ask_within(
        &self,
        address: &str,
        question: &impl serde::Serialize,
        limit: Duration,
    ) -> Result<Value, LeaderCallError> {
        let token = tokio::fs::read_to_string(&self.settings.token_file).await;
        let token = token.map_err(LeaderCallError::Token)?;
        let body = serde_json::to_vec(question).map_err(|error| LeaderCallError::Call(error.to_string()))?;
        let request = http::Request::post(self.settings.path)
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| LeaderCallError::Call(error.to_string()))?;
        let client = self.client(address).await?;
        let answer = tokio::time::timeout(limit, client.request::<Value>(request)).await;
        let answer = answer.map_err(|_| LeaderCallError::Call(format!("no answer within {limit:?}")));
        let answer =
            answer.and_then(|answer| answer.map_err(|error| LeaderCallError::Call(error.to_string())));
        if answer.is_err() {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        answer
    }

    async fn client(&self, address: &str) -> Result<Client, LeaderCallError> {
        let known = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = known.filter(|known| known.address == address && known.made.elapsed() < CLIENT_TTL);
        if let Some(known) = known {
            return Ok(known.client);
        }
        let authority = self.authority().await?;
        let wrong =
            |error: &dyn std::fmt::Display| LeaderCallError::Call(format!("address {address}: {error}"));
        let url = format!("https://{address}").parse().map_err(|error| wrong(&error))?;
        let mut config = Config::new(url);
        config.root_cert = Some(authority);
        config.tls_server_name = Some(self.settings.server_name.clone());
        config.connect_timeout = Some(TIMEOUT);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| wrong(&error))?;
        let known = KnownClient { address: address.to_owned(), made: Instant::now(), client: client.clone() };
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(client)
    }

    /// Reads the authorities that the webhooks trust.
    async fn authority(&self) -> Result<Vec<Vec<u8>>, LeaderCallError> {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{}",
            self.settings.validating
        );
        let wrong = |error: String| LeaderCallError::Authority(error);
        let object = self.caller.get(&path).await.map_err(|error| wrong(error.to_string()))?;
        let bundle = object.pointer("/webhooks/0/clientConfig/caBundle").and_then(Value::as_str);
        let bundle = bundle.ok_or_else(|| wrong(format!("{} has no caBundle", self.settings.validating)))?;
        let pem = STANDARD.decode(bundle).map_err(|error| wrong(error.to_string()))?;
        let certificates = pem::parse_many(pem).map_err(|error| wrong(error.to_string()))?;
        Ok(certificates.into_iter().map(pem::Pem::into_contents).collect())
    }
}
