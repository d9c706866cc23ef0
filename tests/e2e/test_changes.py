"""Changes in the log directory appear on the open page without a reload."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.e2e import expected_text
from tests.e2e.live import Browser, Dashboard, Visits, expect
from tests.e2e.locators import cell, row, settled, table

Serve = Callable[..., Dashboard]
LOOP = SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz"


def kineto(*durations_us: int) -> str:
    """Operators op0, op1, ... that take so long, one after the other."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 1, "ts": 1000 * i, "dur": dur}
        for i, dur in enumerate(durations_us)
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A log directory with one run, `first`."""
    folder = tmp_path / "runs"
    (folder / "first").mkdir(parents=True)
    (folder / "first" / "trace.json").write_text(kineto(10, 20))
    return folder


def test_an_empty_log_directory_gives_a_hint_and_shows_new_runs(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    dashboard = serve()
    page = visit(dashboard)
    expect(page.get_by_role("heading", name="No profiles yet")).to_be_visible()
    expect(page.locator("main")).to_contain_text(str(tmp_path / "runs"))
    expect(page.locator("main")).to_contain_text("visualprof DIR")
    for framework in ("PyTorch", "MegEngine", "Paddle", "ONNX Runtime"):
        expect(page.get_by_role("heading", name=framework)).to_be_visible()
    page.keyboard.press("l")
    expect(page.get_by_role("heading", name="还没有性能数据")).to_be_visible()
    page.keyboard.press("l")
    shutil.copy(LOOP, dashboard.folder / "if_loop.json.gz")
    expect(page.get_by_role("heading", name="Average step")).to_be_visible()


def test_a_new_file_appears_without_a_reload(serve: Serve, visit: Visits, runs: Path) -> None:
    page = visit(serve(runs), "operator", run="first")
    table(page, "Operators")
    (runs / "second").mkdir()
    (runs / "second" / "trace.json").write_text(kineto(30))
    page.get_by_role("button", name="Run: first").click()
    page.get_by_role("option", name="second").click()
    expect(cell(table(page, "Operators"), 0, "Host self")).to_have_text("30.0 µs")


def test_a_new_worker_appears_in_a_known_run(serve: Serve, visit: Visits, runs: Path) -> None:
    (runs / "first" / "trace.json").rename(runs / "first" / "rank0.json")
    page = visit(serve(runs), "operator", run="first")
    table(page, "Operators")
    (runs / "first" / "rank1.json").write_text(kineto(70))
    page.get_by_role("button", name="Worker: rank0 (rank 0)").click()
    page.get_by_role("option", name="rank1 (rank 1)").click()
    expect(cell(table(page, "Operators"), 0, "Host self")).to_have_text("70.0 µs")


def test_a_growing_file_opens_automatically_when_it_is_complete(serve: Serve, visit: Visits, runs: Path) -> None:
    path = runs / "growing" / "trace.json"
    path.parent.mkdir()
    path.touch()
    page = visit(serve(runs), "operator", run="growing")
    expect(page.get_by_role("heading", name="Still being written")).to_be_visible()
    whole = kineto(*range(100, 200))
    path.write_text(whole[: len(whole) // 2])
    expect(page.get_by_text("still being written or was cut off")).to_be_visible()
    expect(page.locator(".tally")).not_to_have_text("100 rows")
    path.write_text(whole)
    expect(page.locator(".tally")).to_have_text("100 rows")
    expect(page.get_by_text("still being written or was cut off")).to_have_count(0)


def test_a_replaced_file_refreshes_the_numbers(serve: Serve, visit: Visits, runs: Path) -> None:
    page = visit(serve(runs), "operator", run="first")
    operators = table(page, "Operators")
    expect(cell(operators, 0, "Host self")).to_have_text("20.0 µs")
    new = runs / "new.partial"
    new.write_text(kineto(5, 4, 3))
    new.replace(runs / "first" / "trace.json")
    expect(cell(operators, 0, "Host self")).to_have_text("5.00 µs")
    expect(page.locator(".tally")).to_have_text("3 rows")


def test_a_deleted_run_disappears_with_a_message(serve: Serve, visit: Visits, runs: Path) -> None:
    visit.tolerate("status of 404")
    (runs / "second").mkdir()
    (runs / "second" / "trace.json").write_text(kineto(30))
    page = visit(serve(runs), "operator", run="second")
    table(page, "Operators")
    shutil.rmtree(runs / "second")
    expect(page.get_by_role("alert")).to_contain_text("There is no run “second” here.")
    page.get_by_role("button", name="Show the newest run").click()
    expect(cell(table(page, "Operators"), 0, "Host self")).to_have_text("20.0 µs")
    expect(page.locator(".selectors")).not_to_contain_text("second")


def test_unreadable_files_are_listed_with_their_reasons_and_hide_nothing(
    serve: Serve, visit: Visits, runs: Path
) -> None:
    (runs / "notes.json").write_text('{"some": "notes"}')
    (runs / "deep.json").write_text(
        '{"schemaVersion":1,"traceEvents":[{"ph":"X","args":' + "[" * 100_000 + "]" * 100_000 + "}]}"
    )
    dashboard = serve(runs)
    dashboard.wait(lambda spans: {span["state"] for span in spans.values()} == {"ready", "failed"})
    page = visit(dashboard, "operator")
    table(page, "Operators")
    page.get_by_role("button", name="Skipped files: 1").click()
    expect(page.locator(".notes")).to_contain_text("notes.json")
    expect(page.locator(".notes")).to_contain_text("no profile format recognizes the content")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Run: first").click()
    page.get_by_role("option", name="deep").click()
    expect(page.get_by_role("alert")).to_contain_text("This file cannot be read")
    expect(page.get_by_role("alert")).to_contain_text("1 damaged part of 200,020 bytes skipped, at byte 34")


def test_a_file_without_events_is_explained(serve: Serve, visit: Visits, runs: Path) -> None:
    (runs / "first" / "trace.json").write_text(kineto())
    page = visit(serve(runs))
    expect(page.get_by_role("status")).to_contain_text("This file contains no events")
    page.keyboard.press("l")
    expect(page.get_by_role("status")).to_contain_text("该文件中没有任何事件")


def test_an_oddity_of_a_file_is_shown_with_it(serve: Serve, visit: Visits, runs: Path) -> None:
    (runs / "first" / "trace.json").write_text(kineto(10, -5))
    page = visit(serve(runs), "operator")
    page.get_by_role("button", name="Trace warnings: 1").click()
    expect(page.locator(".notes")).to_contain_text("it is missing, negative or no number")


def test_the_page_says_when_the_server_is_gone_and_recovers_with_it(serve: Serve, visit: Visits, runs: Path) -> None:
    visit.tolerate("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    dashboard = serve(runs)
    page = visit(dashboard, "operator", run="first")
    operators = table(page, "Operators")
    settled(page)  # what the page loads late is there
    dashboard.stop()
    expect(page.get_by_role("alert")).to_contain_text("The server does not respond")
    expect(row(operators, 0)).to_be_visible()
    (runs / "first" / "trace.json").write_text(kineto(90))
    dashboard.start()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(cell(operators, 0, "Host self")).to_have_text("90.0 µs")


def test_a_log_directory_that_cannot_be_written_is_enough(serve: Serve, visit: Visits, runs: Path) -> None:
    folders = [runs / "first", runs]
    before = sorted(runs.rglob("*"))
    for folder in folders:
        folder.chmod(0o555)
    try:
        page = visit(serve(runs, "--read-only"), "operator", run="first")
        expect(cell(table(page, "Operators"), 0, "Host self")).to_have_text("20.0 µs")
        assert sorted(runs.rglob("*")) == before
    finally:
        for folder in reversed(folders):
            folder.chmod(0o755)


def test_the_language_of_the_command_line_is_that_of_a_first_visit(serve: Serve, browser: Browser, runs: Path) -> None:
    dashboard = serve(runs, "--language", "zh")
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.goto(dashboard.url)
    expect(page.get_by_role("link", name="算子")).to_be_visible()
    context.close()


def test_server_messages_are_shown_in_the_language_of_the_page(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "odd.json").write_text(
        '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 3, "name": "a"}, {"ph": "X", "name": 3}]}'
    )
    dashboard = serve(folder)
    dashboard.wait_until_ready()
    for language, words in (("en", "1 events do not say when they began"), ("zh", "1 个事件没有开始时间")):
        page = visit(dashboard, "operator", language=language, run="odd")
        page.locator(".note-button").first.click()
        expect(page.locator(".notes")).to_contain_text(words)


def test_packed_files_of_any_name_are_recognised_by_content(serve: Serve, visit: Visits, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "unknown").write_bytes(gzip.compress(kineto(10, 20, 30).encode()))
    page = visit(serve(folder), "operator")
    expect(page.locator(".tally")).to_have_text("3 rows")
    expect(cell(table(page, "Operators"), 0, "Host self")).to_have_text(expected_text.duration(30_000))
