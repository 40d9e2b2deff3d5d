//! `sluice list workload`: selection and order of Workloads, and output of the objects themselves.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::list::ListArgs;
use super::{PAGE, Rows};
use crate::api::reason::PendingReason;
use crate::cli::files;
use crate::cli::people::closed::Closed;
use crate::cli::people::connection::Session;
use crate::cli::people::discovery::{Discovery, job_name, type_and_name};
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::note;
use crate::cli::people::pages::{ListOptions, Pages, items};
use crate::people::object_list::ObjectList;
use crate::people::output::ObjectFormat;
use crate::visibility::selector::WorkloadSelector;

/// Which Workloads are listed.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkloadFilter {
    /// In all namespaces.
    #[arg(short = 'A', long)]
    pub(super) all_namespaces: bool,
    /// Only those of this ClusterQueue.
    #[arg(short = 'c', long, value_name = "NAME")]
    pub(super) clusterqueue: Option<String>,
    /// Only those of this LocalQueue.
    #[arg(short = 'q', long, value_name = "NAME")]
    pub(super) localqueue: Option<String>,
    /// Only those with this status: pending, quotareserved, admitted, evicted, finished or all; repeatable. Default: all but finished.
    #[arg(long, value_name = "STATUS", hide_possible_values = true, value_parser = Closed::new(states, status))]
    status: Vec<String>,
    /// Only pending ones with this reason, or waiting or stuck: reasons that time can end, and those that need a change.
    #[arg(long, value_name = "REASON", hide_possible_values = true, value_parser = Closed::new(reasons, reason))]
    reason: Vec<String>,
    /// Only those of this job.
    #[arg(long = "for", value_name = "TYPE/NAME", value_parser = job_name)]
    for_job: Option<String>,
    /// Only those that you submitted, as visibility.userLabel of the manager's configuration, or its flag --record-submitter, says it.
    #[arg(long)]
    pub(super) mine: bool,
    /// Further fields: priority=N, metadata.name=NAME.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// With -o json, yaml, name or jsonpath: print the views instead of the Workloads.
    #[arg(long)]
    pub(super) views: bool,
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

/// Parses a value of a field of Workloads. A value that the server would refuse is an error of the command line.
fn value_of(field: &str, text: &str) -> Result<String, String> {
    if text.contains([',', '=']) {
        return Err("one value expected; the flag may be repeated".to_owned());
    }
    WorkloadSelector::parse(&format!("{field}={text}")).map(|_| text.to_owned())
}

fn status(text: &str) -> Result<String, String> {
    value_of("status", text)
}

fn states() -> Vec<&'static str> {
    vec!["pending", "quotareserved", "admitted", "evicted", "finished", "all"]
}

fn reasons() -> Vec<&'static str> {
    ["waiting", "stuck"].into_iter().chain(PendingReason::ALL.map(PendingReason::as_str)).collect()
}

fn reason(text: &str) -> Result<String, String> {
    value_of("reason", text)
}

impl WorkloadFilter {
    /// Returns the field selector that the server reads.
    pub(super) async fn fields(&self, session: &Session) -> anyhow::Result<String> {
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
        fields.extend(self.mine.then(|| "mine=true".to_owned()));
        fields.extend(self.field_selector.clone());
        Ok(fields.join(","))
    }

    /// Returns whether the order of the rows needs their creation times.
    pub(super) const fn is_sorted_by_age(&self) -> bool {
        matches!(self.sort_by, Some(SortBy::Age))
    }

    /// Sorts rows by the flag.
    pub(super) fn sort(&self, rows: &mut [Value]) {
        let Some(order) = self.sort_by else { return };
        let need =
            |row: &Value| row.pointer("/needs/0/amount/number").and_then(Value::as_f64).unwrap_or_default();
        let time = |row: &Value, pointer: &str| {
            row.pointer(pointer).and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok())
        };
        let priority = |row: &Value| row.get("priority").and_then(Value::as_i64).unwrap_or_default();
        match order {
            SortBy::Wait => rows.sort_by_key(|row| time(row, "/since")),
            SortBy::Need => rows.sort_by(|a, b| need(b).total_cmp(&need(a))),
            SortBy::Priority => rows.sort_by_key(|row| Reverse(priority(row))),
            SortBy::Age => rows.sort_by_key(|row| time(row, "/metadata/creationTimestamp")),
        }
    }

    /// Prints the Workloads of the rows, read page by page.
    pub(super) async fn print_objects(
        &self,
        session: &Session,
        args: &ListArgs,
        (found, format): (Rows, ObjectFormat),
        nothing: &str,
    ) -> anyhow::Result<()> {
        let uid = |object: &Value| {
            object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let wanted: BTreeSet<String> = found.items.iter().map(uid).collect();
        let namespace = (!self.all_namespaces).then_some(session.namespace.as_str());
        let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
        let options = ListOptions { labels: args.selector().cloned(), page, ..ListOptions::default() };
        let mut pages = Pages::new(&session.caller, &PeopleKind::Workload.collection(namespace), &options);
        let mut list = ObjectList::new(format, args.shows_managed_fields());
        while let Some(mut page) = pages.next().await? {
            let kept = items(&mut page).into_iter().filter(|object| wanted.contains(&uid(object))).collect();
            files::print(&list.push(&page, kept).map_err(anyhow::Error::msg)?)?;
        }
        if wanted.is_empty() {
            note(nothing);
        }
        files::print(&list.end().map_err(anyhow::Error::msg)?)
    }
}
