//! Pages with a message instead of data: signing in, missing rights, unknown objects, no answer.
//!
//! Invariant: no message reveals whether an object exists that the viewer may not see.

use super::frame::{Frame, Request};
use askama::Template;

/// Longest list of namespaces and similar names.
const MAX_NAMES: usize = 20;

#[derive(Template)]
#[template(path = "login.html", config = "src/dashboard/askama.toml")]
struct LoginTemplate<'a> {
    frame: Frame,
    action: String,
    next: &'a str,
    refusal: &'a str,
    command: String,
    /// Commands that make such an account, for administrators.
    setup: String,
}

/// Renders the page for signing in. `next` is the page to show after that, `refusal` why the last attempt failed.
///
/// # Errors
/// The template fails, which is a bug.
pub fn login(request: &Request, next: &str, refusal: &str, audience: &str) -> askama::Result<String> {
    let audience = if audience.is_empty() { String::new() } else { format!(" --audience={audience}") };
    LoginTemplate {
        frame: Frame::bare(request, "Sign in"),
        action: request.links.to("/login"),
        next,
        refusal,
        command: format!("kubectl create token ACCOUNT -n NAMESPACE{audience}"),
        setup: "kubectl create serviceaccount ACCOUNT -n NAMESPACE\n\
                kubectl create rolebinding ACCOUNT-sluice -n NAMESPACE --clusterrole=sluice-namespace-viewer \
                --serviceaccount=NAMESPACE:ACCOUNT"
            .to_owned(),
    }
    .render()
}

/// A right that a viewer lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingRight {
    /// The page that needs it, as in `You may not see …`.
    pub page: String,
    /// Verb and resource: `list clusterqueueviews`.
    pub right: String,
    /// The namespace in which it is needed; empty for the cluster.
    pub namespace: String,
}

#[derive(Template)]
#[template(path = "forbidden.html", config = "src/dashboard/askama.toml")]
struct ForbiddenTemplate<'a> {
    frame: Frame,
    missing: &'a MissingRight,
    user: &'a str,
    role: &'static str,
    command: String,
    chooser: Chooser,
}

/// The way to the page of a namespace.
pub(super) struct Chooser {
    /// Namespaces that the viewer has visited, with their pages.
    pub(super) visited: Vec<(String, String)>,
    /// Address to which the name of another one is sent.
    pub(super) action: String,
}

impl Chooser {
    /// Returns the way for the viewer of a page.
    pub(super) fn of(request: &Request) -> Self {
        let visited = request.namespaces.iter().take(MAX_NAMES);
        Self {
            visited: visited.map(|name| (name.clone(), request.links.namespace(name))).collect(),
            action: request.links.to("/namespaces"),
        }
    }
}

/// Renders the page about a missing right.
///
/// # Errors
/// The template fails, which is a bug.
pub fn forbidden(request: &Request, missing: &MissingRight) -> askama::Result<String> {
    let (user, namespace) = (request.user.as_str(), missing.namespace.as_str());
    let account = user.strip_prefix("system:serviceaccount:");
    let subject = account.map_or_else(|| format!("--user={user}"), |name| format!("--serviceaccount={name}"));
    let subject_name = user.rsplit(':').next().unwrap_or(user);
    let (role, command) = if namespace.is_empty() {
        let role = "sluice-cluster-viewer";
        (
            role,
            format!("kubectl create clusterrolebinding {subject_name}-sluice --clusterrole={role} {subject}"),
        )
    } else {
        let role = "sluice-namespace-viewer";
        let binding = format!("kubectl create rolebinding {subject_name}-sluice --namespace={namespace}");
        (role, format!("{binding} --clusterrole={role} {subject}"))
    };
    ForbiddenTemplate {
        frame: Frame::bare(request, "No access"),
        missing,
        user,
        role,
        command,
        chooser: Chooser::of(request),
    }
    .render()
}

/// A message instead of data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The heading.
    pub heading: String,
    /// What happened, as a sentence.
    pub text: String,
    /// Names similar to the requested one, with their addresses.
    pub similar: Vec<(String, String)>,
}

#[derive(Template)]
#[template(path = "message.html", config = "src/dashboard/askama.toml")]
struct MessageTemplate<'a> {
    frame: Frame,
    message: &'a Message,
    similar: &'a [(String, String)],
    again: String,
}

/// Renders a page with a message instead of data.
///
/// # Errors
/// The template fails, which is a bug.
pub fn message(request: &Request, message: &Message) -> askama::Result<String> {
    MessageTemplate {
        frame: Frame::bare(request, &message.heading),
        message,
        similar: message.similar.get(..MAX_NAMES).unwrap_or(&message.similar),
        again: request.links.to(&request.path),
    }
    .render()
}
