"""Pages of known studies, and a browser that looks at them."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recombine.page.report import write_page
from recombine.study.collect import Study
from recombine.study.verdict import Part, Verdict
from tests.study.studies import HOSTILE

VERDICTS = (
    Verdict(
        2,
        "the transformer's R² drops",
        "A",
        "relative R²",
        (Part("the drop", ">=", 0.1, (0.2, 0.22, 0.24), 0.22, 0.17, 0.27, 0.25, True, "holds"),),
        "holds",
        (),
        "3 seeds, 5,000 steps",
    ),
    Verdict(
        6,
        f"a claim {HOSTILE}",
        "D",
        "relative R²",
        (Part("no runs", "<=", 0.5, (), None, None, None, None, None, "not enough data"),),
        "not enough data",
        (),
        "0 seeds",
    ),
)


def page(study: Study, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(study, VERDICTS, path)
    return path.read_text(encoding="utf-8")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LEFT = ("navigated", "context was destroyed", "Cannot find context", "Promise was collected")
AXE = find_spec("axe_core_python") is not None
PATIENCE = 30.0  # seconds for one answer: starting is slow on a busy machine
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
]


class PageLeft(RuntimeError):
    """The page was left before it answered."""


class Browser:
    """`with Browser() as browser: browser.open(path); browser.evaluate('1 + 1')`

    `problems` has the errors and warnings of the console, `requests` every address that was requested.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.session: str | None = None
        self.target: str | None = None
        self.number = 0
        self.buffer = b""

    def __enter__(self) -> Self:
        assert CHROMIUM is not None
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        # Chromium reads from 3 and writes to 4: neither may be one of the ends that are copied there.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            (os.POSIX_SPAWN_DUP2, high[1], 4),
        ]
        command = [CHROMIUM, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = os.posix_spawn(CHROMIUM, command, os.environ, file_actions=actions, setsid=True)
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.to)
        os.close(self.back)
        os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(
        self,
        page: Path | str,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        ready: str = "yes",
        patience: float = PATIENCE,
    ) -> None:
        """Open a page (a file or an address) in a new tab of the given size, and wait until it is ready."""
        former, self.target = self.target, self.call("Target.createTarget", url="about:blank")["targetId"]
        if former:
            self.call("Target.closeTarget", targetId=former)
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.resize(width, height)
        self.problems, self.requests = [], []
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.wait_for(f"document.documentElement?.dataset.ready === '{ready}'", patience)

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "exception"))
        return answer["result"].get("value")

    def wait_for(self, condition: str, patience: float = PATIENCE) -> None:
        """Wait until the condition is true; it is checked after every frame."""
        deadline = time.monotonic() + patience
        frame = "new Promise((done) => setTimeout(done, 20))"
        while True:
            with suppress(PageLeft):  # for another page, of which the next question is
                if self.evaluate(f"{frame}.then(() => ({condition}))"):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} is still false; the console says {self.problems}")

    def press(self, key: str, times: int = 1) -> None:
        """Press a key; it goes to the focused element."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowLeft": 37}.get(key, ord(key[0].upper()))
        more = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def drag(self, points: Sequence[tuple[float, float]], pause: float = 0.016) -> None:
        """Press the mouse at the first point, move it through the others at the pace of a hand, and let go."""
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        (x, y), *rest = points
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **button)
        for x, y in rest:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, **button)
            time.sleep(pause)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **button)

    def screenshot(self, path: Path, top: int = 0, height: int | None = None) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(image))

    def serious(self) -> list[str]:
        """What axe finds wrong with the page's accessibility, and calls serious or worse. Plots are left out: they are
        pictures with a description."""
        script = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
        self.evaluate(f"{script}; window.axed = null; 0")
        self.evaluate("{ axe.run({exclude: [['svg']]}).then((found) => { window.axed = found.violations; }); 0 }")
        self.wait_for("window.axed !== null", 4 * PATIENCE)
        grave = "axed.filter((one) => ['serious', 'critical'].includes(one.impact))"
        return self.evaluate(f"{grave}.map((one) => `${{one.id}}: ${{one.nodes[0].html.slice(0, 200)}}`)")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session and not method.startswith("Target."):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    left = any(words in str(answer["error"]) for words in LEFT)
                    raise (PageLeft if left else RuntimeError)(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.back, 1 << 16) if ready else b""
            if not chunk:
                raise TimeoutError("chromium does not answer")
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning", "assert"):
                self.problems.append(" ".join(str(one.get("value", one.get("description"))) for one in given["args"]))
            case "Runtime.exceptionThrown":
                self.problems.append(str(given["exceptionDetails"]))
            case "Log.entryAdded":
                self.problems.append(given["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
