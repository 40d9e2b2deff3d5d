//! Errors about private keys that cannot be used. The TLS library names neither the file nor the problem.
//!
//! Invariants: a key is refused only if the client or listener would refuse it; no error contains a part of a key.

use super::cryptography;
use ::kube::Config;
use k8s_openapi::ByteString;
use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use std::borrow::Cow;
use std::sync::Arc;

/// Advice in errors: the supported forms of keys.
const SUPPORTED: &str = "use P-256, P-384, P-521, Ed25519 or RSA";

/// Object identifiers in DER of unsupported forms of keys, and the names of the forms.
const FORMS: [(&[u8], &str); 11] = [
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x21], "the curve P-224"),
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a], "the curve secp256k1"),
    (&[0x06, 0x09, 0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01], "a curve of Brainpool"),
    (&PRIME_FIELD, IN_FULL),
    (&[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x01, 0x02], IN_FULL),
    (&[0x06, 0x03, 0x2b, 0x65, 0x71], "Ed448"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x6e], "X25519"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x6f], "X448"),
    (&[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01], "DSA"),
    (&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a], "RSA-PSS"),
    (&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01], RSA),
];
/// Identifier of prime fields: keys and certificates that spell out the parameters of their curve contain it.
const PRIME_FIELD: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x01, 0x01];
const IN_FULL: &str = "a curve in full, without its name,";
const RSA: &str = "an RSA key that is damaged, or not of 2048 to 8192 bits,";

/// PEM labels of keys that the library skips as if they were no keys, and the names of the forms.
const LABELS: [(&str, &str); 2] =
    [("BEGIN OPENSSH PRIVATE KEY", "the form of OpenSSH"), ("BEGIN DSA PRIVATE KEY", "DSA")];
/// Number of final bytes by which public keys are compared. The bytes before them describe the curve, in one of several ways.
const PUBLIC_BYTES: usize = 64;
/// Texts in the PEM of encrypted keys.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// A key, or the certificate with it, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct UnusableKey {
    /// Name of the key or certificate, and its file or field.
    what: String,
    /// The problem.
    problem: KeyProblem,
}

/// Problems of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// It is encrypted.
    #[error("it is encrypted, and no passphrase is asked for: decrypt it with `openssl pkey`")]
    Encrypted,
    /// There is no private key.
    #[error("it has no private key in PEM")]
    NoKey,
    /// There is no certificate.
    #[error("it has no certificate in PEM")]
    NoCertificate,
    /// The text is no PEM.
    #[error("its PEM is damaged: {0}")]
    Damaged(Cow<'static, str>),
    /// There is another section beside key and certificates.
    #[error("it has {0}, which is neither a private key nor a certificate: remove it")]
    Beside(&'static str),
    /// Keys of this form are not supported.
    #[error("{0} is not supported: {SUPPORTED}")]
    Form(&'static str),
    /// The certificate with this name belongs to another key.
    #[error("it does not match the {0}")]
    Mismatch(String),
    /// The certificate with this name belongs to a key other than the one that the client would use.
    #[error(
        "there are several private keys, and another one than is used matches the {0}: remove those that do not"
    )]
    Several(String),
    /// The PEM label is that of another form of key.
    #[error("its PEM is labelled {has}, and holds a key of the form {is}: correct the label")]
    Label {
        /// The label.
        has: &'static str,
        /// The label of its form.
        is: &'static str,
    },
    /// The certificate with this name cannot be read.
    #[error("the {0} is no X.509 certificate")]
    NoX509(String),
    /// Another error of the TLS library.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// A text in PEM, and its name in errors.
#[derive(Clone, Copy)]
struct Named<'a> {
    pem: &'a [u8],
    name: &'a str,
}

impl Named<'_> {
    fn unusable(self, problem: KeyProblem) -> UnusableKey {
        UnusableKey { what: self.name.to_owned(), problem }
    }

    /// Returns the sections of the text. A client uses only keys and certificates.
    fn sections(self) -> Result<Vec<(SectionKind, Vec<u8>)>, UnusableKey> {
        let (mut reader, mut all) = (self.pem, Vec::new());
        loop {
            match pem::from_buf(&mut reader) {
                Ok(Some(section)) => all.push(section),
                Ok(None) => break,
                Err(error) => return Err(self.unusable(why_unread(self.pem, &error))),
            }
        }
        match all.iter().find_map(|(kind, _)| beside(*kind)) {
            Some(beside) => Err(self.unusable(KeyProblem::Beside(beside))),
            None => Ok(all),
        }
    }
}

