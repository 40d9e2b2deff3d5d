//! `sluice why`.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::{TableArgs, ask, note_partial};
use crate::cli::people::connection::ConnectionArgs;
use crate::cli::people::discovery::Discovery;
use crate::cli::people::pages::encoded;
use crate::cli::people::targets;
use crate::people::views;
use crate::visibility::views::{Answer, Verdict};

/// The answer is no, and a flag asked.
const EXIT_NO: u8 = 4;

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Workload, or job as TYPE[.GROUP]/NAME.
    #[arg(value_name = "NAME|TYPE/NAME")]
    name: String,
    /// Compare with another Workload, in the order in which the scheduler compares.
    #[arg(long, value_name = "OTHER")]
    before: Option<String>,
    /// Print the message of the condition too.
    #[arg(long)]
    all: bool,
    /// Exit with status 4 while the Workload is pending.
    #[arg(long)]
    fail_pending: bool,
}

pub(crate) async fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    let session = args.connection.connect().await?;
    let mut discovery = Discovery::new(&session.caller);
    let target = targets::one(&session, &mut discovery, &args.name).await?;
    let mut path = format!(
        "namespaces/{}/workloadviews/{}/verdict",
        encoded(target.namespace()),
        encoded(target.name())
    );
    if let Some(other) = &args.before {
        // Another namespace may be named; a job is TYPE/NAME.
        let is_key = match other.split_once('/') {
            Some((first, _)) => discovery.find(first).await?.is_none(),
            None => false,
        };
        let other = if is_key {
            other.clone()
        } else {
            let other = targets::one(&session, &mut discovery, other).await?;
            format!("{}/{}", other.namespace(), other.name())
        };
        let _ = write!(path, "?before={}", encoded(&other));
    }
    let answer = ask(&session, &path, "workloadviews/verdict").await?;
    note_partial(&answer);
    args.table.print(&answer, |verdict: Answer<Verdict>, look| Ok(views::why(&verdict, args.all, look)))?;
    let is_pending = answer.get("state").and_then(Value::as_str) == Some("Pending");
    Ok(if args.fail_pending && is_pending { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}
