//! The chart of usage in the steps of a period: a bar for each, with what was borrowed on top.
//!
//! Invariant: a bar is as high as its hours, also where the step is shorter than the others: the first and the last may be.

use super::{Chart, Drawn, Scale, WIDE, greatest, number, unit_of, written};
use crate::visibility::views::UsageStep;
use jiff::{SignedDuration, Timestamp};

/// Part of the width of a step that its bar has.
const FILLED: f64 = 0.8;
/// Steps up to this length are named by the time of the day.
const MAX_HOURS: SignedDuration = SignedDuration::from_hours(12);

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
        let (used, borrowed) = (step.used.hours / length, step.borrowed.hours / length);
        let own = (used - borrowed).max(0.0);
        let part = |class: &'static str, from: f64, to: f64| {
            let (low, high) = (scale.y(from), scale.y(to));
            Drawn { class, points: written(&[(left, low), (left, high), (right, high), (right, low)]) }
        };
        [part("a-used", 0.0, own), part("a-borrowed", own, used)]
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
            "Hours of {}: {} in all, of which {} borrowed; most from {}: {}",
            first.resource,
            number(all_used),
            number(all_borrowed),
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
        caption: "Blue: within the nominal quota. Amber: borrowed.".to_owned(),
        ..Chart::default()
    })
}

fn is_short(from: Option<Timestamp>, until: Option<Timestamp>) -> bool {
    from.zip(until).is_some_and(|(from, until)| until.duration_since(from) <= MAX_HOURS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::HoursView;

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
