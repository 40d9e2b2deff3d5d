//! Pages of the dashboard: a request and a value of `visibility` in, HTML out.
//!
//! Invariants: a page shows what its value holds and adds nothing, so that it cannot show what the viewer may not see; all text
//! that a template inserts is escaped; addresses begin with the path prefix; a page works without its script. HTTP, rights and
//! streams are in `server`.

mod assets;
mod audit;
mod bar;
pub mod build;
mod chart;
mod cluster_queue;
mod csv;
mod data;
mod escape;
mod flavor_rows;
mod flavors;
mod frame;
mod heat;
mod heat_drawing;
mod links;
mod live;
mod marks;
mod messages;
mod mine;
mod namespace;
mod object;
mod overview;
mod page;
mod pending;
mod preemptions;
pub mod question;
mod rows;
mod text;
mod usage;
mod verdict_sentence;
mod what_if;
mod what_if_query;
mod workload;
mod workload_before;
mod workload_commands;
mod workload_list;

pub use assets::{ASSETS, Asset};
pub use audit::{AuditPage, AuditQuery};
pub use cluster_queue::ClusterQueueQuery;
pub use data::{
    ClusterQueuePage, NamespacePage, Overview, OverviewQuery, PathNode, PendingPage, PendingQuery,
};
pub use flavors::{FlavorPage, FlavorQuery};
pub use frame::{Freshness, Request, Scope};
pub use heat::{HeatBlock, HeatCell, HeatMap, HeatRest, HeatRow};
pub use links::{Links, encode};
pub use live::{Fragments, changes, row_ids};
pub use messages::{Message, MissingRight, forbidden, login, message};
pub use mine::{MinePage, MineQuery};
pub use namespace::NamespaceQuery;
pub use object::{ObjectKind, ObjectName, ReadObject, object_page};
pub use page::{AddressedPage, Page};
pub use preemptions::{PreemptionFilter, PreemptionPage, VictimNow};
pub use question::PageQuestion;
pub use usage::{UsageFilter, UsagePage};
pub use what_if::WhatIfPage;
pub use what_if_query::{FORM, WhatIfQuery};
pub use workload::{WhenQuery, WorkloadPage};
pub use workload_before::BeforeQuery;
pub use workload_list::{ListedState, WorkloadListPage, WorkloadListQuery};
