//! `sluice list`: queues, Workloads and other kinds as tables or objects.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::Value;

use super::preemptions::{self, PreemptionFilter};
use super::server_tables::{self, PodFilter};
use super::shown_quota::EachShownArgs;
use super::watched_rows::Printed;
use super::workload_list::WorkloadFilter;
use super::{PAGE, Rows, TableArgs, ViewQuery, WatchArgs, note_partial, read, rows, time_of};
use crate::cache::Kind;
use crate::cli::files;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::failure::{NOT_FOUND, not_found, wrong_use};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::people::rows_left::RowsLeft;
use crate::people::views::{self, Forest, Look};
use crate::visibility::views::{ClusterQueueView, CohortView, FlavorView, LocalQueueView, WorkloadView};

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Most rows; 0 for all. On a terminal 500 by default, otherwise all.
    #[arg(long, global = true, value_name = "N")]
    limit: Option<usize>,
    /// Label selector.
    #[arg(short = 'l', long, global = true, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Print the labels of objects too.
    #[arg(long, global = true)]
    show_labels: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
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
        #[command(flatten)]
        shown: EachShownArgs,
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
    /// List the pods of a job, or of the group of a pod
    #[command(aliases = ["po", "pod"])]
    Pods(PodFilter),
    /// List what an audit finds
    #[command(alias = "findings")]
    Finding {
        /// Of the whole cluster, which is the default without a namespace.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// List preemptions of the last 24 hours, the newest first
    #[command(alias = "preemptions")]
    Preemption(PreemptionFilter),
    /// List Topologies
    #[command(alias = "topologies")]
    Topology,
    /// List WorkloadPriorityClasses
    #[command(aliases = ["wpc", "priorityclasses", "workloadpriorityclass", "workloadpriorityclasses"])]
    Priorityclass,
}

pub(crate) async fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    if !args.table.output.is_csv() {
        args.table.format()?;
    }
    let kind = match &args.kind {
        ListKind::Pods(_) => "pods",
        ListKind::Topology => "topologies",
        ListKind::Priorityclass => "workloadpriorityclasses",
        _ => "",
    };
    if args.watch.watch && !kind.is_empty() {
        let text = format!("-w: {kind} are objects of the cluster: use kubectl get {kind} --watch");
        return Err(wrong_use(text));
    }
    match &args.kind {
        ListKind::Pods(filter) => {
            return server_tables::pods(&args.table, &args.connection, (filter, args.selector.as_ref()))
                .await;
        }
        ListKind::Topology => return args.server_table(Kind::Topology).await,
        ListKind::Priorityclass => return args.server_table(Kind::WorkloadPriorityClass).await,
        _ => {}
    }
    if let ListKind::Preemption(filter) = &args.kind {
        args.table.check_manager("the history")?;
        // Objects have no history, so only a manager that records has an answer.
        let session = args.connection.connect().await?;
        let query = ViewQuery { limit: args.most_rows(), ..ViewQuery::default() };
        let read = async || preemptions::read(&session, filter, &query).await;
        let print = |list: &Value| preemptions::print(&session, &args.table, filter, list);
        let compared = |list: &Value| list.get("items").cloned().unwrap_or_default();
        return args.watch.run(read, compared, print).await;
    }
    let session = match &args.kind {
        ListKind::Workload(filter) if filter.mine => {
            args.table.check_manager("the submitter of a workload")?;
            args.connection.connect().await?
        }
        ListKind::Preemption(_) => args.connection.connect().await?,
        _ => args.table.connect(&args.connection).await?,
    };
    if let ListKind::Finding { all_namespaces } = args.kind {
        let of_namespace = args.connection.namespace.is_some() && !all_namespaces;
        let read = async || super::audit::findings(&session, of_namespace).await;
        let print = |list: &Value| {
            super::audit::print_list(&args.table, &session, list)?;
            Ok(session.ended(ExitCode::SUCCESS))
        };
        return args.watch.run(read, super::audit::without_time, print).await;
    }
    let list = ViewList::of(args, &session).await?;
    let found = list.read().await?;
    if found.items.is_empty() {
        list.check_queues().await?;
    }
    if let (ListKind::Workload(filter), Some(format)) = (&args.kind, args.format()?)
        && !filter.views
    {
        if args.watch.watch {
            return Err(wrong_use("-w with -o json, yaml, name or jsonpath takes --views"));
        }
        filter.print_objects(&session, args, (found, format), &list.nothing).await?;
        return Ok(session.ended(ExitCode::SUCCESS));
    }
    let seen = by_key(&found.items);
    let (mut printed, all) = (Printed::default(), vec![true; found.items.len()]);
    list.print(found, &all, &mut printed)?;
    if args.watch.watch {
        list.watch(seen, printed).await?;
    }
    Ok(session.ended(ExitCode::SUCCESS))
}

