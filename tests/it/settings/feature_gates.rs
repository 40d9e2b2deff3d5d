//! The page of feature gates matches the table in the code. `tests/outside` compares the table with Kueue's.

use crate::fixtures::written_files::{Written, check_or_write};
use sluice::api::config;
use std::path::Path;

#[test]
fn generated_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/feature-gates.md");
    check_or_write(Written::Generated, [(path, config::feature_gates_page())]);
}
