//! A map of the free capacity in the domains of a topology: blocks of rows of cells, with the workloads that are there.
//!
//! Invariants: it has at most 2,000 cells; for a larger topology its cells are the next wider domains, without workloads. Of the
//! nodes without a workload of the viewer, a viewer of a namespace sees the sum alone.

use super::text;
use crate::visibility::node_workloads::NodeWorkloads;
use crate::visibility::views::{AmountView, DomainView, OccupantView, is_zero};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most cells.
const MAX_CELLS: usize = 2_000;
/// Most cells of a row.
const ROW_CELLS: usize = 16;
/// Most workloads of a cell that are named.
const MAX_NAMED: usize = 5;

/// A map of free capacity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatMap {
    /// Whether its cells are wider domains, because there are too many of the narrowest.
    pub wider: bool,
    /// Blocks: each has the cells below one wider domain.
    pub blocks: Vec<HeatBlock>,
    /// The domains without a workload of the viewer, for a viewer of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<HeatRest>,
}

/// Domains as a sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeatRest {
    /// Number of the domains.
    pub domains: u64,
    /// Free capacity of the schedulable ones.
    pub free: AmountView,
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
    /// Workloads there that the viewer may see, the largest first, at most 5.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<OccupantView>,
    /// Number of further workloads that the viewer may see.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Number of workloads that the viewer may not see.
    #[serde(skip_serializing_if = "is_zero")]
    pub others: u64,
}

/// A domain before it is put into a row.
struct Domain {
    values: Vec<String>,
    free: f64,
    capacity: f64,
    schedulable: bool,
    workloads: Vec<OccupantView>,
    others: u64,
}

/// Returns a sum as an amount: a whole number, or with a few decimals.
fn amount(value: f64) -> AmountView {
    let rounded = (value * 1_000.0).round() / 1_000.0;
    AmountView { value: rounded.to_string(), number: serde_json::Number::from_f64(rounded) }
}

