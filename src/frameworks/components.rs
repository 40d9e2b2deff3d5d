//! Kustomize components for kinds of jobs that the shipped configuration does not enable: webhooks, permissions and the roles of
//! users, written from the rows of the table.
//!
//! Invariants: only rows that are served occur; a component adds to the shipped manifests and changes nothing that they have, so
//! that components of different kinds can be combined in any order.

use super::manifests::{CONFIGURATIONS, Entry, add_entries, entries, remove_entries, row_roles, row_rules};
use super::row::Framework;
use super::table::served;

/// Returns the files below `config/frameworks`, by their paths.
pub fn files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = rows().flat_map(row_files).collect();
    let lines = rows().map(|row| format!("- ../{}\n", folder(row)));
    let all: String = lines.collect();
    if !all.is_empty() {
        let purpose = "For all kinds of jobs that the shipped configuration does not enable.";
        files.push(("all/kustomization.yaml".to_owned(), component(purpose, &format!("components:\n{all}"))));
    }
    files
}

/// Returns the rows that have a component.
fn rows() -> impl Iterator<Item = &'static Framework> {
    served().filter(|row| !row.is_shipped())
}

fn folder(row: &Framework) -> String {
    row.gvk.kind.to_lowercase()
}

fn row_files(row: &'static Framework) -> Vec<(String, String)> {
    let (folder, name) = (folder(row), row.name);
    let roles = row_roles(row);
    let lines = roles.iter().map(|(file, _)| format!("- {file}\n"));
    let role_files: String = lines.collect();
    let mut files = vec![
        (
            "kustomization.yaml".to_owned(),
            component(
                &format!("For {name} in integrations.frameworks of the manager's configuration."),
                &format!("resources:\n- role.yaml\n{role_files}patches:\n{}", added(row, entries(row))),
            ),
        ),
        ("role.yaml".to_owned(), role(row)),
        (
            "manage-all-jobs/kustomization.yaml".to_owned(),
            component(
                &format!("For {name} and manageJobsWithoutQueueName: true, after the component of the kind."),
                &format!("patches:\n{}{}", removed(row), added(row, &[Entry::Managed])),
            ),
        ),
    ];
    files.extend(roles);
    files.into_iter().map(|(file, text)| (format!("{folder}/{file}"), text)).collect()
}

fn component(purpose: &str, text: &str) -> String {
    format!(
        "# Written by make frameworks. {purpose}\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n{text}"
    )
}

fn added(row: &'static Framework, entries: &[Entry]) -> String {
    let all = || entries.iter().map(|entry| (*entry, row));
    CONFIGURATIONS.map(|(kind, mutating)| add_entries(kind, mutating, all())).concat()
}

fn removed(row: &'static Framework) -> String {
    CONFIGURATIONS
        .map(|(kind, mutating)| remove_entries(kind, mutating, [(Entry::Unqueued, row)].into_iter()))
        .concat()
}

/// Returns the manager's role for one kind, and its binding.
fn role(row: &Framework) -> String {
    let kind = row.gvk.kind.to_lowercase();
    let head = |object: &str, end: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: {object}
metadata:
  name: kueue-{kind}-framework-{end}
  labels:
    app.kubernetes.io/name: kueue
    app.kubernetes.io/component: controller
"
        )
    };
    format!(
        "{}rules:\n{}---\n{}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: kueue-{kind}-framework-role
subjects:
- kind: ServiceAccount
  name: kueue-controller-manager
  namespace: kueue-system
",
        head("ClusterRole", "role"),
        row_rules(row),
        head("ClusterRoleBinding", "rolebinding"),
    )
}
