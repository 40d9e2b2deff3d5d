//! Authentication of requests that the API server passes on: it sends the user in headers, and proves by its client certificate
//! that it is the API server.
//!
//! Invariants: the headers count only with a certificate that the authority of front proxies signed, for client
//! authentication, with a name that is allowed, checked for each request against the newest settings; before the settings are
//! read no user is known. There is no other way to authenticate.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind};
use ::kube::{Api, Client};
use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::kube::cryptography;
use crate::kube::rbac_check::FRONT_PROXY_CONFIG_MAP as CONFIG_MAP;
use crate::kube::watch::{WatchSettings, watch_object};
use crate::server::tls::PeerCertificates;

/// Most header values of one user, over all headers.
const MAX_VALUES: usize = 2_000;

/// A user, in the form of a SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// Name.
    #[serde(rename = "user")]
    pub name: String,
    /// UID; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Other properties.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// How API servers identify themselves and their users.
struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Accepted common names of client certificates; empty for any.
    names: Vec<String>,
    headers: UserHeaders,
}

/// Names of the headers with the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UserHeaders {
    user: Vec<String>,
    uid: Vec<String>,
    group: Vec<String>,
    /// Prefixes of names, in small letters.
    extra: Vec<String>,
}

/// The settings of front proxies, as they are now.
#[derive(Default)]
pub struct FrontProxy {
    trust: ArcSwapOption<Trust>,
}

impl FrontProxy {
    /// Follows the ConfigMap. Never returns. Invalid settings are logged; until they are corrected no user is known.
    pub async fn watch(self: Arc<Self>, client: Client, settings: WatchSettings) {
        let (namespace, name) = CONFIG_MAP;
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps");
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let (sender, mut updates) = mpsc::channel::<((), Option<DynamicObject>)>(1);
        let follow = async {
            while let Some(((), object)) = updates.recv().await {
                let data = object.map(|object| object.data).unwrap_or_default();
                self.apply(data.get("data").unwrap_or(&Value::Null));
            }
        };
        tokio::join!(watch_object(api, name.to_owned(), settings, sender, ()), follow);
    }

    /// Uses the data of the ConfigMap from now on.
    pub fn apply(&self, data: &Value) {
        match Trust::of(data) {
            Ok(trust) => self.trust.store(Some(Arc::new(trust))),
            Err(problem) => {
                let (namespace, name) = CONFIG_MAP;
                tracing::error!(
                    problem,
                    "ConfigMap {namespace}/{name} does not say how to recognise the API server; the visibility API refuses all requests"
                );
                self.trust.store(None);
            }
        }
    }

    /// Returns the user of a request.
    ///
    /// # Errors
    /// The reason why the user is not known.
    pub fn user(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificates>,
        now: UnixTime,
    ) -> Result<User, &'static str> {
        let trust = self.trust.load();
        let trust = trust.as_ref().ok_or("it is not known yet how the API server identifies itself")?;
        let (certificate, intermediates) =
            peer.and_then(|peer| peer.0.split_first()).ok_or("requests come through the API server only")?;
        trust
            .verifier
            .verify_client_cert(certificate, intermediates, now)
            .map_err(|_| "the client certificate is not that of an API server")?;
        if !trust.names.is_empty() && !trust.names.contains(&common_name(certificate)) {
            return Err("the name of the client certificate is not allowed");
        }
        trust.headers.user(headers)
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> String {
    let parsed = x509_parser::parse_x509_certificate(certificate).ok();
    let subject = parsed.as_ref().map(|(_, certificate)| certificate.subject());
    let name = subject.and_then(|subject| subject.iter_common_name().last()?.as_str().ok());
    name.unwrap_or_default().to_owned()
}

impl Trust {
    fn of(data: &Value) -> Result<Self, String> {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let list = |key: &str| match text(key) {
            "" => Ok(Vec::new()),
            json => serde_json::from_str::<Vec<String>>(json).map_err(|error| format!("{key}: {error}")),
        };
        let authority = "requestheader-client-ca-file";
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(text(authority).as_bytes()) {
            let certificate = certificate.map_err(|error| format!("{authority}: {error}"))?;
            roots.add(certificate).map_err(|error| format!("{authority}: {error}"))?;
        }
        if roots.is_empty() {
            return Err(format!("{authority}: it has no certificate"));
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(cryptography::provider()));
        let headers = UserHeaders {
            user: list("requestheader-username-headers")?,
            uid: list("requestheader-uid-headers")?,
            group: list("requestheader-group-headers")?,
            extra: list("requestheader-extra-headers-prefix")?.iter().map(|p| p.to_lowercase()).collect(),
        };
        if headers.user.is_empty() {
            return Err("requestheader-username-headers: it has no header".to_owned());
        }
        Ok(Self {
            verifier: verifier.build().map_err(|error| format!("{authority}: {error}"))?,
            names: list("requestheader-allowed-names")?,
            headers,
        })
    }
}

impl UserHeaders {
    /// Returns the user that headers name.
    ///
    /// # Errors
    /// No name, above `MAX_VALUES`, or a value that is not UTF-8: without it the user would be another one.
    fn user(&self, headers: &HeaderMap) -> Result<User, &'static str> {
        let values = |names: &[String]| -> Result<Vec<String>, &'static str> {
            let all = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            let texts = all.map(text).filter(|value| !matches!(value, Ok(value) if value.is_empty()));
            texts.collect()
        };
        let name = values(&self.user)?.into_iter().next().ok_or("the request names no user")?;
        let mut groups = values(&self.group)?;
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let key = self.extra.iter().find_map(|prefix| header.as_str().strip_prefix(prefix.as_str()));
            if let Some(key) = key {
                extra.entry(unescaped(key)).or_default().push(text(value)?);
            }
        }
        let number = extra.values().map(Vec::len).sum::<usize>().saturating_add(groups.len());
        if number > MAX_VALUES {
            return Err("the request names a user with too many groups or properties");
        }
        let (known, unknown) = ("system:authenticated", "system:unauthenticated");
        if name != "system:anonymous" && !groups.iter().any(|group| group == known || group == unknown) {
            groups.push(known.to_owned());
        }
        let uid = values(&self.uid)?.into_iter().next().unwrap_or_default();
        Ok(User { name, uid, groups, extra })
    }
}

