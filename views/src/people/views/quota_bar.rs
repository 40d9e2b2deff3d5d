//! A bar of a quota: left of `|` the nominal quota, right of it the quota that may be borrowed.

use super::amount::number;
use crate::visibility::views::QuotaView;

const NOMINAL: usize = 16;
const BORROWED: usize = 14;

/// Returns the bar: used `#`, lent `=`, unused `.`, or block characters with UTF-8.
pub(super) fn quota_bar(quota: &QuotaView, utf8: bool) -> String {
    let (used_sign, lent_sign, free_sign, border) =
        if utf8 { ('█', '▒', '·', '│') } else { ('#', '=', '.', '|') };
    let (nominal, used) = (number(&quota.nominal), number(&quota.used));
    let lent = quota.lent.as_ref().map(number).unwrap_or_default();
    let own = part(used.min(nominal), nominal, NOMINAL);
    let given = part(lent, nominal, NOMINAL).min(NOMINAL - own);
    // Without a limit of its own, the tree's limit bounds what can be borrowed.
    let limit = quota.borrowing_limit.as_ref().map_or_else(|| number(&quota.limit) - nominal, number);
    let borrowed = part(number(&quota.borrowed), limit, BORROWED);
    let sign = |sign: char, count: usize| sign.to_string().repeat(count);
    format!(
        "[{}{}{}{border}{}{}]",
        sign(used_sign, own),
        sign(lent_sign, given),
        sign(free_sign, NOMINAL - own - given),
        sign(used_sign, borrowed),
        sign(free_sign, BORROWED - borrowed)
    )
}

/// Returns the number of characters for `value / whole`, rounded; at least one for a value above 0.
fn part(value: f64, whole: f64, width: usize) -> usize {
    if value <= 0.0 || whole <= 0.0 {
        return 0;
    }
    let share = (value / whole).min(1.0);
    // Counted up, because every conversion of a float to an integer may lose digits.
    let mut filled = 0.0_f64;
    let total = (0..width).fold(0.0, |total, _| total + 1.0);
    let mut count = 0;
    while count < width && filled + 0.5 <= share * total {
        filled += 1.0;
        count += 1;
    }
    count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::AmountView;

    fn amount(value: u64) -> AmountView {
        AmountView { value: value.to_string(), number: Some(value.into()) }
    }

    #[test]
    fn bars_show_used_lent_and_borrowed() {
        for (nominal, used, lent, limit, borrowed, expected) in [
            (0, 8, 0, Some(16), 8, "[................|#######.......]"),
            (128, 184, 0, Some(64), 56, "[################|############..]"),
            (64, 16, 48, None, 0, "[####============|..............]"),
            (96, 40, 14, Some(48), 0, "[#######==.......|..............]"),
            (1000, 1, 0, None, 0, "[#...............|..............]"),
        ] {
            let quota = QuotaView {
                nominal: amount(nominal),
                used: amount(used),
                lent: Some(amount(lent)),
                borrowing_limit: limit.map(amount),
                borrowed: amount(borrowed),
                limit: amount(nominal + 128),
                ..QuotaView::default()
            };
            assert_eq!(quota_bar(&quota, false), expected);
        }
        let full = QuotaView { nominal: amount(1), used: amount(1), ..QuotaView::default() };
        assert_eq!(quota_bar(&full, true), format!("[{}│{}]", "█".repeat(16), "·".repeat(14)));
    }
}
