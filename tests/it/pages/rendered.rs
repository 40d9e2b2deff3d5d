//! Pages of the dashboard from recorded values: their HTML, what they escape, and that each number is in the JSON of the page.
//! `make expected` writes the expected pages.

use crate::fixtures::recorded_pages::{PAGES, RecordedPage};
use crate::fixtures::written_files::{Written, check_or_write};
use regex::Regex;
use serde_json::{Value, json};
use sluice::dashboard::{
    self, Fragments, Freshness, Links, Message, MinePage, MissingRight, Overview, Request, Scope, changes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const NOW: &str = "2026-11-26T14:05:12Z";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/dashboard")
}

fn named(name: &str) -> &'static RecordedPage {
    PAGES.iter().find(|page| page.name == name).unwrap()
}

fn recorded(name: &str) -> Value {
    named(name).value().unwrap()
}

fn request(path: &str, scope: Scope) -> Request {
    Request {
        path: path.to_owned(),
        user: "ml-admin".to_owned(),
        scope,
        now: NOW.parse().unwrap(),
        ..Request::default()
    }
}

fn tenant() -> Scope {
    Scope::Namespace("nlp-train".to_owned())
}

/// Renders the page with a value.
fn render(name: &str, value: &Value, request: &Request) -> String {
    named(name).with(value.clone()).unwrap().html(request).unwrap()
}

/// All pages and states: name and HTML.
fn pages(links: &Links) -> Vec<(String, String)> {
    let with_links = |request: Request| Request { links: links.clone(), ..request };
    let mut pages = Vec::new();
    for page in &PAGES {
        let (name, path) = (page.name, page.address);
        let is_of_tenant = matches!(name, "namespace" | "what_if_tenant" | "what_if_refused");
        let scope = if is_of_tenant { tenant() } else { Scope::Cluster };
        let request = with_links(request(path, scope));
        pages.push((name.to_owned(), render(name, &recorded(name), &request)));
    }
    let overview = recorded("overview");
    for (name, freshness) in [
        ("overview_stale", Freshness::SilentSince("2026-11-26T14:02:11Z".parse().unwrap())),
        ("overview_without_leader", Freshness::WithoutLeader),
    ] {
        let request = with_links(Request { freshness, ..request("/", Scope::Cluster) });
        pages.push((name.to_owned(), render("overview", &overview, &request)));
    }
    let nothing = serde_json::json!(Overview::default());
    let empty = with_links(request("/", Scope::Cluster));
    pages.push(("overview_empty".to_owned(), render("overview", &nothing, &empty)));
    let anonymous = with_links(Request { user: String::new(), ..request("/login", Scope::Nothing) });
    pages.push(("login".to_owned(), dashboard::login(&anonymous, "/", "", "sluice-dashboard").unwrap()));
    let refusal = "The token is not valid for the audience sluice-dashboard, or it has expired.";
    pages.push((
        "login_refused".to_owned(),
        dashboard::login(&anonymous, "/pending?cq=nlp", refusal, "sluice-dashboard").unwrap(),
    ));
    let tenant = with_links(Request {
        user: "nlp-user".to_owned(),
        namespaces: vec!["nlp-train".to_owned(), "speechlab".to_owned()],
        ..request("/clusterqueues/nlp", tenant())
    });
    let missing = MissingRight {
        page: "ClusterQueue nlp".to_owned(),
        right: "list clusterqueueviews".to_owned(),
        namespace: String::new(),
    };
    pages.push(("forbidden".to_owned(), dashboard::forbidden(&tenant, &missing).unwrap()));
    let message = Message {
        heading: "Not found".to_owned(),
        text: "There is no ClusterQueue nlpx.".to_owned(),
        similar: vec![("nlp".to_owned(), links.cluster_queue("nlp"))],
    };
    pages.push(("not_found".to_owned(), dashboard::message(&empty, &message).unwrap()));
    let newcomer = Request { path: "/mine".to_owned(), scope: Scope::Nothing, ..tenant };
    let nothing = json!(MinePage::default());
    pages.push(("mine_nothing".to_owned(), render("mine", &nothing, &newcomer)));
    pages
}

