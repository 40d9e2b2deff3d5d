//! Creates, reads and verifies certificates.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

use super::private_keys;
use crate::lifecycle::certificates::{Authority, Fingerprint, Leaf};

/// Validity starts this long before creation, or a tenth of the lifetime if that is less, because clocks differ.
const BACKDATE: Duration = Duration::from_mins(5);

/// Why a certificate cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Creation failed.
    #[error("cannot generate a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// An entry of the Secret is invalid.
    #[error("{part}: {problem}")]
    Unreadable {
        /// Key in the Secret.
        part: &'static str,
        /// The problem found.
        problem: String,
    },
    /// The certificate is not valid at this time.
    #[error("not valid now: from {from} until {until}")]
    Expired {
        /// Start of the validity.
        from: Timestamp,
        /// End of the validity.
        until: Timestamp,
    },
    /// The Secret lacks an entry.
    #[error("entry {0} is missing")]
    MissingEntry(&'static str),
    /// No cryptography provider is installed.
    #[error("no cryptography provider installed")]
    NoProvider,
}

/// Why a client does not accept a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    /// The certificate has expired.
    #[error("certificate expired at {0}")]
    Expired(Timestamp),
    /// The certificate is not valid yet.
    #[error("certificate is not valid before {0}")]
    NotYetValid(Timestamp),
    /// The certificate lacks the host name.
    #[error("certificate is not valid for the name {0}")]
    NameMismatch(String),
    /// The client trusts no CA at all.
    #[error("the caBundle contains no certificate")]
    EmptyBundle,
    /// No valid CA in the bundle signed the certificate.
    #[error("certificate is not signed by a valid CA in the caBundle")]
    Untrusted,
    /// The certificate cannot be parsed.
    #[error("not an X.509 certificate")]
    Unreadable,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemPair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// A parsed certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate as PEM.
    pub pem: String,
    /// Fingerprint and validity, for the state machine.
    pub info: Authority,
    der: CertificateDer<'static>,
}

/// Creates a self-signed CA.
pub fn new_ca(now: Timestamp, lifetime: Duration) -> Result<PemPair, PkiError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    // The name contains the time, because a verifier can distinguish two CAs of the same name only by trying both.
    params.distinguished_name.push(DnType::CommonName, format!("sluice-ca-{}", now.as_millisecond()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, lifetime);
    let certificate = params.self_signed(&key)?;
    Ok(PemPair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Creates a serving certificate. It expires no later than its CA.
pub fn new_leaf(
    authority: &PemPair,
    ca_not_after: Timestamp,
    names: &[String],
    now: Timestamp,
    lifetime: Duration,
) -> Result<PemPair, PkiError> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    let common_name = names.first().map(|name| name.chars().take(64).collect::<String>()).unwrap_or_default();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let remaining = Duration::try_from(ca_not_after.duration_since(now)).unwrap_or_default();
    set_validity(&mut params, now, lifetime.min(remaining));
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(PemPair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime: Duration) {
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATE.min(lifetime / 10));
    params.not_after = epoch + now.saturating_add(lifetime);
}

/// Parses all certificates in a PEM text; invalid ones are skipped.
pub fn certificates(pem: &[u8]) -> Vec<Certificate> {
    CertificateDer::pem_slice_iter(pem).filter_map(|der| parse(der.ok()?)).collect()
}

fn parse(der: CertificateDer<'static>) -> Option<Certificate> {
    let (from, until) = validity_period(&der)?;
    let authority = Authority { fingerprint: fingerprint(&der), not_before: from, not_after: until };
    Some(Certificate { pem: to_pem(&der), info: authority, der })
}

fn validity_period(der: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    let validity = parsed.validity();
    let from = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    Some((from, Timestamp::from_second(validity.not_after.timestamp()).ok()?))
}

fn fingerprint(der: &CertificateDer<'_>) -> Fingerprint {
    let digest = Sha256::digest(der);
    format!("{digest:x}").into()
}

fn to_pem(der: &CertificateDer<'_>) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der.to_vec()), lines)
}

/// A valid serving certificate.
#[derive(Clone, Debug)]
pub struct LoadedCertificate {
    /// Certificate chain and key for the TLS stack.
    pub key: Arc<CertifiedKey>,
    /// Metadata for the state machine.
    pub leaf: Leaf,
    /// Certificate of the issuer, if the Secret contains it.
    pub issuer: Option<Certificate>,
}

/// Loads a serving Secret. The key must match, the certificate be valid now, and the issuer, if given, have signed it.
pub fn load(
    chain: &[u8],
    key: &[u8],
    issuer: Option<&[u8]>,
    names: &[String],
    now: Timestamp,
) -> Result<LoadedCertificate, PkiError> {
    let unreadable = |part, problem: String| PkiError::Unreadable { part, problem };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable("tls.crt", error.to_string()))?;
    let first = chain.first().cloned().ok_or_else(|| unreadable("tls.crt", "no certificate".into()))?;
    let (from, until) =
        validity_period(&first).ok_or_else(|| unreadable("tls.crt", "no X.509 certificate".into()))?;
    let provider = CryptoProvider::get_default().ok_or(PkiError::NoProvider)?;
    let key = private_keys::read(key)
        .and_then(|key| private_keys::certified(chain, key, provider, "certificate in tls.crt"))
        .map_err(|problem| unreadable("tls.key", problem.to_string()))?;
    if now < from || now >= until {
        return Err(PkiError::Expired { from, until });
    }
    let found_issuer =
        issuer.map(certificates).into_iter().flatten().find(|candidate| trusts([candidate], &key, now));
    if issuer.is_some() && found_issuer.is_none() {
        return Err(unreadable("ca.crt", "did not sign tls.crt".into()));
    }
    let leaf = Leaf {
        issuer: found_issuer
            .as_ref()
            .map(|found_issuer| found_issuer.info.fingerprint.clone())
            .unwrap_or_default(),
        not_before: from,
        not_after: until,
        names_complete: names.iter().all(|name| matches_name(&first, name)),
    };
    Ok(LoadedCertificate { key: Arc::new(key), leaf, issuer: found_issuer })
}

