//! Kustomize components for kinds of jobs that the shipped configuration does not enable: webhooks, permissions and the roles of
//! users, written from the rows of the table. The component of a kind that a file describes also gives the file to the manager.
//!
//! Invariants: a component adds to the shipped manifests and changes nothing that they have, so
//! that components of different kinds can be combined in any order.

use super::manifests::{
    CONFIGURATIONS, Entry, add_entries, entries, remove_entries, row_retention_rules, row_roles, row_rules,
    row_webhook_rules,
};
use super::row::{Enabled, Framework};
use super::table::frameworks;
use sha2::{Digest, Sha256};

/// Writer of the components in `config/frameworks`, for their first lines.
const MAKE: &str = "make frameworks";
/// Writer of components for kinds that files describe.
const COMMAND: &str = "sluice framework manifests";

/// Returns the files below `config/frameworks`, by their paths.
pub fn files() -> Vec<(String, String)> {
    let in_folder = |row: &'static Framework| {
        let files = row_files(row, MAKE, "").into_iter();
        files.map(|(file, text)| (format!("{}/{file}", row.manifest_name()), text))
    };
    let mut files: Vec<(String, String)> = rows().flat_map(in_folder).collect();
    let lines = rows().map(|row| format!("- ../{}\n", row.manifest_name()));
    let all: String = lines.collect();
    if !all.is_empty() {
        let purpose = "For all kinds of jobs that the shipped configuration does not enable.";
        let text = component(MAKE, purpose, &format!("components:\n{all}"));
        files.push(("all/kustomization.yaml".to_owned(), text));
    }
    files
}

/// Returns the rows that have a component below `config/frameworks`.
fn rows() -> impl Iterator<Item = &'static Framework> {
    frameworks().filter(|row| row.enabled == Enabled::WhenListed)
}

/// Returns the files of the component for a kind that a file describes, by their paths. `text` is that of the file.
pub fn files_of(row: &Framework, text: &str) -> Vec<(String, String)> {
    let name = row.manifest_name();
    let file = format!("{name}.yaml");
    let mounted = format!(
        "- target:
    kind: Deployment
    labelSelector: app.kubernetes.io/name=kueue
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --framework-file=/frameworks/{file}
    - op: add
      path: /spec/template/spec/containers/0/volumeMounts/-
      value:
        name: {volume}
        mountPath: /frameworks/{file}
        subPath: {file}
        readOnly: true
    - op: add
      path: /spec/template/spec/volumes/-
      value:
        name: {volume}
        configMap:
          name: kueue-framework-{name}
configMapGenerator:
- name: kueue-framework-{name}
  namespace: kueue-system
  files: [{file}]
",
        volume = volume(row),
    );
    let mut files = row_files(row, COMMAND, &mounted);
    // Below config these are parts of components for all kinds.
    for (folder, account, rules) in [
        ("retention", "kueue-controller-manager", row_retention_rules(row)),
        ("split", "kueue-webhooks", row_webhook_rules(row)),
    ] {
        let purpose = format!("For {} and the component {folder}.", row.name);
        let list = component(COMMAND, &purpose, "resources:\n- role.yaml\n");
        let role = role(row, &format!("framework-{folder}"), account, &rules);
        files.push((format!("{folder}/kustomization.yaml"), list));
        files.push((format!("{folder}/role.yaml"), role));
    }
    files.push((file, text.to_owned()));
    files
}

/// Returns the name of the volume with the file of a kind: at most 63 characters, and another one for each kind.
fn volume(row: &Framework) -> String {
    let name = row.manifest_name().replace('.', "-");
    let end = name.char_indices().nth(40).map_or(name.len(), |(end, _)| end);
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(name.as_bytes()));
    let digest = u32::from_be_bytes([a, b, c, d]);
    format!("framework-{}-{digest:08x}", name.get(..end).unwrap_or_default().trim_end_matches('-'))
}

/// Returns the files of the component for a kind. `fields` follow the list of patches.
fn row_files(row: &Framework, writer: &str, fields: &str) -> Vec<(String, String)> {
    let (name, roles) = (row.name, row_roles(row));
    let lines = roles.iter().map(|(file, _)| format!("- {file}\n"));
    let role_files: String = lines.collect();
    let purpose = match row.enabled {
        Enabled::ByFile => format!("For {name}, and its file."),
        Enabled::ByDefault | Enabled::AsShipped | Enabled::WhenListed => {
            format!("For {name} in integrations.frameworks of the manager's configuration.")
        }
    };
    let text = format!("resources:\n- role.yaml\n{role_files}patches:\n{}{fields}", added(row, entries(row)));
    let purpose_of_all =
        format!("For {name} and manageJobsWithoutQueueName: true, after the component of the kind.");
    let all = format!("patches:\n{}{}", removed(row), added(row, &[Entry::Managed]));
    let mut files = vec![
        ("kustomization.yaml".to_owned(), component(writer, &purpose, &text)),
        ("role.yaml".to_owned(), role(row, "framework", "kueue-controller-manager", &row_rules(row))),
        ("manage-all-jobs/kustomization.yaml".to_owned(), component(writer, &purpose_of_all, &all)),
    ];
    files.extend(roles);
    files
}

fn component(writer: &str, purpose: &str, text: &str) -> String {
    format!(
        "# Written by {writer}. {purpose}\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n{text}"
    )
}

fn added(row: &Framework, entries: &[Entry]) -> String {
    let all = || entries.iter().map(|entry| (*entry, row));
    CONFIGURATIONS.map(|(kind, mutating)| add_entries(kind, mutating, all())).concat()
}

fn removed(row: &Framework) -> String {
    CONFIGURATIONS
        .map(|(kind, mutating)| remove_entries(kind, mutating, [(Entry::Unqueued, row)].into_iter()))
        .concat()
}

/// Returns a role for one kind, and its binding to a service account.
fn role(row: &Framework, purpose: &str, account: &str, rules: &str) -> String {
    let name = row.manifest_name();
    let head = |object: &str, end: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: {object}
metadata:
  name: kueue-{name}-{purpose}-{end}
  labels:
    app.kubernetes.io/name: kueue
    app.kubernetes.io/component: controller
"
        )
    };
    format!(
        "{}rules:\n{rules}---\n{}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: kueue-{name}-{purpose}-role
subjects:
- kind: ServiceAccount
  name: {account}
  namespace: kueue-system
",
        head("ClusterRole", "role"),
        head("ClusterRoleBinding", "rolebinding"),
    )
}
