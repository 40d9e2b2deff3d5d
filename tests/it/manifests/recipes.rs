//! What install.md, the components and the chart's cases name as a configuration is one with which the manager starts, as
//! `sluice config check` says; each component and each value that the table of choices names exists, and each component is in it.

use crate::fixtures::manifests::root;
use serde_json::{Map, Value, json};
use sluice::api::config;
use sluice::frameworks::known_frameworks;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Components that are no choice of their own: they are in the shipped manifests, or belong to one of a kind of jobs.
const WITHOUT_ROW: [&str; 2] = ["webhook-certs/self-managed", "config/frameworks/"];

/// Puts a configuration to the check; an error is the reason why it is refused.
fn check(mut document: Value) -> Result<(), String> {
    let fields = document.as_object_mut().expect("a configuration has fields");
    fields.insert("apiVersion".to_owned(), json!(config::API_VERSION));
    fields.insert("kind".to_owned(), json!("Configuration"));
    let loaded = config::load(document, &known_frameworks()).map_err(|error| error.to_string())?;
    if loaded.unknown_gates.is_empty() { Ok(()) } else { Err(format!("{:?}", loaded.unknown_gates)) }
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the cells of each row of the table of choices.
fn choices() -> Vec<[String; 3]> {
    let page = fs::read_to_string(root().join("docs/install.md")).unwrap();
    let (_, section) = page.split_once("\n## Choices\n").expect("the page has choices");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |line: &str| -> [String; 3] {
        let cells: Vec<String> =
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().unwrap_or_else(|cells| panic!("three cells: {cells:?}"))
    };
    rows.map(cells).collect()
}

/// Returns the texts in backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Returns a configuration with one setting, whose name may have dots.
fn setting(text: &str) -> Value {
    let (name, value) = text.split_once(": ").expect("a setting has a value");
    name.rsplit('.')
        .fold(yaml(value), |value, name| Value::Object(Map::from_iter([(name.to_owned(), value)])))
}

#[test]
fn each_configuration_of_the_table_of_choices_is_accepted() {
    let rows = choices();
    assert!(rows.len() > 20, "{} rows", rows.len());
    let mut checked = 0;
    for [choice, component, _] in &rows {
        // Other texts with a colon are labels, and called so.
        let labels: Vec<&str> =
            choice.split("label `").skip(1).filter_map(|rest| rest.split('`').next()).collect();
        let settings =
            quoted(choice).into_iter().filter(|text| text.contains(": ") && !labels.contains(text));
        for text in settings {
            // A gate alone is named as one in the words before it.
            let gate = json!({"featureGates": setting(text)});
            let outcome = check(setting(text)).or_else(|error| check(gate).map_err(|_| error));
            assert_eq!(outcome, Ok(()), "{component}: {text}");
            checked += 1;
        }
    }
    assert!(checked >= 4, "{checked} configurations");
}

fn is_component(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join("kustomization.yaml")).unwrap_or_default();
    text.contains("kind: Component")
}

fn components(folder: &Path, found: &mut BTreeSet<String>) {
    if is_component(folder) {
        found.insert(folder.strip_prefix(root()).unwrap().display().to_string());
    }
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        components(&entry, found);
    }
}

#[test]
fn each_component_is_a_choice() {
    let mut shipped = BTreeSet::new();
    for tree in ["config", "webhook-certs"] {
        components(&root().join(tree), &mut shipped);
    }
    shipped.retain(|path| !WITHOUT_ROW.iter().any(|prefix| path.starts_with(prefix)));
    let rows = choices();
    let named: BTreeSet<String> = rows
        .iter()
        .flat_map(|[_, component, _]| quoted(component))
        .filter(|text| !text.contains("KIND") && !text.contains(' ') && is_component(&root().join(text)))
        .map(str::to_owned)
        .collect();
    assert_eq!(shipped, &named - &BTreeSet::from(["config/frameworks/all".to_owned()]));
}

