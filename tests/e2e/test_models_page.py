"""The Models page over a real server: a model goes in, gets a second version, is measured, compared and removed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import TOKEN, Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import open_page, raw_keys
from visualprof.cli import main

RESNET = SAMPLES / "models" / "resnet10.onnx"
REPORT = SAMPLES / "resnet10-sample" / "ort-1t"


@pytest.fixture
def dashboard(serve: Callable[..., Dashboard], tmp_path: Path) -> Dashboard:
    """With a report of that model."""
    shutil.copytree(REPORT, tmp_path / "runs" / "before" / "ort-1t")
    second_server = serve()
    second_server.wait_until_ready()
    return second_server


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    """The model under another producer's name: other bytes, the same graph."""
    model = onnx.load(RESNET)
    model.producer_name = "converter"
    path = tmp_path / "resnet10-folded.onnx"
    onnx.save(model, path)
    return path


def line(page: Page, name: str) -> Locator:
    return page.get_by_role("list", name="Models").locator(".line").filter(has_text=name)


def test_from_nothing_to_two_versions_and_back(dashboard: Dashboard, visit: Visits, folded: Path) -> None:
    page = visit(dashboard, "models")
    expect(page.get_by_text("No registered models yet")).to_be_visible()
    page.locator("input[type=file]").set_input_files(RESNET)
    expect(line(page, "resnet10")).to_contain_text("version 1")
    versions = page.locator("tbody")
    expect(versions.first).to_contain_text("321,636")
    page.locator(".detail input[type=file]").set_input_files(folded)
    expect(versions).to_have_count(2)
    expect(line(page, "resnet10")).to_contain_text("version 2")
    page.get_by_placeholder("Alias, e.g. production").fill("production")
    page.get_by_role("button", name="Set alias").click()
    expect(line(page, "resnet10")).to_contain_text("production: 2")
    page.get_by_label("Largest batch").fill("4")
    page.get_by_role("button", name="Save").click()
    versions.nth(0).get_by_role("link", name="Measure").click()
    expect(page).to_have_url(re.compile("#/run$"))
    expect(page.locator(".model")).to_contain_text("resnet10-folded.onnx")
    expect(page.get_by_label("Name", exact=True)).to_have_value("resnet10/2")
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("or a registered model:").select_option("resnet10@production")
    expect(page.locator(".model")).to_contain_text("resnet10-folded.onnx")
    open_page(page, "Models")
    expect(versions).to_have_count(2)
    page.get_by_role("button", name="Delete model").click()
    expect(page.get_by_text("Delete resnet10/2, resnet10/1?")).to_be_visible()
    page.get_by_role("button", name="Yes, delete").click()
    expect(page.get_by_text("No registered models yet")).to_be_visible()


def test_a_version_is_compared_with_its_parent(
    dashboard: Dashboard, visit: Visits, folded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the samples a second at every size: +100 %, half the latency: -50 %; both graphs are compared."""
    monkeypatch.setenv("VISUALPROF_TOKEN", TOKEN)
    add = ["model", "--server", dashboard.url, "add", "net"]
    assert main([*add, str(RESNET)]) == 0
    assert main([*add, str(folded), "--parent", "net/1", "--converter", "folding", "--tool", "onnx=1.19"]) == 0
    report = tmp_path / "runs" / "after" / "ort-1t"
    shutil.copytree(REPORT, report)
    head = json.loads((report / "job.json").read_text())
    head["model"]["sha256"] = hashlib.sha256(folded.read_bytes()).hexdigest()
    (report / "job.json").write_text(json.dumps(head))
    points = [json.loads(text) for text in (report / "points.jsonl").read_text().splitlines()]
    for point in points:
        point |= {"samples_per_s": 2 * point["samples_per_s"], "p50_ns": point["p50_ns"] // 2}
    (report / "points.jsonl").write_text("".join(f"{json.dumps(point)}\n" for point in points))
    page = visit(dashboard, "models")
    line(page, "net").click()
    newest = page.locator("tbody").nth(0)
    expect(newest).to_contain_text("net/1")
    expect(newest).to_contain_text("folding")
    expect(newest).to_contain_text(re.compile(r"\+100\s% at batch 32"))
    expect(newest).to_contain_text(re.compile(r"\u221250\.0\s% at batch 32"))
    assert raw_keys(page) == []
    newest.get_by_role("link", name="Compare graphs").click()
    expect(page).to_have_url(re.compile("#/graph.*other="))
    expect(page.locator(".pictures")).to_be_visible()
