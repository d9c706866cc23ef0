"""Names are the work of strangers: they are shown as text, run nothing and break no page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import Page, Visits, expect
from tests.e2e.locators import cell, first_bar, open_page, settled, table
from tests.e2e.test_changes import Serve

IMAGE = "<img src=x onerror=window.owned=1>"
SCRIPT = "<script>window.owned=1</script>"
TURNED = "\u202egnp.exe\u200f\u2066"
CONTROLS = "a\u0000b\u0007c\u001b[31m\u0085d\ttab\nline"
LONG = "x" * 10_000
TEMPLATE = "{{constructor.constructor('window.owned=1')()}} @:linked %{named} | other"
TOKEN = "@t:chart.rest"
NAMES = [IMAGE, SCRIPT, TURNED, CONTROLS, LONG, TEMPLATE, TOKEN]
# What would turn the reading direction or break the line is made visible; nothing else is touched.
SHOWN_TURNED = "\ufffdgnp.exe\ufffd\ufffd"
SHOWN = [IMAGE, SCRIPT, SHOWN_TURNED, "a\u2400b\u2407c\u241b[31m\ufffdd\u2409tab\u240aline", LONG, TEMPLATE, TOKEN]


def trace() -> str:
    """Each name as an operator, a kernel, a user range, a runtime call, a shape, a stack frame and a device."""
    events: list[dict[str, Any]] = []
    for i, name in enumerate(NAMES):
        ts, dur = 1000 * i, 900 - 100 * i
        host = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            host
            | {
                "cat": "cpu_op",
                "name": name,
                "ts": ts,
                "dur": dur,
                "args": {"External id": i, "Input Dims": [[name]], "Call stack": f"{name};{name}"},
            },
            host | {"cat": "user_annotation", "name": name, "ts": ts, "dur": dur},
            host
            | {
                "cat": "cuda_runtime",
                "name": f"cuda{name}",
                "ts": ts + 1,
                "dur": 5,
                "args": {"correlation": i + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": 0,
                "tid": 7,
                "ts": ts + 10,
                "dur": dur - 20,
                "args": {"device": 0, "stream": 7, "correlation": i + 1, "grid": [name, 1, 1], "block": [32, 1, 1]},
            },
        ]
    device = {"id": 0, "name": IMAGE, "totalGlobalMem": 2**34, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    return json.dumps({"schemaVersion": 1, "deviceProperties": [device], "host_name": SCRIPT, "traceEvents": events})


@pytest.fixture
def page(serve: Serve, visit: Visits, tmp_path: Path) -> Page:
    folder = tmp_path / "runs"
    for run in (IMAGE, SCRIPT.replace("/", ""), TURNED, "line\nbreak", "y" * 200):
        (folder / run).mkdir(parents=True)
        (folder / run / "trace.json").write_text(trace())
    (folder / f"{IMAGE}.json").write_text("no profile")
    (folder / IMAGE / "rank0.json").write_text(
        '{"schemaVersion":1,"traceEvents":[{"ph":"X","args":' + "[" * 100_000 + "]" * 100_000 + "}]}"
    )
    dashboard = serve(folder)
    dashboard.wait(
        lambda spans: len(spans) == 6 and all(span["state"] in ("ready", "failed") for span in spans.values())
    )
    return visit(dashboard, run=IMAGE, worker="trace")


def nothing_ran(page: Page) -> None:
    """No name became markup."""
    assert page.evaluate("window.owned") is None
    assert page.locator("img, script:not([src]), iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "a name made the page wider than the window"
    )


def test_on_the_overview(page: Page) -> None:
    settled(page)
    expect(page.locator(".device b").first).to_have_text(IMAGE)
    expect(page.locator("main dl")).to_contain_text(SCRIPT)
    ranges = table(page, "User annotations")
    expect(cell(ranges, 0, "Name")).to_have_text(IMAGE)
    expect(cell(ranges, 1, "Name")).to_have_text(SCRIPT)
    nothing_ran(page)


@pytest.mark.parametrize(
    ("name", "chart", "label"), [("Operators", "Device self time", "Operators"), ("Kernels", "Kernel time", "Kernels")]
)
def test_in_tables_charts_and_filters(page: Page, name: str, chart: str, label: str) -> None:
    settled(page)
    open_page(page, name)
    shown = table(page, label)
    settled(page)
    for number, text in enumerate(SHOWN):
        expect(cell(shown, number, "Name")).to_have_attribute("title", text)
    expect(cell(shown, 4, "Name")).to_have_text(LONG)
    expect(first_bar(page, chart)).to_have_attribute("title", IMAGE)
    first_bar(page, chart).click()
    expect(page.get_by_role("button", name=f"Show all rows, not only {IMAGE}", exact=True)).to_be_visible()
    expect(page.locator(".tally").first).to_have_text(f"1 of {len(NAMES)} rows")
    nothing_ran(page)


def test_in_call_stacks_and_shapes(page: Page) -> None:
    settled(page)
    open_page(page, "Operators")
    operators = table(page, "Operators")
    operators.get_by_role("button", name="Show details").first.click()
    expect(operators.locator(".expanded")).to_contain_text(IMAGE)
    page.get_by_role("radio", name="Name and shape").click()
    expect(operators.get_by_role("columnheader", name="Input shapes")).to_be_visible()
    nothing_ran(page)


def test_in_runs_workers_and_file_names(page: Page) -> None:
    settled(page)
    assert page.title() == f"Overview · {IMAGE}"
    page.get_by_role("button", name=f"Run: {IMAGE}").click()
    expect(page.get_by_role("option")).to_have_count(5)
    expect(page.get_by_role("option", name=SHOWN_TURNED)).to_be_visible()
    expect(page.get_by_role("option", name="line\u240abreak")).to_be_visible()
    expect(page.get_by_role("option", name="y" * 200)).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("^Worker")).click()
    page.get_by_role("option", name="rank0 (rank 0)").click()
    expect(page.get_by_role("alert")).to_contain_text(f"{IMAGE}/rank0.json")
    page.get_by_role("button", name="Skipped files: 1").click()
    expect(page.locator(".notes")).to_contain_text(f"{IMAGE}.json")
    nothing_ran(page)


def test_in_the_address(page: Page) -> None:
    settled(page)
    address = page.url.split("?")[0]
    page.goto(f"{address}?run={IMAGE.replace('<', '%3C').replace('>', '%3E')}nowhere")
    expect(page.get_by_role("alert")).to_contain_text("onerror")
    nothing_ran(page)
