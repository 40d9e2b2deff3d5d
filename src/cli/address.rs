//! Addresses to listen on, as the configuration writes them.

use std::net::SocketAddr;

use anyhow::Context;

/// `:8081`, `127.0.0.1:8081` or `localhost:8081`; nothing for an empty text or `0`.
pub(super) async fn parse(what: &str, text: &str) -> anyhow::Result<Option<SocketAddr>> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let full = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.to_owned()
    };
    let mut found = tokio::net::lookup_host(&full)
        .await
        .with_context(|| format!("{what}: {text:?}"))?;
    Ok(Some(
        found
            .next()
            .with_context(|| format!("{what}: {text:?} has no address"))?,
    ))
}
