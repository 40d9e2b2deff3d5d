//! Parsers of flags whose values are words of a list, which completion reads from them.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};

/// The words that a flag accepts, and their parser, which may accept other spellings too.
#[derive(Clone)]
pub(crate) struct Closed<T> {
    values: fn() -> Vec<&'static str>,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Closed<T> {
    pub(crate) const fn new(values: fn() -> Vec<&'static str>, parse: fn(&str) -> Result<T, String>) -> Self {
        Self { values, parse }
    }
}

impl Closed<String> {
    /// Accepts any text: the verb itself refuses other words later.
    pub(crate) const fn words(values: fn() -> Vec<&'static str>) -> Self {
        Self { values, parse: |text| Ok(text.to_owned()) }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Closed<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        self.parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.values)().into_iter().map(PossibleValue::new)))
    }
}
