//! What the command line says where it finds no kubeconfig or reaches no API server.

use std::process::Command;

/// Runs the program without the defaults of the machine; returns what it says as an error.
fn error_of(words: &[&str], kubeconfig: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(words).env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Once, with what to do.
#[test]
fn a_missing_kubeconfig_is_named_once() {
    assert_eq!(
        error_of(&["list", "workload"], "/nonexistent"),
        "error: no kubeconfig: /nonexistent: no such file or directory; use --kubeconfig FILE, or set KUBECONFIG\n"
    );
    assert_eq!(
        error_of(&["list", "workload", "--kubeconfig", "/nonexistent"], ""),
        "error: stat /nonexistent: no such file or directory\n"
    );
}

/// With its address, and the context that it is from.
#[test]
fn a_server_that_is_not_reached_is_named() {
    let refused = "Connection refused (os error 111)\n";
    assert_eq!(
        error_of(&["list", "workload", "--server", "http://127.0.0.1:1"], "/dev/null"),
        format!("error: cannot reach the API server: http://127.0.0.1:1: {refused}")
    );
    let path = std::env::temp_dir().join(format!("sluice-far-{}.yaml", std::process::id()));
    let config = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "far", "context": {"cluster": "c", "user": "u"}}]}"#;
    std::fs::write(&path, config).unwrap();
    let said = error_of(&["list", "workload"], path.to_str().unwrap());
    std::fs::remove_file(path).unwrap();
    assert_eq!(
        said,
        format!("error: cannot reach the API server: http://127.0.0.1:1 (context far): {refused}")
    );
}
