"""The page of benchmark cases: the leaderboard, details of a result, and the shipped cases."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import raw_keys, table
from tests.remote.case_sites import EXPORT, numpy_case
from visualprof.reader.results.case import SCHEMA, CasePass, CaseResult, CaseSetting, CaseStep
from visualprof.remote.agent.machine.sandbox import bubblewrap_problem

MS = 1_000_000


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    """A case with two engines, and one whose export failed."""
    folder = tmp_path_factory.mktemp("cases") / "runs"
    validation = CasePass(5, 10, 0.98, 8, n=2)
    for run, compiler, inference in (
        ("net/ort", "onnxruntime", CasePass(15, 20, 0.98, 8, n=2)),
        ("net/ov", "openvino", CasePass(25, 40, 0.9751, 8, n=2)),
        ("other/ov", "openvino", None),
    ):
        ended = ("succeeded", "summary") if inference else ("failed", "export")
        result = CaseResult(
            SCHEMA,
            run.partition("/")[0],
            "pytorch",
            "cpu",
            compiler,
            "fp32",
            4,
            ended[0],
            host="lab",
            step=ended[1],
            reason="" if inference else "model_error",
            error="" if inference else "export: ValueError: no such operator",
            validation=validation,
            inference=inference,
            verdict="same" if inference else "",
            finished_ns=10**18,
            steps=[CaseStep("init", "done", 5 * MS), CaseStep("export", "done" if inference else "failed", 7 * MS)],
            settings=[CaseSetting("batch_size", "4", "command line", "8")],
        )
        (folder / run).mkdir(parents=True)
        (folder / run / "case.json").write_bytes(msgspec.json.encode(result))
        (folder / run / "log.txt").write_text(f"== init\nlog of {run}\n", "utf-8")
    with Dashboard(folder, cache) as dashboard:
        while len(dashboard.get("cases")["results"]["run"]) < 3:
            pass
        yield dashboard


def test_results_link_to_their_details(measured: Dashboard, visit: Visits) -> None:
    page = visit(measured, "cases", language="zh")
    rows = page.locator('[data-place="results"] [role="row"]')
    expect(rows).to_have_count(1 + 3)
    expect(page.locator('[data-place="figure"] canvas')).to_be_visible()
    rows.filter(has_text="other").click()
    behind = page.locator('[data-place="result"]')
    expect(behind.locator(".notice")).to_contain_text("export: ValueError: no such operator")
    expect(behind.locator(".steps .failed")).to_contain_text("失败")
    expect(behind.locator(".settings")).to_contain_text("命令行")
    expect(behind.locator("pre")).to_contain_text("log of other/ov")
    expect(page).to_have_url(re.compile("result=other"))
    assert raw_keys(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_results_are_sorted_filtered_and_saved_and_a_case_names_its_command(measured: Dashboard, visit: Visits) -> None:
    page = visit(measured, "cases", case="net")
    rows = table(page, "Leaderboard").get_by_role("row")
    expect(rows).to_have_count(1 + 2)
    rows.nth(0).get_by_text("Core samples/s").click()
    expect(rows.nth(1)).to_contain_text("openvino")
    expect(rows.nth(1)).to_contain_text("0.9751")
    rows.nth(0).get_by_text("Core samples/s").click()
    expect(rows.nth(1)).to_contain_text("onnxruntime")
    chart = page.locator('[data-place="figure"] .chart')
    chart.focus()
    chart.press("ArrowRight")
    chart.press("Enter")
    expect(page).to_have_url(re.compile("result=net(/|%2F)ort"))
    page.get_by_role("button", name="Save the table").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save as FlagPerf README table").click()
    assert "| net | lab | openvino | fp32 | 4 |" in Path(saved.value.path()).read_text("utf-8")
    page.get_by_role("button", name="bert", exact=True).click()
    expect(page.locator('[data-place="shipped"] code')).to_contain_text(
        "visualprof case run bert --compiler onnxruntime"
    )
    expect(page.get_by_role("button", name="Run 1 job")).to_be_disabled()  # no machine is registered


def test_a_framework_preselects_the_compiler_that_reads_its_export(measured: Dashboard, visit: Visits) -> None:
    page = visit(measured, "cases")
    expect(table(page, "Leaderboard").get_by_role("columnheader", name="Framework")).to_be_visible()
    shipped = page.locator('[data-place="shipped"]')
    expect(shipped.get_by_role("button", name="onnxruntime", exact=True)).to_have_attribute("aria-pressed", "true")
    shipped.get_by_role("button", name="Framework").click()
    page.get_by_role("option", name="MegEngine").click()
    expect(shipped.get_by_role("button", name="megengine", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(shipped.get_by_role("button", name="onnxruntime", exact=True)).to_have_attribute("aria-pressed", "false")
    expect(shipped.locator("code")).to_contain_text(
        "visualprof case run digits --framework megengine --compiler megengine"
    )


def test_the_grid_has_a_figure_of_each_case_by_machine_and_compiler(measured: Dashboard, visit: Visits) -> None:
    page = visit(measured, "cases")
    page.get_by_role("radio", name="Grid").click()
    grid = page.get_by_role("table", name="Cases by machine and compiler")
    cells = [row.get_by_role("cell").all_inner_texts() for row in grid.locator("tbody tr").all()]
    assert cells == [["20", "40"], ["", "Failed"]]
    expect(grid.locator(".best")).to_have_text("40")
    grid.get_by_role("button", name="Failed").click()
    expect(page.locator('[data-place="result"] .notice')).to_contain_text("no such operator")
    expect(page).to_have_url(re.compile("as=grid"))


def test_without_results_the_page_names_the_command(tmp_path: Path, cache: Path, visit: Visits) -> None:
    (tmp_path / "runs").mkdir()
    with Dashboard(tmp_path / "runs", cache) as dashboard:
        page = visit(dashboard, "cases")
        expect(page.get_by_role("heading", name="No benchmark case has been run yet")).to_be_visible()
        expect(page.locator('[data-place="shipped"] code')).to_contain_text("case run digits --compiler onnxruntime")


@pytest.mark.long
def test_a_zip_runs_with_each_compiler_and_shows_the_outcome(
    tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits
) -> None:
    if bubblewrap_problem():
        pytest.skip(f"bubblewrap: {bubblewrap_problem()}")
    pytest.importorskip("onnxruntime")
    numpy_case(tmp_path / "net", export=EXPORT.replace('"2"', '"no model"'))
    case = shutil.make_archive(str(tmp_path / "net"), "zip", tmp_path, "net")
    page = visit(serve(None, "--with-agent"), "cases")
    form = page.locator('[data-place="shipped"]')
    expect(form.get_by_role("button", name="local", exact=True)).to_have_attribute(
        "aria-pressed", "true", timeout=60_000
    )
    form.locator("input[type=file]").set_input_files(case)
    expect(form.get_by_role("button", name="net", exact=True)).to_have_attribute("aria-pressed", "true")
    form.get_by_role("button", name="onnxruntime").click()
    form.get_by_label("Configuration").fill("repeat 3")
    expect(form).to_contain_text("repeat is not valid: write key=value")
    form.get_by_label("Configuration").fill("repeat=3")
    form.get_by_role("button", name="Run 1 job").click()
    job = page.locator('[data-place="jobs"] li')
    expect(job).to_contain_text("onnxruntime reads .onnx files", timeout=60_000)
    job.get_by_role("button", name="Show").click()
    behind = page.locator('[data-place="result"]')
    expect(behind.locator(".steps .failed")).to_contain_text("Compile")
    expect(behind.locator(".settings tr").filter(has_text="repeat")).to_contain_text("Command line")
    assert raw_keys(page) == []
