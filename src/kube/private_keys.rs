//! Names private keys that cannot be used, of which the TLS library says neither the file nor what is wrong.
//!
//! Invariants: a key is refused only if the client or listener would refuse it; nothing of a key is in an error.

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

/// What can be used instead.
const SUPPORTED: &str = "use P-256, P-384, P-521, Ed25519 or RSA";

/// Object identifiers in DER that a key of a form has which is not supported, and the name of the form.
const FORMS: [(&[u8], &str); 11] = [
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x21], "the curve P-224"),
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a], "the curve secp256k1"),
    (&[0x06, 0x09, 0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01], "a curve of Brainpool"),
    (&[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x01, 0x01], "a curve in full, without its name,"),
    (&[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x01, 0x02], "a curve in full, without its name,"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x71], "Ed448"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x6e], "X25519"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x6f], "X448"),
    (&[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01], "DSA"),
    (&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a], "RSA-PSS"),
    (&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01], RSA),
];
const RSA: &str = "an RSA key that is damaged, or not of 2048 to 8192 bits,";

/// Labels in PEM of keys that are left out as if they were no keys, and the name of the form.
const LABELS: [(&str, &str); 2] =
    [("BEGIN OPENSSH PRIVATE KEY", "the form of OpenSSH"), ("BEGIN DSA PRIVATE KEY", "DSA")];
/// What the PEM of an encrypted key has.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// A key, or the certificate with it, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct UnusableKey {
    /// Which one it is, and where it is.
    what: String,
    /// What is wrong.
    problem: KeyProblem,
}

/// What is wrong with a key.
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
    /// There is something else beside key and certificates.
    #[error("it has {0}, which is neither a private key nor a certificate: remove it")]
    Beside(&'static str),
    /// Keys of this form are not supported.
    #[error("{0} is not supported: {SUPPORTED}")]
    Form(&'static str),
    /// The certificate with this name is one of another key.
    #[error("it does not match the {0}")]
    Mismatch(String),
    /// The certificate with this name cannot be read.
    #[error("the {0} is no X.509 certificate")]
    NoX509(String),
    /// Another problem that the TLS library has.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// A text in PEM, and what it is called in errors.
#[derive(Clone, Copy)]
struct Named<'a> {
    pem: &'a [u8],
    name: &'a str,
}

impl Named<'_> {
    fn unusable(self, problem: KeyProblem) -> UnusableKey {
        UnusableKey { what: self.name.to_owned(), problem }
    }

    /// Returns its sections, of which a client takes keys and certificates alone.
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

/// Returns what a section is, if it is neither a key nor a certificate.
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

/// Returns why a text has no key that can be read.
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

/// Returns why the TLS library does not take a key.
fn why_refused(key: &PrivateKeyDer<'_>, error: &rustls::Error) -> KeyProblem {
    let der = key.secret_der();
    let has = |identifier: &[u8]| der.windows(identifier.len()).any(|part| part == identifier);
    let form = FORMS.iter().find(|(identifier, _)| has(identifier)).map(|(_, name)| *name);
    let rsa = matches!(key, PrivateKeyDer::Pkcs1(_)).then_some(RSA);
    form.or(rsa).map_or_else(|| KeyProblem::Unreadable(error.to_string()), KeyProblem::Form)
}

/// Returns the first key of a text in PEM.
///
/// # Errors
/// It has none that can be read.
pub fn read(pem: &[u8]) -> Result<PrivateKeyDer<'static>, KeyProblem> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| why_unread(pem, &error))
}

fn load(key: PrivateKeyDer<'static>, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, KeyProblem> {
    let copy = key.clone_key();
    provider.key_provider.load_private_key(key).map_err(|error| why_refused(&copy, &error))
}

/// Joins a key and its chain of certificates, which errors call `certificate`.
///
/// # Errors
/// The key cannot be used, or is not that of the first certificate.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
    certificate: &str,
) -> Result<CertifiedKey, KeyProblem> {
    let certified = CertifiedKey::new(chain, load(key, provider)?);
    match certified.keys_match() {
        // The TLS library takes a key whose public part it does not know.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(KeyProblem::Mismatch(certificate.to_owned())),
        Err(_) => Err(KeyProblem::NoX509(certificate.to_owned())),
    }
}

