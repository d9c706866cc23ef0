"""The dashboard in a frame of another site, as a notebook shows it: the browser forbids it to keep anything there."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import TOKEN, Dashboard, Visits, expect
from tests.e2e.locators import open_page


@pytest.fixture
def frames() -> Iterator[dict[str, str]]:
    """A page of another site with a frame: `at` is its address, `of` what it frames."""
    address = {"at": "", "of": ""}

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<iframe src="{address["of"]}" width="1200" height="800"></iframe>'.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        address["at"] = f"http://localhost:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


def test_the_page_works_without_browser_storage(
    tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits, frames: dict[str, str]
) -> None:
    shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / "paddle-cpu")
    visit.tolerate("Blocked autofocusing")
    dashboard = serve(tmp_path / "runs", "--embed-in", "http://localhost:*")
    page = visit(dashboard, "overview")
    visit.tolerate(f"asked for {frames['at']}")
    frames["of"] = f"{dashboard.url}#/overview?run=paddle-cpu&token={TOKEN}"
    page.goto(frames["at"])
    shown = page.frame_locator("iframe")
    expect(shown.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    open_page(shown, "Operators")
    expect(shown.get_by_role("heading", level=1, name="Operators")).to_be_visible()
