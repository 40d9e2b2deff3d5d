//! The page of the configuration matches the table of settings in the code; `sluice config check` as a program.

use crate::fixtures::written_files::{Written, check_or_write};
use sluice::api::config;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn generated_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configure.md");
    check_or_write(Written::Generated, [(path, config::configure_page())]);
}

/// Runs `sluice config check` on standard input. Returns its exit code, and what it printed to both streams.
fn check(text: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["config", "check", "-"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [printed, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), printed, errors)
}

#[test]
fn exit_code_says_whether_manager_would_start() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/manager/controller_manager_config.yaml");
    let shipped = fs::read_to_string(shipped).unwrap();
    let gates = "--feature-gates=PriorityBoost=true";
    let (code, printed, errors) = check(&shipped, &[gates]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{printed}");
    assert!(printed.ends_with("standard input is valid: 0 warnings\n"), "{printed}");
    let gate = printed.lines().find(|line| line.starts_with("PriorityBoost")).unwrap();
    assert_eq!(gate.split_whitespace().collect::<Vec<_>>(), ["PriorityBoost", "true", "flag"]);

    let (code, printed, _) = check(&format!("{shipped}\nwebhooks: {{}}\n"), &[]);
    assert_eq!(code, Some(1));
    assert_eq!(printed, "error: webhooks: unknown field\n\nstandard input is refused: 1 error, 0 warnings\n");

    let (code, printed, errors) =
        check(&format!("{shipped}\nfeatureGates: {{MultiKueue: false}}\n"), &[gates]);
    assert_eq!((code, printed.as_str()), (Some(1), ""), "gates are given twice");
    assert!(errors.contains("--feature-gates"), "{errors}");
}
