//! State of this process for the debug endpoints, and the questions to its core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::core_queries::{self, CoreQuery};
use super::process_metrics::{self, ProcessState};
use super::run::ManagerContext;
use super::settings::ManagerSettings;
use crate::cache::Kind;
use crate::history::{HistoryView, PreemptionQuery, UsageGroup, UsageQuery};
use crate::kube::watch_status::{WatchHealth, WatchStatuses};
use crate::metrics::build;
use crate::server::debug::{AskCore, DebugSources, LogLevel, ReadShell};
use crate::snapshot::{Inspection, Snapshot};
use crate::visibility::access::Access;
use crate::visibility::history::{HistorySource, lines};
use crate::visibility::page::PageQuery;

/// Points of a line of the history: one for ten minutes.
const LINE_POINTS: i64 = 144;
/// Maximum number of missing permissions that are named; a manager without any lacks more than a hundred.
const PERMISSIONS: usize = 100;

pub(super) fn sources(settings: &ManagerSettings, shared: &ManagerContext) -> DebugSources {
    let log_level = Arc::clone(&shared.log_level);
    let history = history(settings.identity.clone(), shared.core.queries.clone());
    DebugSources {
        shell: shell(settings, shared),
        core: core(shared.core.queries.clone()),
        history,
        log_level,
    }
}

/// Returns the history of this replica: preemptions, usage of the last 24 hours, and lines of all ClusterQueues.
fn history(replica: String, queries: mpsc::Sender<CoreQuery>) -> AskCore<Value> {
    Arc::new(move || {
        let (queries, replica) = (queries.clone(), replica.clone());
        Box::pin(async move {
            let history = core_queries::ask(&queries, CoreQuery::History).await?;
            Some(describe_history(&history, &replica, Timestamp::now()))
        })
    })
}

fn describe_history(history: &HistoryView, replica: &str, now: Timestamp) -> Value {
    let (source, access) = (HistorySource { history, replica, now }, Access::everything());
    let day_ago = now.checked_sub(SignedDuration::from_hours(24)).unwrap_or(now);
    let since = PreemptionQuery { since: Some(day_ago), ..PreemptionQuery::default() };
    let none = BTreeMap::new();
    let usage = |by| {
        let query =
            UsageQuery { by, from: day_ago, until: now, resource: None, namespace: None, cohorts: &none };
        source.usage(&query, &access).map_or_else(|error| json!({"error": error}), |usage| json!(usage))
    };
    json!({
        "preemptions": source.preemptions(&since, &PageQuery::default(), &access).ok(),
        "usageByNamespace": usage(UsageGroup::Namespace),
        "usageByQueue": usage(UsageGroup::Queue),
        "lines": lines(&source, None, LINE_POINTS, &access),
    })
}

fn core(queries: mpsc::Sender<CoreQuery>) -> AskCore<Inspection> {
    Arc::new(move || {
        let queries = queries.clone();
        Box::pin(async move { core_queries::ask(&queries, CoreQuery::Inspect).await })
    })
}

fn shell(settings: &ManagerSettings, shared: &ManagerContext) -> ReadShell {
    let (identity, component) =
        (settings.identity.clone(), format!("{:?}", settings.args.component).to_lowercase());
    let (published, holder) = (Arc::clone(&shared.core.published), Arc::clone(&shared.leadership.holder));
    let (process, log_level) = (ProcessState::new(shared), Arc::clone(&shared.log_level));
    Arc::new(move || {
        let mut state = Map::new();
        let mut set = |field: &str, value: Value| drop(state.insert(field.to_owned(), value));
        set("version", json!(build::describe()));
        set("time", json!(Timestamp::now()));
        set("identity", json!(identity));
        set("component", json!(component));
        set("logLevel", json!(log_level.get()));
        let seen = holder.get();
        set(
            "leadership",
            json!({
                "mayWrite": process.fence.is_open(),
                "holder": seen.as_ref().map(|(holder, _)| holder),
                "holderSince": seen.as_ref().map(|(_, since)| since),
            }),
        );
        set(
            "heartbeats",
            process.heartbeats.ages().map(|(part, age)| (part.to_owned(), json!(seconds(age)))).collect(),
        );
        set("snapshot", snapshot(&published.load()));
        set("waitingDeltas", json!(process.deltas.upgrade().as_ref().map(process_metrics::channel_depth)));
        set("watches", watch_rows(&process.watch_statuses));
        let refused = process.refused_writes.ages(process.fence.now());
        let refused = refused.into_iter().map(|(((resource, verb), code), age)| {
            json!({"resource": resource, "verb": verb, "code": code, "longestSeconds": seconds(age)})
        });
        set("refusedWrites", refused.collect());
        let missing = process.missing_permissions.list();
        let named: Vec<String> = missing.iter().take(PERMISSIONS).map(ToString::to_string).collect();
        set("missingPermissions", json!({"total": missing.len(), "first": named}));
        state
    })
}

fn snapshot(snapshot: &Snapshot) -> Value {
    let age = snapshot.published_at.map(|at| Timestamp::now().duration_since(at).as_secs_f64());
    json!({
        "version": snapshot.version, "ageSeconds": age, "leading": snapshot.leading, "synced": snapshot.synced,
        "reviewsSynced": snapshot.reviews_synced, "ledgerDrift": snapshot.ledger_drift,
    })
}

fn watch_rows(statuses: &WatchStatuses) -> Value {
    let row = |(kind, health): (&Kind, &WatchHealth)| {
        let resource = kind.resource();
        json!({
            "resource": resource.plural, "group": resource.group, "synced": health.synced(),
            "served": !health.not_served(), "silentSeconds": seconds(health.time_since_activity()),
            "errors": health.errors(), "relists": health.restarts(),
        })
    };
    statuses.iter().map(row).collect()
}

/// Returns seconds with three decimals.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
