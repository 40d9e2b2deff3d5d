//! The texts of changes on a command line.
//!
//! Invariant: an error says what is expected in the value; flag and value are named by the caller, which has them.

use super::{Change, Edit, FieldPath, MAX_ADDED_NODES, Target};
use crate::api::validation::syntax;
use crate::api::{crd, similar};
use crate::cache::Kind;
use crate::frameworks::JobKind;
use crate::resources::Quantity;
use serde_json::Value;

/// Short names of kinds for which neither the row of a kind of job nor a definition has them. kubectl has none for Workloads, because
/// another kind of the cluster could take it.
const SHORT: [(&str, Kind); 4] =
    [("no", Kind::Node), ("ns", Kind::Namespace), ("pc", Kind::PriorityClass), ("wl", Kind::Workload)];

impl Edit {
    /// Parses `--set FIELD=VALUE KIND/NAME`. A value is JSON if it reads as such, otherwise a text.
    ///
    /// # Errors
    /// A part is malformed, or no kind has this name.
    pub fn set(assignment: &str, object: &str) -> Result<Self, String> {
        parsed(&format!("--set {assignment} {object}"), || {
            let (path, value) = assignment
                .split_once('=')
                .filter(|(path, _)| !path.is_empty())
                .ok_or_else(|| format!("FIELD=VALUE is expected, not {assignment:?}"))?;
            let path = FieldPath::parse(path).map_err(|fault| format!("{path:?}: {fault}"))?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            Ok((target(object, None)?, Change::Set(path, value)))
        })
    }

    /// Parses `--quota`, `--borrow` or `--lend` `[KIND/]NAME:FLAVOR:RESOURCE=QUANTITY`; the kind is `ClusterQueue` if none is given. The
    /// quantity `none` removes a limit.
    ///
    /// # Errors
    /// A part is malformed.
    pub fn amount(flag: &str, field: &'static str, value: &str) -> Result<Self, String> {
        parsed(&format!("{flag} {value}"), || {
            let expected = || format!("QUEUE:FLAVOR:RESOURCE=QUANTITY is expected, not {value:?}");
            let (place, quantity) = value.rsplit_once('=').ok_or_else(expected)?;
            let parts: Vec<&str> = place.split(':').collect();
            let [queue, flavor, resource] = parts.as_slice() else { return Err(expected()) };
            let of_limit = quantity == "none" && field != "nominalQuota";
            if !of_limit {
                let amount =
                    Quantity::parse(quantity).ok().filter(|_| quantity.bytes().any(|b| b.is_ascii_digit()));
                amount.ok_or_else(|| format!("{quantity:?} is no quantity, such as 8, 500m or 10Gi"))?;
            }
            let target = target(queue, Some(Kind::ClusterQueue))?;
            if !matches!(target.kind, Kind::ClusterQueue | Kind::Cohort) {
                return Err(format!("{queue:?}: a ClusterQueue or Cohort is expected"));
            }
            let quantity = (!of_limit).then(|| quantity.to_owned());
            let (flavor, resource) = ((*flavor).to_owned(), (*resource).to_owned());
            Ok((target, Change::Amount { field, flavor, resource, quantity }))
        })
    }

    /// Parses a flag and the NAME of a node that is deleted, as after it was drained.
    ///
    /// # Errors
    /// The name is none of a node.
    pub fn drained_node(flag: &str, name: &str) -> Result<Self, String> {
        parsed(&format!("{flag} {name}"), || Ok((node(name)?, Change::Delete)))
    }

    /// Parses `--add-nodes N --like NODE`.
    ///
    /// # Errors
    /// The name is none of a node.
    pub fn added_nodes(count: usize, like: &str) -> Result<Self, String> {
        parsed(&format!("--add-nodes {count} --like {like}"), || Ok((node(like)?, Change::AddNodes(count))))
    }

    /// Parses the number of nodes of `--add-nodes`.
    ///
    /// # Errors
    /// The number is not from 1 to `MAX_ADDED_NODES`.
    pub fn node_count(text: &str) -> Result<usize, String> {
        let count = text.parse::<usize>().ok().filter(|count| (1..=MAX_ADDED_NODES).contains(count));
        count.ok_or_else(|| format!("a number from 1 to {MAX_ADDED_NODES} is expected, not {text:?}"))
    }

    /// Parses `--delete KIND/NAME` of a job or a Workload.
    ///
    /// # Errors
    /// A part is malformed, or the object is no job and no Workload.
    pub fn deleted(object: &str) -> Result<Self, String> {
        parsed(&format!("--delete {object}"), || Ok((stoppable(object, false)?, Change::DeleteJob)))
    }

    /// Whether the change is one of a job or a Workload, whose users may make it.
    pub const fn is_of_workload(&self) -> bool {
        matches!(self.target.kind, Kind::Workload | Kind::Job(_) | Kind::Pod)
            && matches!(self.change, Change::DeleteJob | Change::Stop | Change::Priority(_))
    }

    /// Returns the flag and its value.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses `--stop KIND/NAME`.
    ///
    /// # Errors
    /// A part is malformed, or objects of the kind cannot be stopped.
    pub fn stopped(object: &str) -> Result<Self, String> {
        parsed(&format!("--stop {object}"), || Ok((stoppable(object, true)?, Change::Stop)))
    }

