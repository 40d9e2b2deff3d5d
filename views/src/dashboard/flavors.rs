//! Pages of flavors: capacity of nodes, quota, usage, free capacity by domain, and the largest gang that fits.
//!
//! Invariants: the page of a flavor shows one map and one table of gangs; the page of all flavors shows one row for each. A viewer
//! of a namespace sees the flavors of its queues with what these may use, the nodes with workloads of the namespace, and of the rest a sum.

use super::frame::{Frame, Request, Scope, Section};
use super::heat::HeatMap;
use super::heat_drawing::{DrawnBlock, OccupiedRow};
use super::links::{Links, encode};
use super::page::{AddressedPage, Page, given};
use super::text;
use super::what_if_query::{self, WhatIfQuery};
use crate::topology::HOSTNAME_LABEL;
use crate::visibility::views::{
    AmountView, FlavorResourceView, FlavorView, LevelView, QueueCapacityView, Source,
};
use askama::Template;
use serde::{Deserialize, Serialize};

/// Parameters of a page of flavors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorQuery {
    /// Name of the flavor; empty for all.
    pub flavor: String,
    /// Requests of one pod of a gang: `RESOURCE=QUANTITY,...`; empty for all of the scarcest resource of the largest node.
    pub pod: String,
    /// Name of the ClusterQueue whose quota bounds a gang; empty to count the nodes alone.
    #[serde(rename = "cq")]
    pub cluster_queue: String,
    /// The namespace of a viewer that does not see the cluster; empty for the cluster.
    #[serde(rename = "ns", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// A page of flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorPage {
    /// What was asked for.
    pub query: FlavorQuery,
    /// The flavors; only the named one if the query has a name. Their domains are in `map`.
    pub items: Vec<FlavorView>,
    /// Free capacity in the domains of the named flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<HeatMap>,
    /// What the LocalQueues of a viewer's namespace may use, with the pods that fit if some were asked for; of a viewer that does not see
    /// the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_queues: Vec<QueueCapacityView>,
    /// Names of ClusterQueues to choose from.
    pub cluster_queues: Vec<String>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}

#[derive(Template)]
#[template(path = "flavors.html", config = "src/dashboard/askama.toml")]
struct FlavorTemplate<'a> {
    frame: Frame,
    query: &'a FlavorQuery,
    heading: &'a str,
    all: String,
    /// Whether amounts of the cluster are left out.
    is_tenant: bool,
    rows: Vec<FlavorRow>,
    /// Pods for which the gangs of all flavors are counted.
    form: Option<String>,
    map: MapPart<'a>,
    gang: Option<Gang>,
    own: Own,
    csv: String,
    ask: AskPart,
}

/// The page about other nodes, and questions about one of the flavor.
struct AskPart {
    /// Address of the page without a question.
    page: String,
    questions: Vec<AskedChange>,
}

/// A question about a change: the command, and the page that asks the same.
struct AskedChange {
    words: &'static str,
    command: String,
    href: String,
}

/// The map of a flavor, as the page shows it.
#[derive(Default)]
struct MapPart<'a> {
    topology: &'a str,
    /// `free nvidia.com/gpu by host`.
    cells: String,
    blocks: Vec<DrawnBlock>,
    /// Domains with workloads.
    occupied: Vec<OccupiedRow>,
    is_cut: bool,
    /// The domains that a viewer of a namespace sees as a sum, in words; empty for none.
    rest: String,
}

/// What the queues of a namespace may use.
#[derive(Default)]
struct Own {
    /// Address of the page, for another pod.
    action: String,
    quotas: Vec<OwnQuota>,
    /// Empty if no pods were asked for.
    gangs: Vec<OwnGang>,
    approximate: bool,
}

struct OwnQuota {
    queue: String,
    flavor: String,
    href: String,
    resource: String,
    used: String,
    available: String,
}

struct OwnGang {
    queue: String,
    flavor: String,
    level: String,
    pods: String,
    limited_by: String,
}

