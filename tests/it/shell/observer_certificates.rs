//! The certificate of a process that serves no webhooks: the manager issues it into a Secret of its own, and the process serves it without
//! reading that of the webhooks.

use crate::fixtures::fake_api::FakeApi;
use crate::shell::serving_certificate::{CA_SECRET, SECRET, publish, settings, start_with};
use jiff::SignedDuration;
use serde_json::json;
use sluice::kube::certificates::{CertificateMode, CertificateSettings, ObserverCertificate};
use sluice::kube::pki;

const OWN_SECRET: &str = "/api/v1/namespaces/ns/secrets/view";
const OWN_HOST: &str = "view.ns.svc";

#[tokio::test]
async fn another_process_gets_a_certificate_of_its_own() {
    let api = FakeApi::new(SignedDuration::ZERO);
    for path in [SECRET, CA_SECRET, OWN_SECRET] {
        api.put(path, json!({"apiVersion": "v1", "kind": "Secret"}));
    }
    publish(&api, &[]);
    let names = vec![OWN_HOST.to_owned(), "metrics.ns.svc".to_owned()];
    let issued = ObserverCertificate { secret: "view".to_owned(), names: names.clone() };
    let of_manager =
        CertificateSettings { observers: vec![issued], ..settings(CertificateMode::SelfManaged) };
    let manager = start_with(&api, of_manager).await;
    let of_process = CertificateSettings {
        serving_secret: "view".to_owned(),
        names,
        is_observer: true,
        ..settings(CertificateMode::External)
    };
    let process = start_with(&api, of_process).await;
    manager.wait_until_ready().await;
    process.wait_until_ready().await;
    let (own, webhooks) = (process.serving.key().unwrap(), manager.serving.key().unwrap());
    assert!(pki::has_san(&own, OWN_HOST) && !pki::has_san(&own, "svc.ns.svc"));
    assert!(!pki::has_san(&webhooks, OWN_HOST) && own.cert != webhooks.cert);
    assert!(process.serving.status().verified, "what trusts the webhooks trusts it");
}
