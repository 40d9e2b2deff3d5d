//! A map of the free capacity in the domains of a topology: blocks of rows of cells.
//!
//! Invariant: it has at most 2,000 cells; for a larger topology its cells are the next wider domains.

use super::text;
use crate::visibility::views::{AmountView, DomainView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most cells.
const MAX_CELLS: usize = 2_000;
/// Most cells of a row.
const ROW_CELLS: usize = 16;

/// A map of free capacity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatMap {
    /// Whether its cells are wider domains, because there are too many of the narrowest.
    pub wider: bool,
    /// Blocks: each has the cells below one wider domain.
    pub blocks: Vec<HeatBlock>,
}

/// A block of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatBlock {
    /// Values of the block's levels, joined by `/`; empty for a topology of one or two levels.
    pub name: String,
    /// Free capacity of the block.
    pub free: AmountView,
    /// Rows of the block, one for each domain of the next level.
    pub rows: Vec<HeatRow>,
}

/// A row of a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatRow {
    /// Value of the row's level; empty for a topology of one level.
    pub name: String,
    /// Free capacity of the row.
    pub free: AmountView,
    /// Domains of the row, at most 16.
    pub cells: Vec<HeatCell>,
}

/// A domain of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatCell {
    /// Value of the cell's level.
    pub name: String,
    /// Free capacity of the domain.
    pub free: AmountView,
    /// Capacity of the domain.
    pub capacity: AmountView,
    /// Whether a node of the domain is ready and not cordoned.
    pub schedulable: bool,
}

/// A domain before it is put into a row.
struct Domain {
    values: Vec<String>,
    free: f64,
    capacity: f64,
    schedulable: bool,
}

/// Returns a sum as an amount: a whole number, or with a few decimals.
fn amount(value: f64) -> AmountView {
    let rounded = (value * 1_000.0).round() / 1_000.0;
    AmountView { value: rounded.to_string(), number: serde_json::Number::from_f64(rounded) }
}

/// Returns the domains of the cells, and whether they are wider than the narrowest ones.
fn domains(views: &[DomainView]) -> (Vec<Domain>, bool) {
    let number = |amount: &AmountView| text::value(amount).unwrap_or(0.0);
    let domain = |view: &DomainView| Domain {
        values: view.values.clone(),
        free: number(&view.free),
        capacity: number(&view.capacity),
        schedulable: view.schedulable,
    };
    let mut domains: Vec<Domain> = views.iter().map(domain).collect();
    let mut wider = false;
    while domains.len() > MAX_CELLS && domains.iter().any(|domain| domain.values.len() > 1) {
        wider = true;
        let mut sums: BTreeMap<Vec<String>, Domain> = BTreeMap::new();
        for domain in domains {
            let levels = domain.values.len().saturating_sub(1).max(1);
            let values: Vec<String> = domain.values.into_iter().take(levels).collect();
            let empty = Domain { values: values.clone(), free: 0.0, capacity: 0.0, schedulable: false };
            let sum = sums.entry(values).or_insert(empty);
            if domain.schedulable {
                sum.free += domain.free;
                sum.capacity += domain.capacity;
                sum.schedulable = true;
            }
        }
        domains = sums.into_values().collect();
    }
    domains.sort_by(|a, b| a.values.cmp(&b.values));
    domains.truncate(MAX_CELLS);
    (domains, wider)
}

impl HeatMap {
    /// Returns the map of the domains of a flavor; `None` if the flavor has no domains.
    pub fn of(views: &[DomainView]) -> Option<Self> {
        let (domains, wider) = domains(views);
        let mut grouped: BTreeMap<(String, String), Vec<Domain>> = BTreeMap::new();
        for domain in domains {
            let mut above = domain.values.clone();
            above.pop();
            let row = above.pop().unwrap_or_default();
            grouped.entry((above.join("/"), row)).or_default().push(domain);
        }
        let mut blocks: BTreeMap<String, (f64, HeatBlock)> = BTreeMap::new();
        for ((block, row), domains) in grouped {
            let empty = || (0.0, HeatBlock { name: block.clone(), ..HeatBlock::default() });
            let (free, block) = blocks.entry(block.clone()).or_insert_with(empty);
            for part in domains.chunks(ROW_CELLS) {
                let sum: f64 =
                    part.iter().filter(|domain| domain.schedulable).map(|domain| domain.free).sum();
                *free += sum;
                let cells = part.iter().map(cell).collect();
                block.rows.push(HeatRow { name: row.clone(), free: amount(sum), cells });
            }
            block.free = amount(*free);
        }
        let blocks: Vec<HeatBlock> = blocks.into_values().map(|(_, block)| block).collect();
        (!blocks.is_empty()).then_some(Self { wider, blocks })
    }

    /// Returns the blocks as a page draws them.
    pub(super) fn drawn(&self) -> Vec<DrawnBlock> {
        self.blocks.iter().map(DrawnBlock::of).collect()
    }
}

fn cell(domain: &Domain) -> HeatCell {
    HeatCell {
        name: domain.values.last().cloned().unwrap_or_default(),
        free: amount(domain.free),
        capacity: amount(domain.capacity),
        schedulable: domain.schedulable,
    }
}

