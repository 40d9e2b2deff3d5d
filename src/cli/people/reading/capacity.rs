//! `sluice capacity`: pods that fit in flavors.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::{Rows, TableArgs, ViewQuery, ask, note_partial, read, rows, why};
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::{Discovery, workload_name};
use crate::cli::people::failure::{NOT_FOUND, not_found, wrong_use};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::encoded;
use crate::kube::client::CallError;
use crate::people::rows_left::RowsLeft;
use crate::people::views;
use crate::resources::Quantity;
use crate::visibility::views::{
    ClusterQueueView, FlavorView, QueueCapacityView, WorkloadState, WorkloadView,
};

/// Exit status if the answer is no and a flag makes that an error.
const EXIT_NO: u8 = 4;

/// Arguments of `capacity`.
#[derive(Debug, clap::Args)]
pub(crate) struct CapacityArgs {
    /// ResourceFlavor; default: all, with --for or -c those of the ClusterQueue.
    flavor: Option<String>,
    /// What one pod asks for, RESOURCE=QUANTITY,...; default: all of the scarcest resource of the largest node.
    #[arg(long, value_name = "RESOURCE=QUANTITY,...", conflicts_with = "for_job")]
    pod: Option<String>,
    /// Job or Workload whose pods are counted, all pod sets together.
    #[arg(long = "for", id = "for_job", value_name = "TYPE/NAME", value_parser = workload_name)]
    for_job: Option<String>,
    /// ClusterQueue whose quota bounds the answer too.
    #[arg(short = 'c', long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// LocalQueue of the namespace: what its workloads may use, for users of the namespace.
    #[arg(short = 'q', long, value_name = "NAME", conflicts_with_all = ["flavor", "for_job", "clusterqueue", "level"])]
    localqueue: Option<String>,
    /// Only this level of the topology.
    #[arg(long, value_name = "LABEL")]
    level: Option<String>,
    /// Exit with status 4 if the pods do not fit: one, or with --for those of the job.
    #[arg(long)]
    fail: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(args: &CapacityArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    for part in args.pod.iter().flat_map(|pod| pod.split(',')) {
        let Some((resource, quantity)) = part.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(wrong_use(format!("--pod: {part:?}: RESOURCE=QUANTITY expected")));
        };
        if let Err(problem) = Quantity::parse(quantity) {
            let text = format!("--pod: {resource}: invalid quantity {quantity:?}: {problem}");
            return Err(wrong_use(text));
        }
    }
    let session = args.table.connect(&args.connection).await?;
    if let Some(queue) = &args.localqueue {
        return args.of_local_queue(&session, queue).await;
    }
    if args.flavor.is_none() && !args.asks_about_pods() {
        let found = rows(&session, "flavorviews", &ViewQuery::default(), "flavorviews").await?.into_list();
        note_partial(&found);
        args.table.print(&found, |list: Value, look| Ok(views::capacity(&flavors_of(&list)?, look)))?;
        return Ok(session.ended(ExitCode::SUCCESS));
    }
    let workload = args.workload(&session).await?;
    let answers = match &args.flavor {
        Some(flavor) => vec![args.ask(&session, flavor, workload.as_ref()).await?],
        None => args.of_each(&session, workload.as_ref()).await?,
    };
    if let (Some(_), [answer]) = (&args.flavor, answers.as_slice()) {
        args.table.print(answer, |flavor: FlavorView, look| Ok(views::capacity(&[flavor], look)))?;
    } else {
        let head = json!({"source": answers.first().and_then(|answer| answer.get("source"))});
        let list = Rows { head, items: answers.clone(), left: RowsLeft::None }.into_list();
        args.table
            .print(&list, |list: Value, look| Ok(views::capacity_of_each(&flavors_of(&list)?, look)))?;
    }
    if args.for_job.is_some() && answers.iter().any(|answer| answer.get("job").is_none()) {
        bail!("the manager does not count jobs: it is older than this program; use --source cluster");
    }
    let fits = answers.iter().any(|answer| match answer.get("job") {
        Some(job) => job.get("copies").and_then(Value::as_u64).unwrap_or_default() > 0,
        None => largest_gang(answer) > 0,
    });
    Ok(if args.fail && !fits { ExitCode::from(EXIT_NO) } else { session.ended(ExitCode::SUCCESS) })
}

fn flavors_of(list: &Value) -> anyhow::Result<Vec<FlavorView>> {
    read(&list.get("items").cloned().unwrap_or_default())
}

/// The Workload whose pods are counted.
struct Counted {
    namespace: String,
    name: String,
    cluster_queue: Option<String>,
}

impl CapacityArgs {
    /// Whether flags ask about pods, and not only about free capacity.
    const fn asks_about_pods(&self) -> bool {
        self.pod.is_some()
            || self.for_job.is_some()
            || self.clusterqueue.is_some()
            || self.level.is_some()
            || self.fail
    }

