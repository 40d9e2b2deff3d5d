//! Addresses of pages. The whole state of a page is in its address.
//!
//! Invariants: an address that is parsed and written again names the same page; a parameter that no page has is an error that
//! names it.

use super::audit::AuditQuery;
use super::cluster_queue::ClusterQueueQuery;
use super::data::{OverviewQuery, PendingQuery};
use super::flavors::FlavorQuery;
use super::links::Links;
use super::mine::MineQuery;
use super::namespace::NamespaceQuery;
use super::page::AddressedPage;
use super::preemptions::PreemptionFilter;
use super::usage::UsageFilter;
use super::what_if_query::{LISTS, WhatIfQuery};
use super::workload::WhenQuery;
use super::workload_before::BeforeQuery;
use super::workload_list::{ListedState, WorkloadListQuery};
use crate::snapshot::JobName;
use crate::visibility::pending_list::ListOrder;
use crate::visibility::questions::WorkloadName;

/// A page as its address names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageQuestion {
    /// The tree of all cohorts, or the subtree of one.
    Overview(OverviewQuery),
    /// A ClusterQueue.
    ClusterQueue(ClusterQueueQuery),
    /// A Workload.
    Workload(WorkloadName),
    /// A Workload, with an estimate of when it may be admitted.
    When(WhenQuery),
    /// A Workload, compared with another one.
    Before(BeforeQuery),
    /// The Workload of a job.
    Job(JobName),
    /// Pending workloads.
    Pending(PendingQuery),
    /// Workloads that have quota, or have finished.
    Workloads(WorkloadListQuery),
    /// Findings.
    Audit(AuditQuery),
    /// Flavors, or one of them.
    Flavors(FlavorQuery),
    /// Preemptions.
    Preemptions(PreemptionFilter),
    /// Usage in a period.
    Usage(UsageFilter),
    /// A namespace.
    Namespace(NamespaceQuery),
    /// What a change would do.
    WhatIf(WhatIfQuery),
    /// What the viewer submitted.
    Mine(MineQuery),
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A page.
    #[default]
    Html,
    /// The value of the page.
    Json,
    /// The rows of a list.
    Csv,
}

/// Why an address names no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAddress {
    /// There is no such page.
    NoPage,
    /// A parameter is invalid; the text names it.
    Parameter(String),
}

/// Most rows of a list.
pub const MAX_ROWS: u64 = 200;
/// Rows of a list without `limit`.
pub const DEFAULT_ROWS: u64 = 50;
/// Longest parameter, in bytes.
const MAX_PARAMETER: usize = 2_048;

/// Decodes a part of an address; `None` if it is not UTF-8.
pub fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (rest.next()?, rest.next()?);
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(high)? * 16 + digit(low)?
            }
            b'+' if plus_is_space => b' ',
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Reads `a=b&c=d`, as browsers write forms.
///
/// # Errors
/// A parameter is not UTF-8, or too long; the text names it.
pub fn parameters(query: &str) -> Result<Vec<(String, String)>, String> {
    let mut all = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name, true).unwrap_or_default();
        let value = decode(value, true).filter(|value| value.len() <= MAX_PARAMETER);
        let value = value.ok_or_else(|| format!("parameter {name:?} is too long or no text"))?;
        all.push((name, value));
    }
    Ok(all)
}

/// Joins the values of the parameters that are lists of words, such as the values of several fields of a form.
///
/// # Errors
/// Another parameter is given twice: either value alone would answer another question than was asked.
fn joined(all: Vec<(String, String)>) -> Result<Vec<(String, String)>, String> {
    let mut found: Vec<(String, String)> = Vec::with_capacity(all.len());
    for (name, value) in all {
        match found.iter_mut().find(|(known, _)| *known == name) {
            None => found.push((name, value)),
            Some((_, words)) if LISTS.contains(&name.as_str()) => {
                words.push(' ');
                words.push_str(&value);
            }
            // A form with a hidden field sends the value of the address once more.
            Some((_, known)) if *known == value => {}
            Some(_) => return Err(format!("{name}: it is given twice, and takes one value")),
        }
    }
    Ok(found)
}

