//! Templates of the Helm chart that depend on the kinds of jobs, written from the rows of the table. They contain the
//! names of `config/`; the test that writes the files replaces these.
//!
//! Invariant: each part is inside a condition on the name of its row, so that webhooks, permissions and roles exist only
//! for frameworks that the configuration lists.

use super::manifests::{Entry, row_retention_rules, row_roles, row_rules, row_webhook_rules};
use super::row::{Framework, Role};
use super::table::frameworks;

/// A function that returns the frameworks of the configuration, for the template language.
const FRAMEWORKS: &str = r#"(include "sluice.frameworks" . | fromJsonArray)"#;

/// Returns the named templates for entries of webhook configurations, and rules of the manager's role and the webhooks'.
pub fn named_templates() -> String {
    let templates = [
        named("mutatingWebhooks", frameworks(), |row| webhooks(row, true)),
        named("validatingWebhooks", frameworks(), |row| webhooks(row, false)),
        named("managerRules", frameworks(), row_rules),
        named("retentionRules", frameworks(), row_retention_rules),
        named("webhookRules", frameworks(), row_webhook_rules),
    ];
    templates.concat()
}

/// Returns the files of the roles with which people edit and view jobs, by name.
pub fn user_roles() -> Vec<(String, String)> {
    let roles = frameworks()
        .flat_map(|row| row_roles(row).into_iter().map(|(file, text)| (file, if_listed(row, &text))));
    roles.collect()
}

fn named(
    name: &str,
    rows: impl Iterator<Item = &'static Framework>,
    part: impl Fn(&Framework) -> String,
) -> String {
    let parts: String = rows.map(|row| if_listed(row, &part(row))).collect();
    format!("{{{{- define \"sluice.frameworks.{name}\" -}}}}\n{parts}{{{{- end }}}}\n")
}

/// Returns the text inside a condition that a kind is listed, or for pods any kind that holds them.
fn if_listed(row: &Framework, text: &str) -> String {
    let holds_pods = |other: &&Framework| matches!(other.role, Role::PassThrough | Role::PodsOfOwner);
    let others = frameworks().filter(|other| row.is_pod() && holds_pods(other));
    let names = std::iter::once(row.name).chain(others.map(|other| other.name));
    let listed: Vec<String> = names.map(|name| format!("has \"{name}\" {FRAMEWORKS}")).collect();
    let condition = match listed.as_slice() {
        [only] => only.clone(),
        several => format!("or ({})", several.join(") (")),
    };
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

fn webhooks(row: &Framework, mutating: bool) -> String {
    let [queued, managed, unqueued] =
        [Entry::Queued, Entry::Managed, Entry::Unqueued].map(|entry| entry.item(row, mutating));
    let unqueued = if row.is_pod() {
        format!("{{{{- if include \"sluice.queuesAllPods\" . }}}}\n{unqueued}{{{{- end }}}}\n")
    } else {
        unqueued
    };
    format!(
        "{queued}{{{{- if include \"sluice.managesAllJobs\" . }}}}\n{managed}{{{{- else }}}}\n{unqueued}{{{{- end }}}}\n"
    )
}
