//! The server of aggregated API groups over TLS: who is heard, what is answered before and after the first lists, and in which form.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use crate::fixtures::client_certificates::{Authority, Identity, client_config};
use arc_swap::ArcSwap;
use axum::extract::State;
use axum::{Json, Router};
use jiff::Timestamp;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::kube::certificates::ServingCertificate;
use sluice::kube::client::{Caller, Clients, Timeouts};
use sluice::kube::pki;
use sluice::queue::{ListedFields, QueueManager, Workload};
use sluice::server::apis::access::AccessReviewer;
use sluice::server::apis::front_proxy::FrontProxy;
use sluice::server::apis::questions::PrivatePath;
use sluice::server::apis::visibility::VisibilityGroup;
use sluice::server::apis::{self, ApiServer};
use sluice::server::listener::{Listener, ListenerLimits, ListenerStop};
use sluice::server::tls;
use sluice::snapshot::{LocalQueueReference, References, Snapshot};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

const YEAR: Duration = Duration::from_hours(365 * 24);
const HOST: &str = "kueue-visibility-server.kueue-system.svc";
const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";
const OF_CQ: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
const OF_LQ: &str = "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/ns/localqueues/lq/pendingworkloads";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The API server's side: access reviews, which permit everything but to `eve`, and to `tenant` only what is in a namespace.
#[derive(Clone, Default)]
pub(crate) struct Reviews(pub(crate) Arc<Mutex<Vec<Value>>>);

async fn review(State(reviews): State<Reviews>, Json(review): Json<Value>) -> Json<Value> {
    let of_cluster = review["spec"]["resourceAttributes"]["namespace"] == "";
    let user = &review["spec"]["user"];
    let allowed = user != "eve" && (user != "tenant" || !of_cluster);
    reviews.0.lock().unwrap().push(review["spec"].clone());
    Json(
        json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": allowed}}),
    )
}

/// Reviews tokens of the form `AUDIENCE USER`, as the API server reviews those of ServiceAccounts.
async fn review_token(Json(review): Json<Value>) -> Json<Value> {
    let (audience, user) = review["spec"]["token"].as_str().unwrap().split_once('=').unwrap_or_default();
    let authenticated = review["spec"]["audiences"] == json!([audience]);
    let audiences = if authenticated { json!([audience]) } else { json!([]) };
    Json(
        json!({"status": {"authenticated": authenticated, "audiences": audiences, "user": {"username": user}}}),
    )
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) roots: RootCertStore,
    /// The authority that signed its certificate.
    pub(crate) authority: String,
    pub(crate) published: Arc<ArcSwap<Snapshot>>,
    front_proxy: Arc<FrontProxy>,
    pub(crate) reviews: Reviews,
    _stop: watch::Sender<bool>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Makes groups of what is published and of the reviewer of access.
