//! Integration tests of the library, in one binary.

mod contracts;
mod tables;
