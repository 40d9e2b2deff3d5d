//! The map of free capacity as a page draws it: cells with their colours and addresses, and the table of their workloads.
//!
//! Invariants: a cell with one workload leads to its page, a cell with several to its row in the table; the table has at most 200
//! rows.

use super::heat::{HeatBlock, HeatCell, HeatMap, HeatRow};
use super::links::Links;
use super::text;
use crate::visibility::views::OccupantView;

/// Most rows of the table of cells with their workloads.
const MAX_OCCUPIED: usize = 200;

impl HeatMap {
    /// Returns the cells with workloads as rows of a table, and whether there are more.
    pub(super) fn occupied(&self, links: &Links) -> (Vec<OccupiedRow>, bool) {
        let blocks = self.blocks.iter().flat_map(|block| block.rows.iter().map(move |row| (block, row)));
        let cells = blocks.flat_map(|(block, row)| row.cells.iter().map(move |cell| (block, row, cell)));
        let mut occupied = (0_usize..).zip(cells).filter(|(_, (.., cell))| cell.is_occupied());
        let shown = occupied.by_ref().take(MAX_OCCUPIED);
        let rows = shown
            .map(|(position, (block, row, cell))| OccupiedRow {
                id: cell_id(position),
                place: place(cell, &[&block.name, &row.name]),
                free: text::amount(&cell.free),
                workloads: cell.workloads.iter().map(|there| OccupantLink::of(there, links)).collect(),
                more: if cell.more > 0 { format!("{} more", text::count(cell.more)) } else { String::new() },
                others: match cell.others {
                    0 => String::new(),
                    others => format!("{} of other namespaces", text::counted(others, "workload")),
                },
            })
            .collect();
        (rows, occupied.next().is_some())
    }

    /// Returns the blocks as a page draws them.
    pub(super) fn drawn(&self, links: &Links) -> Vec<DrawnBlock> {
        let mut numbers = CellNumbers::default();
        self.blocks.iter().map(|block| DrawnBlock::of(block, &mut numbers, links)).collect()
    }
}

/// Returns the id of the row of a cell, by the number of the cell in the map.
fn cell_id(position: usize) -> String {
    format!("on-{position}")
}

/// Returns the name of a domain: the values of its levels.
fn place(cell: &HeatCell, above: &[&String]) -> String {
    let place = above.iter().map(|name| name.as_str()).chain([cell.name.as_str()]);
    place.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A cell with its workloads as a row.
pub(super) struct OccupiedRow {
    pub(super) id: String,
    pub(super) place: String,
    pub(super) free: String,
    pub(super) workloads: Vec<OccupantLink>,
    /// Number of further workloads in words; empty for none.
    pub(super) more: String,
    /// Number of workloads of other tenants in words; empty for none.
    pub(super) others: String,
}

/// A workload with its page.
pub(super) struct OccupantLink {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) amount: String,
}

impl OccupantLink {
    fn of(there: &OccupantView, links: &Links) -> Self {
        Self {
            name: format!("{}/{}", there.namespace, there.name),
            href: links.workload(&there.namespace, &there.name),
            amount: text::amount(&there.amount),
        }
    }
}

/// Numbers of cells in the order of the map, and of the cells with workloads among them.
#[derive(Default)]
struct CellNumbers {
    all: usize,
    occupied: usize,
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
    /// Name and free capacity of the domain, and what is there.
    pub(super) label: String,
    /// Address of the only workload there, or of the row with all of them; empty without one.
    pub(super) href: String,
}

impl DrawnBlock {
    fn of(block: &HeatBlock, numbers: &mut CellNumbers, links: &Links) -> Self {
        let names =
            |row: &HeatRow| -> Vec<String> { row.cells.iter().map(|cell| cell.name.clone()).collect() };
        let columns = block.rows.first().map(names).unwrap_or_default();
        let same = block.rows.iter().all(|row| names(row) == columns);
        let row = |row: &HeatRow| DrawnRow {
            name: row.name.clone(),
            free: text::amount(&row.free),
            cells: row
                .cells
                .iter()
                .map(|cell| {
                    let href = href(cell, numbers, links);
                    DrawnCell { href, ..DrawnCell::of(cell, &[&block.name, &row.name]) }
                })
                .collect(),
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

/// Returns where a cell leads, and counts it.
fn href(cell: &HeatCell, numbers: &mut CellNumbers, links: &Links) -> String {
    let position = numbers.all;
    numbers.all = numbers.all.saturating_add(1);
    if !cell.is_occupied() {
        return String::new();
    }
    let has_row = numbers.occupied < MAX_OCCUPIED;
    numbers.occupied = numbers.occupied.saturating_add(1);
    match cell.workloads.as_slice() {
        [only] if cell.others == 0 => links.workload(&only.namespace, &only.name),
        _ if has_row => format!("#{}", cell_id(position)),
        _ => String::new(),
    }
}

impl DrawnCell {
    fn of(cell: &HeatCell, above: &[&String]) -> Self {
        let place = place(cell, above);
        let there = match (cell.workloads.as_slice(), cell.others) {
            ([], 0) => String::new(),
            ([only], 0) => format!("; {}/{}", only.namespace, only.name),
            _ => "; several workloads".to_owned(),
        };
        if !cell.schedulable {
            let label = format!("{place}: not schedulable{there}");
            return Self { class: "hx", shown: "×".to_owned(), label, href: String::new() };
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
        Self { class, label: format!("{place}: {shown} free{there}"), shown, href: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::AmountView;

    #[test]
    fn cells_lead_to_their_workloads() {
        let there = |name: &str| OccupantView {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            amount: AmountView { value: "4".to_owned(), number: Some(4.into()) },
        };
        let cell = |workloads: Vec<OccupantView>, others: u64| HeatCell {
            name: "h".to_owned(),
            free: AmountView { value: "0".to_owned(), number: Some(0.into()) },
            schedulable: true,
            workloads,
            others,
            ..HeatCell::default()
        };
        let cells = vec![
            cell(Vec::new(), 0),
            cell(vec![there("x")], 0),
            cell(vec![there("x"), there("y")], 0),
            cell(vec![there("x")], 2),
        ];
        let rows = vec![HeatRow { cells, ..HeatRow::default() }];
        let map = HeatMap { blocks: vec![HeatBlock { rows, ..HeatBlock::default() }], ..HeatMap::default() };
        let links = Links::default();
        let drawn = map.drawn(&links);
        let hrefs: Vec<&str> = drawn[0].rows[0].cells.iter().map(|cell| &*cell.href).collect();
        assert_eq!(hrefs, ["", "/workloads/a/x", "#on-2", "#on-3"]);
        assert_eq!(drawn[0].rows[0].cells[1].label, "h: 0 free; a/x");
        let (rows, more) = map.occupied(&links);
        let shown: Vec<(&str, usize, &str)> =
            rows.iter().map(|row| (&*row.id, row.workloads.len(), &*row.others)).collect();
        let others = "2 workloads of other namespaces";
        assert_eq!((shown, more), (vec![("on-1", 1, ""), ("on-2", 2, ""), ("on-3", 1, others)], false));
    }
}
