//! Version, commit and date of this build. Commit and date are known only to a build that was given them in
//! `SLUICE_GIT_COMMIT` and `SLUICE_BUILD_DATE`, as `make image` and `make release` do.

/// The version, which is that of all packages of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit; `None` in a build that was not given one.
pub const COMMIT: Option<&str> = option_env!("SLUICE_GIT_COMMIT");
/// The date of the commit; `None` in a build that was not given one.
pub const DATE: Option<&str> = option_env!("SLUICE_BUILD_DATE");

/// Returns the version, with commit and date in parentheses if they are known.
pub fn describe() -> String {
    describe_with(COMMIT, DATE)
}

fn describe_with(commit: Option<&str>, date: Option<&str>) -> String {
    let parts = [("commit ", commit), ("", date)].into_iter();
    let known: Vec<String> = parts
        .filter_map(|(label, value)| {
            value.filter(|value| !value.is_empty()).map(|value| format!("{label}{value}"))
        })
        .collect();
    if known.is_empty() { VERSION.to_owned() } else { format!("{VERSION} ({})", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_and_date_follow_if_known() {
        assert_eq!(describe_with(None, None), VERSION);
        assert_eq!(describe_with(Some(""), Some("")), VERSION);
        assert_eq!(describe_with(Some("abc"), None), format!("{VERSION} (commit abc)"));
        let date = "2026-01-02T03:04:05Z";
        assert_eq!(describe_with(Some("abc"), Some(date)), format!("{VERSION} (commit abc, {date})"));
    }
}
