//! Answers to reviews, and conversions.

pub(crate) mod recorded;
mod recorded_conversions;
mod stored_objects;
