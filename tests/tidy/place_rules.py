# SPDX-License-Identifier: Apache-2.0
"""Where a test lies: tests/ mirrors the tree."""

from pathlib import Path

from include_rules import includes_of

# Its headers have the names of those whose reference they are.
REFERENCE = Path("ops/reference")


def check_test_places(sources: dict[Path, list[str]]) -> list[str]:
    """x_test.cc lies where x.h does, below tests/.

    Which x.h: one that the test includes. If it includes none, the one of the top-level folder that
    it is below: a test of whole programs, in a folder of its own, may be called as it likes.
    """
    headers: dict[str, list[Path]] = {}
    for path in sources:
        if path.suffix == ".h" and path.parts[0] not in {"tests", "bench"}:
            headers.setdefault(path.stem, []).append(path)
    problems = []
    for path, lines in sources.items():
        if path.parts[0] != "tests" or not path.name.endswith("_test.cc"):
            continue
        named = [header for header in headers.get(path.name.removesuffix("_test.cc"), [])
                 if header.parent != REFERENCE]
        included = {Path(name) for _, name in includes_of(lines)}
        tested = ([header for header in named if header in included]
                  or [header for header in named if header.parts[0] == path.parts[1]])
        places = [Path("tests") / header.parent for header in tested]
        if len(set(places)) == 1 and path.parent != places[0]:
            problems.append(f"{path}: the test of {tested[0]} belongs into {places[0]}/")
    return problems