/// A block as a page draws it.
pub(super) struct DrawnBlock {
    pub(super) name: String,
    /// Names of the cells, if all rows have the same names.
    pub(super) columns: Vec<String>,
    pub(super) width: usize,
    pub(super) free: String,
    pub(super) rows: Vec<DrawnRow>,
}

pub(super) struct DrawnRow {
    pub(super) name: String,
    pub(super) free: String,
    pub(super) cells: Vec<DrawnCell>,
}

pub(super) struct DrawnCell {
    pub(super) class: &'static str,
    pub(super) shown: String,
    /// Name and free capacity of the domain.
    pub(super) label: String,
}

impl DrawnBlock {
    fn of(block: &HeatBlock) -> Self {
        let names =
            |row: &HeatRow| -> Vec<String> { row.cells.iter().map(|cell| cell.name.clone()).collect() };
        let columns = block.rows.first().map(names).unwrap_or_default();
        let same = block.rows.iter().all(|row| names(row) == columns);
        let row = |row: &HeatRow| DrawnRow {
            name: row.name.clone(),
            free: text::amount(&row.free),
            cells: row.cells.iter().map(|cell| DrawnCell::of(cell, &[&block.name, &row.name])).collect(),
        };
        Self {
            name: block.name.clone(),
            columns: if same { columns } else { Vec::new() },
            width: block.rows.iter().map(|row| row.cells.len()).max().unwrap_or_default(),
            free: text::amount(&block.free),
            rows: block.rows.iter().map(row).collect(),
        }
    }
}

impl DrawnCell {
    fn of(cell: &HeatCell, above: &[&String]) -> Self {
        let place = above.iter().map(|name| name.as_str()).chain([cell.name.as_str()]);
        let place = place.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ");
        if !cell.schedulable {
            return Self { class: "hx", shown: "×".to_owned(), label: format!("{place}: not schedulable") };
        }
        let shown = text::amount(&cell.free);
        let (free, capacity) = (text::value(&cell.free), text::value(&cell.capacity));
        let part = match (free, capacity) {
            (Some(free), Some(capacity)) if capacity > 0.0 => free / capacity,
            _ => 0.0,
        };
        let class = match part {
            part if part <= 0.0 => "h0",
            part if part >= 1.0 => "h4",
            part if part <= 1.0 / 3.0 => "h1",
            part if part <= 2.0 / 3.0 => "h2",
            _ => "h3",
        };
        Self { class, label: format!("{place}: {shown} free"), shown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(values: &[&str], free: u64, schedulable: bool) -> DomainView {
        let amount = |value: u64| AmountView { value: value.to_string(), number: Some(value.into()) };
        DomainView {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            free: amount(free),
            capacity: amount(8),
            schedulable,
        }
    }

    #[test]
    fn cells_are_grouped_by_their_wider_domains() {
        let domains = [
            domain(&["b1", "r1", "h1"], 8, true),
            domain(&["b1", "r1", "h2"], 0, true),
            domain(&["b1", "r2", "h1"], 2, true),
            domain(&["b1", "r2", "h2"], 3, false),
            domain(&["b2", "r1", "x"], 7, true),
        ];
        let map = HeatMap::of(&domains).unwrap();
        let drawn = map.drawn();
        let shown: Vec<_> =
            drawn.iter().map(|block| (&*block.name, &*block.free, block.rows.len())).collect();
        assert_eq!((shown, map.wider), (vec![("b1", "10", 2), ("b2", "7", 1)], false));
        assert_eq!(drawn[0].columns, ["h1", "h2"]);
        let cells = drawn.iter().flat_map(|block| &block.rows).flat_map(|row| &row.cells);
        let classes: Vec<_> = cells.map(|cell| cell.class).collect();
        assert_eq!(classes, ["h4", "h0", "h1", "hx", "h3"]);
        assert_eq!(drawn[0].rows[1].cells[1].label, "b1 r2 h2: not schedulable");
        assert_eq!(HeatMap::of(&[]), None);
    }

    #[test]
    fn too_many_hosts_become_racks() {
        let names: Vec<[String; 3]> = (0..5_000)
            .map(|number| {
                [format!("b{}", number / 500), format!("r{:03}", number / 10), format!("h{number}")]
            })
            .collect();
        let views: Vec<DomainView> =
            names.iter().map(|values| domain(&values.each_ref().map(String::as_str), 1, true)).collect();
        let map = HeatMap::of(&views).unwrap();
        let cells: Vec<_> =
            map.blocks.iter().flat_map(|block| &block.rows).flat_map(|row| &row.cells).collect();
        assert_eq!((cells.len(), map.wider), (500, true));
        assert!(cells.iter().all(|cell| cell.free.value == "10"));
        let flat: Vec<DomainView> =
            (0..3_000).map(|number| domain(&[&*format!("h{number}")], 1, true)).collect();
        assert_eq!(domains(&flat).0.len(), MAX_CELLS, "there are no wider domains");
    }

    #[test]
    fn sums_have_no_noise() {
        assert_eq!(amount(0.1 + 0.2).value, "0.3");
        assert_eq!(amount(12_000.0).value, "12000");
    }
}