type MakeGroups = dyn FnOnce(&Arc<ArcSwap<Snapshot>>, &AccessReviewer) -> Vec<Arc<dyn apis::group::ApiGroup>>;
/// Makes a private path of a client of the API server.
type MakePrivatePath = dyn FnOnce(&Caller) -> Option<Arc<PrivatePath>>;

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Server {
    async fn start() -> Self {
        let groups =
            |published: &Arc<ArcSwap<Snapshot>>, _: &AccessReviewer| -> Vec<Arc<dyn apis::group::ApiGroup>> {
                vec![Arc::new(VisibilityGroup::new(Arc::clone(published)))]
            };
        Self::start_with(Box::new(groups), Box::new(|_| None)).await
    }

    /// Starts a server of these groups, with a private path.
    pub(crate) async fn start_with(groups: Box<MakeGroups>, private: Box<MakePrivatePath>) -> Self {
        sluice::kube::cryptography::install();
        let (now, serving) = (Timestamp::now(), Arc::new(ServingCertificate::default()));
        let ca = pki::new_ca(now, YEAR).unwrap();
        let leaf = pki::new_leaf(&ca, Timestamp::MAX, &[HOST.to_owned()], now, YEAR / 2).unwrap();
        let names = [HOST.to_owned()];
        serving.store(
            pki::load(leaf.certificate.as_bytes(), leaf.key.as_bytes(), None, &names, now).unwrap().key,
        );
        let reviews = Reviews::default();
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", socket.local_addr().unwrap());
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let tokens = "/apis/authentication.k8s.io/v1/tokenreviews";
        let router = Router::new().route(path, axum::routing::post(review)).with_state(reviews.clone());
        let router = router.route(tokens, axum::routing::post(review_token));
        tokio::spawn(async move { axum::serve(socket, router).await });
        let published = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        let front_proxy = Arc::new(FrontProxy::default());
        let call = clients(&api).await.call;
        let access = AccessReviewer::new(&call);
        let server = ApiServer {
            groups: groups(&published, &access).into(),
            front_proxy: Arc::clone(&front_proxy),
            access,
            on_request: Arc::new(|_, _, _| {}),
            private: private(&call),
        };
        let config = tls::server_config_with_any_client(serving, None).unwrap();
        let addresses = vec!["127.0.0.1:0".parse().unwrap()];
        let limits = ListenerLimits::default();
        let listener = Listener::bind("visibility", addresses, Some(config), apis::router(server), limits)
            .await
            .unwrap();
        let address = listener.address().unwrap();
        let (stop, stopped) = watch::channel(false);
        let stops = ListenerStop { retiring: stopped.clone(), stop: stopped };
        tokio::spawn(listener.run(stops));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.certificate.as_bytes()).unwrap()).unwrap();
        Self { address, roots, authority: ca.certificate, published, front_proxy, reviews, _stop: stop }
    }

    pub(crate) async fn get(
        &self,
        path: &str,
        identity: Option<&Identity>,
        headers: &[(&str, &str)],
    ) -> Answer {
        self.request("GET", path, identity, headers).await
    }

    /// Makes a request of HTTP/1.0, whose answer ends with the connection.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        identity: Option<&Identity>,
        headers: &[(&str, &str)],
    ) -> Answer {
        self.send(method, path, (identity, headers), "").await
    }

    /// Sends a body as well.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        (identity, headers): (Option<&Identity>, &[(&str, &str)]),
        body: &str,
    ) -> Answer {
        let builder = ClientConfig::builder().with_root_certificates(self.roots.clone());
        let config = client_config(builder, identity);
        let tcp = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(ServerName::try_from(HOST).unwrap(), tcp).await.unwrap();
        let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let lines = lines.concat();
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let request = format!("{method} {path} HTTP/1.0\r\nhost: {HOST}\r\n{lines}{length}\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        // The server may end the connection without saying so.
        let _ = stream.read_to_string(&mut text).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn publish(&self, pending: i64) {
        let mut manager = QueueManager::default();
        for number in 0..pending {
            let created = Timestamp::from_second(1_800_000_000 + number).unwrap();
            manager.insert(Workload {
                key: ObjectKey::new("ns", &format!("w{number}")),
                uid: Arc::from(number.to_string()),
                cluster_queue: Arc::from("cq"),
                local_queue: Arc::from("lq"),
                queued_since: created,
                listed: ListedFields { created, spec_priority: 7, ..ListedFields::default() },
                ..Workload::default()
            });
        }
        let reference =
            LocalQueueReference { cluster_queue: Arc::from("cq"), stopped: false, is_remote: false };
        let references = References {
            cluster_queues: [Arc::from("cq")].into(),
            local_queues: [(ObjectKey::new("ns", "lq"), reference)].into(),
            ..References::default()
        };
        self.published.store(Arc::new(Snapshot {
            synced: true,
            pending: manager.order().clone(),
            references: Arc::new(references),
            ..Snapshot::default()
        }));
    }

    pub(crate) fn trust(&self, authority: &Authority) {
        self.front_proxy.apply(&json!({
            "client-ca-file": "unused",
            "requestheader-client-ca-file": authority.pem(),
            "requestheader-allowed-names": "[\"front-proxy\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }));
    }
}

pub(crate) async fn clients(server: &str) -> Clients {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": server}}], "users": [{"name": "fake", "user": {}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
    });
    let file = std::env::temp_dir().join(format!("visibility-{}", server.rsplit(':').next().unwrap()));
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let timeouts = Timeouts { call: Duration::from_secs(20), lease: Duration::from_secs(20) };
    let runtime = tokio::runtime::Handle::current();
    let clients = Clients::connect(Some(&file), timeouts, None, &runtime).await.unwrap();
    std::fs::remove_file(file).unwrap();
    clients
}

#[tokio::test]
async fn discovery_is_answered_before_anything_is_known() {
    let server = Server::start().await;
    let get = async |path: &str| server.get(path, None, &[]).await;
    let groups = get("/apis").await.json();
    assert_eq!(
        (&groups["kind"], &groups["groups"][0]["name"]),
        (&json!("APIGroupList"), &json!("visibility.kueue.x-k8s.io"))
    );
    assert_eq!(groups["groups"][0]["preferredVersion"]["version"], "v1beta2");
    let group = get(GROUP).await.json();
    assert_eq!((&group["kind"], group["versions"].as_array().unwrap().len()), (&json!("APIGroup"), 2));
    for version in ["v1beta1", "v1beta2"] {
        let list = get(&format!("{GROUP}/{version}")).await.json();
        let rows: Vec<_> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| (&r["name"], &r["namespaced"], &r["verbs"]))
            .collect();
        let (cq, lq) = (json!("clusterqueues"), json!("localqueues"));
        let (cq_part, lq_part) =
            (json!("clusterqueues/pendingworkloads"), json!("localqueues/pendingworkloads"));
        let (yes, no, none, get) = (json!(true), json!(false), json!([]), json!(["get"]));
        assert_eq!(
            rows,
            [(&cq, &no, &none), (&cq_part, &no, &get), (&lq, &yes, &none), (&lq_part, &yes, &get)]
        );
        let document = server.get(&format!("/openapi/v3{GROUP}/{version}"), None, &[]).await.json();
        assert_eq!(
            (&document["openapi"], document["paths"].as_object().unwrap().len()),
            (&json!("3.0.0"), 2)
        );
    }
    assert_eq!(get("/openapi/v2").await.json()["paths"].as_object().unwrap().len(), 4);
    assert_eq!(get("/openapi/v3").await.json()["paths"].as_object().unwrap().len(), 2);
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(get(path).await.status, 200, "{path}");
    }
    for path in
        ["/", "/api", "/apis/other", "/apis/visibility.kueue.x-k8s.io/v1", "/metrics", "/openapi/v3/apis/a/b"]
    {
        assert_eq!(
            (get(path).await.status, get(path).await.json()["reason"].clone()),
            (404, json!("NotFound")),
            "{path}"
        );
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let answer = server.get("/apis", None, &[("accept", aggregated)]).await;
    assert!(answer.head.contains(&format!("content-type: {}", aggregated.to_lowercase())), "{}", answer.head);
    let part = &answer.json()["items"][0]["versions"][0]["resources"][0]["subresources"][0];
    assert_eq!((&part["subresource"], &part["verbs"]), (&json!("pendingworkloads"), &json!(["get"])));
    let tag = answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_uppercase();
    let same = server.get("/apis", None, &[("accept", aggregated), ("if-none-match", &tag)]).await;
    assert_eq!((same.status, &*same.body), (304, ""));
    let none = server.get("/apis", None, &[("accept", "application/vnd.kubernetes.protobuf")]).await;
    assert_eq!(none.status, 406);
    assert_eq!(server.request("POST", GROUP, None, &[]).await.status, 405);
    assert!(server.reviews.0.lock().unwrap().is_empty(), "nothing of it was asked of the API server");
}

#[tokio::test]
async fn only_users_that_the_api_server_names_are_heard() {
    let server = Server::start().await;
    server.publish(2);
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let proxy = ours.user("front-proxy");
    let ann = [("x-remote-user", "ann"), ("x-remote-group", "dev"), ("x-remote-extra-scope", "s")];
    assert_eq!(server.get(OF_CQ, Some(&proxy), &ann).await.status, 401, "the settings are not read yet");
    server.trust(&ours);
    let refused = [
        ("no certificate", None),
        ("another authority", Some(foreign.user("front-proxy"))),
        ("another name", Some(ours.user("kubelet"))),
        ("a serving certificate", Some(ours.client("front-proxy", &[], ExtendedKeyUsagePurpose::ServerAuth))),
    ];
    for (what, identity) in &refused {
        for path in [OF_CQ, OF_LQ] {
            let answer = server.get(path, identity.as_ref(), &ann).await;
            assert_eq!((answer.status, &answer.json()["reason"]), (401, &json!("Unauthorized")), "{what}");
        }
    }
    assert_eq!(server.get(OF_CQ, Some(&proxy), &[]).await.status, 401, "without a user");
    let token = [("authorization", "Bearer t")];
    assert_eq!(server.get(OF_CQ, None, &token).await.status, 401, "tokens are for the API server");
    assert!(server.reviews.0.lock().unwrap().is_empty());
    assert_eq!(server.get(OF_LQ, Some(&proxy), &ann).await.status, 200);
    assert_eq!(server.get(OF_LQ, Some(&proxy), &ann).await.status, 200);
    let expected = json!({
        "user": "ann", "groups": ["dev", "system:authenticated"], "extra": {"scope": ["s"]},
        "resourceAttributes": {
            "group": "visibility.kueue.x-k8s.io", "version": "v1beta1", "resource": "localqueues",
            "subresource": "pendingworkloads", "namespace": "ns", "name": "lq", "verb": "get",
        },
    });
    assert_eq!(*server.reviews.0.lock().unwrap(), [expected], "asked once");
    let eve = [("x-remote-user", "eve")];
    for _ in 0..2 {
        let answer = server.get(OF_CQ, Some(&proxy), &eve).await;
        assert_eq!(answer.status, 403);
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert_eq!(
            message,
            "clusterqueues.visibility.kueue.x-k8s.io \"cq\" is forbidden: User \"eve\" cannot get resource \"clusterqueues/pendingworkloads\" in API group \"visibility.kueue.x-k8s.io\" at the cluster scope"
        );
    }
    assert_eq!(server.reviews.0.lock().unwrap().len(), 2, "a refusal is kept too");
    assert_eq!(server.get(OF_LQ, Some(&proxy), &[("x-remote-user", "ünï")]).await.status, 200);
    let heard = server.reviews.0.lock().unwrap().last().map(|review| review["user"].clone());
    assert_eq!(heard, Some(json!("ünï")), "names are UTF-8");
    // An authority that is replaced is not trusted any more.
    server.trust(&foreign);
    assert_eq!(server.get(OF_LQ, Some(&proxy), &ann).await.status, 401);
}

#[tokio::test]
async fn resources_are_answered_once_the_lists_are_there() {
    let server = Server::start().await;
    let ours = Authority::new("ours");
    server.trust(&ours);
    let proxy = ours.user("front-proxy");
    let get = async |path: &str, accept: &str| {
        server.get(path, Some(&proxy), &[("x-remote-user", "ann"), ("accept", accept)]).await
    };
    let early = get(OF_CQ, "*/*").await;
    assert_eq!((early.status, &early.json()["reason"]), (503, &json!("ServiceUnavailable")));
    assert!(early.head.contains("retry-after: 1"), "{}", early.head);
    server.publish(2_345);
    let page =
        get(&format!("{OF_CQ}?limit=2&offset=3"), "application/vnd.kubernetes.protobuf,application/json")
            .await;
    let row = |n: usize| {
        json!({
            "metadata": {"name": format!("w{n}"), "namespace": "ns", "creationTimestamp": format!("2027-01-15T08:00:0{n}Z")},
            "priority": 7, "localQueueName": "lq", "positionInClusterQueue": n, "positionInLocalQueue": n,
        })
    };
    let expected = json!({
        "kind": "PendingWorkloadsSummary", "apiVersion": "visibility.kueue.x-k8s.io/v1beta2", "metadata": {},
        "items": [row(3), row(4)],
    });
    assert_eq!((page.status, page.json()), (200, expected));
    for (query, count) in [
        ("", 1_000),
        ("?limit=0", 1_000),
        ("?limit=-1", 0),
        ("?limit=999999", 2_345),
        ("?offset=2340", 5),
        ("?limit=501", 501),
        ("?offset=9999999", 0),
    ] {
        let page = get(&format!("{OF_LQ}{query}"), "application/json").await.json();
        let items = page["items"].as_array().unwrap();
        assert_eq!(
            (items.len(), &page["apiVersion"]),
            (count, &json!("visibility.kueue.x-k8s.io/v1beta1")),
            "{query}"
        );
        let first = items.first().map_or(0, |item| item["positionInLocalQueue"].as_u64().unwrap());
        assert!(
            items.iter().zip(first..).all(|(item, n)| item["positionInClusterQueue"] == n
                && item["metadata"]["name"] == format!("w{n}")),
            "{query}"
        );
    }
    let table = get(&format!("{OF_CQ}?limit=700"), TABLE).await.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 700);
    assert_eq!(rows[699]["cells"], json!(["w699", "ns", "lq", 7, 699, 699, "2027-01-15T08:11:39Z"]));
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 7);
    assert_eq!(
        get(&format!("{OF_CQ}?includeObject=None"), TABLE).await.json()["rows"][0]["object"],
        Value::Null
    );
    for (path, status) in [
        (format!("{OF_CQ}?limit=x"), 400),
        (format!("{OF_CQ}?watch=true"), 405),
        (format!("{GROUP}/v1beta2/clusterqueues/other/pendingworkloads"), 404),
        (format!("{GROUP}/v1beta2/namespaces/other/localqueues/lq/pendingworkloads"), 404),
        (format!("{GROUP}/v1beta2/clusterqueues"), 404),
        (format!("{GROUP}/v1beta2/clusterqueues/cq"), 404),
        (format!("{GROUP}/v1beta2/clusterqueues/cq/status"), 404),
        (format!("{GROUP}/v1beta2/localqueues/lq/pendingworkloads"), 404),
        (format!("{GROUP}/v1beta2/namespaces/ns/clusterqueues/cq/pendingworkloads"), 404),
    ] {
        let answer = get(&path, "application/json").await;
        assert_eq!((answer.status, &answer.json()["kind"]), (status, &json!("Status")), "{path}");
    }
    let missing =
        get(&format!("{GROUP}/v1beta2/clusterqueues/a%22%2Fb/pendingworkloads"), "*/*").await.json();
    assert_eq!(missing["message"], "clusterqueue.visibility.kueue.x-k8s.io \"a\\\"/b\" not found");
    assert_eq!(get(OF_CQ, "application/yaml").await.status, 406);
    let user = [("x-remote-user", "ann")];
    assert_eq!(server.request("DELETE", OF_CQ, Some(&proxy), &user).await.status, 405);
}
