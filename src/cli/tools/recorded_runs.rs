//! Earlier runs from the durable record of a cluster, for estimates and simulations, because Workloads are often deleted soon after
//! their end.
//!
//! Invariant: a bounded number of pages is read.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::cli::query::encoded;
use crate::kube::client::{CallError, Caller};
use crate::simulate::estimate::RecordedRun;
use crate::visibility::history::ended_runs;
use crate::visibility::views::{UsageRecordReport, UsageRecordView};

/// Path of the rows of the record.
const ROWS: &str = "/apis/visibility.sluice.dev/v1alpha1/clusterusagerecords";
/// Rows of a page: the maximum of the server.
const PAGE: usize = 500;
/// Starts of the periods that are read one after the other, in days before now. Each ends where the former one begins.
const PERIODS: [i64; 3] = [1, 7, 30];
/// Most pages of a period.
const MAX_PAGES: usize = 10;

/// Returns the ended runs of all periods before the first one with more than `MAX_PAGES` pages; of that one only if it is the
/// latest.
///
/// # Errors
/// Not even the first page can be read: there is no record, or no right to read it.
pub(in crate::cli) async fn read_runs(
    caller: &Caller,
    now: Timestamp,
) -> Result<Vec<RecordedRun>, CallError> {
    let (mut found, mut until) = (Vec::new(), now);
    for days in PERIODS {
        let Some(since) = now.checked_sub(SignedDuration::from_hours(24 * days)).ok() else { break };
        let (rows, is_whole) = match rows(caller, (since, until)).await {
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => (Vec::new(), false),
            Ok(rows) => rows,
        };
        // An incomplete period lacks its last runs.
        if is_whole || found.is_empty() {
            found.extend(rows);
        }
        if !is_whole {
            break;
        }
        until = since;
    }
    Ok(ended_runs(&found))
}

/// Returns the rows of a period, and whether they are complete.
///
/// # Errors
/// The first page cannot be read.
async fn rows(
    caller: &Caller,
    (since, until): (Timestamp, Timestamp),
) -> Result<(Vec<UsageRecordView>, bool), CallError> {
    let (mut rows, mut token) = (Vec::new(), String::new());
    for number in 0..MAX_PAGES {
        let mut path = format!("{ROWS}?limit={PAGE}&since={}", encoded(&since.to_string()));
        // After the first page, the token contains the period.
        let (name, value) =
            if token.is_empty() { ("until", until.to_string()) } else { ("continue", token.clone()) };
        let _ = write!(path, "&{name}={}", encoded(&value));
        let page = match caller.get(&path).await {
            Ok(page) => page,
            Err(error) if number == 0 => return Err(error),
            Err(_) => return Ok((rows, false)),
        };
        let Ok(UsageRecordReport { metadata, items, .. }) = serde_json::from_value(page) else {
            return Ok((rows, false));
        };
        rows.extend(items);
        if metadata.continue_token.is_empty() {
            return Ok((rows, true));
        }
        token = metadata.continue_token;
    }
    Ok((rows, false))
}
