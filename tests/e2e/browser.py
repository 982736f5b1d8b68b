"""A headless Chromium, spoken to over its DevTools pipe; no library is needed for that."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
import unittest

from processes import DEADLINE_S, wait_for


def chromium():
    """Its path, or a skipped test."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    raise unittest.SkipTest("no Chromium is installed (Debian package chromium)")


class Browser:
    """One page. What goes wrong in it (exceptions, refused resources) is kept in `complaints`."""

    def __init__(self):
        path = chromium()
        self.profile = tempfile.TemporaryDirectory(prefix="baton-browser-")
        take, self.write_fd = os.pipe()
        self.read_fd, give = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"', "bash", str(take), str(give),
             path, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(take, give), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.profile.name})
        os.close(take)
        os.close(give)
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _message(self, end):
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                raise AssertionError(f"the browser said nothing for {DEADLINE_S} s")
            data = os.read(self.read_fd, 1 << 16)
            if not data:
                raise AssertionError("the browser is gone")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, message):
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description")
                                   or details["text"])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])

    def call(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + DEADLINE_S
        while True:
            message = self._message(end)
            if message.get("id") == self.number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._note(message)

    def look(self, width, height, scheme="light"):
        """The size of the window in CSS pixels, and which colours are preferred."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def go(self, url):
        self.call("Page.navigate", url=url)

    def value(self, expression):
        """Of a JavaScript expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']['text']}")
        return result["result"].get("value")

    def wait_for(self, expression, what):
        return wait_for(lambda: self.value(expression), what)

    def text(self, selector):
        return self.value(f"(document.querySelector({json.dumps(selector)}) || {{}}).innerText")

    def screenshot(self, path):
        height = self.value("document.documentElement.scrollHeight")
        width = self.value("window.innerWidth")
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                            clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        os.close(self.write_fd)
        os.close(self.read_fd)
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()
