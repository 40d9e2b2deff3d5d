//! What every page has: an address, from which rights are reviewed, and a value with its forms (HTML, JSON, CSV). The file of a
//! page implements both.
//!
//! Invariants: the right that a page needs follows from its address alone; the forms of a page read only its value and the
//! request, so that no form shows more than another.

use super::frame::Request;
use super::links::Links;
use std::fmt::Debug;

/// A page as its address names it, before it has a value.
pub trait AddressedPage: Sync {
    /// Returns the address of the page.
    fn href(&self, links: &Links) -> String;

    /// Returns the namespace whose view is enough for this page; `None` if it needs the view of the cluster.
    fn namespace(&self) -> Option<&str> {
        None
    }

    /// Whether, for a viewer without the view of the cluster, the page shows what the viewer submitted in the namespaces that the viewer
    /// may read.
    fn is_of_own_namespaces(&self) -> bool {
        false
    }

    /// Returns the name of the page's contents, as in `You may not see …`.
    fn subject(&self) -> String;

    /// Returns the name of the object, as in `There is no …`.
    fn object(&self) -> String {
        self.subject()
    }

    /// Whether the page follows the state; one that does not has no stream of updates.
    fn is_live(&self) -> bool {
        true
    }

    /// Whether the core computes a part of the page on request. The rate of such pages is bounded for each user.
    fn asks_core(&self) -> bool {
        false
    }
}

/// Returns the value of a filter; `None` for an empty filter, which adds no condition.
pub(super) fn given(filter: &str) -> Option<&str> {
    Some(filter).filter(|filter| !filter.is_empty())
}

/// The value of a page.
pub trait Page: Debug + Send + Sync {
    /// Renders the page.
    ///
    /// # Errors
    /// The template fails, which is a bug.
    fn html(&self, request: &Request) -> askama::Result<String>;

    /// Writes the value.
    ///
    /// # Errors
    /// The value cannot be serialized, which is a bug.
    fn json(&self) -> serde_json::Result<String>;

    /// Writes the rows; `None` for a page that is no list.
    fn csv(&self) -> Option<String> {
        None
    }
}
