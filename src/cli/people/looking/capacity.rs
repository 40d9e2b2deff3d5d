//! `sluice capacity`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::{TableArgs, ViewQuery, ask, note_partial, read, rows, why};
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::Discovery;
use crate::cli::people::failure::{NOT_FOUND, not_found};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::pages::encoded;
use crate::kube::client::CallError;
use crate::people::views;
use crate::resources::Quantity;
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
    /// Job or Workload whose pods are counted, all pod sets together.
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
    let answer = args.ask(&session, flavor).await?;
    let fits = match answer.get("job") {
        Some(job) => job.get("copies").and_then(Value::as_u64).unwrap_or_default() > 0,
        None => largest_gang(&answer) > 0,
    };
    args.table.print(&answer, |flavor: FlavorView, look| Ok(views::capacity(&[flavor], look)))?;
    if args.for_job.is_some() && answer.get("job").is_none() {
        bail!("the manager does not count jobs: it is older than this program; use --source cluster");
    }
    Ok(if args.fail && !fits { ExitCode::from(EXIT_NO) } else { session.ended(ExitCode::SUCCESS) })
}

impl CapacityArgs {
    /// Asks for a flavor with the pods, and keeps the level that is wanted.
    async fn ask(&self, session: &Session, flavor: &str) -> anyhow::Result<Value> {
        let workload = match &self.for_job {
            Some(job) => {
                let mut discovery = Discovery::new(&session.caller);
                let (namespace, name) = why::workload(session, &mut discovery, job).await?;
                Some(format!("{namespace}/{name}"))
            }
            None => None,
        };
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

/// Whether the flavor is not there, as opposed to the whole resource.
fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CallError>().is_some_and(|error| error.code() == Some(NOT_FOUND))
}

/// Returns the largest gang of any level.
fn largest_gang(answer: &Value) -> u64 {
    let levels = answer.get("levels").and_then(Value::as_array).into_iter().flatten();
    levels.filter_map(|row| row.get("largestGang").unwrap_or(&json!(0)).as_u64()).max().unwrap_or_default()
}
