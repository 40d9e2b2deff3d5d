//! `sluice tree` and `sluice share`: the quota of cohorts and ClusterQueues as trees.

use std::process::ExitCode;

use anyhow::anyhow;
use serde_json::{Value, json};

use super::job_tree::JobTreeArgs;
use super::shown_quota::{EachShownArgs, ShownArgs};
use super::{TableArgs, ViewQuery, WatchArgs, note_partial, read, rows};
use crate::api::similar;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::failure::EXIT_PARTIAL;
use crate::cli::people::note;
use crate::people::views::{self, Forest};
use crate::visibility::views::{ClusterQueueView, CohortView, LocalQueueView, QuotaView};

/// Names that stand for LocalQueues instead of a cohort.
const LOCAL_QUEUE: [&str; 3] = ["localqueue", "localqueues", "lq"];

/// Arguments of `tree`.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: TreeKind,
}

#[derive(Debug, clap::Subcommand)]
enum TreeKind {
    /// Show quota, usage, what is borrowed and what is lent, along the tree of cohorts
    #[command(alias = "cohorts")]
    Cohort {
        /// Cohort; default: all without a parent.
        name: Option<String>,
        #[command(flatten)]
        shown: EachShownArgs,
        /// Levels below the cohort.
        #[arg(long, value_name = "N")]
        depth: Option<usize>,
    },
    /// Show a job with its Workload, admission checks, pod sets and pods
    Job(JobTreeArgs),
}

/// Arguments of `share`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShareArgs {
    #[command(flatten)]
    watch: WatchArgs,
    /// Cohort, or ClusterQueue, whose cohort is shown; default: all. `localqueue`: the past usage of LocalQueues.
    name: Option<String>,
    /// Of LocalQueues, only those of this ClusterQueue, in all namespaces unless one is named.
    #[arg(short = 'c', long, value_name = "NAME")]
    clusterqueue: Option<String>,
    #[command(flatten)]
    shown: ShownArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The quota of the cluster.
struct Quota {
    cohorts: Vec<CohortView>,
    queues: Vec<ClusterQueueView>,
    /// Both lists, as answered by the server.
    answer: Value,
}

impl Quota {
    async fn read(session: &Session) -> anyhow::Result<Self> {
        let query = ViewQuery::default();
        let cohorts = rows(session, "cohortviews", &query, "cohortviews").await?.into_list();
        let queues = rows(session, "clusterqueueviews", &query, "clusterqueueviews").await?.into_list();
        note_partial(&cohorts);
        let items = |list: &Value| list.get("items").cloned().unwrap_or_default();
        Ok(Self {
            cohorts: read(&items(&cohorts))?,
            queues: read(&items(&queues))?,
            answer: json!({"cohorts": items(&cohorts), "clusterQueues": items(&queues), "source": cohorts.get("source")}),
        })
    }

    fn forest(&self) -> Forest<'_> {
        Forest { cohorts: &self.cohorts, queues: &self.queues }
    }

    fn quotas(&self) -> impl Iterator<Item = &QuotaView> {
        let of_queues = self.queues.iter().flat_map(|queue| &queue.quota);
        of_queues.chain(self.cohorts.iter().flat_map(|cohort| &cohort.quota))
    }

    /// Returns an error unless the cohort is known.
    fn check(&self, name: &str) -> anyhow::Result<()> {
        let names = || self.cohorts.iter().map(|cohort| cohort.metadata.name.as_str());
        if names().any(|known| known == name) {
            Ok(())
        } else {
            Err(anyhow!("cohort {name:?} not found{}", similar::hint(name, names())))
        }
    }
}

/// `sluice tree cohort` and `sluice tree job`.
pub(crate) async fn tree(args: &TreeArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    let (name, shown, depth) = match &args.kind {
        TreeKind::Cohort { name, shown, depth } => (name, shown, depth),
        TreeKind::Job(job) => {
            return super::job_tree::run(&args.table, &args.connection, args.watch, job).await;
        }
    };
    let session = args.table.connect(&args.connection).await?;
    let print = |quota: &Quota| {
        if let Some(name) = name {
            quota.check(name)?;
        }
        let shown = shown.each(quota.quotas())?;
        let mut cycles = Vec::new();
        args.table.print(&quota.answer, |_: Value, look| {
            let (text, found) = views::cohort_trees(name.as_deref(), quota.forest(), &shown, *depth, look);
            cycles = found;
            Ok(text)
        })?;
        for cycle in &cycles {
            note(cycle);
        }
        Ok(if cycles.is_empty() { session.ended(ExitCode::SUCCESS) } else { ExitCode::from(EXIT_PARTIAL) })
    };
    args.watch.run(async || Quota::read(&session).await, |quota| quota.answer.clone(), print).await
}

/// `sluice share`.
pub(crate) async fn share(args: &ShareArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    let session = args.table.connect(&args.connection).await?;
    if args.name.as_deref().is_some_and(|name| LOCAL_QUEUE.contains(&name)) {
        return local_shares(args, &session).await;
    }
    if args.clusterqueue.is_some() {
        return Err(anyhow!("-c is a flag of share localqueue: name the ClusterQueue alone"));
    }
    let print = |quota: &Quota| {
        let root = match &args.name {
            Some(name) => match quota.queues.iter().find(|queue| queue.metadata.name == *name) {
                Some(queue) if queue.cohort.is_empty() => {
                    return Err(anyhow!("clusterqueue {name:?} has no cohort: it shares nothing"));
                }
                Some(queue) => Some(queue.cohort.clone()),
                None => {
                    quota.check(name)?;
                    Some(name.clone())
                }
            },
            None => None,
        };
        let shown = args.shown.one(quota.quotas())?;
        args.table.print(&quota.answer, |_: Value, look| {
            Ok(views::share(root.as_deref(), quota.forest(), shown.as_ref(), look))
        })?;
        // Cohorts in a cycle have no root, and no share.
        let cycles = views::cycles(&quota.cohorts);
        for cycle in &cycles {
            note(cycle);
        }
        Ok(if cycles.is_empty() { session.ended(ExitCode::SUCCESS) } else { ExitCode::from(EXIT_PARTIAL) })
    };
    args.watch.run(async || Quota::read(&session).await, |quota| quota.answer.clone(), print).await
}

/// `sluice share localqueue`: past usage under admission fair sharing.
async fn local_shares(args: &ShareArgs, session: &Session) -> anyhow::Result<ExitCode> {
    let resource = match args.connection.namespace.as_deref().filter(|name| !name.is_empty()) {
        Some(namespace) => format!("namespaces/{}/localqueueviews", super::encoded(namespace)),
        None if args.clusterqueue.is_some() => "localqueueviews".to_owned(),
        None => format!("namespaces/{}/localqueueviews", super::encoded(&session.namespace)),
    };
    let read_list = async || {
        let mut found = rows(session, &resource, &ViewQuery::default(), "localqueueviews").await?;
        if let Some(name) = &args.clusterqueue {
            found.items.retain(|row| row.get("clusterQueue").and_then(Value::as_str) == Some(name));
        }
        Ok(found.into_list())
    };
    let print = |list: &Value| {
        note_partial(list);
        args.table.print(list, |list: Value, look| {
            let queues: Vec<LocalQueueView> = read(&list.get("items").cloned().unwrap_or_default())?;
            Ok(views::local_shares(&queues, look))
        })?;
        Ok(session.ended(ExitCode::SUCCESS))
    };
    args.watch.run(read_list, Value::clone, print).await
}
