//! What the shipped roles grant to the accounts of an installation, compared with the requests in the audit logs of control planes:
//! no request is outside of the roles, whatever a test granted besides, and a right that no request used is named.
//!
//! The roles are those of `config/` and `webhook-certs/`; `tests/it/manifests/permissions.rs` derives each from the feature that needs it.

use crate::install::{ACCOUNT, NAMESPACE};
use crate::objects::text;
use crate::paths;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Accounts whose rights are all in role files; patches of kustomizations add some of those of the separate webhooks.
const ACCOUNTS: [&str; 3] = [ACCOUNT, "kueue-dashboard", "kueue-history"];
/// What each account may create by the roles of Kubernetes.
const OF_EVERYBODY: [&str; 3] = ["selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"];
/// Groups of kinds that tests bring, with rights of their own.
const OF_TESTS: [&str; 2] = ["example.com", "example.org"];

/// A request without the name of its object, as a role names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    account: String,
    verb: String,
    group: String,
    /// With its subresource.
    resource: String,
}

impl Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, verb, group, resource } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{account}: {verb} {resource}{dot}{group}")
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    right: Right,
    namespace: String,
    /// Empty for lists, and for most creates.
    name: String,
}

/// The objects of a right; an empty set means all.
#[derive(Clone, Debug, Default)]
struct Objects {
    names: BTreeSet<String>,
    /// Whether only those of its namespace.
    in_namespace: bool,
}

/// The requests of this program's control planes so far; `None` before `collect`.
static SEEN: Mutex<Option<BTreeSet<Request>>> = Mutex::new(None);

/// Reads the audit logs of control planes that end from now on.
pub fn collect() {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// Reads the audit log of a control plane that ends.
pub(crate) fn observe(log: &Path) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(seen) = seen.as_mut() else { return };
    let Ok(bytes) = fs::read(log) else { return };
    seen.extend(String::from_utf8_lossy(&bytes).lines().filter_map(request));
}

