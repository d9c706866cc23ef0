"""A page as a PDF, printed by a browser of the machine: none of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from visualprof.errors import VisualprofError

_BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)  # fmt: skip
_DRAWN_MS = 20_000  # of the page's own clock, which runs ahead while nothing is left to do
_AT_MOST_S = 120


def printed(page: bytes, folder: Path) -> bytes:
    """The first page of a report as PDF.

    folder: where a browser may read and write; one in a sandbox of the system does not see the system's temporary one.

    Raises: VisualprofError: there is no browser, or it does not print. OSError: the folder cannot be written.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    hint = "or write HTML, open it in a browser and print it there"
    if browser is None:
        raise VisualprofError("no browser that could print is on this machine", f"install Chromium or Chrome, {hint}")
    with tempfile.TemporaryDirectory(prefix="visualprof-", dir=folder, ignore_cleanup_errors=True) as name:
        html, pdf = Path(name, "report.html"), Path(name, "report.pdf")
        html.write_bytes(page)
        command = [browser, "--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={Path(name, 'profile')}"]
        command += ["--no-pdf-header-footer", f"--virtual-time-budget={_DRAWN_MS}", f"--print-to-pdf={pdf}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # as root it starts in no other way
        try:
            said = subprocess.run(
                [*command, html.as_uri()], capture_output=True, check=False, timeout=_AT_MOST_S
            ).stderr
        except subprocess.TimeoutExpired:
            said = f"it took over {_AT_MOST_S} s".encode()
        if not pdf.exists():
            last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise VisualprofError(f"{browser} did not print the report: {' '.join(last)}", hint)
        return pdf.read_bytes()