/// Returns a page without the hash of its files, which changes with them.
fn without_hash(html: &str) -> String {
    Regex::new("/assets/[0-9a-f]{16}/").unwrap().replace_all(html, "/assets/HASH/").into_owned()
}

#[test]
fn expected_pages() {
    let pages = pages(&Links::default());
    let wanted: BTreeMap<PathBuf, String> = pages
        .into_iter()
        .map(|(name, html)| (folder().join(format!("golden/{name}.html")), without_hash(&html)))
        .collect();
    let files = std::fs::read_dir(folder().join("golden")).unwrap();
    let left: Vec<_> =
        files.map(|entry| entry.unwrap().path()).filter(|path| !wanted.contains_key(path)).collect();
    assert!(left.is_empty(), "without a page: {left:?}");
    check_or_write(Written::Expected, wanted);
}

/// Returns the texts of a page and of its labels, without those of `<time>`, whose point in time is in the JSON instead.
fn texts(html: &str) -> String {
    let (_, main) = html.split_once("<main").unwrap();
    let (main, _) = main.split_once("</main>").unwrap();
    // The scale of a chart and its points in time are drawn from the values, and are none of them; nor is the period of the history.
    let chart = Regex::new("(?s)<figure.*?</figure>").unwrap();
    let main = chart.replace_all(main, "").replace("24 h", "a day ");
    // A change that a command proposes is none of the values.
    let command = Regex::new("<code class=\"cmd\" tabindex=\"0\">sluice what-if [^<]*</code>").unwrap();
    let main = command.replace_all(&main, "");
    // The name of an API group in a command.
    let main = main.replace(".x-k8s.io", "");
    let main = main.as_str();
    let time = Regex::new("(?s)<time datetime=\"([^\"]*)\">.*?</time>").unwrap();
    let main = time.replace_all(main, " $1 ").into_owned();
    let labels: Vec<String> = Regex::new("aria-label=\"([^\"]*)\"")
        .unwrap()
        .captures_iter(&main)
        .map(|found| found[1].to_owned())
        .collect();
    let text = Regex::new("(?s)<[^>]*>").unwrap().replace_all(&main, " ").into_owned();
    format!("{text} {}", labels.join(" "))
}

/// The command lists the whole cluster, and refuses readers of a namespace. Their page says so, and no other page sends them to it.
#[test]
fn readers_of_a_namespace_learn_which_account_what_if_needs() {
    for (scope, is_tenant) in [(Scope::Cluster, false), (tenant(), true)] {
        let request = request("/what-if", scope);
        let page = render("what_if", &recorded("what_if"), &request);
        assert_eq!(page.contains("The command needs an account that may list"), is_tenant, "{page}");
        let workload = render("workload", &recorded("workload"), &request);
        assert_eq!(workload.contains(">sluice what-if "), !is_tenant, "{workload}");
        assert!(workload.contains("Ask on a page"), "{workload}");
    }
}

#[test]
fn rates_are_rounded() {
    let mut value = recorded("overview");
    value["manager"]["decisions"]["admissionsPerMinute"] = Value::from(0.765_200_511_785_560_8);
    let html = render("overview", &value, &request("/", Scope::Cluster));
    assert!(html.contains("<dt>Admissions</dt><dd>0.8<"), "not rounded");
}

#[test]
fn each_number_of_a_page_is_in_its_json() {
    let number = Regex::new(r"\d[\d,]*(\.\d+)?").unwrap();
    let digits = Regex::new(r"\d+(\.\d+)?").unwrap();
    for page in &PAGES {
        let (name, path) = (page.name, page.address);
        let value = recorded(name);
        let html = render(name, &value, &request(path, Scope::Cluster));
        // The value as the page reads it: what it does not read is no source of a number.
        let json = page.with(value).unwrap().json().unwrap();
        let known: BTreeSet<&str> = digits.find_iter(&json).map(|n| n.as_str()).collect();
        let mut unknown = Vec::new();
        let text = texts(&html).replace("&#39;", "'").replace("&quot;", "\"");
        for found in number.find_iter(&text) {
            let digits = found.as_str().trim_end_matches(',').replace(',', "");
            if !known.contains(digits.as_str()) {
                let start = found.start().saturating_sub(40);
                let context: String = text.chars().skip(text[..start].chars().count()).take(70).collect();
                unknown.push(format!("{digits} in {context:?}"));
            }
        }
        assert!(unknown.is_empty(), "{name}: {unknown:#?}");
    }
}

