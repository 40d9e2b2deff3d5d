//! The chart of usage in the steps of a period: a bar for each, with a part for each of the largest groups, and one for the rest.
//!
//! Invariants: a bar is as high as its hours, also where the step is shorter than the others: the first and the last may be; parts are
//! in the order and the colours of the rows of the table, and the label has their numbers, so that nothing is said by colour alone.

use super::{Chart, Drawn, Scale, WIDE, greatest, number, unit_of, written};
use crate::dashboard::page::given;
use crate::dashboard::text::NONE;
use crate::visibility::views::{UsageStep, UsageView};
use jiff::{SignedDuration, Timestamp};

/// Part of the width of a step that its bar has.
const FILLED: f64 = 0.8;
/// Steps up to this length are named by the time of the day.
const MAX_HOURS: SignedDuration = SignedDuration::from_hours(12);

/// Classes of the parts of a bar, for the groups from the largest one.
const LARGEST: [&str; 4] = ["g-1", "g-2", "g-3", "g-4"];
/// Class of the part of all other groups.
const REST: &str = "g-rest";

/// Returns the class of the part of a bar in which the hours of a row are; empty if the chart has none.
pub(in crate::dashboard) fn class_of(steps: &[UsageStep], row: &UsageView) -> &'static str {
    let drawn = steps.first().filter(|step| steps.len() > 1 && step.resource == row.resource);
    let Some(step) = drawn else { return "" };
    let mut largest = LARGEST.into_iter().zip(&step.groups);
    let rest = if step.rest.is_some() { REST } else { "" };
    largest.find(|(_, part)| part.group == row.group).map_or(rest, |(class, _)| class)
}

/// Returns the hours of the parts of a bar, from below. An answer without groups, as of a replica of an earlier version, has what was
/// within the nominal quota, and what was borrowed.
fn parts(step: &UsageStep) -> Vec<(&'static str, f64)> {
    if step.groups.is_empty() {
        let (used, borrowed) = (step.used.hours, step.borrowed.hours);
        return vec![("a-used", (used - borrowed).max(0.0)), ("a-borrowed", borrowed)];
    }
    let largest = LARGEST.into_iter().zip(step.groups.iter().map(|part| part.used.hours));
    largest.chain(step.rest.as_ref().map(|rest| (REST, rest.hours))).collect()
}

/// Returns the hours of each group and of the rest over all steps, in words; empty without groups.
fn sums(steps: &[UsageStep], length: f64) -> String {
    let Some(first) = steps.first().filter(|step| !step.groups.is_empty()) else { return String::new() };
    let mut sums = vec![0.0; parts(first).len()];
    for step in steps {
        for (sum, (_, hours)) in sums.iter_mut().zip(parts(step)) {
            *sum += hours / length;
        }
    }
    let names = first.groups.iter().take(LARGEST.len()).map(|part| given(&part.group).unwrap_or(NONE));
    let named: Vec<String> =
        names.chain(["the rest"]).zip(sums).map(|(name, sum)| format!("{name} {}", number(sum))).collect();
    format!("; {}", named.join(", "))
}

/// Returns what the colours of the bars mean.
fn caption(step: &UsageStep) -> &'static str {
    match (step.groups.is_empty(), step.rest.is_some()) {
        (true, _) => "Blue: within the nominal quota. Amber: borrowed.",
        (false, false) => "From below: the groups, in the order and the colours of the rows.",
        (false, true) => {
            "From below: the largest groups, in the order and the colours of the rows. Grey: the rest."
        }
    }
}

