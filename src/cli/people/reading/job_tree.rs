//! `sluice tree job`: reads, with the user's own rights, a job and what belongs to it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::Value;

use super::{TableArgs, WatchArgs};
use crate::api::names::{JOB_UID_LABEL, POD_GROUP_NAME};
use crate::cli::files;
use crate::cli::framework_files::FrameworkFileArgs;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::Discovery;
use crate::cli::people::failure::{EXIT_PARTIAL, FORBIDDEN, NOT_FOUND};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::pages::encoded;
use crate::cli::people::targets::{self, Target};
use crate::frameworks::pod_selector;
use crate::kube::list::list_path;
use crate::people::job_tree::{JobParts, Part, job_tree};
use crate::people::workload_object::{is_true, text_at};
use crate::topology::HOSTNAME_LABEL;

/// Objects of a page.
const PAGE: u32 = 500;
/// Most nodes that are read.
const MAX_NODES: usize = 50;

/// Arguments of `tree job`.
#[derive(Debug, clap::Args)]
pub(super) struct JobTreeArgs {
    /// Job as TYPE[.GROUP]/NAME, or a Workload.
    #[arg(value_name = "TYPE/NAME")]
    name: String,
    /// Print UIDs too.
    #[arg(long)]
    uid: bool,
    #[command(flatten)]
    framework_files: FrameworkFileArgs,
}

pub(super) async fn run(
    table: &TableArgs,
    connection: &ConnectionArgs,
    watch: WatchArgs,
    args: &JobTreeArgs,
) -> anyhow::Result<ExitCode> {
    args.framework_files.add()?;
    let session = table.connect_to_objects(connection).await?;
    let read = async || {
        let parts = read(&session, &args.name).await?;
        let text = |pointer: &str| text_at(parts.workloads.first()?, pointer).map(encoded);
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let now = table.now(&session, &format!("namespaces/{namespace}/workloadviews/{name}")).await;
        Ok((parts, now))
    };
    let compared = |(parts, _): &(JobParts, Timestamp)| objects(parts);
    let print = |(parts, now): &(JobParts, Timestamp)| {
        let shown = objects(parts);
        match table.format()? {
            Some(format) => files::print(
                &format.text(&shown, table.output.show_managed_fields).map_err(anyhow::Error::msg)?,
            )?,
            None => files::print(&job_tree(parts, args.uid, table.look(*now)))?,
        }
        let is_partial =
            [&parts.pods, &parts.provisioning].iter().any(|part| matches!(part, Part::Forbidden));
        Ok(if is_partial { ExitCode::from(EXIT_PARTIAL) } else { session.ended(ExitCode::SUCCESS) })
    };
    watch.run(read, compared, print).await
}

/// Returns all objects as a list.
fn objects(parts: &JobParts) -> Value {
    let of_part = |part: &Part| match part {
        Part::Read(objects) => objects.clone(),
        Part::Forbidden => Vec::new(),
    };
    let mut items: Vec<Value> = parts.job.iter().cloned().collect();
    items.extend(parts.workloads.iter().cloned());
    items.extend(of_part(&parts.provisioning));
    items.extend(of_part(&parts.pods));
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items})
}

async fn read(session: &Session, name: &str) -> anyhow::Result<JobParts> {
    let mut discovery = Discovery::new(&session.caller);
    let target = targets::one(session, &mut discovery, name).await?;
    let namespace = target.namespace().to_owned();
    let (job, name) = top(session, &target).await?;
    let workloads = workloads(session, &namespace, job.as_ref(), target).await?;
    let provisioning = provisioning(session, &namespace, &workloads).await?;
    let selector = job.as_ref().and_then(pod_selector);
    let pods = match selector {
        Some(selector) => {
            let path = format!("/api/v1/namespaces/{}/pods", encoded(&namespace));
            part(session, &path, &format!("labelSelector={}", encoded(&selector))).await?
        }
        None => Part::Read(Vec::new()),
    };
    let levels = super::topology_levels::of(session, &workloads).await;
    let (nodes, domains) = nodes(session, &pods, &levels).await;
    Ok(JobParts { name, job, workloads, provisioning, pods, nodes, domains })
}

