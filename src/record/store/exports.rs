//! Rows in the order of their keys, from a key on.

use super::{DAYS, HOURS, RECORDS, Reading, StoreError, number_of};
use crate::history::RecordKind;

impl Reading {
    /// Calls `each` with time, key and content of the segments from one time and key to another time, until it returns false.
    pub(in crate::record) fn segments(
        &self,
        (start, key): (i64, &str),
        end: i64,
        mut each: impl FnMut(i64, &str, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let kind = number_of(RecordKind::Segment.as_str());
        let table = self.0.open_table(RECORDS)?;
        for row in table.range((kind, start, key)..(kind, end.max(start), ""))? {
            let (key, value) = row?;
            let (_, time, key) = key.value();
            if !each(time, key, value.value()) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with time, group and content of the sums of hours, or days, from one time and group to another time, until it
    /// returns false.
    pub(in crate::record) fn sums_in_order(
        &self,
        by_day: bool,
        (start, key): (i64, &str),
        end: i64,
        mut each: impl FnMut(i64, &str, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let table = self.0.open_table(if by_day { DAYS } else { HOURS })?;
        for row in table.range((start, key)..(end.max(start), ""))? {
            let (key, value) = row?;
            let (time, key) = key.value();
            if !each(time, key, value.value()) {
                break;
            }
        }
        Ok(())
    }
}
