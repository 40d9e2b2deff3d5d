//! Charts of the last 24 hours: lines of the history as SVG.
//!
//! Invariants: a chart has a text alternative; its scale begins at 0 and ends at a round number; without a line there is no
//! chart.

mod bars;

pub(super) use bars::{class_of, of_steps};

use super::text;
use crate::visibility::history::is_bytes;
use crate::visibility::views::{LineReport, LineView, QuotaView, Recorded};
use jiff::{SignedDuration, Timestamp};
use std::fmt::Write;

/// Size of a chart on a page with several.
const SMALL: (f64, f64) = (320.0, 120.0);
/// Size of a chart beside other content.
const WIDE: (f64, f64) = (480.0, 96.0);
/// Space above the greatest value and below 0.
const MARGIN: (f64, f64) = (6.0, 2.0);
const MINUTE: f64 = 60_000.0;
/// Units of a wait: the longest wait in seconds that is shown in it, its length in seconds, and its name.
const WAIT_UNITS: [(f64, f64, &str); 4] = [
    (0.5, 0.001, "milliseconds"),
    (120.0, 1.0, "seconds"),
    (7_200.0, 60.0, "minutes"),
    (f64::INFINITY, 3_600.0, "hours"),
];
/// Units of bytes, the largest first: the least amount that is shown in it, which is its length, and its name.
const BYTE_UNITS: [(f64, &str); 4] =
    [(1_099_511_627_776.0, "Ti"), (1_073_741_824.0, "Gi"), (1_048_576.0, "Mi"), (1_024.0, "Ki")];
/// Decimals of numbers below 0.1, and the factor that moves them before the point.
const DECIMALS: [(usize, f64); 3] = [(3, 1e3), (4, 1e4), (5, 1e5)];

/// A chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chart {
    pub(super) heading: String,
    /// Text alternative for readers that do not see the chart.
    pub(super) label: String,
    pub(super) class: &'static str,
    pub(super) width: String,
    pub(super) height: String,
    /// Vertical positions of the lines at the ticks.
    pub(super) grid: Vec<String>,
    pub(super) areas: Vec<Drawn>,
    pub(super) lines: Vec<Drawn>,
    /// Horizontal lines over the whole width.
    pub(super) levels: Vec<Drawn>,
    /// Labels of the scale, from the top.
    pub(super) ticks: Vec<String>,
    /// Times, from the left.
    pub(super) axis: Vec<String>,
    pub(super) caption: String,
}

/// A shape with its class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) class: &'static str,
    /// Points, or the vertical position of a level.
    pub(super) points: String,
}

/// Values at equal distances in time.
struct Values<'a> {
    all: &'a [f64],
    from: Timestamp,
    step: i64,
}

impl<'a> Values<'a> {
    fn of(line: &'a LineView) -> Option<Self> {
        let from = line.from.filter(|_| line.values.len() > 1 && line.step_milliseconds > 0)?;
        Some(Self { all: &line.values, from, step: line.step_milliseconds })
    }

    fn clock(&self, position: usize) -> String {
        let passed = i64::try_from(position).unwrap_or(0).saturating_mul(self.step);
        let time = self.from.checked_add(SignedDuration::from_millis(passed)).unwrap_or(self.from);
        time.strftime("%H:%M").to_string()
    }
}

/// Maps values to positions in a chart.
struct Scale {
    size: (f64, f64),
    top: f64,
}

impl Scale {
    /// Returns the scale that ends at the least round number not below `greatest`.
    fn up_to(greatest: f64, size: (f64, f64)) -> Self {
        let mut top = 1.0;
        if greatest.is_finite() && greatest > 0.0 {
            let power = 10_f64.powf(greatest.log10().floor());
            let round = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
            top = round.into_iter().find(|number| *number >= greatest).unwrap_or(greatest);
        }
        Self { size, top }
    }

    fn y(&self, value: f64) -> f64 {
        let (above, below) = MARGIN;
        let height = self.size.1 - above - below;
        above + height * (1.0 - (value / self.top).clamp(0.0, 1.0))
    }

    fn points(&self, values: &[f64]) -> Vec<(f64, f64)> {
        let last = f64::from(u32::try_from(values.len().saturating_sub(1)).unwrap_or(1)).max(1.0);
        let place =
            |(position, value): (u32, &f64)| (self.size.0 * f64::from(position) / last, self.y(*value));
        (0_u32..).zip(values).map(place).collect()
    }

