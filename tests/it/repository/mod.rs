//! The files of the repository: layout, words, pages and commits.

mod commits;
mod dockerfile;
mod end_to_end_cases;
mod folder_imports;
mod framework_rows;
mod layering;
mod own_events;
mod pages;
mod test_folders;
mod vocabulary;
mod written_files;
