//! Rotation of the self-managed serving certificate: computes the next step from the observed state.
//!
//! The API server sees changes of the webhook bundles and of the serving certificate at different times. One step
//! therefore changes either the bundles or the leaf, never both, and between the two steps there is an overlap
//! during which every bundle accepts the old leaf and the new leaf.
//!
//! Invariants:
//! - No step removes the issuer of the valid serving leaf from a bundle.
//! - A leaf that replaces a valid leaf is signed by the same CA, or by one that every bundle has carried for the overlap. The
//!   overlap is cut short if the valid leaf would expire first, so that no leaf expires while it is served.
//! - Bundles shrink only after the leaf has served for the retirement period.
//!
//! Any replica may run this: the same observation gives the same step, and Secrets are written by create-only requests
//! or with a resourceVersion precondition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Time reserved before a leaf expires for its replacement to be written, read and served.
const ROLLOUT_MARGIN: SignedDuration = SignedDuration::from_mins(1);

/// Digest that identifies a certificate.
pub type Fingerprint = Arc<str>;

/// Durations of the certificate rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationSettings {
    /// Validity period of a new CA.
    pub ca_lifetime: Duration,
    /// Validity period of a new serving certificate.
    pub leaf_lifetime: Duration,
    /// Time for which every bundle carries a new CA before that CA signs a leaf.
    pub overlap: Duration,
    /// Time for which a new leaf serves before the old CA is removed from the bundles.
    pub retirement: Duration,
}

/// A certificate authority (CA) as observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Digest of the CA certificate.
    pub fingerprint: Fingerprint,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
}

/// The serving certificate as observed. [`Observed::leaf`] is `None` if the certificate cannot be served (unreadable,
/// key mismatch) or if every webhook call would reject it (not valid, or without a name that a webhook dials).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Digest of the CA that signed the leaf; empty if the serving Secret does not contain the CA certificate.
    pub issuer: Fingerprint,
    /// Start of validity, taken as the time of issue.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// Whether the leaf has all names (SANs) that are configured now.
    pub names_complete: bool,
}

/// Everything that the next step depends on, except settings and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The CA that signs new leaves.
    pub current: Option<Authority>,
    /// The CA that `current` replaced; bundles keep it until it is dropped.
    pub previous: Option<Authority>,
    /// The certificate in the serving Secret, if it is usable.
    pub leaf: Option<Leaf>,
    /// Digests of the CAs in the bundle of each webhook target.
    pub bundles: Vec<BTreeSet<Fingerprint>>,
    /// Time since which every bundle has been observed to carry the current CA.
    pub published_since: Option<Timestamp>,
}

/// The next step of the rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateStep {
    /// Create a CA; the current CA, if there is one, becomes the previous CA.
    CreateCa,
    /// Write exactly these CAs to the bundle of every target.
    PublishBundle(BTreeSet<Fingerprint>),
    /// Add these CAs to the bundle of every target that lacks one, beside the CAs that it has.
    AddToBundles(BTreeSet<Fingerprint>),
    /// Issue a serving certificate signed by the current CA.
    IssueLeaf,
    /// Remove the previous CA.
    DropPreviousCa,
    /// Do nothing before this time.
    Wait(Timestamp),
}

/// Returns the next step of the rotation.
pub fn next_step(observed: &Observed, settings: &RotationSettings, now: Timestamp) -> CertificateStep {
    // A CA that is not valid yet was created by a clock that runs ahead; clients reject its leaves until then.
    let valid = |authority: &&Authority| authority.not_before <= now && authority.not_after > now;
    let Some(current) = observed.current.as_ref().filter(valid) else {
        return CertificateStep::CreateCa;
    };
    let leaf = observed.leaf.as_ref().filter(|leaf| leaf.not_after > now);
    let wanted = trusted(observed, now);
    if observed.bundles.iter().any(|bundle| !wanted.is_subset(bundle)) {
        // Each keeps the CAs that it has: shrinking is a separate step. One that another client wrote to a single bundle stays there,
        // and is not spread.
        return CertificateStep::AddToBundles(wanted);
    }
    let Some(leaf) = leaf else {
        return CertificateStep::IssueLeaf;
    };
    let mut wake = leaf_renewal_time(leaf, settings);
    if leaf.issuer == current.fingerprint && (!leaf.names_complete || wake <= now) {
        // Clients that trust the leaf trust its replacement: there is nothing to wait for.
        return CertificateStep::IssueLeaf;
    }
    if leaf.issuer != current.fingerprint {
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

/// Returns whether the certificate of a process that serves no webhooks is to be issued: it cannot be used, a third of its life is left,
/// or the serving certificate has another issuer by now, which all clients trust.
pub fn is_observer_due(
    leaf: Option<&Leaf>,
    observed: &Observed,
    settings: &RotationSettings,
    now: Timestamp,
) -> bool {
    let Some(current) = &observed.current else { return false };
    let Some(leaf) = leaf.filter(|leaf| leaf.not_after > now) else { return true };
    if leaf.issuer == current.fingerprint {
        return !leaf.names_complete || leaf_renewal_time(leaf, settings) <= now;
    }
    observed.leaf.as_ref().is_some_and(|serving| serving.issuer == current.fingerprint)
}

/// Returns the CAs of this installation, which every client must trust: the current CA, the previous CA and the issuer of the leaf in
/// use, as far as they have not expired.
pub fn trusted(observed: &Observed, now: Timestamp) -> BTreeSet<Fingerprint> {
    let authorities = observed.current.iter().chain(&observed.previous);
    let authorities = authorities.filter(|authority| authority.not_after > now);
    let leaf = observed.leaf.as_ref().filter(|leaf| leaf.not_after > now);
    // An empty issuer means that its certificate is unknown and cannot be published.
    let issuer = leaf.map(|leaf| leaf.issuer.clone()).filter(|issuer| !issuer.is_empty());
    authorities.map(|authority| authority.fingerprint.clone()).chain(issuer).collect()
}

/// Returns when a leaf is due for renewal: when a third of its lifetime is left.
fn leaf_renewal_time(leaf: &Leaf, settings: &RotationSettings) -> Timestamp {
    let life = to_signed_duration(settings.leaf_lifetime).min(leaf.not_after.duration_since(leaf.not_before));
    leaf.not_after.saturating_sub(life / 3).unwrap_or(leaf.not_after)
}

/// Returns the latest time to replace a leaf, even if the overlap has not passed. The new leaf needs time to be
/// written, read and served: `ROLLOUT_MARGIN` or a tenth of the lifetime, whichever is shorter. If less than twice
/// that is left at `published`, half of the rest remains for the bundles to propagate.
fn latest_renewal_time(leaf: &Leaf, published: Timestamp) -> Timestamp {
    let margin = ROLLOUT_MARGIN.min(leaf.not_after.duration_since(leaf.not_before) / 10);
    let left = leaf.not_after.duration_since(published).max(SignedDuration::ZERO);
    leaf.not_after.saturating_sub(margin.min(left / 2)).unwrap_or(leaf.not_after)
}

/// Returns the time at which `1 / parts` of the lifetime is left.
fn renewal_time(from: Timestamp, until: Timestamp, parts: i32) -> Timestamp {
    until.saturating_sub(until.duration_since(from) / parts).unwrap_or(until)
}

fn to_signed_duration(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
