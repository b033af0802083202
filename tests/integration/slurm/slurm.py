# SPDX-License-Identifier: Apache-2.0
"""A Slurm of this machine alone: one slurmctld, and a slurmd for each node; use as `with`."""

import contextlib
import getpass
import os
import pathlib
import socket
import subprocess
import tempfile
import time

PATIENCE_S = 60
MEMORY_MB = 1000  # Of a node, as Slurm counts it.


def free_ports(number: int) -> list[int]:
    """Ports that nobody has: of those below what the kernel hands out, so that no connection gets one
    in the meantime, and by the pid, as tests run beside each other."""
    limits = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    handed_out = int(limits.split()[0])
    all_below = range(handed_out // 2, handed_out)
    own = 16 * os.getpid()
    ports: list[int] = []
    for i in range(len(all_below)):
        if len(ports) == number:
            break
        port = all_below[(own + i) % len(all_below)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            ports.append(port)
    assert len(ports) == number, f"no {number} ports of {all_below} are free"
    return ports


class Slurm:
    """Nodes n1, n2, ... of two cores each; whoever runs the test is its user."""

    def __init__(self, num_nodes: int, environment: dict[str, str]) -> None:
        self.num_nodes = num_nodes
        self.home = tempfile.TemporaryDirectory(prefix="afd-slurm-")
        self.directory = pathlib.Path(self.home.name)
        self.config = self.directory / "slurm.conf"
        self.environment = {**os.environ, **environment, "SLURM_CONF": str(self.config)}
        self.daemons: list[subprocess.Popen] = []

    def _write_config(self) -> None:
        host = socket.gethostname().split(".")[0]
        control, *ports = free_ports(1 + self.num_nodes)
        lines = [
            "ClusterName=afd", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={control}",
            # Nobody but this machine is asked who he is.
            "AuthType=auth/none", "CredType=cred/none",
            f"SlurmUser={getpass.getuser()}", f"SlurmdUser={getpass.getuser()}",
            "ProctrackType=proctrack/pgid", "TaskPlugin=task/none", "MpiDefault=none",
            "SelectType=select/cons_tres", "KillWait=60",
            # Who asks for no memory gets little, as on many clusters.
            "SelectTypeParameters=CR_CPU_Memory", f"DefMemPerNode={MEMORY_MB // 16}",
            "ReturnToService=2", "SlurmdParameters=config_overrides",
            f"StateSaveLocation={self.directory}",
            f"SlurmdSpoolDir={self.directory}/spool-%n",
            f"SlurmctldPidFile={self.directory}/slurmctld.pid",
            f"SlurmdPidFile={self.directory}/slurmd-%n.pid",
            f"SlurmctldLogFile={self.directory}/slurmctld.log",
            f"SlurmdLogFile={self.directory}/slurmd-%n.log",
            *(f"NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 "
              f"RealMemory={MEMORY_MB}"
              for i, port in enumerate(ports)),
            f"PartitionName=all Nodes=n[1-{self.num_nodes}] Default=YES State=UP",
        ]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _start(self, *command: str) -> None:
        self.daemons.append(subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL))

    def __enter__(self) -> "Slurm":
        # A port may have been taken since.
        for _ in range(3):
            self._begin()
            try:
                # It is an error, at first, that nobody answers.
                self.wait_for(self._is_idle, "all nodes are idle")
                return self
            except ChildProcessError as error:
                found = error
                self._end()
            except BaseException:
                self._end()
                raise
        raise found

    def _begin(self) -> None:
        self._write_config()
        self._start("slurmctld", "-D", "-f", str(self.config))
        for i in range(self.num_nodes):
            self._start("slurmd", "-D", "-N", f"n{i + 1}", "-f", str(self.config))

    def _is_idle(self) -> bool:
        found = self.call("sinfo", "-h", "-t", "idle", "-o", "%D", may_fail=True)
        return found.strip() == str(self.num_nodes)

    def _end(self) -> None:
        # slurmctld last: a slurmd says there what became of its jobs.
        while self.daemons:
            daemon = self.daemons.pop()
            daemon.terminate()
            daemon.wait(timeout=PATIENCE_S)

    def __exit__(self, kind, value, trace) -> None:
        self._end()
        self.home.cleanup()

    def call(self, *command: str, may_fail: bool = False) -> str:
        """What a program says that knows this Slurm: both its outputs."""
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE_S)
        if done.returncode != 0 and not may_fail:
            raise RuntimeError(f"{command}: exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def state_of(self, job: int) -> str:
        """RUNNING, COMPLETED, CANCELLED, FAILED ..."""
        return self._shown(job, "JobState")

    def resources_of(self, job: int) -> dict[str, str]:
        """cpu, mem, node ..."""
        return dict(each.split("=", 1) for each in self._shown(job, "TRES").split(","))

    def _shown(self, job: int, name: str) -> str:
        words = self.call("scontrol", "--oneliner", "show", "job", str(job)).split()
        return next(word for word in words if word.startswith(name + "=")).split("=", 1)[1]

    def logs(self) -> str:
        files = [*self.directory.glob("*.log"), *self.directory.glob("job-*")]
        return "\n".join(f"--- {file.name}\n{file.read_text(encoding='utf-8')}" for file in files)

    def wait_for(self, holds, what: str) -> None:
        """Raises ChildProcessError: a daemon has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if holds():
                return
            if any(daemon.poll() is not None for daemon in self.daemons):
                raise ChildProcessError(f"a daemon ended before {what}\n{self.logs()}")
            time.sleep(0.1)
        raise RuntimeError(f"waited in vain until {what}\n{self.logs()}")
