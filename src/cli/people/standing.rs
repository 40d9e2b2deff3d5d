//! Where a Workload would stand after a change, as far as the manager says it: an answer that is missing stops no verb.

use serde_json::Value;

use super::connection::Session;
use super::pages::encoded;
use super::source::VIEWS;
use super::targets::Target;
use crate::people::views::never_fits;
use crate::visibility::views::{Position, Verdict};

/// Most Workloads of one command whose standing is asked for: more would wait for each other.
pub(super) const MOST: usize = 10;

/// Where a Workload stands, and would stand.
pub(super) struct Standing {
    now: Option<Position>,
    then: Verdict,
}

impl Standing {
    /// Asks for the standing after a change: `queue=NAME`, `priority=NUMBER`.
    pub(super) async fn after(session: &Session, target: &Target, change: &str) -> Option<Self> {
        let view = format!(
            "{VIEWS}/namespaces/{}/workloadviews/{}",
            encoded(target.namespace()),
            encoded(target.name())
        );
        let now = session.caller.get(&view).await.ok()?;
        let then = session.caller.get(&format!("{view}/verdict?{change}")).await.ok()?;
        let position = now.get("position").filter(|position| !position.is_null()).cloned();
        Some(Self {
            now: position.and_then(|position| serde_json::from_value(position).ok()),
            then: serde_json::from_value::<Verdict>(then).ok()?,
        })
    }

    /// Returns `position 3 of 412 -> 188 of 188`; `None` unless it is queued before and after.
    pub(super) fn position(&self) -> Option<String> {
        let (now, then) = (self.now?, self.then.workload.position?);
        let is_one_queue = now.of == then.of;
        let of = if is_one_queue { String::new() } else { format!(" of {}", then.of) };
        Some(format!("position {} of {} -> {}{of}", now.cluster_queue, now.of, then.cluster_queue))
    }

    /// Returns a warning if it could never be admitted.
    pub(super) fn warning(&self) -> Option<String> {
        never_fits(&self.then).map(|text| format!("warning: it could never be admitted: {text}"))
    }
}

/// Quotes a text for a change.
pub(super) fn change(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("{name}={}", encoded(text)),
        other => format!("{name}={other}"),
    }
}
