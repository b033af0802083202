#!/usr/bin/env python3
"""Fills the generated parts of docs/fused_moe.md.

    fused_moe_docs.py --afd-op PATH [--check]

A part stands between the lines "<!-- begin NAME -->" and "<!-- end NAME -->": `matrix` is what
`afd-op moe-matrix` prints, `example` the file tests/ops/fused_moe/example_experts.cc, which the tests compile
and run. --check writes nothing and exits with 1 if a part is out of date.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fused_moe.md"
EXAMPLE = ROOT / "tests" / "ops" / "example_experts.cc"


def parts(afd_op: pathlib.Path) -> dict[str, str]:
    matrix = subprocess.run([afd_op, "moe-matrix"], capture_output=True, text=True, check=True)
    return {"matrix": matrix.stdout.strip(),
            "example": f"```cpp\n{EXAMPLE.read_text('utf-8').strip()}\n```"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--afd-op", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    old = PAGE.read_text("utf-8")
    text = old
    for name, content in parts(arguments.afd_op).items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(text)) != 1:
            print(f"docs/fused_moe.md must have the lines {begin} and {end} once")
            return 1
        text = pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)
    if not arguments.check:
        PAGE.write_text(text, "utf-8")
    elif text != old:
        print("docs/fused_moe.md is out of date: run "
              "tools/fused_moe_docs.py --afd-op build/release/bin/afd-op")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
