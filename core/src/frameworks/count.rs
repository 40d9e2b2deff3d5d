//! How many pods a role has: rules as data, read in the same way from a stored job and from one under review.
//!
//! Invariant: a rule counts at least the pods that the controller of the kind makes, whatever the fields contain.

use super::row::Pointer;

/// Number of pods. Pointers are relative to the object of a fixed role, otherwise to the role.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// A field; 1 when absent.
    Field(Pointer),
    /// A field; 1 when absent or less.
    AtLeastOne(Pointer),
    /// A field; where it is absent, a text with the number; 1 when both are.
    FieldOrText(Pointer, Pointer),
    /// A number that the controller keeps between two others.
    Between(Between),
    /// None while a boolean field is true, otherwise another number.
    Unless(Pointer, &'static Self),
    /// The pods of a batch/v1 Job spec: its parallelism, limited by its completions.
    Job {
        /// Parallelism; 1 when absent.
        parallelism: Pointer,
        /// Completions; no limit when absent.
        completions: Pointer,
    },
    /// One pod, whatever the object says.
    One,
    /// One less than a field says, which is 1 when absent.
    AllButOne(Pointer),
    /// A product.
    Product(&'static Self, &'static Self),
}

/// A number that is kept between two others. Where these contradict each other, versions of a controller differ in which of them
/// goes before, so the larger one counts.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// The number; 0 when absent.
    pub count: Pointer,
    /// The least; 0 when absent.
    pub least: Pointer,
    /// The most; no limit when absent.
    pub most: Pointer,
}

/// Fields of a role.
pub(super) trait CountFields {
    /// Why a field cannot be read.
    type Error;

    /// Returns a number of pods.
    fn count(&mut self, field: Pointer) -> Result<Option<i64>, Self::Error>;

    /// Returns a number that may be negative.
    fn number(&mut self, field: Pointer) -> Result<Option<i64>, Self::Error>;

    /// Returns the number of pods in a text.
    fn text(&mut self, field: Pointer) -> Result<Option<i64>, Self::Error>;

    /// Returns a boolean.
    fn boolean(&mut self, field: Pointer) -> Result<Option<bool>, Self::Error>;

    /// Takes note of a number that is less than another field, or 0, lets it be.
    fn below(&mut self, _field: Pointer, _number: i64, _least: i64, _said_by: Option<Pointer>) {}
}

impl Count {
    /// Returns the number of pods of a role.
    pub(super) fn read<F: CountFields>(&self, role: &mut F) -> Result<i64, F::Error> {
        Ok(match self {
            Self::Field(field) => role.count(field)?.unwrap_or(1),
            Self::AtLeastOne(field) => role.number(field)?.unwrap_or(1).max(1),
            Self::FieldOrText(field, text) => match role.count(field)? {
                Some(count) => count,
                None => role.text(text)?.unwrap_or(1),
            },
            Self::Between(between) => {
                let count = role.number(between.count)?.unwrap_or(0);
                let least = role.number(between.least)?.unwrap_or(0);
                let most = role.number(between.most)?.unwrap_or(i64::MAX);
                let fields = [(between.count, count), (between.least, least), (between.most, most)];
                for (field, number) in fields.into_iter().filter(|(_, number)| *number < 0) {
                    role.below(field, number, 0, None);
                }
                if 0 <= most && most < least {
                    role.below(between.most, most, least, Some(between.least));
                }
                count.min(most).max(least).max(0)
            }
            Self::Unless(field, _) if role.boolean(field)?.unwrap_or(false) => 0,
            Self::Unless(_, count) => count.read(role)?,
            Self::Job { parallelism, completions } => {
                let parallelism = role.count(parallelism)?.unwrap_or(1);
                role.count(completions)?.map_or(parallelism, |completions| completions.min(parallelism))
            }
            Self::One => 1,
            Self::AllButOne(field) => role.count(field)?.unwrap_or(1).saturating_sub(1).max(0),
            Self::Product(a, b) => a.read(role)?.saturating_mul(b.read(role)?),
        })
    }

    /// Returns the fields from which the number follows.
    pub fn fields(&self) -> Vec<Pointer> {
        match self {
            Self::Field(field) | Self::AtLeastOne(field) | Self::AllButOne(field) => vec![field],
            Self::FieldOrText(a, b) | Self::Job { parallelism: a, completions: b } => vec![a, b],
            Self::Between(Between { count, least, most }) => vec![count, least, most],
            Self::Unless(field, count) => count.fields().into_iter().chain([*field]).collect(),
            Self::One => Vec::new(),
            Self::Product(a, b) => a.fields().into_iter().chain(b.fields()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Fields by their pointers.
    impl CountFields for BTreeMap<Pointer, i64> {
        type Error = ();

        fn count(&mut self, field: Pointer) -> Result<Option<i64>, ()> {
            self.get(field).map(|number| u32::try_from(*number).map(i64::from).map_err(|_| ())).transpose()
        }

        fn number(&mut self, field: Pointer) -> Result<Option<i64>, ()> {
            Ok(self.get(field).copied())
        }

        fn text(&mut self, _field: Pointer) -> Result<Option<i64>, ()> {
            Ok(None)
        }

        fn boolean(&mut self, field: Pointer) -> Result<Option<bool>, ()> {
            Ok(self.get(field).map(|number| *number != 0))
        }
    }

    const BETWEEN: Count =
        Count::Unless("/off", &Count::Between(Between { count: "/n", least: "/least", most: "/most" }));

    proptest! {
        /// Whichever of two contradicting limits a controller takes first, it makes no more pods than are counted.
        #[test]
        fn no_controller_makes_more_pods_than_are_counted(
            n in proptest::option::of(-2_i64..8),
            least in proptest::option::of(-2_i64..8),
            most in proptest::option::of(-2_i64..8),
            off in proptest::option::of(0_i64..2),
        ) {
            let fields = [("/n", n), ("/least", least), ("/most", most), ("/off", off)];
            let mut role: BTreeMap<Pointer, i64> =
                fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect();
            let counted = BETWEEN.read(&mut role).unwrap();
            let (n, least, most) = (n.unwrap_or(0), least.unwrap_or(0), most.unwrap_or(i64::MAX));
            let most_first = if least > most { most } else { n.clamp(least, most) };
            let least_first = if n < least { least } else { n.min(most) };
            let made = if off == Some(1) { 0 } else { most_first.max(least_first).max(0) };
            prop_assert!(counted >= made);
            if off == Some(1) || least <= most {
                prop_assert_eq!(counted, made);
            }
        }
    }

    #[test]
    fn fields_are_all_that_are_read() {
        let mut fields = BETWEEN.fields();
        fields.sort_unstable();
        assert_eq!(fields, ["/least", "/most", "/n", "/off"]);
    }
}
