//! Prices of hours, and what usage costs by them.
//!
//! Invariants: amounts of money are integers, never floats; the cost of each row is rounded once, half up, to the decimals of the
//! file, and a sum is the sum of the rounded costs of its rows, so that a printed column adds up; hours without a price are named
//! and cost nothing; a cost is never below 0.

use super::is_bytes;
use crate::resources::units_per_whole;
use crate::visibility::views::{FlavorUsage, HoursView, UsageReport, UsageView};
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::Spanned;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Decimals of a price.
const PRICE_DECIMALS: u32 = 6;
/// Decimals of a factor.
const FACTOR_DECIMALS: u32 = 3;
/// A factor of 1.
const ONE: i128 = 10_i128.pow(FACTOR_DECIMALS);
/// Decimals of the product of a price and a factor.
const COST_DECIMALS: u32 = PRICE_DECIMALS + FACTOR_DECIMALS;
/// Greatest price and greatest factor: with them and all hours of a record, products stay far below the greatest integer.
const MAX_PRICE: i128 = 999_999_999;
const MAX_FACTOR: i128 = 1_000;
/// Decimals of costs without `decimals` in the file, as most currencies have.
const DEFAULT_DECIMALS: u32 = 2;
const MAX_CURRENCY: usize = 16;
const MAX_NAME: usize = 317;
const MAX_ENTRIES: usize = 10_000;
const MILLISECONDS: i128 = 3_600_000;
const GIBIBYTE: i128 = 1 << 30;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriceFile {
    currency: Spanned<String>,
    decimals: Option<Spanned<String>>,
    factors: Option<FactorRow>,
    prices: Spanned<Vec<PriceRow>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FactorRow {
    borrowed: Option<Spanned<String>>,
    lost: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriceRow {
    resource: Spanned<String>,
    flavor: Option<Spanned<String>>,
    per_hour: Spanned<String>,
}

/// Prices of hours, from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    file: String,
    sha256: String,
    currency: String,
    decimals: u32,
    /// Factors of borrowed and of lost hours, in thousandths.
    borrowed: i128,
    lost: i128,
    /// Millionths of the currency for a core, gibibyte or piece and hour, by resource and flavor; an empty flavor is for all others.
    by_resource: BTreeMap<(String, String), i128>,
}

/// What the rows of a report cost. Money is in the smallest unit of the bill: `decimals` of them make one of the currency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// The file of the prices.
    pub file: String,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// The currency, as the file has it.
    pub currency: String,
    decimals: u32,
    items: Vec<Option<i128>>,
    sums: Vec<Option<i128>>,
    total: i128,
    /// Resource, and flavor if other flavors of the resource have a price.
    without_price: BTreeSet<(String, String)>,
    /// Whether the factor of borrowed hours was not applied, because the reader may not see these hours.
    pub borrowed_is_hidden: bool,
}

/// An exact amount of money: `units` of 10^-9 of the currency, and a rest as numerator over the units of an hour.
#[derive(Clone, Copy, Debug, Default)]
struct ExactCost {
    units: i128,
    rest: i128,
}

/// A value of the file that is refused.
struct Refused {
    line: u64,
    field: &'static str,
    reason: String,
}

impl Refused {
    fn new<T>(field: &'static str, at: &Spanned<T>, reason: impl Into<String>) -> Self {
        Self { line: at.referenced.line(), field, reason: reason.into() }
    }
}

