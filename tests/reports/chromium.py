"""Chromium without a window, driven through its DevTools pipe: what a page is like in a browser and on paper."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Chromium:
    """One tab of a browser; ``run`` gives the value of an expression of JavaScript."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None or shutil.which("bash") is None:
            pytest.skip("install chromium and bash")
        (read, self._to), (self._from, write) = os.pipe(), os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "-", program, *options, f"--user-data-dir={folder}"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._got, self._calls, self._session = b"", 0, {}
        tab = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        opened = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = {"sessionId": opened["sessionId"]}
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """The answer of one method of the DevTools protocol."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._answer(self._calls)["result"]

    def open(self, file: Path, width: int) -> None:
        """Shows a page in a window of so many pixels, in light colours."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        light = {"name": "prefers-color-scheme", "value": "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[light])
        self.call("Page.navigate", url=file.absolute().as_uri())
        self.wait_until("location.protocol === 'file:' && document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Returns when a condition holds in the page."""
        ends = time.monotonic() + 60
        while not self.run(condition):
            assert time.monotonic() < ends, condition
            time.sleep(0.05)

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._to)
        self._process.kill()
        self._process.wait()
        os.close(self._from)

    def _answer(self, call: int) -> Any:
        while True:
            while b"\0" not in self._got:
                assert select.select([self._from], [], [], 60)[0], "chromium does not answer"
                some = os.read(self._from, 1 << 20)
                assert some, "chromium ended"
                self._got += some
            message, _, self._got = self._got.partition(b"\0")
            values = json.loads(message)
            if values.get("id") == call:
                assert "error" not in values, values
                return values
