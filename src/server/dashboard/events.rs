//! Streams of updates: the parts of a page that have changed, as HTML.
//!
//! Invariants: the number of streams is bounded, in total and for each user; a stream ends when the token expires, when the
//! permission is revoked, when this replica retires, and after an hour; a stream renders only if the state has changed or the
//! durations on the page are old.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::models::Value;
use super::viewer::Viewer;
use super::{Dashboard, answer, page_key};
use crate::dashboard::question::parameters;
use crate::dashboard::{Fragments, Freshness, PageQuestion, changes, row_ids};

/// Most streams.
const MAX_STREAMS: usize = 500;
/// Most streams of a user.
const MAX_STREAMS_OF_USER: usize = 8;
/// Shortest time between two batches.
pub(super) const BATCH: Duration = Duration::from_secs(2);
/// Time between two heartbeats. The permission is reviewed at each of them.
const BEAT: Duration = Duration::from_secs(15);
/// Longest time between two renderings, so that durations on a page stay current.
const AGED: Duration = Duration::from_secs(30);
/// Longest duration of a stream.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Number of streams by user.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(Arc<Mutex<BTreeMap<String, usize>>>);

/// A counted stream; dropping it decrements the count.
struct CountedStream {
    streams: Streams,
    user: String,
}

impl Streams {
    fn enter(&self, user: &str) -> Option<CountedStream> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = open.values().sum();
        let own = open.get(user).copied().unwrap_or_default();
        if total >= MAX_STREAMS || own >= MAX_STREAMS_OF_USER {
            return None;
        }
        open.insert(user.to_owned(), own + 1);
        Some(CountedStream { streams: self.clone(), user: user.to_owned() })
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.user) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                open.remove(&self.user);
            }
        }
    }
}

/// A stream between two events.
struct Updates {
    dashboard: Arc<Dashboard>,
    headers: HeaderMap,
    question: PageQuestion,
    viewer: Viewer,
    known: Fragments,
    /// Ids of the rows of a list that the browser has.
    rows: Option<Vec<String>>,
    /// Number of the state that the browser has; `None` if it is not known.
    seen: Option<u64>,
    was_live: bool,
    rendered: Instant,
    beat: Instant,
    end: Instant,
    ended: bool,
    _counted: CountedStream,
}

/// Starts the stream of a page.
pub(super) async fn stream(State(dashboard): State<Arc<Dashboard>>, request: Request) -> Response {
    let headers = request.headers().clone();
    let parameters = parameters(request.uri().query().unwrap_or_default()).unwrap_or_default();
    let page = parameters.iter().find(|(name, _)| name == "page").map_or("", |(_, value)| value);
    let refuse = |status, reason, text| answer::status(&headers, status, reason, text);
    let Ok((question, _)) = PageQuestion::parse(page) else {
        return refuse(StatusCode::BAD_REQUEST, "BadRequest", "page: there is no such page");
    };
    // What a click asked for is computed once, not with each update.
    let question = question.updated();
    let Ok(viewer) = dashboard.viewer(&headers, &question).await else {
        return refuse(StatusCode::FORBIDDEN, "Forbidden", "token or permission have ended");
    };
    if !question.page().is_live() {
        return refuse(StatusCode::BAD_REQUEST, "BadRequest", "page: it has no updates");
    }
    let Some(place) = dashboard.streams.enter(&viewer.user.name) else {
        let text = "too many streams are open";
        return answer::retry_after(refuse(StatusCode::SERVICE_UNAVAILABLE, "TooManyStreams", text), 30);
    };
    let now = Instant::now();
    let mut updates = Updates {
        question: question.for_viewer(&viewer.user.name),
        viewer,
        known: Fragments::default(),
        rows: None,
        seen: None,
        was_live: dashboard.models.freshness() == Freshness::Live,
        rendered: now,
        beat: now + BEAT,
        end: now + MAX_AGE,
        ended: false,
        _counted: place,
        dashboard,
        headers,
    };
    let Some((_, html)) = updates.render().await else {
        return answer::status(&updates.headers, StatusCode::NOT_FOUND, "NotFound", "the page has no value");
    };
    // The browser may show another state, so it gets all parts and replaces the ones that its page has.
    updates.known = Fragments::of(&html).unsent();
    Sse::new(updates.into_stream()).into_response()
}

