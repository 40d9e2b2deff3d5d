//! Corrections of findings: a command is apart from what to do, and runs as it stands.

use sluice::visibility::views::Finding;

pub(crate) fn assert_runs_as_it_stands(finding: &Finding) {
    let (command, advice) = finding.command_and_advice();
    let is_placeholder = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let is_command = !command.contains([':', ';']) && !command.split(' ').any(is_placeholder);
    assert!(is_command && !advice.starts_with("spec."), "{command:?} {advice:?}");
}
