//! Rotation of certificates: the table of steps, and the law that what is served is always trusted.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use sluice::lifecycle::certificates::{Authority, Leaf, Observed, Settings, Step, step};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

fn settings() -> Settings {
    Settings {
        authority_lifetime: Duration::from_hours(8760),
        leaf_lifetime: Duration::from_hours(2160),
        overlap: Duration::from_mins(10),
        retirement: Duration::from_hours(24),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn authority(name: &str, from: i64, until: i64) -> Authority {
    Authority { fingerprint: name.into(), from: at(from), until: at(until) }
}

fn leaf(issuer: &str, from: i64, until: i64) -> Leaf {
    Leaf { issuer: issuer.into(), from: at(from), until: at(until), names_complete: true }
}

fn set(names: &[&str]) -> BTreeSet<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

/// Days as seconds.
const fn days(days: i64) -> i64 {
    days * 86_400
}

fn settled() -> Observed {
    Observed {
        current: Some(authority("a", 0, days(365))),
        previous: None,
        leaf: Some(leaf("a", 0, days(90))),
        bundles: vec![set(&["a"]), set(&["a"])],
        published_since: Some(at(0)),
    }
}

#[test]
fn a_leaf_that_lacks_a_name_is_replaced() {
    let leaf = Some(Leaf { names_complete: false, ..leaf("a", 0, days(90)) });
    assert_eq!(step(&Observed { leaf, ..settled() }, &settings(), at(days(1))), Step::NewLeaf);
}

#[test]
fn table() {
    let settled = settled();
    let with = |change: &dyn Fn(&mut Observed)| {
        let mut observed = settled.clone();
        change(&mut observed);
        observed
    };
    let cases: Vec<(&str, Observed, i64, Step)> = vec![
        ("nothing yet", Observed::default(), 0, Step::NewAuthority),
        ("authority expired", settled.clone(), days(366), Step::NewAuthority),
        (
            "authority from the future",
            with(&|o| o.current = Some(authority("a", 700, days(365)))),
            600,
            Step::NewAuthority,
        ),
        (
            "the authority behind the leaf is not known: it cannot be published",
            with(&|o| o.leaf = Some(leaf("", 0, days(90)))),
            10,
            Step::Wait(at(600)),
        ),
        (
            "the same, when the current one is published long enough",
            with(&|o| o.leaf = Some(leaf("", 0, days(90)))),
            600,
            Step::NewLeaf,
        ),
        ("a bundle lacks it", with(&|o| o.bundles[1] = set(&[])), 10, Step::Publish(set(&["a"]))),
        (
            "publishing keeps what is there",
            with(&|o| o.bundles[1] = set(&["x"])),
            10,
            Step::Publish(set(&["a", "x"])),
        ),
        ("no leaf", with(&|o| o.leaf = None), 10, Step::NewLeaf),
        ("settled", settled.clone(), 10, Step::Wait(at(days(60)))),
        ("a third of the leaf's life is left", settled.clone(), days(60), Step::NewLeaf),
        (
            "a quarter of the authority's life is left",
            with(&|o| o.leaf = Some(leaf("a", days(270), days(360)))),
            days(274),
            Step::NewAuthority,
        ),
        (
            "new authority, not published long enough",
            with(&|o| {
                o.current = Some(authority("b", days(10), days(375)));
                o.previous = Some(authority("a", 0, days(365)));
                o.bundles = vec![set(&["a", "b"]); 2];
                o.published_since = Some(at(days(10)));
            }),
            days(10) + 599,
            Step::Wait(at(days(10) + 600)),
        ),
        (
            "new authority, published long enough",
            with(&|o| {
                o.current = Some(authority("b", days(10), days(375)));
                o.previous = Some(authority("a", 0, days(365)));
                o.bundles = vec![set(&["a", "b"]); 2];
                o.published_since = Some(at(days(10)));
            }),
            days(10) + 600,
            Step::NewLeaf,
        ),
        (
            "the new leaf has served long enough",
            with(&|o| {
                o.previous = Some(authority("z", -days(10), days(100)));
                o.bundles = vec![set(&["a", "z"]); 2];
            }),
            days(1),
            Step::DropPrevious,
        ),
        (
            "the bundle shrinks after the authority is dropped",
            with(&|o| o.bundles = vec![set(&["a", "z"]); 2]),
            days(1),
            Step::Publish(set(&["a"])),
        ),
    ];
    for (name, observed, seconds, expected) in cases {
        assert_eq!(step(&observed, &settings(), at(seconds)), expected, "{name}");
    }
}

#[test]
fn a_leaf_that_would_expire_within_the_overlap() {
    let made = days(90) - 300;
    let observed = Observed {
        current: Some(authority("b", made, days(400))),
        previous: Some(authority("a", 0, days(365))),
        leaf: Some(leaf("a", 0, days(90))),
        bundles: vec![set(&["a", "b"]), set(&["a", "b"])],
        published_since: Some(at(made)),
    };
    assert_eq!(step(&observed, &settings(), at(made + 1)), Step::Wait(at(days(90) - 60)));
    assert_eq!(step(&observed, &settings(), at(days(90) - 60)), Step::NewLeaf);
    let late = Observed { published_since: Some(at(days(90) - 40)), ..observed };
    assert_eq!(step(&late, &settings(), at(days(90) - 40)), Step::Wait(at(days(90) - 20)));
}

/// Lets time pass and steps happen over years, with Secrets that get lost, and checks after each step.
fn live(settings: &Settings, losses: &[(u32, bool)]) -> Result<(), String> {
    let mut observed = Observed { bundles: vec![BTreeSet::new(); 2], ..Observed::default() };
    let mut names = 0;
    let mut now = at(0);
    // What the API server still believes: it reads configurations and Secrets a little later.
    let mut lagging = observed.clone();
    for (round, (skip, lose)) in losses.iter().enumerate() {
        if *lose {
            observed.current = None;
            observed.previous = None;
        }
        for _ in 0..12 {
            let before = observed.clone();
            match step(&observed, settings, now) {
                Step::Wait(until) => {
                    if until <= now {
                        return Err(format!("waits for the past in round {round}"));
                    }
                    if observed.leaf.as_ref().is_some_and(|leaf| leaf.until > now && leaf.until <= until) {
                        return Err(format!("waits until what is served has expired, in round {round}"));
                    }
                    break;
                }
                Step::NewAuthority => {
                    names += 1;
                    let until = now
                        .saturating_add(SignedDuration::try_from(settings.authority_lifetime).unwrap())
                        .unwrap();
                    observed.previous = observed.current.take();
                    observed.current =
                        Some(Authority { fingerprint: format!("ca-{names}").into(), from: now, until });
                }
                Step::Publish(bundle) => observed.bundles = vec![bundle; 2],
                Step::NewLeaf => {
                    let current = observed.current.clone().unwrap();
                    let until = now
                        .saturating_add(SignedDuration::try_from(settings.leaf_lifetime).unwrap())
                        .unwrap();
                    observed.leaf = Some(Leaf {
                        issuer: current.fingerprint,
                        from: now,
                        until: until.min(current.until),
                        names_complete: true,
                    });
                }
                Step::DropPrevious => observed.previous = None,
            }
            let current = observed.current.clone().map(|current| current.fingerprint);
            let everywhere =
                current.is_some_and(|name| observed.bundles.iter().all(|bundle| bundle.contains(&name)));
            let same = before.current == observed.current;
            observed.published_since =
                if everywhere { observed.published_since.filter(|_| same).or(Some(now)) } else { None };
            if before.leaf != observed.leaf && before.bundles != observed.bundles {
                return Err("leaf and bundle changed in one step".to_owned());
            }
            for (leaf, bundles) in [
                (&observed.leaf, &observed.bundles),
                (&lagging.leaf, &observed.bundles),
                (&observed.leaf, &lagging.bundles),
            ] {
                let Some(leaf) = leaf.as_ref().filter(|leaf| leaf.until > now) else {
                    continue;
                };
                let bootstrap = lagging.leaf.as_ref().is_none_or(|leaf| leaf.until <= now);
                if !bootstrap && !bundles.iter().all(|bundle| bundle.contains(&leaf.issuer)) {
                    return Err(format!(
                        "{leaf:?} is served but not trusted by {bundles:?} in round {round}"
                    ));
                }
            }
        }
        now = now.saturating_add(SignedDuration::from_secs(i64::from(*skip))).unwrap();
        lagging = observed.clone();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_served_is_trusted(
        losses in prop::collection::vec((prop_oneof![1..1000_u32, 1000..4_000_000_u32], prop::bool::weighted(0.05)), 1..120),
    ) {
        let result = live(&settings(), &losses);
        prop_assert!(result.is_ok(), "{result:?}");
    }

    /// Certificates that live for about as long as an overlap lasts.
    #[test]
    fn nothing_expires_while_it_is_served(
        minutes in 5..60_u64,
        losses in prop::collection::vec((1..900_u32, prop::bool::weighted(0.2)), 1..60),
    ) {
        let settings = Settings { leaf_lifetime: Duration::from_mins(minutes), ..settings() };
        let result = live(&settings, &losses);
        prop_assert!(result.is_ok(), "{result:?}");
    }
}
