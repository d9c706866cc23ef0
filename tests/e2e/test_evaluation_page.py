"""The Evaluation page over result folders with known numbers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import expected_text
from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import cell, raw_keys, row, table
from tests.e2e.reports import START, result

HOSTILE = "<img src=x onerror=alert(1)>"
SLOW, FAST, CARD = "resnet10-j1/onnxruntime", "resnet10-j1/openvino", "resnet10-j1/onnxruntime-cuda0"
OLD = "resnet10-j0/onnxruntime"
BUSY = {"host_busy": True, "pressure": 0.35, "involuntary_switches": 900}
# Where the last point of the first series ends, by its blue.
RIGHTMOST = """canvas => {
  const { width, height } = canvas;
  const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  for (let x = width - 1; x > 0; x--)
    for (let y = 60; y < height; y++) {
      const [r, g, b] = data.slice(4 * (y * width + x), 4 * (y * width + x) + 3);
      if (b - r > 80 && b - g > 40) return [x / devicePixelRatio, y / devicePixelRatio];
    }
}"""
SHAKY = {"stable": False, "window_p50_ns": [100_000, 130_000, 150_000]}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    """Three reports of a job, an older one of the same spec, and one of a hostile name."""
    folder = tmp_path_factory.mktemp("reports") / "runs"
    folder.mkdir()
    result(folder, "onnxruntime", 160_000)
    bf16 = {"precision": "<Type: 'bfloat16'>"}
    few = {16: 212}
    result(
        folder, "openvino", 120_000, backend="openvino", version="2026.4.1", effective=bf16, changes={8: BUSY}, runs=few
    )
    result(folder, "onnxruntime-cuda0", 60_000, agent="gpu-box", device="cuda:0", changes={4: SHAKY})
    day = 86_400_000_000_000
    result(folder, "onnxruntime", 190_000, job="j0", version="1.23.2", finished_ns=START - 3 * day, profiled=False)
    result(folder, "s", 900_000, job="j2", name=HOSTILE, version="1.13.0", finished_ns=START - day, profiled=False)
    with Dashboard(folder, cache) as dashboard:
        dashboard.wait_until_ready()
        yield dashboard


@pytest.fixture
def opened(reports: Dashboard, visit: Visits) -> Callable[..., Page]:
    def _open(**query: Any) -> Page:
        page = visit(reports, "evaluation", **query)
        expect(page.locator(".evaluation .main .panel").first).to_be_visible()
        return page

    return _open


def points(page: Page) -> Locator:
    return table(page, "Points")


def best(page: Page, label: str) -> Locator:
    return page.get_by_role("table", name="Best batch").get_by_role("row").filter(has_text=label)


def panel(page: Page) -> Locator:
    return page.locator('[data-place="point"]')


def told(dashboard: Dashboard, *reports: str, **more: str) -> dict[str, Any]:
    """The server's numbers of these reports."""
    return dashboard.get("evaluation/overlay", reports=",".join(reports), **more)


def test_the_newest_job_is_shown_unasked(opened: Callable[..., Page]) -> None:
    page = opened()
    for chart in ("Throughput by batch size", "Latency by batch size", "Throughput vs. latency"):
        expect(page.get_by_role("img", name=chart).locator("canvas")).to_be_visible()
    expect(page.get_by_text("3 selected")).to_be_visible()
    expect(points(page).get_by_role("row")).to_have_count(1 + 15)


def test_a_load_is_a_curve_and_a_table_of_its_steps(
    serve: Callable[..., Dashboard], tmp_path: Path, visit: Visits
) -> None:
    def step(rate: float, tail_ns: int, verdict: str) -> dict[str, Any]:
        """A step at a rate, all of whose runs were served."""
        point = {"concurrency": 2, "offered_per_s": rate, "achieved_per_s": rate, "n": 900, "unserved": 0}
        return {**point, "p50_ns": 10**6, "tail_ns": tail_ns, "tail_bound_ns": None, "verdict": verdict}

    steps = [step(50.0, 20_000_000, "PASS"), step(75.0, 61_000_000, "FAIL")]
    load = {"scenario": "poisson", "percentile": 99, "limit_ns": 50_000_000, "verdict": "PASS", "step": steps[0]}
    folder = tmp_path / "results"
    result(folder, "s", 1e6, changes={4: {"load": load | {"steps": steps}}}, profiled=False)
    page = visit(serve(folder), "evaluation", reports="resnet10-j1/s")
    expect(page.get_by_role("img", name="Latency by request rate").locator("canvas")).to_be_visible()
    loads = table(page, "Load")
    expect(loads.get_by_role("row")).to_have_count(1 + 2)
    expect(loads).to_contain_text("61.0 ms")
    expect(loads).to_contain_text("exceeded")
    loads.get_by_role("row").nth(1).click()
    expect(panel(page)).to_contain_text("Limit met")
    expect(panel(page)).to_contain_text("Poisson arrivals")