/// Returns the text of a header, which the API server sends as it is: `HeaderValue::to_str` reads ASCII alone.
fn text(value: &HeaderValue) -> Result<String, &'static str> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| "a name or group of the user is not UTF-8")
}

/// Resolves the escapes of a key: header names have fewer characters than keys.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some(first) = rest.chars().next() {
        let escaped = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        if let Some(byte) = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = rest.get(3..).unwrap_or_default();
        } else {
            bytes.extend(first.to_string().bytes());
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn names() -> UserHeaders {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        UserHeaders {
            user: list(&["X-Remote-User"]),
            uid: list(&["X-Remote-Uid"]),
            group: list(&["X-Remote-Group"]),
            extra: list(&["x-remote-extra-"]),
        }
    }

    #[test]
    fn headers_become_a_user() {
        let user = names().user(&headers(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "one"),
            ("x-remote-extra-scopes", "two"),
            ("x-remote-extra-acme.com%2fproject", "p"),
        ]));
        let extra = [("scopes", vec!["one", "two"]), ("acme.com/project", vec!["p"])];
        let extra =
            extra.map(|(key, values)| (key.to_owned(), values.into_iter().map(str::to_owned).collect()));
        let groups = ["a", "b", "system:authenticated"].map(str::to_owned).to_vec();
        let expected = User { name: "ann".into(), uid: "7".into(), groups, extra: extra.into() };
        assert_eq!(user, Ok(expected));
        assert!(names().user(&headers(&[("x-remote-group", "system:masters")])).is_err());
        let anonymous =
            headers(&[("x-remote-user", "system:anonymous"), ("x-remote-group", "system:unauthenticated")]);
        assert_eq!(names().user(&anonymous).unwrap().groups, ["system:unauthenticated"]);
        let many: Vec<_> =
            (0..MAX_VALUES).map(|_| ("x-remote-group", "g")).chain([("x-remote-user", "u")]).collect();
        assert!(names().user(&headers(&many)).is_ok());
        let more = headers(&[many, vec![("x-remote-group", "g")]].concat());
        assert!(names().user(&more).is_err());
    }

    #[test]
    fn users_have_the_characters_of_their_language() {
        let user = names().user(&headers(&[
            ("x-remote-user", "ünï"),
            ("x-remote-uid", "é"),
            ("x-remote-group", "größe"),
            ("x-remote-extra-town", "東京"),
        ]));
        let groups = ["größe", "system:authenticated"].map(str::to_owned).to_vec();
        let extra = BTreeMap::from([("town".to_owned(), vec!["東京".to_owned()])]);
        assert_eq!(user, Ok(User { name: "ünï".into(), uid: "é".into(), groups, extra }));
        for header in ["x-remote-user", "x-remote-group", "x-remote-uid", "x-remote-extra-town"] {
            let mut broken = headers(&[("x-remote-user", "ann")]);
            broken.insert(header, HeaderValue::from_bytes(b"\xff").unwrap());
            assert_eq!(names().user(&broken), Err("a name or group of the user is not UTF-8"), "{header}");
        }
    }

    #[test]
    fn keys_are_unescaped() {
        for (key, expected) in [
            ("a", "a"),
            ("a%2Fb", "a/b"),
            ("%", "%"),
            ("a%2", "a%2"),
            ("%zz", "%zz"),
            ("%ff", "%ff"),
            ("é%20", "é "),
        ] {
            assert_eq!(unescaped(key), expected);
        }
    }

    #[test]
    fn settings_without_an_authority_are_refused() {
        let proxy = FrontProxy::default();
        for data in [
            Value::Null,
            serde_json::json!({"requestheader-client-ca-file": "no certificate"}),
            serde_json::json!({"requestheader-allowed-names": "["}),
        ] {
            proxy.apply(&data);
            assert!(proxy.user(&headers(&[("x-remote-user", "ann")]), None, UnixTime::now()).is_err());
        }
    }
}
