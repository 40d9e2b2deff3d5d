//! The session of a browser: its token in cookies for this server alone; the server stores nothing.
//!
//! Invariants: cookies are sent over TLS alone, and no script reads them; a token that does not fit is refused, never cut; no
//! text of this module contains a token.

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::dashboard::{Links, encode, question};

/// Longest token in one cookie, in bytes: browsers accept 4,096 with the name and the attributes.
const MAX_COOKIE_BYTES: usize = 3_584;
/// Longest token in two cookies, in bytes.
const MAX_TOKEN_BYTES: usize = 2 * MAX_COOKIE_BYTES;
/// How long a browser keeps a token, in seconds.
const MAX_AGE_SECONDS: u32 = 8 * 3_600;
/// Most namespaces that are remembered as visited.
const MAX_VISITED: usize = 20;
/// Longest name of a namespace, in bytes.
const MAX_NAMESPACE_BYTES: usize = 63;

/// Names and scope of the cookies.
#[derive(Clone, Debug)]
pub(super) struct Cookies {
    prefix: &'static str,
    path: String,
}

impl Cookies {
    /// Returns the cookies of a dashboard below a path prefix.
    pub(super) fn below(links: &Links) -> Self {
        match links.prefix() {
            "" => Self { prefix: "__Host-", path: "/".to_owned() },
            // With the prefix `__Host-` browsers would accept only the path /.
            prefix => Self { prefix: "__Secure-", path: prefix.to_owned() },
        }
    }

    fn name(&self, part: &str) -> String {
        format!("{}sluice{part}", self.prefix)
    }

    /// Returns the value of a `Set-Cookie` header; an empty value removes the cookie.
    fn set(&self, part: &str, value: &str) -> Option<HeaderValue> {
        let age = if value.is_empty() { 0 } else { MAX_AGE_SECONDS };
        let (name, path) = (self.name(part), &self.path);
        let text = format!("{name}={value}; Path={path}; Max-Age={age}; Secure; HttpOnly; SameSite=Lax");
        let mut header = HeaderValue::from_str(&text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    fn value<'a>(&self, headers: &'a HeaderMap, part: &str) -> Option<&'a str> {
        let name = self.name(part);
        let texts = headers.get_all(COOKIE).into_iter().filter_map(|header| header.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Returns the token of a request: from the header of a proxy, or else from the cookies.
    pub(super) fn token(&self, headers: &HeaderMap) -> Option<String> {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.split_once(' '));
        if let Some((_, token)) = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer")) {
            return Some(token.trim().to_owned());
        }
        let first = self.value(headers, "").filter(|value| !value.is_empty())?;
        Some(format!("{first}{}", self.value(headers, "-2").unwrap_or_default()))
    }

    /// Returns the headers that store a token in the browser.
    ///
    /// # Errors
    /// The token is too long or malformed. The text does not contain it.
    pub(super) fn keep(&self, token: &str) -> Result<Vec<HeaderValue>, String> {
        if token.len() > MAX_TOKEN_BYTES {
            // In tenths of a kilobyte, rounded up, so that the size in the error never looks small enough.
            let tenths = (token.len() * 10).div_ceil(1_024);
            return Err(format!(
                "token too large for cookies: {}.{} kB, at most 7 kB",
                tenths / 10,
                tenths % 10
            ));
        }
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
        if token.is_empty() || !token.bytes().all(is_plain) {
            return Err("this is no token: it is empty, or has spaces or other characters that no token has"
                .to_owned());
        }
        let (first, second) = token.split_at(token.len().min(MAX_COOKIE_BYTES));
        Ok([self.set("", first), self.set("-2", second)].into_iter().flatten().collect())
    }

    /// Returns the headers that remove the token from the browser.
    pub(super) fn forget(&self) -> Vec<HeaderValue> {
        ["", "-2", "-ns"].into_iter().filter_map(|part| self.set(part, "")).collect()
    }

    /// Returns the namespaces that were visited, the last one first.
    pub(super) fn visited(&self, headers: &HeaderMap) -> Vec<String> {
        let text = self.value(headers, "-ns").unwrap_or_default();
        let names = text.split('.').filter_map(|name| question::decode(name, false));
        names.filter(|name| is_namespace(name)).take(MAX_VISITED).collect()
    }

    /// Returns the header that records a visit; `None` if the namespace was visited last.
    pub(super) fn visit(&self, visited: &[String], namespace: &str) -> Option<HeaderValue> {
        if visited.first().is_some_and(|first| first == namespace) || !is_namespace(namespace) {
            return None;
        }
        let others = visited.iter().map(String::as_str).filter(|name| *name != namespace);
        let names: Vec<String> =
            [namespace].into_iter().chain(others).take(MAX_VISITED).map(encode).collect();
        self.set("-ns", &names.join("."))
    }
}

/// Whether a text can be the name of a namespace.
pub(super) fn is_namespace(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= MAX_NAMESPACE_BYTES && name.bytes().all(plain)
}

/// Returns whether a form comes from a page of this server, by the headers that browsers add. Without them it is refused.
pub(super) fn is_same_origin(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let origin = text("origin").is_some_and(|origin| origin == format!("https://{host}"));
    let site = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    origin && site && !host.is_empty()
}

