"""RunningAfdd: an afdd of its own with an HTTP port, for a measurement. Its sockets, log and cache are
in a directory that ends with it."""
import os
import pathlib
import re
import subprocess
import tempfile
import time

PATIENCE_S = 300


class RunningAfdd:
    def __init__(self, bin_dir: pathlib.Path, flags: list[str]) -> None:
        """Returns once it serves. Raises RuntimeError with its log if it does not."""
        self.directory = tempfile.TemporaryDirectory(prefix="afd-bench-")
        runtime = self.directory.name
        instance = f"bench_{os.getpid()}"
        self.socket_path = str(pathlib.Path(runtime) / "afd" / f"{instance}.sock")
        self.log = open(pathlib.Path(runtime) / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [bin_dir / "afdd", *flags, "--instance", instance, "--http", "127.0.0.1:0"],
            env={**os.environ, "XDG_RUNTIME_DIR": runtime, "XDG_CACHE_HOME": runtime},
            stderr=self.log)
        deadline = time.monotonic() + PATIENCE_S
        found = None
        while found is None and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            text = pathlib.Path(self.log.name).read_text(encoding="utf-8")
            found = re.search(r"ready in .* http://127\.0\.0\.1:(\d+)", text)
        if found is None:
            raise RuntimeError(pathlib.Path(self.log.name).read_text(encoding="utf-8"))
        self.port = int(found.group(1))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
