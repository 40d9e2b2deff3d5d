//! The bar of a quota: usage of the nominal quota on the left of a line, borrowed quota on the right.
//!
//! Invariants: the line is at the same place in all bars; widths are percent of the whole bar and never leave their zone; the
//! label has all numbers that the bar shows.

use super::text;
use crate::visibility::views::{AmountView, QuotaView};
use std::fmt::Write as _;

/// Widths of the zones, in percent.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 32.8;

/// A quota bar, ready to be drawn; widths in percent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bar {
    /// All its numbers in words.
    pub(super) label: String,
    /// Whether there is no nominal quota at all.
    pub(super) no_nominal: bool,
    /// Width of the used part of the nominal quota.
    pub(super) used: f64,
    /// Start and width of the part of the nominal quota that is lent.
    pub(super) lent: (f64, f64),
    /// Whether the bar has a right zone, because there is a cohort to borrow from.
    pub(super) can_borrow: bool,
    /// Width of what is borrowed.
    pub(super) borrowed: f64,
    /// Whether the right zone ends with a borrowing limit.
    pub(super) has_limit: bool,
    /// Whether more is borrowed than the limit allows.
    pub(super) above_limit: bool,
}

/// Returns `amount / whole`, between 0 and 1; 1 if the whole is 0.
fn part(amount: f64, whole: f64) -> f64 {
    if amount <= 0.0 {
        0.0
    } else if whole <= 0.0 {
        1.0
    } else {
        (amount / whole).min(1.0)
    }
}

fn number(amount: &AmountView) -> f64 {
    // An amount without an exact number fills its zone.
    text::value(amount).unwrap_or(f64::MAX)
}

impl Bar {
    /// Returns the bar of a quota. `node` is the name in the label, as in `ClusterQueue nlp`; it is empty in a row with the name.
    pub(super) fn of(quota: &QuotaView, node: &str) -> Self {
        let (nominal, used, borrowed) =
            (number(&quota.nominal), number(&quota.used), number(&quota.borrowed));
        let lent = quota.lent.as_ref().map_or(0.0, number);
        let limit = quota.borrowing_limit.as_ref().map(number);
        let used_part = LEFT * part(used - borrowed, nominal);
        let lent_part = (LEFT * part(lent, nominal)).min(LEFT - used_part);
        // Without a limit of its own, a node may borrow what the tree could lend it.
        let scale = limit.unwrap_or_else(|| number(&quota.limit) - nominal);
        let above_limit = limit.is_some_and(|limit| borrowed > limit);
        Self {
            label: label(quota, node, above_limit),
            no_nominal: nominal <= 0.0,
            used: used_part,
            lent: (LEFT - lent_part, lent_part),
            can_borrow: quota.lent.is_some(),
            borrowed: RIGHT * part(borrowed, scale),
            has_limit: limit.is_some(),
            above_limit,
        }
    }

    /// Id of the shape of the page with all that does not vary: the left zone (unused, used, lent or without nominal quota), the line,
    /// and the right zone with the mark of its limit.
    pub(super) fn shape(&self) -> &'static str {
        let (alone, in_cohort, limited) = if self.is_used_up() {
            ("qu", "qub", "qum")
        } else if self.lent.1 > 0.0 {
            ("ql", "qlb", "qlm")
        } else if self.no_nominal {
            ("qn", "qnb", "qnm")
        } else {
            ("qt", "qtb", "qtm")
        };
        match (self.can_borrow, self.has_limit && !self.above_limit) {
            (false, _) => alone,
            (true, false) => in_cohort,
            (true, true) => limited,
        }
    }

    /// Whether all of the nominal quota is used: the shape is that already.
    fn is_used_up(&self) -> bool {
        self.used >= LEFT
    }

    /// Whether a part of the nominal quota is used.
    pub(super) fn is_partly_used(&self) -> bool {
        self.used > 0.0 && !self.is_used_up()
    }

    /// Whether the left zone is lent, and not from its start.
    pub(super) fn is_partly_lent(&self) -> bool {
        self.lent.1 > 0.0 && self.lent.0 > self.used
    }

    /// Width of what is not lent of the nominal quota in percent, as text: it covers the start of the lent zone.
    pub(super) fn kept_width(&self) -> String {
        percent(self.lent.0)
    }

    /// Width of the used part in percent, as text.
    pub(super) fn used_width(&self) -> String {
        percent(self.used)
    }

    /// Width of the borrowed part in percent, as text.
    pub(super) fn borrowed_width(&self) -> String {
        percent(self.borrowed)
    }
}