/// Returns the certificate that is shown to clients.
pub fn leaf_certificate(key: &CertifiedKey) -> Option<Certificate> {
    parse(key.cert.first()?.clone())
}

/// Returns whether a certificate is valid for this name.
pub fn has_san(key: &CertifiedKey, name: &str) -> bool {
    key.cert.first().is_some_and(|leaf| matches_name(leaf, name))
}

fn matches_name(leaf: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(leaf), ServerName::try_from(name)) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Verifies a certificate like a client that trusts the CAs in `bundle` and dials `name`.
pub fn verify(
    bundle: &[Certificate],
    key: &CertifiedKey,
    name: &str,
    now: Timestamp,
) -> Result<(), VerificationError> {
    let leaf = key.cert.first().ok_or(VerificationError::Unreadable)?;
    let (from, until) = validity_period(leaf).ok_or(VerificationError::Unreadable)?;
    if now >= until {
        return Err(VerificationError::Expired(until));
    }
    if now < from {
        return Err(VerificationError::NotYetValid(from));
    }
    if !matches_name(leaf, name) {
        return Err(VerificationError::NameMismatch(name.to_owned()));
    }
    if bundle.is_empty() {
        return Err(VerificationError::EmptyBundle);
    }
    // The verifier ignores the validity of roots; the API server does not.
    let valid: Vec<&Certificate> =
        bundle.iter().filter(|ca| ca.info.not_before <= now && now < ca.info.not_after).collect();
    if trusts(valid, key, now) { Ok(()) } else { Err(VerificationError::Untrusted) }
}

/// Returns whether one of these CAs signed the certificate, and it is valid now.
pub fn trusts<'a>(
    bundle: impl IntoIterator<Item = &'a Certificate>,
    key: &CertifiedKey,
    now: Timestamp,
) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.into_iter().map(|certificate| certificate.der.clone()));
    let (Some((leaf, intermediates)), Some(provider)) =
        (key.cert.split_first(), CryptoProvider::get_default())
    else {
        return false;
    };
    let Ok(parsed) = ParsedCertificate::try_from(leaf) else {
        return false;
    };
    let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
    let algorithms = provider.signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, time, algorithms).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unservable_keys_are_named_with_their_problem() {
        crate::kube::cryptography::install();
        let (now, day) = (Timestamp::now(), Duration::from_hours(24));
        let (own, other) = (new_ca(now, day).unwrap(), new_ca(now, day).unwrap());
        let loaded = |key: &str| load(own.certificate.as_bytes(), key.as_bytes(), None, &[], now);
        assert!(loaded(&own.key).is_ok());
        let encrypted = own.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        for (key, problem) in [
            (other.key.as_str(), "tls.key: it does not match the certificate in tls.crt"),
            (encrypted.as_str(), "tls.key: it is encrypted"),
            (own.certificate.as_str(), "tls.key: it has no private key in PEM"),
        ] {
            let error = loaded(key).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
