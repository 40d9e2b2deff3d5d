//! The parts of the Helm chart that are copies of `config/`, `crds/` and `dashboards/`, or written from the table of
//! frameworks, are up to date; its values, their schema and docs/helm.md list the same values. What the chart renders is
//! tested by `make chart-test`, which needs helm.

use crate::fixtures::written_files::{Written, check_or_write};
use crate::manifests::frameworks::with_part;
use serde_json::Value;
use sluice::frameworks::chart;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const CHART: &str = "charts/sluice";

/// A file of `config/` that is a template of the chart with other names.
struct Copied {
    source: &'static str,
    /// Below the chart's templates.
    target: &'static str,
    /// The named template of the generated part, or nothing.
    part: &'static str,
    /// The value with which its objects exist, or nothing.
    condition: &'static str,
}

const fn copied(source: &'static str, target: &'static str, part: &'static str) -> Copied {
    Copied { source, target, part, condition: "" }
}

/// When the visibility API is served, and when it has flow control of its own.
const SERVES_VISIBILITY: &str = r#"include "sluice.servesVisibility" ."#;
const FLOW_CONTROL: &str = r#"and (include "sluice.servesVisibility" .) .Values.enableVisibilityAPF"#;

const COPIED: [Copied; 25] = [
    copied("config/metrics/role.yaml", "rbac/metrics_role.yaml", ""),
    copied("config/rbac/batch_admin_role.yaml", "rbac/batch_admin_role.yaml", ""),
    copied("config/rbac/batch_user_role.yaml", "rbac/batch_user_role.yaml", ""),
    copied("config/rbac/manager_role.yaml", "rbac/manager_role.yaml", "managerRules"),
    copied("config/rbac/manager_role_binding.yaml", "rbac/manager_role_binding.yaml", ""),
    copied("config/rbac/secrets_role.yaml", "rbac/secrets_role.yaml", ""),
    Copied {
        condition: r#"include "sluice.topology" ."#,
        ..copied("config/rbac/topology_role.yaml", "rbac/topology_role.yaml", "")
    },
    Copied {
        condition: ".Values.provisioningRequests.enabled",
        ..copied("config/rbac/provisioning_role.yaml", "rbac/provisioning_role.yaml", "")
    },
    Copied {
        condition: r#"include "sluice.retention" ."#,
        ..copied("config/rbac/retention/role.yaml", "rbac/retention_role.yaml", "retentionRules")
    },
    Copied {
        condition: r#"include "sluice.issuesCertificates" ."#,
        ..copied("webhook-certs/self-managed/role.yaml", "rbac/certificates_role.yaml", "")
    },
    copied("config/rbac/service_account.yaml", "rbac/service_account.yaml", ""),
    Copied {
        condition: ".Values.webhooks.separate",
        ..copied("config/split/webhooks_role.yaml", "rbac/webhooks_role.yaml", "webhookRules")
    },
    Copied {
        condition: r#"include "sluice.dashboardComponent" ."#,
        ..copied("config/dashboard/role.yaml", "rbac/dashboard_role.yaml", "webhookRules")
    },
    Copied {
        condition: ".Values.history.enabled",
        ..copied("config/history/role.yaml", "rbac/history_role.yaml", "webhookRules")
    },
    Copied {
        condition: SERVES_VISIBILITY,
        ..copied("config/visibility/role.yaml", "rbac/visibility_role.yaml", "")
    },
    Copied {
        condition: r#"and (include "sluice.servesVisibility" .) .Values.enableVisibilityAuthReaderRoleBinding"#,
        ..copied("config/visibility/auth_reader_role_binding.yaml", "rbac/visibility_auth_reader.yaml", "")
    },
    Copied {
        condition: r#"and (include "sluice.servesVisibility" .) (include "sluice.issuesCertificates" .)"#,
        ..copied("config/visibility/certificates_role.yaml", "rbac/visibility_certificates_role.yaml", "")
    },
    Copied {
        condition: SERVES_VISIBILITY,
        ..copied("config/visibility/cluster_viewer_role.yaml", "rbac/cluster_viewer_role.yaml", "")
    },
    Copied {
        condition: SERVES_VISIBILITY,
        ..copied("config/visibility/namespace_viewer_role.yaml", "rbac/namespace_viewer_role.yaml", "")
    },
    Copied {
        condition: SERVES_VISIBILITY,
        ..copied("config/visibility/api_services.yaml", "visibility/api_services.yaml", "")
    },
    Copied {
        condition: SERVES_VISIBILITY,
        ..copied("config/visibility/service.yaml", "visibility/service.yaml", "")
    },
    Copied {
        condition: FLOW_CONTROL,
        ..copied("config/visibility-flow-control/flow_schema.yaml", "visibility/flow_schema.yaml", "")
    },
    Copied {
        condition: FLOW_CONTROL,
        ..copied("config/visibility-flow-control/priority_level.yaml", "visibility/priority_level.yaml", "")
    },
    copied("config/webhooks/mutating.yaml", "webhooks/mutating.yaml", "mutatingWebhooks"),
    copied("config/webhooks/validating.yaml", "webhooks/validating.yaml", "validatingWebhooks"),
];

