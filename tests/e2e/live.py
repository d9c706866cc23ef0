"""A running dashboard and a browser that may talk to nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING or find_spec("playwright"):
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        Error,
        FrameLocator,
        Locator,
        Page,
        Playwright,
        expect,
        sync_playwright,
    )
else:  # the tests of this folder are skipped then (conftest.py)
    Browser = BrowserContext = Error = FrameLocator = Locator = Page = Playwright = expect = sync_playwright = None

__all__ = [
    "Browser",
    "Dashboard",
    "Error",
    "FrameLocator",
    "Locator",
    "Page",
    "Playwright",
    "Tab",
    "Visits",
    "chromium",
    "expect",
    "launch",
    "sync_playwright",
    "why_not",
]

ROOT = Path(__file__).parents[2]
DIST = ROOT / "visualprof" / "frontend" / "dist"
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# A machine may be busy with other work; no test waits this long on an idle one.
PATIENCE_S = 60
TOKEN = "vp_s_of-these-tests"
if expect:
    expect.set_options(timeout=PATIENCE_S * 1000)


def chromium() -> str | None:
    """The browser of this machine; none is ever downloaded."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next(filter(None, map(shutil.which, _NAMES)), None)


def why_not() -> str:
    """Why the browser tests cannot run here; "" when they can."""
    if sync_playwright is None:
        return "playwright is not installed: pip install '.[dev]'"
    if not chromium():
        return f"no Chromium: none of {', '.join(_NAMES)} is on PATH, and CHROMIUM names none"
    if not (DIST / "index.html").is_file():
        return "the page is not built: make page"
    return ""


