#!/usr/bin/env python3
"""scripts/packages/runtime.txt has what the programs need to run, and nothing else.

Method: the libraries that their files ask for. Oracle: the packages that dpkg says these are of.

Usage: runtime_packages_test.py DIRECTORY_OF_PROGRAMS
"""
import pathlib
import re
import subprocess
import sys
import unittest

DIRECTORY = pathlib.Path(sys.argv[1])
LIST = pathlib.Path(__file__).resolve().parents[2] / "scripts/packages/runtime.txt"
# libstdc++6 brings them.
ON_EVERY_SYSTEM = {"libc6", "libgcc-s1"}


def output(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def package_of(library: str) -> str:
    """As dpkg knows it: with or without the /usr of a system that has merged the two."""
    real = str(pathlib.Path(library).resolve())
    for path in (real, real.removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, timeout=30,
                              check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return f"no package: {library}"


class RuntimePackagesTest(unittest.TestCase):
    def test_the_list_is_what_the_programs_ask_for(self) -> None:
        libraries = set()
        for program in DIRECTORY.glob("afd*"):
            asked = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", program))
            places = dict(re.findall(r"^\t(\S+) => (\S+)", output("ldd", program), re.M))
            libraries |= {places[name] for name in asked if name in places}
        packages = {package_of(library) for library in libraries} - ON_EVERY_SYSTEM
        listed = {line for line in LIST.read_text("utf-8").splitlines() if not line.startswith("#")}
        # A build without the transport over UCX needs none of it.
        self.assertEqual(packages | {"libucx0"}, listed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
