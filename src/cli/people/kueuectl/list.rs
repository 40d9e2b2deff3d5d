//! `kueuectl list`: queues, flavors and Workloads as tables or objects.

use jiff::Timestamp;
use serde_json::Value;

use super::flags::{AllNamespacesArgs, PrintArgs, SelectorArgs, go_bool, page_size};
use super::{list_pods, list_workloads};
use crate::cli::files;
use crate::cli::people::connection::ConnectionArgs;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::{ListOptions, Pages, items};
use crate::people::duration::human;
use crate::people::object_list::ObjectList;
use crate::people::text_table::TextTable;
use crate::people::workload_object::{age, is_true, text_at};

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(subcommand)]
    pub(super) kind: ListKind,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum ListKind {
    /// List LocalQueue
    #[command(alias = "lq")]
    Localqueue(LocalQueueArgs),
    /// List ClusterQueues
    #[command(alias = "cq")]
    Clusterqueue(ClusterQueueArgs),
    /// List Workload
    #[command(aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(list_workloads::WorkloadArgs),
    /// List ResourceFlavor
    #[command(alias = "rf")]
    Resourceflavor(ResourceFlavorArgs),
    /// List Pods belong to a Job Kind
    #[command(alias = "po")]
    Pods(list_pods::PodArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct LocalQueueArgs {
    #[command(flatten)]
    selectors: SelectorArgs,
    #[command(flatten)]
    all: AllNamespacesArgs,
    /// Only those of this ClusterQueue.
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: Option<String>,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ClusterQueueArgs {
    #[command(flatten)]
    selectors: SelectorArgs,
    /// Only active ones, or only inactive ones.
    #[arg(long, value_name = "BOOL", value_parser = go_bool, value_delimiter = ',')]
    active: Vec<bool>,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResourceFlavorArgs {
    #[command(flatten)]
    selectors: SelectorArgs,
    #[command(flatten)]
    print: PrintArgs,
}

/// A list of a kind without columns from other objects.
struct PlainList<'a> {
    kind: PeopleKind,
    /// Namespace; `None` for all.
    namespace: Option<&'a str>,
    selectors: &'a SelectorArgs,
    print: &'a PrintArgs,
    nothing: String,
}

pub(super) async fn run(connection: &ConnectionArgs, kind: ListKind) -> anyhow::Result<()> {
    let session = connection.connect().await?;
    let nothing = "No resources found".to_owned();
    match kind {
        ListKind::Workload(args) => list_workloads::run(&session, &args).await,
        ListKind::Pods(args) => list_pods::run(&session, &args).await,
        ListKind::Clusterqueue(args) => {
            let ClusterQueueArgs { selectors, active, print } = &args;
            if active.len() > 1 {
                anyhow::bail!("only one active flag can be provided");
            }
            let kind = PeopleKind::ClusterQueue;
            let list = PlainList { kind, namespace: None, selectors, print, nothing };
            let keep =
                |queue: &Value| active.first().is_none_or(|active| is_true(queue, "Active") == *active);
            list.run(
                &session.caller,
                ["Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age"],
                keep,
                |queue, age| {
                    [
                        text(queue, "/metadata/name"),
                        text(queue, "/spec/cohortName"),
                        count(queue, "/status/pendingWorkloads"),
                        count(queue, "/status/admittedWorkloads"),
                        is_true(queue, "Active").to_string(),
                        age,
                    ]
                    .into()
                },
            )
            .await
        }
        ListKind::Localqueue(args) => {
            let LocalQueueArgs { selectors, all, clusterqueue, print } = &args;
            let nothing = all.nothing(&session.namespace);
            let namespace = all.namespace(&session.namespace);
            let list = PlainList { kind: PeopleKind::LocalQueue, namespace, selectors, print, nothing };
            let wanted = clusterqueue.as_deref().filter(|name| !name.is_empty());
            let keep =
                |queue: &Value| wanted.is_none_or(|name| text_at(queue, "/spec/clusterQueue") == Some(name));
            let namespace = all.all_namespaces.then_some("Namespace");
            let headings = namespace.into_iter().chain([
                "Name",
                "ClusterQueue",
                "Pending Workloads",
                "Admitted Workloads",
                "Age",
            ]);
            list.run(&session.caller, headings, keep, |queue, age| {
                let namespace = namespace.map(|_| text(queue, "/metadata/namespace"));
                let cells = [
                    text(queue, "/metadata/name"),
                    text(queue, "/spec/clusterQueue"),
                    count(queue, "/status/pendingWorkloads"),
                    count(queue, "/status/admittedWorkloads"),
                    age,
                ];
                namespace.into_iter().chain(cells).collect()
            })
            .await
        }
        ListKind::Resourceflavor(args) => {
            let ResourceFlavorArgs { selectors, print } = &args;
            let kind = PeopleKind::ResourceFlavor;
            let list = PlainList { kind, namespace: None, selectors, print, nothing };
            list.run(
                &session.caller,
                ["Name", "Node Labels", "Age"],
                |_| true,
                |flavor, age| {
                    let labels =
                        flavor.pointer("/spec/nodeLabels").and_then(Value::as_object).into_iter().flatten();
                    let mut labels: Vec<String> = labels
                        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                        .collect();
                    labels.sort_unstable();
                    vec![text(flavor, "/metadata/name"), labels.join(", "), age]
                },
            )
            .await
        }
    }
}

impl PlainList<'_> {
    async fn run<'h>(
        self,
        caller: &crate::kube::client::Caller,
        headings: impl IntoIterator<Item = &'h str>,
        keep: impl Fn(&Value) -> bool,
        cells: impl Fn(&Value, String) -> Vec<String>,
    ) -> anyhow::Result<()> {
        let format = self.print.format()?;
        let mut objects = format.map(|format| ObjectList::new(format, self.print.shows_managed_fields()));
        let mut table = TextTable::kubectl(headings);
        let options = list_options(self.selectors)?;
        let collection = self.kind.collection(self.namespace);
        let mut pages = Pages::new(caller, &collection, &options);
        let (mut is_empty, now) = (true, Timestamp::now());
        while let Some(mut page) = pages.next().await? {
            let kept: Vec<Value> = items(&mut page).into_iter().filter(&keep).collect();
            is_empty &= kept.is_empty();
            match &mut objects {
                Some(list) => files::print(&list.push(&page, kept).map_err(anyhow::Error::msg)?)?,
                None => kept.iter().for_each(|object| table.push(cells(object, age_text(object, now)))),
            }
        }
        if is_empty {
            note(&self.nothing);
            return Ok(());
        }
        match objects {
            Some(list) => files::print(&list.end().map_err(anyhow::Error::msg)?),
            None => files::print(&table.text(true, None)),
        }
    }
}

/// Returns the options of a list from the flags.
pub(super) fn list_options(selectors: &SelectorArgs) -> anyhow::Result<ListOptions> {
    Ok(ListOptions {
        labels: selectors.selector.clone(),
        fields: selectors.field_selector.clone(),
        page: page_size()?,
    })
}

/// Returns the text at a pointer; empty if there is none.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    text_at(object, pointer).unwrap_or_default().to_owned()
}

fn count(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default().to_string()
}

/// Returns the age of an object.
pub(super) fn age_text(object: &Value, now: Timestamp) -> String {
    age(object, now).map_or_else(|| "<unknown>".to_owned(), human)
}
