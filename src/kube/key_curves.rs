//! Names keys on curves that the TLS library of this program does not have, of which its own errors say neither file nor curve.

use ::kube::Config;
use k8s_openapi::ByteString;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

/// What can be used instead.
const SUPPORTED: &str = "use P-256, P-384, P-521, Ed25519 or RSA";

/// Object identifiers of curves, in DER, and their names.
const CURVES: [(&[u8], &str); 2] = [
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x21], "P-224"),
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a], "secp256k1"),
];

/// A key that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: the curve {curve} is not supported: {SUPPORTED}")]
pub struct UnsupportedKey {
    /// The key: what it is for, and where it is.
    key: String,
    /// Its curve.
    curve: &'static str,
}

/// Returns the curve of a private key in PEM, if it is one that cannot be used.
fn unsupported_curve(pem: &[u8]) -> Option<&'static str> {
    let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
    let der = key.secret_der();
    let has = |identifier: &[u8]| der.windows(identifier.len()).any(|part| part == identifier);
    CURVES.iter().find(|(identifier, _)| has(identifier)).map(|(_, name)| *name)
}

/// Checks that a private key in PEM is on a curve that can be used.
///
/// # Errors
/// It is not; the error names the key as given.
pub fn check_key(pem: &[u8], key: &str) -> Result<(), UnsupportedKey> {
    unsupported_curve(pem).map_or(Ok(()), |curve| Err(UnsupportedKey { key: key.to_owned(), curve }))
}

/// Checks the client key of a configuration likewise. What cannot be read is left to the client, which says so.
///
/// # Errors
/// As above.
pub fn check_client_key(config: &Config) -> Result<(), UnsupportedKey> {
    let auth = &config.auth_info;
    if let Some(path) = &auth.client_key {
        let pem = std::fs::read(path).unwrap_or_default();
        return check_key(&pem, &format!("client key {path}"));
    }
    if auth.client_key_data.is_none() {
        return Ok(());
    }
    let data = serde_json::to_value(auth).ok().and_then(|mut auth| {
        let data = auth.get_mut("client-key-data")?.take();
        serde_json::from_value::<ByteString>(data).ok()
    });
    check_key(&data.unwrap_or_default().0, "client key in the kubeconfig (client-key-data)")
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
    use serde_json::json;

    fn pem(label: &str, curve: &[u8]) -> String {
        let der = [&[0x30, 0x10, 0x02, 0x01, 0x01][..], curve, &[1; 8]].concat();
        let text = serde_json::to_value(ByteString(der)).unwrap();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", text.as_str().unwrap())
    }

    #[test]
    fn a_key_on_a_missing_curve_is_named_with_its_file_and_curve() {
        for label in ["EC PRIVATE KEY", "PRIVATE KEY"] {
            for (identifier, name) in CURVES {
                let error =
                    check_key(pem(label, identifier).as_bytes(), "client key /k").unwrap_err().to_string();
                assert!(
                    error.starts_with(&format!("client key /k: the curve {name} is not supported")),
                    "{error}"
                );
            }
            let p256 = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07][..];
            let p521 = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23][..];
            for curve in [p256, p521] {
                assert_eq!(check_key(pem(label, curve).as_bytes(), "k"), Ok(()));
            }
        }
        for other in ["", "no key"] {
            assert_eq!(check_key(other.as_bytes(), "k"), Ok(()));
        }
    }

    #[test]
    fn the_client_key_of_a_kubeconfig_is_found_in_its_file_and_in_its_data() {
        let key = pem("PRIVATE KEY", CURVES[0].0);
        let path = std::env::temp_dir().join(format!("sluice-key-{}", std::process::id()));
        std::fs::write(&path, &key).unwrap();
        let data = serde_json::to_value(ByteString(key.into_bytes())).unwrap();
        for (auth, named) in [
            (json!({"client-key": path}), path.display().to_string()),
            (json!({"client-key-data": data}), "client-key-data".to_owned()),
        ] {
            let mut config = Config::new("https://127.0.0.1:9".parse().unwrap());
            config.auth_info = serde_json::from_value(auth).unwrap();
            let error = check_client_key(&config).unwrap_err().to_string();
            assert!(error.contains(&named) && error.contains(CURVES[0].1), "{error}");
        }
        std::fs::remove_file(path).unwrap();
        assert_eq!(check_client_key(&Config::new("https://127.0.0.1:9".parse().unwrap())), Ok(()));
        assert!(explained("received fatal alert: HandshakeFailure".to_owned()).contains("not supported"));
    }
}
