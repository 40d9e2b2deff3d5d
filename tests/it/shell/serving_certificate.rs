//! The served certificate and its verification, against a fake API server with Secrets and webhook configurations.
#![expect(clippy::disallowed_methods, reason = "the certificates' task runs beside the test")]

use crate::fixtures::fake_api::FakeApi;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::api::v1beta1::CONVERTED;
use sluice::kube::certificates::{CertificateMode, CertificateSettings, CertificateTask, ServingCertificate};
use sluice::kube::pki::{self, PemPair};
use sluice::kube::server_clock::ServerClock;
use sluice::kube::watch::WatchSettings;
use sluice::kube::webhook_ownership::ServiceName;
use sluice::lifecycle::certificates::RotationSettings as Rotation;
use sluice::metrics;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SECRET: &str = "/api/v1/namespaces/ns/secrets/cert";
pub(crate) const CA_SECRET: &str = "/api/v1/namespaces/ns/secrets/cert-ca";
const CA_CONFIG_MAP: &str = "/api/v1/namespaces/ns/configmaps/cert-ca-bundle";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/m";
pub(crate) const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
const HOST: &str = "svc.ns.svc";
const DAY: Duration = Duration::from_hours(24);

pub(crate) fn settings(mode: CertificateMode) -> CertificateSettings {
    CertificateSettings {
        folder: None,
        namespace: "ns".to_owned(),
        serving_secret: "cert".to_owned(),
        ca_secret: "cert-ca".to_owned(),
        ca_config_map: "cert-ca-bundle".to_owned(),
        mutating: "m".to_owned(),
        validating: "v".to_owned(),
        service: ServiceName { namespace: "ns".to_owned(), name: "svc".to_owned() },
        conversion: None,
        visibility: None,
        names: vec![HOST.to_owned(), "metrics.ns.svc".to_owned()],
        observers: Vec::new(),
        is_observer: false,
        mode,
        rotation: Rotation {
            ca_lifetime: 30 * DAY,
            leaf_lifetime: 10 * DAY,
            overlap: Duration::from_mins(10),
            retirement: DAY,
        },
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn time_before(time: Duration) -> Timestamp {
    now().saturating_sub(time).unwrap()
}

fn authority() -> PemPair {
    pki::new_ca(time_before(DAY), 30 * DAY).unwrap()
}

fn leaf(authority: &PemPair, names: &[&str], issued: Timestamp, lifetime: Duration) -> PemPair {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    pki::new_leaf(authority, Timestamp::MAX, &names, issued, lifetime).unwrap()
}

fn secret(leaf: &PemPair, authority: &PemPair) -> Value {
    let parts = json!({"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate});
    json!({"apiVersion": "v1", "kind": "Secret", "stringData": parts})
}

fn webhooks(kind: &str, trusted: &[&PemPair]) -> Value {
    let pem: String = trusted.iter().map(|authority| authority.certificate.as_str()).collect();
    let bundle = k8s_openapi::ByteString(pem.into_bytes());
    let service = json!({"service": {"name": "svc", "namespace": "ns"}, "caBundle": bundle});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "webhooks": [{"name": "a", "clientConfig": service}, {"name": "b", "clientConfig": service}]})
}

pub(crate) fn publish(api: &FakeApi, trusted: &[&PemPair]) {
    api.put(MUTATING, webhooks("MutatingWebhookConfiguration", trusted));
    api.put(VALIDATING, webhooks("ValidatingWebhookConfiguration", trusted));
}

/// The certificate task; aborted on drop.
pub(crate) struct Running {
    pub(crate) serving: Arc<ServingCertificate>,
    clock: Arc<ServerClock>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn start(api: &FakeApi, mode: CertificateMode) -> Running {
    start_with(api, settings(mode)).await
}

pub(crate) async fn start_with(api: &FakeApi, settings: CertificateSettings) -> Running {
    let clients = api.clients().await;
    let (serving, clock) = (Arc::new(ServingCertificate::default()), Arc::clone(&clients.clock));
    let task = CertificateTask {
        client: clients.watch,
        caller: clients.call,
        settings,
        watch: WatchSettings::default(),
        serving: Arc::clone(&serving),
        clock: Arc::clone(&clock),
    };
    Running { serving, clock, task: tokio::spawn(task.run()) }
}

impl Running {
    fn not_ready_reason(&self) -> String {
        self.serving.not_ready_reason().map(|reason| reason.to_string()).unwrap_or_default()
    }

    pub(crate) async fn wait_until(&self, description: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{description}: {:?}, {:?}", self.not_ready_reason(), self.serving.status());
    }

    pub(crate) async fn wait_until_ready(&self) {
        self.wait_until("ready", |running| running.not_ready_reason().is_empty()).await;
    }

    async fn wait_until_not_ready(&self, words: &str) {
        self.wait_until(words, |running| running.not_ready_reason().contains(words)).await;
    }

    fn serves(&self, pair: &PemPair) -> bool {
        let served = self.serving.key().and_then(|key| pki::leaf_certificate(&key));
        served.is_some_and(|served| pki::certificates(pair.certificate.as_bytes()).contains(&served))
    }
}

#[tokio::test]
async fn external_certificate_waits_for_webhook_trust() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let (old, new) = (authority(), authority());
    let (first, second) =
        (leaf(&old, &[HOST], time_before(DAY), 10 * DAY), leaf(&new, &[HOST], now(), 10 * DAY));
    api.put(SECRET, secret(&first, &old));
    publish(&api, &[&old]);
    let running = start(&api, CertificateMode::External).await;
    running.wait_until_ready().await;
    api.put(SECRET, secret(&second, &new));
    running.wait_until("held back", |running| running.serving.status().held_back).await;
    assert!(running.serves(&first) && running.not_ready_reason().is_empty());
    // One of two configurations accepts it, which is not enough.
    api.put(MUTATING, webhooks("MutatingWebhookConfiguration", &[&old, &new]));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(running.serves(&first) && running.not_ready_reason().is_empty());
    api.put(VALIDATING, webhooks("ValidatingWebhookConfiguration", &[&old, &new]));
    running.wait_until("the new one", |running| running.serves(&second)).await;
    assert!(running.not_ready_reason().is_empty() && !running.serving.status().held_back);
    // The replica is not ready once the bundles no longer accept the served certificate.
    publish(&api, &[&old]);
    running.wait_until_not_ready("not signed by a valid CA in the caBundle").await;
}

/// With a folder, no Secret is read: its files are served, and so are files that replace them.
#[tokio::test]
async fn folder_certificate_is_served_and_reloaded() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let signer = authority();
    let [stored, first, second] =
        [1, 2, 3].map(|days| leaf(&signer, &[HOST], time_before(DAY), days * 3 * DAY));
    api.put(SECRET, secret(&stored, &signer));
    publish(&api, &[&signer]);
    let folder = std::env::temp_dir().join(format!("sluice-serving-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |pair: &PemPair| {
        for (name, text) in [("tls.crt", &pair.certificate), ("tls.key", &pair.key)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
    };
    write(&first);
    let settings =
        CertificateSettings { folder: Some(folder.clone()), ..settings(CertificateMode::External) };
    let running = start_with(&api, settings).await;
    running.wait_until("the first is served", |running| running.serves(&first)).await;
    running.wait_until_ready().await;
    write(&second);
    running.wait_until("the second is served", |running| running.serves(&second)).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Fault row 39: a certificate that the API server would refuse makes the replica not ready, with the reason.
#[tokio::test]
async fn untrusted_or_invalid_certificate_is_not_ready() {
    let (ours, foreign) = (authority(), authority());
    let old = pki::new_ca(time_before(30 * DAY), 20 * DAY).unwrap();
    let good = leaf(&ours, &[HOST], time_before(DAY), 10 * DAY);
    let trusting = |trusted: &PemPair| (SECRET, secret(&good, &ours), vec![trusted.clone()]);
    let holding =
        |leaf: PemPair, authority: &PemPair| (SECRET, secret(&leaf, authority), vec![authority.clone()]);
    let later = now().saturating_add(Duration::from_hours(2)).unwrap();
    for (case, (path, object, trusted), words) in [
        ("expired", holding(leaf(&ours, &[HOST], time_before(2 * DAY), DAY), &ours), "not valid now"),
        ("not yet valid", holding(leaf(&ours, &[HOST], later, DAY), &ours), "not valid now"),
        (
            "its authority expired",
            holding(leaf(&old, &[HOST], time_before(DAY), 10 * DAY), &old),
            "not signed by a valid CA",
        ),
        ("wrong authority", trusting(&foreign), "not signed by a valid CA in the caBundle"),
        (
            "other name",
            holding(leaf(&ours, &["other.ns.svc"], now(), DAY), &ours),
            "not valid for the name svc.ns.svc",
        ),
        (
            "no key",
            (
                SECRET,
                json!({"kind": "Secret", "apiVersion": "v1", "stringData": {"tls.crt": good.certificate}}),
                vec![ours.clone()],
            ),
            "tls.key",
        ),
        (
            "no Secret",
            ("/api/v1/namespaces/ns/secrets/other", secret(&good, &ours), vec![ours.clone()]),
            "Secret ns/cert does not exist",
        ),
    ] {
        let api = FakeApi::new(SignedDuration::ZERO);
        api.put(path, object);
        publish(&api, &trusted.iter().collect::<Vec<_>>());
        let running = start(&api, CertificateMode::External).await;
        running.wait_until_not_ready(words).await;
        assert!(!running.serving.status().verified, "{case}");
    }
}

#[tokio::test]
async fn missing_webhooks_are_not_ready() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let ours = authority();
    api.put(SECRET, secret(&leaf(&ours, &[HOST], time_before(DAY), 10 * DAY), &ours));
    let running = start(&api, CertificateMode::External).await;
    running.wait_until_not_ready("m and v are missing or have no webhooks").await;
    api.put(MUTATING, webhooks("MutatingWebhookConfiguration", &[]));
    running
        .wait_until_not_ready(
            "caBundle of webhook a does not trust the serving certificate: the caBundle contains no certificate",
        )
        .await;
    publish(&api, &[&ours]);
    running.wait_until_ready().await;
    api.put(MUTATING, json!({"kind": "MutatingWebhookConfiguration", "webhooks": []}));
    api.put(VALIDATING, json!({"kind": "ValidatingWebhookConfiguration", "webhooks": []}));
    running.wait_until_not_ready("no webhook is configured").await;
}

/// A Secret that does not exist is not created; once it exists, empty, it is filled.
#[tokio::test]
async fn secrets_are_filled_and_not_created() {
    let api = FakeApi::new(SignedDuration::ZERO);
    publish(&api, &[]);
    let running = start(&api, CertificateMode::SelfManaged).await;
    running.wait_until_not_ready("Secret ns/cert does not exist").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!((api.object(SECRET), api.object(CA_SECRET)), (None, None));
    for secret in [SECRET, CA_SECRET] {
        api.put(secret, json!({"kind": "Secret", "apiVersion": "v1"}));
    }
    running.wait_until_ready().await;
}

/// An owned bundle would keep its entry when the installer removes it by server-side apply.
#[tokio::test]
async fn bundles_are_owned_by_no_field_manager() {
    let api = FakeApi::new(SignedDuration::ZERO);
    for secret in [SECRET, CA_SECRET] {
        api.put(secret, json!({"kind": "Secret", "apiVersion": "v1"}));
    }
    publish(&api, &[]);
    let installer = json!([{"manager": "install", "operation": "Apply"}]);
    let mut configuration = api.object(VALIDATING).unwrap();
    configuration["metadata"]["managedFields"] = installer.clone();
    api.put(VALIDATING, configuration);
    let running = start(&api, CertificateMode::SelfManaged).await;
    running.wait_until_ready().await;
    let configuration = || api.object(VALIDATING).unwrap();
    assert!(configuration()["webhooks"][0]["clientConfig"]["caBundle"].is_string());
    running
        .wait_until("the ownership is released", |_| {
            configuration()["metadata"]["managedFields"] == installer
        })
        .await;
    let released = configuration();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(configuration(), released, "it is not written again");
}

/// API servers trust the certificate for conversions as well, but the definitions of another installation are left alone.
#[tokio::test]
async fn definitions_get_the_authority() {
    let api = FakeApi::new(SignedDuration::ZERO);
    for secret in [SECRET, CA_SECRET] {
        api.put(secret, json!({"kind": "Secret", "apiVersion": "v1"}));
    }
    publish(&api, &[]);
    let path = |name: &str| format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let installer = json!([{"manager": "install", "operation": "Apply"}]);
    let foreign = CONVERTED[0];
    for name in CONVERTED {
        let service = json!({"name": "convert", "namespace": if name == foreign { "other" } else { "ns" }});
        let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}});
        let spec = json!({"conversion": conversion, "versions": []});
        let metadata = json!({"managedFields": installer});
        let kind = "CustomResourceDefinition";
        api.put(
            &path(name),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}),
        );
    }
    let mut settings = settings(CertificateMode::SelfManaged);
    settings.conversion = Some(ServiceName { namespace: "ns".to_owned(), name: "convert".to_owned() });
    settings.names.push("convert.ns.svc".to_owned());
    let running = start_with(&api, settings).await;
    running.wait_until_ready().await;
    let bundle = |name| {
        let definition = api.object(&path(name)).unwrap();
        assert_eq!(definition["spec"]["versions"], json!([]));
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].clone()
    };
    let trusted = api.object(VALIDATING).unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    for name in CONVERTED {
        assert_eq!(bundle(name), if name == foreign { Value::Null } else { trusted.clone() }, "{name}");
    }
    running
        .wait_until("the ownership is released", |_| {
            let managers = |name| api.object(&path(name)).unwrap()["metadata"]["managedFields"].clone();
            CONVERTED.iter().all(|name| managers(name) == installer)
        })
        .await;
}