/// Writes a percentage with at most one decimal, which is less than a pixel.
fn percent(value: f64) -> String {
    let text = format!("{value:.1}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

fn label(quota: &QuotaView, node: &str, above_limit: bool) -> String {
    let start = if node.is_empty() { String::new() } else { format!("{node}: ") };
    let mut label = format!("{start}nominal {}, used {}", quota.nominal.value, quota.used.value);
    let mut add = |name: &str, amount: &AmountView| {
        let _ = write!(label, ", {name} {}", amount.value);
    };
    if !text::is_zero(&quota.borrowed) {
        add("borrowed", &quota.borrowed);
    }
    if let Some(lent) = quota.lent.as_ref().filter(|lent| !text::is_zero(lent)) {
        add("lent", lent);
    }
    if let Some(limit) = &quota.borrowing_limit {
        add("borrowing limit", limit);
    }
    if above_limit {
        label.push_str(", above the limit");
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn amount(value: i64) -> AmountView {
        AmountView { value: value.to_string(), number: Some(value.into()) }
    }

    fn quota(nominal: i64, used: i64, lent: Option<i64>, limit: Option<i64>) -> QuotaView {
        QuotaView {
            nominal: amount(nominal),
            used: amount(used),
            borrowed: amount((used - nominal).max(0)),
            lent: lent.map(amount),
            borrowing_limit: limit.map(amount),
            limit: amount(nominal + limit.unwrap_or(64)),
            ..QuotaView::default()
        }
    }

    #[test]
    fn cases_of_the_specification() {
        let bar = |quota: &QuotaView| Bar::of(quota, "ClusterQueue q");
        let none = bar(&quota(0, 8, Some(0), Some(16)));
        assert!(none.no_nominal && none.can_borrow && none.has_limit && !none.above_limit);
        assert_eq!((percent(none.borrowed), percent(none.used)), ("16.4%".to_owned(), "0%".to_owned()));
        let lends = bar(&quota(64, 16, Some(48), None));
        assert_eq!((lends.kept_width(), lends.shape()), ("16.5%".to_owned(), "qlb"));
        // All that is not lent is used, so that nothing is between them.
        assert!(lends.is_partly_used() && !lends.is_partly_lent());
        assert!(!lends.has_limit && lends.label.ends_with("lent 48"), "{}", lends.label);
        let root = bar(&quota(320, 264, None, None));
        assert!(!root.can_borrow && root.shape() == "qt" && none.shape() == "qnm");
        let above = bar(&quota(10, 30, Some(0), Some(5)));
        assert!(above.above_limit && above.label.ends_with("above the limit") && above.shape() == "qub");
        assert_eq!(percent(above.borrowed), "32.8%");
        assert_eq!(
            bar(&quota(128, 184, Some(0), Some(64))).label,
            "ClusterQueue q: nominal 128, used 184, borrowed 56, lent 0, borrowing limit 64"
                .replace(", lent 0", "")
        );
    }

    proptest! {
        #[test]
        fn zones_are_the_numbers(nominal in 1..5_000_i64, used in 0..10_000_i64, lent in 0..5_000_i64, limit in 1..5_000_i64) {
            let lent = lent.min((nominal - used).max(0));
            let quota = quota(nominal, used, Some(lent), Some(limit));
            let bar = Bar::of(&quota, "q");
            let of = |value: &AmountView| text::value(value).unwrap();
            let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
            prop_assert!(close(bar.used / LEFT * of(&quota.nominal), of(&quota.used) - of(&quota.borrowed)));
            prop_assert!(close(bar.lent.1 / LEFT * of(&quota.nominal), of(quota.lent.as_ref().unwrap())));
            let drawn = bar.borrowed / RIGHT * of(quota.borrowing_limit.as_ref().unwrap());
            prop_assert!(close(drawn, of(&quota.borrowed)) || bar.above_limit);
            prop_assert!(bar.used + bar.lent.1 <= LEFT + 1e-6 && bar.borrowed <= RIGHT);
            prop_assert!(close(bar.lent.0 + bar.lent.1, LEFT));
            // The shape shows what no rectangle does.
            prop_assert_eq!(bar.shape().starts_with("qu"), !bar.is_partly_used() && of(&quota.used) > 0.0);
            prop_assert_eq!(bar.shape().starts_with("ql"), bar.lent.1 > 0.0);
            prop_assert!(!bar.is_partly_lent() || bar.shape().starts_with("ql"));
        }
    }
}
