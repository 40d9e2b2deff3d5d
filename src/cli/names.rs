//! The names by which the program is called, and the command line that each stands for.
//!
//! Invariant: image, completion and the command line read this one table.

use std::ffi::OsStr;
use std::path::Path;

/// The command line that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    /// All verbs.
    Sluice,
    /// The verbs for people, as a plugin of kubectl.
    Plugin,
    /// The verbs of kueuectl, with its flags, columns, texts and exit status.
    Kueuectl,
    /// Candidates of `kubectl sluice` for kubectl's completion.
    CompletePlugin,
    /// Candidates of `kubectl kueue` for kubectl's completion.
    CompleteKueuectl,
    /// Kueue's manager.
    Manager,
}

/// All names other than `sluice`. The image has a link for each.
const NAMES: [(&str, Grammar); 6] = [
    ("manager", Grammar::Manager),
    ("kubectl-sluice", Grammar::Plugin),
    ("kubectl-kueue", Grammar::Kueuectl),
    ("kueuectl", Grammar::Kueuectl),
    ("kubectl_complete-sluice", Grammar::CompletePlugin),
    ("kubectl_complete-kueue", Grammar::CompleteKueuectl),
];

/// Returns the names of the links to the program.
pub fn links() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

impl Grammar {
    /// Returns the grammar of a program by its path; any other name is that of `sluice`.
    pub(super) fn of(program: Option<&OsStr>) -> Self {
        let name = program.and_then(|path| Path::new(path).file_name());
        let known = NAMES.iter().find(|(known, _)| name == Some(OsStr::new(known)));
        known.map_or(Self::Sluice, |(_, grammar)| *grammar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars_follow_from_the_file_name() {
        for (path, grammar) in [
            ("/sluice", Grammar::Sluice),
            ("sluice-debug", Grammar::Sluice),
            ("/manager", Grammar::Manager),
            ("./kubectl-sluice", Grammar::Plugin),
            ("/usr/local/bin/kubectl-kueue", Grammar::Kueuectl),
            ("kueuectl", Grammar::Kueuectl),
            ("kubectl_complete-kueue", Grammar::CompleteKueuectl),
            ("/opt/manager/sluice", Grammar::Sluice),
            ("", Grammar::Sluice),
        ] {
            assert_eq!(Grammar::of(Some(OsStr::new(path))), grammar, "{path}");
        }
        assert_eq!(Grammar::of(None), Grammar::Sluice);
    }
}