/// Returns the chart of usage by steps; `None` for fewer than two.
pub(in crate::dashboard) fn of_steps(steps: &[UsageStep]) -> Option<Chart> {
    let (first, last) = (steps.first()?, steps.last()?);
    if steps.len() < 2 {
        return None;
    }
    let used: Vec<f64> = steps.iter().map(|step| step.used.hours).collect();
    let (length, unit) = unit_of(&first.resource, greatest(&used));
    let scale = Scale::up_to(greatest(&used) / length, WIDE);
    let count = f64::from(u32::try_from(steps.len()).unwrap_or(u32::MAX));
    let bar = |(position, step): (u32, &UsageStep)| {
        let left = scale.size.0 * f64::from(position) / count;
        let right = left + scale.size.0 * FILLED / count;
        let mut below = 0.0;
        let part = |(class, hours): (&'static str, f64)| {
            let above = below + hours / length;
            let (low, high) = (scale.y(below), scale.y(above));
            below = above;
            Drawn { class, points: written(&[(left, low), (left, high), (right, high), (right, low)]) }
        };
        parts(step).into_iter().map(part).collect::<Vec<Drawn>>()
    };
    // The first step may be cut.
    let is_by_hour = steps.get(1).is_some_and(|step| is_short(step.from, step.until));
    let name = |step: &UsageStep| {
        let format = if is_by_hour { "%H:%M" } else { "%b %-d" };
        step.from.map(|from| from.strftime(format).to_string()).unwrap_or_default()
    };
    let middle = steps.get(steps.len() / 2).unwrap_or(last);
    let most = steps.iter().max_by(|a, b| a.used.hours.total_cmp(&b.used.hours)).unwrap_or(first);
    let ticks = [scale.top, scale.top / 2.0, 0.0];
    let all_used = used.iter().sum::<f64>() / length;
    let all_borrowed = steps.iter().map(|step| step.borrowed.hours).sum::<f64>() / length;
    Some(Chart {
        heading: format!("Hours of {}{unit} over the period", first.resource),
        label: format!(
            "Hours of {}: {} in all, of which {} borrowed{}; most from {}: {}",
            first.resource,
            number(all_used),
            number(all_borrowed),
            sums(steps, length),
            name(most),
            number(most.used.hours / length)
        ),
        class: "spark",
        width: format!("{:.0}", scale.size.0),
        height: format!("{:.0}", scale.size.1),
        grid: ticks.iter().map(|tick| format!("{:.1}", scale.y(*tick))).collect(),
        areas: (0_u32..).zip(steps).flat_map(bar).collect(),
        ticks: ticks.iter().map(|tick| number(*tick)).collect(),
        axis: [first, middle, last].map(name).into(),
        caption: caption(first).to_owned(),
        ..Chart::default()
    })
}