#[test]
fn each_value_of_the_table_of_choices_exists() {
    let values = yaml(&fs::read_to_string(root().join("charts/sluice/values.yaml")).unwrap());
    for [_, component, value] in choices() {
        for text in quoted(&value) {
            let path = text.split(": ").next().unwrap().replace('.', "/");
            assert!(values.pointer(&format!("/{path}")).is_some(), "{component}: {text}");
        }
    }
}

/// The cases of the chart that are not refused.
#[test]
fn each_configuration_of_the_chart_cases_is_accepted() {
    let mut checked = 0;
    for file in ["absent.yaml", "accepted.yaml", "fields.yaml", "flags.yaml"] {
        let cases = yaml(&fs::read_to_string(root().join("e2e/chart").join(file)).unwrap());
        for case in cases.as_array().unwrap() {
            let mut document = case["configuration"].as_str().map_or_else(|| json!({}), yaml);
            let gates = case.pointer("/values/controllerManager/featureGates").and_then(Value::as_array);
            for gate in gates.into_iter().flatten() {
                let name = gate["name"].as_str().unwrap();
                let gates = document.as_object_mut().unwrap().entry("featureGates").or_insert(json!({}));
                gates[name] = gate["enabled"].clone();
            }
            assert_eq!(check(document), Ok(()), "{file}: {case}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked} cases");
    let values = yaml(&fs::read_to_string(root().join("charts/sluice/values.yaml")).unwrap());
    let shipped =
        values.pointer("/managerConfig/controllerManagerConfigYaml").and_then(Value::as_str).unwrap();
    assert_eq!(check(yaml(shipped)), Ok(()));
}

/// Pages whose commands a user copies.
const PAGES: [&str; 3] = ["docs/install.md", "docs/helm.md", "docs/import.md"];

/// Returns the commands of the code blocks of a page, with continued lines joined and without comments.
fn commands(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap().replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let commands = lines.map(|line| line.split(" #").next().unwrap().trim());
    let is_program = |line: &&str| {
        ["kubectl ", "helm ", "sluice ", "make "].iter().any(|program| line.starts_with(program))
    };
    commands.filter(is_program).map(str::to_owned).collect()
}

/// What a command of a page names of this repository exists: paths, values of the chart, targets of make, and verbs and flags of the
/// program.
#[test]
fn each_command_of_the_pages_can_be_run_as_printed() {
    let values = yaml(&fs::read_to_string(root().join("charts/sluice/values.yaml")).unwrap());
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut checked = 0;
    for page in PAGES {
        for command in commands(page) {
            let words: Vec<&str> = command.split_whitespace().collect();
            for (flag, value) in words.iter().zip(&words[1..]) {
                let is_path = ["-k", "-f"].contains(flag) && *value != "-" && words[0] == "kubectl";
                assert!(!is_path || root().join(value).exists(), "{page}: {command}: {value} does not exist");
                let set = value.split('=').next().unwrap().replace('.', "/");
                let exists = *flag != "--set" || values.pointer(&format!("/{set}")).is_some();
                assert!(exists, "{page}: {command}: no value {set}");
            }
            match words[0] {
                "helm" => assert!(
                    !command.contains("charts/") || command.contains("charts/sluice "),
                    "{page}: {command}"
                ),
                "make" => assert!(makefile.contains(&format!("\n{}:", words[1])), "{page}: {command}"),
                "sluice" => {
                    let mut program = Command::new(env!("CARGO_BIN_EXE_sluice"));
                    // Without a cluster it fails, but not as a command line that it does not know.
                    let output =
                        program.args(&words[1..]).env("KUBECONFIG", "/nonexistent/kubeconfig").output();
                    let output = output.unwrap();
                    let errors = String::from_utf8_lossy(&output.stderr);
                    assert!(
                        output.status.code().is_some_and(|code| code != 2),
                        "{page}: {command}: {errors}"
                    );
                }
                _ => {}
            }
            checked += 1;
        }
    }
    assert!(checked > 25, "{checked} commands");
}