/// Calls `change` with each string of a value.
fn each_string(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_string(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_string(field, change)),
        _ => {}
    }
}

const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'\u{202e}\u{2066}\u{0}--><!--live:lede-->&lt;/main>";

#[test]
fn markup_and_direction_marks_in_any_text_are_shown_as_text() {
    let mut replaced = 0;
    let addresses = Regex::new("(?:href|action|src|data-events)=\"([^\"]*)\"").unwrap();
    for page in &PAGES {
        let (name, path) = (page.name, page.address);
        let value = recorded(name);
        let mut count = 0;
        each_string(&mut value.clone(), &mut |_| count += 1);
        let plain = render(name, &value, &request(path, Scope::Cluster));
        let (tags, live) = (plain.matches('<').count(), plain.matches("<!--live:").count());
        let mut everywhere = value.clone();
        for index in 0..count {
            let mut one = everywhere.clone();
            let mut at = 0;
            each_string(&mut one, &mut |text| {
                if at == index {
                    HOSTILE.clone_into(text);
                }
                at += 1;
            });
            // Not where the text is a word of the API.
            if page.with(one.clone()).is_ok() {
                everywhere = one;
                replaced += 1;
            }
        }
        let hostile_request =
            Request { user: HOSTILE.to_owned(), ..request(path, Scope::Namespace(HOSTILE.to_owned())) };
        let html = render(name, &everywhere, &hostile_request);
        assert!(!html.contains("<img") && !html.contains("onerror=alert(1)>"), "{name}");
        for hidden in ['\u{202e}', '\u{2066}', '\u{0}'] {
            assert!(!html.contains(hidden), "{name}: {hidden:?}");
        }
        assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;[U+202E][U+2066]"), "{name}");
        // Rows and parts vary with what the words mean, but no tag comes from a text. With the name of a flavor, the page of all
        // becomes that of one, and the page of usage has a table for each resource.
        assert!(
            matches!(name, "flavors" | "usage")
                || html.matches("<!--live:").count() <= live && html.matches('<').count() <= tags + 60,
            "{name}"
        );
        for attribute in addresses.captures_iter(&html) {
            let address = &attribute[1];
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%?=;&#".contains(c);
            assert!(address.starts_with(['/', '#']) && address.chars().all(plain), "{name}: {address}");
        }
    }
    assert!(replaced > 300, "{replaced} texts");
}

/// Tests in a browser show each page with the longest names, and look whether it is wider than its window. A pointer to nothing would
/// change nothing there.
#[test]
fn each_page_has_names_that_tests_make_longer() {
    let mut hidden = Vec::new();
    let name = "a-very-long-name-".repeat(20);
    let name = &name[..253];
    for page in &PAGES {
        assert!(!page.names.is_empty(), "{} has no names", page.name);
        let plain = render(page.name, &page.value().unwrap(), &request(page.address, Scope::Cluster));
        for pointer in page.names {
            let mut value = page.value().unwrap();
            let text = value.pointer_mut(pointer).filter(|text| text.is_string());
            *text.unwrap_or_else(|| panic!("{}: {pointer} is no text", page.name)) = name.into();
            let html = render(page.name, &value, &request(page.address, Scope::Cluster));
            hidden.extend((html == plain).then(|| format!("{}: {pointer}", page.name)));
        }
    }
    assert!(hidden.is_empty(), "not shown: {hidden:?}");
}

/// Places of pods are keys of the value, which come from labels of nodes.
#[test]
fn markup_in_names_of_places_is_shown_as_text() {
    let mut value = recorded("workload_running");
    let pod_set = &mut value["admission"]["podSets"][0];
    for places in ["domains", "nodes"] {
        pod_set[places] = serde_json::json!({HOSTILE: 1, "/": 2, "": 3});
    }
    let html = render("workload_running", &value, &request("/workloads/rank/x", Scope::Cluster));
    assert!(!html.contains("<img") && !html.contains("onerror=alert(1)>"), "{html}");
    assert_eq!(html.matches("&lt;img src=x").count(), 2, "{html}");
}