impl Updates {
    /// Returns the page, and the least version of the state that it shows. No replaced part names the viewer, so that all
    /// viewers with the same access share it, but for the page of what a viewer submitted, which is the viewer's own.
    async fn render(&self) -> Option<(u64, Arc<str>)> {
        let dashboard = &self.dashboard;
        let access = &self.viewer.access;
        let make = async {
            let viewer = (access, self.viewer.user.name.as_str());
            let (version, value) = dashboard.value(&self.question, viewer).await.map_err(drop)?;
            let Value::Page(page) = &*value else { return Err(()) };
            let shown = dashboard.page_request(&self.question.address(), Some(&self.viewer), &self.headers);
            let html = page.html(&shown).map_err(drop)?;
            Ok((version, Arc::from(html)))
        };
        dashboard.rendered.get(page_key(&self.question, access), make).await.ok()
    }

    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(self, |mut updates| async move {
            let event = updates.next().await?;
            Some((Ok(event), updates))
        })
    }

    /// Returns the next event, or `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let mut retiring = self.dashboard.retiring.clone();
        loop {
            let due = Instant::now() + if self.seen.is_none() { Duration::ZERO } else { BATCH };
            tokio::select! {
                () = sleep_until(due) => {}
                _ = retiring.wait_for(|retiring| *retiring) => return self.say_bye(),
            }
            let now = Instant::now();
            if now >= self.end {
                return self.say_bye();
            }
            if now >= self.beat {
                self.beat = now + BEAT;
                match self.dashboard.viewer_of(&self.viewer.token, &self.question).await {
                    Ok(viewer) if viewer.access == self.viewer.access => {}
                    // The browser reconnects and gets what has changed.
                    Ok(_)
                    | Err(
                        super::viewer::Refused::Unknown { .. } | super::viewer::Refused::Forbidden { .. },
                    ) => {
                        return self.reload_event();
                    }
                    // Without a review the last permission stays valid for as long as the authorizer caches it.
                    Err(super::viewer::Refused::NoReview(_)) => sleep(BATCH).await,
                }
                return Some(Event::default().event("beat").data("-"));
            }
            let is_live = self.dashboard.models.freshness() == Freshness::Live;
            if is_live != self.was_live {
                return self.reload_event();
            }
            let (replica, version) = self.dashboard.models.version();
            if self.seen == Some(version) && now.duration_since(self.rendered) < AGED {
                continue;
            }
            self.rendered = now;
            let Some((shown, html)) = self.render().await else { return self.reload_event() };
            self.seen = Some(shown);
            let parts = changes(&mut self.known, &html);
            let rows = row_ids(&html).filter(|rows| self.rows.as_ref() != Some(rows));
            if parts.is_empty() && rows.is_none() {
                continue;
            }
            let clock = jiff::Timestamp::now().strftime("%H:%M:%S").to_string();
            let data = match rows {
                Some(rows) => {
                    let data = json!({"clock": clock, "parts": parts, "rows": rows});
                    self.rows = Some(rows);
                    data
                }
                None => json!({"clock": clock, "parts": parts}),
            };
            let data = data.to_string();
            return Some(Event::default().event("swap").id(format!("{replica}:{shown}")).data(data));
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the last event of a stream")]
    fn say_bye(&mut self) -> Option<Event> {
        self.ended = true;
        Some(Event::default().event("bye").data("-"))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the last event of a stream")]
    fn reload_event(&mut self) -> Option<Event> {
        self.ended = true;
        Some(Event::default().event("reload").data("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_bounded_and_given_back() {
        let streams = Streams::default();
        let own: Vec<CountedStream> = (0..MAX_STREAMS_OF_USER).map(|_| streams.enter("a").unwrap()).collect();
        assert!(streams.enter("a").is_none());
        let others: Vec<CountedStream> = (MAX_STREAMS_OF_USER..MAX_STREAMS)
            .map(|user| streams.enter(&user.to_string()).unwrap())
            .collect();
        assert!(streams.enter("z").is_none());
        assert!(!streams.0.lock().unwrap().contains_key("z"), "who is refused leaves nothing behind");
        drop(own);
        assert!(streams.enter("a").is_some());
        drop(others);
        assert!(streams.0.lock().unwrap().len() <= 1);
    }
}
