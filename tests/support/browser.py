"""A real Chromium without a window, driven through a pipe by its DevTools protocol.

    with Browser(folder) as browser:
        page = browser.open(file, width=390, is_dark=True)
        page.value("document.title")

Messages are JSON that ends with a NUL byte: commands go in at descriptor 3, answers and
events come out of descriptor 4. A phone's width is emulated, for a window cannot be as
narrow.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = (*("chromium", "chromium-browser"), "google-chrome")
"""Names that distributions give it."""
FIRST_FREE = 10
"""Descriptors from here on are nobody's."""
ON_3_AND_4 = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe"),
)
LOADED = "Page.loadEventFired"
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


def chromium() -> str | None:
    """Path of Chromium, None if it is not there."""
    return next((found for name in HERE if (found := shutil.which(name))), None)


def require_chromium() -> None:
    """Install Chromium where tests install what they lack, else skip for want of it."""
    if chromium() is None and os.environ.get("CI") and find_spec("tests.lab"):
        # Imported here, for tests of an installed wheel have no lab beside them.
        from tests.lab import packages  # noqa: PLC0415

        packages.install(["chromium"])
    if chromium() is None:
        pytest.skip("no browser: run `sudo apt-get install chromium`")


class Browser:
    """One Chromium; every page is a tab of its own."""

    def __init__(self, folder: Path) -> None:
        """Prepare to start it.

        Args:
            folder: for its profile.
        """
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self._next_id = 0
        self._rest = b""

    def __enter__(self) -> Browser:
        """Start it."""
        path = chromium()
        assert path is not None
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        theirs = [
            fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FREE) for fd in (commands, answers)
        ]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", ON_3_AND_4, *map(str, theirs), path, *FLAGS),
                f"--user-data-dir={self.folder}",
                "about:blank",
            ],
            pass_fds=theirs,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(self.folder)},
        )
        for fd in (commands, answers, *theirs):
            os.close(fd)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.send("Browser.close")
        os.close(self._write)
        os.close(self._read)
        self._process.wait(timeout=120)

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; events meanwhile are kept."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._receive()
            if heard.get("id") == self._next_id:
                assert "error" not in heard, heard
                result: dict[str, Any] = heard["result"]
                return result
            self.events.append(heard)

    def wait_for(self, method: str) -> None:
        """Wait for an event."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._read, 1 << 16)
            assert more, "Chromium has ended"
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        heard: dict[str, Any] = json.loads(message)
        return heard

    def open(self, file: Path, *, width: int, is_dark: bool = False) -> Page:
        """Load a file at a width, in light or dark colours."""
        self.events.clear()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        session: str = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable", session)
        self.send(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {
            "name": "prefers-color-scheme",
            "value": "dark" if is_dark else "light",
        }
        self.send("Emulation.setEmulatedMedia", session, features=[scheme])
        self.events.clear()
        self.send("Page.navigate", session, url=file.as_uri())
        self.wait_for(LOADED)
        return Page(self, session, file.as_uri())


class Page:
    """One page that was loaded."""

    def __init__(self, browser: Browser, session: str, url: str) -> None:
        """Keep how to reach it."""
        self._browser = browser
        self._session = session
        self._url = url

    def value(self, expression: str) -> Any:
        """Value of an expression of JavaScript."""
        found = self._browser.send(
            "Runtime.evaluate",
            self._session,
            expression=expression,
            returnByValue=True,
        )
        return found["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses asked for besides the page, data in the page left out."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("method") == "Network.requestWillBeSent"
            and event["params"]["request"]["url"] != self._url
            and not event["params"]["request"]["url"].startswith("data:")
        ]

    def complaints(self) -> list[dict[str, Any]]:
        """Lines that a console would show."""
        return [e for e in self._browser.events if e.get("method") in COMPLAINTS]

    def picture(self, section: str = "") -> bytes:
        """Whole page as a PNG, or its section whose heading has an id."""
        clip = {"clip": self._clip(section)} if section else {}
        shot = self._browser.send(
            "Page.captureScreenshot", self._session, captureBeyondViewport=True, **clip
        )
        return base64.b64decode(shot["data"])

    def _clip(self, section: str) -> dict[str, float]:
        """Place of a section on the page, with the margins of that."""
        box = f"document.getElementById('{section}').closest('section')"
        top, height, width = self.value(
            f"(r => [r.top + scrollY, r.height, document.body.clientWidth])"
            f"({box}.getBoundingClientRect())"
        )
        margins = {"x": 0.0, "y": top + 8.0, "height": height + 8.0}
        return margins | {"width": width, "scale": 1.0}
