//! Each setting with each kind of value: empty, null, huge, of another type, and given twice.

use super::setting_coverage::parts;
use crate::api::config;
use crate::frameworks::known_frameworks;

/// Values of all types; each setting accepts some of them.
const VALUES: [&str; 17] = [
    "null",
    "''",
    "[]",
    "{}",
    "0",
    "-1",
    "1e400",
    "9223372036854775807",
    "99999999999999999999",
    "true",
    "x",
    "1h",
    "-1h",
    "[[[]]]",
    "[x, x]",
    "[null]",
    "{a: null}",
];

/// Returns the paths of all settings; `[]` stands for each entry of a list. The page has a line for each.
fn paths() -> Vec<String> {
    let page = config::configure_page();
    let (_, table) = page.split_once("\n## Settings\n").unwrap();
    let path = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    table.lines().filter_map(path).collect()
}

/// Returns the field of a setting in its object as lines of a file, with the required fields of that object.
fn lines(path: &str, value: &str) -> (String, String) {
    let mut names = path.rsplit('.');
    let field = names.next().unwrap();
    let mut text = format!("{field}: {value}");
    for name in names {
        text = match (name.strip_suffix("[]"), name) {
            (Some(list), _) => {
                let key = if list == "transformations" { "input" } else { "name" };
                let key = if field == key { String::new() } else { format!("{key}: a, ") };
                format!("{list}: [{{{key}{text}}}]")
            }
            (None, "incrementalDispatcherConfig") => {
                format!(
                    "dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, {name}: {{{text}}}"
                )
            }
            (None, _) => format!("{name}: {{{text}}}"),
        };
    }
    (field.to_owned(), text)
}

/// Returns a file with these lines.
fn file(lines: &str) -> String {
    let head = [("apiVersion", config::API_VERSION), ("kind", "Configuration")].into_iter();
    let head = head.filter(|(key, _)| !lines.starts_with(&format!("{key}:")));
    let head: Vec<String> = head.map(|(key, value)| format!("{key}: {value}\n")).collect();
    format!("{}{lines}\n", head.concat())
}

/// A refused file names the path of the wrong field. An accepted file is accepted by every part of the manager.
#[test]
fn each_value_of_each_setting_is_taken_or_refused_by_path() {
    let (known, huge) = (known_frameworks(), "a".repeat(100_000));
    let paths = paths();
    assert!(paths.len() > 70, "{paths:?}");
    for path in paths {
        let indexed = path.replace("[]", "[0]");
        for value in VALUES.into_iter().chain([huge.as_str()]) {
            let (field, lines) = lines(&path, value);
            // Malformed numbers are refused with their line, and a wrong order of durations by either name.
            let names = |reason: &String| {
                reason.starts_with(&indexed)
                    || (reason.starts_with("not YAML: ") && reason.contains(&field))
                    || reason.ends_with(&format!("than {field}"))
            };
            match config::parse(&file(&lines), &known) {
                Err(error) => assert!(error.reasons().iter().any(names), "{path}: {value:.40}: {error:.400}"),
                Ok(loaded) => {
                    let taken = parts(loaded.configuration);
                    assert!(taken.is_ok(), "{path}: {value:.40}: {taken:?}");
                }
            }
        }
    }
}

/// A key that is given twice is refused, because neither value has precedence.
#[test]
fn a_key_given_twice_is_refused_by_name() {
    for path in paths() {
        let (field, once) = lines(&path, "1");
        let (section, _) = once.split_once(':').unwrap();
        let mut twice = vec![(section, file(&format!("{once}\n{once}")))];
        if path.contains('.') {
            twice.push((field.as_str(), file(&lines(&path, &format!("1, {field}: 1")).1)));
        }
        for (key, text) in twice {
            let error = config::parse(&text, &known_frameworks()).unwrap_err().to_string();
            assert!(error.contains(&format!("duplicate mapping key: {key} ")), "{text}: {error}");
        }
    }
}

#[test]
fn an_entry_given_twice_is_refused_by_path_where_it_has_a_meaning() {
    for (lines, reason) in [
        ("integrations: {frameworks: [pod, pod]}", "integrations.frameworks[1]: "),
        ("integrations: {externalFrameworks: [A.v1.b, A.v1.b]}", "integrations.externalFrameworks[1]: "),
        ("resources: {transformations: [{input: a}, {input: a}]}", "resources.transformations[1].input: "),
        ("metrics: {customLabels: [{name: a}, {name: a}]}", "metrics.customLabels[1].name: "),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanInitialShare]}",
            "fairSharing.preemptionStrategies: ",
        ),
    ] {
        let error = config::parse(&file(lines), &known_frameworks()).unwrap_err();
        assert!(error.reasons().iter().any(|found| found.starts_with(reason)), "{lines}: {error}");
    }
    for lines in [
        "integrations: {labelKeysToCopy: [a, a]}",
        "resources: {excludeResourcePrefixes: [a, a]}",
        "tls: {cipherSuites: [TLS_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256], curvePreferences: [24, 24]}",
    ] {
        let taken = config::parse(&file(lines), &known_frameworks()).expect(lines);
        assert!(parts(taken.configuration).is_ok(), "{lines}");
    }
}