struct FlavorRow {
    name: String,
    href: String,
    resource: String,
    nodes: String,
    /// Number of nodes that are schedulable.
    schedulable_nodes: String,
    no_nodes: bool,
    schedulable: String,
    quota: String,
    slack: String,
    is_short: bool,
    charged: String,
    others: String,
    free: String,
    gang: String,
}

/// The largest gang by level.
struct Gang {
    action: String,
    queues: Vec<(String, bool)>,
    pod: String,
    rows: Vec<GangRow>,
    approximate: bool,
}

struct GangRow {
    level: String,
    domains: String,
    most_free: String,
    location: String,
    pods: String,
    limited_by: String,
}

impl AddressedPage for FlavorQuery {
    fn href(&self, links: &Links) -> String {
        href(links, self)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.flavor) {
            None => "the flavors".to_owned(),
            Some(flavor) => format!("ResourceFlavor {flavor}"),
        }
    }

    fn asks_core(&self) -> bool {
        true
    }
}

impl Page for FlavorPage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn csv(&self) -> Option<String> {
        Some(super::csv::flavors(&self.items))
    }
}

/// Renders the page of all flavors, or of one.
fn render(request: &Request, data: &FlavorPage) -> askama::Result<String> {
    let (query, links) = (&data.query, &request.links);
    let only = data.items.first().filter(|_| !query.flavor.is_empty());
    let heading = if query.flavor.is_empty() { "Flavors" } else { &query.flavor };
    let rows = match only {
        Some(flavor) => resource_rows(flavor, query, links),
        None => data
            .items
            .iter()
            .map(|flavor| flavor_row(flavor, flavor.resources.first(), (query, links)))
            .collect(),
    };
    let is_tenant = request.scope != Scope::Cluster;
    FlavorTemplate {
        frame: Frame::of(request, heading, Section::Flavors, (&data.source, data.partial)),
        query,
        heading,
        all: links.with_query("/flavors", &[("ns", &query.namespace)]),
        is_tenant,
        rows,
        form: (only.is_none() && !is_tenant).then(|| links.to("/flavors")),
        map: only
            .zip(data.map.as_ref())
            .map(|(flavor, map)| map_part(flavor, map, links))
            .unwrap_or_default(),
        gang: only.filter(|_| !is_tenant).map(|flavor| gang(flavor, data, links)),
        own: if is_tenant { own(data, links) } else { Own::default() },
        csv: super::audit::with_form(&href(links, query), "csv"),
        ask: ask_part(only.zip(data.map.as_ref()), links),
    }
    .render()
}

/// Returns the questions about a node of a flavor. Without a map of nodes no node is known to ask about.
fn ask_part(mapped: Option<(&FlavorView, &HeatMap)>, links: &Links) -> AskPart {
    let node = mapped.and_then(|(flavor, map)| first_node(flavor, map));
    let asked = node.map(|node| {
        let added = WhatIfQuery { add: "2".to_owned(), like: node.clone(), ..WhatIfQuery::default() };
        let drained = WhatIfQuery { drain: node, ..WhatIfQuery::default() };
        [("Ask about two more nodes", added), ("Ask about the drain", drained)]
    });
    let question = |(words, query): (&'static str, WhatIfQuery)| AskedChange {
        words,
        command: query.command(),
        href: query.address(links),
    };
    AskPart {
        page: links.to(what_if_query::PATH),
        questions: asked.into_iter().flatten().map(question).collect(),
    }
}

/// Returns the first schedulable node of a map by its hostname, which is the name of most nodes; `None` if the cells are wider domains.
fn first_node(flavor: &FlavorView, map: &HeatMap) -> Option<String> {
    let are_nodes = flavor.approximate || flavor.levels.iter().any(|level| level.level == HOSTNAME_LABEL);
    let rows = map.blocks.iter().flat_map(|block| &block.rows);
    let node = rows.flat_map(|row| &row.cells).find(|cell| cell.schedulable)?;
    (are_nodes && !map.wider).then(|| node.name.clone())
}

