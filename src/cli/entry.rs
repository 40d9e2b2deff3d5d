//! The command line as Kueue's manifests give it: `/manager --config=…`, without a subcommand and in Go's notation.
//!
//! Invariant: a command line that names a subcommand, or asks for help or the version, is not changed.

use std::ffi::OsString;

use super::names::Grammar;

/// The subcommand that stands for Kueue's program.
const SUBCOMMAND: &str = "manager";

/// Inserts the subcommand `manager` if the program is called as Kueue's is: by its name, or with a flag in the place of
/// the subcommand. Go accepts `-flag` for `--flag`; so does that command line. `is_subcommand` tells whether a word is one.
pub(super) fn command_line(
    args: impl IntoIterator<Item = OsString>,
    is_subcommand: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_manager = Grammar::of(args.first().map(OsString::as_os_str)) == Grammar::Manager;
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    let asks = ["-h", "--help", "-V", "--version"].contains(&first);
    if asks || is_subcommand(first) || !(is_manager || first.starts_with('-')) {
        return args;
    }
    for arg in args.iter_mut().skip(1).take_while(|arg| *arg != "--") {
        if let Some(flag) = arg.to_str().and_then(long_flag) {
            *arg = flag.into();
        }
    }
    args.insert(1, SUBCOMMAND.into());
    args
}

/// Returns `--flag` for Go's `-flag`.
fn long_flag(arg: &str) -> Option<String> {
    let name = arg.strip_prefix('-')?;
    let is_word = name.len() > 1 && name.starts_with(|first: char| first.is_ascii_lowercase());
    is_word.then(|| format!("-{arg}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let subcommands = ["manager", "config", "simulate", "dump", "crds", "version"];
        let args = command_line(line.split(' ').map(OsString::from), |word| subcommands.contains(&word));
        args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn command_lines_of_kueue_start_the_manager() {
        for (given, expected) in [
            ("/manager", "/manager manager"),
            (
                "/manager --config=/c.yaml --zap-log-level=2",
                "/manager manager --config=/c.yaml --zap-log-level=2",
            ),
            ("/manager -config /c.yaml -zap-devel", "/manager manager --config /c.yaml --zap-devel"),
            ("/sluice --config=/c.yaml", "/sluice manager --config=/c.yaml"),
            ("/sluice -feature-gates=A=true", "/sluice manager --feature-gates=A=true"),
            ("/manager manager --config=/c.yaml", "/manager manager --config=/c.yaml"),
            ("/manager -- -x", "/manager manager -- -x"),
        ] {
            assert_eq!(read(given), expected, "{given}");
        }
    }

    #[test]
    fn other_command_lines_are_unchanged() {
        for line in [
            "sluice",
            "sluice --help",
            "sluice -V",
            "/manager --version",
            "sluice simulate -o json -f x",
            "sluice manager -x",
            "sluice version",
            "/manager version",
            "/manager crds",
            "/manager config check f",
            "/manager dump -o x",
        ] {
            assert_eq!(read(line), line);
        }
    }
}