impl ListArgs {
    async fn server_table(&self, kind: Kind) -> anyhow::Result<ExitCode> {
        let selected = (kind.resource(), self.selector.clone());
        server_tables::of_kind(&self.table, &self.connection, selected).await
    }

    /// Returns the format of objects; `None` for a table, which may be comma-separated values.
    fn format(&self) -> anyhow::Result<Option<crate::people::output::ObjectFormat>> {
        if self.table.output.is_csv() { Ok(None) } else { self.table.format() }
    }

    /// Returns whether the table shows only what a brief row of a Workload has.
    fn is_brief(&self) -> anyhow::Result<bool> {
        let ListKind::Workload(filter) = &self.kind else { return Ok(false) };
        let is_narrow = self.format()?.is_none() && !self.table.is_wide() && !self.show_labels;
        Ok(is_narrow && !filter.is_sorted_by_age())
    }

    /// Label selector as given.
    pub(super) const fn selector(&self) -> Option<&String> {
        self.selector.as_ref()
    }

    pub(super) const fn shows_managed_fields(&self) -> bool {
        self.table.output.show_managed_fields
    }

    /// Most rows; `None` for all.
    fn most_rows(&self) -> Option<usize> {
        match self.limit {
            // A watched list is read repeatedly, so it is one page.
            _ if self.watch.watch => Some(PAGE),
            Some(0) => None,
            Some(limit) => Some(limit),
            None => std::io::stdout().is_terminal().then_some(PAGE),
        }
    }

    const fn all_namespaces(&self) -> bool {
        match &self.kind {
            ListKind::Workload(filter) => filter.all_namespaces,
            ListKind::Localqueue { all_namespaces, .. } => *all_namespaces,
            _ => false,
        }
    }
}

/// Returns the path of a list below the group's version.
pub(super) fn resource(session: &Session, plural: &str, all_namespaces: bool) -> String {
    if all_namespaces {
        plural.to_owned()
    } else {
        format!("namespaces/{}/{plural}", super::encoded(&session.namespace))
    }
}

/// Returns the message for an empty list.
pub(super) fn nothing(session: &Session, all_namespaces: bool) -> String {
    if all_namespaces {
        "No resources found".to_owned()
    } else {
        format!("No resources found in {} namespace.", session.namespace)
    }
}

/// A list of views.
struct ViewList<'a> {
    args: &'a ListArgs,
    session: &'a Session,
    /// Resource of the views.
    plural: &'static str,
    query: ViewQuery,
    /// Message for an empty list.
    nothing: String,
}

impl<'a> ViewList<'a> {
    async fn of(args: &'a ListArgs, session: &'a Session) -> anyhow::Result<Self> {
        let fields = match &args.kind {
            ListKind::Workload(filter) => filter.fields(session).await?,
            _ => String::new(),
        };
        let plural = match &args.kind {
            ListKind::Workload(_) => "workloadviews",
            ListKind::Clusterqueue { .. } => "clusterqueueviews",
            ListKind::Localqueue { .. } => "localqueueviews",
            ListKind::Cohort => "cohortviews",
            _ => "flavorviews",
        };
        let is_namespaced = matches!(args.kind, ListKind::Workload(_) | ListKind::Localqueue { .. });
        let nothing = nothing(session, !is_namespaced || args.all_namespaces());
        let labels = args.selector.clone().unwrap_or_default();
        let mut more = if args.is_brief()? { "&brief=true".to_owned() } else { String::new() };
        let limit = args.most_rows();
        if limit.is_some() && matches!(args.kind, ListKind::Workload(_)) {
            more.push_str("&count=true");
        }
        let query = ViewQuery { fields, labels, more, limit };
        Ok(Self { args, session, plural, query, nothing })
    }

