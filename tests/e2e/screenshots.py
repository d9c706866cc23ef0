"""Writes the pictures of the README: `python -m tests.e2e.screenshots docs/images`, or `... docs/images heatmap`."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.cluster.job import make, write
from benchmarks.cluster.simulation import Noise
from benchmarks.cluster.topology import Topology
from tests.conftest import SAMPLES
from tests.e2e.live import DIST, PATIENCE_S, Dashboard, Page, Visits, expect, launch, sync_playwright, why_not
from tests.e2e.locators import settled
from tests.views.test_serving import planned
from visualprof.cli.demo import lay_out

# The Chinese pictures are dark, so that both themes are seen.
LOOKS = {"": ("en", "light"), "_zh": ("zh", "dark")}
RUN = "pytorch-h200/cnn"
# Page and what it shows.
PAGES: dict[str, dict[str, Any]] = {
    "overview": {"run": RUN},
    "operator": {"run": RUN},
    "kernel": {"run": RUN},
    "flame": {"run": "pytorch-h200/transformer", "tab": "flame"},
    "idle": {"run": RUN},
    "trace": {"run": "pytorch-h200/transformer"},
    "memory": {"run": RUN},
    "distributed": {"run": "pytorch-ddp-cpu"},
    "profile": {"run": "megengine-inference/resnet18_w16"},
    "graph": {"run": "pytorch-cpu/gpt"},
    "query": {"run": "pytorch-h200/transformer", "stored": "top_kernels"},
    "evaluation": {},
    "agents": {},
    "run": {"job": "sample"},
}
COMPARED: dict[str, Any] = {"run": "pytorch-loader/two-workers", "base": "pytorch-loader/no-workers"}  # on the overview
# What no sample is: ranks of a cluster with a slow rank, a slow loader and a slow link, and a server.
SIMULATED: dict[str, tuple[str, dict[str, Any]]] = {
    "heatmap": ("distributed", {"run": "cluster-64", "grouped": "host"}),
    "serving": ("overview", {"run": "server/recording"}),
}
# Headings that the tutorials name, on the pages of their pictures.
NAMED = {
    "overview": ("Plan", "Average step"),
    "compare": ("From the base to this run", "Slower rows"),
    "distributed": ("Computation and communication by rank",),
    "heatmap": ("Heat map",),
    "serving": ("Serving", "Phases", "Batch size over time"),
    "evaluation": ("Throughput by batch size", "Latency by batch size"),
    "run": ("New job",),
}
PLANTS = ("straggler:21:1.25", "loader:44:4@0.4", "link:1-5:0.25")
DRAWN = ("trace", "graph", "flame")  # on canvas
POLLING = ("evaluation", "agents", "run")


def smaller(png: bytes) -> bytes:
    """The picture with a palette, a third of the size; as it is where Pillow is not installed."""
    if importlib.util.find_spec("PIL") is None:
        return png
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def choose_model(page: Page) -> None:
    """Drop a file like on the drop zone of the Run page."""
    page.locator("input[type=file]").set_input_files(SAMPLES / "models" / "resnet10.onnx")
    expect(page.locator(".submit button.primary")).to_be_enabled()


def shoot(page: Page, path: Path, *, quiet: bool = True) -> None:
    """Writes the picture. quiet: waits until nothing is asked any more; pages that poll never get there."""
    for heading in NAMED.get(path.stem, ()):
        expect(page.get_by_role("heading", name=heading, exact=True).first).to_be_visible()
    if quiet:
        page.wait_for_load_state("networkidle")
    path.write_bytes(smaller(page.screenshot(animations="disabled")))
    print(f"{path}: {path.stat().st_size // 1000} kB")


def simulate(folder: Path) -> None:
    """64 ranks in two stages, eight a host; and a server that takes prompts in while it decodes."""
    job, truth = make(Topology(64, 4, 2, 1), (10, 2000, 0), PLANTS, 1, Noise())
    write(job, truth, folder / "cluster-64", 2)
    running = [min(24, 2 + i) for i in range(40)] + [24 - 3 * i for i in range(8)]
    prompts = [(1, 96 + 32 * (i % 5)) if i < 40 and i % 3 == 0 else (0, 0) for i in range(len(running))]
    plan = [
        (2, 256, 0),
        *((count, tokens, decoding) for (count, tokens), decoding in zip(prompts, running, strict=True)),
    ]
    (folder / "server").mkdir()
    recording = {"schemaVersion": 1, "traceEvents": planned(plan)}
    (folder / "server" / "recording.json").write_text(json.dumps(recording))


def shoot_simulated(dashboard: Dashboard, visits: Visits, folder: Path, names: Collection[str]) -> None:
    """From the heat map, or from the panel of the server, on."""
    for name, (view_name, query) in SIMULATED.items():
        for suffix, (language, theme) in LOOKS.items():
            if name not in names:
                continue
            page = visits(dashboard, view_name, language=language, theme=theme, **query)
            settled(page)
            page.locator(f"[data-place={name}]").evaluate(
                "place => window.scrollBy(0, place.getBoundingClientRect().top - 120)"
            )
            shoot(page, folder / f"{name}{suffix}.png")


def shoot_views(dashboard: Dashboard, visits: Visits, folder: Path, names: Collection[str]) -> None:
    """The pages of the demo."""
    for name, query in PAGES.items():
        if name not in names or not any((DIST / "assets").glob(f"{name}-*.js")):
            continue
        for suffix, (language, theme) in LOOKS.items():
            page = visits(dashboard, name, language=language, theme=theme, **query)
            if name in DRAWN:
                page.locator("canvas").first.wait_for()
            elif name == "agents":
                page.locator(".agent").nth(1).wait_for()
            elif name == "run":
                choose_model(page)
            else:
                settled(page)
            shoot(page, folder / f"{name}{suffix}.png", quiet=name not in POLLING)
    for suffix, (language, theme) in LOOKS.items() if "compare" in names else ():
        page = visits(dashboard, "overview", language=language, theme=theme, **COMPARED)
        page.locator(".change").wait_for()
        shoot(page, folder / f"compare{suffix}.png")


def main(folder: Path, *names: str) -> None:
    """Every page that this build has, or those that are named, in each look, 1280 x 860."""
    if reason := why_not():
        sys.exit(reason)
    wanted = names or (*PAGES, *SIMULATED, "compare")
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=5_000 * PATIENCE_S)  # 64 ranks
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        runs, jobs = lay_out(Path(scratch))
        if not SIMULATED.keys().isdisjoint(wanted):
            simulate(runs)
        dashboard = Dashboard(runs, Path(scratch) / "cache", "--data", str(jobs), "--with-agent")
        browser = launch(playwright)
        try:
            dashboard.wait_until_ready(5 * PATIENCE_S)
            visits = Visits(browser)
            shoot_views(dashboard, visits, folder, wanted)
            shoot_simulated(dashboard, visits, folder, wanted)
            visits.check()
        finally:
            browser.close()
            dashboard.stop()
            expect.set_options(timeout=1000 * PATIENCE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"), *sys.argv[2:])