def launch(playwright: Playwright) -> Browser:
    """A headless Chromium that can resolve no name but this machine's."""
    flags = [
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        "--disable-dev-shm-usage",
        "--disable-gpu",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")
    return playwright.chromium.launch(executable_path=chromium(), args=flags)


class Dashboard:
    """`python -m visualprof` over a folder, in a process of its own.

    Args:
        folder: the log directory.
        cache: where it keeps parsed traces.
        options: further ones of the command line.
        root: where the package is.
    """

    def __init__(self, folder: Path, cache: Path, *options: str, root: Path = ROOT) -> None:
        self.folder = folder
        self._root = root
        self._cache = cache
        self._options = options
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        """Starts it, again on the port that it had."""
        environment = {**os.environ, "PYTHONPATH": str(self._root), "VISUALPROF_CACHE_DIR": str(self._cache)}
        environment["VISUALPROF_TOKEN"] = TOKEN  # the same when it starts again
        command = [
            sys.executable,
            "-m",
            "visualprof",
            "--logdir",
            str(self.folder),
            "--port",
            str(self._port),
            *self._options,
        ]
        self._process = subprocess.Popen(command, env=environment, cwd=self._root, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        line = self._process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        if not match:
            self.stop()
            raise AssertionError(f"the server did not start: {line!r}")
        self._port = int(match[1])

    def stop(self) -> None:
        """Ends it and its parsing processes."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def get(self, path: str, **params: object) -> Any:
        """An answer of the API."""
        with _DIRECT.open(f"{self.url}api/v1/{path}?{urlencode(params)}", timeout=PATIENCE_S) as response:
            body = response.read()
        return json.loads(body) if "json" in response.headers["Content-Type"] else body

    def spans(self) -> dict[str, dict[str, Any]]:
        """Every span by its file."""
        runs = self.get("runs")["runs"]
        return {span["file"]: span for run in runs for worker in run["workers"] for span in worker["spans"]}

    def wait(self, until: Callable[[dict[str, dict[str, Any]]], bool], patience_s: float = PATIENCE_S) -> None:
        """Until the spans are as wanted."""
        end = time.monotonic() + patience_s
        while not until(spans := self.spans()):
            assert time.monotonic() < end, {file: span["state"] for file, span in spans.items()}
            time.sleep(0.05)

    def wait_until_ready(self, patience_s: float = PATIENCE_S) -> None:
        """Until every file is parsed, and every model read."""
        self.wait(lambda spans: bool(spans) and all(span["state"] == "ready" for span in spans.values()), patience_s)
        self.read_models()

    def read_models(self) -> None:
        """Until every model is read."""
        end = time.monotonic() + PATIENCE_S
        for model in self.get("models")["models"]:
            while self.status("graph", model=model["id"]) == 503:
                assert time.monotonic() < end, model

    def status(self, path: str, **params: object) -> int:
        """The status of an answer of the API."""
        try:
            self.get(path, **params)
        except urllib.error.HTTPError as error:
            return error.code
        return 200


# Sets what a user would have chosen, until the page stores something itself.
_INIT_SCRIPT = """
try { if (!localStorage.getItem("visualprof.theme")) Object.assign(localStorage, %s) }
catch { /* in a frame of another site */ }
"""


class Tab:
    """A tab of its own context, which tests use one after the other.

    A tab that stays open keeps its process and its compiled scripts, which is half of the cost of a visit.

    Attributes:
        report: Takes the errors of the page; `None` between tests.
        allowed: Prefixes of the addresses that the page may request.
        init_script: Runs before the scripts of each document; "" for none.
    """

    def __init__(self, browser: Browser, init_script: str = "") -> None:
        self.report: Callable[[str], None] | None = None
        self.allowed: tuple[str, ...] = ()
        self.init_script = init_script
        self.context = browser.new_context(color_scheme="light", locale="en-US", reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.context.on("request", lambda request: self._on_request(request.url))
        if init_script:
            self.context.add_init_script(init_script)
        self.page = self.context.new_page()
        self.page.on("console", lambda line: self._note(line.text) if line.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._note(f"uncaught: {error}"))
        self.page.on("dialog", lambda dialog: self._note(f"dialog: {dialog.message}") or dialog.dismiss())
        self._handlers = self._count_handlers()

    def reset(self, url: str, stored: dict[str, str]) -> None:
        """Forget everything of earlier tests; `stored` is in the local storage of the origin of `url`."""
        self.context.clear_cookies()
        self.context.clear_permissions()
        self.page.mouse.move(-1, -1)
        self.page.goto(f"{url}api/v1/status")  # of the same origin, without a script
        self.page.evaluate(
            "stored => { localStorage.clear(); sessionStorage.clear(); Object.assign(localStorage, stored) }", stored
        )

    def can_be_reused(self) -> bool:
        """Leave the page; whether a test has changed nothing that lasts, such as routes, listeners and further tabs."""
        if self.page.is_closed() or self.context.pages != [self.page] or self._count_handlers() != self._handlers:
            return False
        try:
            self.page.goto("about:blank")
        except Error:  # the browser is still on its way to the page of an error
            return False
        return True

    def _count_handlers(self) -> dict[str, int]:
        page, context = self.page._impl_obj, self.context._impl_obj
        counts = {str(event): len(page.listeners(event)) for event in page.event_names()}
        return {event: count for event, count in counts.items() if count} | {
            "routes": len(page._routes) + len(context._routes)
        }

    def _on_request(self, url: str) -> None:
        if not url.startswith(self.allowed):
            self._note(f"asked for {url}")

    def _note(self, text: str) -> None:
        if self.report:
            self.report(text)


class Visits:
    """Pages over dashboards. Whatever a page does that it must not do is kept until `check`.

    Args:
        browser: The browser.
        tabs: Tabs of earlier tests that may be used again; those of this test are added at the end.
    """

    def __init__(self, browser: Browser, tabs: list[Tab] | None = None) -> None:
        self._browser = browser
        self._free_tabs: list[Tab] = [] if tabs is None else tabs
        self._tabs: list[Tab] = []
        self._wrong: list[str] = []
        self._tolerated = ["status of 503"]  # a file is still being read: the page asks again

    def __call__(
        self,
        dashboard: Dashboard,
        page: str = "",
        *,
        at: str = "",
        language: str = "en",
        theme: str = "light",
        size: tuple[int, int] = (1280, 860),
        token: str = TOKEN,
        fresh: bool = False,
        **query: str,
    ) -> Page:
        """Open an address of the page's own (`operator`, run="a/b"), or `at`, in a context that no other visit uses.

        With `at` or `fresh`, no earlier test has used the context either.
        """
        stored = {"visualprof.language": language, "visualprof.token:/": token, "visualprof.theme": theme}
        if at or fresh:
            tab = Tab(self._browser, _INIT_SCRIPT % json.dumps(stored))
        else:
            tab = self._free_tabs.pop() if self._free_tabs else Tab(self._browser)
            tab.reset(dashboard.url, stored)
        self._tabs.append(tab)
        tab.page.set_viewport_size({"width": size[0], "height": size[1]})
        tab.allowed, tab.report = (dashboard.url, "data:", "blob:"), self._wrong.append
        tab.page.goto(at or f"{dashboard.url}#/{page}" + (f"?{urlencode(query, quote_via=quote)}" if query else ""))
        return tab.page

    def tolerate(self, pattern: str) -> None:
        """Console messages that the test causes."""
        self._tolerated.append(pattern)

    def check(self) -> None:
        """Leaves every page. Raises: AssertionError: a page asked another host, or had an error."""
        for tab in self._tabs:
            tab.report = None
            if not tab.init_script and tab.can_be_reused():
                self._free_tabs.append(tab)
            else:
                tab.context.close()
        wrong = [text for text in self._wrong if not any(re.search(pattern, text) for pattern in self._tolerated)]
        assert not wrong, wrong
