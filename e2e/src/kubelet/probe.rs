//! HTTP probes of a container, as a kubelet sends them.

use crate::objects::{number, text};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A probe and its counts.
pub(super) struct Probe {
    path: String,
    port: u16,
    period: Duration,
    timeout: Duration,
    failure_threshold: u32,
    success_threshold: u32,
    initial_delay: Duration,
    next: Instant,
    failures: u32,
    successes: u32,
    /// Whether the last results that count were successes.
    pub(super) passing: bool,
}

impl Probe {
    /// Reads a probe of a container; `passing` is its state before the first result. Missing fields have the defaults
    /// of the API, which the server has already set.
    pub(super) fn read(container: &Value, field: &str, passing: bool) -> Result<Self> {
        let probe = container.get(field).with_context(|| format!("the container has no {field}"))?;
        let port = match &probe["httpGet"]["port"] {
            Value::String(name) => {
                let ports = container["ports"].as_array().into_iter().flatten();
                let named = ports.into_iter().find(|port| port["name"] == **name);
                named.with_context(|| format!("{field}: no port is named {name}"))?["containerPort"].clone()
            }
            port => port.clone(),
        };
        let port = port.as_u64().and_then(|port| u16::try_from(port).ok());
        let seconds =
            |pointer| Duration::from_secs(u64::try_from(number(probe, pointer)).unwrap_or_default());
        let count = |pointer| u32::try_from(number(probe, pointer)).unwrap_or(1);
        let initial_delay = seconds("/initialDelaySeconds");
        Ok(Self {
            path: text(probe, "/httpGet/path").to_owned(),
            port: port.with_context(|| format!("{field}: no port"))?,
            period: seconds("/periodSeconds"),
            timeout: seconds("/timeoutSeconds"),
            failure_threshold: count("/failureThreshold"),
            success_threshold: count("/successThreshold"),
            initial_delay,
            next: Instant::now() + initial_delay,
            failures: 0,
            successes: 0,
            passing,
        })
    }

    /// Starts again for a container that was restarted.
    pub(super) fn restart(&mut self, passing: bool) {
        (self.failures, self.successes, self.passing) = (0, 0, passing);
        self.next = Instant::now() + self.initial_delay;
    }

    /// Sends the probe if it is due. Each result counts; `passing` changes at the threshold.
    pub(super) async fn run_if_due(&mut self, address: &str) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + self.period;
        let answer = tokio::time::timeout(self.timeout, get(address, self.port, &self.path)).await;
        if matches!(answer, Ok(Ok(()))) {
            (self.failures, self.successes) = (0, self.successes.saturating_add(1));
            self.passing |= self.successes >= self.success_threshold;
        } else {
            (self.failures, self.successes) = (self.failures.saturating_add(1), 0);
            self.passing &= self.failures < self.failure_threshold;
        }
    }
}

/// Succeeds for a status code from 200 to 399.
async fn get(address: &str, port: u16, path: &str) -> Result<()> {
    let mut stream = TcpStream::connect((address, port)).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}:{port}\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let code: u16 =
        answer.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
    ensure!((200..400).contains(&code), "{path} returned {code}");
    Ok(())
}
