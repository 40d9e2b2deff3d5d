//! The table of command lines as tenants run them is whole: each verb that looks or acts, about the own namespace and about the other.

use crate::fixtures::tenant_lines::{LineOutcome, TENANT_LINES, TenantLine};
use crate::fixtures::tenant_names::NAMES;
use std::collections::BTreeSet;
use std::process::Command;

/// The verbs of these groups, as help lists them.
fn verbs_that_look_and_act() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, groups) = help.split_once("Look:\n").unwrap();
    let (groups, _) = groups.split_once("Plan:\n").unwrap();
    let verbs = groups.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    verbs.filter(|verb| !verb.is_empty()).map(str::to_owned).collect()
}

fn verbs(lines: impl Iterator<Item = &'static TenantLine>) -> BTreeSet<String> {
    lines.map(|line| line.template.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn each_verb_that_looks_or_acts_has_a_row() {
    let known = verbs_that_look_and_act();
    assert!(known.len() > 15, "{known:?}");
    let asked = verbs(TENANT_LINES.iter());
    let missing: Vec<&String> = known.difference(&asked).collect();
    assert!(missing.is_empty(), "tests/dashboard/tenant_lines.rs has no row of {missing:?}");
}

#[test]
fn what_answers_about_the_own_namespace_is_refused_about_the_other() {
    let is_refused = |line: &TenantLine| matches!(line.outcome, LineOutcome::Refused(_));
    let of_other = |line: &TenantLine| line.template.contains("{other");
    for line in TENANT_LINES {
        assert!(is_refused(line) || !of_other(line), "{} is of the other tenant", line.template);
        assert!(line.outcome != LineOutcome::Refused(""), "{}: any error would do", line.template);
        let words = line.words(&NAMES);
        assert!(words.iter().all(|word| !word.contains(['{', '}'])), "{words:?}");
    }
    let answered = verbs(TENANT_LINES.iter().filter(|line| !is_refused(line)));
    let refused = verbs(TENANT_LINES.iter().filter(|line| of_other(line)));
    let missing: Vec<&String> = answered.difference(&refused).collect();
    assert!(missing.is_empty(), "no row about the other tenant has a verb of {missing:?}");
}

#[test]
fn lines_that_act_change_nothing() {
    let acting = ["create", "stop", "resume", "move", "reprioritize", "delete", "history"];
    for line in TENANT_LINES {
        let verb = line.template.split(' ').next().unwrap();
        assert!(!acting.contains(&verb) || line.template.contains(" --dry-run="), "{}", line.template);
    }
}