    /// Parses `--priority KIND/NAME=CLASS`; the class may be a number.
    ///
    /// # Errors
    /// A part is malformed, or objects of the kind have no priority.
    pub fn reprioritized(value: &str) -> Result<Self, String> {
        parsed(&format!("--priority {value}"), || {
            let (object, class) = value
                .rsplit_once('=')
                .filter(|(_, class)| !class.is_empty())
                .ok_or_else(|| format!("KIND/NAME=CLASS is expected, not {value:?}"))?;
            let out_of_range = class.parse::<i128>().is_ok() && class.parse::<i32>().is_err();
            if out_of_range {
                return Err(format!("a priority is at most {}, not {class}", i32::MAX));
            }
            Ok((stoppable(object, false)?, Change::Priority(class.to_owned())))
        })
    }
}

fn parsed(text: &str, parse: impl FnOnce() -> Result<(Target, Change), String>) -> Result<Edit, String> {
    let (target, change) = parse()?;
    Ok(Edit { text: text.to_owned(), target, change })
}

impl Target {
    /// Parses `KIND/NAME` of a job or a Workload.
    pub(in super::super) fn of_workload(text: &str) -> Result<Self, String> {
        stoppable(text, false)
    }
}

/// Parses the name of a node, which may have its kind before it.
fn node(text: &str) -> Result<Target, String> {
    let kind = text.split_once('/').map(|(kind, _)| kind_named(kind));
    if kind.is_some_and(|kind| kind != Ok(Kind::Node)) {
        return Err(format!("{text:?}: the name of a node is expected"));
    }
    target(text, Some(Kind::Node))
}

/// Parses the name of a Workload, of a job, or of a queue.
fn stoppable(object: &str, queues: bool) -> Result<Target, String> {
    let target = target(object, None)?;
    let is_queue = matches!(target.kind, Kind::ClusterQueue | Kind::LocalQueue);
    if matches!(target.kind, Kind::Workload | Kind::Job(_) | Kind::Pod) || (queues && is_queue) {
        return Ok(target);
    }
    let queue = if queues { ", a ClusterQueue or a LocalQueue" } else { "" };
    Err(format!("{object:?}: a job, a Workload{queue} is expected"))
}

/// Parses `KIND[.GROUP]/NAME`, or a name alone where the kind is known.
fn target(text: &str, default: Option<Kind>) -> Result<Target, String> {
    let (kind, name) = match (text.split_once('/'), default) {
        (Some((kind, name)), _) => (kind_named(kind)?, name),
        (None, Some(kind)) => (kind, text),
        (None, None) => return Err(format!("KIND/NAME is expected, not {text:?}")),
    };
    match syntax::subdomain(name).into_iter().next() {
        Some(fault) => Err(format!("{name:?} is no name: {fault}")),
        None => Ok(Target { kind, name: name.to_owned() }),
    }
}

/// Returns the short names in the row of a kind of job; none of other kinds.
fn short_names_of_job(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Job(kind) => kind.row().short_names,
        Kind::Pod => JobKind::POD.row().short_names,
        _ => &[],
    }
}

/// Returns the kind that a user names by its kind, plural or short name, with or without its group.
fn kind_named(text: &str) -> Result<Kind, String> {
    let lower = text.to_lowercase();
    let (name, group) =
        lower.split_once('.').map_or((lower.as_str(), None), |(name, group)| (name, Some(group)));
    let is_named = |kind: &Kind| {
        let resource = kind.resource();
        let named = resource.kind.eq_ignore_ascii_case(name)
            || resource.plural == name
            || SHORT.contains(&(name, *kind))
            || short_names_of_job(*kind).contains(&name)
            || (resource.group == crate::api::GROUP && crd::short_names(resource.kind).contains(&name));
        named && group.is_none_or(|group| resource.group == group)
    };
    let all = Kind::all();
    if let Some(kind) = all.iter().find(|kind| is_named(kind)) {
        return Ok(*kind);
    }
    let names: Vec<String> = all.iter().map(|kind| kind.resource().kind.to_lowercase()).collect();
    let hint = similar::hint(name, names.iter().map(String::as_str));
    Err(format!("{text:?} is no kind{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_with_or_without_their_kind() {
        for text in ["h1", "node/h1", "no/h1"] {
            let found = node(text).unwrap();
            assert_eq!((found.kind, found.name.as_str()), (Kind::Node, "h1"), "{text}");
        }
        for text in ["cq/h1", "<script>alert(1)</script>", "/", "nodee/h1"] {
            let error = node(text).unwrap_err();
            assert_eq!(error, format!("{text:?}: the name of a node is expected"));
        }
        assert!(node("H1").unwrap_err().starts_with("\"H1\" is no name: "));
    }

    #[test]
    fn kinds_have_short_names() {
        for (text, expected) in [
            ("no", Some("Node")),
            ("ns", Some("Namespace")),
            ("pc", Some("PriorityClass")),
            ("wl", Some("Workload")),
            ("cq", Some("ClusterQueue")),
            ("po", Some("Pod")),
            ("pods", Some("Pod")),
            ("deploy.apps", Some("Deployment")),
            ("STS", Some("StatefulSet")),
            ("sts.batch", None),
        ] {
            let found = kind_named(text).ok().map(|kind| kind.resource().kind);
            assert_eq!(found, expected, "{text}");
        }
    }
}
