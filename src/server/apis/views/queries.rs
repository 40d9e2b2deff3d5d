//! Options of a request for workloads.
//!
//! Invariant: what the user submitted is selected by the name with which the API server has authenticated the user, never by a name in
//! the request.

use super::{Asked, Format, Refused, status};
use crate::visibility::selector::{NO_SUBMITTERS, WorkloadSelector};
use crate::visibility::workloads::WorkloadQuery;

impl Asked {
    pub(super) fn workload_query(&self) -> Result<WorkloadQuery, Refused> {
        let text = self.request.option("fieldSelector").unwrap_or_default();
        let labels = self.request.option("labelSelector").unwrap_or_default();
        let selector = WorkloadSelector::parse(&text).and_then(|selector| selector.with_labels(&labels));
        let mut selector = selector.map_err(|error| Box::new(status::bad_request(&error)))?;
        if selector.needs_reader() {
            if !self.snapshot.workloads.reads_submitters() {
                return Err(Box::new(status::bad_request(NO_SUBMITTERS)));
            }
            selector = selector.for_reader(&self.request.user.name);
        }
        let namespace = Some(self.request.target.namespace.clone()).filter(|name| !name.is_empty());
        Ok(WorkloadQuery { namespace, selector, page: self.page()? })
    }

    /// Returns whether rows are asked for with what a table shows. A Table has its columns already.
    pub(super) fn is_brief(&self) -> Result<bool, Refused> {
        Ok(self.is_set("brief")? && self.request.format != Format::Table)
    }

    /// Returns whether the number of rows behind the page is asked for.
    pub(super) fn is_counted(&self) -> Result<bool, Refused> {
        self.is_set("count")
    }

    fn is_set(&self, name: &str) -> Result<bool, Refused> {
        match self.request.option(name).as_deref() {
            None | Some("" | "false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                let error = format!("{name}: {other:?} is neither true nor false");
                Err(Box::new(status::bad_request(&error)))
            }
        }
    }
}
