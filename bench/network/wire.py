"""Wire: an emulated link (afd-link) between this network namespace and one of its own."""
import os
import pathlib
import subprocess

# Of 198.18.0.0/15, which is for tests and routed by nobody (RFC 2544).
NEAR, FAR = "198.19.255.1", "198.19.255.2"
PATIENCE_S = 10


class Wire:
    """Lives until the end of `with`. Needs root, ip and nsenter.

    first_line: what afd-link said when there was a wire. device: its name, the same at either end,
    since UCX looks for devices in /sys, which is that of this side.
    """

    def __init__(self, afd_link: str | pathlib.Path, *options: str) -> None:
        self.device = f"afdw{os.getpid()}"
        self.command = [afd_link, self.device, f"afdv{os.getpid()}", *options]
        # Runs what follows it at the far end.
        self.far = ["nsenter", f"--net=/run/netns/{self.device}"]

    def __enter__(self) -> "Wire":
        """Raises RuntimeError: afd-link could not make it, and said why."""
        self.link = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.first_line = self.link.stdout.readline()
        if not self.first_line:
            self.link.wait()
            self.link.stdout.close()
            raise RuntimeError("there is no link; afd-link says why")
        try:
            self.set_up(self.command[2])
        except BaseException:
            self.end()
            raise
        return self

    def set_up(self, far_device: str) -> None:
        for command in (
                ["ip", "netns", "add", self.device],
                ["ip", "link", "set", far_device, "netns", self.device],
                ["ip", "addr", "add", f"{NEAR}/30", "dev", self.device],
                ["ip", "link", "set", self.device, "up"],
                [*self.far, "ip", "link", "set", far_device, "name", self.device],
                [*self.far, "ip", "addr", "add", f"{FAR}/30", "dev", self.device],
                [*self.far, "ip", "link", "set", self.device, "up"],
                [*self.far, "ip", "link", "set", "lo", "up"]):
            subprocess.run(command, check=True)

    def end(self) -> str:
        """Takes it away. Returns what afd-link said in the end; empty: it has ended before."""
        if self.link.stdout.closed:
            return ""
        self.link.terminate()
        last_line = self.link.communicate(timeout=PATIENCE_S)[0]
        subprocess.run(["ip", "netns", "del", self.device], check=False)
        return last_line

    def __exit__(self, *unused: object) -> None:
        self.end()