/// Returns the name of a section that is neither a key nor a certificate.
const fn beside(kind: SectionKind) -> Option<&'static str> {
    match kind {
        SectionKind::Certificate
        | SectionKind::PrivateKey
        | SectionKind::RsaPrivateKey
        | SectionKind::EcPrivateKey => None,
        SectionKind::PublicKey => Some("the public part of a key"),
        SectionKind::Csr => Some("a certificate request"),
        SectionKind::Crl => Some("a revocation list"),
        _ => Some("another object"),
    }
}

/// Returns why a text has no readable key.
fn why_unread(text: &[u8], error: &pem::Error) -> KeyProblem {
    let text = String::from_utf8_lossy(text);
    if ENCRYPTED.iter().any(|mark| text.contains(mark)) {
        return KeyProblem::Encrypted;
    }
    if let Some((_, form)) = LABELS.iter().find(|(label, _)| text.contains(label)) {
        return KeyProblem::Form(form);
    }
    KeyProblem::Damaged(match error {
        pem::Error::NoItemsFound => return KeyProblem::NoKey,
        pem::Error::MissingSectionEnd { .. } => "a section has no end".into(),
        pem::Error::IllegalSectionStart { .. } => "a section has no proper beginning".into(),
        pem::Error::Base64Decode(_) => "a section is not in base64".into(),
        other => other.to_string().into(),
    })
}

/// Returns why the TLS library refuses a key.
fn why_refused(key: &PrivateKeyDer<'_>, error: &rustls::Error) -> KeyProblem {
    let form = FORMS.iter().find(|(identifier, _)| has(key.secret_der(), identifier)).map(|(_, name)| *name);
    let rsa = matches!(key, PrivateKeyDer::Pkcs1(_)).then_some(RSA);
    form.or(rsa).map_or_else(|| KeyProblem::Unreadable(error.to_string()), KeyProblem::Form)
}

/// Returns whether `all` contains `part`.
fn has(all: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && all.windows(part.len()).any(|own| own == part)
}

/// Returns the PEM label of a form of keys.
const fn label_of(key: &PrivateKeyDer<'_>) -> &'static str {
    match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    }
}

/// Returns the problem of a key that the library would accept under another label.
fn wrong_label(key: &PrivateKeyDer<'_>, provider: &CryptoProvider) -> Option<KeyProblem> {
    let der = key.secret_der();
    let forms: [PrivateKeyDer<'static>; 3] = [
        PrivateKeyDer::Pkcs8(der.to_vec().into()),
        PrivateKeyDer::Pkcs1(der.to_vec().into()),
        PrivateKeyDer::Sec1(der.to_vec().into()),
    ];
    for form in forms {
        let is = label_of(&form);
        if is != label_of(key) && provider.key_provider.load_private_key(form).is_ok() {
            return Some(KeyProblem::Label { has: label_of(key), is });
        }
    }
    None
}

/// Returns the first key of a text in PEM.
///
/// # Errors
/// The text has no readable key.
pub fn read(pem: &[u8]) -> Result<PrivateKeyDer<'static>, KeyProblem> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| why_unread(pem, &error))
}

fn load(key: PrivateKeyDer<'static>, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, KeyProblem> {
    let copy = key.clone_key();
    let refused = |error| wrong_label(&copy, provider).unwrap_or_else(|| why_refused(&copy, &error));
    provider.key_provider.load_private_key(key).map_err(refused)
}

/// Returns whether the first certificate of a chain has the public part of a key, by its last bytes.
fn has_public_part(certified: &CertifiedKey) -> bool {
    let (key, certificate) = (certified.key.public_key(), certified.cert.first());
    key.zip(certificate).is_some_and(|(key, certificate)| {
        let key: &[u8] = key.as_ref();
        key.get(key.len().saturating_sub(PUBLIC_BYTES)..).is_some_and(|last| has(certificate, last))
    })
}

