//! The annotations that control how a job runs in the simulation.
//!
//! Invariant: an annotation that is not understood is an error. It would else look as if it had an effect. The annotations that a manager
//! writes or reads are known, so that objects of a cluster are accepted as they are.

use super::objects::{field, value_at};
use crate::api::config::Duration;
use crate::api::names::OWN_ANNOTATIONS;
use crate::api::validation::{FieldError, key_path};
use crate::cache::Kind;
use crate::frameworks::path_of;
use jiff::SignedDuration;
use serde_json::Value;
use std::iter;

const PREFIX: &str = "sluice.dev/";
pub(super) const RUN_FOR: &str = "sluice.dev/run-for";
pub(super) const EXIT_CODE: &str = "sluice.dev/exit-code";
pub(super) const READY_AFTER: &str = "sluice.dev/ready-after";
pub(super) const TERMINATE_AFTER: &str = "sluice.dev/terminate-after";
pub(super) const ARRIVES_AFTER: &str = "sluice.dev/arrives-after";
/// Annotations with a duration.
const DURATIONS: [&str; 4] = [RUN_FOR, READY_AFTER, TERMINATE_AFTER, ARRIVES_AFTER];

/// The annotations of an object itself.
const OWN: &str = "/metadata/annotations";

/// Returns the errors of all annotations of the simulation on an object.
pub(super) fn check(kind: Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for pointer in iter::once(OWN.to_owned()).chain(template_annotations(kind, object)) {
        let path = &path_of(&pointer);
        for (name, value) in value_at(object, &pointer).and_then(Value::as_object).into_iter().flatten() {
            if !name.starts_with(PREFIX) {
                continue;
            }
            let fault = if DURATIONS.contains(&name.as_str()) {
                value.as_str().and_then(parse_duration).is_none().then_some("must be a duration")
            } else if name == EXIT_CODE {
                let code = value.as_str().and_then(|text| text.parse::<u8>().ok());
                code.is_none().then_some("must be an exit code, 0 to 255")
            } else if OWN_ANNOTATIONS.contains(&name.as_str()) {
                // An expected run time is for estimates alone, which ignore one that they cannot read and say so.
                None
            } else {
                Some("unknown annotation of simulate")
            };
            // A name that only the place makes wrong: a template does not arrive.
            let misplaced = name == ARRIVES_AFTER && pointer != OWN;
            let fault = if misplaced { Some("has an effect only on the object itself") } else { fault };
            errors.extend(fault.map(|fault| FieldError::invalid(key_path(path, name), value.clone(), fault)));
        }
    }
    errors
}

/// Returns the text of an annotation of the first pod template that has it, or else of the object.
pub(super) fn text<'a>(kind: Kind, object: &'a Value, name: &str) -> Option<&'a str> {
    let mut places = template_annotations(kind, object).chain(iter::once(OWN.to_owned()));
    places.find_map(|pointer| field(value_at(object, &pointer)?, name)?.as_str())
}

/// Returns pointers to the annotations of the pod templates that count: all of a job, the first of a Workload.
fn template_annotations(kind: Kind, object: &Value) -> impl Iterator<Item = String> {
    let templates = match kind {
        Kind::Job(kind) => kind.template_pointers(object),
        _ => vec!["/spec/podSets/0/template".to_owned()],
    };
    templates.into_iter().map(|template| format!("{template}{OWN}"))
}

/// Parses a duration, which is not negative.
pub(super) fn parse_duration(text: &str) -> Option<SignedDuration> {
    Duration::parse_length(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_of_a_manager_are_accepted() {
        let names = include_str!("../api/names.rs");
        let values = names.lines().filter_map(|line| line.strip_suffix("\";")?.split_once("= \""));
        let own: Vec<&str> = values.map(|(_, name)| name).filter(|name| name.starts_with(PREFIX)).collect();
        assert_eq!(own, OWN_ANNOTATIONS);
        for name in own {
            let object = json!({"metadata": {"annotations": {name: "x"}}});
            assert!(check(Kind::Workload, &object).is_empty(), "{name}");
        }
    }

    #[test]
    fn unknown_annotations_are_errors() {
        for (name, value) in [("sluice.dev/submitters", "x"), (RUN_FOR, "x"), (EXIT_CODE, "x")] {
            let object = json!({"metadata": {"annotations": {name: value}}});
            assert_eq!(check(Kind::Workload, &object).len(), 1, "{name}");
        }
    }
}
