//! Values read from a Workload object without a manager: state, queue, run time.

use crate::api::time::parse_time;
use jiff::Timestamp;
use serde_json::Value;

/// State of a Workload, from its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadState {
    /// Without quota.
    Pending,
    /// With quota, and not admitted.
    QuotaReserved,
    /// Admitted.
    Admitted,
    /// Finished.
    Finished,
}

impl WorkloadState {
    /// Reads the conditions of a Workload.
    pub fn of(workload: &Value) -> Self {
        let holds = |name: &str| is_true(workload, name);
        if holds("Finished") {
            Self::Finished
        } else if holds("Admitted") {
            Self::Admitted
        } else if holds("QuotaReserved") {
            Self::QuotaReserved
        } else {
            Self::Pending
        }
    }

    /// Returns the name that flags take, in lower case.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::QuotaReserved => "quotareserved",
            Self::Admitted => "admitted",
            Self::Finished => "finished",
        }
    }
}

/// Returns a condition of an object.
pub fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| text_at(condition, "/type") == Some(name))
}

/// Returns whether a condition is True.
pub fn is_true(object: &Value, name: &str) -> bool {
    condition(object, name).is_some_and(|condition| text_at(condition, "/status") == Some("True"))
}

/// Returns the text at a JSON pointer.
pub fn text_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// Returns the time at a JSON pointer.
pub fn time_at(object: &Value, pointer: &str) -> Option<Timestamp> {
    parse_time(text_at(object, pointer)?)
}

/// Returns the seconds since the object was created; `None` if it does not say when.
pub fn age(object: &Value, now: Timestamp) -> Option<i64> {
    Some(now.as_second() - time_at(object, "/metadata/creationTimestamp")?.as_second())
}

/// Returns the seconds from a Workload's admission to its end, or to now.
pub fn run_time(workload: &Value, now: Timestamp) -> Option<i64> {
    let since = |name: &str| {
        let condition = condition(workload, name).filter(|_| is_true(workload, name))?;
        time_at(condition, "/lastTransitionTime")
    };
    let end = since("Finished").unwrap_or(now);
    Some(end.as_second() - since("Admitted")?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload(conditions: &[(&str, &str, &str)]) -> Value {
        let condition = |(name, status, since): &(&str, &str, &str)| json!({"type": name, "status": status, "lastTransitionTime": since});
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": conditions}})
    }

    #[test]
    fn states_follow_from_conditions() {
        let (early, late) = ("2026-01-01T00:00:10Z", "2026-01-01T00:01:00Z");
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        for (conditions, state, run) in [
            (vec![], WorkloadState::Pending, None),
            (vec![("QuotaReserved", "False", early)], WorkloadState::Pending, None),
            (vec![("QuotaReserved", "True", early)], WorkloadState::QuotaReserved, None),
            (
                vec![("QuotaReserved", "True", early), ("Admitted", "True", early)],
                WorkloadState::Admitted,
                Some(110),
            ),
            (
                vec![("Admitted", "True", early), ("Finished", "True", late)],
                WorkloadState::Finished,
                Some(50),
            ),
            (vec![("Finished", "True", late)], WorkloadState::Finished, None),
        ] {
            let workload = workload(&conditions);
            assert_eq!(
                (WorkloadState::of(&workload), run_time(&workload, now)),
                (state, run),
                "{conditions:?}"
            );
        }
        assert_eq!(age(&workload(&[]), now), Some(120));
        for odd in
            [json!(null), json!({"status": {"conditions": {}}}), json!({"status": {"conditions": [3]}})]
        {
            assert_eq!((WorkloadState::of(&odd), age(&odd, now)), (WorkloadState::Pending, None));
        }
    }
}
