//! One hour of a series, packed.
//!
//! Invariants: unpacking returns the packed values; a value that does not change within the hour is stored once; otherwise each
//! value takes as many bytes as the spread of the hour needs.

/// The values of one hour, at equal intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// All values are equal.
    Same { value: i128, count: usize },
    /// Differences to the least value, in `width` bytes each, the lowest byte first.
    Packed { least: i128, width: usize, bytes: Box<[u8]> },
}

impl Chunk {
    /// Packs values.
    pub(super) fn pack(values: &[i128]) -> Self {
        let least = values.iter().copied().min().unwrap_or_default();
        let offset = |value: &i128| u128::try_from(value.saturating_sub(least)).unwrap_or_default();
        let spread = values.iter().map(offset).max().unwrap_or_default();
        if spread == 0 {
            return Self::Same { value: least, count: values.len() };
        }
        let fits = |width: &usize| u32::try_from(*width).is_ok_and(|w| spread.checked_shr(w * 8) == Some(0));
        let width = [1, 2, 4, 8].into_iter().find(fits).unwrap_or(16);
        let packed = values.iter().flat_map(|value| offset(value).to_le_bytes().into_iter().take(width));
        Self::Packed { least, width, bytes: packed.collect() }
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Same { count, .. } => *count,
            Self::Packed { width, bytes, .. } => bytes.len().checked_div(*width).unwrap_or_default(),
        }
    }

    /// Returns the values.
    pub(super) fn values(&self) -> Vec<i128> {
        match self {
            Self::Same { value, count } => vec![*value; *count],
            Self::Packed { least, width, bytes } => bytes
                .chunks_exact((*width).max(1))
                .map(|part| {
                    let mut full = [0; 16];
                    for (to, from) in full.iter_mut().zip(part) {
                        *to = *from;
                    }
                    least.saturating_add(i128::try_from(u128::from_le_bytes(full)).unwrap_or(i128::MAX))
                })
                .collect(),
        }
    }

    /// Returns the number of heap bytes, without the size of the value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Same { .. } => 0,
            Self::Packed { bytes, .. } => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unchanged_hour_takes_no_heap() {
        let chunk = Chunk::pack(&[7; 60]);
        assert_eq!((chunk.heap_bytes(), chunk.len(), chunk.values()), (0, 60, vec![7; 60]));
    }

    #[test]
    fn values_take_as_many_bytes_as_their_spread_needs() {
        for (spread, width) in [(255, 1), (256, 2), (65_536, 4), (1 << 32, 8), (1_i128 << 64, 16)] {
            let chunk = Chunk::pack(&[1 << 70, (1 << 70) + spread]);
            assert_eq!(chunk.heap_bytes(), 2 * width, "{spread}");
            assert_eq!(chunk.values(), [1 << 70, (1 << 70) + spread]);
        }
    }

    proptest! {
        #[test]
        fn values_come_out_as_they_went_in(values in prop::collection::vec(-(1_i128 << 100)..(1_i128 << 100), 0..60)) {
            let chunk = Chunk::pack(&values);
            prop_assert_eq!(chunk.len(), values.len());
            prop_assert_eq!(chunk.values(), values);
        }
    }
}
