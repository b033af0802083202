"""A link between this network namespace and one of its own: Wire an emulated one (afd-link), Veth
one that is as fast as memory, or as a token bucket lets it be, or as late as its ends hold packets
back (hold.bpf.c)."""
import os
import pathlib
import subprocess
import tempfile

# Of 198.18.0.0/15, which is for tests and routed by nobody (RFC 2544).
NEAR, FAR = "198.19.255.1", "198.19.255.2"
PATIENCE_S = 60
HOLD = pathlib.Path(__file__).with_name("hold.bpf.c")


class Link:
    """Two ends, the far one in a namespace. Needs root, ip and nsenter.

    device: its name, the same at either end, since UCX looks for devices in /sys, which is that of
    this side. far: a command that runs what follows it at the far end.
    """

    def __init__(self) -> None:
        self.device = f"afdw{os.getpid()}"
        self.far_device = f"afdv{os.getpid()}"  # Until it is there.
        self.far = ["nsenter", f"--net=/run/netns/{self.device}"]

    def set_up(self) -> None:
        for command in (
                ["ip", "netns", "add", self.device],
                ["ip", "link", "set", self.far_device, "netns", self.device],
                ["ip", "addr", "add", f"{NEAR}/30", "dev", self.device],
                ["ip", "link", "set", self.device, "up"],
                [*self.far, "ip", "link", "set", self.far_device, "name", self.device],
                [*self.far, "ip", "addr", "add", f"{FAR}/30", "dev", self.device],
                [*self.far, "ip", "link", "set", self.device, "up"],
                [*self.far, "ip", "link", "set", "lo", "up"]):
            subprocess.run(command, check=True)

    def take_down(self) -> None:
        subprocess.run(["ip", "netns", "del", self.device], check=False)


class Veth(Link):
    """Lives until the end of `with`.

    gbit: what either end sends a second at most, in Gbit; 0: no limit.
    hold_us: how long either end keeps its core before a packet leaves, up to 100; 0: not at all.
    Needs Debian's clang-14.
    """

    def __init__(self, gbit: int = 0, hold_us: int = 0) -> None:
        super().__init__()
        self.gbit = gbit
        self.hold_us = hold_us

    def __enter__(self) -> "Veth":
        subprocess.run(["ip", "link", "add", self.device, "type", "veth", "peer", "name",
                        self.far_device], check=True)
        try:
            self.set_up()
            if self.gbit:
                self.limit()
            if self.hold_us:
                self.hold()
        except BaseException:
            self.__exit__()
            raise
        return self

    def limit(self) -> None:
        # The bucket holds what the kernel sends at once, 64 KiB, a few times over.
        bucket = ["tc", "qdisc", "add", "dev", self.device, "root", "tbf", "rate",
                  f"{self.gbit}gbit", "burst", "256kb", "latency", "20ms"]
        for far in ([], self.far):
            subprocess.run([*far, *bucket], check=True)

    def hold(self) -> None:
        with tempfile.NamedTemporaryFile(suffix=".o") as program:
            subprocess.run(["clang-14", "-O2", "-target", "bpf", f"-DHOLD_NS={self.hold_us * 1000}",
                            "-c", HOLD, "-o", program.name], check=True)
            for far in ([], self.far):
                subprocess.run([*far, "tc", "qdisc", "add", "dev", self.device, "clsact"],
                               check=True)
                subprocess.run([*far, "tc", "filter", "add", "dev", self.device, "egress", "bpf",
                                "direct-action", "object-file", program.name, "section", "tc"],
                               check=True)

    def __exit__(self, *unused: object) -> None:
        # The near end goes with the far one.
        subprocess.run(["ip", "link", "del", self.device], check=False)
        self.take_down()


class Wire(Link):
    """Lives until the end of `with`. first_line: what afd-link said when there was a wire."""

    def __init__(self, afd_link: str | pathlib.Path, *options: str) -> None:
        super().__init__()
        self.command = [afd_link, self.device, self.far_device, *options]

    def __enter__(self) -> "Wire":
        """Raises RuntimeError: afd-link could not make it, and said why."""
        self.link = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.first_line = self.link.stdout.readline()
        if not self.first_line:
            self.link.wait()
            self.link.stdout.close()
            raise RuntimeError("there is no link; afd-link says why")
        try:
            self.set_up()
        except BaseException:
            self.end()
            raise
        return self

    def end(self) -> str:
        """Takes it away. Returns what afd-link said in the end; empty: it has ended before."""
        if self.link.stdout.closed:
            return ""
        self.link.terminate()
        try:
            return self.link.communicate(timeout=PATIENCE_S)[0]
        finally:
            self.take_down()

    def __exit__(self, *unused: object) -> None:
        self.end()
