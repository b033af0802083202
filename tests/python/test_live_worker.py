# SPDX-License-Identifier: Apache-2.0
"""The example python/examples/live_ffn_worker.py in the place of an FFN worker of a live afdd.

Every worker is a process of its own. Oracle: the tokens and their log-probabilities that the same
afdd gives with FFN workers in C++ only, to the bit; numeric class portable, where the example has
those bits on every machine.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import afd

BIN = pathlib.Path(os.environ["AFD_BIN_DIR"])
EXAMPLE = pathlib.Path(__file__).parents[2] / "python" / "examples" / "live_ffn_worker.py"
PATIENCE = 240.0
# How afdd is started where the example is shown.
SHOWN = re.findall(r"^ +(afdd .*--spawn false)$", "\n".join(
    path.read_text(encoding="utf-8") for path in (EXAMPLE, EXAMPLE.parents[1] / "README.md")), re.M)
# And how the worker is started behind it.
WORKER_SHOWN = re.findall(r"^ +python3 (\S*live_ffn_worker\.py) (\S+) (\S+)", (
    EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8"), re.M)
PROMPTS = ("Once upon a time", "The little dog " * 20, "A")


class Instance:
    """afdd with workers by hand: `ffn` has "c++" or "python" for each rank."""

    def __init__(self, folder, name, ffn, *flags):
        self.name, self.log = f"{name}_{os.getpid()}", folder / "log"
        self.output = open(self.log, "a", encoding="utf-8")
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder),
                            "XDG_CACHE_HOME": str(folder)}
        self.processes = [self.start(
            BIN / "afdd", "--demo", "--instance", self.name, "--spawn", "false", "--ffn-workers",
            str(len(ffn)),
            *(() if "--numeric-class" in flags else ("--numeric-class", "portable")),
            *(() if "--dispatch" in flags else ("--dispatch", "window")), *flags)]
        self.wait_for("afdd waits for its workers",
                      lambda: "waiting for workers that are started by hand" in self.said())
        for session in range(2):
            self.start_worker("attention", session)
        self.ffn = [self.start_worker("ffn", rank) if kind == "c++" else self.start_python(rank)
                    for rank, kind in enumerate(ffn)]

    def start(self, *arguments):
        process = subprocess.Popen([str(each) for each in arguments], env=self.environment,
                                   stdout=self.output, stderr=self.output)
        if hasattr(self, "processes"):
            self.processes.append(process)
        return process

    def start_worker(self, role, index):
        return self.start(BIN / f"afd-{role}-worker", "--instance", self.name, "--index", index)

    def start_python(self, rank):
        return self.start(sys.executable, "-B", EXAMPLE, self.name, rank)

    def said(self):
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, what, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert self.processes[0].poll() is None, "afdd has ended:\n" + self.said()
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}\n{self.said()}"
            time.sleep(0.02)

    def wait_ready(self):
        self.wait_for("all workers are ready", lambda: re.search(r"ready in ", self.said()))

    def generate(self):
        with afd.Client(self.name, timeout=PATIENCE) as client:
            done = [client.generate(prompt, max_tokens=12, temperature=0.8, seed=5,
                                    return_token_ids=True, return_logprobs=True,
                                    prompt_logprobs=True) for prompt in PROMPTS]
        return [(each.token_ids, each.logprobs, each.prompt_logprobs) for each in done]

    def stop(self):
        """Drains; the exit statuses of all processes."""
        self.processes[0].send_signal(signal.SIGTERM)
        return [process.wait(PATIENCE) for process in self.processes]

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.output.close()


@pytest.fixture
def start(tmp_path, monkeypatch):
    made = []

    def make(name, ffn, *flags):
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        made.append(Instance(folder, name, ffn, *flags))
        return made[-1]
    yield make
    for each in made:
        each.close()


def replies(instance):
    instance.wait_ready()
    answer = instance.generate()
    assert instance.stop() == [0] * len(instance.processes), instance.said()
    return answer


@pytest.mark.parametrize("flags", [(), ("--shared-experts", "attention")])
def test_a_worker_in_python_beside_one_in_cpp_gives_the_same_bits(start, flags):
    expected = replies(start("cpp", ["c++", "c++"], *flags))
    assert all(len(token_ids) == 12 for token_ids, _, _ in expected)
    assert replies(start("mixed", ["c++", "python"], *flags)) == expected


# Goal: what a worker had not acknowledged is executed again by its successor, which may be of the
# other kind. Method: each is killed while tokens come; the session waits for the next, or, with all
# experts on both ranks, goes on with the other, and the next hears what is voided (R12).
@pytest.mark.parametrize("has_replicas", [False, True])
def test_a_killed_worker_of_either_kind_is_replaced_by_one_of_the_other(
        start, tmp_path, has_replicas):
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"experts": [[0, 1]] * 16}), encoding="utf-8")
    flags = ("--expert-placement", str(placement)) if has_replicas else ()
    settings = {"max_tokens": 100, "temperature": 0.8, "seed": 5, "ignore_eos": True,
                "return_token_ids": True}
    instance = start("cpp", ["c++", "c++"])
    instance.wait_ready()
    with afd.Client(instance.name, timeout=PATIENCE) as client:
        expected = client.generate(PROMPTS[0], **settings).token_ids
    instance = start("killed", ["c++", "python"], *flags)
    instance.wait_ready()
    with afd.Client(instance.name, timeout=PATIENCE) as client:
        stream = client.stream(PROMPTS[0], **settings)
        tokens = list(next(stream).token_ids)
        for restart in (instance.start_worker, instance.start_python):
            instance.ffn[1].kill()
            instance.ffn[1].wait()
            arguments = ("ffn", 1) if restart == instance.start_worker else (1,)
            instance.ffn[1] = restart(*arguments)
            tokens += getattr(next(stream, None), "token_ids", [])
        tokens += [token for chunk in stream for token in chunk.token_ids]

        # The stream may have been over before it was needed.
        def last_is_ready():
            mine = {"role": "ffn", "index": 1, "pid": instance.ffn[1].pid, "state": "ready"}
            return any(mine.items() <= worker.items() for worker in client.status()["workers"])
        instance.wait_for("the last worker is ready", last_is_ready)
    assert tokens == expected
    instance.stop()
    assert instance.ffn[1].returncode == 0, instance.said()


# Goal: who follows the README gets the bits. Oracle: as above, in the class that is shown.
def test_the_class_that_is_shown_is_one_whose_bits_the_example_has(start):
    first, second = SHOWN
    assert first == second
    shown = re.search(r" --numeric-class (\S+)", first)
    assert shown, f"in the class of this machine the example may have other bits: {first}"
    if shown[1] not in afd.numeric_classes():
        pytest.skip(f"this processor has no {shown[1]}")
    flags = ("--numeric-class", shown[1])
    expected = replies(start("cpp", ["c++", "c++"], *flags))
    assert replies(start("mixed", ["c++", "python"], *flags)) == expected


# Oracle: the example is there, and takes these arguments: the instance and a rank that no worker of
# the lines before it has.
def test_the_line_that_is_shown_starts_the_example():
    assert len(WORKER_SHOWN) == 1
    path, instance, rank = WORKER_SHOWN[0]
    assert EXAMPLE.parents[2] / path == EXAMPLE
    assert f"afd-ffn-worker --instance {instance} --index {1 - int(rank)}" in (
        EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")


# Goal: a worker in Python is seen at work. Oracle: both ranks hold experts of every layer, so both
# have had rounds and computed rows.
def test_the_status_has_the_work_of_a_worker_in_python(start):
    instance = start("counted", ["c++", "python"])
    instance.wait_ready()
    instance.generate()
    with afd.Client(instance.name, timeout=PATIENCE) as client:
        ffn = [each for each in client.status()["workers"] if each["role"] == "ffn"]
    for each in ffn:
        assert each["num_rounds"] > 0 and each["num_tokens"] > 0, ffn
    instance.stop()


# Goal: who follows the README sees a live instance and cannot disturb it. Oracle: the flags of the
# window are rounds once there were some; it serves on.
def test_a_live_instance_is_watched_without_a_hand_in_it(start):
    instance = start("watched", ["c++"])
    instance.wait_ready()
    expected = instance.generate()
    with afd.Client(instance.name, timeout=PATIENCE) as client:
        prefix = client.status()["segment_prefix"]
    context = afd.ScheduleContext(afd.segment(f"{prefix}-ffn0-control", writable=False))
    window = afd.segment(f"{prefix}-ffn0-window", writable=False)
    flags = context.ffn_descriptors(window)[:, :, 0]
    assert flags.shape == (2, context.common.micro_batch_num) and (flags > 0).any()
    with pytest.raises(ValueError):
        flags[:] = 0
    assert instance.generate() == expected
    instance.stop()


@pytest.mark.parametrize("flags, option", [
    (("--dispatch", "two_phase"), "--dispatch window"),
    (("--router", "ffn"), "--router attention"),
    (("--dispatch-dtype", "fp8"), "--dispatch-dtype bf16"),
    (("--row-checksums", "true"), "--row-checksums false"),
    pytest.param(("--transport", "ucx"), "--transport shared_memory", marks=pytest.mark.skipif(
        b"built without it" in subprocess.run(
            [BIN / "afdd", "--demo", "--transport", "ucx", "--check-config"], capture_output=True,
            check=False).stderr, reason="afdd was built without UCX"))])
def test_what_a_worker_in_python_does_not_do_is_said_on_both_sides(start, flags, option):
    instance = start("refused", ["python"], *flags)
    assert instance.ffn[0].wait(PATIENCE) == 1
    line = f"FailedPrecondition: a worker in Python needs an afdd with {option}"
    instance.wait_for("both say why", lambda: instance.said().count(line) >= 2)


def test_a_worker_that_is_refused_says_why(start):
    with pytest.raises(afd.NotFound, match="cannot connect to afdd at .*nobody.control.sock: "):
        afd.FfnWorker(path="/tmp/nobody.control.sock")
    instance = start("refusing", ["c++"])
    instance.wait_ready()
    with pytest.raises(afd.Error, match="afdd refuses this worker: ffn worker 0 belongs to pid "):
        afd.FfnWorker(instance.name, 0)
    with pytest.raises(afd.InvalidArgument, match="index 7 is not a slot of this instance"):
        afd.FfnWorker(instance.name, 7)
