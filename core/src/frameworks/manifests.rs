//! Parts of the manifests and pages that list the kinds of jobs, written from the rows of the table.
//!
//! Invariant: what is installed by default is for the rows that the shipped configuration enables;
//! [`components`](super::components) are for the others.

use super::related::RelatedKind;
use super::row::{Enabled, FailurePolicy, Framework, Role};
use super::table::frameworks;
use super::view::Gvk;
use std::collections::BTreeSet;

/// Whether the queue label is on an object, or was before an update.
const QUEUE_NAMED: &str = "(has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || \
    (oldObject != null && (has(oldObject.metadata.labels) && 'kueue.x-k8s.io/queue-name' in oldObject.metadata.labels))";

/// Whether a controller made a pod from a template that was marked: it waits even without a queue of its own.
const MARKED_POD: &str = "(has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations)";

/// Returns the condition for the objects of a kind that depend on the manager: those that name a queue, and marked pods.
fn queued_condition(row: &Framework) -> String {
    if row.is_pod() { format!("{QUEUE_NAMED} || {MARKED_POD}") } else { QUEUE_NAMED.to_owned() }
}

/// Which objects an entry of a webhook configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Those that name a queue.
    Queued,
    /// Others.
    Unqueued,
    /// Others, if the manager queues them as well.
    Managed,
}

impl Entry {
    /// Returns the name of the entry.
    fn name(self, row: &Framework, mutating: bool) -> String {
        let kind = row.gvk.kind.to_lowercase();
        let verb = if mutating { "m" } else { "v" };
        let objects = match (self, mutating) {
            (Self::Queued, _) => "",
            (Self::Unqueued, true) => "-default-queue",
            (Self::Unqueued, false) => "-no-queue",
            (Self::Managed, _) => "-managed",
        };
        // Kueue has the suffix for each of its kinds.
        let domain = if row.enabled == Enabled::ByFile { row.gvk.group } else { "kb.io" };
        format!("{verb}{kind}{objects}.{domain}")
    }

    fn policy(self, row: &Framework) -> FailurePolicy {
        match self {
            Self::Queued => row.webhooks.with_queue,
            Self::Unqueued => row.webhooks.without_queue,
            Self::Managed => FailurePolicy::Fail,
        }
    }

    /// Returns how long the API server waits for an answer. Pods are created by every controller, so that those without a queue
    /// wait less.
    fn timeout_seconds(self, row: &Framework) -> u32 {
        if self == Self::Unqueued && row.role == Role::Pods { 2 } else { 3 }
    }

    /// Returns the entry as an item of a YAML list.
    pub(super) fn item(self, row: &Framework, mutating: bool) -> String {
        indent(&self.text(row, mutating), "- ")
    }

    /// Returns the text of the entry.
    fn text(self, row: &Framework, mutating: bool) -> String {
        let policy = match self.policy(row) {
            FailurePolicy::Fail => "Fail",
            FailurePolicy::Ignore => "Ignore",
        };
        let (condition, expression) = match self {
            Self::Queued => ("queue-named", queued_condition(row)),
            Self::Unqueued | Self::Managed => ("no-queue-named", format!("!({})", queued_condition(row))),
        };
        let operations = if mutating { row.webhooks.mutate } else { row.webhooks.validate };
        let plural = row.gvk.plural;
        // A Scale has no labels, so it comes with the objects without a queue.
        let resources = if row.webhooks.scale && !mutating && self != Self::Queued {
            format!("{plural}, {plural}/scale")
        } else {
            plural.to_owned()
        };
        format!(
            "name: {name}
admissionReviewVersions: [v1]
clientConfig:
  service:
    name: kueue-webhook-service
    namespace: kueue-system
    path: {path}
failurePolicy: {policy}
matchConditions:
- name: not-deleting
  expression: >-
    !has(object.metadata.deletionTimestamp)
- name: {condition}
  expression: >-
    {expression}
matchPolicy: Equivalent
namespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [kube-system, kueue-system]
{reinvocation}rules:
- apiGroups: [{group}]
  apiVersions: [{version}]
  operations: [{operations}]
  resources: [{resources}]
  scope: \"*\"
sideEffects: None
timeoutSeconds: {timeout}
",
            timeout = self.timeout_seconds(row),
            name = self.name(row, mutating),
            path = row.webhook_path(mutating),
            reinvocation = if mutating { "reinvocationPolicy: IfNeeded\n" } else { "" },
            group = group_text(row),
            version = row.gvk.version,
            operations = operations.join(", "),
        )
    }
}

/// Returns the API group for a YAML list.
fn group_text(row: &Framework) -> &'static str {
    if row.gvk.group.is_empty() { "\"\"" } else { row.gvk.group }
}

