//! What `sluice config check` prints.

use super::*;

fn output(body: &str) -> (String, bool) {
    let text = format!("apiVersion: {}\nkind: Configuration\n{body}\n", config::API_VERSION);
    match check(&text, None).unwrap() {
        Ok((document, loaded)) => (accepted("f", &document, &loaded, FILE), true),
        Err(error) => (refused("f", &error), false),
    }
}

/// Returns the columns of the line of a setting or gate.
fn line(output: &str, name: &str) -> Vec<String> {
    let found = output.lines().find(|line| line.split_whitespace().next() == Some(name));
    found.unwrap_or_else(|| panic!("{name}:\n{output}")).split_whitespace().map(ToOwned::to_owned).collect()
}

#[test]
fn each_setting_is_printed_with_its_origin() {
    let (output, valid) = output(
        "waitForPodsReady: {timeout: 90s}\nclientConnection: {qps: 20}\nmultiKueue: {gcInterval: 2m}\n\
         featureGates: {PartialAdmission: false}",
    );
    assert!(valid, "{output}");
    assert_eq!(line(&output, "waitForPodsReady.timeout")[1..], ["1m30s", "file"]);
    assert_eq!(line(&output, "waitForPodsReady.blockAdmission")[1..], ["false", "default"]);
    assert_eq!(line(&output, "clientConnection.qps")[1..], ["20", "file"]);
    assert_eq!(line(&output, "clientConnection.burst")[1..], ["500", "default"]);
    assert_eq!(line(&output, "integrations.frameworks")[1..3], ["batch/job", "default"]);
    assert_eq!(line(&output, "multiKueue.gcInterval")[1..5], ["2m0s", "file", "no", "effect:"]);
    assert_eq!(line(&output, "PartialAdmission")[1..], ["false", "file"]);
    assert_eq!(line(&output, "KueueDRAIntegration")[1..5], ["true", "default", "no", "effect:"]);
    assert!(output.starts_with("warning: multiKueue.gcInterval: has no effect"), "{output}");
    assert!(output.ends_with("f is valid: 1 warning\n"), "{output}");
}

#[test]
fn refused_file_names_all_errors_and_warnings() {
    let (output, valid) =
        output("webhook: {port: 0}\nresources: {deviceClassMappings: [{name: a}]}\npprofBindAddress: ':1'");
    assert!(!valid);
    for part in [
        "error: webhook.port: must be between 1 and 65535\n",
        "error: resources.deviceClassMappings: is not supported: devices have no quota\n",
        "warning: pprofBindAddress: has no effect: there is no profiler\n",
        "f is refused: 2 errors, 1 warning\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(!output.contains("SETTING"), "nothing is in force: {output}");
}

#[test]
fn what_is_no_configuration_is_refused_by_name() {
    for (text, reason) in [
        ("{", "error: not YAML"),
        ("a: [b", "error: not YAML"),
        ("- a", "error: apiVersion: \"\" is not supported"),
        ("kind: ConfigMap\napiVersion: v1", "error: kind: this is a ConfigMap"),
    ] {
        let error = check(text, None).unwrap().unwrap_err();
        let output = refused("f", &error);
        assert!(output.contains(reason), "{text}: {output}");
    }
    assert!(check("", Some("PartialAdmission")).is_err(), "a bad flag is an error of the command line");
}
