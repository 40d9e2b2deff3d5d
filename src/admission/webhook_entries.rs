//! Entries of webhook configurations: the path that each calls, and the kinds of jobs that none covers.
//!
//! Invariant: an entry counts by its path alone, so that entries of other names, selectors and policies are an administrator's
//! choice.

use crate::frameworks::Framework;
use serde_json::Value;

/// Returns the path, or URL, that an entry calls.
pub(super) fn called_path(entry: &Value) -> Option<&str> {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str);
    text("/clientConfig/service/path").or_else(|| text("/clientConfig/url"))
}

/// Returns the entries of a configuration.
pub(super) fn entries(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the names of the kinds that no entry of a webhook configuration covers; all if there is no configuration.
pub fn kinds_without_entry(
    configuration: Option<&Value>,
    mutating: bool,
    kinds: &[&'static Framework],
) -> Vec<&'static str> {
    let paths: Vec<&str> = configuration.into_iter().flat_map(entries).filter_map(called_path).collect();
    let is_called = |row: &Framework| {
        let wanted = row.webhook_path(mutating);
        paths.iter().any(|path| path.ends_with(&wanted))
    };
    kinds.iter().filter(|row| !is_called(row)).map(|row| row.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::frameworks;
    use serde_json::json;

    #[test]
    fn kinds_are_covered_by_the_paths_of_their_entries() {
        let named = |name: &str| frameworks().find(|row| row.name == name).unwrap();
        let kinds = [named("batch/job"), named("jobset.x-k8s.io/jobset")];
        let (job, jobset) = (kinds[0].webhook_path(true), kinds[1].webhook_path(true));
        let by_service = json!({"clientConfig": {"service": {"path": job}}});
        let by_url = json!({"clientConfig": {"url": format!("https://127.0.0.1:9443{jobset}")}});
        let missing =
            |webhooks: Value| kinds_without_entry(Some(&json!({"webhooks": webhooks})), true, &kinds);
        assert_eq!(missing(json!([by_service])), [kinds[1].name]);
        assert_eq!(missing(json!([by_url])), [kinds[0].name]);
        assert!(missing(json!([by_url, by_service])).is_empty());
        assert_eq!(kinds_without_entry(None, true, &kinds), [kinds[0].name, kinds[1].name]);
    }

    /// A path that another kind's path ends with would be taken for it.
    #[test]
    fn no_path_ends_with_that_of_another_kind() {
        for (row, other) in frameworks().flat_map(|row| frameworks().map(move |other| (row, other))) {
            let ends = row.webhook_path(true).ends_with(&other.webhook_path(true));
            assert_eq!(ends, row.name == other.name, "{} and {}", row.name, other.name);
        }
    }
}
