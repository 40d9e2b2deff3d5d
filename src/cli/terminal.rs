//! The terminal on standard output: its width and its characters.

use std::io::IsTerminal;

/// Returns the number of columns; `None` if standard output is no terminal, or one that does not know its size.
pub(super) fn width() -> Option<usize> {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns whether the locale has characters beyond ASCII.
pub(super) fn is_utf8() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