    async fn read(&self) -> anyhow::Result<Rows> {
        let is_namespaced = matches!(self.args.kind, ListKind::Workload(_) | ListKind::Localqueue { .. });
        let resource = resource(self.session, self.plural, !is_namespaced || self.args.all_namespaces());
        let mut found = rows(self.session, &resource, &self.query, self.plural).await?;
        let text = |row: &Value, field: &str| row.get(field).and_then(Value::as_str).map(str::to_owned);
        match &self.args.kind {
            ListKind::Clusterqueue { active: Some(active), .. } => {
                found.items.retain(|row| row.get("active").and_then(Value::as_bool) == Some(*active));
            }
            ListKind::Localqueue { clusterqueue: Some(name), .. } => {
                found.items.retain(|row| text(row, "clusterQueue").as_ref() == Some(name));
            }
            ListKind::Workload(filter) => filter.sort(&mut found.items),
            _ => {}
        }
        Ok(found)
    }

    /// Returns an error if the list is empty because a queue that a flag names does not exist.
    async fn check_queues(&self) -> anyhow::Result<()> {
        let (cluster_queue, local_queue) = match &self.args.kind {
            ListKind::Workload(filter) => (&filter.clusterqueue, filter.localqueue.as_ref()),
            ListKind::Localqueue { clusterqueue, .. } => (clusterqueue, None),
            _ => return Ok(()),
        };
        let local_queue = local_queue.filter(|_| !self.args.all_namespaces());
        let named =
            [(PeopleKind::ClusterQueue, cluster_queue.as_ref()), (PeopleKind::LocalQueue, local_queue)];
        for (kind, name) in named {
            let Some(name) = name else { continue };
            let (caller, namespace) = (&self.session.caller, self.session.namespace.as_str());
            // A user that may not read queues gets the empty list.
            if caller.get(&kind.object(namespace, name)).await.err().and_then(|error| error.code())
                == Some(NOT_FOUND)
            {
                let place = kind.resource().namespaced.then_some(namespace);
                let lower = kind.resource().kind.to_lowercase();
                return Err(not_found(caller, &lower, name, &kind.collection(place), place).await);
            }
        }
        Ok(())
    }

    /// Prints the rows that changed as a table, or as the list that they are.
    fn print(&self, mut found: Rows, is_changed: &[bool], printed: &mut Printed) -> anyhow::Result<()> {
        let (left, is_empty) = (found.left, found.items.is_empty());
        let format = self.args.format()?;
        if format.is_some() {
            let mut changed = is_changed.iter();
            found.items.retain(|_| changed.next() == Some(&true));
        }
        let list = found.into_list();
        note_partial(&list);
        if let Some(format) = format {
            return files::print(&format.text(&list, true).map_err(anyhow::Error::msg)?);
        }
        if is_empty {
            note(&self.nothing);
            return Ok(());
        }
        let look = Look { labels: self.args.show_labels, ..self.args.table.look(time_of(&list)) };
        let items = list.get("items").cloned().unwrap_or_default();
        let text = self.text(&items, look)?;
        // The lines of the tree of cohorts do not correspond to rows, so it is printed in full.
        let is_changed = if matches!(self.args.kind, ListKind::Cohort) { &[] } else { is_changed };
        files::print(&printed.changed(&text, is_changed, look.headings))?;
        if let Some(text) = left.note() {
            note(&text);
        }
        Ok(())
    }

