"""Firefox, driven by Marionette: JSON over a local socket, so that no driver has to be installed."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
PATIENCE = 120.0  # seconds for one answer, on a busy machine
PREFERENCES = {
    "marionette.port": 0,  # any free one; it is written to the profile
    "app.update.disabledForTesting": True,
    "browser.startup.page": 0,
    "browser.shell.checkDefaultBrowser": False,
    "browser.newtabpage.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.enabled": False,
}
CONSOLE = """return Services.console.getMessageArray()
    .filter((one) => one instanceof Ci.nsIScriptError && !(one.flags & Ci.nsIScriptError.warningFlag))
    .map((one) => one.toString())
    .filter((text) => arguments[0].some((page) => text.includes(page)))"""


class Firefox:
    """`with Firefox() as firefox: firefox.open(address); firefox.evaluate('1 + 1')`"""

    def __enter__(self) -> Self:
        assert FIREFOX is not None
        self.profile = Path(tempfile.mkdtemp(prefix="firefox-"))
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (self.profile / "user.js").write_text("\n".join(lines))
        command = [FIREFOX, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote"]
        self.process = subprocess.Popen(
            [*command, "--profile", str(self.profile)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(self.profile)},
            start_new_session=True,
        )
        self.number, self.buffer = 0, b""
        self.socket = socket.create_connection(("127.0.0.1", self._port()), PATIENCE)
        self._receive()  # it says hello
        self.call("WebDriver:NewSession", capabilities={})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, address: str, width: int = 1280, height: int = 720, ready: str = "yes") -> None:
        """Open a page in a window whose inside has this size, and wait until it is ready."""
        for _ in range(2):  # the window's frame is known once it has a size
            outer = self.evaluate("[outerWidth - innerWidth, outerHeight - innerHeight]")
            self.call("WebDriver:SetWindowRect", width=width + outer[0], height=height + outer[1])
        self.call("WebDriver:Navigate", url="about:blank")
        self.call("WebDriver:Navigate", url=address)
        self.wait_for(f"document.documentElement.dataset.ready === '{ready}'")

    def evaluate(self, expression: str) -> Any:
        return self.call("WebDriver:ExecuteScript", script=f"return {expression}", args=[])["value"]

    def wait_for(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} is still false")
            time.sleep(0.05)

    def problems(self, *pages: str) -> list[str]:
        """The errors in the console that name one of these pages."""
        self.call("Marionette:SetContext", value="chrome")
        found = self.call("WebDriver:ExecuteScript", script=CONSOLE, args=[list(pages)])["value"]
        self.call("Marionette:SetContext", value="content")
        return found

    def press(self, key: str) -> None:
        """Press a key, as WebDriver writes it: a character, or one of its codes for other keys."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.call("WebDriver:PerformActions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def screenshot(self, path: Path) -> None:
        image = self.call("WebDriver:TakeScreenshot", full=True)["value"]
        path.write_bytes(base64.b64decode(image))

    def call(self, command: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        data = json.dumps([0, self.number, command, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(data), data))
        _, number, error, result = self._receive()
        assert number == self.number
        if error is not None:
            raise RuntimeError(f"{command}: {error['message']}")
        return result

    def _port(self) -> int:
        deadline, file = time.monotonic() + PATIENCE, self.profile / "MarionetteActivePort"
        while not (file.exists() and file.read_text().isdecimal()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError("firefox does not start")
            time.sleep(0.05)
        return int(file.read_text())

    def _receive(self) -> Any:
        """A message: its length in bytes, a colon, and JSON."""
        while b":" not in self.buffer:
            self._read()
        size, _, self.buffer = self.buffer.partition(b":")
        while len(self.buffer) < int(size):
            self._read()
        message, self.buffer = self.buffer[: int(size)], self.buffer[int(size) :]
        return json.loads(message)

    def _read(self) -> None:
        chunk = self.socket.recv(1 << 16)
        if not chunk:
            raise TimeoutError("firefox has ended")
        self.buffer += chunk
