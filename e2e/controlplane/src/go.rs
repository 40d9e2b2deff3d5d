//! Builds programs of a module with Go.

use crate::builds::{Builds, Line, Reading};
use crate::modules::GoModule;
use crate::paths;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::process::Command;

/// Fails if Go is missing or too old.
pub(crate) fn require() -> Result<()> {
    let requirement = "building the control plane requires Go 1.26 or newer (https://go.dev/dl)";
    let Ok(output) = Command::new("go").args(["env", "GOVERSION"]).current_dir(paths::root()).output() else {
        bail!("{requirement}; no `go` found on PATH");
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("go").to_owned();
    let mut numbers = version.split(['.', '-', 'r', 'b']).map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(1), Some(26)) {
        bail!("{requirement}; PATH has Go {version}");
    }
    Ok(())
}

/// Builds these programs of the module, each given as (name, package).
pub(crate) fn build(
    module: &GoModule,
    stamp: &str,
    programs: &[&(&str, &str)],
    builds: &Builds,
) -> Result<()> {
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let title = format!("{} {}", names.join(", "), module.version()?);
    println!("Go: {title}, once (minutes with a cold cache)");
    let folder = module.output();
    let out_folder = folder.join(format!(".building-{}", std::process::id()));
    fs::create_dir_all(&out_folder)?;
    // Rust has long steps on one core, and what else Go builds can wait: it takes what others leave.
    let mut command = Command::new("nice");
    command
        .args(["-n", "10", "go", "build", "-v"])
        // Modules share what they compile: that depends on the folder of a package, but with -trimpath on the version that its
        // module requires, also where it is replaced. Debug information would be compiled and then left out by the linker.
        .args(["-gcflags=all=-dwarf=false", "-ldflags", &module.link_flags()?, "-o"])
        .arg(&out_folder)
        .args(programs.iter().map(|(_, package)| *package))
        .current_dir(module.folder())
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly")
        // Removed below, also if the build is ended.
        .env("GOTMPDIR", &out_folder);
    let reading = Reading { name: title.clone(), unit: "packages", line: line_of_go };
    let outcome = builds.follow(&mut command, &reading);
    for (name, package) in programs {
        // go names a binary after the last element of its package path that is not a version.
        let built = [*name, package.rsplit('/').find(|part| !part.starts_with('v')).unwrap_or(name)];
        if outcome.is_ok()
            && let Some(built) = built.iter().map(|n| out_folder.join(n)).find(|path| path.is_file())
        {
            fs::rename(built, folder.join(name))?;
            fs::write(folder.join(format!("{name}.stamp")), stamp)?;
        }
    }
    let _ = fs::remove_dir_all(&out_folder);
    outcome.with_context(|| format!("cannot build {title}"))
}

/// `go build -v` prints the packages that it compiles; modules that are downloaded, and errors, have other words.
fn line_of_go(line: &str) -> Line<'_> {
    let is_package = !line.is_empty() && !line.contains([' ', '\t', ':']);
    if is_package { Line::Step(line) } else { Line::Quiet }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_from_messages() {
        assert_eq!(line_of_go("k8s.io/api/core/v1"), Line::Step("k8s.io/api/core/v1"));
        for line in
            ["go: downloading k8s.io/api v0.36.3", "# k8s.io/api/core/v1", "types.go:1:2: undefined: x", ""]
        {
            assert_eq!(line_of_go(line), Line::Quiet, "{line}");
        }
    }
}
