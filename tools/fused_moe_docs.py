#!/usr/bin/env python3
"""Fills the generated tables of docs/fused_moe.md from the parts' records.

    fused_moe_docs.py --afd-op PATH [--check]

A table stands between the lines "<!-- begin NAME -->" and "<!-- end NAME -->". Both are what a reader
needs of `afd-op moe-matrix`, which prints everything: `parts` its first two tables without the rare
columns, `pairs` the weight formats with which a PrepareFinalize and an Experts part serve a plain
call. --check writes nothing and exits with 1 if a table is out of date.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fused_moe.md"
PARTS_COLUMNS = [
    ["PrepareFinalize", "experts get", "where experts run", "asynchronous", "rows travel as"],
    ["Experts", "takes", "weights", "chunks", "weight-and-reduce"],
]


def tables_of(text: str) -> list[list[dict[str, str]]]:
    """The Markdown tables of a text, each as a list of rows by column."""
    tables = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")]
                 for line in block.splitlines()]
        tables.append([dict(zip(lines[0], line)) for line in lines[2:]])
    return tables


def table_with(tables: list[list[dict[str, str]]], columns: list[str]) -> list[dict[str, str]]:
    """The one table that begins with columns[0] and has the others, too."""
    found = [table for table in tables
             if next(iter(table[0])) == columns[0] and set(columns) <= table[0].keys()]
    if len(found) != 1:
        sys.exit(f"afd-op moe-matrix has {len(found)} tables with the columns {', '.join(columns)}")
    return found[0]


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns)] + rows
    return "\n".join("| " + " | ".join(line) + " |" for line in lines).replace("| --- ", "|---") \
        .replace("--- |", "---|")


def parts(tables: list[list[dict[str, str]]]) -> str:
    return "\n\n".join(
        markdown(columns, [[row[c] for c in columns] for row in table_with(tables, columns)])
        for columns in PARTS_COLUMNS)


def pairs(tables: list[list[dict[str, str]]]) -> str:
    matrix = table_with(tables, ["PrepareFinalize", "Experts", "weights", "plain"])
    experts = list(dict.fromkeys(row["Experts"] for row in matrix))
    served: dict[str, dict[str, list[str]]] = {}
    for row in matrix:
        weights = served.setdefault(row["PrepareFinalize"], {}).setdefault(row["Experts"], [])
        if row["plain"] == "yes":
            weights.append(row["weights"])
    # Bare names: with all of them in backquotes the line would be too long.
    return markdown([""] + [e.strip("`") for e in experts],
                    [[name] + [", ".join(by_experts.get(e, [])) or "–" for e in experts]
                     for name, by_experts in served.items()])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--afd-op", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    run = subprocess.run(
        [arguments.afd_op, "moe-matrix"], capture_output=True, text=True, check=True)
    tables = tables_of(run.stdout)
    old = PAGE.read_text("utf-8")
    text = old
    for name, content in {"parts": parts(tables), "pairs": pairs(tables)}.items():
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
