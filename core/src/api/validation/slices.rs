//! Slices of topology requests against the number of pods. Slices that do not divide it leave pods without a whole slice.

use super::workload::{PodSetFields, WorkloadFields};
use super::{Errors, FieldError};

/// Returns why pods do not form whole slices; `None` if they do. Other rules check that the size is positive.
pub fn incomplete_slices(size: i64, pods: i64) -> Option<String> {
    if size > pods && size > 0 {
        Some(format!("must not be greater than pod set count {pods}"))
    } else if size > 0 && pods % size != 0 {
        Some(format!("must evenly divide pod set count {pods}"))
    } else {
        None
    }
}

/// Checks the slices of a new Workload, or of pod sets that a change resizes. Others are not checked, so that a Workload that
/// was stored before can still be written and finished.
pub(super) fn check(view: &WorkloadFields<'_>, old: Option<&WorkloadFields<'_>>, errors: &mut Errors) {
    // Other rules report wrong types.
    let mut unread = Errors::new();
    for pod_set in &view.pod_sets {
        let request = pod_set.cursor.get("topologyRequest", &mut unread);
        let before = old.and_then(|old| old.pod_set(pod_set.name));
        let same = |before: &PodSetFields<'_>| {
            before.count == pod_set.count
                && before.cursor.get("topologyRequest", &mut Errors::new()).value == request.value
        };
        if before.is_some_and(same) {
            continue;
        }
        let layers = request.get("podsetSliceRequiredTopologyConstraints", &mut unread).items(&mut unread);
        let size = match layers.first() {
            Some(outermost) => outermost.get("size", &mut unread),
            None if request.get("podSetSliceRequiredTopology", &mut unread).exists() => {
                request.get("podSetSliceSize", &mut unread)
            }
            None => continue,
        };
        let detail = size.value.as_i64().and_then(|size| incomplete_slices(size, pod_set.count));
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(size.path.clone(), size.value.clone(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::validation::{Gates, workload};
    use serde_json::{Value, json};

    fn sliced(count: i64, request: Value) -> Value {
        let mut request = request;
        request["required"] = json!("rack");
        json!({"metadata": {"name": "w"}, "spec": {"podSets": [
            {"name": "main", "count": count, "topologyRequest": request, "template": {"spec": {}}}]}})
    }

    fn plain(size: i64) -> Value {
        json!({"podSetSliceRequiredTopology": "host", "podSetSliceSize": size})
    }

    fn layers(outer: i64, inner: i64) -> Value {
        json!({"podsetSliceRequiredTopologyConstraints": [
            {"topology": "rack", "size": outer}, {"topology": "host", "size": inner}]})
    }

    fn found(object: &Value, old: Option<&Value>) -> Vec<String> {
        workload(object, old, &Gates::default()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn workload_has_whole_slices() {
        const PATH: &str = "spec.podSets[0].topologyRequest.";
        let table = [
            (4, plain(2), None),
            (4, plain(4), None),
            (5, plain(1), None),
            (5, plain(2), Some("podSetSliceSize: Invalid value: 2: must evenly divide pod set count 5")),
            (
                3,
                plain(4),
                Some("podSetSliceSize: Invalid value: 4: must not be greater than pod set count 3"),
            ),
            (8, layers(4, 2), None),
            (
                6,
                layers(4, 2),
                Some("podsetSliceRequiredTopologyConstraints[0].size: Invalid value: 4: must evenly divide"),
            ),
        ];
        for (count, request, error) in table {
            let errors = found(&sliced(count, request.clone()), None);
            let expected: Vec<String> = error.into_iter().map(|error| format!("{PATH}{error}")).collect();
            let matches = errors.iter().zip(&expected).all(|(error, start)| error.starts_with(start));
            assert!(errors.len() == expected.len() && matches, "{count} {request}: {errors:?}");
        }
    }

    /// Refusing a write of a Workload that was stored before the rule would keep its quota for ever.
    #[test]
    fn stored_workload_can_be_written() {
        let stored = sliced(5, plain(2));
        let mut finished = stored.clone();
        finished["status"] = json!({"reclaimablePods": [{"name": "main", "count": 1}]});
        assert_eq!(found(&finished, Some(&stored)), Vec::<String>::new());
        assert_eq!(found(&sliced(7, plain(2)), Some(&stored)).len(), 1);
        assert_eq!(found(&sliced(6, plain(2)), Some(&stored)), Vec::<String>::new());
    }
}
