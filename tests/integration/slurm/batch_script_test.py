#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/afd.sbatch: what it runs, and with which certificates.

    batch_script_test.py BIN_DIR [unittest arguments]

Goal: a job of one node names no certificates, which would have no effect there; one of several
makes them where its user says. Method: the script runs with stand-ins for scontrol, srun and
afdctl, which print what they are given. Oracle: these lines, written by hand.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
STAND_INS = {
    "scontrol": 'for node in $SLURM_JOB_NODELIST; do echo "$node"; done',
    "srun": 'echo "srun: ${AFD_CLUSTER_DIR-none}"',
    "afdctl": 'echo "afdctl: $*"',
}


def output_of_job(nodes: str, home: str, **variables: str) -> list[str]:
    """The lines of the script's output after the first, which names an afdctl for the user."""
    for name, text in STAND_INS.items():
        program = pathlib.Path(home) / name
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o700)
    environment = {"PATH": f"{home}:{os.environ['PATH']}", "HOME": home, "SLURM_JOB_ID": "7",
                   "SLURM_JOB_NODELIST": nodes, **variables}
    done = subprocess.run(["bash", SOURCE / "deploy/afd.sbatch", "--model", "DIR"],
                          env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=True)
    return done.stdout.splitlines()[1:]


class BatchScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        self.home = self.enterContext(tempfile.TemporaryDirectory(prefix="afd-home-"))

    def test_one_node_has_no_certificates(self) -> None:
        self.assertEqual(output_of_job("N1", self.home), ["srun: none"])
        self.assertEqual(output_of_job("N1", self.home, AFD_CLUSTER_DIR="/shared"), ["srun: none"])

    def test_several_nodes_have_those_of_the_job(self) -> None:
        for base, more in ((self.home, {}),
                           (f"{self.home}/mine", {"AFD_CLUSTER_DIR": f"{self.home}/mine"})):
            made = f"{base}/.afd-job7"
            self.assertEqual(output_of_job("N1 N2 N3", self.home, **more),
                             [f"afdctl: cluster init {made} --host n2 --host n3", f"srun: {made}"])


if __name__ == "__main__":
    sys.argv[1:2] = []
    unittest.main()