/// Returns the page to show after signing in: `text` if it is a path of this server other than signing in or out, else the
/// start page.
pub(super) fn safe_next(text: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let is_page = text.starts_with('/') && !text.starts_with("//") && text.bytes().all(is_plain);
    if is_page && !text.starts_with("/login") && !text.starts_with("/logout") { text } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (http::header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn sent(kept: &[HeaderValue]) -> String {
        let pair = |header: &HeaderValue| header.to_str().unwrap().split(';').next().unwrap().to_owned();
        kept.iter().map(pair).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn tokens_of_any_size_come_back_or_are_refused() {
        for links in [Links::default(), Links::below("/a/b").unwrap()] {
            let cookies = Cookies::below(&links);
            for size in [1, 1_000, 3_584, 3_585, 3_700, 7_066, 7_168] {
                let token = "t".repeat(size);
                let kept = cookies.keep(&token).unwrap();
                let returned = headers(&[("cookie", &sent(&kept))]);
                assert_eq!(cookies.token(&returned).unwrap(), token, "{size}");
                for header in &kept {
                    assert!(header.len() <= 4_096 && header.is_sensitive());
                    let text = header.to_str().unwrap();
                    assert!(
                        text.ends_with("Secure; HttpOnly; SameSite=Lax") && text.contains("; Max-Age="),
                        "{size}"
                    );
                }
            }
            let error = cookies.keep(&"t".repeat(9_300)).unwrap_err();
            assert_eq!(error, "token too large for cookies: 9.1 kB, at most 7 kB");
            assert!(cookies.keep(&"t".repeat(7_169)).unwrap_err().contains("7.1 kB"));
        }
    }

    #[test]
    fn cookies_have_the_prefix_of_their_path() {
        let text = |cookies: &Cookies| cookies.keep("x").unwrap()[0].to_str().unwrap().to_owned();
        assert!(text(&Cookies::below(&Links::default())).starts_with("__Host-sluice=x; Path=/; "));
        let below = Cookies::below(&Links::below("/a/b").unwrap());
        assert!(text(&below).starts_with("__Secure-sluice=x; Path=/a/b; "));
        assert_eq!(below.forget().len(), 3);
        assert!(below.forget().iter().all(|header| header.to_str().unwrap().contains("Max-Age=0")));
    }

    #[test]
    fn invalid_tokens_are_refused_without_repeating_them() {
        for text in ["", "a b", "a;b", "a\r\nSet-Cookie: x", "töken", "a\"b"] {
            let error = Cookies::below(&Links::default()).keep(text).unwrap_err();
            assert!(error.starts_with("this is no token") && (text.is_empty() || !error.contains(text)));
        }
    }

    #[test]
    fn bearer_tokens_of_proxies_come_first() {
        let cookies = Cookies::below(&Links::default());
        let both = headers(&[("authorization", "Bearer proxy"), ("cookie", "__Host-sluice=browser")]);
        assert_eq!(cookies.token(&both).unwrap(), "proxy");
        assert_eq!(cookies.token(&headers(&[("authorization", "bearer  proxy")])).unwrap(), "proxy");
        assert_eq!(cookies.token(&headers(&[("authorization", "Basic YTpi")])), None);
        assert_eq!(
            cookies.token(&headers(&[("cookie", "other=1; __Host-sluice=browser")])).unwrap(),
            "browser"
        );
        assert_eq!(cookies.token(&headers(&[("cookie", "__Secure-sluice=browser")])), None);
        assert_eq!(cookies.token(&headers(&[("cookie", "__Host-sluice=")])), None);
    }

    #[test]
    fn forms_of_other_origins_are_refused() {
        let accepted =
            |pairs: &[(&'static str, &str)]| is_same_origin(&headers(pairs), "sluice.example:8443");
        let own = ("origin", "https://sluice.example:8443");
        assert!(accepted(&[own]) && accepted(&[own, ("sec-fetch-site", "same-origin")]));
        for pairs in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "https://evil.example")],
            &[("origin", "http://sluice.example:8443")],
            &[("origin", "https://sluice.example")],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "same-site")],
            &[own, ("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin")],
        ] {
            assert!(!accepted(pairs), "{pairs:?}");
        }
        assert!(!is_same_origin(&headers(&[("origin", "https://")]), ""));
    }

    #[test]
    fn next_page_stays_on_this_server() {
        for page in ["/", "/pending?cq=a&o=json", "/workloads/a/b%20c"] {
            assert_eq!(safe_next(page), page);
        }
        for other in [
            "",
            "pending",
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/a\nb",
            "/a b",
            "/login?next=/",
        ] {
            assert_eq!(safe_next(other), "/", "{other:?}");
        }
    }

    #[test]
    fn visits_are_remembered_and_bounded() {
        let cookies = Cookies::below(&Links::default());
        let mut visited = Vec::new();
        for number in 0..30 {
            let kept = cookies.visit(&visited, &format!("ns-{number}")).unwrap();
            visited = cookies.visited(&headers(&[("cookie", &sent(&[kept]))]));
        }
        assert_eq!((visited.len(), visited[0].as_str(), visited[19].as_str()), (20, "ns-29", "ns-10"));
        assert_eq!(cookies.visit(&visited, "ns-29"), None);
        assert_eq!(cookies.visit(&visited, "<b>"), None);
        let hostile = headers(&[("cookie", "__Host-sluice-ns=%3Cb%3E.a.%ff")]);
        assert_eq!(cookies.visited(&hostile), ["a"]);
    }
}
