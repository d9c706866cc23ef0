"""A hostile page on another port of the same host, and people without the token, in a real browser."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import TOKEN, Browser, Dashboard, Page, Visits, expect
from tests.server.sites import kineto

MODEL = SAMPLES / "models" / "resnet10.onnx"

# What a page can send to another origin: each way with each type that needs no leave, and those that need it.
ATTACK = """
async ([target, draft]) => {
  const api = target + "api/v1/";
  const told = [];
  const paths = [
    "reload", "uploads?name=evil.onnx", "models?name=evil.onnx", "jobs", "jobs/draft", "agents/token", "agent/register",
  ];
  const ask = (path, options) => fetch(api + path, { credentials: "include", ...options }).then(
    (answer) => told.push(answer.type === "opaque" ? "opaque" : answer.status),
    () => told.push("refused"),
  );
  const loaded = (element, name, address) => new Promise((done) => {
    const onload = () => (told.push(name), done());
    document.body.append(Object.assign(element, { onload, onerror: done, src: address }));
  });
  for (const path of paths)
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/json", "model/onnx", ""]) {
      const body = new Blob([draft], { type });
      for (const mode of ["cors", "no-cors"]) {
        await ask(path, { method: "POST", mode, body });
        await ask(path, { method: "POST", mode, body, referrerPolicy: "no-referrer", keepalive: true });
      }
      navigator.sendBeacon(api + path, body);
    }
  for (const method of ["PUT", "PATCH", "DELETE"])
    await ask("agents/x", { method, body: "{}", headers: { "X-Visualprof-Token": "guess" } });
  for (const path of ["runs", "agents", "jobs", "status", "session"]) {
    await ask(path, {});
    await loaded(document.createElement("img"), "image", api + path);
    await loaded(document.createElement("script"), "script", api + path);
  }
  await new Promise((done) => {
    const socket = new WebSocket(api.replace("http", "ws") + "jobs");
    socket.onopen = () => (told.push("socket"), done());
    socket.onerror = done;
  });
  for (const enctype of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"])
    for (const path of paths) {
      const frame = Object.assign(document.createElement("iframe"), { name: enctype + path });
      const form = document.createElement("form");
      Object.assign(form, { method: "POST", enctype, action: api + path, target: frame.name });
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name: draft, value: "" }));
      document.body.append(frame, form);
      const answered = new Promise((done) => { frame.onload = done; setTimeout(done, 2000); });  // 204 loads nothing
      form.submit();
      await answered;
    }
  const frame = document.createElement("iframe");
  await loaded(frame, "framed", target + "#/run");
  told.push(frame.contentDocument ? "read the frame" : "refused");
  return told;
}
"""


@contextmanager
def neighbor() -> Iterator[str]:
    """Serve a foreign page on another port of this host; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>neighbor</title><body>")

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def kept(dashboard: Dashboard) -> dict[str, Any]:
    """Everything that a request could have changed: what the API tells and what lies in the folder."""
    told = {path: dashboard.get(path) for path in ("jobs", "models", "agents")}
    files = {str(path.relative_to(dashboard.folder)) for path in dashboard.folder.rglob("*")}
    return {**told, "files": files - {".visualprof"}}


@pytest.mark.parametrize("options", [(), ("--no-token",), ("--private",)], ids=["token", "open", "private"])
def test_a_page_of_another_port_changes_and_learns_nothing(
    serve: Callable[..., Dashboard], browser: Browser, options: tuple[str, ...]
) -> None:
    dashboard = serve(None, *options)
    job = json.dumps({"key": "k", "model": "a" * 64, "specs": [{"backends": []}]})
    context = browser.new_context()
    # The user has the dashboard open in the same browser, with its token.
    own = context.new_page()
    own.goto(f"{dashboard.url}#/run?token={TOKEN}")
    expect(own.locator("input[type=file]")).to_be_attached()
    own.wait_for_load_state("networkidle")
    before = kept(dashboard) if "--private" not in options else None
    with neighbor() as there:
        page = context.new_page()
        page.goto(there)
        told = page.evaluate(ATTACK, [dashboard.url, job])
    context.close()
    assert len(told) > 140, "every way was tried"
    assert set(told) == {"refused", "framed"}  # of a frame that the browser blocks it says that it is loaded
    if before is not None:
        assert kept(dashboard) == before
    assert not (dashboard.folder / ".visualprof" / "blobs").exists()
    assert not (dashboard.folder / ".visualprof" / "jobs.sqlite").exists()


def give(page: Page) -> None:
    page.locator("input[type=file]").set_input_files(str(MODEL))


def test_the_printed_link_authorizes_and_leaves_no_token_in_the_address(
    serve: Callable[..., Dashboard], visit: Visits
) -> None:
    dashboard = serve()
    page = visit(dashboard, at=f"{dashboard.url}?token={TOKEN}#/run", token="")
    give(page)
    expect(page.get_by_role("table", name="Configurations")).to_be_visible()
    assert TOKEN not in page.url
    assert "token" not in page.evaluate("JSON.stringify([location.href, history.state])")
    assert page.context.cookies() == []


def test_a_user_without_a_token_is_asked_once(serve: Callable[..., Dashboard], visit: Visits) -> None:
    dashboard = serve()
    page = visit(dashboard, "run", language="zh", token="")
    give(page)
    dialog = page.get_by_role("dialog", name="需要此服务器的令牌")
    field, go_on = "链接或令牌", "继续"
    expect(dialog).to_be_visible()
    dialog.get_by_label(field).fill("vp_s_guess")
    dialog.get_by_role("button", name=go_on).click()
    expect(dialog.get_by_role("alert")).to_contain_text("不是服务器当前的令牌")
    dialog.get_by_label(field).fill(f"{dashboard.url}#token={TOKEN}")
    dialog.get_by_role("button", name=go_on).click()
    expect(page.get_by_text(MODEL.name).first).to_be_visible()
    expect(dialog).to_have_count(0)
    page.reload()
    give(page)
    expect(page.get_by_text(MODEL.name).first).to_be_visible()
    assert page.get_by_role("dialog").count() == 0


def test_a_user_who_declines_continues_read_only(serve: Callable[..., Dashboard], visit: Visits) -> None:
    dashboard = serve()
    page = visit(dashboard, "run", token="")
    give(page)
    page.get_by_role("button", name="Skip").click()
    expect(page.get_by_text("This action needs the server token")).to_be_visible()
    page.goto(f"{dashboard.url}#/agents")
    expect(page.get_by_text("--token TOKEN").first).to_be_visible()
    page.get_by_role("button", name="Show the registration token").click()
    page.get_by_label("Link or token").fill(TOKEN)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text(re.compile("--token vp_r_")).first).to_be_visible()


def test_a_private_page_is_read_with_the_token(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "trace.json").write_text(kineto())
    dashboard = serve(folder, "--private")
    visit.tolerate("401")
    page = visit(dashboard, "operator", token="")
    page.get_by_label("Link or token").fill(TOKEN)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("grid").first).to_be_visible()
    page.get_by_role("button", name="Export the table").first.click()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "name" in Path(download.value.path()).read_text(encoding="utf-8-sig").partition("\n")[0].lower()
