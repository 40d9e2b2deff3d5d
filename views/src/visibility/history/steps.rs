//! The course of usage in a period: its sums by hours, days or weeks.
//!
//! Invariants: the steps cover the period, at most 33 of them; they are asked for together, as the history or the record is read once
//! for all; each holds what the reader may see of the report itself, and names no group without a row in it; only the scarcest
//! resource has steps; the hours of a step are the sum of its groups and of the rest.

use super::hours_view;
use crate::history::{StepSum, UsageQuery};
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;
use crate::visibility::views::{HoursView, StepGroup, UsageReport, UsageStep, UsageView};
use jiff::Timestamp;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Widths of steps in seconds, the least first.
const WIDTHS: [i64; 5] = [2 * HOUR, DAY, 7 * DAY, 28 * DAY, 364 * DAY];
/// Most whole steps of a period. Steps at its start and end may be cut.
const MAX_STEPS: i64 = 31;

/// Most groups that have hours of their own in a step.
const MAX_GROUPS: usize = 4;

/// Sort key of resources. Devices such as GPUs first: users ask for them, and CPU and memory come with them.
pub fn resource_rank(resource: &str) -> (bool, &str) {
    (!resource.contains('/'), resource)
}

/// Returns the sums of the scarcest resource in each step of the period of a report, also by its largest groups.
///
/// # Errors
/// If `course`, which returns what a resource was used in each step, also by groups, has no answer now.
pub(super) fn steps(
    query: &UsageQuery<'_>,
    report: &UsageReport,
    access: &Access,
    course: impl FnOnce(&UsageQuery<'_>, &[(Timestamp, Timestamp)], &[&str]) -> Option<Vec<Option<StepSum>>>,
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
    let (largest, has_rest) = largest_groups(report, resource);
    let sums = course(&query, &periods, &largest).ok_or(ModelError::Unavailable)?;
    let step = |((from, until), sum): (&(Timestamp, Timestamp), Option<StepSum>)| {
        let hours = |amount: Option<i128>| -> HoursView {
            amount.map(|amount| hours_view(resource, amount)).unwrap_or_default()
        };
        let sum = sum.as_ref();
        let of_group = |number: usize| sum.and_then(|sum| sum.groups.get(number)).copied();
        let group = |(number, name): (usize, &&str)| StepGroup {
            group: (*name).to_owned(),
            used: hours(of_group(number)),
        };
        UsageStep {
            from: Some(*from),
            until: Some(*until),
            resource: resource.to_owned(),
            used: hours(sum.map(|sum| sum.used)),
            borrowed: hours(sum.filter(|_| access.sees_sums()).map(|sum| sum.borrowed)),
            groups: largest.iter().enumerate().map(group).collect(),
            rest: has_rest.then(|| hours(sum.map(rest))),
        }
    };
    Ok(periods.iter().zip(sums).map(step).collect())
}

/// Returns what the groups without a sum of their own used in a step.
fn rest(sum: &StepSum) -> i128 {
    sum.groups.iter().fold(sum.used, |rest, used| rest.saturating_sub(*used))
}

/// Returns the groups with the most hours of a resource, the largest first, and whether other groups have hours, too.
fn largest_groups<'a>(report: &'a UsageReport, resource: &str) -> (Vec<&'a str>, bool) {
    let has_hours = |row: &&UsageView| row.resource == resource && row.used.hours > 0.0;
    let mut rows: Vec<&UsageView> = report.items.iter().filter(has_hours).collect();
    rows.sort_by(|a, b| b.used.hours.total_cmp(&a.used.hours).then_with(|| a.group.cmp(&b.group)));
    let has_rest = rows.len() > MAX_GROUPS;
    rows.truncate(MAX_GROUPS);
    (rows.into_iter().map(|row| row.group.as_str()).collect(), has_rest)
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
    use crate::history::UsageGroup;
    use crate::visibility::access::TenantDetail;
    use std::collections::BTreeMap;

    /// Thousandths of a core × milliseconds in an hour of a core.
    const CORE_HOUR: i128 = 3_600_000_000;

    /// Hours of CPU by group, and their sum.
    fn report(groups: &[(&str, i128)]) -> UsageReport {
        let view = |group: &str, hours: i128| UsageView {
            group: group.to_owned(),
            resource: "cpu".to_owned(),
            used: hours_view("cpu", hours * CORE_HOUR),
            ..UsageView::default()
        };
        UsageReport {
            items: groups.iter().map(|(group, hours)| view(group, *hours)).collect(),
            sums: vec![view("sum", groups.iter().map(|(_, hours)| hours).sum())],
            ..UsageReport::default()
        }
    }

    /// Returns the steps of two times of two hours, the second one without usage: the groups asked for used 1, 2, 3 … hours in the first,
    /// and all groups 20, of which 6 were borrowed.
    fn asked(groups: &[(&str, i128)], access: &Access) -> Vec<UsageStep> {
        let cohorts = BTreeMap::new();
        let [from, until] =
            ["2026-11-26T10:00:00Z", "2026-11-26T14:00:00Z"].map(|text| text.parse::<Timestamp>().unwrap());
        let by = UsageGroup::Namespace;
        let query = UsageQuery { by, from, until, resource: None, namespace: None, cohorts: &cohorts };
        let found = steps(&query, &report(groups), access, |query, steps, groups| {
            assert_eq!((query.resource, steps.len()), (Some("cpu"), 2));
            let groups = (1_i128..).zip(groups).map(|(hours, _)| hours * CORE_HOUR).collect();
            Some(vec![Some(StepSum { used: 20 * CORE_HOUR, borrowed: 6 * CORE_HOUR, groups }), None])
        });
        found.unwrap()
    }

    fn texts(step: &UsageStep) -> Vec<(&str, &str)> {
        step.groups.iter().map(|part| (part.group.as_str(), part.used.text.as_str())).collect()
    }

    /// Each step has the groups that are the largest of the whole period, in one order, and the rest of its hours.
    #[test]
    fn steps_have_the_largest_groups_and_the_rest() {
        let groups = [("a", 1), ("b", 5), ("c", 2), ("d", 3), ("e", 2), ("f", 0)];
        let found = asked(&groups, &Access::everything());
        assert_eq!(texts(&found[0]), [("b", "1.0"), ("d", "2.0"), ("c", "3.0"), ("e", "4.0")]);
        assert_eq!(texts(&found[1]), [("b", ""), ("d", ""), ("c", ""), ("e", "")], "nothing was used");
        let rest = |step: &UsageStep| step.rest.as_ref().map(|rest| rest.text.clone());
        assert_eq!(rest(&found[0]).as_deref(), Some("10.0"));
        let exact = |hours: &HoursView| hours.unit_milliseconds.parse::<i128>().unwrap();
        let parts = found[0].groups.iter().map(|part| &part.used).chain(&found[0].rest);
        assert_eq!(parts.map(exact).sum::<i128>(), exact(&found[0].used));
        // A group without hours is no rest.
        let four = asked(&groups[2..], &Access::everything());
        assert_eq!(texts(&four[0]), [("d", "1.0"), ("c", "2.0"), ("e", "3.0")]);
        assert_eq!(rest(&four[0]), None);
        // What was borrowed is a sum of the queue, which not all readers see.
        let tenant = asked(&groups, &Access::to_namespace("a", TenantDetail::None));
        let without = |step: &UsageStep| UsageStep { borrowed: HoursView::default(), ..step.clone() };
        assert_eq!(found[0].borrowed.text, "6.0");
        assert_eq!(tenant, found.iter().map(without).collect::<Vec<_>>());
    }

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
