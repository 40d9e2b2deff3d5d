//! Integration tests of the library, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper fails its test; tests print what they have compared"
)]

mod fixtures;
mod manifests;
mod pages;
mod people;
mod repository;
mod settings;
mod shell;
mod tools;
mod views;
