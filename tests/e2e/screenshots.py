"""Writes the pictures of the README: `python -m tests.e2e.screenshots docs/images`."""

from __future__ import annotations

import importlib.util
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import SAMPLES
from tests.e2e.jobs_fake import JobsFake, model_upload
from tests.e2e.live import DIST, Dashboard, Page, Visits, expect, launch, sync_playwright, why_not
from tests.e2e.looks import settled
from tests.e2e.reports import START, result

# The Chinese pictures are dark, so that both themes are seen.
LOOKS = {"": ("en", "light"), "_zh": ("zh", "dark")}
RUN = "pytorch-h200/cnn"
# Page and what it shows.
PAGES: dict[str, dict[str, Any]] = {
    "overview": {"run": RUN},
    "operator": {"run": RUN},
    "kernel": {"run": RUN},
    "trace": {"run": "pytorch-h200/transformer"},
    "memory": {"run": RUN},
    "distributed": {"run": "synthetic-4gpu"},
    "profile": {"run": "megengine-inference/resnet18_w16"},
    "graph": {"run": "megengine-inference/resnet18_w16", "model": "megengine-inference/resnet18_w16.profile.json.gz"},
}
DRAWN = ("trace", "graph")  # on canvas
MODEL = "resnet10_dynbatch.onnx"
DAY_NS = 86_400_000_000_000
NOT_SHOWN = {"j-bad", "j-gone"}  # they are for tests of odd names


def smaller(png: bytes) -> bytes:
    """The picture with a palette, a third of the size; as it is where Pillow is not installed."""
    if importlib.util.find_spec("PIL") is None:
        return png
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def write_reports(folder: Path) -> Path:
    """A job of four specs and an older one."""
    folder.mkdir()
    result(folder, "ort-f32-cuda0", 60_000, agent="gpu-box", device="cuda:0")
    result(folder, "ov-bf16-2t", 110_000, backend="openvino", version="2026.4.1", effective={"precision": "bf16"})
    busy = {8: {"host_busy": True, "pressure": 0.35, "involuntary_switches": 900}}
    result(folder, "ov-f32-2t", 140_000, backend="openvino", version="2026.4.1", changes=busy, runs={16: 212})
    result(folder, "ort-f32-2t", 170_000)
    result(folder, "ort-f32-2t", 190_000, job="j0", version="1.23.2", finished_ns=START - DAY_NS, profiled=False)
    return folder


def played(dashboard: Dashboard) -> JobsFake:
    """Jobs and machines that need none."""
    fake = JobsFake(dashboard)
    fake.jobs = [job for job in fake.jobs if job["id"] not in NOT_SHOWN]
    fake.uploads[MODEL] = model_upload()
    return fake


def choose_model(page: Page) -> None:
    """As the Run page's drop zone does."""
    page.locator("input[type=file]").set_input_files(
        {"name": MODEL, "mimeType": "application/octet-stream", "buffer": b"content"}
    )
    expect(page.locator(".submit button.primary")).to_be_enabled()


def shoot(page: Page, path: Path, *, quiet: bool = True) -> None:
    """Writes the picture. quiet: waits until nothing is asked any more; pages that poll never get there."""
    if quiet:
        page.wait_for_load_state("networkidle")
    path.write_bytes(smaller(page.screenshot(animations="disabled")))
    print(f"{path}: {path.stat().st_size // 1000} kB")


def shoot_views(dashboard: Dashboard, visits: Visits, folder: Path) -> None:
    """The pages of the samples."""
    for name, query in PAGES.items():
        if not any((DIST / "assets").glob(f"{name}-*.js")):
            continue
        for suffix, (language, theme) in LOOKS.items():
            page = visits(dashboard, name, language=language, theme=theme, **query)
            if name in DRAWN:
                page.locator("canvas").first.wait_for()
            else:
                settled(page)
            shoot(page, folder / f"{name}{suffix}.png")


def shoot_remote(dashboard: Dashboard, reports: Dashboard, visits: Visits, folder: Path) -> None:
    """Run, Evaluation and Machines."""
    fake = played(dashboard)
    try:
        for suffix, (language, theme) in LOOKS.items():
            page = visits(fake, "run", language=language, theme=theme)  # type: ignore[arg-type]  # an address is all
            choose_model(page)
            shoot(page, folder / f"run{suffix}.png", quiet=False)
            page = visits(fake, "agents", language=language, theme=theme)  # type: ignore[arg-type]
            page.locator(".agent").first.wait_for()
            shoot(page, folder / f"agents{suffix}.png", quiet=False)
            page = visits(reports, "evaluation", language=language, theme=theme)
            settled(page)
            shoot(page, folder / f"evaluation{suffix}.png", quiet=False)
    finally:
        fake.stop()


def main(folder: Path) -> None:
    """Every page that this build has, in each look, 1280 x 860."""
    if reason := why_not():
        sys.exit(reason)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        dashboard = Dashboard(SAMPLES, Path(scratch) / "cache")
        reports = Dashboard(write_reports(Path(scratch) / "reports"), Path(scratch) / "reports-cache")
        browser = launch(playwright)
        try:
            dashboard.wait_until_ready()
            reports.wait_until_ready()
            visits = Visits(browser)
            shoot_remote(dashboard, reports, visits, folder)
            shoot_views(dashboard, visits, folder)
            visits.check()
        finally:
            browser.close()
            reports.stop()
            dashboard.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
