//! Parts that all pages have around their content: navigation, viewer, freshness and origin of the data.

use super::assets;
use super::links::{Links, in_form};
use super::text;
use super::what_if_query;
use crate::visibility::views::{Role, Source};
use jiff::Timestamp;

/// What a viewer sees of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// No user has signed in.
    #[default]
    Nothing,
    /// The whole cluster.
    Cluster,
    /// One namespace.
    Namespace(String),
}

impl Scope {
    /// Returns the namespace; empty for a viewer of the cluster, or none.
    pub(super) fn namespace(&self) -> &str {
        if let Self::Namespace(name) = self { name } else { "" }
    }
}

/// How fresh the data is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The data is current.
    #[default]
    Live,
    /// No message has arrived from the API server since then.
    SilentSince(Timestamp),
    /// No replica leads, so that nothing is admitted.
    WithoutLeader,
}

/// What a page depends on beside its value: address, viewer, freshness and time.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Builds addresses below the path prefix.
    pub links: Links,
    /// Path and query of the page, below the path prefix.
    pub path: String,
    /// Name of the user; empty before signing in.
    pub user: String,
    /// What the user sees.
    pub scope: Scope,
    /// How fresh the data is.
    pub freshness: Freshness,
    /// Current time.
    pub now: Timestamp,
    /// Namespaces that the user has visited.
    pub namespaces: Vec<String>,
    /// Whether the API server takes the user's token, so that a page can be read with it.
    pub reads_objects: bool,
    /// Whether the submitters of workloads are known, so that there is a page of what the user submitted.
    pub has_mine: bool,
}

/// A part of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Pending,
    Flavors,
    Preemptions,
    Usage,
    Audit,
    WhatIf,
    Namespace,
    Mine,
    None,
}

/// A link of the navigation.
#[derive(Clone, Debug)]
pub(super) struct NavigationLink {
    pub(super) text: String,
    pub(super) href: String,
    pub(super) current: bool,
}

/// Parts that all pages have around their content.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) home: String,
    pub(super) style: String,
    pub(super) script: String,
    pub(super) icon: String,
    /// Address of the stream of updates; empty for pages without.
    pub(super) events: String,
    pub(super) navigation: Vec<NavigationLink>,
    pub(super) scope: String,
    pub(super) user: String,
    /// Name of the user as the header shows it.
    pub(super) shown_user: String,
    /// Address to which signing out is posted; empty without a user.
    pub(super) logout: String,
    /// Time of the data; empty if the page shows none.
    pub(super) clock: String,
    pub(super) staleness: Option<Staleness>,
    pub(super) origin: Option<Origin>,
}

/// Why the data of a page may be old.
#[derive(Clone, Debug)]
pub(super) struct Staleness {
    /// The mark in the header.
    pub(super) mark: String,
    pub(super) headline: String,
    pub(super) detail: String,
    pub(super) reload: String,
    /// Whether the data is old, so that the page uses muted colours.
    pub(super) old: bool,
}

/// Where the data of a page comes from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) at: String,
    pub(super) clock: String,
    pub(super) replica: String,
    pub(super) role: &'static str,
    pub(super) partial: bool,
    pub(super) json: String,
}

/// Returns the short name of a user: `dashboard-viewer` for a service account. The whole name is the title of the element.
fn shown_user(user: &str) -> String {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    account.map_or(user, |(_, name)| name).to_owned()
}

impl Frame {
    /// Returns the frame of a page without data.
    pub(super) fn bare(request: &Request, title: &str) -> Self {
        let links = &request.links;
        let asset = |name: &str| links.to(&assets::path(name));
        let scope = match &request.scope {
            Scope::Nothing => String::new(),
            Scope::Cluster => "Cluster view".to_owned(),
            Scope::Namespace(name) => format!("Namespace {name}"),
        };
        let logout = if request.user.is_empty() { String::new() } else { links.to("/logout") };
        Self {
            title: title.to_owned(),
            home: links.to("/"),
            style: asset("sluice.css"),
            script: asset("live.js"),
            icon: asset("icon.svg"),
            events: String::new(),
            navigation: navigation(request, Section::None),
            scope,
            user: request.user.clone(),
            shown_user: shown_user(&request.user),
            logout,
            clock: String::new(),
            staleness: None,
            origin: None,
        }
    }