/// Returns the domains of the cells, and whether they are wider than the narrowest ones.
fn domains(views: &[DomainView], workloads: &NodeWorkloads) -> (Vec<Domain>, bool) {
    let number = |amount: &AmountView| text::value(amount).unwrap_or(0.0);
    let domain = |view: &DomainView| {
        let there = workloads.on(&view.values);
        Domain {
            values: view.values.clone(),
            free: number(&view.free),
            capacity: number(&view.capacity),
            schedulable: view.schedulable,
            workloads: there.map(|there| there.seen.clone()).unwrap_or_default(),
            others: there.map_or(0, |there| there.others),
        }
    };
    let mut domains: Vec<Domain> = views.iter().map(domain).collect();
    let mut wider = false;
    while domains.len() > MAX_CELLS && domains.iter().any(|domain| domain.values.len() > 1) {
        wider = true;
        let mut sums: BTreeMap<Vec<String>, Domain> = BTreeMap::new();
        for domain in domains {
            let levels = domain.values.len().saturating_sub(1).max(1);
            let values: Vec<String> = domain.values.into_iter().take(levels).collect();
            let empty = Domain {
                values: values.clone(),
                free: 0.0,
                capacity: 0.0,
                schedulable: false,
                workloads: Vec::new(),
                others: 0,
            };
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
    /// Returns the map of the domains of a flavor with their workloads; `None` if the flavor has no domains.
    pub fn of(views: &[DomainView], workloads: &NodeWorkloads) -> Option<Self> {
        let (domains, wider) = domains(views, workloads);
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
        (!blocks.is_empty()).then_some(Self { wider, blocks, rest: None })
    }

    /// Returns the map of the domains with a workload of a viewer that does not see the cluster, and the sum of the others;
    /// `None` if the flavor has no domains.
    pub fn of_tenant(views: &[DomainView], workloads: &NodeWorkloads) -> Option<Self> {
        let has_own =
            |view: &&DomainView| workloads.on(&view.values).is_some_and(|there| !there.seen.is_empty());
        let (own, rest): (Vec<&DomainView>, Vec<&DomainView>) = views.iter().partition(has_own);
        if views.is_empty() {
            return None;
        }
        let own: Vec<DomainView> = own.into_iter().cloned().collect();
        let schedulable = rest.iter().filter(|view| view.schedulable);
        let free: f64 = schedulable.filter_map(|view| text::value(&view.free)).sum();
        let domains = u64::try_from(rest.len()).unwrap_or(u64::MAX);
        let rest = Some(HeatRest { domains, free: amount(free) }).filter(|rest| rest.domains > 0);
        Some(Self { rest, ..Self::of(&own, workloads).unwrap_or_default() })
    }
}

impl HeatCell {
    /// Returns whether a workload is there.
    pub(super) const fn is_occupied(&self) -> bool {
        !self.workloads.is_empty() || self.others > 0
    }
}

fn cell(domain: &Domain) -> HeatCell {
    HeatCell {
        name: domain.values.last().cloned().unwrap_or_default(),
        free: amount(domain.free),
        capacity: amount(domain.capacity),
        schedulable: domain.schedulable,
        workloads: domain.workloads.iter().take(MAX_NAMED).cloned().collect(),
        more: u64::try_from(domain.workloads.len().saturating_sub(MAX_NAMED)).unwrap_or(u64::MAX),
        others: domain.others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::links::Links;

    fn domain(values: &[&str], free: u64, schedulable: bool) -> DomainView {
        let amount = |value: u64| AmountView { value: value.to_string(), number: Some(value.into()) };
        DomainView {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            free: amount(free),
            capacity: amount(8),
            schedulable,
        }
    }

    fn cells_of(map: &HeatMap) -> impl Iterator<Item = &HeatCell> {
        map.blocks.iter().flat_map(|block| &block.rows).flat_map(|row| &row.cells)
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
        let map = HeatMap::of(&domains, &NodeWorkloads::default()).unwrap();
        let drawn = map.drawn(&Links::default());
        let shown: Vec<_> =
            drawn.iter().map(|block| (&*block.name, &*block.free, block.rows.len())).collect();
        assert_eq!((shown, map.wider), (vec![("b1", "10", 2), ("b2", "7", 1)], false));
        assert_eq!(drawn[0].columns, ["h1", "h2"]);
        let cells = drawn.iter().flat_map(|block| &block.rows).flat_map(|row| &row.cells);
        let classes: Vec<_> = cells.map(|cell| cell.class).collect();
        assert_eq!(classes, ["h4", "h0", "h1", "hx", "h3"]);
        assert_eq!(drawn[0].rows[1].cells[1].label, "b1 r2 h2: not schedulable");
        assert!(
            cells_of(&map).all(|cell| !cell.is_occupied()) && map.occupied(&Links::default()).0.is_empty()
        );
        assert_eq!(HeatMap::of(&[], &NodeWorkloads::default()), None);
        assert_eq!(HeatMap::of_tenant(&[], &NodeWorkloads::default()), None);
        let tenant = HeatMap::of_tenant(&domains, &NodeWorkloads::default()).unwrap();
        let rest = tenant.rest.unwrap();
        assert_eq!((tenant.blocks.len(), rest.domains, rest.free.value.as_str()), (0, 5, "17"), "no name");
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
        let map = HeatMap::of(&views, &NodeWorkloads::default()).unwrap();
        let cells: Vec<_> = cells_of(&map).collect();
        assert_eq!((cells.len(), map.wider), (500, true));
        assert!(cells.iter().all(|cell| cell.free.value == "10"));
        let flat: Vec<DomainView> =
            (0..3_000).map(|number| domain(&[&*format!("h{number}")], 1, true)).collect();
        assert_eq!(
            domains(&flat, &NodeWorkloads::default()).0.len(),
            MAX_CELLS,
            "there are no wider domains"
        );
    }

    #[test]
    fn sums_have_no_noise() {
        assert_eq!(amount(0.1 + 0.2).value, "0.3");
        assert_eq!(amount(12_000.0).value, "12000");
    }
}
