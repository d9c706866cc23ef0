"""The pages of run data: the samples' values are on the page of their kind, and filters are in the address."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import address, cell, table
from visualprof.capture import LogWriter

RUN_DATA = Path(__file__).parents[1] / "fixtures" / "run_data" / "tensorboard"


@pytest.fixture
def shown(tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits) -> Callable[..., Page]:
    """Opens a page of a run with every kind of data."""
    shutil.copytree(RUN_DATA / "torch", tmp_path / "runs" / "torch")
    for name, rate in (("fast", 0.1), ("slow", 0.001)):
        with LogWriter(tmp_path / "runs" / "search" / name) as writer:
            writer.add_scalar("loss", rate, 1)
            writer.add_hparams({"lr": rate, "optimizer": name}, ["loss"])
    dashboard = serve(tmp_path / "runs")
    return lambda page, run="torch", **query: visit(dashboard, page, run=run, **query)


def test_samples_are_images_sound_and_texts(shown: Callable[..., Page]) -> None:
    page = shown("samples")
    expect(page.locator("main img").first).to_be_visible()
    expect(page.locator("main audio").first).to_be_attached()
    expect(page.locator("main .markdown").first).to_be_visible()


def test_distributions_have_a_chart_per_tag(shown: Callable[..., Page]) -> None:
    page = shown("distributions", tags="w1")
    expect(page.locator("main canvas")).to_have_count(1)
    page.get_by_role("radio", name="Quantiles").click()
    assert address(page)["mode"] == "quantiles"


def test_curves_have_areas(shown: Callable[..., Page]) -> None:
    page = shown("curves")
    expect(page.get_by_role("columnheader", name="Average precision")).to_be_visible()


def test_trials_are_ranked_and_filtered(shown: Callable[..., Page]) -> None:
    page = shown("trials", runs="search", metric="loss")
    assert cell(table(page, "Trials"), 0, "Trial").inner_text() == "search/slow"
    page.get_by_role("radio", name="Largest").click()
    expect(cell(table(page, "Trials"), 0, "Trial")).to_have_text("search/fast")
    plot = page.get_by_role("img", name="Parallel coordinates")
    box = plot.bounding_box()
    assert box
    top, x = box["y"] + 34, box["x"] + 60  # the upper end of the first axis, which is that of lr
    page.mouse.move(x, top - 4)
    page.mouse.down()
    page.mouse.move(x, top + 60, steps=4)
    page.mouse.up()
    expect(page.get_by_text("1 of 2 trials")).to_be_visible()
    assert "p.lr" in address(page)["where"]


def test_a_point_of_an_embedding_has_neighbors(shown: Callable[..., Page]) -> None:
    page = shown("embeddings", dimensions="2", point="0")
    expect(page.get_by_role("img", name="Points")).to_be_visible()
    expect(page.get_by_text("6 points with 4 dimensions.")).to_be_visible()
    expect(page.locator("main ol li")).to_have_count(5)


def test_a_slow_step_leads_to_a_recording_or_to_the_command(
    tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits
) -> None:
    run = tmp_path / "runs" / "net"
    with LogWriter(run) as writer:
        for step in range(60):
            writer.add_scalar("loss", 1 / (step + 1), step)
            writer.add_scalar("step_time_ms", 900 if step == 40 else 100, step)
    charts = '[["Loss and time","",["loss"],["step_time_ms"]]]'
    page = visit(serve(tmp_path / "runs"), "scalars", run="net", charts=charts)
    card = page.locator("main section", has=page.get_by_role("heading", name="Loss and time")).first
    card.get_by_role("button", name="Slow step 40 of net: 900").click()
    expect(page.get_by_text("This step was not recorded.")).to_be_visible()
    expect(page.get_by_text(f'visualprof.capture.watch("{tmp_path / "runs"}", run="net")')).to_be_visible()
    card.get_by_role("button", name="Combine").click()
    page.get_by_role("combobox", name="Vertical axis: loss").select_option("right")
    page.get_by_role("button", name="Save").click()
    assert '["step_time_ms","loss"]' in address(page)["charts"]