/// The authority is in a ConfigMap without its key, as the webhooks trust it, if the ConfigMap exists; it is written again only
/// if it differs.
#[tokio::test]
async fn config_map_has_authority_without_key() {
    let api = FakeApi::new(SignedDuration::ZERO);
    for secret in [SECRET, CA_SECRET] {
        api.put(secret, json!({"kind": "Secret", "apiVersion": "v1"}));
    }
    publish(&api, &[]);
    let running = start(&api, CertificateMode::SelfManaged).await;
    running.wait_until_ready().await;
    assert_eq!(api.object(CA_CONFIG_MAP), None, "it is not created");
    let filled = async |description: &str| {
        let bundle = api.object(VALIDATING).unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
        let bundle = String::from_utf8(bundle.0).unwrap();
        assert!(bundle.contains("BEGIN CERTIFICATE") && !bundle.contains("PRIVATE"), "{bundle}");
        running
            .wait_until(description, |_| api.object(CA_CONFIG_MAP).unwrap()["data"]["ca.crt"] == bundle)
            .await;
    };
    api.put(CA_CONFIG_MAP, json!({"kind": "ConfigMap", "apiVersion": "v1"}));
    filled("filled").await;
    let written = api.object(CA_CONFIG_MAP);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(api.object(CA_CONFIG_MAP), written, "it is written once");
    let edited = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"ca.crt": "no", "other": "kept"}});
    api.put(CA_CONFIG_MAP, edited);
    filled("repaired").await;
    assert_eq!(api.object(CA_CONFIG_MAP).unwrap()["data"]["other"], "kept");
}

