"""The dashboard in a notebook: `%load_ext visualprof`, `%%profile`, `%%visualprof sql`, `visualprof.show("runs")`."""

from __future__ import annotations

import argparse
import atexit
import html
import importlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.errors import BadParameter, VisualprofError

PROXY_VARIABLE = "VISUALPROF_PROXY_URL"  # for example https://hub.example.org/user/ann/proxy/%PORT%/
_NOTEBOOK_ORIGINS = ("http://localhost:*", "http://127.0.0.1:*", "vscode-webview:")
_COLAB_ORIGINS = ("https://colab.research.google.com", "https://*.googleusercontent.com")
_servers: dict[Path, _Server] = {}


class DashboardNotStarted(VisualprofError):
    """The server did not start."""


def show(path: str | os.PathLike[str] = "runs", height: int = 800, *, static: bool = False, page: str = "") -> None:
    """Show a folder of runs, or one page of a file, in the cell's output, and print the link.

    The server runs in its own process, is reused for the same folder, and stops with this process. Behind a proxy the
    variable VISUALPROF_PROXY_URL gives the address at which the browser reaches a port: `https://hub/proxy/%PORT%/`. If
    no server can run, a report is shown instead.

    Args:
        path: The folder, which may still be empty, or a profile or model.
        height: Height of the frame in pixels.
        static: Show a report of the file, or of the folder's newest run, which stays in the saved notebook.
        page: Page to show, such as kernel or trace (default: overview).

    Raises:
        DashboardNotStarted: The file does not exist, or neither a server nor a report can be created.
        BadParameter: There is no such page, or a report was asked for one page.
    """
    from visualprof.cli._paths import page_of  # imported here, because a notebook may only load the magic

    if page:
        _check_page(page, static)
    file = Path(path).absolute()
    if static:
        _show_report(file, height)
        return
    folder, fragment = (file.parent, page_of(file)) if file.is_file() else (file, "")
    if page:
        fragment = f"#/{page}?{fragment.partition('?')[2]}".rstrip("?")
    _show(folder, fragment, file, height)


def _check_page(page: str, static: bool) -> None:
    from visualprof.views import all_views

    names = [view.name for view in all_views()]
    if page not in names:
        raise BadParameter(f"there is no page {page!r}", f"pages: {', '.join(names)}")
    if static:
        raise BadParameter("a report opens at its first page", "leave out static or page")


def register(ipython: Any) -> None:
    """Register the magics `%%profile` and `%%visualprof` in a notebook."""
    ipython.register_magic_function(_profile, "cell", "profile")
    ipython.register_magic_function(_visualprof, "cell", "visualprof")


def _show_report(path: Path, height: int) -> None:
    """Show a frame with a report. Its names are untrusted, so the frame is isolated from the notebook's page."""
    from visualprof.cli.report import page_of

    try:
        page = page_of(path, newest=True).decode()
    except VisualprofError as error:
        raise DashboardNotStarted(error.error, error.hint) from error
    allowed = 'sandbox="allow-scripts allow-downloads"'
    frame = f'<iframe {allowed} width="100%" height="{height}" style="border: 0" srcdoc="{html.escape(page)}"></iframe>'
    if display := _cell_display():
        display.display(display.HTML(f"<div>{frame}</div>"))


def _show(folder: Path, page: str, file: Path, height: int = 800) -> None:
    """Show the dashboard of a folder; if no server can run, a report of the file or folder."""
    server = _servers.get(folder)
    try:
        if server is None or server.process.poll() is not None:
            server = _servers[folder] = _start_server(folder)
    except (DashboardNotStarted, OSError) as error:
        try:
            _show_report(file, height)
        except DashboardNotStarted:
            raise DashboardNotStarted(str(error)) from error
        sys.stderr.write(f"{error}; a report is shown in its place\n")
        return
    address = server.page_address(page)
    sys.stdout.write(f"visualprof shows {folder} at {address}\n")
    _display(address, server.port, height)


@dataclass(frozen=True)
class _Server:
    """A running server.

    Attributes:
        process: Its process.
        port: Its port.
        address: Its address for the browser, without the token.
        token: Its token, "" if it needs none.
    """

    process: subprocess.Popen[str]
    port: int
    address: str
    token: str

    def page_address(self, page: str) -> str:
        """Return the address of a page (`#/overview?run=x`, "" for the first) with the token in the fragment."""
        if not self.token:
            return self.address + page
        separator = "&" if "?" in page else "?" if page else "#"
        return f"{self.address}{page}{separator}token={self.token}"


