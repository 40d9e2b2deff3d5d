//! Files that tests compare, or write when the developer asks for it: `SLUICE_WRITE=1`, which `make generate` and `make expected` set.
//!
//! Invariant: a test that writes has a name that begins as its command selects it, so that the command writes all files.

use std::fs;
use std::path::PathBuf;

/// What a file follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// A table or types in the code: `make generate`.
    Generated,
    /// What the program shows, which a developer reads before it becomes the expected text: `make expected`.
    Expected,
}

impl Written {
    /// The beginning of the names of tests, and the command that runs these.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Generated => ("generated_", "make generate"),
            Self::Expected => ("expected_", "make expected"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "set by the developer who runs the test")]
fn is_asked_for() -> bool {
    std::env::var("SLUICE_WRITE").is_ok()
}

/// Fails if a file differs from its wanted text, or writes it if the developer has asked for that.
pub(crate) fn check_or_write(written: Written, wanted: impl IntoIterator<Item = (PathBuf, String)>) {
    let (beginning, command) = written.names();
    // A thread has the name of its test, unless all tests share one.
    let thread = std::thread::current();
    let name = thread.name().and_then(|name| name.rsplit_once("::")).map_or(beginning, |(_, name)| name);
    assert!(name.starts_with(beginning), "{name} would not be run by {command}: {beginning}{name}");
    let mut stale = Vec::new();
    for (path, text) in wanted {
        let found = fs::read_to_string(&path).unwrap_or_default();
        if found == text {
            continue;
        }
        if is_asked_for() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        } else {
            stale.push(format!("{}: {}", path.display(), first_difference(&found, &text)));
        }
    }
    assert!(stale.is_empty(), "stale; {command} writes them:\n{}", stale.join("\n"));
}

fn first_difference(found: &str, wanted: &str) -> String {
    let line = found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted).count();
    let shown = |text: &str| text.lines().nth(line).map_or("no line".to_owned(), |line| format!("{line:?}"));
    format!("line {}: {}, wanted {}", line + 1, shown(found), shown(wanted))
}

#[test]
fn first_difference_is_named() {
    assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2: \"b\", wanted \"c\"");
    assert_eq!(first_difference("", "a\n"), "line 1: no line, wanted \"a\"");
}
