"""Print a page as a PDF with a browser of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from visualprof.errors import VisualprofError

_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
_DRAWN_MS = 20_000  # virtual time of the browser, which runs ahead while the page is idle
_AT_MOST_S = 120


def print_page(page: bytes, folder: Path) -> bytes:
    """Return the first page of a report as PDF.

    Args:
        folder: Folder that the browser may read and write. A sandboxed browser does not see the system's temporary
            folder.

    Raises:
        VisualprofError: There is no browser, or printing failed.
        OSError: The folder cannot be written.
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
            command.append("--no-sandbox")  # required as root
        try:
            output = subprocess.run(
                [*command, html.as_uri()], capture_output=True, check=False, timeout=_AT_MOST_S
            ).stderr
        except subprocess.TimeoutExpired:
            output = f"it took over {_AT_MOST_S} s".encode()
        if not pdf.exists():
            last = output.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise VisualprofError(f"{browser} did not print the report: {' '.join(last)}", hint)
        return pdf.read_bytes()