/// Joins a key and its chain of certificates. `certificate` is the name of the chain in errors.
///
/// # Errors
/// The key cannot be used, or does not belong to the first certificate.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
    certificate: &str,
) -> Result<CertifiedKey, KeyProblem> {
    let is_in_full =
        has(key.secret_der(), &PRIME_FIELD) || chain.first().is_some_and(|own| has(own, &PRIME_FIELD));
    let certified = CertifiedKey::new(chain, load(key, provider)?);
    match certified.keys_match() {
        // The TLS library accepts a key whose public part it cannot compute.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        // The library accepts such a key, but not its certificate, which does not name its curve either.
        Err(rustls::Error::InconsistentKeys(_)) if is_in_full && has_public_part(&certified) => {
            Err(KeyProblem::Form(IN_FULL))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(KeyProblem::Mismatch(certificate.to_owned())),
        Err(_) => Err(KeyProblem::NoX509(certificate.to_owned())),
    }
}

/// Returns the key in a section, if it has one.
fn key_of((kind, der): &(SectionKind, Vec<u8>)) -> Option<PrivateKeyDer<'static>> {
    let der = der.clone();
    Some(match kind {
        SectionKind::PrivateKey => PrivateKeyDer::Pkcs8(der.into()),
        SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(der.into()),
        SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(der.into()),
        _ => return None,
    })
}

/// Returns the rank of a form of keys in a client's choice; the highest is used.
const fn preference(key: &PrivateKeyDer<'_>) -> u8 {
    match key {
        PrivateKeyDer::Pkcs8(_) => 2,
        PrivateKeyDer::Pkcs1(_) => 1,
        _ => 0,
    }
}

/// Checks the key of a client, and its certificate if it is known, as the client would choose them: of several keys PKCS#8
/// before RSA before EC, and the last key of a form.
fn check_identity(key: Named<'_>, certificate: Option<Named<'_>>) -> Result<(), UnusableKey> {
    let mut all = key.sections()?;
    if let Some(certificate) = certificate {
        all.extend(certificate.sections()?);
    }
    // A stable sort: the last key of a form stays last, and is the one that is used.
    let mut keys: Vec<PrivateKeyDer<'static>> = all.iter().filter_map(key_of).collect();
    keys.sort_by_key(preference);
    let Some(used) = keys.pop() else {
        return Err(key.unusable(why_unread(key.pem, &pem::Error::NoItemsFound)));
    };
    let of_certificates = all.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    let chain: Vec<CertificateDer<'static>> = of_certificates.map(|(_, der)| der.into()).collect();
    let provider = cryptography::provider();
    let checked = match certificate {
        Some(certificate) if chain.is_empty() => {
            return Err(certificate.unusable(KeyProblem::NoCertificate));
        }
        Some(certificate) => {
            let check = |key| certified(chain.clone(), key, &provider, certificate.name).map(drop);
            check(used).map_err(|problem| {
                let another = keys.into_iter().any(|key| check(key).is_ok());
                if another { KeyProblem::Several(certificate.name.to_owned()) } else { problem }
            })
        }
        None => load(used, &provider).map(drop),
    };
    checked.map_err(|problem| key.unusable(problem))
}

/// Checks the client key of a configuration before it is used. Missing files are left to the client, which reports them. The
/// key of a plugin is known only when the plugin runs.
///
/// # Errors
/// The key cannot be used; the error names its file or field, and the problem.
pub fn check_client_key(config: &Config) -> Result<(), UnusableKey> {
    let auth = &config.auth_info;
    let fields = serde_json::to_value(auth).unwrap_or_default();
    // Data comes before a file, as for the client.
    let pem_of = |what: &str, path: Option<&String>| {
        let field = format!("{what}-data").replace(' ', "-");
        if let Some(data) = fields.get(&field).filter(|data| !data.is_null()) {
            let data = serde_json::from_value::<ByteString>(data.clone()).ok()?;
            return Some((data.0, format!("{what} in the kubeconfig ({field})")));
        }
        let path = path?;
        Some((std::fs::read(path).ok()?, format!("{what} {path}")))
    };
    let Some((key, key_name)) = pem_of("client key", auth.client_key.as_ref()) else { return Ok(()) };
    let certificate = pem_of("client certificate", auth.client_certificate.as_ref());
    let certificate = certificate.as_ref().map(|(pem, name)| Named { pem, name });
    check_identity(Named { pem: &key, name: &key_name }, certificate)
}

/// Adds possible causes to the error of a connection.
pub(super) fn explained(error: String) -> String {
    let of_server = ["HandshakeFailure", "UnsupportedSignatureAlgorithm", "UnsupportedCertificateSignature"];
    if of_server.iter().any(|name| error.contains(name)) {
        return format!(
            "{error} (the server's certificate or authority may have a key that is not supported: {SUPPORTED})"
        );
    }
    error
}

#[cfg(test)]
mod tests;
