//! `kueuectl list workload`: Workloads with their jobs, queues and states.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use jiff::Timestamp;
use serde_json::Value;

use super::flags::{AllNamespacesArgs, PrintArgs, SelectorArgs};
use super::list::{age_text, list_options, text};
use super::queue_positions::QueuePositions;
use crate::api::names::JOB_UID_LABEL;
use crate::cli::files;
use crate::cli::people::closed::Closed;
use crate::cli::people::connection::Session;
use crate::cli::people::discovery::Discovery;
use crate::cli::people::jobs::{ForObject, for_object};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::{Pages, items};
use crate::kube::client::Caller;
use crate::people::duration::human;
use crate::people::object_list::ObjectList;
use crate::people::text_table::TextTable;
use crate::people::workload_object::{WorkloadState, run_time, text_at};

/// Longest name of a job's type.
const TYPE_LENGTH: usize = 20;
const HEADINGS: [&str; 9] = [
    "Name",
    "Job Type",
    "Job Name",
    "LocalQueue",
    "ClusterQueue",
    "Status",
    "Position in Queue",
    "Exec Time",
    "Age",
];
const NOT_FOUND: u16 = 404;

#[derive(Debug, clap::Args)]
pub(super) struct WorkloadArgs {
    #[command(flatten)]
    selectors: SelectorArgs,
    #[command(flatten)]
    all: AllNamespacesArgs,
    /// Only those of this ClusterQueue, pending ones included.
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// Only those of this LocalQueue.
    #[arg(short = 'q', long, value_name = "NAME")]
    localqueue: Option<String>,
    /// Only those with this status: all, pending, quotareserved, admitted or finished; repeatable.
    #[arg(long, value_name = "STATUS", hide_possible_values = true, value_parser = Closed::words(states))]
    status: Vec<String>,
    /// Only those of this job.
    #[arg(long = "for", value_name = "TYPE[.API-GROUP]/NAME")]
    for_job: Option<String>,
    #[command(flatten)]
    print: PrintArgs,
}

fn states() -> Vec<&'static str> {
    vec!["all", "pending", "quotareserved", "admitted", "finished"]
}

impl WorkloadArgs {
    /// Returns the states that are listed; `None` for all.
    fn states(&self) -> anyhow::Result<Option<BTreeSet<WorkloadState>>> {
        let mut states = BTreeSet::new();
        let mut all = self.status.is_empty();
        for status in &self.status {
            states.insert(match status.to_lowercase().as_str() {
                "all" => {
                    all = true;
                    continue;
                }
                "pending" => WorkloadState::Pending,
                "quotareserved" => WorkloadState::QuotaReserved,
                "admitted" => WorkloadState::Admitted,
                "finished" => WorkloadState::Finished,
                _ => bail!(
                    "invalid status value ({status}). Must be \"all\", \"pending\", \"quotareserved\", \"admitted\" or \"finished\""
                ),
            });
        }
        Ok((!all).then_some(states))
    }
}

pub(super) async fn run(session: &Session, args: &WorkloadArgs) -> anyhow::Result<()> {
    let mut options = list_options(&args.selectors)?;
    let states = args.states()?;
    let format = args.print.format()?;
    let nothing = args.all.nothing(&session.namespace);
    let namespace = args.all.namespace(&session.namespace);
    let mut discovery = Discovery::new(&session.caller);
    let mut owner = None;
    if let Some(job) = args.for_job.as_deref().filter(|job| !job.is_empty()) {
        owner = match for_object(&mut discovery, &session.caller, namespace, job).await? {
            ForObject::Found(job) => Some(text(&job, "/metadata/uid")),
            ForObject::NoName => bail!("--for must be in resource/name form"),
            ForObject::NotFound => {
                note(&nothing);
                return Ok(());
            }
        };
    }
    let without_job = options.clone();
    if let Some(uid) = &owner {
        let label = format!("{JOB_UID_LABEL}={uid}");
        options.labels = Some(
            options
                .labels
                .filter(|labels| !labels.is_empty())
                .map_or(label.clone(), |labels| format!("{labels},{label}")),
        );
    }
    let collection = PeopleKind::Workload.collection(namespace);
    let mut columns = Columns {
        caller: &session.caller,
        cluster_queues: BTreeMap::new(),
        positions: QueuePositions::new(&session.caller, namespace),
        discovery,
        namespace: args.all.all_namespaces,
        now: Timestamp::now(),
    };
    let mut objects = format.map(|format| ObjectList::new(format, args.print.shows_managed_fields()));
    let mut table =
        TextTable::kubectl(args.all.all_namespaces.then_some("Namespace").into_iter().chain(HEADINGS));
    let mut pages = Pages::new(&session.caller, &collection, &options);
    let (mut is_empty, mut is_first, mut by_owner) = (true, true, None);
    while let Some(mut page) = pages.next().await? {
        let mut read = items(&mut page);
        if std::mem::take(&mut is_first) && read.is_empty() && owner.is_some() {
            // Workloads that did not pass the webhooks have no label of their job.
            pages = Pages::new(&session.caller, &collection, &without_job);
            by_owner = owner.take();
            continue;
        }
        read.retain(|workload| {
            states.as_ref().is_none_or(|states| states.contains(&WorkloadState::of(workload)))
                && is_wanted(args.localqueue.as_deref(), text_at(workload, "/spec/queueName"))
                && by_owner
                    .as_ref()
                    .is_none_or(|uid| owners(workload).any(|owner| text_at(owner, "/uid") == Some(uid)))
        });
        let mut kept = Vec::new();
        for workload in read {
            let queue = match &args.clusterqueue {
                Some(name) if !name.is_empty() => columns.cluster_queue(&workload).await?,
                _ => None,
            };
            if is_wanted(args.clusterqueue.as_deref(), queue.as_deref()) {
                kept.push(workload);
            }
        }
        is_empty &= kept.is_empty();
        match &mut objects {
            Some(list) => files::print(&list.push(&page, kept).map_err(anyhow::Error::msg)?)?,
            None => {
                for workload in &kept {
                    table.push(columns.of(workload).await?);
                }
            }
        }
    }
    if is_empty {
        note(&nothing);
        return Ok(());
    }
    match objects {
        Some(list) => files::print(&list.end().map_err(anyhow::Error::msg)?),
        None => files::print(&table.text(true, None)),
    }
}

