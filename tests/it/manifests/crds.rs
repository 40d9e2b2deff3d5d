//! The definitions under `crds/` match the types. `tests/outside` compares them with Kueue's.

use crate::fixtures::written_files::{Written, check_or_write};
use sluice::api::crd;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares the files of a folder with these, or writes them.
fn check_folder(folder: &str, files: Vec<(String, String)>) {
    let folder_path = root().join(folder);
    let expected: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    check_or_write(Written::Generated, files.into_iter().map(|(name, text)| (folder_path.join(name), text)));
    let entries = fs::read_dir(&folder_path).unwrap();
    let actual: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(actual, expected, "{folder}");
}

#[test]
fn generated_definitions_are_up_to_date() {
    check_folder("crds", crd::all().unwrap());
    check_folder("config/v1beta1/definitions", crd::v1beta1::patches().unwrap());
}