impl PageQuestion {
    /// Reads path and query of an address, below the path prefix.
    ///
    /// # Errors
    /// There is no such page, or a parameter is invalid.
    pub fn parse(address: &str) -> Result<(Self, Form), BadAddress> {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        if !path.starts_with('/') {
            return Err(BadAddress::NoPage);
        }
        let parameters = parameters(query).map_err(BadAddress::Parameter)?;
        let parameters = joined(parameters).map_err(BadAddress::Parameter)?;
        let value = |wanted: &str| {
            let found = parameters.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let form = match value("o").as_str() {
            "" | "html" => Form::Html,
            "json" => Form::Json,
            "csv" => Form::Csv,
            other => return Err(BadAddress::Parameter(format!("o: {other:?} is not json, csv or html"))),
        };
        let decoded: Option<Vec<String>> =
            path.trim_matches('/').split('/').map(|segment| decode(segment, false)).collect();
        let segments = decoded.ok_or(BadAddress::NoPage)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let question = match segments.as_slice() {
            [""] => Self::Overview(OverviewQuery { cohort: String::new(), fr: value("fr") }),
            ["cohorts", name] if !name.is_empty() => {
                Self::Overview(OverviewQuery { cohort: (*name).to_owned(), fr: value("fr") })
            }
            ["clusterqueues", name] if !name.is_empty() => {
                Self::ClusterQueue(ClusterQueueQuery { name: (*name).to_owned() })
            }
            ["workloads", namespace, name] => {
                let name = WorkloadName { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
                workload(name, &value)?
            }
            ["jobs", namespace, kind, name] => Self::Job(JobName {
                namespace: (*namespace).to_owned(),
                kind: (*kind).to_owned(),
                name: (*name).to_owned(),
            }),
            ["namespaces", name] if !name.is_empty() => {
                Self::Namespace(NamespaceQuery { name: (*name).to_owned() })
            }
            ["pending"] => Self::Pending(pending(&value)?),
            ["admitted"] => Self::Workloads(workload_list(ListedState::Admitted, &value)?),
            ["finished"] => Self::Workloads(workload_list(ListedState::Finished, &value)?),
            ["audit"] => Self::Audit(audit(&value)?),
            ["flavors"] => Self::Flavors(flavors("", &value)),
            ["flavors", name] if !name.is_empty() => Self::Flavors(flavors(name, &value)),
            ["preemptions"] => Self::Preemptions(PreemptionFilter {
                cluster_queue: value("cq"),
                preemptor_queue: value("by"),
                victim_queue: value("of"),
                namespace: value("ns"),
                after: value("after"),
                limit: limit(&value)?,
            }),
            ["usage"] => Self::Usage(usage(&value)?),
            ["what-if"] => Self::WhatIf(WhatIfQuery::read(&value).map_err(BadAddress::Parameter)?),
            ["mine"] => Self::Mine(MineQuery { namespace: value("ns"), user: String::new() }),
            _ => return Err(BadAddress::NoPage),
        };
        Ok((question, form))
    }

    /// Returns path and query of the page below the path prefix.
    pub fn address(&self) -> String {
        self.page().href(&Links::default())
    }

    /// Returns the question for the same page without what is computed once, when the page is opened.
    #[must_use]
    pub fn updated(self) -> Self {
        match self {
            Self::When(page) => Self::Workload(page.workload),
            Self::Before(page) => Self::Workload(page.workload),
            other => other,
        }
    }

    /// Returns the page that the address names.
    pub fn page(&self) -> &dyn AddressedPage {
        match self {
            Self::Overview(page) => page,
            Self::ClusterQueue(page) => page,
            Self::Workload(page) => page,
            Self::When(page) => page,
            Self::Before(page) => page,
            Self::Job(page) => page,
            Self::Pending(page) => page,
            Self::Workloads(page) => page,
            Self::Audit(page) => page,
            Self::Flavors(page) => page,
            Self::Preemptions(page) => page,
            Self::Usage(page) => page,
            Self::Namespace(page) => page,
            Self::WhatIf(page) => page,
            Self::Mine(page) => page,
        }
    }

    /// Returns the page of what the viewer submitted.
    pub fn mine() -> Self {
        Self::Mine(MineQuery::default())
    }

    /// Returns whether this is the start page.
    pub fn is_start(&self) -> bool {
        matches!(self, Self::Overview(query) if query.cohort.is_empty())
    }

    /// Returns the question as a viewer asks it: the page of what the viewer submitted is another one for each.
    #[must_use]
    pub fn for_viewer(self, user: &str) -> Self {
        match self {
            Self::Mine(query) => Self::Mine(MineQuery { user: user.to_owned(), ..query }),
            other => other,
        }
    }

    /// Returns the name of the viewer, if the answer is for this viewer alone; empty if all viewers with the same access get the same one.
    pub fn viewer(&self) -> &str {
        if let Self::Mine(query) = self { &query.user } else { "" }
    }
}

/// Reads the page of a Workload: alone, with an estimate, or compared with another one.
fn workload(workload: WorkloadName, value: &impl Fn(&str) -> String) -> Result<PageQuestion, BadAddress> {
    let (when, before) = (value("when"), value("before"));
    let is_estimated = match when.as_str() {
        "" | "0" | "false" => false,
        "1" | "true" => true,
        other => return Err(BadAddress::Parameter(format!("when: {other:?} is neither 1 nor 0"))),
    };
    match (is_estimated, before.as_str()) {
        (false, "") => Ok(PageQuestion::Workload(workload)),
        (true, "") => Ok(PageQuestion::When(WhenQuery { workload })),
        (false, other) => {
            let other = WorkloadName::parse(other, &workload.namespace);
            Ok(PageQuestion::Before(BeforeQuery { workload, other }))
        }
        (true, _) => Err(BadAddress::Parameter("before: it is asked without when".to_owned())),
    }
}

fn flavors(name: &str, value: &impl Fn(&str) -> String) -> FlavorQuery {
    FlavorQuery {
        flavor: name.to_owned(),
        pod: value("pod"),
        cluster_queue: value("cq"),
        namespace: value("ns"),
    }
}

fn audit(value: &impl Fn(&str) -> String) -> Result<AuditQuery, BadAddress> {
    let query = AuditQuery { severity: value("severity"), check: value("check"), namespace: value("ns") };
    query.unknown().map_or(Ok(query), |text| Err(BadAddress::Parameter(text)))
}

fn usage(value: &impl Fn(&str) -> String) -> Result<UsageFilter, BadAddress> {
    let (by, since, resource, namespace) = (value("by"), value("since"), value("res"), value("ns"));
    let query = UsageFilter { by, since, resource, namespace };
    query.group().map_err(|text| BadAddress::Parameter(format!("by: {text}")))?;
    Ok(query)
}

/// Reads the number of rows; 0 if there is none.
fn limit(value: &impl Fn(&str) -> String) -> Result<u64, BadAddress> {
    let text = value("limit");
    if text.is_empty() {
        return Ok(0);
    }
    let number: Result<u64, _> = text.parse();
    let number = number.map_err(|_| BadAddress::Parameter(format!("limit: {text:?} is not a number")))?;
    Ok(number.clamp(1, MAX_ROWS))
}

fn workload_list(
    list: ListedState,
    value: &impl Fn(&str) -> String,
) -> Result<WorkloadListQuery, BadAddress> {
    let query = WorkloadListQuery {
        list,
        cluster_queue: value("cq"),
        namespace: value("ns"),
        local_queue: value("lq"),
        q: value("q"),
        after: value("after"),
        limit: limit(value)?,
    };
    if !query.local_queue.is_empty() && query.namespace.is_empty() {
        return Err(BadAddress::Parameter("lq: a LocalQueue needs a namespace (ns)".to_owned()));
    }
    Ok(query)
}

fn pending(value: &impl Fn(&str) -> String) -> Result<PendingQuery, BadAddress> {
    let all_means_none = |text: String| if text == "all" { String::new() } else { text };
    let query = PendingQuery {
        cluster_queue: all_means_none(value("cq")),
        namespace: all_means_none(value("ns")),
        local_queue: value("lq"),
        cohort: all_means_none(value("cohort")),
        reason: value("reason"),
        min: value("min"),
        q: value("q"),
        sort: value("sort"),
        after: value("after"),
        limit: limit(value)?,
    };
    ListOrder::parse(&query.sort).map_err(|text| BadAddress::Parameter(format!("sort: {text}")))?;
    if !query.local_queue.is_empty() && query.namespace.is_empty() {
        return Err(BadAddress::Parameter("lq: a LocalQueue needs a namespace (ns)".to_owned()));
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(address: &str) -> PageQuestion {
        PageQuestion::parse(address).unwrap().0
    }

    #[test]
    fn addresses_ask_and_are_written_again() {
        for (address, namespace) in [
            ("/", None),
            ("/?fr=h100%3Agpu", None),
            ("/cohorts/ai", None),
            ("/cohorts/a%2Fb?fr=h100%3Agpu", None),
            ("/clusterqueues/a%2Fb", None),
            ("/workloads/ns/w", Some("ns")),
            ("/workloads/ns/a%2Fb?when=1", Some("ns")),
            ("/workloads/ns/a?before=b", Some("ns")),
            ("/workloads/ns/a?before=other%2Fb", Some("ns")),
            ("/jobs/ns/job.batch/x%2Fy", Some("ns")),
            ("/namespaces/ns", Some("ns")),
            ("/mine", None),
            ("/mine?ns=a", Some("a")),
            ("/pending", None),
            ("/admitted", None),
            ("/finished?cq=a&ns=b&lq=c&q=x&limit=20&after=k", Some("b")),
            ("/flavors", None),
            ("/flavors/a%2Fb?pod=gpu%3D8&cq=c", None),
            ("/flavors?pod=gpu%3D8", None),
            ("/flavors/a?ns=b", Some("b")),
            ("/audit", None),
            ("/audit?severity=error&check=cohort-cycle&ns=a", Some("a")),
            ("/preemptions", None),
            ("/preemptions?cq=a&by=c&of=d&ns=b&limit=20&after=k", Some("b")),
            ("/usage", None),
            ("/what-if", None),
            ("/what-if?add=2&like=h1&drain=h2%20h3&for=1h", None),
            ("/what-if?ns=b&stop=job%2Fx&queue=lq&pods=4&pod=cpu%3D1&topology=any", Some("b")),
            ("/usage?by=flavor&since=7d&res=nvidia.com%2Fgpu&ns=b", Some("b")),
            (
                "/pending?cq=a&ns=b&lq=c&cohort=d&reason=stuck&min=gpu%3D8&q=x%20y&sort=size&limit=20&after=k",
                Some("b"),
            ),
        ] {
            let question = asked(address);
            assert_eq!(question.page().namespace(), namespace, "{address}");
            assert_eq!(question.address(), address);
            assert_eq!(asked(&question.address()), question);
        }
        assert_eq!(asked("/workloads/ns/w?when=1").updated(), asked("/workloads/ns/w"));
        assert_eq!(asked("/workloads/ns/w?before=b").updated(), asked("/workloads/ns/w"));
        assert_eq!(asked("/workloads/ns/w?before=ns%2Fb"), asked("/workloads/ns/w?before=b"));
        assert_eq!(asked("/workloads/ns/w?before="), asked("/workloads/ns/w"));
        for (value, same) in [("true", "?when=1"), ("false", ""), ("0", "")] {
            // The aggregated API says true and false, and addresses are copied from one to the other.
            assert_eq!(
                asked(&format!("/workloads/ns/w?when={value}")),
                asked(&format!("/workloads/ns/w{same}"))
            );
        }
        assert_eq!(asked("/pending?cq=all&ns=all"), asked("/pending"));
        for list in ["drain", "quota", "borrow", "lend", "priority", "stop", "delete"] {
            let value = |name: &str| match list {
                "drain" => name.to_owned(),
                "priority" => format!("job%2F{name}%3D1"),
                "stop" | "delete" => format!("job%2F{name}"),
                _ => format!("{name}%3Af%3Acpu%3D1"),
            };
            let (one, two) = (value("a"), value("b"));
            let twice = asked(&format!("/what-if?ns=x&{list}={one}&{list}={two}"));
            assert_eq!(twice, asked(&format!("/what-if?ns=x&{list}={one}+{two}")), "{list}");
        }
        assert_eq!(asked("/pending?cq=a&cq=a"), asked("/pending?cq=a"));
        let mine = asked("/mine?user=eve").for_viewer("ann/\n<b>");
        assert_eq!((mine.viewer(), mine.address().as_str()), ("ann/\n<b>", "/mine"));
        assert_eq!(
            (asked("/mine?user=eve").viewer(), asked("/pending").for_viewer("ann").viewer()),
            ("", "")
        );
        assert_eq!(asked("/pending?limit=5000").address(), "/pending?limit=200");
        assert_eq!(PageQuestion::parse("/pending?o=csv").unwrap().1, Form::Csv);
        assert_eq!(decode("a+b%20c", true).unwrap(), "a b c");
    }

    #[test]
    fn other_addresses_are_refused() {
        for address in [
            "/x",
            "/clusterqueues/",
            "/workloads/a",
            "/clusterqueues/%ff",
            "/clusterqueues/%4",
            "/pending/x",
            "",
            "pending",
        ] {
            assert_eq!(PageQuestion::parse(address), Err(BadAddress::NoPage), "{address}");
        }
        for (address, named) in [
            ("/?o=xml", "o:"),
            ("/pending?limit=many", "limit:"),
            ("/preemptions?limit=-1", "limit:"),
            ("/pending?lq=a", "lq:"),
            ("/workloads/ns/w?when=now", "when:"),
            ("/workloads/ns/w?when=1&before=b", "before: it is asked without when"),
            ("/admitted?lq=a", "lq:"),
            ("/usage?by=user", "by: unknown group"),
            ("/what-if?add=1000000&like=h1", "add: a number from 1 to 5000"),
            ("/pending?sort=name", "sort: unknown order"),
            ("/audit?severity=bad", "severity:"),
            ("/audit?check=none", "check:"),
            ("/pending?q=%ff", "\"q\""),
            ("/what-if?add=1&like=h1&add=2", "add: it is given twice"),
            ("/pending?cq=a&cq=b", "cq: it is given twice"),
            ("/flavors?pod=cpu%3D1&pod=cpu%3D2&o=csv", "pod: it is given twice"),
            ("/pending?o=csv&o=json", "o: it is given twice"),
        ] {
            let Err(BadAddress::Parameter(text)) = PageQuestion::parse(address) else { panic!("{address}") };
            assert!(text.contains(named), "{text}");
        }
        let long = format!("/pending?q={}", "x".repeat(3_000));
        assert!(PageQuestion::parse(&long).is_err());
    }
}
