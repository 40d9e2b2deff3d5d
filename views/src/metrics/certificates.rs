//! Metrics of the serving certificate, and of the clock by which its validity is checked.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;

use super::counters::text;
use super::exposition::register_gauge;

/// State of the serving certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateStatus {
    /// Expiry of the serving certificate.
    pub serving_until: Option<Timestamp>,
    /// Expiry of the CA that signed it.
    pub ca_until: Option<Timestamp>,
    /// Whether the CA bundles of all webhooks accept it.
    pub verified: bool,
    /// Whether the Secret contains a newer certificate that the webhooks do not trust yet.
    pub held_back: bool,
}

/// Renders the metrics in Prometheus' text format. Unknown values are omitted.
pub fn render(status: &CertificateStatus, clock_ahead: Option<SignedDuration>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("sluice");
    for (name, help, until) in [
        (
            "serving_certificate_expiry",
            "Expiry of the serving certificate, as Unix time",
            status.serving_until,
        ),
        (
            "authority_certificate_expiry",
            "Expiry of the CA that signed the serving certificate, as Unix time",
            status.ca_until,
        ),
    ] {
        if let Some(until) = until {
            register_gauge(&mut registry, &format!("{name}_timestamp_seconds"), help, until.as_second());
        }
    }
    for (name, help, holds) in [
        (
            "serving_certificate_verified",
            "Whether all webhooks trust the serving certificate",
            status.verified,
        ),
        (
            "serving_certificate_held_back",
            "Whether the Secret contains a newer certificate that the webhooks do not trust yet",
            status.held_back,
        ),
    ] {
        register_gauge(&mut registry, name, help, i64::from(holds));
    }
    if let Some(ahead) = clock_ahead {
        let help = "Local clock minus API server clock";
        register_gauge(&mut registry, "clock_skew_seconds", help, ahead.as_secs_f64());
    }
    text(&registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_certificate_values_are_exported() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let status = CertificateStatus {
            serving_until: at(1_800_000_000),
            ca_until: at(1_900_000_000),
            verified: true,
            held_back: false,
        };
        let text = render(&status, Some(SignedDuration::from_millis(-1_500))).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "sluice_serving_certificate_expiry_timestamp_seconds 1800000000",
                "sluice_authority_certificate_expiry_timestamp_seconds 1900000000",
                "sluice_serving_certificate_verified 1",
                "sluice_serving_certificate_held_back 0",
                "sluice_clock_skew_seconds -1.5",
            ]
        );
    }

    #[test]
    fn unknown_certificate_values_are_omitted() {
        let text = render(&CertificateStatus::default(), None).unwrap();
        assert!(!text.contains("expiry") && !text.contains("skew"), "{text}");
        assert!(text.contains("sluice_serving_certificate_verified 0"), "{text}");
    }
}
