#!/usr/bin/env python3
"""Names the commits that are too large to read, and those that are too large to give no reasons.

A commit is named if it adds more than 1,000 lines, or more than 150 without a body. Tests, generated and recorded files do not
count, and a file that moves counts for the lines that change in it. Merges are left out. What is named is a warning: the exit
status is 0.
"""

import argparse
import re
import subprocess
import sys

# The commits after this one are looked at: those before it are older than the rule.
START = "616a0db42904f139ee10e4837c146daceb0b5769"
# Most lines that a commit may add.
MOST = 1000
# Most lines that a commit may add without a body.
MOST_WITHOUT_BODY = 150

# Files that do not count, by their paths.
LEFT_OUT = re.compile(
    r"""
    (?:^|/)tests(?:/|\.rs$)             # tests, with their recordings and expected files
    | (?:^|/)proptest-regressions/      # what proptest records
    | ^e2e/upgrades/                    # objects that earlier versions stored
    | (?:^|/)(?:Cargo\.lock|go\.sum)$
    | ^(?:crds|config/v1beta1/definitions|config/frameworks)/
    | ^charts/sluice/(?:files/|templates/(?:rbac|visibility|webhooks)/|templates/_frameworks\.tpl$)
    | ^docs/(?:configure|feature-gates|flags)\.md$
    | ^(?:core/)?src/api/crd/pod-template\.json$
    """,
    re.VERBOSE,
)
# Lines at the end of a message that are no reasons.
TRAILER = re.compile(r"^[A-Z][A-Za-z]*(?:-[A-Za-z]+)+: ")


def git(*arguments):
    """Returns what git prints."""
    done = subprocess.run(["git", *arguments], check=True, capture_output=True)
    return done.stdout.decode(errors="replace")


def is_known(commit):
    """Returns whether the clone has a commit: a shallow one may not."""
    done = subprocess.run(["git", "cat-file", "-e", commit + "^{commit}"], capture_output=True)
    return done.returncode == 0


def added_lines(commit):
    """Returns the lines that a commit adds to files that count; those of a binary file are 0."""
    fields = git("diff-tree", "-r", "-M", "-l0", "--root", "--no-commit-id", "--numstat", "-z", commit).split("\0")
    total = 0
    while fields and fields[0]:
        added, _, path = fields.pop(0).split("\t", 2)
        if not path:
            # A rename: the old path and the new one follow.
            _, path = fields.pop(0), fields.pop(0)
        if added != "-" and not LEFT_OUT.search(path):
            total += int(added)
    return total


def has_body(body):
    """Returns whether a message says more than its subject."""
    return any(line.strip() and not TRAILER.match(line) for line in body.splitlines())


def warning(commit):
    """Returns what is to be said about a commit, or None."""
    added = added_lines(commit)
    short, subject, body = git("show", "-s", "--format=%h%x00%s%x00%b", commit).split("\0", 2)
    if added > MOST:
        return f"{short} adds {added:,} lines, at most {MOST:,}: {subject}"
    if added > MOST_WITHOUT_BODY and not has_body(body):
        return f"{short} adds {added:,} lines and has no body, from {MOST_WITHOUT_BODY + 1} on: {subject}"
    return None


def main():
    """Prints a line for each commit that is named, and their number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", default=START, help="the commits after this one are looked at")
    start = parser.parse_args().start
    if not is_known(start):
        print(f"{start} is not in this clone: no commits were looked at")
        return
    commits = git("rev-list", "--no-merges", "--reverse", f"{start}..HEAD").split()
    warnings = [line for line in map(warning, commits) if line]
    for line in warnings:
        print(f"WARNING: {line}")
    print(f"{len(warnings)} of {len(commits)} commits since {start[:8]} are named")


if __name__ == "__main__":
    sys.exit(main())
