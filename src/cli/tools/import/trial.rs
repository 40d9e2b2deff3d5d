//! Server dry runs of the first writes of an import: they find whatever refuses all of them, such as the webhook of a manager that
//! manages pods, however it is installed.
//!
//! Invariant: each request has `dryRun=All`, so nothing is stored.

use std::collections::BTreeSet;

use anyhow::{Context, bail};

use super::plan::Plan;
use super::{CONFLICT, NOT_FOUND, pod_holding_frameworks};
use crate::kube::client::{CallError, Caller, Content};

/// What an API server writes about a refusal of the webhook that a manager serves for the pods that it manages.
const REFUSED_BY_MANAGER: &str = "admission webhook \"vpod.kb.io\" denied";

/// Fails if the first label of a pod or the first Workload of a namespace would be refused. Rights, policies and webhooks may
/// differ between namespaces.
pub(super) async fn refuse_if_writes_fail(caller: &Caller, plans: &[Plan]) -> anyhow::Result<()> {
    let (mut labelled, mut created) = (BTreeSet::new(), BTreeSet::new());
    // A pod that was deleted or replaced since it was read proves nothing about the others.
    let is_stale = |error: &CallError| matches!(error.code(), Some(CONFLICT | NOT_FOUND));
    for plan in plans {
        let namespace = plan.namespace.as_str();
        let labelling = plan.labelling().filter(|_| !labelled.contains(namespace));
        if let Some((path, patch)) = labelling {
            let path = format!("{path}?dryRun=All");
            let answer = caller.call(http::Method::PATCH, &path, Content::Merge, Some(&patch)).await;
            if !answer.as_ref().is_err_and(is_stale) {
                explained(answer.map(drop), &format!("pod {namespace}/{} cannot be labelled", plan.pod))?;
                labelled.insert(namespace);
            }
        }
        if created.insert(namespace) {
            let path = format!("{}?dryRun=All", plan.workloads());
            let answer = caller.post(&path, &plan.workload).await;
            if !answer.as_ref().is_err_and(|error| error.code() == Some(CONFLICT)) {
                let what = format!("the Workload of pod {namespace}/{} cannot be created", plan.pod);
                explained(answer.map(drop), &what)?;
            }
        }
    }
    Ok(())
}

/// Returns the error of a refused dry run, with what to do about a manager that manages pods.
fn explained(answer: Result<(), CallError>, what: &str) -> anyhow::Result<()> {
    match answer {
        Err(error) if error.to_string().contains(REFUSED_BY_MANAGER) => {
            let holding: Vec<&str> = pod_holding_frameworks().collect();
            bail!(
                "nothing was written; {what}, because a manager manages pods: take {} out of its integrations.frameworks until the import is done ({error})",
                holding.join(", ")
            )
        }
        answer => answer.with_context(|| format!("nothing was written; {what}")),
    }
}
