//! What every page is: a value, in the forms in which it is shown.
//!
//! Invariant: the forms of a page read its value and the request alone, so that none shows what another lacks the right to.

use super::frame::Request;
use std::fmt::Debug;

/// The value of a page. Its file has the implementation.
pub trait Page: Debug + Send + Sync {
    /// Renders the page.
    ///
    /// # Errors
    /// The template fails, which is a bug.
    fn html(&self, request: &Request) -> askama::Result<String>;

    /// Writes the value.
    ///
    /// # Errors
    /// The value cannot be written, which is a bug.
    fn json(&self) -> serde_json::Result<String>;

    /// Writes the rows; `None` for a page that is no list.
    fn csv(&self) -> Option<String> {
        None
    }
}
