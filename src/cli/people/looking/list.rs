//! `sluice list`.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::Value;

use super::{PAGE, Rows, TableArgs, ViewQuery, note_partial, read, rows};
use crate::cli::files;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::{Discovery, type_and_name};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::{ListOptions, Pages, items};
use crate::people::object_list::ObjectList;
use crate::people::views::{self, FlavorResource, Forest};
use crate::visibility::views::{ClusterQueueView, CohortView, FlavorView, LocalQueueView, WorkloadView};

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Most rows; 0 for all. On a terminal 500 by default, otherwise all.
    #[arg(long, global = true, value_name = "N")]
    limit: Option<usize>,
    /// Label selector.
    #[arg(short = 'l', long, global = true, value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(subcommand)]
    kind: ListKind,
}

#[derive(Debug, clap::Subcommand)]
enum ListKind {
    /// List Workloads with state, position, needs and reason
    #[command(aliases = ["wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(WorkloadFilter),
    /// List ClusterQueues with a bar of their quota
    #[command(aliases = ["cq", "clusterqueues"])]
    Clusterqueue {
        /// Only active ones, or only inactive ones.
        #[arg(long, value_name = "BOOL")]
        active: Option<bool>,
        /// Resource of the bar.
        #[arg(long)]
        resource: Option<String>,
        /// Flavor of the bar.
        #[arg(long)]
        flavor: Option<String>,
    },
    /// List LocalQueues
    #[command(aliases = ["lq", "localqueues"])]
    Localqueue {
        /// Only those of this ClusterQueue.
        #[arg(short = 'c', long, value_name = "NAME")]
        clusterqueue: Option<String>,
        /// In all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// List cohorts
    #[command(alias = "cohorts")]
    Cohort,
    /// List ResourceFlavors with their nodes and what is free
    #[command(aliases = ["rf", "resourceflavors"])]
    Resourceflavor,
}

/// Which Workloads are listed.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkloadFilter {
    /// In all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those of this ClusterQueue.
    #[arg(short = 'c', long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// Only those of this LocalQueue.
    #[arg(short = 'q', long, value_name = "NAME")]
    localqueue: Option<String>,
    /// Only those with this status: pending, quotareserved, admitted, evicted, finished or all; repeatable. Default: all but finished.
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// Only pending ones with this reason, or waiting or stuck: reasons that time can end, and those that need a change.
    #[arg(long, value_name = "REASON")]
    reason: Vec<String>,
    /// Only those of this job.
    #[arg(long = "for", value_name = "TYPE/NAME")]
    for_job: Option<String>,
    /// Further fields: priority=N, metadata.name=NAME.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// With -o json, yaml, name or jsonpath: print the views instead of the Workloads.
    #[arg(long)]
    views: bool,
    /// Order of the rows.
    #[arg(long, value_name = "ORDER")]
    sort_by: Option<SortBy>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SortBy {
    Wait,
    Need,
    Priority,
    Age,
}

pub(crate) async fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    let session = args.connection.connect().await?;
    let limit = match args.limit {
        Some(0) => None,
        Some(limit) => Some(limit),
        None => std::io::stdout().is_terminal().then_some(PAGE),
    };
    let query =
        ViewQuery { labels: args.selector.clone().unwrap_or_default(), limit, ..ViewQuery::default() };
    match &args.kind {
        ListKind::Workload(filter) => workloads(&session, args, filter, query).await?,
        ListKind::Clusterqueue { active, resource, flavor } => {
            let mut found = rows(&session, "clusterqueueviews", &query, "clusterqueueviews").await?;
            if let Some(active) = active {
                found.items.retain(|row| row.get("active").and_then(Value::as_bool) == Some(*active));
            }
            print(args, found, "No resources found", |rows: Vec<ClusterQueueView>, look| {
                let all = rows.iter().flat_map(|row| &row.quota);
                let matching = all.filter(|quota| {
                    resource.as_ref().is_none_or(|name| *name == quota.resource)
                        && flavor.as_ref().is_none_or(|name| *name == quota.flavor)
                });
                let shown: Option<FlavorResource> = views::default_flavor_resource(matching);
                views::cluster_queues(&rows, shown.as_ref(), look)
            })?;
        }
        ListKind::Localqueue { clusterqueue, all_namespaces } => {
            let resource = resource(&session, "localqueueviews", *all_namespaces);
            let mut found = rows(&session, &resource, &query, "localqueueviews").await?;
            if let Some(name) = clusterqueue {
                found
                    .items
                    .retain(|row| row.get("clusterQueue").and_then(Value::as_str) == Some(name.as_str()));
            }
            print(args, found, &nothing(&session, *all_namespaces), |rows: Vec<LocalQueueView>, look| {
                views::local_queues(&rows, *all_namespaces, look)
            })?;
        }
        ListKind::Cohort => {
            let found = rows(&session, "cohortviews", &query, "cohortviews").await?;
            print(args, found, "No resources found", |rows: Vec<CohortView>, look| {
                let shown = views::default_flavor_resource(rows.iter().flat_map(|row| &row.quota));
                let shown = shown
                    .unwrap_or_else(|| FlavorResource { flavor: String::new(), resource: String::new() });
                let forest = Forest { cohorts: &rows, queues: &[] };
                let (text, cycles) = views::cohort_tree(None, forest, &shown, None, look);
                // Cohorts of a cycle have no root.
                for cycle in &cycles {
                    note(cycle);
                }
                text
            })?;
        }
        ListKind::Resourceflavor => {
            let found = rows(&session, "flavorviews", &query, "flavorviews").await?;
            print(args, found, "No resources found", |rows: Vec<FlavorView>, look| {
                views::capacity(&rows, look)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn resource(session: &Session, plural: &str, all_namespaces: bool) -> String {
    if all_namespaces {
        plural.to_owned()
    } else {
        format!("namespaces/{}/{plural}", crate::cli::people::pages::encoded(&session.namespace))
    }
}

fn nothing(session: &Session, all_namespaces: bool) -> String {
    if all_namespaces {
        "No resources found".to_owned()
    } else {
        format!("No resources found in {} namespace.", session.namespace)
    }
}

/// Prints rows as a table, or as the list that they are.
fn print<T: serde::de::DeserializeOwned>(
    args: &ListArgs,
    found: Rows,
    nothing: &str,
    text: impl FnOnce(Vec<T>, views::Look) -> String,
) -> anyhow::Result<()> {
    let (left, is_empty) = (found.left.unwrap_or_default(), found.items.is_empty());
    let list = found.into_list();
    note_partial(&list);
    if is_empty && args.table.format()?.is_none() {
        note(nothing);
        return Ok(());
    }
    args.table.print(&list, |list: Value, look| {
        let items = list.get("items").cloned().unwrap_or_default();
        Ok(text(read(&items)?, look))
    })?;
    if left > 0 {
        note(&format!("{left} more: --limit 0 lists all"));
    }
    Ok(())
}

impl WorkloadFilter {
    /// Returns the field selector that the server reads.
    async fn fields(&self, session: &Session) -> anyhow::Result<String> {
        let mut fields = Vec::new();
        for (field, value) in [("clusterQueue", &self.clusterqueue), ("localQueue", &self.localqueue)] {
            fields.extend(value.as_ref().map(|value| format!("{field}={value}")));
        }
        for (field, values) in [("status", &self.status), ("reason", &self.reason)] {
            if values.iter().any(|value| value.eq_ignore_ascii_case("all")) {
                fields.push(format!("{field}=all"));
            } else if !values.is_empty() {
                fields.push(format!("{field}={}", values.join("|")));
            }
        }
        if let Some(job) = &self.for_job {
            let Some((kind, name)) = type_and_name(job).map_err(anyhow::Error::msg)? else {
                anyhow::bail!("--for must be in resource/name form");
            };
            let served = Discovery::new(&session.caller).find(kind).await?;
            let served = served.ok_or_else(|| anyhow::anyhow!("the server has no kind {kind:?}"))?;
            fields.push(format!("job={}/{name}", served.kind));
        }
        fields.extend(self.field_selector.clone());
        Ok(fields.join(","))
    }

    fn sort(&self, rows: &mut [WorkloadView]) {
        let Some(order) = self.sort_by else { return };
        let need = |row: &WorkloadView| {
            let number = row.needs.first().and_then(|need| need.amount.number.as_ref()?.as_f64());
            number.unwrap_or_default()
        };
        match order {
            SortBy::Wait => rows.sort_by_key(|row| row.since),
            SortBy::Need => rows.sort_by(|a, b| need(b).total_cmp(&need(a))),
            SortBy::Priority => rows.sort_by_key(|row| std::cmp::Reverse(row.priority)),
            SortBy::Age => rows.sort_by_key(|row| row.metadata.creation_timestamp),
        }
    }
}

async fn workloads(
    session: &Session,
    args: &ListArgs,
    filter: &WorkloadFilter,
    query: ViewQuery,
) -> anyhow::Result<()> {
    let query = ViewQuery { fields: filter.fields(session).await?, ..query };
    let resource = resource(session, "workloadviews", filter.all_namespaces);
    let found = rows(session, &resource, &query, "workloadviews").await?;
    let nothing = nothing(session, filter.all_namespaces);
    if args.table.format()?.is_some() && !filter.views {
        return objects(session, args, filter, found, &nothing).await;
    }
    print(args, found, &nothing, |mut rows: Vec<WorkloadView>, look| {
        filter.sort(&mut rows);
        views::workloads(&rows, filter.all_namespaces, look)
    })
}

/// Prints the Workloads of the rows, read page by page.
async fn objects(
    session: &Session,
    args: &ListArgs,
    filter: &WorkloadFilter,
    found: Rows,
    nothing: &str,
) -> anyhow::Result<()> {
    let Some(format) = args.table.format()? else { return Ok(()) };
    let uid = |object: &Value| {
        object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let wanted: BTreeSet<String> = found.items.iter().map(uid).collect();
    let namespace = (!filter.all_namespaces).then_some(session.namespace.as_str());
    let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let options = ListOptions { labels: args.selector.clone(), page, ..ListOptions::default() };
    let mut pages = Pages::new(&session.caller, &PeopleKind::Workload.collection(namespace), &options);
    let mut list = ObjectList::new(format, args.table.output.show_managed_fields);
    while let Some(mut page) = pages.next().await? {
        let kept = items(&mut page).into_iter().filter(|object| wanted.contains(&uid(object))).collect();
        files::print(&list.push(&page, kept).map_err(anyhow::Error::msg)?)?;
    }
    if wanted.is_empty() {
        note(nothing);
    }
    files::print(&list.end().map_err(anyhow::Error::msg)?)
}
