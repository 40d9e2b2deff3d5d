//! The table of addresses as tenants ask for them is whole, and the server answers each as it says: with the access to the own
//! namespace alone, or with the right that is missing and without a question to the state.

use crate::fixtures::dashboard_server::{Fixture, stream};
use crate::fixtures::manifests::root;
use crate::fixtures::tenant_names::NAMES;
use crate::fixtures::tenant_routes::{TENANT_ROUTES, TenantAnswer, TenantRoute};
use crate::pages::registers::{name_of, questions};
use http::StatusCode;
use regex::Regex;
use sluice::dashboard::{ObjectName, PageQuestion, encode};
use sluice::visibility::access::{Access, TenantDetail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Routes of the server, each with what covers it for tenants: the table, or that it shows nothing of the state.
const ROUTES: [(&str, &str); 9] = [
    ("/healthz", "no state"),
    ("/assets/{hash}/{name}", "no state"),
    ("/login", "no state"),
    ("/logout", "no state"),
    ("/namespaces", "no state: it leads to the page of a namespace"),
    ("/events", "the stream of each address of the table"),
    ("/objects/{*name}", "the table"),
    ("/", "the table"),
    ("/{*path}", "the table"),
];

fn text_of(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// Returns the part of a text between two others.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{start:?} is missing"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end:?} is missing")).0
}

fn captures<'a>(pattern: &str, text: &'a str) -> BTreeSet<&'a str> {
    let pattern = Regex::new(pattern).unwrap();
    pattern.captures_iter(text).map(|found| found.get(1).unwrap().as_str()).collect()
}

fn question(route: &TenantRoute) -> PageQuestion {
    let address = route.address(&NAMES);
    let object = ObjectName::parse(&address).map(|name| name.page());
    object.unwrap_or_else(|| PageQuestion::parse(&address).unwrap().0)
}

#[test]
fn each_page_has_rows_of_both_tenants_or_is_of_the_cluster() {
    let mut asked: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for route in &TENANT_ROUTES {
        let question = question(route);
        let place = match question.page().namespace() {
            None => "cluster",
            Some(name) if name == NAMES.namespace => "own",
            Some(_) => "other",
        };
        asked.entry(name_of(&question)).or_default().insert(place);
        let is_forbidden = matches!(route.answer, TenantAnswer::Forbidden(_));
        assert!(place != "other" || is_forbidden, "{} is of the other tenant", route.template);
        assert!(place != "own" || !is_forbidden, "{} is of the tenant", route.template);
    }
    assert_eq!(asked.keys().cloned().collect::<BTreeSet<_>>(), questions());
    for (page, places) in asked {
        assert_eq!(places.contains("own"), places.contains("other"), "{page}: {places:?}");
    }
}

#[test]
fn each_change_and_each_kind_of_object_has_a_row() {
    let text = text_of("views/src/dashboard/what_if_query.rs");
    let parameters = captures(r#"value\("(\w+)"\)"#, between(&text, "pub fn read(", "\n    }\n"));
    assert!(parameters.len() > 10, "{parameters:?}");
    let own = |route: &&TenantRoute| !matches!(route.answer, TenantAnswer::Forbidden(_));
    let templates: Vec<&str> = TENANT_ROUTES.iter().filter(own).map(|route| route.template).collect();
    for parameter in parameters {
        let is_asked = |template: &&str| {
            let query = template.strip_prefix("/what-if?").unwrap_or_default();
            query.split('&').any(|pair| pair.split('=').next() == Some(parameter))
        };
        assert!(templates.iter().any(is_asked), "no tenant asks /what-if for {parameter}");
    }
    let text = text_of("views/src/dashboard/object.rs");
    let plurals = captures(r#"Self::\w+ => "(\w+)""#, between(&text, "const fn plural(", "\n    }\n"));
    assert!(plurals.len() > 3, "{plurals:?}");
    for plural in plurals {
        let start = format!("/objects/{plural}/");
        assert!(TENANT_ROUTES.iter().any(|route| route.template.starts_with(&start)), "{start} has no row");
    }
    let text = text_of("src/server/dashboard/mod.rs");
    let routes = captures(r#"\.route\(&at\("([^"]+)"\)"#, &text);
    assert_eq!(routes, ROUTES.iter().map(|(route, _)| *route).collect());
}

#[test]
fn changes_that_a_tenant_may_not_make_are_refused_with_the_reason() {
    let mut refused = 0;
    for route in &TENANT_ROUTES {
        let PageQuestion::WhatIf(query) = question(route) else { continue };
        match route.answer {
            TenantAnswer::Refused(why) => {
                let found = query.changes(false).unwrap_err();
                assert!(found.ends_with(why), "{}: {found}", route.template);
                assert!(query.rights(&|_| None).is_empty(), "{}", route.template);
                refused += 1;
            }
            TenantAnswer::Shown | TenantAnswer::Denied(_) => {
                let is_asked = query.has_change();
                assert_eq!(query.rights(&|_| None).is_empty(), !is_asked, "{}", route.template);
            }
            _ => {}
        }
    }
    assert!(refused > 5, "{refused}");
}

#[tokio::test]
async fn a_tenant_gets_what_the_table_says() {
    let access = Access::to_namespace(NAMES.namespace, TenantDetail::None);
    for route in &TENANT_ROUTES {
        // The rate of questions of a user is bounded.
        let fixture = Fixture::new("/");
        *fixture.recorded.own.lock().unwrap() = Some(vec![NAMES.namespace.to_owned()]);
        let address = route.address(&NAMES);
        let answer = fixture.get(&address, "tenant", &[]).await;
        let expected = match route.answer {
            // Recorded values compare with any object.
            TenantAnswer::Listed
            | TenantAnswer::Shown
            | TenantAnswer::Refused(_)
            | TenantAnswer::NotFound => StatusCode::OK,
            TenantAnswer::Moved => StatusCode::SEE_OTHER,
            TenantAnswer::Denied(_) | TenantAnswer::Forbidden(_) => StatusCode::FORBIDDEN,
        };
        assert_eq!(answer.status, expected, "{address}: {}", answer.body);
        let (status, _) = stream(&fixture, &format!("/events?page={}", encode(&address)), "tenant").await;
        let asked = fixture.recorded.asked.lock().unwrap().clone();
        assert!(asked.iter().all(|(_, with)| *with == access), "{address}: {asked:?}");
        let has_stream = !address.starts_with("/what-if") && !address.starts_with("/objects");
        match route.answer {
            TenantAnswer::Forbidden(right) => {
                assert!(answer.body.contains(right), "{address}: {}", answer.body);
                assert!(asked.is_empty(), "{address}: {asked:?}");
                assert_ne!(status, StatusCode::OK, "a stream of {address}");
            }
            TenantAnswer::Denied(right) => {
                assert!(answer.body.contains(right), "{address}: {}", answer.body);
                assert!(asked.is_empty(), "{address}: {asked:?}");
                assert_eq!(status, StatusCode::BAD_REQUEST, "a stream of {address}");
            }
            TenantAnswer::Moved => assert_ne!(status, StatusCode::OK, "a stream of {address}"),
            _ if has_stream => assert_eq!(status, StatusCode::OK, "a stream of {address}"),
            _ => assert_eq!(status, StatusCode::BAD_REQUEST, "a stream of {address}"),
        }
    }
}