impl Prices {
    /// Reads a file; its name is for errors and for the bill.
    ///
    /// # Errors
    /// If the file is not valid; the text has file, line and field.
    pub fn read(text: &str, file: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! { with_snippet: false };
        let read: PriceFile = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            let reason = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            let reason = reason.lines().next().unwrap_or_default();
            // The position is in front.
            let reason = reason.rsplit_once(" at line ").map_or(reason, |(reason, _)| reason);
            format!("{file}:{line}: {reason}")
        })?;
        let mut prices = Self {
            file: file.to_owned(),
            sha256: hexadecimal(&Sha256::digest(text)),
            currency: read.currency.value.clone(),
            decimals: DEFAULT_DECIMALS,
            borrowed: ONE,
            lost: ONE,
            by_resource: BTreeMap::new(),
        };
        match prices.fill(&read) {
            Ok(()) => Ok(prices),
            Err(Refused { line, field, reason }) => Err(format!("{file}:{line}: {field}: {reason}")),
        }
    }

    fn fill(&mut self, read: &PriceFile) -> Result<(), Refused> {
        let currency = &read.currency;
        let is_text = !currency.value.trim().is_empty() && !currency.value.chars().any(char::is_control);
        if !is_text || currency.value.chars().count() > MAX_CURRENCY {
            let reason = format!("must be a text of 1 to {MAX_CURRENCY} characters in one line, such as EUR");
            return Err(Refused::new("currency", currency, reason));
        }
        if let Some(decimals) = &read.decimals {
            let known = decimals.value.parse::<u32>().ok().filter(|number| *number <= PRICE_DECIMALS);
            self.decimals = known.ok_or_else(|| {
                let reason = format!("{:?} is no number from 0 to {PRICE_DECIMALS}", decimals.value);
                Refused::new("decimals", decimals, reason)
            })?;
        }
        if let Some(FactorRow { borrowed, lost }) = &read.factors {
            let factor = |field: &'static str, value: &Spanned<String>| {
                decimal(&value.value, FACTOR_DECIMALS, MAX_FACTOR)
                    .map_err(|reason| Refused::new(field, value, reason))
            };
            if let Some(borrowed) = borrowed {
                self.borrowed = factor("factors.borrowed", borrowed)?;
            }
            if let Some(lost) = lost {
                self.lost = factor("factors.lost", lost)?;
            }
        }
        let number = read.prices.value.len();
        if !(1..=MAX_ENTRIES).contains(&number) {
            let reason = format!("has {number} entries, must have 1 to {MAX_ENTRIES}");
            return Err(Refused::new("prices", &read.prices, reason));
        }
        read.prices.value.iter().try_for_each(|row| self.add(row))
    }

    fn add(&mut self, row: &PriceRow) -> Result<(), Refused> {
        let name = |field: &'static str, name: &Spanned<String>| {
            let is_name = !name.value.is_empty()
                && name.value.len() <= MAX_NAME
                && !name.value.chars().any(|c| c.is_whitespace() || c.is_control());
            let reason = format!("{:?} is no name of a {field}", name.value);
            if is_name { Ok(name.value.clone()) } else { Err(Refused::new(field, name, reason)) }
        };
        let resource = name("resource", &row.resource)?;
        let flavor =
            row.flavor.as_ref().map_or_else(|| Ok(String::new()), |flavor| name("flavor", flavor))?;
        let price = decimal(&row.per_hour.value, PRICE_DECIMALS, MAX_PRICE)
            .map_err(|reason| Refused::new("perHour", &row.per_hour, format!("{resource}: {reason}")))?;
        let of = if flavor.is_empty() { resource.clone() } else { format!("{resource} in {flavor}") };
        match self.by_resource.insert((resource, flavor), price) {
            None => Ok(()),
            Some(_) => Err(Refused::new("resource", &row.resource, format!("{of} has a price already"))),
        }
    }

    /// Returns whether a price depends on the flavor, so that hours are needed by flavor.
    pub fn depend_on_flavors(&self) -> bool {
        self.by_resource.keys().any(|(_, flavor)| !flavor.is_empty())
    }

    fn of_resource(&self, resource: &str) -> impl Iterator<Item = &str> {
        let of_it = self.by_resource.keys().filter(move |(known, _)| known == resource);
        of_it.map(|(_, flavor)| flavor.as_str())
    }

    fn price(&self, resource: &str, flavor: &str) -> Option<i128> {
        let of = |flavor: &str| self.by_resource.get(&(resource.to_owned(), flavor.to_owned()));
        of(flavor).or_else(|| of("")).copied()
    }

    /// Returns what the rows of a report cost.
    ///
    /// # Errors
    /// If the hours of the report cannot be read, are not by flavor although prices are, or cost more than can be counted.
    pub fn bill(&self, report: &UsageReport) -> Result<Bill, String> {
        let mut bill = Bill {
            file: self.file.clone(),
            sha256: self.sha256.clone(),
            currency: self.currency.clone(),
            decimals: self.decimals,
            ..Bill::default()
        };
        for row in &report.items {
            let cost = self.cost(row, &mut bill)?;
            bill.items.push(cost);
            bill.total = bill.total.saturating_add(cost.unwrap_or(0));
        }
        for sum in &report.sums {
            let rows = report.items.iter().zip(&bill.items);
            let costs = rows.filter(|(row, _)| row.resource == sum.resource).filter_map(|(_, cost)| *cost);
            let cost =
                costs.fold(None, |sum: Option<i128>, cost| Some(sum.unwrap_or(0).saturating_add(cost)));
            bill.sums.push(cost);
        }
        Ok(bill)
    }

    /// Returns the rounded cost of a row; `None` if none of its hours has a price.
    fn cost(&self, row: &UsageView, bill: &mut Bill) -> Result<Option<i128>, String> {
        let whole = units_per_hour(&row.resource);
        let of_row = [FlavorUsage {
            flavor: String::new(),
            used: row.used.clone(),
            borrowed: row.borrowed.clone(),
            lost: row.lost.clone(),
        }];
        if row.flavors.is_empty()
            && units(&row.used)?.unwrap_or(0) != 0
            && self.of_resource(&row.resource).any(|flavor| !flavor.is_empty())
        {
            return Err(format!(
                "the manager does not say the hours of {} by flavor: it is older than this command, use prices without a flavor",
                row.resource
            ));
        }
        let flavors = if row.flavors.is_empty() { &of_row[..] } else { &row.flavors };
        let (mut exact, mut is_priced) = (ExactCost::default(), false);
        for hours in flavors {
            let used = units(&hours.used)?.unwrap_or(0);
            let Some(price) = self.price(&row.resource, &hours.flavor) else {
                if used != 0 {
                    let has_others = self.of_resource(&row.resource).next().is_some();
                    let flavor = if has_others { hours.flavor.clone() } else { String::new() };
                    bill.without_price.insert((row.resource.clone(), flavor));
                }
                continue;
            };
            is_priced = true;
            let borrowed = units(&hours.borrowed)?;
            bill.borrowed_is_hidden |= borrowed.is_none() && used != 0 && self.borrowed != ONE;
            let lost = units(&hours.lost)?.unwrap_or(0);
            let weighted = self.weighted(used, borrowed.unwrap_or(0), lost);
            weighted
                .and_then(|weighted| exact.add(weighted, price, whole))
                .ok_or_else(|| format!("the hours of {} cost more than can be counted", row.resource))?;
        }
        let rounded = exact.rounded(self.decimals, whole);
        Ok(is_priced.then_some(rounded))
    }

    /// Returns the hours that count for the cost, in thousandths: borrowed and lost hours count by their factors, and hours that
    /// are both by both differences from 1.
    fn weighted(&self, used: i128, borrowed: i128, lost: i128) -> Option<i128> {
        let of_borrowed = borrowed.checked_mul(self.borrowed.checked_sub(ONE)?)?;
        let of_lost = lost.checked_mul(self.lost.checked_sub(ONE)?)?;
        let all = used.checked_mul(ONE)?.checked_add(of_borrowed)?.checked_add(of_lost)?;
        Some(all.max(0))
    }
}

