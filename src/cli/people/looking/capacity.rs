//! `sluice capacity`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{TableArgs, ViewQuery, ask, note_partial, read, rows, why};
use crate::api::v1beta2::{PodSet, Workload};
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::Discovery;
use crate::cli::people::failure::{NOT_FOUND, not_found};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::encoded;
use crate::kube::client::CallError;
use crate::people::views;
use crate::resources::{Quantity, format_quantity, pod_requests};
use crate::visibility::views::FlavorView;

/// The answer is no, and a flag asked.
const EXIT_NO: u8 = 4;

/// Arguments of `capacity`.
#[derive(Debug, clap::Args)]
pub(crate) struct CapacityArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    table: TableArgs,
    /// ResourceFlavor; default: all.
    flavor: Option<String>,
    /// What one pod asks for, RESOURCE=QUANTITY,...; default: all of the scarcest resource of the largest node.
    #[arg(long, value_name = "RESOURCE=QUANTITY,...", requires = "flavor", conflicts_with = "for_job")]
    pod: Option<String>,
    /// Job whose pod sets are counted, one after the other.
    #[arg(long = "for", id = "for_job", value_name = "TYPE/NAME", requires = "flavor")]
    for_job: Option<String>,
    /// ClusterQueue whose quota bounds the answer too.
    #[arg(short = 'c', long, value_name = "NAME", requires = "flavor")]
    clusterqueue: Option<String>,
    /// Only this level of the topology.
    #[arg(long, value_name = "LABEL", requires = "flavor")]
    level: Option<String>,
    /// Exit with status 4 if the pods do not fit: one, or with --for those of the job.
    #[arg(long, requires = "flavor")]
    fail: bool,
}

/// Pods that are asked for.
struct Gang {
    pod_set: String,
    pod: String,
    count: u64,
}

pub(crate) async fn run(args: &CapacityArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    for part in args.pod.iter().flat_map(|pod| pod.split(',')) {
        let Some((resource, quantity)) = part.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            bail!("--pod: {part:?}: RESOURCE=QUANTITY expected");
        };
        if let Err(problem) = Quantity::parse(quantity) {
            bail!("--pod: {resource}: invalid quantity {quantity:?}: {problem}");
        }
    }
    let session = args.table.connect(&args.connection).await?;
    let Some(flavor) = &args.flavor else {
        let found = rows(&session, "flavorviews", &ViewQuery::default(), "flavorviews").await?.into_list();
        note_partial(&found);
        args.table.print(&found, |list: Value, look| {
            Ok(views::capacity(
                &read::<Vec<FlavorView>>(&list.get("items").cloned().unwrap_or_default())?,
                look,
            ))
        })?;
        return Ok(session.ended(ExitCode::SUCCESS));
    };
    let gangs = match &args.for_job {
        Some(job) => gangs(&session, job).await?,
        None => {
            vec![Gang { pod_set: String::new(), pod: args.pod.clone().unwrap_or_default(), count: 1 }]
        }
    };
    let mut all_fit = true;
    for gang in &gangs {
        let answer = args.ask(&session, flavor, gang).await?;
        let fitting = largest_gang(&answer);
        all_fit &= fitting >= gang.count;
        args.table.print(&answer, |flavor: FlavorView, look| Ok(views::capacity(&[flavor], look)))?;
        if args.for_job.is_some() {
            let fits = if fitting >= gang.count { "fit" } else { "do not fit" };
            note(&format!("pod set {}: its {} pods {fits} now", gang.pod_set, gang.count));
        }
    }
    if gangs.len() > 1 {
        note("note: each pod set is counted as if the others were not there");
    }
    Ok(if args.fail && !all_fit { ExitCode::from(EXIT_NO) } else { session.ended(ExitCode::SUCCESS) })
}

impl CapacityArgs {
    /// Asks for a flavor with the pods of a gang, and keeps the level that is wanted.
    async fn ask(&self, session: &Session, flavor: &str, gang: &Gang) -> anyhow::Result<Value> {
        let pod = Some(&gang.pod).filter(|pod| !pod.is_empty());
        let options = [("pod", pod), ("clusterQueue", self.clusterqueue.as_ref())];
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

/// Whether the flavor is not there, as opposed to the whole resource.
fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CallError>().is_some_and(|error| error.code() == Some(NOT_FOUND))
}

/// Returns the largest gang of any level.
fn largest_gang(answer: &Value) -> u64 {
    let levels = answer.get("levels").and_then(Value::as_array).into_iter().flatten();
    levels.filter_map(|row| row.get("largestGang").unwrap_or(&json!(0)).as_u64()).max().unwrap_or_default()
}

/// Returns what the pod sets of a job ask for.
async fn gangs(session: &Session, job: &str) -> anyhow::Result<Vec<Gang>> {
    let mut discovery = Discovery::new(&session.caller);
    let (namespace, name) = why::workload(session, &mut discovery, job).await?;
    let object = session.caller.get(&PeopleKind::Workload.object(&namespace, &name)).await?;
    let workload: Workload = serde_path_to_error::deserialize(&object).context("Workload")?;
    let gang = |set: &PodSet| {
        let requests = set.template.spec.as_ref().map(pod_requests).unwrap_or_default();
        let pod: Vec<String> = requests
            .iter()
            .map(|(resource, amount)| format!("{resource}={}", format_quantity(resource, *amount)))
            .collect();
        Gang {
            pod_set: set.name.clone(),
            pod: pod.join(","),
            count: u64::try_from(set.count).unwrap_or_default(),
        }
    };
    Ok(workload.spec.pod_sets.iter().map(gang).collect())
}
