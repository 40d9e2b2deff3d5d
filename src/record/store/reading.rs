//! The file as it was at one instant.
//!
//! Invariant: all that an answer reads is of one commit; a row that cannot be read is left out.

use super::{
    COMMITS, CommitId, DAYS, DAYS_FROM, GAPS, HOURS, HOURS_FROM, META, RECORDS, RECORDS_FROM, StoreError,
    Times, WRITER, number_of, parsed,
};
use crate::history::{Gap, RecordKind};
use crate::record::periods::{Group, Sums};
use crate::record::rows::RecordRow;
use redb::ReadTransaction;

/// The file as it was at one instant.
pub(in crate::record) struct Reading(pub(super) ReadTransaction);

impl Reading {
    /// Returns the last commit.
    pub(in crate::record) fn last_commit(&self) -> Result<CommitId, StoreError> {
        let meta = self.0.open_table(META)?;
        let number = |name: &str| -> Result<i64, StoreError> {
            Ok(meta.get(name)?.map_or(0, |number| number.value()))
        };
        Ok(CommitId { number: number(COMMITS)?, writer: number(WRITER)? })
    }

    /// Returns the times of the record.
    pub(in crate::record) fn times(&self) -> Result<Times, StoreError> {
        let meta = self.0.open_table(META)?;
        let at = |name: &str| -> Result<Option<i64>, StoreError> { Ok(meta.get(name)?.map(|at| at.value())) };
        let (from, until, closed) = (at("from")?, at("until")?, at("closed")?);
        let (records_from, hours_from, days_from) = (at(RECORDS_FROM)?, at(HOURS_FROM)?, at(DAYS_FROM)?);
        Ok(Times { from, until, closed, records_from, hours_from, days_from })
    }

    /// Calls `each` with the sums of each hour, or day, from `start` to `end`.
    pub(in crate::record) fn sums(
        &self,
        by_day: bool,
        start: i64,
        end: i64,
        mut each: impl FnMut(i64, Group<'_>, Sums),
    ) -> Result<(), StoreError> {
        let table = self.0.open_table(if by_day { DAYS } else { HOURS })?;
        for row in table.range((start, "")..(end, ""))? {
            let (key, value) = row?;
            let (at, group) = key.value();
            if let (Some(group), Some(sums)) = (Group::parse(group), parsed(value.value())) {
                each(at, group, sums);
            }
        }
        Ok(())
    }

    /// Calls `each` with the records of a kind from `start`, the newest first, until it returns false.
    pub(in crate::record) fn newest_records(
        &self,
        kind: RecordKind,
        start: i64,
        mut each: impl FnMut(RecordRow) -> bool,
    ) -> Result<(), StoreError> {
        let table = self.0.open_table(RECORDS)?;
        let kind = number_of(kind.as_str());
        for row in table.range((kind, start, "")..(kind.saturating_add(1), i64::MIN, ""))?.rev() {
            if let Some(row) = parsed(row?.1.value())
                && !each(row)
            {
                break;
            }
        }
        Ok(())
    }

    /// Returns the gaps that end after `start` and begin before `end`.
    pub(in crate::record) fn gaps(&self, start: i64, end: i64) -> Result<Vec<Gap>, StoreError> {
        let table = self.0.open_table(GAPS)?;
        let mut all = Vec::new();
        for row in table.range(..end)? {
            all.extend(parsed::<Gap>(row?.1.value()).filter(|gap| gap.end.as_millisecond() > start));
        }
        Ok(all)
    }
}
