//! Answers to reviews, and conversions.

mod recorded;
mod recorded_conversions;
mod stored_objects;
