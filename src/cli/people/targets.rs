//! The Workloads that a verb acts on, and the jobs that own them.
//!
//! Invariant: a target holds the object as it was read, whose UID and version every later write carries.

use anyhow::{anyhow, bail};
use serde_json::Value;

use super::args::WorkloadArgs;
use super::connection::Session;
use super::discovery::{Discovery, type_and_name};
use super::failure::{NOT_FOUND, not_found};
use super::jobs::{ForObject, for_object};
use super::kinds::PeopleKind;
use super::note;
use super::pages::{ListOptions, Pages, items};
use super::source::VIEWS;
use crate::api::names::{JOB_UID_LABEL, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION, QUEUE_NAME_LABEL};
use crate::cache::Kind;
use crate::frameworks::{JobKind, frameworks};
use crate::kube::client::{CallError, collection_path};
use crate::people::workload_object::{WorkloadState, text_at};

/// Objects of a page.
const PAGE: i64 = 500;

/// A Workload and its owners.
pub(crate) struct Target {
    pub(crate) workload: Value,
    pub(crate) owners: Vec<Owner>,
}

/// An object that owns a Workload.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) path: String,
    /// `KIND.GROUP/NAME`.
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Target {
    pub(crate) fn namespace(&self) -> &str {
        text_at(&self.workload, "/metadata/namespace").unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        text_at(&self.workload, "/metadata/name").unwrap_or_default()
    }

    pub(crate) fn path(&self) -> String {
        PeopleKind::Workload.object(self.namespace(), self.name())
    }

    pub(crate) fn state(&self) -> WorkloadState {
        WorkloadState::of(&self.workload)
    }

    /// Returns the line about the Workload in lists: its jobs, or its own name.
    pub(crate) fn line(&self) -> String {
        let state = self.state().flag();
        match self.owners.first() {
            Some(first) => {
                let more = if self.owners.len() > 1 {
                    format!(" and {} more", self.owners.len() - 1)
                } else {
                    String::new()
                };
                format!(
                    "{} (uid {}, {state}){more}   workload {}",
                    first.name,
                    short(&first.uid),
                    self.name()
                )
            }
            None => format!("workload {} ({state})", self.name()),
        }
    }
}

/// Returns the first characters of a UID, all of them ASCII.
fn short(uid: &str) -> String {
    if uid.chars().count() > 4 { uid.chars().take(4).chain("...".chars()).collect() } else { uid.to_owned() }
}

/// Reads the Workloads that flags select. For Workloads that cannot be read, errors are returned beside the others.
pub(crate) async fn read(
    session: &Session,
    args: &WorkloadArgs,
) -> anyhow::Result<(Vec<Target>, Vec<anyhow::Error>)> {
    let mut discovery = Discovery::new(&session.caller);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    if args.names.is_empty() {
        if !args.all && args.selector.is_none() {
            bail!("name a workload, or use --all or --selector");
        }
        let options = ListOptions { labels: args.selector.clone(), page: PAGE, ..ListOptions::default() };
        let namespace = (!args.all_namespaces).then_some(session.namespace.as_str());
        let mut pages = Pages::new(&session.caller, &PeopleKind::Workload.collection(namespace), &options);
        while let Some(mut page) = pages.next().await? {
            for workload in items(&mut page) {
                found.push(with_owners(&mut discovery, with_used_fields(workload)).await?);
            }
        }
    }
    for name in &args.names {
        match one(session, &mut discovery, name).await {
            Ok(target) => found.push(target),
            Err(error) => failed.push(error),
        }
    }
    Ok((found, failed))
}

/// Drops the fields that no verb reads of many Workloads.
fn with_used_fields(mut workload: Value) -> Value {
    if let Some(metadata) = workload.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
        metadata.shift_remove("annotations");
    }
    if let Some(spec) = workload.get_mut("spec").and_then(Value::as_object_mut) {
        spec.shift_remove("podSets");
    }
    workload
}