    /// Draws the area between two lines, or between a line and 0.
    fn area(&self, class: &'static str, upper: &[f64], lower: Option<&[f64]>) -> Drawn {
        let zeros = vec![0.0; upper.len()];
        let lower = self.points(lower.unwrap_or(&zeros));
        let points: Vec<(f64, f64)> = self.points(upper).into_iter().chain(lower.into_iter().rev()).collect();
        Drawn { class, points: written(&points) }
    }

    fn line(&self, class: &'static str, values: &[f64]) -> Drawn {
        Drawn { class, points: written(&self.points(values)) }
    }

    fn level(&self, class: &'static str, value: f64) -> Drawn {
        Drawn { class, points: format!("{:.1}", self.y(value)) }
    }

    /// Returns a chart without shapes.
    fn chart(&self, class: &'static str, values: &Values<'_>) -> Chart {
        let ticks = [self.top, self.top / 2.0, 0.0];
        Chart {
            class,
            width: format!("{:.0}", self.size.0),
            height: format!("{:.0}", self.size.1),
            grid: ticks.iter().map(|tick| format!("{:.1}", self.y(*tick))).collect(),
            ticks: ticks.iter().map(|tick| number(*tick)).collect(),
            axis: vec![values.clock(0), values.clock(values.all.len() / 2), "now".to_owned()],
            ..Chart::default()
        }
    }
}

