# SPDX-License-Identifier: Apache-2.0
"""What afd.Client asks of a live afdd besides generations: other workers, another afdd.

Oracle: the tokens and log-probabilities of the undisturbed instance, to the bit, in what runs
meanwhile; and what afdd says of itself.
"""
import concurrent.futures
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import afd

BIN = pathlib.Path(os.environ["AFD_BIN_DIR"])
PATIENCE = 240.0


def wait_for(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)


def is_alive(pid):
    # Nobody may wait for an orphan's end here.
    return state_of(pid) not in ("", "Z")


def state_of(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return stat.rsplit(")", 1)[1].split()[0]


def pids_of_session(session):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue  # It has ended meanwhile.
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.fixture
def client(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name, log = f"operations_{os.getpid()}", tmp_path / "log"
    with open(log, "w", encoding="utf-8") as output, subprocess.Popen(
            [BIN / "afdd", "--demo", "--instance", name, "--attention-workers", "1",
             "--ffn-workers", "1"], stdout=output, stderr=output, start_new_session=True) as process:
        pids = [process.pid]
        try:
            wait_for("ready", lambda: process.poll() is not None or "ready in " in log.read_text())
            assert process.poll() is None, log.read_text()
            with afd.Client(name, timeout=PATIENCE) as opened:
                yield opened
                pids.append(opened.status()["pid"])
        finally:
            for pid in pids:
                if is_alive(pid):
                    os.kill(pid, signal.SIGTERM)
            for pid in pids:
                wait_for(f"the end of afdd {pid}", lambda each=pid: not is_alive(each)
                         or (each == process.pid and process.poll() is not None))
            for pid in pids_of_session(process.pid):
                os.kill(pid, signal.SIGKILL)  # What a failure has left.


def generate(client):
    done = client.generate("Once upon a time", max_tokens=200, seed=5, ignore_eos=True,
                           return_token_ids=True, return_logprobs=True)
    return done.token_ids, done.logprobs


def generate_until(is_over, instance, expected):
    with afd.Client(instance, timeout=PATIENCE) as client:
        while not is_over.is_set():
            assert generate(client) == expected


def test_other_workers_and_another_afdd_under_requests(client):
    expected = generate(client)
    before = client.status()
    is_over = threading.Event()
    said = []
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(generate_until, is_over, before["instance"], expected)
                for _ in range(3)]
        try:
            wait_for("requests", lambda: client.status()["num_running"] > 0)
            resized = client.resize(ffn_workers=2, on_progress=said.append)
        finally:
            is_over.set()
        for run in runs:
            run.result()
    assert (resized["attention_workers"], resized["ffn_workers"]) == (1, 2)
    assert resized["num_replays"] > 0
    assert said and all(isinstance(each, str) for each in said)
    assert len(client.status()["workers"]) == 3

    upgraded = client.upgrade(on_progress=said.append)
    assert upgraded["old_pid"] == before["pid"] != upgraded["pid"]
    # The connection is the new one's now, whose numbers of workers are those of its command line.
    wait_for("the new afdd answers here", lambda: client.status()["pid"] == upgraded["pid"])
    assert len(client.status()["workers"]) == 2
    assert generate(client) == expected


def test_what_cannot_be_is_said(client):
    with pytest.raises(afd.InvalidArgument, match="ffn_workers"):
        client.resize(ffn_workers=100000)
    assert client.status()["state"] == "ready"