def test_the_job_of_a_chosen_run_is_shown(opened: Callable[..., Page], reports: Dashboard) -> None:
    newest, *_, older = reports.get("evaluation")["reports"]
    assert newest["job"] != older["job"]
    page = opened(run=older["id"])
    chosen = [report["points"] for report in reports.get("evaluation")["reports"] if report["job"] == older["job"]]
    expect(points(page).get_by_role("row")).to_have_count(1 + sum(chosen))


def test_a_finished_report_without_points_links_to_its_job(
    serve: Callable[..., Dashboard], tmp_path: Path, visit: Visits
) -> None:
    folder = tmp_path / "results"
    (result(folder, "s", 1e6, job="j9", profiled=False) / "points.jsonl").write_text("no point\n{}\n")
    page = visit(serve(folder), "evaluation", reports="resnet10-j9/s")
    notice = page.get_by_role("status").filter(has_text="its points cannot be read")
    expect(notice.get_by_role("link", name="See why")).to_have_attribute("href", re.compile("job=j9"))


def test_a_report_of_a_failed_task_links_to_its_job(
    serve: Callable[..., Dashboard], tmp_path: Path, visit: Visits
) -> None:
    folder = tmp_path / "results"
    out = result(folder, "s", 1e6, job="j9", profiled=False)
    (out / "points.jsonl").write_text("")
    status = json.loads((out / "status.json").read_text())
    (out / "status.json").write_text(json.dumps(status | {"state": "failed", "reason": "model_error", "error": "e"}))
    page = visit(serve(folder), "evaluation", reports="resnet10-j9/s")
    notice = page.get_by_role("status").filter(has_text="ended before any point was measured")
    expect(notice.get_by_role("link", name="See why")).to_have_attribute("href", re.compile("job=j9"))
    expect(page.get_by_text("No issues found with these measurements.")).to_have_count(0)
    page.goto(page.url.split("#")[0] + "#/overview")
    expect(page.get_by_text("This run has no data for this page.")).to_be_visible()
    expect(page.get_by_role("link", name="Open Results")).to_be_visible()


def test_next_to_an_open_point_a_button_shows_the_reports(opened: Callable[..., Page]) -> None:
    page = opened(reports=FAST, point=FAST, batch="4")
    expect(page.get_by_role("checkbox", name=OLD, exact=True)).to_have_count(0)
    page.get_by_role("button", name="Reports").click()
    page.get_by_role("checkbox", name=OLD, exact=True).check()
    expect(page.get_by_role("table", name="Best batch").locator("tbody tr")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name=OLD, exact=True)).to_have_count(0)
    expect(panel(page)).to_be_visible()


def test_reports_are_added_and_left_out_and_the_address_keeps_them(opened: Callable[..., Page]) -> None:
    page = opened(reports=FAST)
    expect(page.get_by_role("checkbox", name=FAST, exact=True)).to_be_checked()
    page.get_by_role("checkbox", name=OLD, exact=True).check()
    expect(best(page, "openvino")).to_be_visible()
    expect(page.get_by_role("table", name="Best batch").locator("tbody tr")).to_have_count(2)
    page.reload()
    expect(page.get_by_role("table", name="Best batch").locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="2 selected").click()
    expect(page.get_by_text("Choose at least one report.")).to_be_visible()