/// Texts of `config/` that depend on values, with the expressions that replace them, in this order.
const EXPRESSIONS: [(&str, &str); 20] = [
    (
        "[kueue-dashboard-server-cert, kueue-history-server-cert]",
        r#"[{{ include "sluice.fullname" . }}-dashboard-server-cert, {{ include "sluice.fullname" . }}-history-server-cert]"#,
    ),
    ("[kueue-dashboard-server-cert]", r#"[{{ include "sluice.fullname" . }}-dashboard-server-cert]"#),
    ("[kueue-history-server-cert]", r#"[{{ include "sluice.fullname" . }}-history-server-cert]"#),
    ("[kueue-webhook-server-cert]", r#"[{{ include "sluice.webhookSecretName" . }}]"#),
    ("[kueue-webhook-server-cert-ca]", r#"[{{ include "sluice.webhookSecretName" . }}-ca]"#),
    ("[kueue-webhook-server-cert-ca-bundle]", r#"[{{ include "sluice.webhookSecretName" . }}-ca-bundle]"#),
    (
        "serviceaccount:kueue-system:kueue-controller-manager",
        r#"serviceaccount:{{ .Release.Namespace }}:{{ include "sluice.fullname" . }}-controller-manager"#,
    ),
    ("namespace: kueue-system", "namespace: {{ .Release.Namespace | quote }}"),
    ("[kube-system, kueue-system]", "[kube-system, {{ .Release.Namespace | quote }}]"),
    ("name: kueue-webhook-service", r#"name: {{ include "sluice.webhookServiceName" . }}"#),
    ("name: kueue-", r#"name: {{ include "sluice.fullname" . }}-"#),
    ("[kueue-mutating-", r#"[{{ include "sluice.fullname" . }}-mutating-"#),
    ("[kueue-validating-", r#"[{{ include "sluice.fullname" . }}-validating-"#),
    ("    app.kubernetes.io/name: kueue\n", "    {{- include \"sluice.labels\" . | nindent 4 }}\n"),
    (
        "\nspec:\n  group: visibility",
        "\n  {{- with include \"sluice.injectCA\" . }}\n  {{- . | nindent 2 }}\n  {{- end }}\nspec:\n  group: visibility",
    ),
    (
        "  selector:\n    {{- include \"sluice.labels\" . | nindent 4 }}\n    app.kubernetes.io/component: controller\n",
        "  selector:\n    {{- include \"sluice.selectorLabels\" . | nindent 4 }}\n",
    ),
    (
        "reinvocationPolicy: Never",
        r#"reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "Never" }}"#,
    ),
    (
        "reinvocationPolicy: IfNeeded",
        r#"reinvocationPolicy: {{ .Values.mutatingWebhook.reinvocationPolicy | default "IfNeeded" }}"#,
    ),
    (
        "\nwebhooks:\n",
        "\n  {{- with include \"sluice.injectCA\" . }}\n  {{- . | nindent 2 }}\n  {{- end }}\nwebhooks:\n",
    ),
    (
        "# ../v1beta1 adds the definitions whose objects are converted.\n",
        "{{- include \"sluice.conversionRules\" . }}\n",
    ),
];

/// Values of Kueue's chart that the schema accepts only as far as they have no effect, and Helm's own.
const NOT_IN_VALUES: [&str; 4] = ["enableKueueViz", "enableMutatingAdmissionPolicy", "global", "kueueViz"];

/// Values that are empty by default, with fields that are in the schema.
const EMPTY: [&str; 2] = [".certManager.issuerRef", ".webhooks.resources"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Names of the YAML and JSON files of a folder.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let is_listed =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json");
    let files = entries.filter(is_listed);
    let mut names: Vec<String> =
        files.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn header(source: &str) -> String {
    format!("{{{{- /* Written by make chart from {source}. */ -}}}}\n")
}

/// Replaces texts of `config/` by expressions. No name or namespace of `config/` may remain.
fn template(source: &str, text: &str) -> String {
    let text = EXPRESSIONS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let rest = text.replace("kueue-x-k8s-io", "").replace("kueue-webhook-client-ca", "");
    assert!(!rest.contains("kueue-"), "{source}: a name is not replaced: {rest}");
    header(source) + &text
}

/// Replaces the lines from the marker of the beginning to the marker of the end by a named template.
fn with_named_template(text: &str, name: &str) -> String {
    let is_marker = |line: &&str| line.contains("BEGIN generated") || line.contains("END generated");
    let text = with_part(text, &format!("{{{{- include \"sluice.frameworks.{name}\" . }}}}\n"));
    let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| !is_marker(line)).collect();
    lines.concat()
}

/// Files of the chart and of its page, with their wanted texts.
/// Returns the values with the configuration of `config/` in place of theirs.
fn values_with_configuration() -> String {
    const KEY: &str = "  controllerManagerConfigYaml: |\n";
    let values = read(&format!("{CHART}/values.yaml"));
    let (before, rest) = values.split_once(KEY).expect("the values have the configuration");
    let is_inside = |line: &&str| line.trim().is_empty() || line.starts_with("    ");
    let length: usize = rest.split_inclusive('\n').take_while(is_inside).map(str::len).sum();
    let (old, after) = rest.split_at(length);
    let blank = old.len() - old.trim_end_matches('\n').len();
    let configuration = shipped_configuration();
    let indented = configuration.lines().map(|line| format!("    {line}\n").replace("    \n", "\n"));
    format!("{before}{KEY}{}{}{after}", indented.collect::<String>(), "\n".repeat(blank - 1))
}

/// The shipped configuration without comments: those speak of Kustomize, and comments of the values describe values.
fn shipped_configuration() -> String {
    let text = read("config/manager/controller_manager_config.yaml");
    let is_setting = |line: &&str| !line.trim_start().starts_with('#');
    text.split_inclusive('\n').filter(is_setting).collect()
}

fn wanted() -> Vec<(PathBuf, String)> {
    let templates = format!("{CHART}/templates");
    let mut files = vec![(format!("{CHART}/values.yaml"), values_with_configuration())];
    for Copied { source, target, part, condition } in COPIED {
        let text = read(source);
        let text = if part.is_empty() { text } else { with_named_template(&text, part) };
        let text = if condition.is_empty() {
            text
        } else {
            format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
        };
        files.push((format!("{templates}/{target}"), template(source, &text)));
    }
    let job_roles = chart::user_roles();
    let is_kueue_role = |name: &String| {
        let is_role = name.ends_with("_editor_role.yaml") || name.ends_with("_viewer_role.yaml");
        is_role && job_roles.iter().all(|(job_role, _)| job_role != name)
    };
    for name in names("config/rbac").into_iter().filter(is_kueue_role) {
        let source = format!("config/rbac/{name}");
        files.push((format!("{templates}/rbac/{name}"), template(&source, &read(&source))));
    }
    let rows = "the table of frameworks";
    for (name, text) in &job_roles {
        files.push((format!("{templates}/rbac/{name}"), template(rows, text)));
    }
    files.push((format!("{templates}/_frameworks.tpl"), template(rows, &chart::named_templates())));
    for name in names("crds").into_iter().filter(|name| name != "kustomization.yaml") {
        files.push((format!("{CHART}/files/crds/{name}"), read(&format!("crds/{name}"))));
    }
    for name in names("config/v1beta1/definitions") {
        let text = read(&format!("config/v1beta1/definitions/{name}"));
        files.push((format!("{CHART}/files/v1beta1/{name}"), text));
    }
    for name in names("dashboards") {
        files.push((format!("{CHART}/files/dashboards/{name}"), read(&format!("dashboards/{name}"))));
    }
    files.push((format!("{CHART}/files/prometheus/rules.yaml"), read("config/prometheus/rules.yaml")));
    files.push(("docs/helm.md".to_owned(), with_part(&read("docs/helm.md"), &values_table())));
    files.into_iter().map(|(path, text)| (root().join(path), text)).collect()
}

#[test]
fn generated_parts_are_up_to_date() {
    let files = wanted();
    let known: BTreeSet<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    check_or_write(Written::Generated, files);
    let data = ["files/crds", "files/dashboards", "files/prometheus", "files/v1beta1"];
    for folder in data.iter().chain(&["templates/rbac", "templates/visibility", "templates/webhooks"]) {
        let path = format!("{CHART}/{folder}");
        for path in names(&path).into_iter().map(|name| root().join(&path).join(name)) {
            let text = fs::read_to_string(&path).unwrap();
            let generated = data.contains(folder) || text.contains("Written by make chart");
            assert!(!generated || known.contains(&path), "{} has no source any longer", path.display());
        }
    }
}

/// The chart's configuration is the one of `config/`.
#[test]
fn default_configuration_equals_that_of_config() {
    let values: Value = serde_saphyr::from_str(&read(&format!("{CHART}/values.yaml"))).unwrap();
    let text = values["managerConfig"]["controllerManagerConfigYaml"].as_str().unwrap();
    assert_eq!(text, shipped_configuration());
}

/// Values with the comments above them, by path.
fn described_values(text: &str) -> Vec<(String, String)> {
    let mut stack: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(words) = content.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        if let Some((key, _)) = content.split_once(':').filter(|(key, _)| !key.contains([' ', '-', '/'])) {
            let indentation = line.len() - content.len();
            stack.retain(|(column, _)| *column < indentation);
            stack.push((indentation, key));
            if !comment.is_empty() {
                let path: Vec<&str> = stack.iter().map(|(_, key)| *key).collect();
                rows.push((path.join("."), comment.join(" ")));
            }
        }
        comment.clear();
    }
    rows
}

fn values_table() -> String {
    let text = read(&format!("{CHART}/values.yaml"));
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let mut table = "| Value | Default | Meaning |\n|---|---|---|\n".to_owned();
    for (path, words) in described_values(&text) {
        let default = values.pointer(&format!("/{}", path.replace('.', "/"))).expect(&path).to_string();
        let default = if default.len() > 60 { "see values.yaml".to_owned() } else { format!("`{default}`") };
        writeln!(table, "| `{path}` | {default} | {words} |").unwrap();
    }
    table
}

/// Paths of the values, down to where they are empty or the schema lists no properties.
fn value_paths(value: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let fields = value.as_object().filter(|fields| !fields.is_empty());
    let Some((properties, fields)) = schema["properties"].as_object().zip(fields) else {
        found.insert(path.to_owned());
        return;
    };
    for (name, value) in fields {
        let schema = properties.get(name).unwrap_or_else(|| panic!("{path}.{name} is not in the schema"));
        value_paths(value, schema, &format!("{path}.{name}"), found);
    }
}

/// Paths of the schema's properties that have none of their own.
fn schema_paths(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        found.insert(path.to_owned());
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path}: an unknown value must be refused");
    for (name, schema) in properties {
        schema_paths(schema, &format!("{path}.{name}"), found);
    }
}

#[test]
fn values_schema_and_page_list_the_same_values() {
    let text = read(&format!("{CHART}/values.yaml"));
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let schema: Value = serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).unwrap();
    let (mut ours, mut theirs) = (BTreeSet::new(), BTreeSet::new());
    value_paths(&values, &schema, "", &mut ours);
    schema_paths(&schema, "", &mut theirs);
    theirs.retain(|path| !NOT_IN_VALUES.contains(&path.trim_start_matches('.')));
    // The fields of an empty value are in the schema alone.
    let is_of_empty = |path: &String| ours.iter().any(|empty| path.starts_with(&format!("{empty}.")));
    theirs.retain(|path| !is_of_empty(path));
    let without_fields = |path: &&String| !theirs.contains(*path) && !EMPTY.contains(&path.as_str());
    let unknown: Vec<&String> = ours.iter().filter(without_fields).collect();
    assert!(unknown.is_empty() && theirs.is_subset(&ours), "{unknown:?}, {ours:?}, {theirs:?}");
    let described: Vec<String> = described_values(&text).into_iter().map(|(path, _)| path).collect();
    assert!(described.len() > 50);
    for path in ours {
        let path = path.trim_start_matches('.');
        let covered = described.iter().any(|row| path == row || path.starts_with(&format!("{row}.")));
        assert!(covered, "{path} has no comment");
    }
}
