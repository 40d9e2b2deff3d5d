//! Clients of TLS servers, with certificates of an authority of their own. Their keys are on P-521, as some distributions of Kubernetes
//! and issuers of cert-manager have them; those that the program makes itself are on P-256.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PKCS_ECDSA_P521_SHA512,
};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder};

/// Certificate and key of a client, in PEM.
pub(crate) type Identity = (String, String);

fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).unwrap()
}

/// An authority that issues certificates of clients.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, new_key()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn client(&self, common: &str, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages = vec![usage];
        let key = new_key();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    pub(crate) fn user(&self, common: &str) -> Identity {
        self.client(common, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// Returns the configuration of a client that presents its certificate, if it has one.
pub(crate) fn client_config(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<&Identity>,
) -> ClientConfig {
    let Some((certificate, key)) = identity else { return builder.with_no_client_auth() };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
}
