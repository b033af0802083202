"""Whether afd-logits gives the same bytes for two models, by tokens one at a time and by 64.

    same_logits.py --afd-logits PROGRAM --numeric-class CLASS --ids FILE MODEL MODEL

Exit code 77: this processor does not have the class.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--afd-logits", type=pathlib.Path, required=True)
    parser.add_argument("--numeric-class", required=True)
    parser.add_argument("--ids", type=pathlib.Path, required=True)
    parser.add_argument("models", type=pathlib.Path, nargs=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for model in arguments.models:
            for chunk in ("1", "64"):
                out = pathlib.Path(folder) / "logits.safetensors"
                done = subprocess.run(
                    [arguments.afd_logits, model, "--ids", arguments.ids, "--out", out, "--routing",
                     "--numeric-class", arguments.numeric_class, "--chunk", chunk],
                    capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    print(done.stderr)
                    lacks_class = not results and "this machine supports" in done.stderr
                    return SKIPPED if lacks_class else 1
                results.append(out.read_bytes())
    if len(set(results)) != 1:
        print(f"{arguments.models[0]} and {arguments.models[1]} differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