/// Returns whether a name is the wanted one; true for every name if none is wanted.
fn is_wanted(wanted: Option<&str>, name: Option<&str>) -> bool {
    wanted.filter(|wanted| !wanted.is_empty()).is_none_or(|wanted| name == Some(wanted))
}

fn owners(workload: &Value) -> impl Iterator<Item = &Value> {
    workload.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Columns that come from other objects, each read once, and only if it is shown.
struct Columns<'a> {
    caller: &'a Caller,
    /// ClusterQueues by namespace and name of the LocalQueue.
    cluster_queues: BTreeMap<(String, String), Option<String>>,
    positions: QueuePositions<'a>,
    discovery: Discovery<'a>,
    namespace: bool,
    now: Timestamp,
}

impl Columns<'_> {
    async fn of(&mut self, workload: &Value) -> anyhow::Result<Vec<String>> {
        let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
        let queue = self.cluster_queue(workload).await?;
        let state = WorkloadState::of(workload);
        let position = match &queue {
            Some(queue) if state == WorkloadState::Pending => {
                self.positions.of(queue, &namespace, &name).await?
            }
            _ => None,
        };
        let cells = [
            name,
            self.job_types(workload).await?,
            owners(workload).map(|owner| text(owner, "/name")).collect::<Vec<_>>().join(", "),
            text(workload, "/spec/queueName"),
            queue.unwrap_or_default(),
            state.flag().to_uppercase(),
            position.map(|position| position.to_string()).unwrap_or_default(),
            run_time(workload, self.now).map(human).unwrap_or_default(),
            age_text(workload, self.now),
        ];
        Ok(self.namespace.then_some(namespace).into_iter().chain(cells).collect())
    }

    /// Returns the ClusterQueue of the admission, or else that of the LocalQueue.
    async fn cluster_queue(&mut self, workload: &Value) -> anyhow::Result<Option<String>> {
        let admitted = text_at(workload, "/status/admission/clusterQueue").filter(|name| !name.is_empty());
        if let Some(name) = admitted {
            return Ok(Some(name.to_owned()));
        }
        let key = (text(workload, "/metadata/namespace"), text(workload, "/spec/queueName"));
        if key.1.is_empty() {
            return Ok(None);
        }
        if let Some(known) = self.cluster_queues.get(&key) {
            return Ok(known.clone());
        }
        let queue = match self.caller.get(&PeopleKind::LocalQueue.object(&key.0, &key.1)).await {
            Ok(queue) => text_at(&queue, "/spec/clusterQueue").map(str::to_owned),
            Err(error) if error.code() == Some(NOT_FOUND) => None,
            Err(error) => return Err(error.into()),
        };
        self.cluster_queues.insert(key, queue.clone());
        Ok(queue)
    }

    async fn job_types(&mut self, workload: &Value) -> anyhow::Result<String> {
        let mut types: Vec<String> = Vec::new();
        for owner in owners(workload) {
            let (version, kind) = (text(owner, "/apiVersion"), text(owner, "/kind"));
            let served = self.discovery.of_kind(&version, &kind).await?;
            let Some(served) = served.filter(|served| !served.singular.is_empty()) else { continue };
            let mut name: String = served.singular.chars().take(TYPE_LENGTH).collect();
            if served.singular.chars().count() > TYPE_LENGTH {
                name.push_str("...");
            }
            if !types.contains(&name) {
                types.push(name);
            }
        }
        Ok(types.join(", "))
    }
}