/// Returns the lines of a text with an indentation; the first line begins with `first`.
fn indent(text: &str, first: &str) -> String {
    let spaces = " ".repeat(first.len());
    let lines = text.lines().enumerate().map(|(number, line)| {
        let start = if number == 0 { first } else { spaces.as_str() };
        format!("{start}{line}\n")
    });
    lines.collect()
}

/// Returns the rows that the shipped configuration enables.
fn shipped() -> impl Iterator<Item = &'static Framework> {
    frameworks().filter(|row| row.is_shipped())
}

/// Returns the list of frameworks in the shipped configuration.
pub fn shipped_frameworks() -> String {
    let lines = shipped().map(|row| format!("  - {}\n", row.name));
    lines.collect()
}

/// Returns the entries that a kind has in the manifests when it is enabled. Pods without a queue never wait for the manager,
/// unless an administrator selects it.
pub(super) fn entries(row: &Framework) -> &'static [Entry] {
    if row.is_pod() { &[Entry::Queued] } else { &[Entry::Queued, Entry::Unqueued] }
}

/// Returns the entries of the mutating or validating webhook configuration.
pub fn webhook_entries(mutating: bool) -> String {
    let items = shipped().flat_map(|row| entries(row).iter().map(move |entry| entry.item(row, mutating)));
    items.collect()
}

/// Kinds of webhook configurations, and whether their webhooks change objects.
pub(super) const CONFIGURATIONS: [(&str, bool); 2] = [("Mutating", true), ("Validating", false)];

/// Returns the patches for a manager that also queues jobs without a queue: entries that fail closed replace those that
/// fail open.
pub fn managed_webhook_patches() -> String {
    let open = || shipped().filter(|row| entries(row).contains(&Entry::Unqueued));
    let removed = CONFIGURATIONS
        .map(|(kind, mutating)| remove_entries(kind, mutating, open().map(|row| (Entry::Unqueued, row))));
    let added = CONFIGURATIONS
        .map(|(kind, mutating)| add_entries(kind, mutating, shipped().map(|row| (Entry::Managed, row))));
    removed.concat() + &added.concat()
}

/// Returns the patches by which pods without a queue get the default queue of their namespace.
pub fn default_queue_patches() -> String {
    let pods = || shipped().filter(|row| row.is_pod()).map(|row| (Entry::Unqueued, row));
    CONFIGURATIONS.map(|(kind, mutating)| add_entries(kind, mutating, pods())).concat()
}

/// Returns the patch that removes entries from the webhook configuration of a kind.
pub(super) fn remove_entries<'a>(
    kind: &str,
    mutating: bool,
    entries: impl Iterator<Item = (Entry, &'a Framework)>,
) -> String {
    let names = entries
        .map(|(entry, row)| format!("    - name: {}\n      $patch: delete\n", entry.name(row, mutating)));
    format!(
        "- patch: |
    apiVersion: admissionregistration.k8s.io/v1
    kind: {kind}WebhookConfiguration
    metadata:
      name: kueue-{}-webhook-configuration
    webhooks:
{}",
        kind.to_lowercase(),
        names.collect::<String>(),
    )
}

/// Returns the patch that adds entries to the webhook configuration of a kind.
pub(super) fn add_entries<'a>(
    kind: &str,
    mutating: bool,
    entries: impl Iterator<Item = (Entry, &'a Framework)>,
) -> String {
    let values = entries.map(|(entry, row)| {
        let text = indent(&entry.text(row, mutating), "        ");
        format!("    - op: add\n      path: /webhooks/-\n      value:\n{text}")
    });
    format!(
        "- target:
    kind: {kind}WebhookConfiguration
    name: kueue-{}-webhook-configuration
  patch: |
{}",
        kind.to_lowercase(),
        values.collect::<String>(),
    )
}

/// Returns the rules of the manager's role.
pub fn manager_rules() -> String {
    shipped().map(row_rules).collect()
}

/// Returns whether objects are deleted only after a retention period. A stop deletes pods.
fn deletes_by_retention(row: &Framework) -> bool {
    row.rbac.object.contains(&"delete") && !row.is_pod()
}