/// With another issuer, the ConfigMap is not the manager's.
#[tokio::test]
async fn config_map_of_other_issuer_is_not_written() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let ours = authority();
    api.put(SECRET, secret(&leaf(&ours, &[HOST], now(), DAY), &ours));
    api.put(CA_CONFIG_MAP, json!({"kind": "ConfigMap", "apiVersion": "v1"}));
    publish(&api, &[&ours]);
    let before = api.object(CA_CONFIG_MAP);
    let running = start(&api, CertificateMode::External).await;
    running.wait_until_ready().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(api.object(CA_CONFIG_MAP), before);
}

/// Configurations of a manager in another namespace are not changed, nor is a Secret, until they name this one.
#[tokio::test]
async fn nothing_is_written_while_webhooks_belong_to_other_manager() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let theirs = authority();
    let elsewhere = |kind: &str| {
        let mut object = webhooks(kind, &[&theirs]);
        for webhook in object["webhooks"].as_array_mut().unwrap() {
            webhook["clientConfig"]["service"]["namespace"] = "other".into();
        }
        object
    };
    api.put(MUTATING, elsewhere("MutatingWebhookConfiguration"));
    api.put(VALIDATING, elsewhere("ValidatingWebhookConfiguration"));
    let before = api.object(VALIDATING);
    let empty = || json!({"kind": "Secret", "apiVersion": "v1"});
    api.put(SECRET, empty());
    api.put(CA_SECRET, empty());
    api.put(CA_CONFIG_MAP, json!({"kind": "ConfigMap", "apiVersion": "v1"}));
    let stored = || (api.object(SECRET), api.object(CA_SECRET), api.object(CA_CONFIG_MAP));
    let secrets = stored();
    let running = start(&api, CertificateMode::SelfManaged).await;
    running.wait_until_not_ready("m sends reviews to Service other/svc").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(api.object(VALIDATING), before);
    assert_eq!(stored(), secrets);
    // While one of two still names the other, its reviews go there.
    api.put(MUTATING, webhooks("MutatingWebhookConfiguration", &[]));
    running.wait_until_not_ready("v sends reviews to Service other/svc").await;
    assert_eq!(stored(), secrets);
    publish(&api, &[]);
    running.wait_until_ready().await;
}

