//! The controller against a server in memory: what it writes, and how often it logs a failure.

use super::*;
use ::kube::client::Body;
use http::{Method, Request, Response};
use serde_json::{Value, json};
use std::io;
use std::sync::Mutex;
use tracing_subscriber::fmt::MakeWriter;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

type Stored = Arc<Mutex<BTreeMap<String, Value>>>;

fn settings() -> CertificateSettings {
    let service = ServiceName { namespace: "ns".to_owned(), name: "s".to_owned() };
    CertificateSettings {
        namespace: "ns".to_owned(),
        serving_secret: "serving".to_owned(),
        ca_secret: "ca".to_owned(),
        ca_config_map: "bundle".to_owned(),
        mutating: "m".to_owned(),
        validating: "v".to_owned(),
        service,
        conversion: None,
        visibility: None,
        names: vec!["s.ns.svc".to_owned()],
        observers: Vec::new(),
        is_observer: false,
        folder: None,
        mode: CertificateMode::SelfManaged,
        rotation: Rotation {
            ca_lifetime: Duration::from_hours(8760),
            leaf_lifetime: Duration::from_hours(2160),
            overlap: Duration::from_mins(10),
            retirement: Duration::from_hours(24),
        },
    }
}

/// Applies a write: fields are merged, entries of a list by their names.
fn merge(object: &mut Value, change: &Value) {
    match (object, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(fields.entry(name).or_insert(Value::Null), change);
            }
        }
        (Value::Array(entries), Value::Array(changes)) => {
            for change in changes {
                let entry = entries.iter_mut().find(|entry| entry["name"] == change["name"]);
                merge(entry.expect("entries are not added"), change);
            }
        }
        (object, change) => *object = change.clone(),
    }
}

/// A server that has these objects, by their paths.
fn caller(stored: &Stored) -> Caller {
    let stored = Arc::clone(stored);
    let service = tower::service_fn(move |request: Request<Body>| {
        let stored = Arc::clone(&stored);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await?;
            let mut stored = stored.lock().unwrap();
            let object = stored.get_mut(&path).expect("a known object");
            if method != Method::GET {
                merge(object, &serde_json::from_slice(&body)?);
                let texts = object.get_mut("stringData").map(Value::take);
                for (name, text) in texts.iter().filter_map(Value::as_object).flatten() {
                    let bytes = ByteString(text.as_str().unwrap_or_default().as_bytes().to_vec());
                    merge(object, &json!({"data": {name: bytes}}));
                }
            }
            let answer = Response::builder().body(Body::from(serde_json::to_vec(object)?))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer)
        }
    });
    Caller::new(Client::new(service, "default"), CALL_TIMEOUT)
}

/// A webhook configuration with one entry that trusts these authorities.
fn configuration(kind: &str, name: &str, bundle: &str) -> Value {
    let service = json!({"namespace": "ns", "name": "s"});
    let client = json!({"service": service, "caBundle": ByteString(bundle.as_bytes().to_vec())});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name, "resourceVersion": "1"},
        "webhooks": [{"name": "w", "clientConfig": client}],
    })
}

/// A controller that has read all objects. An object without a value does not exist.
fn controller(objects: &[(ManagedObject, Option<Value>)], stored: &Stored) -> CertificateController {
    let settings = settings();
    for (slot, object) in objects {
        let object = object.clone().unwrap_or_default();
        stored.lock().unwrap().insert(settings.path(*slot), object);
    }
    let mut controller = CertificateController::new(caller(stored), settings, Arc::default(), Arc::default());
    for (slot, object) in objects {
        controller.update_object(*slot, object.clone().map(|object| serde_json::from_value(object).unwrap()));
    }
    controller
}

fn secret(name: &str, data: &Value) -> Value {
    let encoded = data.as_object().unwrap().iter();
    let encoded = encoded.map(|(key, text)| (key.clone(), json!(ByteString(text.as_str().unwrap().into()))));
    let data: serde_json::Map<String, Value> = encoded.collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "resourceVersion": "1"}, "data": data})
}

fn new_ca(now: Timestamp) -> pki::PemPair {
    pki::new_ca(now, Duration::from_hours(8760)).unwrap()
}

fn bundle_of(configuration: &Value) -> Vec<String> {
    let object: DynamicObject = serde_json::from_value(configuration.clone()).unwrap();
    let targets = serving_certificate::targets(&object);
    targets.into_iter().flat_map(|target| target.bundle).map(|certificate| certificate.pem).collect()
}

/// An authority that another tool wrote to one configuration is kept beside that of this manager, and gets into no other
/// object.
#[tokio::test]
async fn authorities_of_others_are_not_spread() {
    let now = ServerClock::default().now();
    let (own, foreign) =
        (new_ca(now), new_ca(now.saturating_sub(jiff::SignedDuration::from_hours(1)).unwrap()));
    let ca = secret("ca", &json!({"ca.crt": own.certificate, "ca.key": own.key}));
    let bundle = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bundle", "resourceVersion": "1"}});
    let stored = Stored::default();
    let mut controller = controller(
        &[
            (ManagedObject::Serving, Some(secret("serving", &json!({})))),
            (ManagedObject::Ca, Some(ca)),
            (ManagedObject::CaConfigMap, Some(bundle)),
            (
                ManagedObject::Mutating,
                Some(configuration("MutatingWebhookConfiguration", "m", &foreign.certificate)),
            ),
            (ManagedObject::Validating, Some(configuration("ValidatingWebhookConfiguration", "v", ""))),
        ],
        &stored,
    );
    controller.reconcile(now).await;
    let settings = settings();
    let read = |slot: ManagedObject| stored.lock().unwrap()[&settings.path(slot)].clone();
    let of_mutating: BTreeSet<String> = bundle_of(&read(ManagedObject::Mutating)).into_iter().collect();
    assert_eq!(of_mutating, BTreeSet::from([own.certificate.clone(), foreign.certificate]));
    assert_eq!(bundle_of(&read(ManagedObject::Validating)), std::slice::from_ref(&own.certificate));
    assert_eq!(read(ManagedObject::CaConfigMap)["data"]["ca.crt"], json!(own.certificate));
}

/// Lines of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[test]
fn repeated_failure_of_a_step_is_logged_once() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let (stored, log) = (Stored::default(), Log::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entered = runtime.enter();
    let mut controller = controller(
        &[
            (ManagedObject::Serving, None),
            (ManagedObject::Ca, None),
            (ManagedObject::CaConfigMap, None),
            (ManagedObject::Mutating, None),
            (ManagedObject::Validating, None),
        ],
        &stored,
    );
    drop(entered);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let lines = |word: &str| {
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(word)).count()
    };
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..5 {
            runtime.block_on(controller.reconcile(now));
        }
        assert_eq!((lines("certificate rotation step step="), lines("failed, retrying")), (1, 1));
        // The object appears, and is deleted again.
        let ca = new_ca(now);
        let ca = secret("ca", &json!({"ca.crt": ca.certificate, "ca.key": ca.key}));
        controller.update_object(ManagedObject::Ca, serde_json::from_value(ca).unwrap());
        for _ in 0..5 {
            runtime.block_on(controller.reconcile(now));
        }
        assert_eq!(lines("failed, retrying"), 2, "now the other Secret is missing");
    });
}
