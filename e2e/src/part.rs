//! A part of a list, so that many short runs cover what one would take too long for.

/// Every Nth item, beginning with the Kth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    first: usize,
    of: usize,
}

impl Part {
    /// Reads `K/N`, as `1/3`.
    ///
    /// # Errors
    /// They are no numbers, or there is no Kth of N parts.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        let found = numbers.filter(|(first, of)| (1..=*of).contains(first));
        found.map(|(first, of)| Self { first, of }).ok_or_else(|| format!("{text:?}: K/N expected, as 1/3"))
    }

    /// Returns the items of the part.
    pub fn of<T>(self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        items.into_iter().skip(self.first - 1).step_by(self.of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        let parts = ["1/3", "2/3", "3/3"].map(|text| Part::parse(text).unwrap().of(0..7));
        assert_eq!(parts, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
        for wrong in ["", "1", "0/2", "3/2", "a/b", "1/0"] {
            assert!(Part::parse(wrong).is_err(), "{wrong}");
        }
    }
}