#[tokio::test]
async fn expired_serving_certificate_is_not_ready() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let ours = authority();
    let short = leaf(&ours, &[HOST], now(), Duration::from_secs(8));
    api.put(SECRET, secret(&short, &ours));
    publish(&api, &[&ours]);
    let running = start(&api, CertificateMode::External).await;
    running.wait_until_ready().await;
    running.wait_until_not_ready("certificate expired at").await;
    let until = running.serving.status().serving_until.unwrap();
    println!("not ready {:?} after the end", now().duration_since(until));
    // The next certificate is served at once, because there is no valid one to keep.
    api.put(SECRET, secret(&leaf(&ours, &[HOST], now(), DAY), &ours));
    running.wait_until_ready().await;
}

#[tokio::test]
async fn self_managed_certificate_with_missing_name_is_replaced() {
    let api = FakeApi::new(SignedDuration::ZERO);
    let other = authority();
    let existing = leaf(&other, &["other.ns.svc"], time_before(DAY), 10 * DAY);
    api.put(SECRET, secret(&existing, &other));
    api.put(CA_SECRET, json!({"kind": "Secret", "apiVersion": "v1"}));
    publish(&api, &[&other]);
    let running = start(&api, CertificateMode::SelfManaged).await;
    running.wait_until_ready().await;
    assert!(pki::has_san(&running.serving.key().unwrap(), HOST));
    let text = metrics::certificates::render(&running.serving.status(), running.clock.ahead()).unwrap();
    assert!(text.contains("sluice_serving_certificate_verified 1"), "{text}");
    assert!(text.contains("sluice_authority_certificate_expiry_timestamp_seconds 1"), "{text}");
    // The old authority stays trusted until its retirement: a second manager may still serve its certificate.
    let bundle = api.object(VALIDATING).unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
    assert_eq!(pki::certificates(&bundle.0).len(), 2);
}

