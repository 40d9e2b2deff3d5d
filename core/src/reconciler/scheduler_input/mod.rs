//! Conversion of Workloads to scheduler input: the requests of pending ones and the charges of reserving ones.

mod charge;
mod pending;
mod slices;

use super::CoreSettings;
use crate::cache::Cache;

/// The input of conversions for the scheduler: the objects, without the fields of disabled features.
#[derive(Clone, Copy)]
pub(crate) struct SchedulerInput<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
}
