//! Checks whether the definitions that the API server serves have the fields of this version.
//!
//! Invariants: it needs no permission beyond what each account has; the schemas, which are large, are read only after they
//! have changed; missing fields are reported only if a second look some seconds later finds the same, because the server
//! publishes new definitions with a delay.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::client::{CallError, Caller, Content};
use super::watch::jitter;
use crate::api::crd::served::{MissingFields, ServedDefinitions, missing_fields};

/// The index of the server's schemas; its addresses contain hashes of them.
const INDEX: &str = "/openapi/v3";
/// The API group in the index, as a JSON pointer.
const GROUP_ADDRESS: &str = "/paths/apis~1kueue.x-k8s.io~1v1beta2/serverRelativeURL";
/// Delay between two checks: until the first result and while something is missing, and otherwise.
const SHORT_INTERVAL: Duration = Duration::from_secs(5);
const LONG_INTERVAL: Duration = Duration::from_mins(2);

/// What the server served at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    address: String,
    missing: MissingFields,
}

/// Checks the definitions periodically, and calls `report` with the missing fields. Never returns.
pub async fn run(caller: Caller, report: impl Fn(&MissingFields)) {
    let mut last: Option<Finding> = None;
    loop {
        match check(&caller, last.as_ref()).await {
            Ok(Some(found)) => {
                if found.missing.is_empty() || last.as_ref().is_some_and(|l| l.missing == found.missing) {
                    report(&found.missing);
                }
                last = Some(found);
            }
            // No kind of the group is served yet; the watches log that.
            Ok(None) => last = None,
            Err(error) => tracing::debug!(%error, "cannot read the schemas of the API server"),
        }
        let complete = last.as_ref().is_some_and(|found| found.missing.is_empty());
        tokio::time::sleep(jitter(if complete { LONG_INTERVAL } else { SHORT_INTERVAL })).await;
    }
}

/// Returns what is missing now; `None` if the server does not serve the API group.
async fn check(caller: &Caller, last: Option<&Finding>) -> Result<Option<Finding>, CallError> {
    let index = caller.get(INDEX).await?;
    let Some(address) = index.pointer(GROUP_ADDRESS).and_then(Value::as_str) else { return Ok(None) };
    if let Some(last) = last.filter(|last| last.address == address) {
        return Ok(Some(last.clone()));
    }
    let served: ServedDefinitions =
        caller.call_as(Method::GET, address, Content::Json, None::<&Value>).await?;
    let missing = missing_fields(&served).map_err(|error| CallError::Request(error.to_string()))?;
    Ok(Some(Finding { address: address.to_owned(), missing }))
}