#[tokio::test]
async fn clock_ahead_of_server_makes_acceptable_certificates() {
    let api = FakeApi::new(SignedDuration::from_mins(30));
    for secret in [SECRET, CA_SECRET] {
        api.put(secret, json!({"kind": "Secret", "apiVersion": "v1"}));
    }
    publish(&api, &[]);
    let running = start(&api, CertificateMode::SelfManaged).await;
    running.wait_until_ready().await;
    let ahead = running.clock.ahead().unwrap();
    assert!(ahead > SignedDuration::from_mins(29) && ahead <= SignedDuration::from_mins(31), "{ahead}");
    let served = pki::leaf_certificate(&running.serving.key().unwrap()).unwrap().info;
    let (server_time, key) =
        (now().saturating_sub(SignedDuration::from_mins(30)).unwrap(), running.serving.key());
    assert!(
        served.not_before <= server_time,
        "not valid before {}, the server's time is {server_time}",
        served.not_before
    );
    let bundle = api.object(VALIDATING).unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
    let result = pki::verify(&pki::certificates(&bundle.0), &key.unwrap(), HOST, server_time);
    assert_eq!(result, Ok(()));
    let text = metrics::certificates::render(&running.serving.status(), Some(ahead)).unwrap();
    assert!(
        text.contains("sluice_clock_skew_seconds 17") || text.contains("sluice_clock_skew_seconds 18"),
        "{text}"
    );
}
