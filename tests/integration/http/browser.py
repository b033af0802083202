# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium with one page, driven by the DevTools protocol over a pipe; use as `with`."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE_S = 60


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """Whatever the page does beyond its own host is refused, and noted in `requests`."""

    def __init__(self, program: str, width: int = 1060, height: int = 1020) -> None:
        self.arguments = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-first-run",
            "--disable-gpu", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--hide-scrollbars", f"--window-size={width},{height}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"]
        # Its sandbox needs a user that is not root, or namespaces that a chroot may not have.
        if os.geteuid() == 0:
            self.arguments.insert(1, "--no-sandbox")
        self.size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.requests: list[str] = []
        self.problems: list[str] = []  # Errors of the console, and exceptions that nobody caught.
        self.session = ""
        self.num_sent = 0
        self.unread = b""

    def __enter__(self) -> "Browser":
        with contextlib.ExitStack() as stack:
            self.home = stack.enter_context(tempfile.TemporaryDirectory(
                prefix="afd-chromium-", ignore_cleanup_errors=True))  # Its children may go on.
            self.log = stack.enter_context(open(pathlib.Path(self.home) / "log", "wb"))
            its_input, self.to = os.pipe()
            self.back, its_output = os.pipe()
            # The protocol is at the descriptors 3 and 4, whichever the pipes have got here.
            command = f"exec 3<&{its_input} 4>&{its_output}; exec \"$@\""
            self.process = subprocess.Popen(
                ["bash", "-c", command, "bash", *self.arguments,
                 f"--user-data-dir={self.home}/profile"],
                pass_fds=(its_input, its_output), stdout=self.log, stderr=self.log,
                env={**os.environ, "HOME": self.home})
            os.close(its_input)
            os.close(its_output)
            stack.callback(self.stop)
            self.session = self.call("Target.attachToTarget",
                                     {"targetId": self.first_page(), "flatten": True})["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.call("Emulation.setDeviceMetricsOverride", self.size)
            self.kept = stack.pop_all()
        return self

    def __exit__(self, kind, value, trace) -> None:
        self.kept.close()

    def stop(self) -> None:
        os.close(self.to)  # Which ends it.
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)

    def first_page(self) -> str:
        """Chromium may answer before it has opened one."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            targets = self.call("Target.getTargets")["targetInfos"]
            for target in targets:
                if target["type"] == "page":
                    return target["targetId"]
            if time.monotonic() > deadline:
                raise RuntimeError(f"Chromium opens no page: {targets}")
            time.sleep(0.05)

    def call(self, method: str, parameters: dict | None = None) -> dict:
        self.num_sent += 1
        message = {"id": self.num_sent, "method": method, "params": parameters or {}}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.num_sent:
                break
            self.note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def receive(self, deadline: float) -> dict:
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.back, 1 << 20) if ready else b""
            if not data:
                log = pathlib.Path(self.log.name).read_text(errors="replace")
                raise RuntimeError(f"Chromium {'has ended' if ready else 'is silent'}:\n{log}")
            self.unread += data
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def note(self, event: dict) -> None:
        method, what = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(what["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "assert"):
            self.problems.append(json.dumps(what["args"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.problems.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", {"url": url})
        # Until it is there the page before it may answer, which is complete, too.
        self.wait_for(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def evaluate(self, expression: str):
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True,
                                                "awaitPromise": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"never true: {expression}")
            time.sleep(0.05)

    def type_into(self, element_id: str, text: str) -> None:
        """As if typed, instead of what stands there."""
        self.evaluate(f"document.getElementById('{element_id}').select()")
        self.call("Input.insertText", {"text": text})

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": True})["data"])

    def num_pixels(self, png: bytes) -> dict[str, int]:
        """How many pixels have which colour ("r,g,b"), by the browser's own decoder. Leaves the
        page that is open."""
        self.open("about:blank")
        data = base64.b64encode(png).decode()
        return self.evaluate(f"""(async () => {{
            const image = new Image();
            image.src = "data:image/png;base64,{data}";
            await image.decode();
            const canvas = new OffscreenCanvas(image.width, image.height);
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            const bytes = context.getImageData(0, 0, image.width, image.height).data;
            const counts = {{}};
            for (let i = 0; i < bytes.length; i += 4) {{
                const colour = `${{bytes[i]}},${{bytes[i + 1]}},${{bytes[i + 2]}}`;
                counts[colour] = (counts[colour] ?? 0) + 1;
            }}
            return counts;
        }})()""")
