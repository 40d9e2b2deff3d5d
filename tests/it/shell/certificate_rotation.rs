//! Rotation of certificates: the table of steps, and the property that the served certificate is always trusted.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use sluice::lifecycle::certificates::{
    Authority, CertificateStep, Leaf, Observed, RotationSettings, next_step,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

fn settings() -> RotationSettings {
    RotationSettings {
        ca_lifetime: Duration::from_hours(8760),
        leaf_lifetime: Duration::from_hours(2160),
        overlap: Duration::from_mins(10),
        retirement: Duration::from_hours(24),
    }
}

fn time_at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn authority(name: &str, from: i64, until: i64) -> Authority {
    Authority { fingerprint: name.into(), not_before: time_at(from), not_after: time_at(until) }
}

fn leaf(issuer: &str, from: i64, until: i64) -> Leaf {
    Leaf { issuer: issuer.into(), not_before: time_at(from), not_after: time_at(until), names_complete: true }
}

fn set(names: &[&str]) -> BTreeSet<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

/// Days as seconds.
const fn days(days: i64) -> i64 {
    days * 86_400
}

fn settled_state() -> Observed {
    Observed {
        current: Some(authority("a", 0, days(365))),
        previous: None,
        leaf: Some(leaf("a", 0, days(90))),
        bundles: vec![set(&["a"]), set(&["a"])],
        published_since: Some(time_at(0)),
    }
}

#[test]
fn leaf_with_missing_name_is_replaced() {
    let leaf = Some(Leaf { names_complete: false, ..leaf("a", 0, days(90)) });
    let observed = Observed { leaf, ..settled_state() };
    assert_eq!(next_step(&observed, &settings(), time_at(days(1))), CertificateStep::IssueLeaf);
    // Also by a replica that has just started: an earlier installation had fewer names.
    let started = Observed { published_since: Some(time_at(days(1))), ..observed };
    assert_eq!(next_step(&started, &settings(), time_at(days(1))), CertificateStep::IssueLeaf);
}

#[test]
fn step_cases() {
    let settled = settled_state();
    let modified = |change: &dyn Fn(&mut Observed)| {
        let mut observed = settled.clone();
        change(&mut observed);
        observed
    };
    let cases: Vec<(&str, Observed, i64, CertificateStep)> = vec![
        ("nothing yet", Observed::default(), 0, CertificateStep::CreateCa),
        ("authority expired", settled.clone(), days(366), CertificateStep::CreateCa),
        (
            "authority from the future",
            modified(&|o| o.current = Some(authority("a", 700, days(365)))),
            600,
            CertificateStep::CreateCa,
        ),
        (
            "unknown issuer of the leaf: it cannot be published",
            modified(&|o| o.leaf = Some(leaf("", 0, days(90)))),
            10,
            CertificateStep::Wait(time_at(600)),
        ),
        (
            "unknown issuer of the leaf, authority published long enough",
            modified(&|o| o.leaf = Some(leaf("", 0, days(90)))),
            600,
            CertificateStep::IssueLeaf,
        ),
        (
            "a bundle lacks the authority",
            modified(&|o| o.bundles[1] = set(&[])),
            10,
            CertificateStep::AddToBundles(set(&["a"])),
        ),
        (
            "an authority that another client wrote stays where it is",
            modified(&|o| o.bundles[1] = set(&["x"])),
            10,
            CertificateStep::AddToBundles(set(&["a"])),
        ),
        ("no leaf", modified(&|o| o.leaf = None), 10, CertificateStep::IssueLeaf),
        ("settled", settled.clone(), 10, CertificateStep::Wait(time_at(days(60)))),
        ("a third of the leaf's life is left", settled.clone(), days(60), CertificateStep::IssueLeaf),
        (
            "a quarter of the authority's life is left",
            modified(&|o| o.leaf = Some(leaf("a", days(270), days(360)))),
            days(274),
            CertificateStep::CreateCa,
        ),
        (
            "new authority, not published long enough",
            modified(&|o| {
                o.current = Some(authority("b", days(10), days(375)));
                o.previous = Some(authority("a", 0, days(365)));
                o.bundles = vec![set(&["a", "b"]); 2];
                o.published_since = Some(time_at(days(10)));
            }),
            days(10) + 599,
            CertificateStep::Wait(time_at(days(10) + 600)),
        ),
        (
            "new authority, published long enough",
            modified(&|o| {
                o.current = Some(authority("b", days(10), days(375)));
                o.previous = Some(authority("a", 0, days(365)));
                o.bundles = vec![set(&["a", "b"]); 2];
                o.published_since = Some(time_at(days(10)));
            }),
            days(10) + 600,
            CertificateStep::IssueLeaf,
        ),
        (
            "the new leaf has served long enough",
            modified(&|o| {
                o.previous = Some(authority("z", -days(10), days(100)));
                o.bundles = vec![set(&["a", "z"]); 2];
            }),
            days(1),
            CertificateStep::DropPreviousCa,
        ),
        (
            "the bundle shrinks after the authority is dropped",
            modified(&|o| o.bundles = vec![set(&["a", "z"]); 2]),
            days(1),
            CertificateStep::PublishBundle(set(&["a"])),
        ),
    ];
    for (name, observed, seconds, expected) in cases {
        assert_eq!(next_step(&observed, &settings(), time_at(seconds)), expected, "{name}");
    }
}

