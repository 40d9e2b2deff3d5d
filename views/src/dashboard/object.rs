//! YAML and events of an object: the page that has them, read with the viewer's own token, and the commands for both.
//!
//! Invariants: this page is the only one whose contents the API server decides on for the viewer; the process that serves it reads
//! nothing by its own rights; a name is that of an object before it becomes a part of an address.

use super::cluster_queue::ClusterQueueQuery;
use super::data::OverviewQuery;
use super::flavors::FlavorQuery;
use super::frame::{Frame, Request};
use super::links::{Links, encode};
use super::question::{PageQuestion, decode};
use super::rows::Crumb;
use super::text::{self, Moment};
use crate::api::GROUP;
use crate::api::validation::syntax::subdomain;
use crate::people::description::event_time;
use crate::people::object_text::{for_output, yaml_text};
use crate::visibility::questions::WorkloadName;
use askama::Template;
use jiff::Timestamp;
use serde_json::Value;

/// Longest YAML that a page shows, in bytes.
const MAX_YAML: usize = 200_000;
/// Most events that a page shows, the newest first.
const MAX_EVENTS: usize = 50;
/// Path of the kinds on the API server.
const API: &str = "/apis/kueue.x-k8s.io/v1beta2";

/// A kind whose objects have such a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Workload.
    Workload,
    /// ClusterQueue.
    ClusterQueue,
    /// Cohort.
    Cohort,
    /// ResourceFlavor.
    ResourceFlavor,
}

impl ObjectKind {
    const ALL: [Self; 4] = [Self::Workload, Self::ClusterQueue, Self::Cohort, Self::ResourceFlavor];

    const fn plural(self) -> &'static str {
        match self {
            Self::Workload => "workloads",
            Self::ClusterQueue => "clusterqueues",
            Self::Cohort => "cohorts",
            Self::ResourceFlavor => "resourceflavors",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Workload => "Workload",
            Self::ClusterQueue => "ClusterQueue",
            Self::Cohort => "Cohort",
            Self::ResourceFlavor => "ResourceFlavor",
        }
    }
}

/// An object as an address names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Namespace of a Workload; empty for the other kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectName {
    /// Reads the path of an address below the path prefix: `/objects/PLURAL/[NAMESPACE/]NAME`; `None` for any other.
    pub fn parse(address: &str) -> Option<Self> {
        let path = address.split('?').next()?.strip_prefix("/objects/")?;
        let decoded: Option<Vec<String>> = path.split('/').map(|segment| decode(segment, false)).collect();
        let (plural, rest) = decoded.as_ref()?.split_first()?;
        let kind = ObjectKind::ALL.into_iter().find(|kind| kind.plural() == plural)?;
        let (namespace, name) = match (kind, rest) {
            (ObjectKind::Workload, [namespace, name]) => (namespace.clone(), name.clone()),
            (ObjectKind::Workload, _) => return None,
            (_, [name]) => (String::new(), name.clone()),
            _ => return None,
        };
        let is_name = |text: &str| subdomain(text).is_empty();
        let is_valid = is_name(&name) && (kind != ObjectKind::Workload || is_name(&namespace));
        is_valid.then_some(Self { kind, namespace, name })
    }

    /// Returns the address of the page with YAML and events.
    fn href(&self, links: &Links) -> String {
        let parts = [self.kind.plural(), self.namespace.as_str(), self.name.as_str()];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).map(encode).collect();
        links.to(&format!("/objects/{}", parts.join("/")))
    }

    /// Returns the page that explains the object. A viewer that may see that page may ask for YAML and events.
    pub fn page(&self) -> PageQuestion {
        let name = self.name.clone();
        match self.kind {
            ObjectKind::Workload => {
                PageQuestion::Workload(WorkloadName { namespace: self.namespace.clone(), name })
            }
            ObjectKind::ClusterQueue => PageQuestion::ClusterQueue(ClusterQueueQuery { name }),
            ObjectKind::Cohort => PageQuestion::Overview(OverviewQuery { cohort: name, fr: String::new() }),
            ObjectKind::ResourceFlavor => {
                PageQuestion::Flavors(FlavorQuery { flavor: name, ..FlavorQuery::default() })
            }
        }
    }

    /// Returns the path of the object on the API server.
    pub fn api_path(&self) -> String {
        let place = if self.namespace.is_empty() {
            String::new()
        } else {
            format!("/namespaces/{}", encode(&self.namespace))
        };
        format!("{API}{place}/{}/{}", self.kind.plural(), encode(&self.name))
    }

    /// Returns the namespace of the object's events.
    fn events_namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    fn events_selector(&self) -> String {
        format!("involvedObject.kind={},involvedObject.name={}", self.kind.kind(), self.name)
    }

    /// Returns the path and query of the object's events on the API server.
    pub fn events_path(&self) -> String {
        let (namespace, selector) = (encode(self.events_namespace()), encode(&self.events_selector()));
        format!("/api/v1/namespaces/{namespace}/events?limit=500&fieldSelector={selector}")
    }
}

/// The commands for YAML and events of an object, and the page that has both.
pub(super) struct ObjectLinks {
    pub(super) yaml: String,
    pub(super) events: String,
    /// Address of the page; empty if the viewer's token is not one for the API server.
    pub(super) href: String,
}

impl ObjectLinks {
    pub(super) fn of(object: &ObjectName, request: &Request) -> Self {
        let place =
            if object.namespace.is_empty() { String::new() } else { format!(" -n {}", object.namespace) };
        let (plural, name) = (object.kind.plural(), &object.name);
        Self {
            yaml: format!("kubectl get {plural}.{GROUP} {name}{place} -o yaml"),
            events: format!(
                "kubectl get events -n {} --field-selector {}",
                object.events_namespace(),
                object.events_selector()
            ),
            href: if request.reads_objects { object.href(&request.links) } else { String::new() },
        }
    }
}