def test_repeated_evaluations_are_one_line_with_a_history(
    serve: Callable[..., Dashboard], tmp_path: Path, visit: Visits
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for day, base_ns in enumerate((190_000, 160_000, 170_000)):
        job = f"j{day}"
        result(folder, "onnxruntime", base_ns, job=job, finished_ns=START + day * 10**15, profiled=False)
    page = visit(serve(folder), "evaluation")
    listed = page.locator("main .groups .report")
    expect(listed.locator("visible=true")).to_have_count(1)
    page.get_by_text("2 earlier").click()
    expect(listed.locator("visible=true")).to_have_count(3)
    listed.nth(2).get_by_role("checkbox").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    expect(points(page).get_by_role("columnheader", name="Earlier", exact=True)).to_be_visible()
    page.reload()
    expect(listed.locator("visible=true"), "an earlier report is chosen").to_have_count(3)


def test_reports_are_searched_and_grouped(opened: Callable[..., Page]) -> None:
    page = opened()
    listed = page.locator("main .groups .report")
    expect(listed).to_have_count(5)
    page.get_by_placeholder("Search").fill("gpu-box")
    expect(listed).to_have_count(1)
    page.get_by_placeholder("Search").fill("")
    expect(page.locator("main .groups section")).to_have_count(3)
    page.get_by_role("radio", name="Model").click()
    expect(page.locator("main .groups section")).to_have_count(2)


def test_the_table_has_the_servers_numbers_and_is_sorted(opened: Callable[..., Page], reports: Dashboard) -> None:
    page = opened(reports=f"{FAST},{CARD}")
    numbers = told(reports, FAST, CARD)["table"]
    expect(cell(points(page), 0, "p50")).to_have_text(expected_text.duration(numbers["p50_ns"][0]))
    points(page).get_by_role("columnheader", name="Samples/s").click()
    top = max(range(10), key=lambda i: numbers["samples_per_s"][i])
    expect(cell(points(page), 0, "Samples/s")).to_have_text(f"{numbers['samples_per_s'][top]:,.0f}")
    expect(cell(points(page), 0, "p99")).to_have_text(expected_text.duration(numbers["p99_ns"][top]))
    assert "sort=samples_per_s" in page.url


def test_an_unavailable_percentile_is_explained(opened: Callable[..., Page]) -> None:
    page = opened(reports=FAST)
    expect(cell(points(page), 4, "p99")).to_have_text("–")
    expect(cell(points(page), 4, "p99")).to_have_attribute("title", "too few samples (212 of 662)")
    expect(cell(points(page), 4, "p95")).not_to_have_text("–")
    row(points(page), 4).click()
    expect(panel(page)).to_contain_text("p99 needs 662 samples; this point has 212.")


def test_the_best_size_within_a_limit_is_the_servers(opened: Callable[..., Page], reports: Dashboard) -> None:
    page = opened(reports=f"{SLOW},{CARD}")
    page.get_by_label("p99 latency limit (ms)").fill("0.4")
    page.keyboard.press("Enter")
    expected = told(reports, SLOW, CARD, slo_ns="400000")["best"]
    for number, name in enumerate(("onnxruntime", "onnxruntime-cuda0")):
        row_locator = page.get_by_role("table", name="Best batch").locator("tbody tr").nth(number)
        expect(row_locator).to_contain_text(name)
        rate, batch = expected["slo_samples_per_s"][number], expected["slo_batch"][number]
        expect(row_locator.get_by_role("cell").last).to_contain_text(f"{rate:,.0f}/s at {batch} · p99")
    page.get_by_label("p99 latency limit (ms)").fill("0.001")
    page.keyboard.press("Enter")
    expect(best(page, "cuda0")).to_contain_text("none")
    assert "slo=0.001" in page.url


def test_verdicts_are_sentences_with_their_numbers(opened: Callable[..., Page]) -> None:
    page = opened(reports=f"{FAST},{CARD}")
    verdicts = page.locator('[data-place="verdicts"]')
    expect(verdicts).to_contain_text("The runtime computed in bf16.")
    expect(verdicts).to_contain_text("Tasks waited for a CPU 35.0\u00a0% of the time.")
    expect(verdicts).to_contain_text("its first, middle and last third differ by 50.0\u00a0% in the median")
    expect(verdicts).to_contain_text("There are 212 samples, but p99 needs 662")
    verdicts.get_by_role("button", name="batch 8").click()
    expect(panel(page).get_by_role("heading", name="openvino, batch 8")).to_be_visible()
    expect(panel(page)).to_contain_text("The host was busy")
    page.keyboard.press("Escape")
    expect(panel(page)).to_have_count(0)
    page.keyboard.press("l")
    expect(verdicts).to_contain_text("运行时实际以 bf16 计算。")


def test_a_point_in_a_chart_opens_its_panel(opened: Callable[..., Page]) -> None:
    page = opened(reports=CARD)
    canvas = page.get_by_role("img", name="Throughput by batch size").locator("canvas")
    expect(canvas).to_be_visible()
    page.wait_for_function("document.fonts.ready")
    x, y = canvas.evaluate(RIGHTMOST)
    canvas.click(position={"x": x - 3, "y": y})
    expect(panel(page).get_by_role("heading", name="onnxruntime-cuda0, batch 16")).to_be_visible()


def test_a_point_shows_its_numbers_its_course_and_its_profile(opened: Callable[..., Page], reports: Dashboard) -> None:
    page = opened(reports=CARD, point=CARD, batch="4")
    facts = reports.get("evaluation/point", report=CARD, batch=4)["facts"]
    for name in ("p50_ns", "p99_ns", "first_ns"):
        expect(panel(page)).to_contain_text(expected_text.duration(facts[name]))
    for chart in ("Latency distribution", "Latency over time", "Utilization", "Clocks (MHz)", "Time by operator type"):
        expect(panel(page).get_by_role("img", name=chart).locator("canvas")).to_have_count(1)
    expect(panel(page).get_by_role("table", name="Time by operator type")).to_contain_text("Loop")
    expect(panel(page)).to_contain_text("profiled at batch 1")
    page.keyboard.press("]")
    expect(panel(page).get_by_role("heading", name="onnxruntime-cuda0, batch 8")).to_be_visible()
    page.go_back()
    expect(panel(page).get_by_role("heading", name="onnxruntime-cuda0, batch 4")).to_be_visible()


def test_a_point_leads_to_its_profile(opened: Callable[..., Page]) -> None:
    page = opened(reports=CARD, point=CARD, batch="4")
    for link, name in (("Overview", "overview"), ("Operators", "operator"), ("Timeline", "trace")):
        shown = panel(page).get_by_role("link", name=link, exact=True)
        expect(shown).to_have_attribute("href", re.compile(rf"^#/{name}\?.*worker=timeline"))
    panel(page).get_by_role("link", name="Monitor timeline", exact=True).click()
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_role("button", name="Worker: monitor")).to_be_visible()
    page.go_back()
    panel(page).get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_role("heading", name="Average step", exact=True, level=2)).to_be_visible()
    expect(page.get_by_role("button", name="Worker: timeline")).to_be_visible()