fn written(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (x, y) in points {
        // Writing to a string cannot fail.
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Writes a number with at most one decimal, below 0.1 with at least two digits; large ones in thousands or millions.
pub(super) fn number(value: f64) -> String {
    let short = |value: f64| {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    };
    match value.abs() {
        size if size >= 1e12 => format!("{}T", short(value / 1e12)),
        size if size >= 1e9 => format!("{}G", short(value / 1e9)),
        size if size >= 1e6 => format!("{}M", short(value / 1e6)),
        size if size >= 1e4 => format!("{}k", short(value / 1e3)),
        size if size > 0.0 && size < 0.1 => {
            let enough = DECIMALS.into_iter().find(|(_, factor)| size * factor >= 10.0);
            let decimals = enough.map_or(6, |(decimals, _)| decimals);
            format!("{value:.decimals$}")
        }
        _ => text::grouped(&short(value)),
    }
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn last(values: &[f64]) -> f64 {
    values.last().copied().unwrap_or_default()
}

/// Returns the period of the charts: `24 h`, or the start of the recording if that is later.
pub(super) fn period(recorded: &Recorded) -> String {
    match recorded.from {
        Some(from) if !recorded.complete => format!("recorded since {}", from.strftime("%H:%M")),
        _ => "24 h".to_owned(),
    }
}

/// Returns the chart of admissions in a minute; `None` if nothing is recorded.
pub(super) fn admissions(report: &LineReport) -> Option<Chart> {
    let line = report.lines.iter().find(|line| line.measure == "admissions")?;
    let values = Values::of(line)?;
    let minutes = f64::from(u32::try_from(values.step).unwrap_or(u32::MAX)) / MINUTE;
    // The last point may cover less time, which would give a wrong rate.
    let whole = values.all.split_last().map_or(values.all, |(_, earlier)| earlier);
    let rates: Vec<f64> = whole.iter().map(|value| value / minutes).collect();
    let most = greatest(&rates);
    let scale = Scale::up_to(most, WIDE);
    let position = rates.iter().position(|rate| *rate >= most).unwrap_or(0);
    Some(Chart {
        heading: "Admissions per minute".to_owned(),
        label: format!(
            "Admissions per minute: between {} and {}, last {}",
            number(least(&rates)),
            number(most),
            number(last(&rates))
        ),
        areas: vec![scale.area("spark-area", &rates, None)],
        lines: vec![scale.line("spark-line", &rates)],
        caption: format!("Most: {} per minute at {}.", number(most), values.clock(position)),
        ..scale.chart("spark", &values)
    })
}

/// Returns the charts of a ClusterQueue: usage of a flavor-resource, pending workloads, waits.
pub(super) fn of_queue(report: &LineReport, quota: Option<&QuotaView>) -> Vec<Chart> {
    let usage = quota.and_then(|quota| usage(report, quota));
    usage.into_iter().chain(pending(report)).chain(waits(report)).collect()
}

fn usage(report: &LineReport, quota: &QuotaView) -> Option<Chart> {
    let of = |measure: &str| {
        let mut lines = report.lines.iter().filter(|line| line.measure == measure);
        lines.find(|line| line.flavor == quota.flavor && line.resource == quota.resource)
    };
    let line = of("usage")?;
    let values = Values::of(line)?;
    let nominal = text::value(&quota.nominal);
    let limit = text::value(&quota.limit).filter(|limit| Some(*limit) != nominal);
    let most = [Some(greatest(values.all)), nominal, limit].into_iter().flatten().fold(0.0, f64::max);
    let (length, unit) = unit_of(&quota.resource, most);
    let in_unit = |values: &[f64]| values.iter().map(|value| value / length).collect::<Vec<f64>>();
    let used = in_unit(values.all);
    let borrowed = of("borrowed").map_or_else(|| vec![0.0; used.len()], |line| in_unit(&line.values));
    let own: Vec<f64> = used.iter().zip(&borrowed).map(|(used, borrowed)| used - borrowed).collect();
    let (nominal, limit) = (nominal.map(|value| value / length), limit.map(|value| value / length));
    let scale = Scale::up_to(most / length, SMALL);
    let levels = nominal.map(|value| scale.level("c-nominal", value)).into_iter();
    let levels = levels.chain(limit.map(|value| scale.level("c-limit", value)));
    let says = |word: &str, value: Option<f64>| {
        value.map(|value| format!("{word} {}. ", number(value))).unwrap_or_default()
    };
    Some(Chart {
        heading: format!("Usage, {} in {}{unit}", quota.resource, quota.flavor),
        label: format!(
            "Usage: between {} and {}, last {}, of which {} borrowed",
            number(least(&used)),
            number(greatest(&used)),
            number(last(&used)),
            number(last(&borrowed))
        ),
        areas: vec![scale.area("a-used", &own, None), scale.area("a-borrowed", &used, Some(&own))],
        levels: levels.collect(),
        caption: format!("{}{}", says("Line: nominal", nominal), says("Dashed: limit", limit))
            .trim_end()
            .to_owned(),
        ..scale.chart("chart", &values)
    })
}

/// Returns the unit in which amounts of a resource up to `most` are shown: its length, and its words after a comma.
fn unit_of(resource: &str, most: f64) -> (f64, String) {
    let found = BYTE_UNITS.into_iter().find(|(length, _)| is_bytes(resource) && most >= *length);
    found.map_or_else(|| (1.0, String::new()), |(length, name)| (length, format!(", {name}")))
}

fn pending(report: &LineReport) -> Option<Chart> {
    let mut lines = report.lines.iter().filter(|line| line.measure == "pending");
    let first = lines.next()?;
    let values = Values::of(first)?;
    let mut sums = first.values.clone();
    for line in lines {
        for (sum, value) in sums.iter_mut().zip(&line.values) {
            *sum += value;
        }
    }
    let scale = Scale::up_to(greatest(&sums), SMALL);
    Some(Chart {
        heading: "Pending".to_owned(),
        label: format!(
            "Pending workloads: between {} and {}, last {}",
            number(least(&sums)),
            number(greatest(&sums)),
            number(last(&sums))
        ),
        areas: vec![scale.area("a-wait", &sums, None)],
        caption: format!("Most: {}.", number(greatest(&sums))),
        ..scale.chart("chart", &values)
    })
}

fn waits(report: &LineReport) -> Option<Chart> {
    let of = |measure: &str| report.lines.iter().find(|line| line.measure == measure);
    let (median, p99) = (of("waitP50")?, of("waitP99")?);
    let values = Values::of(p99)?;
    let longest = greatest(&p99.values).max(greatest(&median.values));
    // Without a wait, any unit would do: the one that most waits have.
    let compared = if longest > 0.0 { longest } else { 1.0 };
    let (_, length, unit) = WAIT_UNITS.into_iter().find(|(most, ..)| compared < *most)?;
    let in_unit = |line: &LineView| line.values.iter().map(|seconds| seconds / length).collect::<Vec<f64>>();
    let (median, p99) = (in_unit(median), in_unit(p99));
    let scale = Scale::up_to(greatest(&p99), SMALL);
    Some(Chart {
        heading: format!("Wait until admission, {unit}"),
        label: format!(
            "Wait until admission in {unit}: median up to {}, p99 up to {}",
            number(greatest(&median)),
            number(greatest(&p99))
        ),
        lines: vec![scale.line("l-p99", &p99), scale.line("l-p50", &median)],
        caption: "Thick: p99. Thin: median.".to_owned(),
        ..scale.chart("chart", &values)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::AmountView;

    fn line(measure: &str, values: &[f64]) -> LineView {
        LineView {
            measure: measure.to_owned(),
            from: Some("2026-11-26T00:00:00Z".parse().unwrap()),
            step_milliseconds: 1_800_000,
            values: values.to_vec(),
            ..LineView::default()
        }
    }

    fn report(lines: Vec<LineView>) -> LineReport {
        LineReport { lines, ..LineReport::default() }
    }

    #[test]
    fn rate_has_no_point_of_an_unfinished_interval() {
        let chart = admissions(&report(vec![line("admissions", &[30.0, 540.0, 60.0, 1.0])])).unwrap();
        assert_eq!(chart.label, "Admissions per minute: between 1 and 18, last 2");
        assert_eq!(chart.caption, "Most: 18 per minute at 00:30.");
        assert_eq!(
            (chart.ticks.join(" "), chart.axis.join(" ")),
            ("20 10 0".to_owned(), "00:00 01:00 now".to_owned())
        );
        assert_eq!(chart.lines[0].points, "0.0,89.6 240.0,14.8 480.0,85.2");
        assert_eq!(chart.areas[0].points, "0.0,89.6 240.0,14.8 480.0,85.2 480.0,94.0 240.0,94.0 0.0,94.0");
    }

    #[test]
    fn waits_use_the_unit_of_the_longest_wait() {
        for (longest, heading, ticks) in [
            (0.001, "Wait until admission, milliseconds", "1 0.5 0"),
            (3.0, "Wait until admission, seconds", "5 2.5 0"),
            (119.0, "Wait until admission, seconds", "200 100 0"),
            (600.0, "Wait until admission, minutes", "10 5 0"),
            (7_199.0, "Wait until admission, minutes", "200 100 0"),
            (36_000.0, "Wait until admission, hours", "10 5 0"),
            (0.0, "Wait until admission, seconds", "1 0.5 0"),
        ] {
            let lines = vec![line("waitP50", &[0.0, longest / 2.0]), line("waitP99", &[0.0, longest])];
            let chart = waits(&report(lines)).unwrap();
            assert_eq!((chart.heading.as_str(), chart.ticks.join(" ").as_str()), (heading, ticks));
        }
    }

    #[test]
    fn borrowed_is_above_what_is_used_of_the_quota() {
        let of_gpu = |measure: &str, values: &[f64]| LineView {
            flavor: "h100".to_owned(),
            resource: "gpu".to_owned(),
            ..line(measure, values)
        };
        let amount = |value: u64| AmountView { value: value.to_string(), number: Some(value.into()) };
        let quota = QuotaView {
            flavor: "h100".to_owned(),
            resource: "gpu".to_owned(),
            nominal: amount(128),
            limit: amount(192),
            ..QuotaView::default()
        };
        let lines = vec![
            of_gpu("usage", &[100.0, 184.0]),
            of_gpu("borrowed", &[0.0, 56.0]),
            line("pending", &[1.0, 3.0]),
        ];
        let charts = of_queue(&report(lines), Some(&quota));
        assert_eq!(charts.len(), 2, "no waits were recorded");
        assert_eq!(charts[0].label, "Usage: between 100 and 184, last 184, of which 56 borrowed");
        assert_eq!(charts[0].caption, "Line: nominal 128. Dashed: limit 192.");
        assert_eq!((charts[0].levels.len(), charts[0].areas.len()), (2, 2));
        assert_eq!(charts[1].label, "Pending workloads: between 1 and 3, last 3");
    }

    #[test]
    fn bytes_have_the_unit_of_the_largest_amount() {
        for (resource, most, length, unit) in [
            ("memory", 512.0, 1.0, ""),
            ("memory", 3.0 * 1_073_741_824.0, 1_073_741_824.0, ", Gi"),
            ("ephemeral-storage", 2e12, 1_099_511_627_776.0, ", Ti"),
            ("cpu", 2e12, 1.0, ""),
        ] {
            let (found, words) = unit_of(resource, most);
            assert!((found - length).abs() < 1e-9 && words == unit, "{resource}: {found}{words}");
        }
    }

    #[test]
    fn without_lines_there_is_no_chart() {
        assert_eq!(admissions(&report(Vec::new())), None);
        assert_eq!(admissions(&report(vec![line("admissions", &[1.0])])), None, "one point is no line");
        assert!(of_queue(&report(Vec::new()), Some(&QuotaView::default())).is_empty());
    }

    #[test]
    fn scales_end_at_round_numbers() {
        for (greatest, top) in
            [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (18.0, 20.0), (201.0, 500.0), (f64::NAN, 1.0)]
        {
            assert!((Scale::up_to(greatest, SMALL).top - top).abs() < 1e-9, "{greatest}");
        }
        for (value, text) in [
            (0.0, "0"),
            (0.05, "0.050"),
            (0.000_5, "0.00050"),
            (12.4, "12.4"),
            (1_500.0, "1,500"),
            (12_000.0, "12k"),
            (3.2e10, "32G"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
