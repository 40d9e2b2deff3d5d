//! Output of `sluice config check`.

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

/// A setting without effect because of a switch of v1beta1 is shown as in the file; a value that stands for the default has the
/// default as its origin.
#[test]
fn settings_without_effect_are_not_shown_as_in_force() {
    let of = |version: &str, body: &str| {
        let text = format!("apiVersion: config.kueue.x-k8s.io/{version}\nkind: Configuration\n{body}\n");
        let (document, loaded) = check(&text, None).unwrap().unwrap();
        accepted("f", &document, &loaded, FILE)
    };
    let off = of(
        "v1beta1",
        "waitForPodsReady: {timeout: 10m}\nfairSharing: {preemptionStrategies: [LessThanInitialShare]}",
    );
    let expected = ["10m", "file", "no", "effect:", "waitForPodsReady.enable", "is", "not", "true"];
    assert_eq!(line(&off, "waitForPodsReady.timeout")[1..], expected);
    assert_eq!(
        line(&off, "fairSharing.preemptionStrategies")[1..5],
        ["LessThanInitialShare", "file", "no", "effect:"]
    );
    let on = of("v1beta1", "waitForPodsReady: {enable: true, timeout: 10m}");
    assert_eq!(line(&on, "waitForPodsReady.timeout")[1..], ["10m0s", "file"]);
    let equal =
        of("v1beta2", "waitForPodsReady: {timeout: 0s}\nwebhook: {port: 0}\nmetrics: {bindAddress: '0'}");
    assert_eq!(line(&equal, "waitForPodsReady.timeout")[1..], ["30m0s", "default"]);
    assert_eq!(line(&equal, "webhook.port")[1..], ["9443", "default"]);
    assert_eq!(line(&equal, "metrics.bindAddress")[1..], ["0", "file"]);
}

#[test]
fn refused_file_names_all_errors_and_warnings() {
    let (output, valid) = output(
        "visibilityServer: {bindPort: 0}\nresources: {deviceClassMappings: [{name: a}]}\npprofBindAddress: ':1'",
    );
    assert!(!valid);
    for part in [
        "error: visibilityServer.bindPort: must be between 1 and 65535\n",
        "error: resources.deviceClassMappings: is not supported: devices have no quota\n",
        "warning: pprofBindAddress: has no effect: there is no profiler\n",
        "f is refused: 2 errors, 1 warning\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(!output.contains("SETTING"), "nothing is in force: {output}");
}

/// The manager starts with a gate of a later version; before that, the name is corrected.
#[test]
fn unknown_gates_are_refused() {
    for (text, flag) in [("featureGates: {Wonder: true}", None), ("", Some("Wonder=true"))] {
        let text = format!("apiVersion: {}\nkind: Configuration\n{text}\n", config::API_VERSION);
        let (_, loaded) = check(&text, flag).unwrap().unwrap();
        let output = refused("f", &ConfigError::of_unknown_gates(loaded));
        assert!(output.starts_with("error: featureGates.Wonder: unknown feature gate"), "{output}");
        assert!(output.ends_with("f is refused: 1 error, 0 warnings\n"), "{output}");
    }
    for value in ["PartialAdmission=maybe", "Wonder=", "Wonder", "=true"] {
        assert!(check("apiVersion: a", Some(value)).is_err(), "{value}");
    }
    let named = |text| check("kind: a", Some(text)).unwrap().unwrap_err().to_string();
    assert!(named("A=T,A=0").contains("apiVersion"), "as Go reads truth values");
}

#[test]
fn invalid_files_are_refused_by_name() {
    for (text, reason) in [
        ("", "error: the file has no content"),
        ("# a comment", "error: the file has no content"),
        ("{", "error: not YAML"),
        ("a: [b", "error: not YAML"),
        ("- a", "error: apiVersion: \"\" is not supported"),
        ("kind: ConfigMap\napiVersion: v1", "error: kind: this is a ConfigMap"),
    ] {
        let error = check(text, None).unwrap().unwrap_err();
        let output = refused("f", &error);
        assert!(output.contains(reason), "{text}: {output}");
    }
    assert!(
        check("kind: a", Some("PartialAdmission")).is_err(),
        "a bad flag is an error of the command line"
    );
}
