//! The position and the verdict that a Workload would have after a change, from the manager's views. A verb works without them:
//! an answer that is missing is left out.

use serde_json::Value;

use super::connection::Session;
use super::pages::encoded;
use super::source::VIEWS;
use super::targets::Target;
use crate::people::views::never_fits;
use crate::visibility::views::{ChangeKind, Position, Verdict};

/// Most Workloads of one command that are previewed: each costs two to three requests, one after the other.
pub(super) const MOST: usize = 10;

/// What a change would do to a Workload.
pub(super) struct Preview {
    now: Option<Position>,
    then: Verdict,
    /// What may preempt the Workload before the change; empty if it has no quota.
    preemptible_by: Vec<String>,
}

impl Preview {
    /// Reads the position before, and the verdict after a change: `queue=NAME`, `priority=NUMBER`. Returns `None` if a request fails.
    pub(super) async fn after(session: &Session, target: &Target, change: &str) -> Option<Self> {
        let view = format!(
            "{VIEWS}/namespaces/{}/workloadviews/{}",
            encoded(target.namespace()),
            encoded(target.name())
        );
        let now = session.caller.get(&view).await.ok()?;
        let then = session.caller.get(&format!("{view}/verdict?{change}")).await.ok()?;
        let then: Verdict = serde_json::from_value(then).ok()?;
        let mut preemptible_by = Vec::new();
        if then.admission.is_some() {
            let verdict = session.caller.get(&format!("{view}/verdict")).await.ok()?;
            let verdict: Verdict = serde_json::from_value(verdict).ok()?;
            preemptible_by = verdict.admission.map(|admission| admission.preemptible_by).unwrap_or_default();
        }
        let position = now.get("position").filter(|position| !position.is_null()).cloned();
        let now = position.and_then(|position| serde_json::from_value(position).ok());
        Some(Self { now, then, preemptible_by })
    }

    /// Returns the preemptions that the change makes possible or impossible: by this Workload if it is pending, of it if it has
    /// quota.
    pub(super) fn preemptions(&self) -> Vec<String> {
        let mut options = self.then.options.iter();
        let would = options.find(|option| option.kind == ChangeKind::Preempt && option.possible);
        let mut lines: Vec<String> = would.map(|option| option.detail.clone()).into_iter().collect();
        let Some(admission) = &self.then.admission else { return lines };
        let difference = |these: &[String], others: &[String], what: &str| {
            let new = these.iter().filter(|text| !others.contains(text));
            new.map(|text| format!("{what}: {text}")).collect::<Vec<_>>()
        };
        lines.extend(difference(&self.preemptible_by, &admission.preemptible_by, "may no longer preempt it"));
        lines.extend(difference(&admission.preemptible_by, &self.preemptible_by, "may now preempt it"));
        lines
    }

    /// Returns `position 3 of 412 -> 188 of 188`; `None` unless it is queued before and after.
    pub(super) fn position(&self) -> Option<String> {
        let (now, then) = (self.now?, self.then.workload.position?);
        let is_one_queue = now.of == then.of;
        let of = if is_one_queue { String::new() } else { format!(" of {}", then.of) };
        Some(format!("position {} of {} -> {}{of}", now.cluster_queue, now.of, then.cluster_queue))
    }

    /// Returns a warning if the Workload could never be admitted after the change.
    pub(super) fn warning(&self) -> Option<String> {
        if let Some(text) = never_fits(&self.then) {
            return Some(format!("warning: it could never be admitted: {text}"));
        }
        let obstacle = self.then.obstacle.as_str();
        if !self.then.workload.stuck || obstacle.is_empty() {
            return None;
        }
        let text = match (obstacle.strip_prefix("It can never be admitted"), obstacle.strip_prefix("Behind "))
        {
            (Some(rest), _) => rest.to_owned(),
            (None, Some(rest)) => format!(": behind {rest}"),
            (None, None) => format!(": {obstacle}"),
        };
        Some(format!("warning: it could never be admitted{text}"))
    }
}

/// Returns the query parameter of a change, `name=value`, percent-encoded.
pub(super) fn change(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("{name}={}", encoded(text)),
        other => format!("{name}={other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{AdmissionView, WorkloadView};
    use serde_json::json;

    #[test]
    fn what_keeps_it_out_without_end_is_a_warning() {
        let warning = |stuck: bool, obstacle: &str| {
            let workload = WorkloadView { stuck, ..WorkloadView::default() };
            let then = Verdict { workload, obstacle: obstacle.to_owned(), ..Verdict::default() };
            Preview { now: None, then, preemptible_by: Vec::new() }.warning()
        };
        let says = |text: &str| Some(format!("warning: it could never be admitted{text}"));
        let selector = "Workload namespace doesn't match ClusterQueue selector";
        assert_eq!(warning(true, selector), says(&format!(": {selector}")));
        assert_eq!(
            warning(true, "It can never be admitted as it is: no flavor"),
            says(" as it is: no flavor")
        );
        assert_eq!(warning(true, "Behind ns/head, which"), says(": behind ns/head, which"));
        assert_eq!(warning(false, "Behind ns/head, which lacks 4 cpu in f"), None);
        assert_eq!(warning(true, ""), None);
    }

    #[test]
    fn a_change_of_priority_changes_preemptions() {
        let sentences = |priority: u32| {
            vec![
                format!("a workload of ClusterQueue a with a priority above {priority}"),
                "a workload of ClusterQueue b that reclaims its nominal quota".to_owned(),
            ]
        };
        let admission = AdmissionView { preemptible_by: sentences(300), ..AdmissionView::default() };
        let then = Verdict { admission: Some(admission), ..Verdict::default() };
        let preview = Preview { now: None, then, preemptible_by: sentences(100) };
        assert_eq!(
            preview.preemptions(),
            [
                "may no longer preempt it: a workload of ClusterQueue a with a priority above 100",
                "may now preempt it: a workload of ClusterQueue a with a priority above 300",
            ]
        );
        let option = json!({"kind": "preempt", "possible": true, "detail": "1 workload would be preempted for it: ns/a"});
        let not = json!({"kind": "preempt", "possible": false, "detail": "ClusterQueue cq does not preempt"});
        for (option, expected) in
            [(option, vec!["1 workload would be preempted for it: ns/a"]), (not, vec![])]
        {
            let then =
                Verdict { options: vec![serde_json::from_value(option).unwrap()], ..Verdict::default() };
            assert_eq!(Preview { now: None, then, preemptible_by: Vec::new() }.preemptions(), expected);
        }
    }
}