fn map_part<'a>(flavor: &'a FlavorView, map: &HeatMap, links: &Links) -> MapPart<'a> {
    let resource = flavor.resources.first().map(|row| row.resource.as_str()).unwrap_or_default();
    let of = if map.wider { "wider domain, because there are too many hosts to show" } else { "host" };
    let (occupied, is_cut) = map.occupied(links);
    let rest = map.rest.as_ref().map(|rest| {
        let domains = text::counted(rest.domains, "other domain");
        format!("{domains} without a workload of this namespace: {} free.", text::amount(&rest.free))
    });
    MapPart {
        topology: &flavor.topology,
        cells: format!("free {resource} by {of}"),
        blocks: map.drawn(links),
        occupied,
        is_cut,
        rest: rest.unwrap_or_default(),
    }
}

/// Returns the address of a page of flavors.
fn href(links: &Links, query: &FlavorQuery) -> String {
    let pairs = [("pod", query.pod.as_str()), ("cq", &query.cluster_queue), ("ns", &query.namespace)];
    if query.flavor.is_empty() {
        return links.with_query("/flavors", &pairs);
    }
    links.with_query(&format!("/flavors/{}", encode(&query.flavor)), &pairs)
}

fn resource_rows(flavor: &FlavorView, query: &FlavorQuery, links: &Links) -> Vec<FlavorRow> {
    if flavor.resources.is_empty() {
        return vec![flavor_row(flavor, None, (query, links))];
    }
    let row = |resource| flavor_row(flavor, Some(resource), (query, links));
    flavor.resources.iter().map(row).collect()
}

fn flavor_row(
    flavor: &FlavorView,
    resource: Option<&FlavorResourceView>,
    (query, links): (&FlavorQuery, &Links),
) -> FlavorRow {
    let amount = |of: fn(&FlavorResourceView) -> &AmountView| {
        resource.map_or_else(|| text::NONE.to_owned(), |row| text::amount(of(row)))
    };
    let nodes = flavor.nodes;
    let gang = flavor.levels.last().map(|level| text::counted(level.largest_gang, "pod"));
    FlavorRow {
        name: flavor.metadata.name.clone(),
        href: href(links, &FlavorQuery { flavor: flavor.metadata.name.clone(), ..query.clone() }),
        resource: resource.map(|row| row.resource.clone()).unwrap_or_default(),
        nodes: text::count(nodes.total),
        schedulable_nodes: text::count(nodes.schedulable),
        no_nodes: nodes.total == 0,
        schedulable: amount(|row| &row.schedulable),
        quota: amount(|row| &row.quota),
        slack: amount(|row| &row.slack),
        is_short: resource.is_some_and(|row| row.slack.value.starts_with('-')),
        charged: amount(|row| &row.charged),
        others: amount(|row| &row.others),
        free: amount(|row| &row.free),
        gang: gang.unwrap_or_else(|| text::NONE.to_owned()),
    }
}

fn own(data: &FlavorPage, links: &Links) -> Own {
    let query = &data.query;
    let mut own = Own {
        action: href(links, &FlavorQuery { flavor: query.flavor.clone(), ..FlavorQuery::default() }),
        ..Own::default()
    };
    for queue in &data.local_queues {
        let name = &queue.metadata.name;
        for flavor in &queue.flavors {
            own.approximate |= flavor.approximate && !flavor.levels.is_empty();
            own.quotas.extend(flavor.quota.iter().map(|quota| OwnQuota {
                queue: name.clone(),
                flavor: flavor.flavor.clone(),
                href: href(links, &FlavorQuery { flavor: flavor.flavor.clone(), ..query.clone() }),
                resource: quota.resource.clone(),
                used: text::amount(&quota.used),
                // The workloads of a queue that is not active may use nothing.
                available: if queue.active { text::amount(&quota.available) } else { text::NONE.to_owned() },
            }));
            own.gangs.extend(flavor.levels.iter().map(|level| OwnGang {
                queue: name.clone(),
                flavor: flavor.flavor.clone(),
                level: level_name(&level.level),
                pods: text::count(level.largest_gang),
                limited_by: given(&level.limited_by).unwrap_or(text::NONE).to_owned(),
            }));
        }
    }
    own
}

