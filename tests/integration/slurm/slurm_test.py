#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""afdd as the job of a real Slurm.

    slurm_test.py BIN_DIR [unittest arguments]

Goal: `sbatch deploy/afd.sbatch` starts an instance over the nodes of the job, which answers with
the bits of one host, and ends as jobs end: drained when it is cancelled, as a whole when a part of
it fails. Method: Slurm's own daemons, one slurmd for each of three nodes, on this machine. Oracle:
the answers of an instance without Slurm; the job's state as Slurm has it.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
from instance import stopped  # noqa: E402
from slurm import MEMORY_MB, Slurm  # noqa: E402

BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
SOURCE = pathlib.Path(__file__).resolve().parents[3]
MODEL = SOURCE / "demo_model"
PROMPT = "It was a fine morning, and the young lady"
NUM_NODES = 3


def pids_of(job: int, program: str) -> list[int]:
    """Of the job's processes: those of its instances."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            is_program = words[0].endswith(program.encode())
            environment = (entry.parent / "environ").read_bytes()
            if is_program and f"SLURM_JOB_ID={job}\0".encode() in environment:
                found.append(int(entry.parent.name))
    return found


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.home = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="afd-home-"))
        cls.slurm = cls.enterClassContext(Slurm(NUM_NODES, {
            "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": cls.home,
            "XDG_RUNTIME_DIR": cls.home, "XDG_CACHE_HOME": cls.home}))

    def submit(self, *options: str, export: str = "ALL") -> int:
        """Starts the job; its number, once it serves. It is gone when the test ends."""
        output = self.slurm.directory / "job-%j.out"
        said = self.slurm.call(
            "sbatch", "--parsable", "--nodes", str(NUM_NODES), "--output", str(output),
            "--export", export,
            str(SOURCE / "deploy/afd.sbatch"), "--model", str(MODEL), "--ucx-devices", "lo",
            *options)
        job = int(said)
        self.addCleanup(self.end, job)
        self.slurm.wait_for(lambda: "ready in" in self.log(job), f"job {job} serves")
        return job

    def log(self, job: int) -> str:
        file = self.slurm.directory / f"job-{job}.out"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def end(self, job: int) -> None:
        self.slurm.call("scancel", str(job), may_fail=True)
        self.wait_end(job)

    def wait_end(self, job: int) -> str:
        """The state that it ended in."""
        is_over = ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL")
        self.slurm.wait_for(lambda: self.slurm.state_of(job) in is_over and not pids_of(job, "afdd"),
                            f"job {job} is over")
        return self.slurm.state_of(job)

    def status_of(self, instance: str) -> dict:
        """Empty: it does not answer yet."""
        said = self.slurm.call("afdctl", "--instance", instance, "--json", "status", may_fail=True)
        return json.loads(said) if said.startswith("{") else {}

    def generate(self, instance: str, num_tokens: int = 40) -> str:
        return self.slurm.call("afdctl", "--instance", instance, "generate", PROMPT, "--token-ids",
                               "--logprobs", "--max-tokens", str(num_tokens), "--ignore-eos")

    def test_a_job_serves_with_the_bits_of_one_host(self) -> None:
        job = self.submit()
        status = self.slurm.call("afdctl", "--instance", f"job{job}", "status")
        self.assertRegex(status, r"n2\s+127\.0\.0\.1:\d+")
        self.assertRegex(status, r"n3\s+127\.0\.0\.1:\d+")
        self.assertEqual(len(pids_of(job, "afd-ffn-worker")), NUM_NODES)
        self.assertEqual(len(pids_of(job, "afd-attention-worker")), NUM_NODES)
        answers = {self.answer_of(self.generate(f"job{job}")) for _ in range(NUM_NODES)}
        name = f"alone_{os.getpid()}"
        alone = subprocess.Popen([BIN / "afdd", "--demo", "--instance", name],
                                 env=self.slurm.environment, stderr=subprocess.DEVNULL)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.terminate)
        self.slurm.wait_for(lambda: self.status_of(name).get("state") == "ready",
                            "one host serves")
        self.assertEqual(answers, {self.answer_of(self.generate(name))})

    def test_a_job_has_all_of_its_nodes(self) -> None:
        resources = self.slurm.resources_of(self.submit())
        self.assertEqual(resources["mem"], f"{NUM_NODES * MEMORY_MB}M")
        self.assertEqual(resources["cpu"], str(NUM_NODES * 2))

    def test_a_node_without_the_runtime_directory_serves_all_the_same(self) -> None:
        """Who submits has it elsewhere. Oracle: the command that the job's output shows."""
        for export, words in (("ALL", f"XDG_RUNTIME_DIR={self.home}"),
                              ("ALL,XDG_RUNTIME_DIR=/nonexistent/run", "-u XDG_RUNTIME_DIR")):
            job = self.submit(export=export)
            shown, = re.findall(r"^on n1: (env .* status)$", self.log(job), re.MULTILINE)
            self.assertEqual(shown, f"env {words} afdctl --instance job{job} status")
            elsewhere = ["env", "XDG_RUNTIME_DIR=/nonexistent/login", *shown.split(), "--json"]
            self.assertEqual(json.loads(self.slurm.call(*elsewhere))["state"], "ready")
            self.end(job)

    def answer_of(self, text: str) -> str:
        """Without the times."""
        return re.sub(r"^(length|stop): .*$", "", text, flags=re.MULTILINE)

    def cancel_amid_a_request(self, *options: str) -> int:
        """The job, of which the request was answered whole. Its experts rest until scancel is over,
        so that it runs then."""
        job = self.submit("--stop-timeout-ms", "0", "--hang-timeout-ms", "0")
        instance = f"job{job}"
        whole = self.answer_of(self.generate(instance))
        with concurrent.futures.ThreadPoolExecutor() as others:
            with stopped(pids_of(job, "afd-ffn-worker")):
                request = others.submit(self.generate, instance)
                self.slurm.wait_for(lambda: self.status_of(instance).get("num_running") == 1,
                                    "the request runs")
                self.slurm.call("scancel", *options, str(job))
            self.assertEqual(self.answer_of(request.result()), whole)
        return job

    def test_scancel_drains(self) -> None:
        """Within KillWait; and nothing of the job stays behind. srun forwards no more output."""
        job = self.cancel_amid_a_request()
        self.assertEqual(self.wait_end(job), "CANCELLED")

    def test_scancel_of_a_signal_drains_without_a_limit_of_slurm(self) -> None:
        job = self.cancel_amid_a_request("--signal", "TERM")
        self.assertEqual(self.wait_end(job), "COMPLETED")
        self.assertIn("draining 1 requests", self.log(job))
        self.assertIn("ended: 2 requests served, 0 failed", self.log(job))

    def test_a_job_ends_with_its_leader(self) -> None:
        job = self.submit()
        self.slurm.call("afdctl", "--instance", f"job{job}", "stop")
        self.assertEqual(self.wait_end(job), "COMPLETED")
        self.assertEqual(self.log(job).count("has ended, and this host with it"), NUM_NODES - 1)
        self.assertFalse(list(pathlib.Path(self.home).glob(".afd-job*")), "certificates stay")

    def test_a_host_that_fails_ends_the_job(self) -> None:
        job = self.submit()
        os.kill(max(pids_of(job, "afdd")), signal.SIGKILL)
        self.assertEqual(self.wait_end(job), "FAILED")

    def test_says_what_is_no_job_for_it(self) -> None:
        said = self.slurm.call("srun", "--nodes", "1", "--ntasks", "2", "--overcommit", "afdd",
                               "--slurm", "--model", str(MODEL), may_fail=True)
        self.assertIn("--slurm: 2 tasks on 1 nodes, and one afdd runs on each", said)
        said = self.slurm.call("afdd", "--slurm", "--model", str(MODEL), may_fail=True)
        self.assertIn("SLURM_STEP_NODELIST is not set, so this is no task of a Slurm job", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