#[test]
fn expiring_leaf_is_renewed_before_overlap_ends() {
    let created = days(90) - 300;
    let observed = Observed {
        current: Some(authority("b", created, days(400))),
        previous: Some(authority("a", 0, days(365))),
        leaf: Some(leaf("a", 0, days(90))),
        bundles: vec![set(&["a", "b"]), set(&["a", "b"])],
        published_since: Some(time_at(created)),
    };
    assert_eq!(
        next_step(&observed, &settings(), time_at(created + 1)),
        CertificateStep::Wait(time_at(days(90) - 60))
    );
    assert_eq!(next_step(&observed, &settings(), time_at(days(90) - 60)), CertificateStep::IssueLeaf);
    let late = Observed { published_since: Some(time_at(days(90) - 40)), ..observed };
    assert_eq!(
        next_step(&late, &settings(), time_at(days(90) - 40)),
        CertificateStep::Wait(time_at(days(90) - 20))
    );
}

/// Simulates years of rotation, with Secrets that get lost, and checks each step.
fn simulate_rotation(settings: &RotationSettings, losses: &[(u32, bool)]) -> Result<(), String> {
    let mut observed = Observed { bundles: vec![BTreeSet::new(); 2], ..Observed::default() };
    let mut names = 0;
    let mut now = time_at(0);
    // Configurations and Secrets as the API server sees them, which is some time later.
    let mut lagging = observed.clone();
    for (round, (skip, lose)) in losses.iter().enumerate() {
        if *lose {
            observed.current = None;
            observed.previous = None;
        }
        for _ in 0..12 {
            let before = observed.clone();
            match next_step(&observed, settings, now) {
                CertificateStep::Wait(until) => {
                    if until <= now {
                        return Err(format!("waits for the past in round {round}"));
                    }
                    if observed
                        .leaf
                        .as_ref()
                        .is_some_and(|leaf| leaf.not_after > now && leaf.not_after <= until)
                    {
                        return Err(format!("waits until the served leaf has expired, in round {round}"));
                    }
                    break;
                }
                CertificateStep::CreateCa => {
                    names += 1;
                    let until =
                        now.saturating_add(SignedDuration::try_from(settings.ca_lifetime).unwrap()).unwrap();
                    observed.previous = observed.current.take();
                    observed.current = Some(Authority {
                        fingerprint: format!("ca-{names}").into(),
                        not_before: now,
                        not_after: until,
                    });
                }
                CertificateStep::PublishBundle(bundle) => observed.bundles = vec![bundle; 2],
                CertificateStep::AddToBundles(added) => {
                    observed.bundles.iter_mut().for_each(|bundle| bundle.extend(added.iter().cloned()));
                }
                CertificateStep::IssueLeaf => {
                    let current = observed.current.clone().unwrap();
                    let until = now
                        .saturating_add(SignedDuration::try_from(settings.leaf_lifetime).unwrap())
                        .unwrap();
                    observed.leaf = Some(Leaf {
                        issuer: current.fingerprint,
                        not_before: now,
                        not_after: until.min(current.not_after),
                        names_complete: true,
                    });
                }
                CertificateStep::DropPreviousCa => observed.previous = None,
            }
            let current = observed.current.clone().map(|current| current.fingerprint);
            let everywhere =
                current.is_some_and(|name| observed.bundles.iter().all(|bundle| bundle.contains(&name)));
            let same_authority = before.current == observed.current;
            observed.published_since = if everywhere {
                observed.published_since.filter(|_| same_authority).or(Some(now))
            } else {
                None
            };
            if before.leaf != observed.leaf && before.bundles != observed.bundles {
                return Err("leaf and bundle changed in one step".to_owned());
            }
            for (leaf, bundles) in [
                (&observed.leaf, &observed.bundles),
                (&lagging.leaf, &observed.bundles),
                (&observed.leaf, &lagging.bundles),
            ] {
                let Some(leaf) = leaf.as_ref().filter(|leaf| leaf.not_after > now) else {
                    continue;
                };
                let bootstrap = lagging.leaf.as_ref().is_none_or(|leaf| leaf.not_after <= now);
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
    fn served_leaf_is_always_trusted(
        losses in prop::collection::vec((prop_oneof![1..1000_u32, 1000..4_000_000_u32], prop::bool::weighted(0.05)), 1..120),
    ) {
        let result = simulate_rotation(&settings(), &losses);
        prop_assert!(result.is_ok(), "{result:?}");
    }

    /// Leaf certificates that live about as long as an overlap.
    #[test]
    fn short_lived_leaf_never_expires_while_served(
        minutes in 5..60_u64,
        losses in prop::collection::vec((1..900_u32, prop::bool::weighted(0.2)), 1..60),
    ) {
        let settings = RotationSettings { leaf_lifetime: Duration::from_mins(minutes), ..settings() };
        let result = simulate_rotation(&settings, &losses);
        prop_assert!(result.is_ok(), "{result:?}");
    }
}
