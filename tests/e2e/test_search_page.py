"""A search on the pages: put together on the Run page with data of one's own, shown on the Evaluation page."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e.jobs_fake import JobsFake, array_upload, model_upload
from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import raw_keys
from tests.e2e.reports import result

HOSTILE = "<img src=x onerror=alert(1)>"


def ratio(value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 0.05, "high": value + 0.05, "rounds": 9}


def trial(
    at: int, setting: dict[str, str], state: str, cost: float, p99: float | None, why: str = ""
) -> dict[str, Any]:
    figures = {"p50_ns": 1e6, "p99_ns": p99, "samples_per_s": 1000 / cost, "rss_bytes": 9 << 20, "error": 0.0}
    return {"at": at, "setting": setting, "state": state, "ratio": ratio(cost), "figures": figures, "why": why}


def searched() -> dict[str, Any]:
    trials = [
        trial(2, {"batch": "4", "threads": "1"}, "feasible", 0.8, 3e6),
        trial(0, {"batch": "1", "threads": HOSTILE}, "infeasible", 0.2, 9e6, "p99<5ms: not kept"),
        trial(3, {"batch": "4", "threads": "2"}, "feasible", 0.4, 4e6),
        {"at": 1, "setting": {"batch": "1", "threads": "2"}, "state": "failed", "why": f"crashed: {HOSTILE}"},
    ]
    again = {"at": 3, "ratio": ratio(0.5), "margin": 0.08, "figures": trials[2]["figures"], "missed": []}
    again["verdict"] = "better"
    return {
        "schema": "visualprof.search/1",
        "objective": "throughput",
        "method": "exhaustive",
        "settings": 4,
        "total": 4,
        "where": [{"text": "p99<5ms", "field": "p99_ns", "sign": "<", "limit": 5e6}],
        "complete": True,
        "data_rows": 8,
        "default": {"same": ratio(1.0), "margin": 0.08, "figures": trials[0]["figures"], "missed": []},
        "trials": trials,
        "best": again,
        "again": [again],
    }


def test_all_trials_are_shown_and_the_best_is_marked(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    folder = result(tmp_path / "runs", "onnxruntime", 160_000)
    (folder / "search.json").write_text(json.dumps(searched()))
    page = visit(serve(tmp_path / "runs"), "evaluation", reports="resnet10-j1/onnxruntime")
    panel = page.locator("[data-place=search]").first
    expect(panel.locator(".result")).to_contain_text(
        "Best: batch 4, threads 2. Measured again at the end, it costs 50.0 % of the default"
    )
    expect(panel.locator(".result")).to_contain_text("of the default setting (45.0 % – 55.0 %)")
    expect(panel.locator("tbody th")).to_have_text(["default", "3, repeated", "3", "1", "2", "4"])
    expect(panel.locator("tr.best .setting")).to_have_text(["batch 4, threads 2"] * 2)
    expect(panel.locator("tbody")).to_contain_text(f"threads {HOSTILE}")
    expect(panel).to_contain_text("error on your data (8 rows)")
    expect(panel.locator("canvas")).to_have_count(2)
    assert page.locator("main img").count() == 0
    assert not raw_keys(page)


def npz(**arrays: Any) -> Any:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return {"name": "inputs.npz", "mimeType": "application/zip", "buffer": buffer.getvalue()}


def test_a_search_with_rows_of_ones_own_becomes_a_request(samples: Dashboard, visit: Visits) -> None:
    fake = JobsFake(samples)
    try:
        fake.uploads["net.onnx"] = model_upload("net.onnx")
        fake.uploads["inputs.npz"] = array_upload("input.npy", "float32", 9, 3, 96, 96)
        _asks(visit(fake, "run"), fake)  # type: ignore[arg-type]  # all that a visit needs is the address
    finally:
        fake.stop()


def _asks(page: Page, fake: JobsFake) -> None:
    page.locator("input[type=file]").set_input_files(
        {"name": "net.onnx", "mimeType": "application/octet-stream", "buffer": b"content"}
    )
    page.get_by_label("Search for the best settings").check()
    page.get_by_label("constraints").fill("p99<5")
    page.get_by_label("threads", exact=True).fill("1:2")
    page.get_by_label("streams", exact=True).fill("1, 2")
    page.get_by_label("streams", exact=True).press("Tab")
    expect(page.get_by_text("p99 needs a unit")).to_be_visible()
    page.get_by_label("constraints").fill("p99<5ms, memory<2GiB")
    page.get_by_label("constraints").press("Tab")
    expect(page.get_by_text("p99 needs a unit")).not_to_be_visible()
    chosen = page.get_by_label("Choose an .npz file")
    chosen.set_input_files(npz(input=np.ones((9, 3, 64, 64), "float32")))
    expect(page.get_by_role("alert").filter(has_text="has the shape [9, 3, 64, 64]")).to_be_visible()
    assert not any("inputs.npz" in str(sent) for sent in fake.sent("POST", "uploads")), "it is not sent"
    chosen.set_input_files(npz(input=np.ones((9, 3, 96, 96), "float32")))
    expect(page.get_by_text("9 rows")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("list", name="Jobs")).to_contain_text("net.onnx")
    asked = fake.sent("POST", "jobs")[-1]
    assert asked["search"]["over"] == {"threads": ["1", "2"], "streams": ["1", "2"]}
    assert asked["search"]["where"] == ["p99<5ms", "memory<2GiB"]
    assert not asked["advise"].get("objective")
    assert list(asked["advise"]["data"]) == ["input"]
