"""Headless Chromium for tests, by the DevTools protocol over two pipes. No package is needed,
and no port is opened.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tables import record, split_words
from tests.timeouts import HANG_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1200, 900)
LANDMARKS = split_words("banner main heading tablist tab tabpanel figure feed article status")
CONTROLS = split_words("slider searchbox combobox checkbox radio button link meter image")
ROLES = frozenset((*LANDMARKS, *CONTROLS, "table", "columnheader", "rowheader"))
"""Roles in an outline: those that a reader of the page moves between."""

LAUNCHER = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(commands, 3), os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from descriptor 3 and writes answers to descriptor 4."""

POLL_S = 0.02
"""Pause between two looks at a page that is waited for."""

Json = dict[str, Any]


def find_chromium() -> str | None:
    """Return the path of the browser, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class ScriptError(Exception):
    """A script of the page or of the test has thrown."""


class RefusedError(Exception):
    """The browser has answered a command with an error."""


class BrowserError(Exception):
    """The browser has ended, or does not answer."""


class Page:
    """One tab of the browser. `requests` and `problems` collect what it loads and what goes
    wrong in it.
    """

    def __init__(self, browser: "Chromium", target: str, session: str) -> None:
        self.browser = browser
        self.target = target
        self.session = session
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.dialogs: list[str] = []

    def call(self, method: str, **params: object) -> Json:
        return self.browser.call(method, self.session, **params)

    def open(self, url: str, wait_for: str = "document.documentElement.dataset.ready") -> None:
        """Load a page and wait until the expression is true."""
        self.call("Page.navigate", url=url)
        self.wait_until(wait_for)

    def close(self) -> None:
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)

    def run(self, script: str) -> Any:
        """Evaluate an expression, waiting for a promise, and return its value."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if details := answer.get("exceptionDetails"):
            raise ScriptError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait_until(self, expression: str) -> None:
        """Wait until an expression of the page is true; a problem of the page ends the wait.

        An expression may throw while one page replaces another, whose document is not there yet.
        """
        until, found = time.monotonic() + HANG_S, ""
        while not self.problems:
            try:
                if self.run(f"Boolean({expression})"):
                    return
            except (ScriptError, RefusedError) as error:
                found = str(error)
            if time.monotonic() > until:
                raise ScriptError(f"not true after {HANG_S} s: {expression} {found}")
            time.sleep(POLL_S)
        raise ScriptError("\n".join(self.problems))

    def emulate(self, feature: str, value: str) -> None:
        """Set what a media query of the page sees."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": feature, "value": value}])

    def press(self, key: str, text: str = "") -> None:
        """Press a key where the focus is."""
        codes = record(
            Enter=13, Escape=27, Tab=9, ArrowLeft=37, ArrowUp=38, ArrowRight=39, ArrowDown=40
        )
        codes |= {"Home": 36, "End": 35, "PageUp": 33, "PageDown": 34}
        typed = text or (key if len(key) == 1 else "\r" if key == "Enter" else "")
        code = codes.get(key, ord(key.upper()[0]))
        event: Json = {"key": key, "windowsVirtualKeyCode": code}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **event, **({"text": typed} if typed else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def outline(self) -> list[str]:
        """Return one `role: name` for each node of the accessibility tree with one of `ROLES`,
        in order.
        """
        nodes = {node["nodeId"]: node for node in self.call("Accessibility.getFullAXTree")["nodes"]}
        lines: list[str] = []
        left = [next(iter(nodes))]
        while left:
            node = nodes[left.pop()]
            left += [child for child in reversed(node.get("childIds", [])) if child in nodes]
            role = node.get("role", {}).get("value", "")
            if not node.get("ignored") and role in ROLES:
                lines.append(f"{role}: {node.get('name', {}).get('value', '')}".strip())
        return lines

    def save_picture(self, path: Path, clip: Json | None = None) -> None:
        params: Json = {"clip": {**clip, "scale": 1}} if clip else {}
        data = self.call("Page.captureScreenshot", format="png", **params)["data"]
        path.write_bytes(base64.b64decode(data))

    def note(self, method: str, params: Json) -> None:
        """Keep an event of the browser."""
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(
                    details.get("exception", {}).get("description", details["text"])
                )
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])


class Chromium:
    """A browser process and its two pipes: messages are JSON, each ended by a zero byte."""

    def __init__(self, process: "subprocess.Popen[bytes]", commands: int, answers: int) -> None:
        self.process = process
        self.commands = commands
        self.answers = os.fdopen(answers, "rb", buffering=0)
        self.buffer = b""
        self.last = 0
        self.pages: dict[str, Page] = {}

    def new_page(self, *, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, target, session)
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=SIZE[0],
            height=SIZE[1],
            deviceScaleFactor=1,
            mobile=False,
        )
        page.call("Page.bringToFront")  # a tab behind another one draws nothing
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        page.emulate("prefers-color-scheme", "dark" if dark else "light")
        return page

    def call(self, method: str, session: str = "", **params: object) -> Json:
        self.last += 1
        message: Json = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + HANG_S
        while True:
            answer = self.receive(until)
            if answer is None:
                raise BrowserError(f"Chromium has not answered {method} in {HANG_S} s: {params}")
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RefusedError(f"{method}: {answer['error']['message']}")
                result: Json = answer["result"]
                return result
            page = self.pages.get(answer.get("sessionId", ""))
            if page and "method" in answer:
                page.note(answer["method"], answer["params"])

    def receive(self, until: float) -> Json | None:
        """Return the next message; None if none came until then."""
        while b"\0" not in self.buffer:
            left_s = max(0.0, until - time.monotonic())
            if not select.select([self.answers], [], [], left_s)[0]:
                return None
            more = self.answers.read(1 << 20)
            if not more:
                raise BrowserError("Chromium has ended")
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer: Json = json.loads(message)
        return answer


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Run the browser with a profile of its own in `folder`."""
    path = find_chromium()
    assert path is not None
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()
    arguments = (
        *split_words("""
            --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run
        """),
        *split_words("""
            --disable-background-networking --disable-component-update --remote-debugging-pipe
        """),
        *(f"--user-data-dir={folder}", "about:blank"),
    )
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(command_out), str(answer_in), path, *arguments],
        pass_fds=(command_out, answer_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(command_out)
    os.close(answer_in)
    browser = Chromium(process, command_in, answer_out)
    try:
        yield browser
    finally:
        try:
            browser.call("Browser.close")
            process.wait(HANG_S)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        os.close(command_in)
        browser.answers.close()