impl ExactCost {
    /// Adds the price of a time; `None` if the sum cannot be counted.
    fn add(&mut self, time: i128, price: i128, whole: i128) -> Option<()> {
        let hours = time.div_euclid(whole).checked_mul(price)?;
        let rest = time.rem_euclid(whole).checked_mul(price)?.checked_add(self.rest)?;
        self.units = self.units.checked_add(hours)?.checked_add(rest.div_euclid(whole))?;
        self.rest = rest.rem_euclid(whole);
        Some(())
    }

    /// Returns the amount with this many decimals, rounded half up.
    fn rounded(self, decimals: u32, whole: i128) -> i128 {
        let unit = 10_i128.pow(COST_DECIMALS.saturating_sub(decimals));
        let (done, left) = (self.units.div_euclid(unit), self.units.rem_euclid(unit));
        // At most 10^9 × the units of an hour, some 4 × 10^15.
        let part = left.saturating_mul(whole).saturating_add(self.rest);
        let is_half = part.saturating_mul(2) >= unit.saturating_mul(whole);
        done.saturating_add(i128::from(is_half))
    }
}

impl Bill {
    /// Returns the cost of the row at a position, without the currency; `None` if its hours have no price.
    pub fn item(&self, position: usize) -> Option<String> {
        self.items.get(position).copied().flatten().map(|cost| self.text(cost))
    }

