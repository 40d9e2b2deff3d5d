//! Texts of the command line: it prints objects and views as text, and parses the values of flags.
//!
//! Invariants: a text depends on its arguments alone, never on a terminal, a clock or the environment; numbers are never cut, and
//! names only to the width of a terminal; texts of objects reach a terminal without control characters.

pub mod description;
pub mod duration;
pub mod job_tree;
pub mod json_path;
pub mod json_path_parser;
pub mod line_wrap;
pub mod object_list;
pub mod object_text;
pub mod output;
pub mod quota_text;
pub mod rows_left;
pub(crate) mod sentence;
pub mod server_table;
pub mod taint_text;
pub mod text_table;
pub mod top;
pub mod views;
pub mod workload_object;
