"""Charts of views are pyecharts charts that need no network."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

import visualprof
from tests.conftest import SAMPLES
from visualprof.api import OpenedProfile, charts, echarts
from visualprof.errors import NotFound

options = pytest.importorskip("pyecharts.options")
CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
pytestmark = pytest.mark.skipif(
    not any(path.is_file() for path in echarts.ECHARTS_FILES), reason="the page is not built: make page"
)


@pytest.fixture(scope="module")
def opened() -> OpenedProfile:
    return visualprof.open(CNN)


def test_a_chart_has_the_numbers_of_its_view(opened: OpenedProfile) -> None:
    chart = opened.chart("overview.steps")
    steps = opened.view("overview").df("steps")
    series = {series["name"]: series["data"] for series in json.loads(chart.dump_options_with_quotes())["series"]}
    assert series["Kernel"] == steps["kernel_ns"].tolist()
    assert "@t:" not in chart.dump_options()
    assert "@f:" not in chart.dump_options()


def test_texts_are_those_of_the_web_ui() -> None:
    keys = ("part.memcpy", "stage.forward", "stage.forward|device", "derived.forward", "chart.rest", "no.such_text")
    assert [charts.resolve_tokens(f"@t:{key}") for key in keys] == [
        "Memory copy",
        "Forward",
        "Forward (Device)",
        "Forward (derived)",
        "Others",
        "such text",
    ]


def test_set_global_opts_changes_the_chart_and_keeps_formats(opened: OpenedProfile) -> None:
    chart = opened.chart("overview.steps")
    same = chart.set_global_opts(title_opts=options.TitleOpts(title="Mine <3"))
    assert same is chart
    assert '"text": "Mine <3"' in chart.dump_options_with_quotes()
    assert "function(v)" in chart.dump_options()


def test_a_cell_shows_an_isolated_frame_without_other_hosts(opened: OpenedProfile) -> None:
    bundle = opened.chart("kernel.kernels")._repr_mimebundle_()
    assert bundle["text/plain"] == "<chart kernel.kernels>"
    (sandbox, source) = re.findall(r'<iframe sandbox="([^"]*)".* srcdoc="([^"]*)">', bundle["text/html"], re.DOTALL)[0]
    assert sandbox == "allow-scripts"
    assert not re.search(r'(?:src|href)="?http', html.unescape(source))
    assert "require.config" not in source


def test_a_name_of_the_trace_cannot_end_the_script(opened: OpenedProfile) -> None:
    chart = opened.chart("overview.steps")
    chart.options["series"][0]["name"] = "</script><script>alert(1)</script>"
    assert "</script><script>alert" not in chart.page()


def test_a_saved_chart_is_one_file(opened: OpenedProfile, tmp_path: Path) -> None:
    path = opened.view("overview").chart("steps").render(tmp_path / "chart.html")
    page = Path(path).read_text("utf-8")
    assert "<title>overview.steps</title>" in page
    assert "echarts.init(" in page


def test_an_unknown_chart_names_those_of_the_view(opened: OpenedProfile) -> None:
    with pytest.raises(NotFound, match="no chart 'pie'") as error:
        opened.chart("overview.pie")
    assert "average_step" in error.value.hint


@pytest.mark.e2e
@pytest.mark.slow
def test_a_browser_without_a_network_draws_the_cell(opened: OpenedProfile, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chart = opened.chart("overview.steps").set_global_opts(title_opts=options.TitleOpts(title="Steps"))
    (tmp_path / "cell.html").write_text(chart._repr_mimebundle_()["text/html"], encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        requests: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "cell.html").as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("canvas").wait_for()
        painted = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(value => value)"
        assert frame.locator("canvas").evaluate(painted)
        page.screenshot(path=tmp_path / "cell.png")
        browser.close()
    assert errors == []
    assert [url for url in requests if url.startswith("http")] == []
