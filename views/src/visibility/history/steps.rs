//! The course of usage in a period: its sums by hours, days or weeks.
//!
//! Invariants: the steps cover the period, at most 33 of them; they are asked for together, as the history or the record is read once
//! for all; each holds what the reader may see of the report itself; only the scarcest resource has steps.

use super::hours_view;
use crate::history::{StepSum, UsageQuery};
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;
use crate::visibility::views::{UsageReport, UsageStep};
use jiff::Timestamp;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Widths of steps in seconds, the least first.
const WIDTHS: [i64; 5] = [2 * HOUR, DAY, 7 * DAY, 28 * DAY, 364 * DAY];
/// Most whole steps of a period. Steps at its start and end may be cut.
const MAX_STEPS: i64 = 31;

/// Sort key of resources. Devices such as GPUs first: users ask for them, and CPU and memory come with them.
pub fn resource_rank(resource: &str) -> (bool, &str) {
    (!resource.contains('/'), resource)
}

/// Returns the sums of the scarcest resource in each step of the period of a report.
///
/// # Errors
/// If `course`, which returns what a resource was used in each step, has no answer now.
pub(super) fn steps(
    query: &UsageQuery<'_>,
    report: &UsageReport,
    access: &Access,
    course: impl FnOnce(&UsageQuery<'_>, &[(Timestamp, Timestamp)]) -> Option<Vec<Option<StepSum>>>,
) -> Result<Vec<UsageStep>, ModelError> {
    let names = report.sums.iter().map(|sum| sum.resource.as_str());
    let Some(resource) = names.min_by(|a, b| resource_rank(a).cmp(&resource_rank(b))) else {
        return Ok(Vec::new());
    };
    let start = report.recorded.from.map_or(query.from, |from| from.max(query.from));
    let periods = periods(start, query.until);
    let (Some((from, _)), Some((_, until))) = (periods.first(), periods.last()) else {
        return Ok(Vec::new());
    };
    let query = UsageQuery { from: *from, until: *until, resource: Some(resource), ..query.clone() };
    let sums = course(&query, &periods).ok_or(ModelError::Unavailable)?;
    let step = |((from, until), sum): (&(Timestamp, Timestamp), Option<StepSum>)| {
        let hours = |amount: fn(StepSum) -> i128| sum.map(|sum| hours_view(resource, amount(sum)));
        UsageStep {
            from: Some(*from),
            until: Some(*until),
            resource: resource.to_owned(),
            used: hours(|sum| sum.used).unwrap_or_default(),
            borrowed: hours(|sum| sum.borrowed).filter(|_| access.sees_sums()).unwrap_or_default(),
        }
    };
    Ok(periods.iter().zip(sums).map(step).collect())
}

/// Returns the steps of a period: full hours or days, the first and the last one as far as the period has them.
fn periods(from: Timestamp, until: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let (start, end) = (from.as_second(), until.as_second());
    let length = end.saturating_sub(start);
    let [.., widest] = WIDTHS;
    let width = WIDTHS.into_iter().find(|width| length / width <= MAX_STEPS).unwrap_or(widest);
    let mut at = start.saturating_sub(start.rem_euclid(width.min(DAY)));
    let mut found = Vec::new();
    // Periods are bounded by what is recorded, and this bounds them for any input.
    for _ in 0..MAX_STEPS.saturating_add(2) {
        let next = at.saturating_add(width);
        let bounds = (Timestamp::from_second(at.max(start)), Timestamp::from_second(next.min(end)));
        if let (Ok(from), Ok(until)) = bounds
            && from < until
        {
            found.push((from, until));
        }
        at = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_period() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        for (from, until, count, second) in [
            ("2026-11-25T14:06:00Z", "2026-11-26T14:06:00Z", 13, "2026-11-25T16:00:00Z"),
            ("2026-11-19T14:06:00Z", "2026-11-26T14:06:00Z", 8, "2026-11-20T00:00:00Z"),
            ("2026-10-27T00:00:00Z", "2026-11-26T14:06:00Z", 31, "2026-10-28T00:00:00Z"),
            ("2026-08-28T00:00:00Z", "2026-11-26T00:00:00Z", 13, "2026-09-04T00:00:00Z"),
        ] {
            let (from, until) = (time(from), time(until));
            let found = periods(from, until);
            assert_eq!((found.len(), found[1].0), (count, time(second)));
            assert_eq!((found[0].0, found[count - 1].1), (from, until));
            assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
        let now = time("2026-11-26T14:06:00Z");
        assert!(periods(now, now).is_empty() && periods(now, Timestamp::UNIX_EPOCH).is_empty());
        assert!(periods(Timestamp::MIN, Timestamp::MAX).len() <= 33);
    }

    #[test]
    fn devices_are_the_scarcest() {
        let mut names = ["memory", "cpu", "nvidia.com/gpu", "amd.com/gpu"];
        names.sort_by(|a, b| resource_rank(a).cmp(&resource_rank(b)));
        assert_eq!(names, ["amd.com/gpu", "nvidia.com/gpu", "cpu", "memory"]);
    }
}
