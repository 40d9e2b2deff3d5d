//! The sentence about the period for which an answer of the history is complete.

use super::Look;
use super::time::at_minute;
use crate::history::Gap;
use crate::people::duration::human;
use crate::visibility::views::Recorded;
use jiff::Timestamp;

/// Greatest age in seconds of a record's last commit.
const NEWEST: i64 = 120;

/// Returns since when an answer is recorded: `Recorded since 09:12Z, 4h53m of 24h`, without a full stop. `asked` is the
/// start of the period.
pub fn recorded(recorded: &Recorded, asked: Timestamp, look: Look) -> String {
    let Some(from) = recorded.from else {
        return "Nothing is recorded: the manager runs with --history-ring=0, or has just started".to_owned();
    };
    let until = recorded.until.unwrap_or(look.now).as_second();
    if until <= asked.as_second() {
        return "Nothing of the period is recorded yet".to_owned();
    }
    if from.as_second() >= until {
        return format!("Nothing of the period is recorded: the record begins at {}", at_minute(from, look));
    }
    let length = |from: Timestamp| human((until - from.as_second()).max(0));
    // A period until now ends with the last commit, some seconds ago: `of 24h`, not of 23h.
    let end =
        if (0..NEWEST).contains(&(look.now.as_second() - until)) { look.now.as_second() } else { until };
    let whole = human((end - asked.as_second()).max(0));
    let gaps = gaps(&recorded.gaps, look);
    if recorded.complete {
        format!("Recorded {whole} of {whole} (complete){gaps}")
    } else if from <= asked {
        format!("Recorded {whole} of {whole}{gaps}")
    } else {
        format!("Recorded since {}, {} of {}{gaps}", at_minute(from, look), length(from), whole)
    }
}

/// Returns the periods without a recorder; the longest ones with their times.
fn gaps(gaps: &[Gap], look: Look) -> String {
    const NAMED: usize = 3;
    let seconds = |gap: &Gap| gap.end.as_second().saturating_sub(gap.start.as_second()).max(0);
    let mut longest: Vec<&Gap> = gaps.iter().collect();
    longest.sort_by_key(|gap| (std::cmp::Reverse(seconds(gap)), gap.start));
    let named = |gap: &&Gap| {
        let ends = match gap.unknown_ends {
            0 => String::new(),
            1 => ", 1 run ended in it at an unknown time".to_owned(),
            number => format!(", {number} runs ended in it at unknown times"),
        };
        let unfilled = human(gap.unfilled().div_euclid(1_000));
        let filled = match gap.filled {
            None => String::new(),
            Some(_) => format!(", {unfilled} of it not filled from a manager's memory"),
        };
        format!("{} from {}{filled}{ends}", human(seconds(gap)), at_minute(gap.start, look))
    };
    let named: Vec<String> = longest.iter().take(NAMED).map(named).collect();
    match gaps.len() {
        0 => String::new(),
        1 => format!("; without a recorder for {}", named.join("")),
        number => {
            let more = number.saturating_sub(NAMED);
            let more = if more == 0 { String::new() } else { format!(", and {more} shorter ones") };
            format!("; {number} times without a recorder: {}{more}", named.join(", "))
        }
    }
}

/// Returns the end of the sentence: for how many flavor-resources the sum of the open runs is not the usage in the ledger. Empty if
/// it is for all.
pub fn conservation(recorded: &Recorded) -> String {
    let names = match recorded.drift {
        0 => return String::new(),
        1 => "1 flavor-resource".to_owned(),
        drift => format!("{drift} flavor-resources"),
    };
    format!("; the hours of {names} may be wrong: open runs do not add up to the quota in use")
}