    fn text(&self, items: &Value, look: Look) -> anyhow::Result<String> {
        Ok(match &self.args.kind {
            ListKind::Clusterqueue { shown, .. } => {
                let rows: Vec<ClusterQueueView> = read(items)?;
                let shown = shown.each(rows.iter().flat_map(|row| &row.quota))?;
                views::cluster_queue_tables(&rows, &shown, look)
            }
            ListKind::Localqueue { all_namespaces, .. } => {
                views::local_queues(&read::<Vec<LocalQueueView>>(items)?, *all_namespaces, look)
            }
            ListKind::Cohort => {
                let rows: Vec<CohortView> = read(items)?;
                let shown = views::default_flavor_resource(rows.iter().flat_map(|row| &row.quota));
                let forest = Forest { cohorts: &rows, queues: &[] };
                let (text, cycles) = views::cohort_trees(None, forest, shown.as_slice(), None, look);
                // Cohorts in a cycle have no root.
                for cycle in &cycles {
                    note(cycle);
                }
                text
            }
            ListKind::Workload(filter) => {
                views::workloads(&read::<Vec<WorkloadView>>(items)?, filter.all_namespaces, look)
            }
            _ => views::capacity(&read::<Vec<FlavorView>>(items)?, look),
        })
    }

    /// Reads repeatedly, and prints the rows that changed. Returns only with an error.
    async fn watch(&self, mut seen: BTreeMap<String, Value>, mut printed: Printed) -> anyhow::Result<()> {
        let mut failures = super::Failures::default();
        loop {
            super::wait_to_read_again().await;
            let mut found = match self.read().await {
                Ok(found) => found,
                Err(error) => {
                    failures.print(&error);
                    continue;
                }
            };
            failures.end();
            let now = by_key(&found.items);
            let is_changed: Vec<bool> =
                found.items.iter().map(|item| seen.get(&key(item)) != Some(item)).collect();
            found.left = RowsLeft::None;
            if is_changed.contains(&true) {
                self.print(found, &is_changed, &mut printed)?;
            }
            for gone in seen.keys().filter(|key| !now.contains_key(*key)) {
                self.note_end(gone).await;
            }
            seen = now;
        }
    }

    /// Prints for a row that left the list how its Workload ended, or that it no longer exists.
    async fn note_end(&self, row: &str) {
        let workload = match (&self.args.kind, row.split_once('/')) {
            (ListKind::Workload(_), Some((namespace, name))) => {
                let path = PeopleKind::Workload.object(namespace, name);
                self.session.caller.get(&path).await.ok()
            }
            _ => None,
        };
        let ended = workload.as_ref().and_then(ending).unwrap_or_else(|| "is gone".to_owned());
        note(&format!("{row} {ended}"));
    }
}

/// Returns the key of a row: `NAMESPACE/NAME`, or the name.
fn key(row: &Value) -> String {
    let text = |pointer| row.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match text("/metadata/namespace") {
        "" => text("/metadata/name").to_owned(),
        namespace => format!("{namespace}/{}", text("/metadata/name")),
    }
}

fn by_key(rows: &[Value]) -> BTreeMap<String, Value> {
    rows.iter().map(|row| (key(row), row.clone())).collect()
}

/// Returns how a Workload ended; `None` if it has not finished.
fn ending(workload: &Value) -> Option<String> {
    let text = |condition: &Value, field: &str| Some(condition.get(field)?.as_str()?.to_owned());
    let conditions = workload.pointer("/status/conditions")?.as_array()?;
    let finished = conditions.iter().find(|condition| {
        text(condition, "type").as_deref() == Some("Finished")
            && text(condition, "status").as_deref() == Some("True")
    })?;
    Some(format!("finished: {}", text(finished, "reason")?))
}

#[cfg(test)]
mod tests {
    use super::ending;
    use serde_json::json;

    #[test]
    fn a_workload_that_left_the_list_may_have_finished() {
        let workload = |conditions| json!({"status": {"conditions": conditions}});
        let finished = |status| json!({"type": "Finished", "status": status, "reason": "Succeeded"});
        let admitted = json!({"type": "Admitted", "status": "True", "reason": "Admitted"});
        for (object, expected) in [
            (workload(json!([admitted, finished("True")])), Some("finished: Succeeded")),
            (workload(json!([admitted, finished("False")])), None),
            (workload(json!([])), None),
            (json!({}), None),
        ] {
            assert_eq!(ending(&object).as_deref(), expected, "{object}");
        }
    }
}
