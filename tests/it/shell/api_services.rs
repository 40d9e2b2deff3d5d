//! The CA bundles of the APIServices of the visibility API, as the certificate task writes them.
#![expect(clippy::disallowed_methods, reason = "the test waits for a task")]

use crate::fixtures::fake_api::FakeApi;
use crate::shell::serving_certificate::{CA_SECRET, SECRET, VALIDATING, publish, settings, start_with};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::api::visibility::API_SERVICES;
use sluice::kube::certificates::CertificateMode;
use sluice::kube::webhook_ownership::ServiceName;
use std::time::Duration;

/// API servers find the authority in the APIServices as well; one that did not verify does so then. Those of another
/// installation are left alone, and one that does not exist stops nothing.
#[tokio::test]
async fn api_services_get_the_authority() {
    let api = FakeApi::new(SignedDuration::ZERO);
    for secret in [SECRET, CA_SECRET] {
        api.put(secret, json!({"kind": "Secret", "apiVersion": "v1"}));
    }
    publish(&api, &[]);
    let path = |name: &str| format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
    let own = json!({"app.kubernetes.io/component": "controller"});
    let put = |name: &str, namespace: &str, labels: &Value| {
        let metadata = json!({"labels": labels});
        let service = json!({"name": "visible", "namespace": namespace});
        let spec = json!({"service": service, "insecureSkipTLSVerify": true});
        api.put(&path(name), json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec}));
    };
    let [first, second, third] = API_SERVICES;
    put(first, "other", &own);
    let mut settings = settings(CertificateMode::SelfManaged);
    settings.visibility = Some(ServiceName { namespace: "ns".to_owned(), name: "visible".to_owned() });
    settings.names.push("visible.ns.svc".to_owned());
    let running = start_with(&api, settings).await;
    running.wait_until_ready().await;
    put(second, "ns", &own);
    put(third, "ns", &own);
    let trusted = api.object(VALIDATING).unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert!(trusted.is_string());
    let verifies = |name: &str, trusted: &Value| {
        let spec = api.object(&path(name)).unwrap()["spec"].clone();
        spec["caBundle"] == *trusted && spec.get("insecureSkipTLSVerify").is_none_or(Value::is_null)
    };
    running.wait_until("the bundles", |_| verifies(second, &trusted) && verifies(third, &trusted)).await;
    let written = api.object(&path(second));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(api.object(&path(second)), written, "it is written once");
    assert_eq!(
        api.object(&path(first)).unwrap()["spec"].get("caBundle"),
        None,
        "it belongs to another manager"
    );
    // Kueue's, of its manifests and of its chart, which replaces this installation: it has the same Service.
    for labels in [
        json!({"control-plane": "controller-manager"}),
        json!({"control-plane": "controller-manager", "app.kubernetes.io/component": "visibility-service"}),
    ] {
        put(first, "ns", &labels);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(
            api.object(&path(first)).unwrap()["spec"].get("caBundle"),
            None,
            "it is Kueue's: {labels}"
        );
    }
    put(first, "ns", &own);
    running.wait_until("the other bundle", |_| verifies(first, &trusted)).await;
}
