#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs openai/openai_client.mjs, with the npm package `openai`, at a real afdd.

    openai_test.py BIN_DIR WORK_DIR

npm installs into WORK_DIR once what openai/package-lock.json names, by its checksums. Without node
or npm, or where the registry cannot be reached, it is skipped (clients_required.py).
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from chat_model import make_chat_model
from clients_required import is_missing
from instance import Instance

SOURCE = pathlib.Path(__file__).parent / "openai"
INSTALL_S = 120
# For a registry that is down for longer than npm itself tries.
NUM_ATTEMPTS = 3
PAUSE_S = 10


def install(work: pathlib.Path) -> str:
    """Why it could not be installed; empty: it is there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node or npm is not installed (scripts/setup --clients)"
    work.mkdir(parents=True, exist_ok=True)
    lock = work / "package-lock.json"
    wanted = (SOURCE / lock.name).read_bytes()
    is_installed = (work / "node_modules/.package-lock.json").exists()
    if is_installed and lock.exists() and lock.read_bytes() == wanted:
        return ""
    lock.write_bytes(wanted)
    shutil.copy(SOURCE / "package.json", work)
    for attempt in range(NUM_ATTEMPTS):
        if attempt > 0:
            time.sleep(PAUSE_S)
        if not (why := fetch(work)):
            break
    return why


def fetch(work: pathlib.Path) -> str:
    try:
        done = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"],
            cwd=work, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"npm installed nothing in {INSTALL_S} s (ETIMEDOUT)"
    return "" if done.returncode == 0 else f"npm could not install it: {done.stderr}"


def main() -> int:
    work = pathlib.Path(sys.argv[2])
    if why := install(work):
        return is_missing(why)
    # Packages are looked for beside the script.
    script = work / "openai_client.mjs"
    shutil.copy(SOURCE / script.name, script)
    with (tempfile.TemporaryDirectory(prefix="afd-chat-") as model,
          Instance(pathlib.Path(sys.argv[1]), "--model", make_chat_model(pathlib.Path(model)),
                   "--http-model", "demo_model") as instance):
        return subprocess.run(["node", script, instance.url + "/v1"], timeout=120,
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