/// Returns the request of a line, if an account of the installation sent it.
fn request(line: &str) -> Option<Request> {
    let part = |text: &str, field: &str| {
        let (_, rest) = text.split_once(&format!("\"{field}\":\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let user = part(line, "username")?;
    let account = user.strip_prefix("system:serviceaccount:")?.strip_prefix(NAMESPACE)?.strip_prefix(':')?;
    let (_, object) = line.split_once("\"objectRef\":{")?;
    let (object, _) = object.split_once('}')?;
    let subresource = part(object, "subresource").map(|name| format!("/{name}")).unwrap_or_default();
    let verb = part(line, "verb")?;
    let right = Right {
        account: account.to_owned(),
        verb: if verb == "apply" { "patch".to_owned() } else { verb },
        group: part(object, "apiGroup").unwrap_or_default(),
        resource: part(object, "resource")? + &subresource,
    };
    let [namespace, name] = ["namespace", "name"].map(|field| part(object, field).unwrap_or_default());
    Some(Request { right, namespace, name })
}

/// What was seen beside what the roles grant.
#[derive(Debug)]
pub struct Comparison {
    /// Requests that no shipped role grants.
    pub outside: Vec<String>,
    /// Rights of the manager that no request used.
    pub unused: Vec<String>,
    /// Rights that requests used.
    pub used: usize,
}

/// Compares the requests that were seen with the shipped roles.
pub fn compare() -> Result<Comparison> {
    let granted = granted()?;
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
    let (mut outside, mut used) = (BTreeMap::<Right, String>::new(), BTreeSet::new());
    for Request { right, namespace, name } in seen {
        let known = OF_EVERYBODY.contains(&right.resource.as_str())
            || OF_TESTS.iter().any(|group| right.group.ends_with(group))
            || !ACCOUNTS.contains(&right.account.as_str());
        let permits = |objects: &Objects| {
            // A list or a watch of named objects selects them by a field, and has no name.
            let named = objects.names.is_empty() || name.is_empty() || objects.names.contains(&name);
            named && (!objects.in_namespace || !namespace.is_empty())
        };
        if granted.get(&right).is_some_and(|objects| objects.iter().any(permits)) {
            used.insert(right);
        } else if !known {
            outside.entry(right).or_insert_with(|| format!("{namespace}/{name}"));
        }
    }
    let unused = granted.keys().filter(|right| right.account == ACCOUNT && !used.contains(*right));
    Ok(Comparison {
        outside: outside.iter().map(|(right, object)| format!("{right} ({object})")).collect(),
        unused: unused.map(ToString::to_string).collect(),
        used: used.len(),
    })
}

/// Returns the rights of the accounts by the shipped roles and bindings.
fn granted() -> Result<BTreeMap<Right, Vec<Objects>>> {
    let mut all = Vec::new();
    for folder in ["config", "webhook-certs"] {
        read_manifests(&paths::root().join(folder), &mut all)?;
    }
    let mut granted: BTreeMap<Right, Vec<Objects>> = BTreeMap::new();
    for binding in all.iter().filter(|object| text(object, "/kind").ends_with("RoleBinding")) {
        let account = text(binding, "/subjects/0/name");
        if !ACCOUNTS.contains(&account) {
            continue;
        }
        let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        // Of the API server's own roles none is bound but the one that every server behind it needs.
        let Some(role) = all.iter().find(|o| text(o, "/kind") == kind && text(o, "/metadata/name") == name)
        else {
            let read = ["get", "list", "watch"].map(|verb| (verb.to_owned(), "configmaps".to_owned()));
            for (verb, resource) in read {
                let right = Right { account: account.to_owned(), verb, group: String::new(), resource };
                let names = BTreeSet::from(["extension-apiserver-authentication".to_owned()]);
                granted.entry(right).or_default().push(Objects { names, in_namespace: true });
            }
            continue;
        };
        for rule in role["rules"].as_array().with_context(|| format!("{name} has no rules"))? {
            let objects = Objects {
                names: words(rule, "resourceNames").collect(),
                in_namespace: text(binding, "/kind") == "RoleBinding",
            };
            for (group, resource) in
                words(rule, "apiGroups").flat_map(|g| words(rule, "resources").map(move |r| (g.clone(), r)))
            {
                for verb in words(rule, "verbs") {
                    let (group, resource) = (group.clone(), resource.clone());
                    let right = Right { account: account.to_owned(), verb, group, resource };
                    granted.entry(right).or_default().push(objects.clone());
                }
            }
        }
    }
    Ok(granted)
}

fn words<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = String> + use<'a> {
    rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}

/// Adds the objects of the YAML files below a folder.
fn read_manifests(folder: &Path, all: &mut Vec<Value>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            read_manifests(&path, all)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&path)?)
                .with_context(|| path.display().to_string())?;
            all.extend(objects);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Request, request};

    #[test]
    fn requests_of_the_accounts_are_read() {
        let line = |user: &str, verb: &str| {
            format!(
                r#"{{"kind":"Event","verb":"{verb}","user":{{"username":"{user}","groups":["a"]}},"objectRef":{{"resource":"workloads","namespace":"ns","name":"w","apiGroup":"kueue.x-k8s.io","apiVersion":"v1beta2","subresource":"status"}},"responseStatus":{{"code":200}}}}"#
            )
        };
        let Request { right, namespace, name } =
            request(&line("system:serviceaccount:kueue-system:kueue-controller-manager", "apply")).unwrap();
        assert_eq!(right.to_string(), "kueue-controller-manager: patch workloads/status.kueue.x-k8s.io");
        assert_eq!((namespace.as_str(), name.as_str()), ("ns", "w"));
        assert!(request(&line("admin", "get")).is_none());
        assert!(request(&line("system:serviceaccount:kueue-systems:x", "get")).is_none());
    }
}