def test_a_report_without_a_profile_is_shown_without_one(opened: Callable[..., Page]) -> None:
    page = opened(reports=OLD, point=OLD, batch="1")
    expect(panel(page).get_by_role("img", name="Latency distribution").locator("canvas")).to_have_count(1)
    expect(panel(page).get_by_role("link", name="Operator")).to_have_count(0)
    expect(panel(page).get_by_role("table")).to_have_count(0)


def test_the_table_is_saved_as_csv(opened: Callable[..., Page], reports: Dashboard) -> None:
    page = opened(reports=f"{FAST},{CARD}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text("utf-8-sig").splitlines()))
    numbers = told(reports, FAST, CARD)["table"]
    assert [int(each["p50_ns"]) for each in rows] == numbers["p50_ns"]
    assert {each["report"] for each in rows} == {FAST, CARD}


def test_a_report_that_is_gone_is_named_and_the_others_stay(opened: Callable[..., Page]) -> None:
    page = opened(reports=f"{FAST},nowhere/at-all")
    expect(page.locator(".notice")).to_contain_text("1 report does not exist: nowhere/at-all")
    expect(best(page, "openvino")).to_be_visible()


def test_a_new_report_appears_automatically(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    dashboard = serve()
    page = visit(dashboard, "evaluation")
    expect(page.get_by_role("heading", name="No reports yet")).to_be_visible()
    result(dashboard.folder, "onnxruntime", 160_000, profiled=False)
    expect(page.get_by_role("grid", name="Points").get_by_role("row")).to_have_count(6)


def test_names_of_strangers_are_text(opened: Callable[..., Page]) -> None:
    wanted = f"{HOSTILE}-j2/s"
    page = opened(reports=wanted, point=wanted, batch="1")
    expect(panel(page).get_by_role("img", name="Latency distribution").locator("canvas")).to_have_count(1)
    expect(panel(page)).to_contain_text("s, batch 1")
    page.get_by_role("button", name="Close", exact=True).last.click()
    expect(page.locator("main .groups")).to_contain_text(HOSTILE)
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_text_of_reports_is_translated(opened: Callable[..., Page]) -> None:
    page = opened(reports=f"{FAST},{CARD}", point=CARD, batch="4", language="zh")
    expect(panel(page).locator("canvas").first).to_be_visible()
    assert raw_keys(page) == []
    assert page.evaluate("document.body.innerText.match(/\\b(?:run|agents|evaluation|verdict)\\.[a-z_]+\\b/g)") is None


def test_a_measured_run_leads_to_its_report(reports: Dashboard, visit: Visits) -> None:
    page = visit(reports, "overview", run=CARD)
    expect(page.get_by_text("Measured by a job: 5 measurements")).to_be_visible()
    page.get_by_role("link", name="Open Results").click()
    expect(page.get_by_text("1 selected")).to_be_visible()