fn is_short(from: Option<Timestamp>, until: Option<Timestamp>) -> bool {
    from.zip(until).is_some_and(|(from, until)| until.duration_since(from) <= MAX_HOURS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{HoursView, StepGroup};

    fn step(from: &str, until: &str, used: f64, borrowed: f64) -> UsageStep {
        let hours = |hours: f64| HoursView { hours, ..HoursView::default() };
        UsageStep {
            from: Some(from.parse().unwrap()),
            until: Some(until.parse().unwrap()),
            resource: "nvidia.com/gpu".to_owned(),
            used: hours(used),
            borrowed: hours(borrowed),
            ..UsageStep::default()
        }
    }

    /// Steps of which `nlp` and the workloads of no group used a part, and other groups the rest.
    fn steps_by_group(rest: [Option<f64>; 2]) -> [UsageStep; 2] {
        let hours = |hours: f64| HoursView { hours, ..HoursView::default() };
        let part = |group: &str, used: f64| StepGroup { group: group.to_owned(), used: hours(used) };
        let [first, last] = rest.map(Option::unwrap_or_default);
        [
            UsageStep {
                groups: vec![part("nlp", 60.0), part("", 0.0)],
                rest: rest[0].map(hours),
                ..step("2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z", 60.0 + first, 0.0)
            },
            UsageStep {
                groups: vec![part("nlp", 50.0), part("", 25.0)],
                rest: rest[1].map(hours),
                ..step("2026-11-26T00:00:00Z", "2026-11-26T14:00:00Z", 75.0 + last, 25.0)
            },
        ]
    }

    /// Hours by group are one above the other, with the rest on top; the label has the same numbers.
    #[test]
    fn groups_are_stacked() {
        let chart = of_steps(&steps_by_group([Some(0.0), Some(25.0)])).unwrap();
        assert_eq!(
            chart.label,
            "Hours of nvidia.com/gpu: 160 in all, of which 25 borrowed; nlp 110, \u{2013} 25, the rest 25; \
             most from Nov 26: 100"
        );
        let classes: Vec<&str> = chart.areas.iter().map(|area| area.class).collect();
        assert_eq!(classes, ["g-1", "g-2", "g-rest", "g-1", "g-2", "g-rest"]);
        assert_eq!(chart.areas[3].points, "240.0,94.0 240.0,50.0 432.0,50.0 432.0,94.0", "half");
        assert_eq!(chart.areas[5].points, "240.0,28.0 240.0,6.0 432.0,6.0 432.0,28.0", "a quarter on top");
        assert!(chart.caption.ends_with("Grey: the rest."), "{}", chart.caption);
        let chart = of_steps(&steps_by_group([None, None])).unwrap();
        assert!(chart.label.contains("; nlp 110, \u{2013} 25; most"), "{}", chart.label);
        assert!(chart.areas.len() == 4 && !chart.caption.contains("Grey"), "{}", chart.caption);
        let mut many = steps_by_group([Some(1.0); 2])[0].clone();
        many.groups = many.groups.iter().cycle().take(9).cloned().collect();
        assert_eq!(parts(&many).len(), 5, "at most four groups and the rest");
    }

    #[test]
    fn parts_of_a_bar_are_its_hours() {
        let without_groups = step("2026-11-26T14:00:00Z", "2026-11-27T00:00:00Z", 9.0, 4.0);
        let [one, two] = [[None, Some(0.0)], [Some(25.0); 2]].map(steps_by_group);
        for step in one.iter().chain(&two).chain([&without_groups]) {
            let sum: f64 = parts(step).iter().map(|(_, hours)| hours).sum();
            assert!((sum - step.used.hours).abs() < 1e-9, "{step:?}");
        }
    }

    #[test]
    fn rows_have_the_classes_of_their_parts() {
        let [steps, all] = [[Some(0.0); 2], [None; 2]].map(steps_by_group);
        let gpu = "nvidia.com/gpu";
        for (steps, group, resource, expected) in [
            (&steps[..], "nlp", gpu, "g-1"),
            (&steps[..], "", gpu, "g-2"),
            (&steps[..], "b", gpu, "g-rest"),
            (&steps[..], "nlp", "cpu", ""),
            (&steps[..1], "nlp", gpu, ""),
            (&all[..], "b", gpu, ""),
        ] {
            let (group, resource) = (group.to_owned(), resource.to_owned());
            let row = UsageView { group, resource, ..UsageView::default() };
            assert_eq!(class_of(steps, &row), expected, "{row:?}");
        }
    }

    #[test]
    fn borrowed_hours_are_on_top_of_the_bar() {
        let steps = [
            step("2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z", 60.0, 0.0),
            step("2026-11-26T00:00:00Z", "2026-11-26T14:00:00Z", 100.0, 25.0),
        ];
        let chart = of_steps(&steps).unwrap();
        assert_eq!(
            chart.label,
            "Hours of nvidia.com/gpu: 160 in all, of which 25 borrowed; most from Nov 26: 100"
        );
        assert_eq!((&*chart.axis.join(" "), &*chart.ticks.join(" ")), ("Nov 25 Nov 26 Nov 26", "100 50 0"));
        assert_eq!(chart.areas[2].points, "240.0,94.0 240.0,28.0 432.0,28.0 432.0,94.0", "75 of 100");
        assert_eq!(chart.areas[3].points, "240.0,28.0 240.0,6.0 432.0,6.0 432.0,28.0", "and 25 more");
        let hours = [
            step("2026-11-26T10:06:00Z", "2026-11-26T12:00:00Z", 1.0, 0.0),
            step("2026-11-26T12:00:00Z", "2026-11-26T14:00:00Z", 2.0, 0.0),
        ];
        assert_eq!(of_steps(&hours).unwrap().axis[0], "10:06");
        assert_eq!(of_steps(&hours[..1]), None, "one bar shows no course");
    }
}