/// Returns the name of a level of a topology in words.
fn level_name(level: &str) -> String {
    given(level).unwrap_or("anywhere").to_owned()
}

fn gang(flavor: &FlavorView, data: &FlavorPage, links: &Links) -> Gang {
    let pod: Vec<String> =
        flavor.pod.iter().map(|need| format!("{} {}", text::amount(&need.amount), need.resource)).collect();
    let row = |level: &LevelView| GangRow {
        level: level_name(&level.level),
        domains: text::count(level.domains),
        most_free: text::amount(&level.most_free),
        location: match (level.location.as_str(), level.more) {
            ("", _) => text::NONE.to_owned(),
            (place, 0) => place.to_owned(),
            (place, more) => format!("{place} (and {} more)", text::count(more)),
        },
        pods: text::count(level.largest_gang),
        limited_by: if level.limited_by.is_empty() {
            text::NONE.to_owned()
        } else {
            level.limited_by.clone()
        },
    };
    let chosen = &data.query.cluster_queue;
    let queues = data.cluster_queues.iter().map(|name| (name.clone(), name == chosen));
    Gang {
        action: links.flavor(&flavor.metadata.name),
        queues: queues.collect(),
        pod: pod.join(", "),
        rows: flavor.levels.iter().map(row).collect(),
        approximate: flavor.approximate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::heat::{HeatBlock, HeatCell, HeatRow};

    fn map(wider: bool, cells: &[(&str, bool)]) -> HeatMap {
        let cell = |(name, schedulable): &(&str, bool)| HeatCell {
            name: (*name).to_owned(),
            schedulable: *schedulable,
            ..HeatCell::default()
        };
        let row = HeatRow { cells: cells.iter().map(cell).collect(), ..HeatRow::default() };
        HeatMap {
            wider,
            blocks: vec![HeatBlock { rows: vec![row], ..HeatBlock::default() }],
            ..HeatMap::default()
        }
    }

    /// Commands name a node that is there, and the pages ask the same; a domain that is no node is in none.
    #[test]
    fn commands_name_a_node_of_the_map() {
        let level = |level: &str| LevelView { level: level.to_owned(), ..LevelView::default() };
        let flavor = |narrowest: &str, approximate: bool| FlavorView {
            levels: vec![level("rack"), level(narrowest)],
            approximate,
            ..FlavorView::default()
        };
        let nodes = [("h1", false), ("h2", true), ("h3", true)];
        for (flavor, map, is_asked) in [
            (flavor(HOSTNAME_LABEL, false), map(false, &nodes), true),
            (flavor("", true), map(false, &nodes), true),
            (flavor("row", false), map(false, &nodes), false),
            (flavor(HOSTNAME_LABEL, false), map(true, &nodes), false),
            (flavor(HOSTNAME_LABEL, false), map(false, &nodes[..1]), false),
        ] {
            let ask = ask_part(Some((&flavor, &map)), &Links::default());
            let shown: Vec<(&str, &str)> =
                ask.questions.iter().map(|asked| (&*asked.command, &*asked.href)).collect();
            let expected = [
                ("sluice what-if --add-nodes 2 --like h2", "/what-if?add=2&like=h2"),
                ("sluice what-if --drain h2", "/what-if?drain=h2"),
            ];
            assert_eq!(shown, expected.iter().copied().filter(|_| is_asked).collect::<Vec<_>>());
            assert_eq!(ask.page, "/what-if");
        }
        assert!(ask_part(None, &Links::default()).questions.is_empty());
    }
}
