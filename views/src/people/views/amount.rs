//! Amounts and names of resources.

use crate::visibility::views::{AmountView, Need};
use std::collections::BTreeSet;

/// Names of resources on a page, without their domain where they stay distinct.
#[derive(Clone, Debug, Default)]
pub struct ResourceNames {
    known: BTreeSet<String>,
}

impl ResourceNames {
    /// Collects the resources of a page.
    pub fn of<'a>(resources: impl IntoIterator<Item = &'a str>) -> Self {
        Self { known: resources.into_iter().map(str::to_owned).collect() }
    }

    /// Returns the name of a resource: `gpu` for `nvidia.com/gpu` if no other resource of the page ends like that.
    pub fn short<'a>(&self, resource: &'a str) -> &'a str {
        let Some((_, name)) = resource.rsplit_once('/') else { return resource };
        let ends_alike =
            |other: &&String| other.rsplit_once('/').map_or(other.as_str(), |(_, name)| name) == name;
        if self.known.iter().filter(ends_alike).count() <= 1 { name } else { resource }
    }

    /// Returns the request for the first resource; `-` without one.
    pub fn need(&self, needs: &[Need]) -> String {
        let need = needs.first();
        need.map_or_else(
            || "-".to_owned(),
            |need| format!("{} {}", need.amount.value, self.short(&need.resource)),
        )
    }
}

/// Returns an amount; `-` for none and for an unlimited one.
pub(super) fn amount(amount: Option<&AmountView>) -> String {
    let value =
        amount.map(|amount| amount.value.as_str()).filter(|value| !value.is_empty() && *value != "unlimited");
    value.unwrap_or("-").to_owned()
}

/// Returns an amount as a number to draw with; 0 if it is none.
pub(super) fn number(amount: &AmountView) -> f64 {
    amount.number.as_ref().and_then(serde_json::Number::as_f64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_left_out_where_that_is_unambiguous() {
        let names = ResourceNames::of(["nvidia.com/gpu", "cpu", "a.b/nic", "c.d/nic"]);
        for (resource, expected) in
            [("nvidia.com/gpu", "gpu"), ("cpu", "cpu"), ("a.b/nic", "a.b/nic"), ("x.y/new", "new")]
        {
            assert_eq!(names.short(resource), expected);
        }
        let names = ResourceNames::of(["nvidia.com/gpu", "gpu"]);
        assert_eq!(names.short("nvidia.com/gpu"), "nvidia.com/gpu");
    }
}