/// Returns the rules of the manager's role for one kind, without the deletion that follows from a retention period.
pub(super) fn row_rules(row: &Framework) -> String {
    let read = ["get", "list", "watch"];
    let written = row.rbac.object.iter().copied().filter(|verb| *verb != "delete" || row.is_pod());
    let object: BTreeSet<&str> = read.into_iter().chain(written).collect();
    let object: Vec<&str> = object.into_iter().collect();
    let plural = row.gvk.plural;
    let rules = [
        (plural.to_owned(), object.as_slice()),
        (format!("{plural}/status"), row.rbac.status),
        (format!("{plural}/finalizers"), row.rbac.finalizers),
    ];
    let rules = rules.into_iter().filter(|(_, verbs)| !verbs.is_empty()).map(|(resource, verbs)| {
        format!(
            "- apiGroups: [{}]\n  resources: [{resource}]\n  verbs: [{}]\n",
            group_text(row),
            verbs.join(", ")
        )
    });
    let related = row.related.iter().map(|RelatedKind { gvk, .. }| {
        let Gvk { group, plural, .. } = gvk;
        format!("- apiGroups: [{group}]\n  resources: [{plural}]\n  verbs: [get, list, watch]\n")
    });
    rules.chain(related).collect()
}

/// Returns the rules by which jobs are deleted after a retention period.
pub fn retention_rules() -> String {
    frameworks().map(row_retention_rules).collect()
}

/// Returns the rules by which jobs of one kind are deleted.
pub(super) fn row_retention_rules(row: &Framework) -> String {
    if !deletes_by_retention(row) {
        return String::new();
    }
    let (group, plural) = (group_text(row), row.gvk.plural);
    format!("- apiGroups: [{group}]\n  resources: [{plural}]\n  verbs: [delete]\n")
}

/// Returns the rules by which webhooks read jobs.
pub fn webhook_rules() -> String {
    frameworks().map(row_webhook_rules).collect()
}

/// Returns the rules by which webhooks read one kind.
pub(super) fn row_webhook_rules(row: &Framework) -> String {
    let (group, plural) = (group_text(row), row.gvk.plural);
    let read = |(group, plural): (&str, &str)| {
        format!("- apiGroups: [{group}]\n  resources: [{plural}]\n  verbs: [get, list, watch]\n")
    };
    let related =
        row.related.iter().filter(|kind| kind.in_reviews).map(|kind| (kind.gvk.group, kind.gvk.plural));
    [(group, plural)].into_iter().chain(related).map(read).collect()
}

/// Returns the files of the roles with which people edit and view jobs, by name.
pub fn user_roles() -> Vec<(String, String)> {
    shipped().flat_map(row_roles).collect()
}

/// Returns the files of the roles for one kind, by name. The server's own roles cover pods and the kinds of apps: a batch user
/// must not get all of them.
pub(super) fn row_roles(row: &Framework) -> Vec<(String, String)> {
    if matches!(row.gvk.group, "" | "apps") {
        return Vec::new();
    }
    vec![user_role(row, true), user_role(row, false)]
}

/// Returns the lines that list these files for Kustomize.
pub fn user_role_files() -> String {
    let lines = user_roles().into_iter().map(|(file, _)| format!("- {file}\n"));
    lines.collect()
}

fn user_role(row: &Framework, editor: bool) -> (String, String) {
    let kind = row.manifest_name();
    let side = if editor { "editor" } else { "viewer" };
    let verbs = if editor { "create, delete, get, list, patch, update, watch" } else { "get, list, watch" };
    let aggregated = ["view", "edit", "admin"]
        .map(|role| format!("    rbac.authorization.k8s.io/aggregate-to-{role}: \"true\"\n"))
        .concat();
    let text = format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: kueue-{kind}-{side}-role
  labels:
    app.kubernetes.io/name: kueue
    rbac.kueue.x-k8s.io/role: {kind}-{side}
    rbac.kueue.x-k8s.io/batch-admin: \"true\"
    rbac.kueue.x-k8s.io/batch-user: \"true\"
{aggregated}rules:
- apiGroups: [{group}]
  resources: [{plural}]
  verbs: [{verbs}]
- apiGroups: [{group}]
  resources: [{plural}/status]
  verbs: [get]
",
        aggregated = if editor { "" } else { &aggregated },
        group = group_text(row),
        plural = row.gvk.plural,
    );
    (format!("{kind}_{side}_role.yaml"), text)
}

/// Returns the table of job kinds for README.md.
pub fn readme_table() -> String {
    let mut parts = vec!["| Kind | Status |\n|---|---|\n".to_owned()];
    for row in frameworks() {
        parts.push(format!("| {} | supported |\n", full_kind(row)));
    }
    parts.push("| Workload without a job | supported |\n".to_owned());
    parts.concat()
}

/// Returns the line of docs/simulate.md that lists the kinds of jobs.
pub fn simulated_kinds() -> String {
    let kinds: Vec<String> = frameworks().map(full_kind).collect();
    format!("Kinds of jobs that become Workloads: {}.\n", kinds.join(", "))
}

fn full_kind(row: &Framework) -> String {
    format!("{} {}", row.gvk.api_version(), row.gvk.kind)
}