    /// Returns the cost of the sum at a position, as `item`.
    pub fn sum(&self, position: usize) -> Option<String> {
        self.sums.get(position).copied().flatten().map(|cost| self.text(cost))
    }

    /// Returns the cost of all rows, without the currency.
    pub fn total(&self) -> String {
        self.text(self.total)
    }

    /// Returns the names of hours without a price: `memory`, or `nvidia.com/gpu in h100`.
    pub fn without_price(&self) -> Vec<String> {
        let name = |(resource, flavor): &(String, String)| {
            if flavor.is_empty() { resource.clone() } else { format!("{resource} in {flavor}") }
        };
        self.without_price.iter().map(name).collect()
    }

    fn text(&self, cost: i128) -> String {
        let unit = 10_i128.pow(self.decimals);
        let (whole, part) = (cost.div_euclid(unit), cost.rem_euclid(unit));
        let width = usize::try_from(self.decimals).unwrap_or_default();
        if width == 0 { whole.to_string() } else { format!("{whole}.{part:0width$}") }
    }

    /// Adds the costs to the JSON of the report: `cost` of rows and sums, and `prices`.
    pub fn add_to(&self, answer: &mut Value) {
        for (list, costs) in [("items", &self.items), ("sums", &self.sums)] {
            let rows = answer.get_mut(list).and_then(Value::as_array_mut);
            for (row, cost) in rows.into_iter().flatten().zip(costs) {
                if let (Some(fields), Some(cost)) = (row.as_object_mut(), cost) {
                    fields.insert("cost".to_owned(), Value::String(self.text(*cost)));
                }
            }
        }
        if let Some(fields) = answer.as_object_mut() {
            let prices = json!({
                "file": self.file, "sha256": self.sha256, "currency": self.currency, "total": self.total(),
                "withoutPrice": self.without_price(), "borrowedIsHidden": self.borrowed_is_hidden,
            });
            fields.insert("prices".to_owned(), prices);
        }
    }
}

/// Returns the units × milliseconds of a core, a gibibyte or a piece in an hour.
fn units_per_hour(resource: &str) -> i128 {
    let units = if is_bytes(resource) { GIBIBYTE } else { i128::from(units_per_whole(resource)) };
    units.saturating_mul(MILLISECONDS)
}

/// Returns units × milliseconds; `None` if the reader may not see them.
fn units(hours: &HoursView) -> Result<Option<i128>, String> {
    let text = &hours.unit_milliseconds;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} of the manager's answer is no amount of time"))
}

/// Reads a decimal number from 0 to a greatest one as integer of its smallest unit.
fn decimal(text: &str, decimals: u32, max: i128) -> Result<i128, String> {
    let is_digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let unsigned = text.strip_prefix('-');
    let (whole, part) = unsigned.unwrap_or(text).split_once('.').unwrap_or((unsigned.unwrap_or(text), "0"));
    if !is_digits(whole) || !is_digits(part) {
        return Err(format!("{text:?} is no decimal number such as 2.50"));
    }
    if unsigned.is_some() {
        return Err(format!("{text} is negative"));
    }
    let width = usize::try_from(decimals).unwrap_or_default();
    if part.len() > width {
        return Err(format!("{text} has more than {decimals} decimals"));
    }
    let unit = 10_i128.pow(decimals);
    let value = format!("{whole}{part:0<width$}").parse::<i128>().ok();
    value
        .filter(|value| *value <= max.saturating_mul(unit))
        .ok_or_else(|| format!("{text} is more than {max}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
