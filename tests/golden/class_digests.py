#!/usr/bin/env python3
"""Digests of the logits of class amx for all small checkpoints of make_checkpoint.py.

    class_digests.py --bin build/release/bin [--check class_digests.txt] [--work DIR] [--jobs N]

A line: the variant, the digest of its weights, and those of the logits of 130 random tokens with
keys and values in bf16 and in int8. Whether tokens are computed one by one, fifty at a time or all
at once must not show: that is the first thing that is checked. With --check the lines must be those
of the file, which a processor with the instructions of AMX gave as well as one with AVX2 alone:
class amx has one arithmetic, however a processor computes it. Without it they are printed.

A change to what class amx computes makes new lines; say in ops/format/numeric_class.h what changed.
"""
import argparse
import concurrent.futures
import hashlib
import pathlib
import random
import subprocess
import sys
import tempfile

import make_checkpoint

NUM_TOKENS = 130
CHUNKS = (1, 50, NUM_TOKENS)
KV_DTYPES = ("bf16", "int8")


def digest(paths: list[pathlib.Path]) -> str:
    sha = hashlib.sha256()
    for path in paths:
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def tokens() -> str:
    draw = random.Random(5)
    return " ".join(["0"] + [str(draw.randrange(2, 250)) for _ in range(NUM_TOKENS - 1)]) + "\n"


def line_of(variant: str, program: pathlib.Path, work: pathlib.Path) -> str:
    """Raises RuntimeError if chunks show, CalledProcessError if the program fails."""
    model = work / variant
    make_checkpoint.make_checkpoint(variant, model)
    found = [variant, digest(sorted(model.glob("*.safetensors")))]
    for kv_dtype in KV_DTYPES:
        digests = set()
        for chunk in CHUNKS:
            out = work / f"{variant}-{kv_dtype}-{chunk}.safetensors"
            subprocess.run([program, model, "--ids", work / "ids.txt", "--out", out,
                            "--numeric-class", "amx", "--kv-dtype", kv_dtype,
                            "--chunk", str(chunk)], check=True)
            digests.add(digest([out]))
            out.unlink()
        if len(digests) > 1:
            raise RuntimeError(f"{variant}, kv {kv_dtype}: other bits in chunks of other sizes")
        found += digests
    return " ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    variants = sorted(set(make_checkpoint.ALL_VARIANTS) - {"medium"})
    with tempfile.TemporaryDirectory(prefix="afd-digests-") as folder:
        work = pathlib.Path(folder)
        (work / "ids.txt").write_text(tokens())
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            lines = list(pool.map(
                lambda v: line_of(v, arguments.bin / "afd-logits", work), variants))
    if arguments.check is None:
        print("\n".join(lines))
        return
    expected = arguments.check.read_text().splitlines()
    wrong = sorted(set(lines) ^ set(expected))
    for line in wrong:
        print(("here:     " if line in lines else "expected: ") + line, file=sys.stderr)
    if wrong:
        raise SystemExit(f"{len(wrong)} lines differ; if the second column does, this NumPy makes "
                         "other checkpoints")
    print(f"{len(lines)} checkpoints: the bits of {arguments.check.name}")


if __name__ == "__main__":
    main()
