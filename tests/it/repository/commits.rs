//! `make commits`: which commits its script names, in a repository that the test makes.

use crate::fixtures::manifests::root;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Variables of a git that runs this test, as from a hook: they name another repository.
const OUTER: [&str; 3] = ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"];

/// A repository with one commit in a temporary folder, which is deleted with it.
struct Repository(PathBuf);

impl Repository {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-commits-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let repository = Self(path);
        repository.run("git", &["init", "--quiet"]);
        repository.add("README.md", 1, "tree: begin");
        repository
    }

    /// Runs a program in the repository, without the user's settings of git. Returns what it prints.
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.0);
        for variable in OUTER {
            command.env_remove(variable);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{role}_NAME"), "test")
                .env(format!("GIT_{role}_EMAIL"), "test@example.com");
        }
        let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Commits what there is.
    fn commit(&self, message: &str) {
        self.run("git", &["add", "--all"]);
        self.run("git", &["commit", "--quiet", "--message", message]);
    }

    /// Commits a new file with a number of lines.
    fn add(&self, file: &str, lines: usize, message: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("a line of {file}\n").repeat(lines)).unwrap();
        self.commit(message);
    }

    /// Returns what the script prints about the commits after one.
    fn report(&self, start: &str) -> String {
        let script = root().join(".ci/commits.py");
        self.run("python3", &[script.to_str().unwrap(), "--start", start])
    }

    /// Returns the last words of the subjects of the commits that are named, but for the first commit.
    fn named(&self) -> Vec<String> {
        let first = self.run("git", &["rev-list", "--max-parents=0", "HEAD"]);
        let report = self.report(first.trim());
        let warnings = report.lines().filter_map(|line| line.strip_prefix("WARNING: "));
        warnings.filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn large_commits_are_named() {
    let repository = Repository::new("large");
    repository.add("src/short.rs", 150, "src: add short");
    repository.add("src/silent.rs", 151, "src: add silent");
    repository.add("src/explained.rs", 151, "src: add explained\n\nWhy it is there.");
    repository.add("src/signed.rs", 151, "src: add signed\n\nSigned-off-by: test <test@example.com>");
    repository.add("src/most.rs", 1_000, "src: add most\n\nWhy it is there.");
    repository.add("src/huge.rs", 1_001, "src: add huge\n\nWhy it is there.");
    assert_eq!(repository.named(), ["silent", "signed", "huge"]);
}

#[test]
fn moved_files_tests_and_generated_files_do_not_count() {
    let repository = Repository::new("moved");
    for file in [
        "tests/recorded/case.json",
        "core/src/queue/tests.rs",
        "crds/kind.yaml",
        "charts/sluice/files/crds/kind.yaml",
        "charts/sluice/templates/rbac/kind_role.yaml",
        "charts/sluice/templates/_frameworks.tpl",
        "Cargo.lock",
    ] {
        repository.add(file, 1_001, "tests: add a file");
    }
    repository.add("src/old.rs", 900, "src: add a file\n\nWhy it is there.");
    fs::create_dir_all(repository.0.join("core/src")).unwrap();
    repository.run("git", &["mv", "src/old.rs", "core/src/new.rs"]);
    repository.commit("src: move a file");
    assert_eq!(repository.named(), [""; 0]);
}

/// The chart and the roles have generated files beside those that are written by hand.
#[test]
fn manifests_written_by_hand_count() {
    let repository = Repository::new("manifests");
    let files = [
        "charts/sluice/values.yaml",
        "charts/sluice/templates/_helpers.tpl",
        "config/rbac/topology_role.yaml",
    ];
    for file in files {
        repository.add(file, 1_001, &format!("chart: add {file}"));
    }
    assert_eq!(repository.named(), files);
}

#[test]
fn clone_without_the_first_commit_is_no_error() {
    let report = Repository::new("shallow").report("0123456789012345678901234567890123456789");
    assert!(report.ends_with("is not in this clone: no commits were looked at\n"), "{report}");
}
