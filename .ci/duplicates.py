#!/usr/bin/env python3
"""Lists crates that a build compiles more than once: for programs that run, and for macros and build scripts with other features.

The arguments are those of cargo, such as `build --release`; by default `build`. What is built already is not built again, and counts.
Two versions of a crate are two crates: `make deny` names those. The exit status is that of the build.
"""

import json
import os
import subprocess
import sys

# Not linked into anything else.
NO_LIBRARY = {"bin", "test", "bench", "example", "custom-build"}


def libraries(arguments):
    """Builds, and returns the features of each build of each library, by name, version and source."""
    command = [os.environ.get("CARGO", "cargo"), *arguments, "--locked", "--message-format", "json-render-diagnostics"]
    found = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as build:
        for line in build.stdout:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("reason") != "compiler-artifact" or NO_LIBRARY & set(message["target"]["kind"]):
                continue
            # A library that is compiled with its tests is another program.
            if not message["profile"]["test"]:
                found.setdefault(message["package_id"], []).append(message["features"])
    return found, build.returncode


def main():
    """Prints a line for each crate, one for each of its builds, and the number of crates."""
    found, status = libraries(sys.argv[1:] or ["build"])
    twice = {package: builds for package, builds in sorted(found.items()) if len(builds) > 1}
    for package, builds in twice.items():
        print(f"{package.rpartition('/')[2].removeprefix('crates.io-index#')}: {len(builds)} times")
        for features in builds:
            print(f"  features: {', '.join(features) or 'none'}")
    print(f"{len(twice)} of {len(found)} libraries are compiled more than once")
    return status


if __name__ == "__main__":
    sys.exit(main())
