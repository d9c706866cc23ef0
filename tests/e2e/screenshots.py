"""Writes the pictures of the README: `python -m tests.e2e.screenshots docs/images`."""

from __future__ import annotations

import importlib.util
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import SAMPLES
from tests.e2e.live import DIST, Dashboard, Page, Visits, expect, launch, sync_playwright, why_not
from tests.e2e.locators import settled
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
    "evaluation": {},
    "agents": {},
    "run": {"job": "sample"},
}
COMPARED: dict[str, Any] = {"run": "pytorch-loader/two-workers", "base": "pytorch-loader/no-workers"}  # on the overview
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
    """As the Run page's drop zone does."""
    page.locator("input[type=file]").set_input_files(SAMPLES / "models" / "resnet10.onnx")
    expect(page.locator(".submit button.primary")).to_be_enabled()


def shoot(page: Page, path: Path, *, quiet: bool = True) -> None:
    """Writes the picture. quiet: waits until nothing is asked any more; pages that poll never get there."""
    if quiet:
        page.wait_for_load_state("networkidle")
    path.write_bytes(smaller(page.screenshot(animations="disabled")))
    print(f"{path}: {path.stat().st_size // 1000} kB")


def shoot_views(dashboard: Dashboard, visits: Visits, folder: Path) -> None:
    """The pages of the demo."""
    for name, query in PAGES.items():
        if not any((DIST / "assets").glob(f"{name}-*.js")):
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
    for suffix, (language, theme) in LOOKS.items():
        page = visits(dashboard, "overview", language=language, theme=theme, **COMPARED)
        page.locator(".change").wait_for()
        shoot(page, folder / f"compare{suffix}.png")


def main(folder: Path) -> None:
    """Every page that this build has, in each look, 1280 x 860."""
    if reason := why_not():
        sys.exit(reason)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        runs, jobs = lay_out(Path(scratch))
        dashboard = Dashboard(runs, Path(scratch) / "cache", "--data", str(jobs), "--with-agent")
        browser = launch(playwright)
        try:
            dashboard.wait_until_ready()
            visits = Visits(browser)
            shoot_views(dashboard, visits, folder)
            visits.check()
        finally:
            browser.close()
            dashboard.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
