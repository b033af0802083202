#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes.yaml: that Kubernetes would take it, and afdd what it says.

    kubernetes_test.py BIN_DIR [unittest arguments]

Method and oracle: each object is read into the types that the Kubernetes client generates from the
schema of the API, which refuses what is missing or out of range, and written again: what the schema
does not know is lost on the way. The variables of the containers are given to afdd --check-config.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
from collections.abc import Iterator

import kubernetes.client
import yaml

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
SOURCE = pathlib.Path(__file__).resolve().parents[3]
MANIFEST = SOURCE / "deploy/kubernetes.yaml"


def objects() -> list[dict]:
    return yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["items"]


def container_of(name: str) -> dict:
    found = next(one for one in objects() if one["metadata"]["name"] == name)
    return found["spec"]["template"]["spec"]["containers"][0]


def variables_of(container: dict) -> dict[str, str]:
    """As the kubelet makes them: of a pod afd-host-0 at 10.0.0.7."""
    of_pod = {"status.podIP": "10.0.0.7", "metadata.name": "afd-host-0"}
    secrets = {"afd-api-key": "0123456789abcdef"}
    variables: dict[str, str] = {}
    for entry in container["env"]:
        value = entry.get("value")
        if value is None and "secretKeyRef" in entry["valueFrom"]:
            value = secrets[entry["valueFrom"]["secretKeyRef"]["name"]]
        elif value is None:
            value = of_pod[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, known in variables.items():
            value = value.replace(f"$({name})", known)
        variables[entry["name"]] = value
    return variables


@contextlib.contextmanager
def certificates() -> Iterator[str]:
    """In the place of the secrets that the pods mount."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([BIN / "afdctl", "cluster", "init", directory, "--host", "afd-host-0"],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)
        yield directory


def check_config(variables: dict[str, str]) -> subprocess.CompletedProcess:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables,
                   "AFD_MODEL": str(SOURCE / "demo_model")}
    return subprocess.run([BIN / "afdd", "--check-config"], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)


class KubernetesTest(unittest.TestCase):
    def test_the_schema_knows_all_of_it(self) -> None:
        client = kubernetes.client.ApiClient()
        kinds = []
        for one in objects():
            kinds.append(one["kind"])
            answer = types.SimpleNamespace(data=json.dumps(one))
            read = client.deserialize(answer, "V1" + one["kind"])
            self.assertEqual(client.sanitize_for_serialization(read), one)
        self.assertEqual(kinds, ["Service", "Service", "StatefulSet", "StatefulSet"])

    def test_the_schema_refuses_and_loses(self) -> None:
        """So that the test above can fail."""
        client = kubernetes.client.ApiClient()
        odd = next(one for one in objects() if one["kind"] == "StatefulSet")
        odd["spec"]["replicass"] = 2
        answer = types.SimpleNamespace(data=json.dumps(odd))
        read = client.deserialize(answer, "V1StatefulSet")
        self.assertNotEqual(client.sanitize_for_serialization(read), odd)
        del odd["spec"]["selector"]
        with self.assertRaisesRegex(ValueError, "selector"):
            client.deserialize(types.SimpleNamespace(data=json.dumps(odd)), "V1StatefulSet")

    def test_selectors_find_their_pods(self) -> None:
        templates = [one["spec"]["template"]["metadata"]["labels"] for one in objects()
                     if one["kind"] == "StatefulSet"]
        for one in objects():
            selector = one["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            self.assertTrue(any(wanted.items() <= labels.items() for labels in templates), wanted)

    def test_afdd_takes_the_variables(self) -> None:
        for name in ("afd-leader", "afd-host"):
            variables = variables_of(container_of(name))
            with certificates() as directory:
                done = check_config({**variables, "AFD_CLUSTER_DIR": directory})
            self.assertEqual(done.returncode, 0, done.stdout)
            for variable in variables:
                if variable.startswith("AFD_") and variable != "AFD_API_KEY":
                    self.assertRegex(done.stdout, rf"# .*\b{variable}\n")

    def test_the_leader_needs_the_key(self) -> None:
        """As it is reached from everywhere: without one it would not start."""
        variables = variables_of(container_of("afd-leader"))
        del variables["AFD_API_KEY"]
        done = check_config(variables)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("lets other machines in, and there is no API key", done.stdout)

    def test_hosts_are_those_that_the_leader_awaits(self) -> None:
        awaited = variables_of(container_of("afd-leader"))["AFD_FFN_HOSTS"].split(",")
        hosts = next(one for one in objects() if one["metadata"]["name"] == "afd-host")
        pods = [f"afd-host-{i}" for i in range(hosts["spec"]["replicas"])]
        self.assertEqual(awaited, pods)
        certificates = " ".join(f"--host {pod}" for pod in pods)
        self.assertIn(f"afdctl cluster init certificates {certificates}",
                      MANIFEST.read_text(encoding="utf-8"))

    def test_all_pods_may_be_told_to_end_at_once(self) -> None:
        """Hosts stay while the leader drains, and none is killed before it is over: a host gives
        the leader 3 s more than its own drain takes, and its workers 3 s after that."""
        self.assertEqual(variables_of(container_of("afd-host"))["AFD_LEAVE_WITH_LEADER"], "true")
        for name in ("afd-leader", "afd-host"):
            with certificates() as directory:
                done = check_config({**variables_of(container_of(name)),
                                     "AFD_CLUSTER_DIR": directory})
            drain = re.search(r"^drain_timeout_ms = (\d+)", done.stdout, re.MULTILINE)
            self.assertIsNotNone(drain, done.stdout)
            template = next(one for one in objects() if one["metadata"]["name"] == name)
            grace = template["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            self.assertGreater(grace * 1000, int(drain[1]) + 2 * 3000)


if __name__ == "__main__":
    unittest.main()
