//! Units of work of more than one object.

mod pods;
mod ray;
mod sets;
