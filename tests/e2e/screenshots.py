"""Writes the pictures of the README: `python -m tests.e2e.screenshots docs/images`."""

from __future__ import annotations

import importlib.util
import io
import sys
import tempfile
from pathlib import Path

from tests.conftest import SAMPLES
from tests.e2e.live import DIST, Dashboard, Visits, launch, sync_playwright, why_not
from tests.e2e.looks import settled

# The Chinese pictures are dark, so that both themes are seen.
LOOKS = {"": ("en", "light"), "_zh": ("zh", "dark")}
RUN = "pytorch-h200/cnn"
# Page and what it shows.
PAGES: dict[str, dict[str, str]] = {
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


def smaller(png: bytes) -> bytes:
    """The picture with a palette, a third of the size; as it is where Pillow is not installed."""
    if importlib.util.find_spec("PIL") is None:
        return png
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main(folder: Path) -> None:
    """Every page that this build has, in each look, 1280 x 860."""
    if reason := why_not():
        sys.exit(reason)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache, sync_playwright() as playwright:
        dashboard = Dashboard(SAMPLES, Path(cache))
        browser = launch(playwright)
        try:
            dashboard.wait_until_ready()
            visits = Visits(browser)
            for name, query in PAGES.items():
                if not any((DIST / "assets").glob(f"{name}-*.js")):
                    continue
                for suffix, (language, theme) in LOOKS.items():
                    page = visits(dashboard, name, language=language, theme=theme, **query)
                    if name in DRAWN:
                        page.locator("canvas").first.wait_for()
                        page.wait_for_load_state("networkidle")
                    else:
                        settled(page)
                    path = folder / f"{name}{suffix}.png"
                    path.write_bytes(smaller(page.screenshot(animations="disabled")))
                    print(f"{path}: {path.stat().st_size // 1000} kB")
            visits.check()
        finally:
            browser.close()
            dashboard.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