    /// Returns the frame of a page with data.
    pub(super) fn of(
        request: &Request,
        title: &str,
        section: Section,
        (source, partial): (&Source, bool),
    ) -> Self {
        let links = &request.links;
        let time = source.time.unwrap_or(request.now);
        let role = match source.role {
            Some(Role::Leader) => "leader",
            Some(Role::Follower) => "follower",
            None => "",
        };
        Self {
            navigation: navigation(request, section),
            events: links.with_query("/events", &[("page", &request.path)]),
            clock: text::clock(time),
            staleness: staleness(request),
            origin: Some(Origin {
                at: text::rfc3339(time),
                clock: text::clock(time),
                replica: source.replica.clone(),
                role,
                partial,
                json: links.to(&in_form(&request.path, "json")),
            }),
            ..Self::bare(request, title)
        }
    }
}

fn navigation(request: &Request, section: Section) -> Vec<NavigationLink> {
    let link = |text: &str, href: String, of: Section| NavigationLink {
        text: text.to_owned(),
        href,
        current: of == section,
    };
    let mut links = match &request.scope {
        Scope::Nothing => Vec::new(),
        Scope::Cluster => vec![
            link("Overview", request.links.to("/"), Section::Overview),
            link("Pending", request.links.to("/pending"), Section::Pending),
            link("Flavors", request.links.to("/flavors"), Section::Flavors),
            link("Preemptions", request.links.to("/preemptions"), Section::Preemptions),
            link("Usage", request.links.to("/usage"), Section::Usage),
            link("Audit", request.links.to("/audit"), Section::Audit),
            link("What if", request.links.to(what_if_query::PATH), Section::WhatIf),
        ],
        Scope::Namespace(name) => vec![
            link("Namespace", request.links.namespace(name), Section::Namespace),
            link("Pending", request.links.with_query("/pending", &[("ns", name)]), Section::Pending),
            link("Flavors", request.links.with_query("/flavors", &[("ns", name)]), Section::Flavors),
            link(
                "Preemptions",
                request.links.with_query("/preemptions", &[("ns", name)]),
                Section::Preemptions,
            ),
            link("Usage", request.links.with_query("/usage", &[("ns", name)]), Section::Usage),
            link("Audit", request.links.with_query("/audit", &[("ns", name)]), Section::Audit),
            link("What if", request.links.with_query(what_if_query::PATH, &[("ns", name)]), Section::WhatIf),
        ],
    };
    if request.has_mine && !links.is_empty() {
        links.push(link("Mine", request.links.to("/mine"), Section::Mine));
    }
    links
}

fn staleness(request: &Request) -> Option<Staleness> {
    let reload = request.links.to(&request.path);
    match request.freshness {
        Freshness::Live => None,
        Freshness::SilentSince(time) => {
            let (clock, ago) = (text::clock(time), request.now.as_second().saturating_sub(time.as_second()));
            Some(Staleness {
                mark: format!("Data of {clock}"),
                headline: format!("This page shows the state of {clock}, {} ago.", text::elapsed(ago)),
                detail: "The replica has received nothing from the API server since then. Decisions may have been made that \
                         are not shown."
                    .to_owned(),
                reload,
                old: true,
            })
        }
        Freshness::WithoutLeader => Some(Staleness {
            mark: "No leader".to_owned(),
            headline: "No workload is admitted at present.".to_owned(),
            detail: "No replica of the manager leads. Workloads keep what they have, and all others wait."
                .to_owned(),
            reload,
            old: false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both views lead to the page about a change, and it is marked there.
    #[test]
    fn each_view_has_a_link_to_what_if() {
        for (scope, address) in [
            (Scope::Cluster, "/sluice/what-if"),
            (Scope::Namespace("a b".to_owned()), "/sluice/what-if?ns=a%20b"),
        ] {
            let links = Links::below("/sluice").unwrap();
            let request = Request { links, scope, ..Request::default() };
            let found = navigation(&request, Section::WhatIf);
            let found: Vec<&NavigationLink> = found.iter().filter(|link| link.current).collect();
            let [link] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!((link.text.as_str(), link.href.as_str()), ("What if", address));
        }
        assert!(navigation(&Request::default(), Section::None).is_empty(), "before signing in");
    }

    #[test]
    fn accounts_have_short_names() {
        for (user, shown) in [
            ("system:serviceaccount:default:dashboard-viewer", "dashboard-viewer"),
            ("system:serviceaccount:x", "system:serviceaccount:x"),
            ("https://login.example.com#ada", "https://login.example.com#ada"),
            ("", ""),
        ] {
            assert_eq!(shown_user(user), shown);
        }
    }
}