/// What the API server has answered to a viewer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadObject {
    /// The object; `None` if it was not read.
    pub object: Option<Value>,
    /// The events that name the object.
    pub events: Vec<Value>,
    /// Why a part was not read, as sentences; empty if both were.
    pub refusals: Vec<String>,
}

#[derive(Template)]
#[template(path = "object.html", config = "src/dashboard/askama.toml")]
struct ObjectTemplate<'a> {
    frame: Frame,
    crumbs: Vec<Crumb>,
    kind: &'static str,
    object: &'a ObjectName,
    refusals: &'a [String],
    yaml: String,
    events: Vec<EventRow>,
    commands: ObjectLinks,
}

struct EventRow {
    time: Moment,
    kind: String,
    reason: String,
    message: String,
    count: String,
}

/// Renders the page with YAML and events of an object.
///
/// # Errors
/// The template fails, which is a bug.
pub fn object_page(request: &Request, object: &ObjectName, read: &ReadObject) -> askama::Result<String> {
    let yaml = read
        .object
        .as_ref()
        .and_then(|object| yaml_text(&for_output(object, false)).ok())
        .unwrap_or_default();
    let mut refusals = read.refusals.clone();
    if yaml.len() > MAX_YAML {
        refusals.push("The YAML is too long for a page: use the command.".to_owned());
    }
    ObjectTemplate {
        frame: Frame::bare(request, &object.name),
        crumbs: vec![Crumb::new(&object.name, object.page().page().href(&request.links))],
        kind: object.kind.kind(),
        object,
        refusals: &refusals,
        yaml: if yaml.len() > MAX_YAML { String::new() } else { yaml },
        events: events(&read.events, request.now),
        commands: ObjectLinks::of(object, request),
    }
    .render()
}

fn events(events: &[Value], now: Timestamp) -> Vec<EventRow> {
    let text =
        |event: &Value, field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut sorted: Vec<(Option<Timestamp>, &Value)> =
        events.iter().map(|event| (event_time(event), event)).collect();
    sorted.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let row = |(time, event): &(Option<Timestamp>, &Value)| {
        let count = event.get("count").or_else(|| event.pointer("/series/count")).and_then(Value::as_u64);
        EventRow {
            time: time.map_or_else(Moment::default, |time| Moment::clock_on(time, now)),
            kind: text(event, "type"),
            reason: text(event, "reason"),
            message: text(event, "message"),
            count: text::count(count.unwrap_or(1)),
        }
    };
    sorted.iter().take(MAX_EVENTS).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_name_objects() {
        for (address, api, events) in [
            (
                "/objects/workloads/ns/job-a",
                "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/job-a",
                "/api/v1/namespaces/ns/events?limit=500&fieldSelector=\
                 involvedObject.kind%3DWorkload%2CinvolvedObject.name%3Djob-a",
            ),
            (
                "/objects/clusterqueues/nlp",
                "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/nlp",
                "/api/v1/namespaces/default/events?limit=500&fieldSelector=\
                 involvedObject.kind%3DClusterQueue%2CinvolvedObject.name%3Dnlp",
            ),
        ] {
            let object = ObjectName::parse(address).unwrap();
            assert_eq!((object.api_path(), object.events_path()), (api.to_owned(), events.to_owned()));
            assert_eq!(object.href(&Links::default()), address);
        }
        for address in [
            "/objects/secrets/ns/a",
            "/objects/workloads/a",
            "/objects/workloads//a",
            "/objects/clusterqueues/a/b",
            "/objects/clusterqueues/..%2Fsecrets",
            "/objects/clusterqueues/..",
            "/objects/clusterqueues/",
            "/objects/cohorts/%ff",
            "/workloads/ns/a",
        ] {
            assert_eq!(ObjectName::parse(address), None, "{address}");
        }
    }

    #[test]
    fn yaml_and_the_newest_events_are_shown_as_text() {
        let name = ObjectName::parse("/objects/workloads/ns/a").unwrap();
        let event = |reason: &str, at: &str| json!({"type": "Normal", "reason": reason, "message": "<b>m</b>", "lastTimestamp": at});
        let read = ReadObject {
            object: Some(
                json!({"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}, "spec": {"queueName": "<q>"}}),
            ),
            events: vec![event("Old", "2026-11-26T14:00:00Z"), event("New", "2026-11-26T14:05:00Z")],
            refusals: Vec::new(),
        };
        let request = Request { now: "2026-11-26T14:06:00Z".parse().unwrap(), ..Request::default() };
        let html = object_page(&request, &name, &read).unwrap();
        assert!(html.find(">New<").unwrap() < html.find(">Old<").unwrap(), "{html}");
        assert!(html.contains("queueName:") && !html.contains("managedFields"), "{html}");
        assert!(!html.contains("<q>") && !html.contains("<b>m</b>"), "escaped");
        let refused = ReadObject { refusals: vec!["No.".to_owned()], ..ReadObject::default() };
        assert!(object_page(&request, &name, &refused).unwrap().contains("<p>No.</p>"));
        assert_eq!(ObjectLinks::of(&name, &request).href, "", "the token is none for the API server");
        let reads = Request { reads_objects: true, ..request };
        assert_eq!(ObjectLinks::of(&name, &reads).href, "/objects/workloads/ns/a");
    }
}