/// Reads the Workload of a name, or of a job's `TYPE/NAME`.
pub(crate) async fn one(
    session: &Session,
    discovery: &mut Discovery<'_>,
    text: &str,
) -> anyhow::Result<Target> {
    let namespace = session.namespace.as_str();
    if type_and_name(text).map_err(anyhow::Error::msg)?.is_some() {
        let (kind, name) = text.split_once('/').unwrap_or((text, ""));
        let Some(resource) = discovery.find(kind).await? else { bail!("the server has no kind {kind:?}") };
        if resource.is_workload() {
            return by_name(session, discovery, name).await;
        }
        let job = match for_object(discovery, &session.caller, Some(namespace), text).await? {
            ForObject::Found(job) => job,
            ForObject::NotFound | ForObject::NoName => bail!("{text} not found in namespace {namespace}"),
        };
        return of_job(session, discovery, text, &job).await;
    }
    by_name(session, discovery, text).await
}

/// Returns the Workload with a name, or the Workload of the only job with this name.
async fn by_name(session: &Session, discovery: &mut Discovery<'_>, text: &str) -> anyhow::Result<Target> {
    let namespace = session.namespace.as_str();
    match session.caller.get(&PeopleKind::Workload.object(namespace, text)).await {
        Ok(workload) => with_owners(discovery, workload).await,
        Err(error) if error.code() == Some(NOT_FOUND) => {
            if let Some((kind, job)) = only_job_of_name(session, text).await? {
                note(&format!("{text} is no workload: taken as {kind}/{text}"));
                of_job(session, discovery, &format!("{kind}/{text}"), &job).await
            } else {
                let collection = PeopleKind::Workload.collection(Some(namespace));
                Err(not_found(&session.caller, "workload", text, &collection, Some(namespace)).await)
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the Workload of a job.
async fn of_job(
    session: &Session,
    discovery: &mut Discovery<'_>,
    text: &str,
    job: &Value,
) -> anyhow::Result<Target> {
    let namespace = session.namespace.as_str();
    let uid = text_at(job, "/metadata/uid").unwrap_or_default().to_owned();
    let labels = job.pointer("/metadata/labels").and_then(Value::as_object);
    let label =
        |name: &str| labels.and_then(|labels| labels.get(name)?.as_str()).filter(|value| !value.is_empty());
    if let Some(group) = label(POD_GROUP_NAME) {
        match session.caller.get(&PeopleKind::Workload.object(namespace, group)).await {
            Ok(workload) => return with_owners(discovery, workload).await,
            Err(error) if error.code() == Some(NOT_FOUND) => {
                let total = job.get("metadata").and_then(|it| it.get("annotations"));
                let total = total.and_then(|all| all.get(POD_GROUP_TOTAL_COUNT_ANNOTATION)?.as_str());
                let until = total.map(|total| format!(": it has one when all {total} pods exist"));
                bail!("{text} has no Workload: its group {group} has none yet{}", until.unwrap_or_default())
            }
            Err(error) => return Err(error.into()),
        }
    }
    let by_label =
        ListOptions { labels: Some(format!("{JOB_UID_LABEL}={uid}")), page: PAGE, ..ListOptions::default() };
    let all = ListOptions { page: PAGE, ..ListOptions::default() };
    let collection = PeopleKind::Workload.collection(Some(namespace));
    // Workloads that did not pass the webhooks have no label of their job.
    for options in [by_label, all] {
        let mut pages = Pages::new(&session.caller, &collection, &options);
        let mut latest: Option<Value> = None;
        while let Some(mut page) = pages.next().await? {
            for workload in items(&mut page).into_iter().filter(|workload| is_owned(workload, &uid)) {
                // Of several, as for an elastic job, the unfinished one is used.
                if latest.is_none() || WorkloadState::of(&workload) != WorkloadState::Finished {
                    latest = Some(workload);
                }
            }
        }
        if let Some(workload) = latest {
            return with_owners(discovery, workload).await;
        }
    }
    if let Some(why) = why_none(session, text, job).await? {
        return Err(why.into());
    }
    Err(match label(QUEUE_NAME_LABEL) {
        None => anyhow!("{text} has no Workload: it has no label {QUEUE_NAME_LABEL}"),
        Some(queue) => anyhow!("{text} has no Workload yet; it names LocalQueue {queue}"),
    })
}

/// A job that has no Workload, and why.
#[derive(Debug, thiserror::Error)]
#[error("{job} has no Workload: {message}")]
pub(crate) struct WithoutWorkload {
    /// The job as named by the user.
    pub(crate) job: String,
    /// Reason in one word, as in events.
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Returns why a job has no Workload: from the views, or else from the job's newest warning event, which managers without the
/// views write too.
async fn why_none(session: &Session, text: &str, job: &Value) -> anyhow::Result<Option<WithoutWorkload>> {
    let of_job = |pointer: &str| text_at(job, pointer).unwrap_or_default();
    let (kind, name) = (of_job("/kind"), of_job("/metadata/name"));
    let namespace = super::pages::encoded(&session.namespace);
    let without = |reason: Option<&str>, message: Option<&str>| {
        let (reason, message) = (reason?.to_owned(), message?.trim_end_matches('.').to_owned());
        Some(WithoutWorkload { job: text.to_owned(), reason, message })
    };
    let selector = super::pages::encoded(&format!("job={kind}/{name},status=all"));
    let views = format!("{VIEWS}/namespaces/{namespace}/workloadviews?fieldSelector={selector}");
    match session.caller.get(&views).await {
        Ok(list) => {
            let why = |field: &str| text_at(&list, &format!("/withoutWorkload/{field}"));
            if let Some(why) = without(why("reason"), why("message")) {
                return Ok(Some(why));
            }
        }
        Err(CallError::Status { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let selector = super::pages::encoded(&format!("involvedObject.uid={}", of_job("/metadata/uid")));
    let events = format!("/api/v1/namespaces/{namespace}/events?fieldSelector={selector}");
    let mut events = match session.caller.get(&events).await {
        Ok(mut list) => items(&mut list),
        Err(CallError::Status { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    events.retain(|event| text_at(event, "/type") == Some("Warning"));
    let time = |event: &Value| {
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        times.iter().find_map(|pointer| text_at(event, pointer)).unwrap_or_default().to_owned()
    };
    let newest = events.iter().max_by_key(|event| time(event));
    Ok(newest.and_then(|event| without(text_at(event, "/reason"), text_at(event, "/message"))))
}

fn is_owned(workload: &Value, uid: &str) -> bool {
    owner_references(workload).any(|owner| text_at(owner, "/uid") == Some(uid))
}

fn owner_references(workload: &Value) -> impl Iterator<Item = &Value> {
    workload.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the only job of a supported kind with this name, and its kind in lower case.
async fn only_job_of_name(session: &Session, name: &str) -> anyhow::Result<Option<(String, Value)>> {
    let mut found = Vec::new();
    for row in frameworks() {
        let resource = Kind::of_job(JobKind::new(row)).resource();
        let path = format!(
            "{}/{}",
            collection_path(&resource, &super::pages::encoded(&session.namespace)),
            super::pages::encoded(name)
        );
        match session.caller.get(&path).await {
            Ok(job) => found.push((resource.kind.to_lowercase(), job)),
            // A kind that is not installed, or that the user may not read, cannot have the named job.
            Err(CallError::Status { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let names: Vec<String> = found.iter().map(|(kind, _)| format!("{kind}/{name}")).collect();
            bail!("{name:?} is ambiguous: use one of {}", names.join(", "))
        }
    }
}

async fn with_owners(discovery: &mut Discovery<'_>, workload: Value) -> anyhow::Result<Target> {
    let mut owners = Vec::new();
    let namespace = text_at(&workload, "/metadata/namespace").unwrap_or_default();
    for owner in owner_references(&workload) {
        let text = |field: &str| text_at(owner, field).unwrap_or_default();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/name"));
        let Some(served) = discovery.of_kind(version, kind).await? else {
            bail!("owner {kind} {name} of workload: the server has no kind {kind:?} in version {version:?}");
        };
        let group = if served.group.is_empty() { String::new() } else { format!(".{}", served.group) };
        owners.push(Owner {
            path: served.object(namespace, name),
            name: format!("{}{group}/{name}", kind.to_lowercase()),
            uid: text("/uid").to_owned(),
        });
    }
    Ok(Target { workload, owners })
}