#[test]
fn a_user_name_of_a_kilobyte_is_shown_as_text() {
    let user = format!("system:serviceaccount:a:{}", "<u>/\r\n\"".repeat(170));
    for page in &PAGES {
        let request = Request { user: user.clone(), ..request(page.address, Scope::Cluster) };
        let html = render(page.name, &recorded(page.name), &request);
        assert!(!html.contains("<u>"), "{}", page.name);
        let (_, named) = html.split_once("<span class=\"user\" title=\"").unwrap();
        let (title, shown) = named.split_once("\">").unwrap();
        assert!(title.starts_with("system:serviceaccount:a:&lt;u&gt;/"), "{}: {title}", page.name);
        assert!(shown.starts_with("&lt;u&gt;/"), "{}", page.name);
    }
}

#[test]
fn all_addresses_have_the_path_prefix() {
    let plain = pages(&Links::default());
    let address = Regex::new("(href|action|src|data-events)=\"([^\"]*)\"").unwrap();
    for ((name, html), (_, without)) in pages(&Links::below("/a/b").unwrap()).iter().zip(&plain) {
        for found in address.captures_iter(html) {
            assert!(found[2].starts_with("/a/b/") || found[2].starts_with('#'), "{name}: {}", &found[0]);
        }
        assert_eq!(html.replace("=\"/a/b/", "=\"/"), *without, "{name}: nothing else differs");
    }
}

#[test]
fn pages_hold_to_the_rules_of_all_pages() {
    let heading = Regex::new("<h([1-6])").unwrap();
    let id = Regex::new(" id=\"([^\"]*)\"").unwrap();
    let label = Regex::new("aria-labelledby=\"([^\"]*)\"").unwrap();
    for (name, html) in pages(&Links::default()) {
        assert_eq!(html.matches("<h1").count(), 1, "{name}");
        for forbidden in [" style=", "<style", " onclick", "javascript:", "<script>"] {
            assert!(!html.contains(forbidden), "{name}: {forbidden}");
        }
        let (_, main) = html.split_once("<main").unwrap();
        let mut last = 1;
        for found in heading.captures_iter(main) {
            let level: u32 = found[1].parse().unwrap();
            assert!(level <= last + 1, "{name}: h{level} after h{last}");
            last = level;
        }
        for table in html.split("<table").skip(1) {
            let named = table.split_once('>').unwrap().0.contains("aria-labelledby=");
            assert!(named || table.contains("<caption"), "{name}: a table without a name");
        }
        let ids: Vec<&str> = id.captures_iter(&html).map(|found| found.get(1).unwrap().as_str()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{name}: an id twice: {ids:?}");
        for found in label.captures_iter(&html) {
            assert!(ids.contains(&found.get(1).unwrap().as_str()), "{name}: {}", &found[0]);
        }
        assert!(html.len() < 150_000, "{name}: {} bytes", html.len());
    }
}

/// Returns a recorded value with a list of this many rows, made of those that it has under names of their own.
fn with_rows(name: &str, list: &str, count: usize) -> Value {
    let mut value = recorded(name);
    let rows = value[list].as_array().unwrap().clone();
    let many = (0..count).map(|number| {
        let mut row = rows[number % rows.len()].clone();
        let uid = format!("f81d4fae-7dec-11d0-a765-00a0c91e{number:04}");
        for object in ["metadata", "victim"] {
            if row.get(object).is_some() {
                row[object]["uid"] = uid.as_str().into();
            }
        }
        row
    });
    value[list] = many.collect();
    value
}

/// Bytes of a page, and of what is sent of it.
fn sizes(html: &str) -> (usize, usize) {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, html.as_bytes()).unwrap();
    (html.len(), encoder.finish().unwrap().len())
}