    /// Prints what the workloads of a LocalQueue may use.
    async fn of_local_queue(&self, session: &Session, queue: &str) -> anyhow::Result<ExitCode> {
        let pod = self.pod.as_ref().map(|pod| format!("?pod={}", encoded(pod))).unwrap_or_default();
        let namespace = encoded(&session.namespace);
        let path = format!("namespaces/{namespace}/localqueueviews/{}/capacity{pod}", encoded(queue));
        let answer = match ask(session, &path, "localqueueviews/capacity").await {
            Err(error) if is_not_found(&error) => {
                let collection = PeopleKind::LocalQueue.collection(Some(&session.namespace));
                let namespace = Some(session.namespace.as_str());
                return Err(not_found(&session.caller, "localqueue", queue, &collection, namespace).await);
            }
            answer => answer?,
        };
        note_partial(&answer);
        let view: QueueCapacityView = read(&answer)?;
        self.table.print(&answer, |_: Value, look| Ok(views::queue_capacity(&view, look)))?;
        let largest = view.flavors.iter().flat_map(|flavor| &flavor.levels).map(|level| level.largest_gang);
        let fits = view.active && (self.pod.is_none() || largest.max().unwrap_or_default() > 0);
        Ok(if self.fail && !fits { ExitCode::from(EXIT_NO) } else { session.ended(ExitCode::SUCCESS) })
    }

    /// Returns the Workload whose pods are counted.
    async fn workload(&self, session: &Session) -> anyhow::Result<Option<Counted>> {
        let Some(job) = &self.for_job else { return Ok(None) };
        let mut discovery = Discovery::new(&session.caller);
        let (namespace, name) = why::workload(session, &mut discovery, job).await?;
        let path = format!("namespaces/{}/workloadviews/{}", encoded(&namespace), encoded(&name));
        let view: WorkloadView = read(&ask(session, &path, "workloadviews").await?)?;
        if view.state == WorkloadState::Finished {
            bail!("{job} has finished: its pods request nothing");
        }
        let cluster_queue = Some(view.cluster_queue).filter(|queue| !queue.is_empty());
        Ok(Some(Counted { namespace, name, cluster_queue }))
    }

    /// Returns the flavors that may serve the pods: the flavors of the named ClusterQueue, or of the Workload's; otherwise all.
    async fn flavors(&self, session: &Session, workload: Option<&Counted>) -> anyhow::Result<Vec<String>> {
        let of_workload = || workload?.cluster_queue.as_ref();
        let mut names: Vec<String> = Vec::new();
        if let Some(queue) = self.clusterqueue.as_ref().or_else(of_workload).filter(|name| !name.is_empty()) {
            let path = format!("clusterqueueviews/{}", encoded(queue));
            let view: ClusterQueueView = match ask(session, &path, "clusterqueueviews").await {
                Err(error) if is_not_found(&error) => {
                    let collection = PeopleKind::ClusterQueue.collection(None);
                    return Err(not_found(&session.caller, "clusterqueue", queue, &collection, None).await);
                }
                answer => read(&answer?)?,
            };
            for quota in view.quota {
                if !names.contains(&quota.flavor) {
                    names.push(quota.flavor);
                }
            }
        }
        if names.is_empty() {
            let found = rows(session, "flavorviews", &ViewQuery::default(), "flavorviews").await?;
            let name = |row: &Value| Some(row.pointer("/metadata/name")?.as_str()?.to_owned());
            names = found.items.iter().filter_map(name).collect();
        }
        Ok(names)
    }

    /// Asks for each flavor. Flavors that do not exist, or lack the wanted level, are left out and named.
    async fn of_each(&self, session: &Session, workload: Option<&Counted>) -> anyhow::Result<Vec<Value>> {
        let (mut answers, mut failed) = (Vec::new(), Vec::new());
        for flavor in self.flavors(session, workload).await? {
            match self.ask(session, &flavor, workload).await {
                Ok(answer) => answers.push(answer),
                // A refusal by the server concerns the question, not the flavor.
                Err(error) if error.downcast_ref::<CallError>().is_some() => return Err(error),
                Err(error) => failed.push(error),
            }
        }
        if answers.is_empty()
            && let Some(error) = failed.pop()
        {
            return Err(error);
        }
        for error in failed {
            note(&format!("note: left out: {error:#}"));
        }
        Ok(answers)
    }

    /// Asks for a flavor with the pods, and keeps only the wanted level.
    async fn ask(
        &self,
        session: &Session,
        flavor: &str,
        workload: Option<&Counted>,
    ) -> anyhow::Result<Value> {
        let workload = workload.map(|Counted { namespace, name, .. }| format!("{namespace}/{name}"));
        let options = [
            ("pod", self.pod.as_ref()),
            ("workload", workload.as_ref()),
            ("clusterQueue", self.clusterqueue.as_ref()),
        ];
        let options: Vec<String> = options
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))))
            .collect();
        let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
        let path = format!("flavorviews/{}{query}", encoded(flavor));
        let mut answer = match ask(session, &path, "flavorviews").await {
            Err(error) if is_not_found(&error) => {
                let collection = PeopleKind::ResourceFlavor.collection(None);
                return Err(not_found(&session.caller, "resourceflavor", flavor, &collection, None).await);
            }
            answer => answer?,
        };
        note_partial(&answer);
        if let (Some(level), Some(Value::Array(levels))) = (&self.level, answer.get_mut("levels")) {
            levels.retain(|row| row.get("level").and_then(Value::as_str).unwrap_or_default() == level);
            if levels.is_empty() {
                bail!("flavor {flavor} has no topology level {level:?}");
            }
        }
        Ok(answer)
    }
}

/// Whether the flavor does not exist, in contrast to the whole resource.
fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CallError>().is_some_and(|error| error.code() == Some(NOT_FOUND))
}

/// Returns the largest gang of any level.
fn largest_gang(answer: &Value) -> u64 {
    let levels = answer.get("levels").and_then(Value::as_array).into_iter().flatten();
    levels.filter_map(|row| row.get("largestGang").unwrap_or(&json!(0)).as_u64()).max().unwrap_or_default()
}
