//! `sluice capacity`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::{TableArgs, ViewQuery, ask, note_partial, read, rows};
use crate::cli::people::connection::ConnectionArgs;
use crate::cli::people::pages::encoded;
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
    #[arg(long, value_name = "RESOURCE=QUANTITY,...", requires = "flavor")]
    pod: Option<String>,
    /// ClusterQueue whose quota bounds the answer too.
    #[arg(short = 'c', long, value_name = "NAME", requires = "flavor")]
    clusterqueue: Option<String>,
    /// Only this level of the topology.
    #[arg(long, value_name = "LABEL", requires = "flavor")]
    level: Option<String>,
    /// Exit with status 4 if no pod fits.
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
    let session = args.connection.connect().await?;
    let Some(flavor) = &args.flavor else {
        let found = rows(&session, "flavorviews", &ViewQuery::default(), "flavorviews").await?.into_list();
        note_partial(&found);
        args.table.print(&found, |list: Value, look| {
            Ok(views::capacity(
                &read::<Vec<FlavorView>>(&list.get("items").cloned().unwrap_or_default())?,
                look,
            ))
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let options = [("pod", &args.pod), ("clusterQueue", &args.clusterqueue)];
    let options: Vec<String> = options
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))))
        .collect();
    let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
    let mut answer = ask(&session, &format!("flavorviews/{}{query}", encoded(flavor)), "flavorviews").await?;
    note_partial(&answer);
    if let (Some(level), Some(Value::Array(levels))) = (&args.level, answer.get_mut("levels")) {
        levels.retain(|row| row.get("level").and_then(Value::as_str).unwrap_or_default() == level);
        if levels.is_empty() {
            bail!("flavor {flavor} has no topology level {level:?}");
        }
    }
    args.table.print(&answer, |flavor: FlavorView, look| Ok(views::capacity(&[flavor], look)))?;
    let levels = answer.get("levels").and_then(Value::as_array).into_iter().flatten();
    let fits = levels
        .map(|row| row.get("largestGang").cloned().unwrap_or_else(|| json!(0)))
        .any(|gang| gang != json!(0));
    Ok(if args.fail && !fits { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}
