//! Rotation of the self-managed serving certificate, as a function of what is observed.
//!
//! The webhook bundles and the serving certificate reach the API server at different moments, so one step changes
//! either the bundles or the leaf, never both, and between them there is an overlap in which both answers are right.
//! Invariants: no step takes the issuer of the valid serving leaf out of a bundle; a leaf that replaces a valid one comes from an
//! authority that every bundle has carried for the overlap, or for as long as the valid one lasts, so that none expires
//! while it is served; bundles shrink only when the leaf has served for the
//! retirement time. Any replica may run this: the same observation gives the same step, and Secrets are written with
//! create-only or resourceVersion.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Time for a new certificate to come into use.
const ROLLOUT_MARGIN: SignedDuration = SignedDuration::from_mins(1);

/// Digest of a certificate.
pub type Fingerprint = Arc<str>;

/// Durations of the rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationSettings {
    /// How long an authority is valid.
    pub ca_lifetime: Duration,
    /// How long a serving certificate is valid.
    pub leaf_lifetime: Duration,
    /// How long every bundle carries a new authority before a leaf comes from it.
    pub overlap: Duration,
    /// How long a new leaf serves before the old authority leaves the bundles.
    pub retirement: Duration,
}

/// A certificate authority as observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Digest of its certificate.
    pub fingerprint: Fingerprint,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
}

/// The serving certificate as observed; absent when it cannot be served (unreadable, key mismatch) or no webhook could
/// accept it (not valid, a name lacks that they dial).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Digest of the authority that signed it; empty when the Secret does not hold its certificate.
    pub issuer: Fingerprint,
    /// When it was made.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// Whether it bears all names wanted now.
    pub names_complete: bool,
}

/// All that a step depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The authority that signs.
    pub current: Option<Authority>,
    /// The one before, kept in bundles.
    pub previous: Option<Authority>,
    /// The certificate in the serving Secret.
    pub leaf: Option<Leaf>,
    /// What each target's bundle carries.
    pub bundles: Vec<BTreeSet<Fingerprint>>,
    /// Since when every bundle was seen to carry the current authority.
    pub published_since: Option<Timestamp>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateStep {
    /// Make an authority; the current one, where there is one, becomes the previous.
    CreateCa,
    /// Write exactly these authorities to every target's bundle.
    PublishBundle(BTreeSet<Fingerprint>),
    /// Make a serving certificate from the current authority.
    IssueLeaf,
    /// Forget the previous authority.
    DropPreviousCa,
    /// Nothing before then.
    Wait(Timestamp),
}

/// The next step.
pub fn next_step(observed: &Observed, settings: &RotationSettings, now: Timestamp) -> CertificateStep {
    // An authority that is not valid yet was made by a clock that was ahead; clients refuse its leaves until then.
    let valid = |authority: &&Authority| authority.not_before <= now && authority.not_after > now;
    let Some(current) = observed.current.as_ref().filter(valid) else {
        return CertificateStep::CreateCa;
    };
    let leaf = observed.leaf.as_ref().filter(|leaf| leaf.not_after > now);
    let wanted = wanted_bundle(observed, current, leaf, now);
    if observed.bundles.iter().any(|bundle| !wanted.is_subset(bundle)) {
        // What is there already stays: shrinking is a step of its own.
        let present = observed.bundles.iter().flatten().cloned();
        return CertificateStep::PublishBundle(wanted.iter().cloned().chain(present).collect());
    }
    let Some(leaf) = leaf else {
        return CertificateStep::IssueLeaf;
    };
    let mut wake = leaf_renewal_time(leaf, settings);
    if leaf.issuer != current.fingerprint || !leaf.names_complete || wake <= now {
        let published = observed.published_since.unwrap_or(now);
        let ready = published.saturating_add(to_signed_duration(settings.overlap)).unwrap_or(Timestamp::MAX);
        let due = ready.min(latest_renewal_time(leaf, published));
        return if due <= now { CertificateStep::IssueLeaf } else { CertificateStep::Wait(due) };
    }
    let retired =
        leaf.not_before.saturating_add(to_signed_duration(settings.retirement)).unwrap_or(Timestamp::MAX);
    let shrinkable = observed.previous.is_some() || observed.bundles.iter().any(|bundle| *bundle != wanted);
    if shrinkable {
        if retired <= now {
            return if observed.previous.is_some() {
                CertificateStep::DropPreviousCa
            } else {
                CertificateStep::PublishBundle(wanted)
            };
        }
        wake = wake.min(retired);
    }
    if observed.previous.is_none() {
        let due = renewal_time(current.not_before, current.not_after, 4);
        if due <= now {
            return CertificateStep::CreateCa;
        }
        wake = wake.min(due);
    }
    CertificateStep::Wait(wake)
}

/// The authorities that every bundle must carry: the one that signs, the one before, and the one behind the leaf in use.
fn wanted_bundle(
    observed: &Observed,
    current: &Authority,
    leaf: Option<&Leaf>,
    now: Timestamp,
) -> BTreeSet<Fingerprint> {
    let previous = observed.previous.as_ref().filter(|authority| authority.not_after > now);
    let mut wanted = BTreeSet::from([current.fingerprint.clone()]);
    wanted.extend(previous.map(|authority| authority.fingerprint.clone()));
    // An unknown authority cannot be published.
    wanted.extend(leaf.map(|leaf| leaf.issuer.clone()).filter(|issuer| !issuer.is_empty()));
    wanted
}

/// A leaf is replaced when less than a third of its life is left.
fn leaf_renewal_time(leaf: &Leaf, settings: &RotationSettings) -> Timestamp {
    let life = to_signed_duration(settings.leaf_lifetime).min(leaf.not_after.duration_since(leaf.not_before));
    leaf.not_after.saturating_sub(life / 3).unwrap_or(leaf.not_after)
}

/// When a leaf that is to be replaced cannot wait for the overlap any more: a minute of it, or a tenth of its life, is
/// left for the new one to be written, read and served. Where there is less, half of the rest is for the bundles.
fn latest_renewal_time(leaf: &Leaf, published: Timestamp) -> Timestamp {
    let margin = ROLLOUT_MARGIN.min(leaf.not_after.duration_since(leaf.not_before) / 10);
    let left = leaf.not_after.duration_since(published).max(SignedDuration::ZERO);
    leaf.not_after.saturating_sub(margin.min(left / 2)).unwrap_or(leaf.not_after)
}

/// The moment at which one part of `parts` of a life is left.
fn renewal_time(from: Timestamp, until: Timestamp, parts: i32) -> Timestamp {
    until.saturating_sub(until.duration_since(from) / parts).unwrap_or(until)
}

fn to_signed_duration(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