#[test]
fn the_longest_pages_are_small() {
    for (name, list, count, path, bounds) in [
        ("pending", "items", 50, "/pending", (60_000, 12_000)),
        ("pending", "items", 200, "/pending?limit=200", (150_000, 64_000)),
        ("preemptions", "items", 200, "/preemptions?limit=200", (150_000, 64_000)),
        ("namespace", "workloads", 20, "/namespaces/nlp-train", (60_000, 12_000)),
    ] {
        let html = render(name, &with_rows(name, list, count), &request(path, Scope::Cluster));
        let size = sizes(&html);
        println!("{name}, {count} rows: {size:?} bytes");
        assert!(size.0 < bounds.0 && size.1 < bounds.1, "{name}, {count} rows: {size:?}");
    }
    let mut overview = recorded("overview");
    let queues = overview["clusterQueues"].as_array().unwrap().clone();
    // Rows that borrow up to a limit, and rows that lend, lack quota or do neither as well.
    for kinds in [&queues[1..2], &queues[..]] {
        let many = (0..600).map(|number| {
            let mut queue = kinds[number % kinds.len()].clone();
            queue["metadata"]["name"] = format!("team-{number:03}-batch").into();
            queue
        });
        overview["clusterQueues"] = many.collect();
        let html = render("overview", &overview, &request("/", Scope::Cluster));
        let size = sizes(&html);
        println!("overview, 500 rows: {size:?} bytes");
        assert_eq!(html.matches("<svg role=none>").count(), 500, "each row has its bar");
        assert!(size.0 < 150_000 && size.1 < 64_000, "overview: {size:?}");
    }
}

#[test]
fn of_many_local_queues_those_with_the_most_workloads_are_shown() {
    let mut value = recorded("namespace");
    let known = value["localQueues"][0].clone();
    let queue = |number: u64| {
        let mut queue = known.clone();
        queue["metadata"]["name"] = format!("queue-{number:04}").into();
        queue["pending"]["total"] = (number % 500).into();
        queue["admitted"] = 0.into();
        queue
    };
    value["localQueues"] = (0..1_000).map(queue).collect();
    let html = render("namespace", &value, &request("/namespaces/nlp-train", tenant()));
    assert!(html.contains("The LocalQueues with the most workloads are shown."));
    assert!(html.contains("queue-0499<") && html.contains("queue-0999<") && !html.contains("queue-0449<"));
    assert!(html.len() < 250_000, "{} bytes", html.len());
}

/// The stream sends the parts that have changed, and the names of the workloads on the nodes are such a part, from none to some and back.
/// A viewer that may read none of its namespaces gets the way to one; a reader of the cluster, or of a namespace, the empty lists.
#[test]
fn a_page_of_own_workloads_without_a_namespace_leads_to_one() {
    let nothing = json!(MinePage::default());
    for (scope, leads) in [(Scope::Nothing, true), (Scope::Cluster, false), (tenant(), false)] {
        let html = render("mine", &nothing, &request("/mine", scope.clone()));
        assert_eq!(html.contains("action=\"/namespaces\""), leads, "{scope:?}");
        assert_eq!(html.contains("There is nothing in them that you submitted."), leads, "{scope:?}");
        assert_eq!(html.contains("id=\"facts\""), !leads, "{scope:?}");
    }
    // With rows in several namespaces there is no namespace of the view, either.
    let html = render("mine", &recorded("mine"), &request("/mine", Scope::Nothing));
    assert!(html.contains("id=\"facts\"") && !html.contains("action=\"/namespaces\""));
}

#[test]
fn workloads_on_nodes_are_a_live_part() {
    let there = recorded("flavor");
    let mut gone = there.clone();
    for block in gone["map"]["blocks"].as_array_mut().unwrap() {
        for row in block["rows"].as_array_mut().unwrap() {
            row["cells"].as_array_mut().unwrap().iter_mut().for_each(|cell| cell["workloads"] = json!([]));
        }
    }
    let html = |value: &Value| render("flavor", value, &request("/flavors/h100-80g", Scope::Cluster));
    let name = "rank/job-ranker-daily-77ac2";
    for (before, after, is_shown) in [(&there, &gone, false), (&gone, &there, true)] {
        let changed = changes(&mut Fragments::of(&html(before)), &html(after));
        let (_, part) = changed.iter().find(|(id, _)| id == "occupied").expect("a part that changes");
        assert_eq!(part.contains(name), is_shown, "{part}");
    }
}
