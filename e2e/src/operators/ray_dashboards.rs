//! What the dashboards of all Ray clusters answer, as no Ray runs here. KubeRay reaches them through the proxy of plain HTTP that
//! its environment names.
//!
//! Invariants: each job runs until a story ends it; each application of a service runs.

use crate::process::free_ports;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The dashboards, which answer until they are dropped.
pub(super) struct RayDashboards {
    port: u16,
    ended: Arc<EndedJobs>,
    task: JoinHandle<()>,
}

/// Namespaces and names of the RayJobs that have ended.
#[derive(Default)]
struct EndedJobs(Mutex<BTreeSet<(String, String)>>);

impl RayDashboards {
    pub(super) async fn open() -> Result<Self> {
        let port = free_ports(1)?.first().copied().context("no port")?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let ended = Arc::new(EndedJobs::default());
        let task = tokio::spawn(serve(listener, Arc::clone(&ended)));
        Ok(Self { port, ended, task })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Lets what a RayJob has submitted succeed.
    pub(super) fn end(&self, namespace: &str, job: &str) {
        let mut ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.insert((namespace.to_owned(), job.to_owned()));
    }
}

impl Drop for RayDashboards {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, ended: Arc<EndedJobs>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let ended = Arc::clone(&ended);
        connections.spawn(async move {
            let answers = service_fn(|request: Request<Incoming>| {
                let answer = answer(&ended, request.method(), request.uri());
                async { respond(answer) }
            });
            // A client that hangs up asks again.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answers).await;
        });
    }
}

fn respond(answer: Option<Value>) -> http::Result<Response<Full<Bytes>>> {
    let (status, body) = answer.map_or((StatusCode::NOT_FOUND, Value::Null), |body| (StatusCode::OK, body));
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Full::from(body.to_string()))
}

/// Returns the answer to a request for an absolute URI; `None` if no dashboard has it.
fn answer(ended: &EndedJobs, method: &Method, uri: &Uri) -> Option<Value> {
    // Of the health of a pod that serves applications.
    if uri.path().ends_with("/-/healthz") {
        return Some(json!("success"));
    }
    let path = uri.path().trim_matches('/').strip_prefix("api/")?;
    if path == "serve/applications" {
        let application = json!({"name": "app", "status": "RUNNING", "deployments": {}});
        return Some(json!({"applications": {"app": application}}));
    }
    let submission = path.strip_prefix("jobs/")?;
    if *method == Method::POST && submission.ends_with("/stop") {
        return Some(json!({"stopped": true}));
    }
    // A Service of the namespace; and the name of the RayJob with a suffix for each of its starts.
    let namespace = uri.host()?.split('.').nth(1)?;
    let (job, _) = submission.rsplit_once('-')?;
    let ended = ended.0.lock().unwrap_or_else(PoisonError::into_inner);
    let has_ended = ended.contains(&(namespace.to_owned(), job.to_owned()));
    let status = if has_ended { "SUCCEEDED" } else { "RUNNING" };
    Some(json!({"submission_id": submission, "status": status, "entrypoint": "sleep 1"}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_until_it_is_ended_in_its_namespace() {
        let ended = EndedJobs::default();
        ended.0.lock().unwrap().insert(("rayjob".to_owned(), "low".to_owned()));
        let status = |job: &str, namespace: &str| {
            let uri = format!("http://a-head-svc.{namespace}.svc.cluster.local:8265/api/jobs/{job}");
            let answer = answer(&ended, &Method::GET, &uri.parse().unwrap()).unwrap();
            answer["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(status("low-x2x2x", "rayjob"), "SUCCEEDED");
        assert_eq!(status("low-x2x2x", "other"), "RUNNING");
        assert_eq!(status("high-x2x2x", "rayjob"), "RUNNING");
    }
}
