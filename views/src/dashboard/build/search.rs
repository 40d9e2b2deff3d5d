//! A bounded search in a list of workloads: by name, label and least amount.

use super::number;
use crate::dashboard::text;
use crate::resources::{Quantity, to_f64};
use crate::visibility::page::ModelError;
use crate::visibility::views::{ListMetadata, WorkloadView};
use crate::visibility::workloads::{Rowset, WorkloadQuery};

/// Most rows that a search reads for one page.
const MAX_SEARCHED: usize = 4_000;

/// Conditions of a search beside the queue.
pub(super) struct Search {
    /// Resource, and its least amount.
    min: Option<(String, f64)>,
    /// Part of the name.
    name: String,
    /// A label.
    label: Option<(String, String)>,
}

impl Search {
    /// Reads `RESOURCE=AMOUNT`, and a part of the name or `KEY=VALUE`.
    pub(super) fn of(min: &str, q: &str) -> Result<Self, ModelError> {
        let label = q.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        let min = match min.split_once('=') {
            _ if min.is_empty() => None,
            Some((resource, amount)) => {
                let amount = amount.trim();
                let parsed = Quantity::parse(amount)
                    .map_err(|error| ModelError::Invalid(format!("min: {amount:?} is no amount: {error}")))?;
                Some((resource.trim().to_owned(), to_f64(parsed.milli().into()) / 1_000.0))
            }
            None => return Err(ModelError::Invalid(format!("min: {min:?} is not RESOURCE=AMOUNT"))),
        };
        let name = if label.is_some() { String::new() } else { q.to_lowercase() };
        Ok(Self { min, name, label })
    }

    fn is_empty(&self) -> bool {
        self.min.is_none() && self.name.is_empty() && self.label.is_none()
    }

    fn matches(&self, view: &WorkloadView) -> bool {
        let labels = &view.metadata.labels;
        let enough = |(resource, least): &(String, f64)| {
            let needs = view.needs.iter().filter(|need| need.resource == *resource);
            needs.filter_map(|need| text::value(&need.amount)).any(|amount| amount >= *least)
        };
        let job = view.job.as_ref().map_or("", |job| job.name.as_str());
        let named =
            [view.metadata.name.as_str(), job].iter().any(|name| name.to_lowercase().contains(&self.name));
        named
            && self.min.as_ref().is_none_or(enough)
            && self.label.as_ref().is_none_or(|(key, value)| labels.get(key) == Some(value))
    }

    /// Reads pages of a list until a page of matching rows is full, or `MAX_SEARCHED` rows were read.
    pub(super) fn page(
        &self,
        mut asked: WorkloadQuery,
        list: impl Fn(&WorkloadQuery) -> Result<Rowset<WorkloadView>, ModelError>,
    ) -> Result<Found, ModelError> {
        let (mut items, mut searched) = (Vec::new(), 0_usize);
        let metadata = loop {
            let (found, metadata) = list(&asked)?;
            searched = searched.saturating_add(found.len());
            items.extend(found.into_iter().filter(|view| self.matches(view)));
            let enough = items.len() >= asked.page.limit || searched >= MAX_SEARCHED || self.is_empty();
            if enough || metadata.continue_token.is_empty() {
                break metadata;
            }
            asked.page.continue_token.clone_from(&metadata.continue_token);
        };
        if self.is_empty() {
            return Ok(Found { items, metadata, searched: None });
        }
        let is_cut = !metadata.continue_token.is_empty();
        Ok(Found {
            items,
            metadata: ListMetadata { remaining_item_count: None, ..metadata },
            searched: is_cut.then(|| number(searched)),
        })
    }
}

/// The rows of a page.
pub(super) struct Found {
    pub(super) items: Vec<WorkloadView>,
    pub(super) metadata: ListMetadata,
    /// Number of workloads that were searched, if not all.
    pub(super) searched: Option<u64>,
}