def _start_server(folder: Path) -> _Server:
    """Start a server for a folder and wait for its address."""
    proxy = urllib.parse.urlsplit(os.environ.get(PROXY_VARIABLE, ""))
    origins = list(_COLAB_ORIGINS if _is_colab() else _NOTEBOOK_ORIGINS)
    origins += [f"{proxy.scheme}://{proxy.netloc}"] if proxy.netloc else []
    command = [sys.executable, "-m", "visualprof", str(folder), "--create", "--port", "0"]
    command += [word for origin in origins for word in ("--embed-in", origin)]
    command += ["--allow-host", proxy.hostname] if proxy.hostname else []
    with tempfile.TemporaryFile("w+") as server_output:  # not a pipe, which nothing would read later
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=server_output, text=True
        )
        atexit.register(process.terminate)
        assert process.stdout
        line = process.stdout.readline()
        link = re.search(r"https?://\S+(?=  \(Ctrl-C)", line)
        if link is None:
            process.terminate()
            process.wait()
            server_output.seek(0)
            raise DashboardNotStarted(
                f"visualprof did not start: {server_output.read().strip() or line.strip() or 'no answer'}"
            )
    parts = urllib.parse.urlsplit(link[0])
    assert parts.port
    address = f"{parts.scheme}://{parts.netloc}/"
    if proxy.netloc:
        address = os.environ[PROXY_VARIABLE].replace("%PORT%", str(parts.port)).rstrip("/") + "/"
    return _Server(process, parts.port, address, parts.fragment.partition("token=")[2])


def _display(address: str, port: int, height: int) -> None:
    """Show a frame in a notebook; elsewhere the printed link is sufficient."""
    display = _cell_display()
    if display is None:
        return
    if _is_colab():
        values = {"port": port, "fragment": urllib.parse.urlsplit(address).fragment, "height": height}
        display.display(display.Javascript(_COLAB_FRAME % values))
        return
    display.display(display.IFrame(address, "100%", height))


def _cell_display() -> Any:
    """Return the module that shows output of a cell, or `None` outside of a notebook."""
    if "IPython" not in sys.modules:
        return None
    shell, display = (importlib.import_module(f"IPython.{name}") for name in ("core.getipython", "display"))
    return None if shell.get_ipython() is None else display


_COLAB_FRAME = """(async () => {
  const address = await google.colab.kernel.proxyPort(%(port)d, {cache: true});
  const frame = document.createElement("iframe");
  frame.src = new URL("#%(fragment)s", address).toString();
  frame.width = "100%%";
  frame.height = %(height)d;
  frame.style.border = 0;
  document.querySelector("#output-area, body").appendChild(frame);
})();"""


def _is_colab() -> bool:
    return "google.colab" in sys.modules


def _visualprof(line: str, cell: str) -> Any:
    """Run a SQL statement over profiles: `%%visualprof sql PROFILE... [-p NAME=VALUE] [--into NAME]`.

    Each profile is a path, or a variable with the result of `visualprof.open`.
    """
    from visualprof.api.magic import run_cell

    return run_cell(importlib.import_module("IPython.core.getipython").get_ipython().user_ns, line, cell)


def _profile(line: str, cell: str) -> None:
    """Record the cell and show the recording: `%%profile [FOLDER] [--stacks] [--no-memory] [--no-shapes]`.

    A step ends with each step of the optimizer, or run of the session. Without these the whole cell is one step.
    """
    from visualprof.capture.automatic import Automatic

    parser = argparse.ArgumentParser("%%profile", exit_on_error=False)
    parser.add_argument("folder", nargs="?", default="runs")
    parser.add_argument("--stacks", action="store_true")
    for name in ("memory", "shapes"):
        parser.add_argument(f"--no-{name}", dest=name, action="store_false")
    args = parser.parse_args(shlex.split(line))
    recording = Automatic(args.folder, whole=True, stacks=args.stacks, memory=args.memory, shapes=args.shapes)
    recording.begin()
    try:
        importlib.import_module("IPython.core.getipython").get_ipython().run_cell(cell)
    finally:
        files = recording.end()
    if files:
        folder = Path(args.folder).absolute()
        run = files[-1].absolute().parent.relative_to(folder).as_posix()
        _show(folder, f"#/overview?run={urllib.parse.quote(run, safe='')}", files[-1].absolute().parent)
    else:
        sys.stderr.write("visualprof: nothing was recorded: the cell used no framework that is known\n")
