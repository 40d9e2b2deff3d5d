//! Certificates and keys, generated for each control plane.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P521_SHA512,
};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A certificate authority that signs server and user certificates.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, in PEM.
pub struct PemPair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl CertificateAuthority {
    /// Generates an authority.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name = subject(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let pem = CertifiedIssuer::self_signed(params.clone(), &key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Reads an authority that was made elsewhere; both in PEM.
    pub fn existing(certificate: &str, key: &str) -> Result<Self> {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
        Ok(Self { issuer, pem: certificate.to_owned() })
    }

    /// Returns its certificate in PEM.
    pub fn pem(&self) -> String {
        self.pem.clone()
    }

    /// Issues a server certificate for these DNS names and IP addresses.
    pub fn server(&self, name: &str, names: &[&str]) -> Result<PemPair> {
        let mut params = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name = subject(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Like `server`, with a key on P-521, valid for `time` starting `from` seconds from now (negative: in the past).
    pub fn server_with_validity(
        &self,
        name: &str,
        names: &[&str],
        from: i64,
        time: Duration,
    ) -> Result<PemPair> {
        let mut params = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name = subject(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let from = u64::try_from(jiff::Timestamp::now().as_second().saturating_add(from))?;
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(from);
        params.not_after = params.not_before + time;
        self.sign_key(&params, &KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512)?)
    }

    /// Issues a client certificate for a user and an optional group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<PemPair> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name = subject(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<PemPair> {
        self.sign_key(params, &KeyPair::generate()?)
    }

    fn sign_key(&self, params: &CertificateParams, key: &KeyPair) -> Result<PemPair> {
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok(PemPair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Kubernetes reads the user from the common name and the group from the organization.
fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

/// Generates a key pair for service account tokens: private and public key, in PEM.
pub fn signing_key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Writes a file with mode 0600; returns its path.
pub fn write_private(path: &Path, text: &str) -> Result<PathBuf> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(path.to_owned())
}