/// Checks the key of a client, with its certificate if that is known, as the client reads them: one after the other, of several keys one in
/// PKCS#8 before one of RSA before one of EC, and the last of a kind.
fn check_identity(key: Named<'_>, certificate: Option<Named<'_>>) -> Result<(), UnusableKey> {
    let mut all = key.sections()?;
    if let Some(certificate) = certificate {
        all.extend(certificate.sections()?);
    }
    let last = |wanted: SectionKind| {
        let found = all.iter().rev().find(|(kind, _)| *kind == wanted);
        found.map(|(_, der)| der.clone())
    };
    let found = last(SectionKind::PrivateKey).map(|der| PrivateKeyDer::Pkcs8(der.into()));
    let found =
        found.or_else(|| last(SectionKind::RsaPrivateKey).map(|der| PrivateKeyDer::Pkcs1(der.into())));
    let found = found.or_else(|| last(SectionKind::EcPrivateKey).map(|der| PrivateKeyDer::Sec1(der.into())));
    let Some(found) = found else {
        return Err(key.unusable(why_unread(key.pem, &pem::Error::NoItemsFound)));
    };
    let of_certificates = all.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    let chain: Vec<CertificateDer<'static>> = of_certificates.map(|(_, der)| der.into()).collect();
    let provider = cryptography::provider();
    let checked = match certificate {
        Some(certificate) if chain.is_empty() => {
            return Err(certificate.unusable(KeyProblem::NoCertificate));
        }
        Some(certificate) => certified(chain, found, &provider, certificate.name).map(drop),
        None => load(found, &provider).map(drop),
    };
    checked.map_err(|problem| key.unusable(problem))
}

/// Checks the client key of a configuration before it is used. What is missing is left to the client, which says so, and what a plugin
/// gives is known only when it is run.
///
/// # Errors
/// The key cannot be used; the error names its file or field, and what is wrong.
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

