//! Lists, one page at a time.
//!
//! Invariant: a request asks for at most a page, and at most a page is kept here.

use serde_json::Value;

pub(crate) use crate::cli::query::encoded;
use crate::kube::client::{CallError, Caller};

/// A list that is read page by page.
pub(crate) struct Pages<'a> {
    caller: &'a Caller,
    path: String,
    /// Accepted content type; JSON if there is none.
    accept: Option<&'static str>,
    /// Token of the next page; `None` after the last.
    next: Option<String>,
}

/// Options of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    /// Objects per page; 0 lets the server choose.
    pub(crate) page: i64,
}

/// Accepted content types: tables, or objects from servers without tables.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

impl<'a> Pages<'a> {
    /// Begins a list of a collection.
    pub(crate) fn new(caller: &'a Caller, collection: &str, options: &ListOptions) -> Self {
        let mut parameters = Vec::new();
        if options.page != 0 {
            parameters.push(format!("limit={}", options.page));
        }
        for (name, selector) in [("labelSelector", &options.labels), ("fieldSelector", &options.fields)] {
            if let Some(selector) = selector.as_ref().filter(|selector| !selector.is_empty()) {
                parameters.push(format!("{name}={}", encoded(selector)));
            }
        }
        let path = format!("{collection}?{}", parameters.join("&"));
        Self { caller, path, accept: None, next: Some(String::new()) }
    }

    /// Makes the list accept tables.
    pub(crate) fn with_tables(mut self) -> Self {
        self.accept = Some(TABLE);
        self
    }

    /// Returns the next page; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, CallError> {
        let Some(token) = self.next.take() else { return Ok(None) };
        let path = if token.is_empty() {
            self.path.clone()
        } else {
            format!("{}&continue={}", self.path, encoded(&token))
        };
        let page = match self.accept {
            Some(accept) => self.caller.get_as(&path, accept).await?,
            None => self.caller.get(&path).await?,
        };
        let token = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
        self.next = Some(token.to_owned()).filter(|token| !token.is_empty());
        Ok(Some(page))
    }
}

/// Takes the items out of a page.
pub(crate) fn items(page: &mut Value) -> Vec<Value> {
    match page.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}
