# SPDX-License-Identifier: Apache-2.0
"""Goal: afd-link is the wire that its options say: as slow, as lossy and as thin, between two
namespaces; and it says what is wrong otherwise.

Method: datagrams to an echo in another namespace, and back. Oracle: the clock, and what the echo
answers. Usage: afd_link_test.py AFD_LINK; needs root, ip and nsenter.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "network"))

from wire import FAR, PATIENCE_S, Wire  # noqa: E402

AFD_LINK = "afd-link"
PORT = 7000
ECHO = f"""
import socket
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.bind(("{FAR}", {PORT}))
print("listening", flush=True)
while True:
    door.sendto(*door.recvfrom(65536))
"""


class EchoWire(Wire):
    """With an echo at its far end."""

    num_late = 0  # Answers that were taken for lost.

    @staticmethod
    @contextlib.contextmanager
    def made(*options: str) -> Iterator["EchoWire"]:
        with EchoWire(AFD_LINK, *options) as wire, \
                subprocess.Popen([*wire.far, sys.executable, "-c", ECHO],
                                 stdout=subprocess.PIPE) as echo, \
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire.socket:
            try:
                echo.stdout.readline()
                wire.socket.settimeout(2)
                # Who has the address is asked for once, and the question may be lost.
                if not any(wire.round_trip() is not None for _ in range(20)):
                    raise RuntimeError("no datagram comes back")
                yield wire
            finally:
                echo.kill()

    def round_trip(self, num_bytes: int = 100) -> float | None:
        """Seconds; none: lost."""
        number = os.urandom(8)
        began = time.monotonic()
        self.socket.sendto(number + bytes(num_bytes - 8), (FAR, PORT))
        try:
            while self.socket.recv(65536)[:8] != number:
                self.num_late += 1
        except TimeoutError:
            return None
        return time.monotonic() - began

    def counts(self) -> tuple[int, int, int]:
        """Frames, those lost, those overtaken, as afd-link says. Ends the wire."""
        said = re.fullmatch(r"afd-link: (\d+) frames, (\d+) lost, (\d+) overtaken\n", self.end())
        return tuple(int(each) for each in said.groups())


class AfdLinkTest(unittest.TestCase):
    def test_delay_and_loss(self) -> None:
        with EchoWire.made("--delay-us", "3000", "--loss", "0.1") as wire:
            self.assertEqual(wire.first_line, f"afd-link: {wire.command[1]} and {wire.command[2]} "
                                              "are the ends of one wire, until SIGTERM\n")
            times = [wire.round_trip() for _ in range(60)]
            num_frames, num_lost, num_overtaken = wire.counts()
        answered = [each for each in times if each is not None]
        self.assertTrue(0 < len(answered) < 60, f"{len(answered)} of 60 answered")
        self.assertGreaterEqual(min(answered), 2 * 0.003)
        self.assertGreaterEqual(num_lost + wire.num_late, 60 - len(answered))
        self.assertGreaterEqual(num_frames, 60 + len(answered))
        self.assertEqual(num_overtaken, 0)

    def test_rate(self) -> None:
        with EchoWire.made("--mbit", "1") as wire:
            wire.socket.settimeout(PATIENCE_S)  # Nothing is lost.
            times = [wire.round_trip(1250) for _ in range(5)]
            num_frames, num_lost, _ = wire.counts()
        self.assertEqual(num_lost, 0)
        self.assertGreaterEqual(num_frames, 10)
        # 10,000 bits and some headers, there and back.
        self.assertGreaterEqual(min(times), 2 * 0.010)

    def test_jitter(self) -> None:
        with EchoWire.made("--jitter-us", "20000") as wire:
            wire.socket.settimeout(PATIENCE_S)
            for number in range(100):
                wire.socket.sendto(bytes([number]), (FAR, PORT))
            found = [wire.socket.recv(1)[0] for _ in range(100)]
            _, num_lost, num_overtaken = wire.counts()
        self.assertEqual(num_lost, 0)
        self.assertNotEqual(found, sorted(found))
        self.assertEqual(sorted(found), list(range(100)))
        self.assertGreater(num_overtaken, 0)

    def test_ends_with_a_device(self) -> None:
        """Not only with SIGTERM: without a device it would spin for ever, and say nothing."""
        wire = Wire(AFD_LINK)
        wire.command = ["sh", "-c", 'exec "$0" "$@" 2>&1', *wire.command]
        with wire:
            wire.take_down()
            said = wire.link.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual(wire.link.returncode, 1)
        self.assertIn(f"afd-link: the device {wire.far_device} is gone, and the wire with it", said)

    def test_says_what_is_wrong(self) -> None:
        for arguments, exit_status, said in (
                (["one"], 2, "afd-link: devices needs 2 values; 1 is given (see afd-link --help)"),
                ([], 2, "afd-link: devices is missing (see"),
                (["a", "a_name_of_16_char"], 2, "a device's name has at most 15 characters"),
                (["a", "b", "--loss", "1.5"], 2, "--loss: '1.5' must be a number from 0 to 1"),
                (["a", "b", "--loss", "nan"], 2, "--loss: 'nan' must be a number from 0 to 1"),
                (["a", "b", "--mbit", "inf"], 2, "--mbit: 'inf' must be a number from 0 to 1000000"),
                (["a", "b", "--delay-us", "-1"], 2, "--delay-us"),
                (["lo", "b"], 1, "cannot make the TAP devices lo and b; that takes root")):
            with self.subTest(arguments=arguments):
                done = subprocess.run([AFD_LINK, *arguments], capture_output=True, text=True,
                                      check=False, timeout=PATIENCE_S)
                self.assertEqual(done.returncode, exit_status, done.stderr)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    AFD_LINK = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