/// Adds to the error of a connection what it may be due to.
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
mod tests {
    use super::*;
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512,
        PKCS_ED25519,
    };
    use serde_json::{Value, json};

    /// A key in PEM that has an identifier, and nothing that can be used.
    fn with_identifier(label: &str, identifier: &[u8]) -> String {
        let der = [&[0x30, 0x20, 0x02, 0x01, 0x01][..], identifier, &[1; 24]].concat();
        section(label, &base64(der))
    }

    fn base64(bytes: Vec<u8>) -> String {
        serde_json::to_value(ByteString(bytes)).unwrap().as_str().unwrap().to_owned()
    }

    fn section(label: &str, text: &str) -> String {
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate =
            CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn checked(key: &str, certificate: &str) -> Result<(), String> {
        let certificate = Named { pem: certificate.as_bytes(), name: "client certificate /c" };
        let key = Named { pem: key.as_bytes(), name: "client key /k" };
        check_identity(key, Some(certificate)).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_that_can_be_used_are_not_refused() {
        for algorithm in
            [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ECDSA_P521_SHA512, &PKCS_ED25519]
        {
            let (certificate, key) = pair(algorithm);
            assert_eq!(checked(&key, &certificate), Ok(()));
            // With line ends of Windows, text around it, the parameters of its curve, and the certificate in the same file.
            assert_eq!(checked(&key.replace('\n', "\r\n"), &format!("text\n{certificate}text\n")), Ok(()));
            let parameters = section("EC PARAMETERS", "BgUrgQQAIg==");
            assert_eq!(checked(&format!("{parameters}{key}{certificate}"), &certificate), Ok(()));
            let alone = Named { pem: key.as_bytes(), name: "k" };
            assert_eq!(check_identity(alone, None), Ok(()));
        }
    }

    #[test]
    fn keys_that_cannot_be_used_are_named_with_their_file_and_what_is_wrong() {
        let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let (other, _) = pair(&PKCS_ECDSA_P384_SHA384);
        let (same_curve, _) = pair(&PKCS_ECDSA_P256_SHA256);
        let refused = |key: &str, certificate: &str| checked(key, certificate).unwrap_err();
        for label in ["EC PRIVATE KEY", "PRIVATE KEY"] {
            for (identifier, form) in FORMS {
                assert_eq!(
                    refused(&with_identifier(label, identifier), &certificate),
                    format!("client key /k: {form} is not supported: {SUPPORTED}")
                );
            }
            let unknown = refused(&with_identifier(label, &[0x06, 0x01, 0x2a]), &certificate);
            assert!(unknown.starts_with("client key /k: it cannot be read: "), "{unknown}");
        }
        let rsa = refused(&with_identifier("RSA PRIVATE KEY", &[]), &certificate);
        assert!(rsa.contains(RSA), "{rsa}");
        let headers = format!("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,2F\n\n{}", base64(vec![1; 48]));
        for encrypted in [
            section("ENCRYPTED PRIVATE KEY", &base64(vec![1; 48])),
            section("RSA PRIVATE KEY", &headers),
            section("EC PRIVATE KEY", &headers),
        ] {
            let error = refused(&encrypted, &certificate);
            assert!(error.starts_with("client key /k: it is encrypted"), "{error}");
        }
        let ssh = refused(&section("OPENSSH PRIVATE KEY", "AAAA"), &certificate);
        assert!(ssh.starts_with("client key /k: the form of OpenSSH is not supported"), "{ssh}");
        let parameters = section("EC PARAMETERS", "BgUrgQQAIg==");
        for none in ["", "no key", certificate.as_str(), parameters.as_str()] {
            assert_eq!(refused(none, &certificate), "client key /k: it has no private key in PEM");
        }
        let (body, _) = key.split_once("-----END").unwrap();
        assert_eq!(refused(body, &certificate), "client key /k: its PEM is damaged: a section has no end");
        let damaged = refused(&section("PRIVATE KEY", "?!"), &certificate);
        assert_eq!(damaged, "client key /k: its PEM is damaged: a section is not in base64");
        let public = refused(&format!("{key}{}", section("PUBLIC KEY", "AAAA")), &certificate);
        assert_eq!(
            public,
            "client key /k: it has the public part of a key, which is neither a private key nor a certificate: remove it"
        );
        for other in [&other, &same_curve] {
            let error = refused(&key, other);
            assert_eq!(error, "client key /k: it does not match the client certificate /c");
        }
        assert_eq!(refused(&key, "no"), "client certificate /c: it has no certificate in PEM");
        let no_x509 = refused(&key, &section("CERTIFICATE", "AAAA"));
        assert_eq!(no_x509, "client key /k: the client certificate /c is no X.509 certificate");
    }

    fn check(auth: Value) -> Result<(), String> {
        let mut config = Config::new("https://127.0.0.1:9".parse().unwrap());
        config.auth_info = serde_json::from_value(auth).unwrap();
        check_client_key(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn the_client_key_of_a_kubeconfig_is_found_in_its_file_and_in_its_data() {
        let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let (other, _) = pair(&PKCS_ECDSA_P256_SHA256);
        let folder = std::env::temp_dir().join(format!("sluice-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let data = |text: &str| base64(text.as_bytes().to_vec());
        let ed448 = with_identifier("PRIVATE KEY", &[0x06, 0x03, 0x2b, 0x65, 0x71]);
        let (key_file, bad_file) = (file("key", &key), file("ed448", &ed448));
        let (certificate_file, other_file) = (file("certificate", &certificate), file("other", &other));
        let in_file =
            check(json!({"client-key": bad_file, "client-certificate": certificate_file})).unwrap_err();
        assert!(in_file.starts_with(&format!("client key {bad_file}: Ed448 is not supported")), "{in_file}");
        let in_data = check(json!({"client-key-data": data(&ed448), "client-certificate": certificate_file}))
            .unwrap_err();
        assert!(in_data.starts_with("client key in the kubeconfig (client-key-data): Ed448"), "{in_data}");
        let mismatch = check(json!({"client-key": key_file, "client-certificate": other_file})).unwrap_err();
        assert_eq!(
            mismatch,
            format!("client key {key_file}: it does not match the client certificate {other_file}")
        );
        let mismatch = json!({"client-key-data": data(&key), "client-certificate-data": data(&other)});
        let mismatch = check(mismatch).unwrap_err();
        let of_data = "it does not match the client certificate in the kubeconfig (client-certificate-data)";
        assert!(mismatch.ends_with(of_data), "{mismatch}");
        for usable in [
            json!({}),
            json!({"token": "t"}),
            json!({"client-key": key_file, "client-certificate": certificate_file}),
            json!({"client-key-data": data(&key), "client-certificate-data": data(&certificate)}),
            // Data is used, whatever is in the files.
            json!({"client-key": bad_file, "client-key-data": data(&key), "client-certificate": other_file,
                "client-certificate-data": data(&certificate)}),
            // The client itself says that there is no such file.
            json!({"client-key": "/does/not/exist", "client-certificate": certificate_file}),
        ] {
            assert_eq!(check(usable.clone()), Ok(()), "{usable}");
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert!(explained("received fatal alert: HandshakeFailure".to_owned()).contains("not supported"));
    }
}