/// Returns the job that owns a Workload, and its name in the tree.
async fn top(session: &Session, target: &Target) -> anyhow::Result<(Option<Value>, String)> {
    let Some(owner) = target.owners.first() else { return Ok((None, "no job".to_owned())) };
    let mut job = session.caller.get(&owner.path).await?;
    let (kind, owner_name) = owner.name.split_once('/').unwrap_or(("job", &owner.name));
    let text = |pointer: &str| text_at(&job, pointer).map(str::to_owned);
    let label = format!("/metadata/labels/{}", POD_GROUP_NAME.replace('/', "~1"));
    let name = match text(&label) {
        Some(group) if kind == "pod" => format!("pod group {group}"),
        _ => format!("{} {owner_name}", text("/kind").unwrap_or_else(|| kind.to_owned())),
    };
    // An item of a list has neither apiVersion nor kind, unlike a single object.
    if let Some(fields) = job.as_object_mut() {
        fields.entry("kind").or_insert_with(|| kind.into());
    }
    Ok((Some(job), name))
}

/// Returns all Workloads of a job: an elastic job has one for each slice.
async fn workloads(
    session: &Session,
    namespace: &str,
    job: Option<&Value>,
    target: Target,
) -> anyhow::Result<Vec<Value>> {
    let mut found = vec![target.workload];
    if let Some(uid) = job.and_then(|job| text_at(job, "/metadata/uid")) {
        let query = format!("labelSelector={}", encoded(&format!("{JOB_UID_LABEL}={uid}")));
        let path = PeopleKind::Workload.collection(Some(namespace));
        found.extend(list_path(&session.caller, &path, &query, PAGE).await?);
    }
    let mut seen = BTreeSet::new();
    found.retain(|workload| seen.insert(text_at(workload, "/metadata/uid").unwrap_or_default().to_owned()));
    found.sort_by_key(|workload| {
        text_at(workload, "/metadata/creationTimestamp").unwrap_or_default().to_owned()
    });
    Ok(found)
}

async fn provisioning(session: &Session, namespace: &str, workloads: &[Value]) -> anyhow::Result<Part> {
    let has_checks = |workload: &Value| {
        let checks = workload.pointer("/status/admissionChecks").and_then(Value::as_array);
        checks.is_some_and(|checks| !checks.is_empty())
    };
    if !workloads.iter().any(has_checks) {
        return Ok(Part::Read(Vec::new()));
    }
    let path =
        format!("/apis/autoscaling.x-k8s.io/v1/namespaces/{}/provisioningrequests", encoded(namespace));
    part(session, &path, "").await
}

/// Reads a collection; a kind that is not installed has no objects.
async fn part(session: &Session, path: &str, query: &str) -> anyhow::Result<Part> {
    match list_path(&session.caller, path, query, PAGE).await {
        Ok(objects) => Ok(Part::Read(objects)),
        Err(error) if error.code() == Some(FORBIDDEN) => Ok(Part::Forbidden),
        Err(error) if error.code() == Some(NOT_FOUND) => Ok(Part::Read(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// Returns the problems of the first nodes of pods, and the domains of all nodes that are read, as far as the user may read
/// nodes. Pods with a topology assignment have their domains themselves.
async fn nodes(
    session: &Session,
    pods: &Part,
    levels: &[String],
) -> (BTreeMap<String, &'static str>, BTreeMap<String, String>) {
    let (mut troubled, mut domains) = (BTreeMap::new(), BTreeMap::new());
    let Part::Read(pods) = pods else { return (troubled, domains) };
    let above: Vec<&String> = levels.iter().filter(|level| *level != HOSTNAME_LABEL).collect();
    let domain = |labels: Option<&Value>| {
        let value = |level: &&String| labels?.get(level.as_str())?.as_str();
        let values: Option<Vec<&str>> = above.iter().map(value).collect();
        values.filter(|values| !values.is_empty()).map(|values| values.join("/"))
    };
    for pod in pods {
        let Some(name) = text_at(pod, "/spec/nodeName") else { continue };
        domains.extend(domain(pod.pointer("/spec/nodeSelector")).map(|domain| (name.to_owned(), domain)));
    }
    let names: BTreeSet<&str> = pods.iter().filter_map(|pod| text_at(pod, "/spec/nodeName")).collect();
    for name in names.into_iter().take(MAX_NODES) {
        let Ok(node) = session.caller.get(&format!("/api/v1/nodes/{}", encoded(name))).await else { break };
        domains.extend(domain(node.pointer("/metadata/labels")).map(|domain| (name.to_owned(), domain)));
        if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
            troubled.insert(name.to_owned(), "cordoned");
        } else if !is_true(&node, "Ready") {
            troubled.insert(name.to_owned(), "not ready");
        }
    }
    (troubled, domains)
}
