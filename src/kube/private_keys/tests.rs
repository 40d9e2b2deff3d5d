//! Keys that are accepted and refused, with the texts of the errors.

use super::*;
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512,
    PKCS_ED25519,
};
use serde_json::{Value, json};

/// A key in PEM that contains an identifier and is otherwise unusable.
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
    let certificate = CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn checked(key: &str, certificate: &str) -> Result<(), String> {
    let certificate = Named { pem: certificate.as_bytes(), name: "client certificate /c" };
    let key = Named { pem: key.as_bytes(), name: "client key /k" };
    check_identity(key, Some(certificate)).map_err(|error| error.to_string())
}

#[test]
fn usable_keys_are_accepted() {
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
fn unusable_keys_are_named_with_file_and_problem() {
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

/// kubectl uses the first of several keys.
#[test]
fn several_keys_are_named_as_such() {
    let (first_certificate, first) = pair(&PKCS_ECDSA_P256_SHA256);
    let (last_certificate, last) = pair(&PKCS_ECDSA_P384_SHA384);
    let (other_certificate, _) = pair(&PKCS_ED25519);
    let both = format!("{first}{last}");
    assert_eq!(checked(&both, &last_certificate), Ok(()), "the last one is used");
    let several = "client key /k: there are several private keys, and another one than is used matches the client certificate /c: \
                   remove those that do not";
    assert_eq!(checked(&both, &first_certificate).unwrap_err(), several);
    let in_certificate = checked(&first, &format!("{first_certificate}{last}")).unwrap_err();
    assert_eq!(in_certificate, several, "a client reads the certificate's file as well");
    let unusable = with_identifier("PRIVATE KEY", &[0x06, 0x03, 0x2b, 0x65, 0x71]);
    assert_eq!(checked(&format!("{first}{unusable}"), &first_certificate).unwrap_err(), several);
    let none = checked(&both, &other_certificate).unwrap_err();
    assert_eq!(none, "client key /k: it does not match the client certificate /c");
}

#[test]
fn wrong_labels_of_keys_are_named() {
    let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
    let labelled = key.replace("PRIVATE KEY", "RSA PRIVATE KEY");
    assert_eq!(
        checked(&labelled, &certificate).unwrap_err(),
        "client key /k: its PEM is labelled RSA PRIVATE KEY, and holds a key of the form PRIVATE KEY: correct the label"
    );
}

/// The parameters of P-256 in full, as `openssl ecparam -param_enc explicit` writes them.
const EXPLICIT: &str = concat!(
    "MIH3AgEBMCwGByqGSM49AQECIQD/////AAAAAQAAAAAAAAAAAAAAAP///////////////zBbBCD/////AAAAAQAAAAAAAAAAAAAAAP///////////////AQg",
    "WsY12Ko6k+ez671VdpiGvGUdBrDMU7D2O848PifSYEsDFQDEnTYIhucEk2pmeOETnSa3gZ9+kARBBGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXY",
    "mMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfUCIQD/////AAAAAP//////////vOb6racXnoTzucrC/GMlUQIBAQ==",
);

fn from_base64(text: &str) -> Vec<u8> {
    serde_json::from_value::<ByteString>(json!(text)).unwrap().0
}

fn der_of(pem: &str) -> Vec<u8> {
    from_base64(&pem.lines().filter(|line| !line.starts_with('-')).collect::<String>())
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = match (high, low) {
        (0, 0..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content.to_vec()].concat()
}

/// Returns the lengths of the head and of the content of a value in DER.
fn lengths(der: &[u8]) -> (usize, usize) {
    match der[1] {
        0x81 => (3, usize::from(der[2])),
        0x82 => (4, usize::from(u16::from_be_bytes([der[2], der[3]]))),
        length => (2, usize::from(length)),
    }
}

/// Returns a value in DER with another part at a path of positions.
fn replaced(der: &[u8], path: &[usize], new: &[u8]) -> Vec<u8> {
    let Some((position, below)) = path.split_first() else { return new.to_vec() };
    let (head, length) = lengths(der);
    let (mut rest, mut parts) = (&der[head..head + length], Vec::new());
    while !rest.is_empty() {
        let (head, length) = lengths(rest);
        let (part, next) = rest.split_at(head + length);
        parts.push(part.to_vec());
        rest = next;
    }
    parts[*position] = replaced(&parts[*position], below, new);
    tagged(der[0], &parts.concat())
}

/// The library accepts a key with spelled-out parameters, but takes its certificate, which has them too, for that of another
/// key.
#[test]
fn explicit_curves_are_named_if_the_certificate_matches() {
    let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
    let (other, _) = pair(&PKCS_ECDSA_P256_SHA256);
    let ec = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    let in_full = tagged(0x30, &[ec.to_vec(), from_base64(EXPLICIT)].concat());
    let key_in_full = section("PRIVATE KEY", &base64(replaced(&der_of(&key), &[1], &in_full)));
    let of_certificate =
        |pem: &str| section("CERTIFICATE", &base64(replaced(&der_of(pem), &[0, 6, 0], &in_full)));
    let expected = format!("client key /k: {IN_FULL} is not supported: {SUPPORTED}");
    assert_eq!(checked(&key_in_full, &of_certificate(&certificate)).unwrap_err(), expected);
    assert_eq!(checked(&key, &of_certificate(&certificate)).unwrap_err(), expected);
    let mismatch = "client key /k: it does not match the client certificate /c";
    for other in [of_certificate(&other), other] {
        assert_eq!(checked(&key_in_full, &other).unwrap_err(), mismatch);
    }
}

fn check(auth: Value) -> Result<(), String> {
    let mut config = Config::new("https://127.0.0.1:9".parse().unwrap());
    config.auth_info = serde_json::from_value(auth).unwrap();
    check_client_key(&config).map_err(|error| error.to_string())
}

#[test]
fn client_key_is_read_from_file_and_from_data() {
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
    let in_file = check(json!({"client-key": bad_file, "client-certificate": certificate_file})).unwrap_err();
    assert!(in_file.starts_with(&format!("client key {bad_file}: Ed448 is not supported")), "{in_file}");
    let in_data =
        check(json!({"client-key-data": data(&ed448), "client-certificate": certificate_file})).unwrap_err();
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
        // The client itself reports the missing file.
        json!({"client-key": "/does/not/exist", "client-certificate": certificate_file}),
    ] {
        assert_eq!(check(usable.clone()), Ok(()), "{usable}");
    }
    std::fs::remove_dir_all(folder).unwrap();
    assert!(explained("received fatal alert: HandshakeFailure".to_owned()).contains("not supported"));
}
