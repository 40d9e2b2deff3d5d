//! Signed statements about the files of a release: in-toto Statements in DSSE envelopes, signed by an ECDSA key on the curve P-256.
//!
//! Invariant: a statement has no date but that of the commit, and the same release gives the same statements; only the signatures
//! differ, which ECDSA makes with random numbers.
//!
//! Formats: DSSE 1.0.0 (secure-systems-lab/dsse), in-toto Statement v1, SLSA provenance v1, CycloneDX.

use crate::digest;
use crate::image::Image;
use crate::source::{Source, VERSION};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// What the payload of an envelope is.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// How a release is built: `make release` with these parameters.
const BUILD_TYPE: &str = "https://sluice.dev/make-release/v1";
/// Type of the statement about how files were built.
pub const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
/// Type of the statement about what an image contains.
pub const CYCLONEDX: &str = "https://cyclonedx.org/bom";
/// Before the key in the form in which others name it: an EC key on P-256, uncompressed (RFC 5480).
const SUBJECT_PUBLIC_KEY_INFO: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A file of a release, or its image, by its SHA-256.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Name of the file or the image.
    pub name: String,
    /// Hexadecimal digits.
    pub sha256: String,
}

impl Subject {
    /// Returns that of an image, by the digest of its manifest.
    pub fn of_image(image: &Image, name: &str) -> Self {
        Self { name: name.to_owned(), sha256: image.digest.trim_start_matches("sha256:").to_owned() }
    }

    /// Reads a file.
    pub fn of_file(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, sha256: digest::hex(&bytes) })
    }
}

/// A key that signs.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// Reads a PEM file with an unencrypted PKCS #8 key on P-256. Errors name the file and the form that it has instead.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let pem = pem::parse(text).map_err(|error| anyhow!("not a key in PEM: {error}"))?;
        match pem.tag() {
            "PRIVATE KEY" => {}
            "EC PRIVATE KEY" => {
                bail!("a key in the form SEC 1; convert it: openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW")
            }
            "PUBLIC KEY" => bail!("a public key; signing needs the private one"),
            tag if tag.contains("ENCRYPTED") => {
                bail!("an encrypted key ({tag}); decrypt it: openssl pkcs8 -in KEY -out NEW")
            }
            tag => bail!("{tag} in place of PRIVATE KEY (PKCS #8)"),
        }
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pem.contents())
            .map_err(|error| anyhow!("no ECDSA key on the curve P-256: {error}"))?;
        Ok(Self { pair, random })
    }

    /// The public key in DER (`SubjectPublicKeyInfo`).
    fn public(&self) -> Vec<u8> {
        [SUBJECT_PUBLIC_KEY_INFO.as_slice(), self.pair.public_key().as_ref()].concat()
    }

    /// The public key in PEM, for those who verify.
    pub fn public_pem(&self) -> String {
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new("PUBLIC KEY", self.public()), config)
    }

    /// Returns the envelope of a statement, as one line.
    pub fn envelope(&self, statement: &Value) -> Result<String> {
        let payload = serde_json::to_vec(statement)?;
        let signed = pre_authentication_encoding(PAYLOAD_TYPE, &payload);
        let signature =
            self.pair.sign(&self.random, &signed).map_err(|error| anyhow!("cannot sign: {error}"))?;
        let envelope = json!({
            "payloadType": PAYLOAD_TYPE,
            "payload": BASE64.encode(&payload),
            // Implementations derive names of keys differently, and pass over a signature whose key has another name than theirs.
            "signatures": [{"keyid": "", "sig": BASE64.encode(signature)}],
        });
        Ok(format!("{envelope}\n"))
    }
}

/// Returns what a signature of an envelope is of: type and payload with their lengths, so that neither can be taken for the other.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn statement(subjects: &[Subject], predicate_type: &str, predicate: &Value) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|subject| json!({"name": subject.name, "digest": {"sha256": subject.sha256}}))
        .collect();
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": predicate_type,
        "predicate": predicate,
    })
}

/// Returns the statement about how these files were built: from which commit, with which compiler and Debian packages.
pub fn provenance(
    subjects: &[Subject],
    source: &Source,
    image: &Image,
    name: &str,
    builder: &str,
) -> Result<Value> {
    ensure!(!subjects.is_empty(), "no file to make a statement of");
    let file = |name: &str| Subject::of_file(&source.root.join(name));
    let (lock, toolchain) = (file("Cargo.lock")?, file("rust-toolchain.toml")?);
    let mut dependencies = vec![
        json!({"name": "source", "digest": {"gitCommit": source.commit}}),
        json!({"name": lock.name, "digest": {"sha256": lock.sha256}}),
        json!({"name": toolchain.name, "digest": {"sha256": toolchain.sha256}}),
    ];
    dependencies.extend(image.packages.iter().map(|package| {
        json!({"name": package.name, "uri": format!("pkg:deb/debian/{}@{}", package.name, package.version)})
    }));
    let predicate = json!({
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"VERSION": VERSION, "IMAGE": name},
            "internalParameters": {"architecture": image.architecture.oci(), "date": source.date.to_string()},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {"builder": {"id": builder}},
    });
    Ok(statement(subjects, PROVENANCE, &predicate))
}

/// Returns the statement about what an image contains.
pub fn contents(subjects: &[Subject], sbom: &str) -> Result<Value> {
    Ok(statement(subjects, CYCLONEDX, &serde_json::from_str(sbom)?))
}
