//! A client of the webhooks whose body arrives in two parts.

use anyhow::{Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Posts a review to a port; the second half of the body follows after `delay`.
pub(crate) async fn post_slowly(
    (port, path): (u16, &str),
    ca: &str,
    review: &str,
    delay: Duration,
) -> Result<()> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: webhooks\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        review.len()
    );
    let (first, second) = review.split_at(review.len() / 2);
    stream.write_all(format!("{head}{first}").as_bytes()).await?;
    stream.flush().await?;
    tokio::time::sleep(delay).await;
    stream.write_all(second.as_bytes()).await?;
    stream.flush().await?;
    let mut response = String::new();
    // The server may close without a TLS close notification.
    let _ = stream.read_to_string(&mut response).await;
    ensure!(response.starts_with("HTTP/1.1 200"), "the response is {response}");
    Ok(())
}
