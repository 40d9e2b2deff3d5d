//! Pages of the dashboard: a request and a value of `visibility` in, HTML out.
//!
//! Invariants: a page shows what its value holds and adds nothing, so that it cannot show what the viewer may not see; all text
//! that a template inserts is escaped; addresses begin with the path prefix; a page works without its script. HTTP, rights and
//! streams are in `server`.

mod assets;
mod bar;
pub mod build;
mod cluster_queue;
pub mod csv;
mod data;
mod escape;
mod frame;
mod links;
mod live;
mod marks;
mod messages;
mod namespace;
mod overview;
mod pending;
pub mod question;
mod rows;
mod text;
mod verdict_sentence;
mod workload;

pub use assets::{ASSETS, Asset};
pub use cluster_queue::cluster_queue;
pub use data::{ClusterQueuePage, NamespacePage, Overview, PathNode, PendingPage, PendingQuery};
pub use frame::{Freshness, Request, Scope};
pub use links::{Links, encode};
pub use live::{Fragments, changes};
pub use marks::needs_change;
pub use messages::{Message, MissingRight, forbidden, login, message};
pub use namespace::namespace;
pub use overview::overview;
pub use pending::{href as pending_href, pending};
pub use question::Question;
pub use workload::workload;
