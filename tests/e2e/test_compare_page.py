"""Two runs compared on the page: chosen, seen, swapped, kept by the address, and refused with a reason."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import address, cell, open_page, raw_keys, row, settled, table

# Microseconds of each operator in a step. Of 1000 there are 300 without any, before as after.
BEFORE = {"conv": 400, "relu": 200, "gone": 100}
AFTER = {"conv": 500, "relu": 100, "fresh": 50}
STEPS = 6


def steps(operators: dict[str, int], first: int = 5, marked: bool = True) -> str:
    """Write a trace whose steps all take the same time."""
    length = sum(operators.values()) + 300
    events = []
    for i in range(STEPS):
        ts = 1000 + i * length
        if marked:
            events.append(("user_annotation", f"ProfilerStep#{first + i}", ts, length))
        for name, dur in operators.items():
            events.append(("cpu_op", name, ts + 10, dur))
            ts += dur
    return json.dumps(
        {
            "schemaVersion": 1,
            "traceEvents": [
                {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
                for cat, name, ts, dur in events
            ],
        }
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("pair") / "runs"
    texts = {
        "before": steps(BEFORE),
        "after": steps(AFTER, first=15),
        "unmarked": steps(BEFORE, marked=False),
        "broken": '{"schemaVersion":1,"traceEvents":[{"ph":"X","args":' + "[" * 100_000 + "]" * 100_000 + "}]}",
        "empty": '{"schemaVersion": 1, "traceEvents": []}',
    }
    for name, text in texts.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "trace.json").write_text(text)
    with Dashboard(folder, cache) as dashboard:
        dashboard.wait(
            lambda spans: len(spans) == len(texts) and all(s["state"] in ("ready", "failed") for s in spans.values())
        )
        yield dashboard


def figures(page: Page) -> list[str]:
    """Base, new, change."""
    expect(page.get_by_role("region", name="Compared with the base")).to_be_visible()
    return [text.replace("\xa0", " ") for text in page.locator(".change strong").all_inner_texts()]


def choose(page: Page, name: str) -> None:
    """As with the mouse: the list opens by the button."""
    page.get_by_role("button", name="Compare with …").click()
    page.get_by_role("option", name=name).click()


def test_a_base_is_chosen_and_the_overview_explains_the_change(pair: Dashboard, visit: Visits) -> None:
    page = visit(pair, "overview", run="after")
    choose(page, "before")
    # 1000 us become 950: 100 more of conv, 50 of fresh, 100 less of relu, 100 of gone.
    slower, faster = table(page, "Slower rows"), table(page, "Faster rows")
    assert figures(page) == ["1.00 ms", "950 µs", "−50.0 µs−5.0 %"]
    expect(page.locator(".change")).to_contain_text("Faster, beyond noise.")
    for scope, number, name, change in (
        (slower, 0, "conv", "+100 µs"),
        (slower, 1, "fresh", "+50.0 µs"),
        (faster, 0, "relu", "−100 µs"),
        (faster, 1, "gone", "−100 µs"),
    ):
        expect(cell(scope, number, "Name")).to_have_text(name)
        expect(cell(scope, number, "Change")).to_have_text(change.replace(" ", "\xa0"))
    expect(cell(faster, 1, "Status")).to_have_text("removed")
    # The parts of the waterfall add up to the change.
    falls = page.locator("section", has=page.get_by_role("heading", name="From the base to this run"))
    expect(falls.locator("tbody tr", has_text="CPU").locator("td").last).to_have_text("−50.0\xa0µs")
    expect(falls.locator("tfoot td").last).to_have_text("−50.0\xa0µs")
    assert address(page)["base"] == "before"
    assert raw_keys(page) == []


def test_a_reload_keeps_the_base_and_one_click_swaps_or_removes_it(pair: Dashboard, visit: Visits) -> None:
    page = visit(pair, "operator", run="after", base="before")
    page.reload()
    changed = table(page, "Operators: changes")
    expect(cell(changed, 0, "Change")).to_have_text("+100\xa0µs")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator(".told strong")).to_contain_text("+50.0\xa0µs")
    assert (address(page)["run"], address(page)["base"]) == ("before", "after")
    open_page(page, "Overview")
    table(page, "Slower rows")
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.locator(".change")).to_have_count(0)
    assert not {"base", "base_worker", "base_span"} & address(page).keys()


def test_a_step_is_compared_with_the_step_at_its_position(pair: Dashboard, visit: Visits) -> None:
    page = visit(pair, "overview", run="after", base="before", step="17")
    expect(page.locator(".change")).to_contain_text("Base step time (median) · 7")
    expect(page.locator(".change")).to_contain_text("Step time of this run (median) · 17")
    expect(page.locator(".change")).to_contain_text("Indistinguishable from noise.")


def test_a_row_leads_to_both_timelines(pair: Dashboard, visit: Visits) -> None:
    page = visit(pair, "overview", run="after", base="before")
    slower, faster = table(page, "Slower rows"), table(page, "Faster rows")
    link = "Show on the timeline"
    assert "longest=conv" in str(row(slower, 0).get_by_role("link", name=link).get_attribute("href"))
    # What only the base has is shown there.
    gone = str(row(faster, 1).get_by_role("link", name=link).get_attribute("href"))
    assert "longest=gone" in gone
    assert "run=before" in gone
    assert "base=after" in gone


def test_worse_rows_alone_are_shown_searched_and_saved(pair: Dashboard, visit: Visits) -> None:
    page = visit(pair, "operator", run="after", base="before")
    changed = table(page, "Operators: changes")
    panel = page.locator("section", has=changed)
    expect(panel.locator(".tally")).to_have_text("4 rows")
    panel.get_by_role("radio", name="Worse").click()
    expect(panel.locator(".tally")).to_have_text("2 of 4 rows")
    panel.get_by_role("button", name="Export the table").click()
    answer = page.request.get(str(page.get_by_role("link", name="CSV").evaluate("(link) => link.href")))
    rows = list(csv.DictReader(io.StringIO(answer.body().decode("utf-8-sig"))))
    assert [(one["name"], one["base_ns"], one["new_ns"], one["status"]) for one in rows] == [
        ("conv", "400000", "500000", "changed"),
        ("fresh", "0", "50000", "added"),
    ]


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("elsewhere", "Run “elsewhere” does not exist, or you have no access to it."),
        ("after", "The base is the file that is already shown"),
        ("broken", "The file of “broken” cannot be read."),
        ("empty", "“empty” has no data in common with this file."),
    ],
)
def test_incomparable_runs_give_the_reason(pair: Dashboard, visit: Visits, base: str, said: str) -> None:
    page = visit(pair, "overview", run="after", base=base)
    expect(page.get_by_role("alert")).to_contain_text(said)
    settled(page)  # the run itself is shown all the same
    page.get_by_role("alert").get_by_role("button", name="Stop comparing").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_pair_that_the_server_refuses_says_why(pair: Dashboard, visit: Visits) -> None:
    visit.tolerate("status of 409")
    page = visit(pair, "overview", run="after", base="unmarked")
    expect(page.get_by_role("alert")).to_contain_text("has no steps")


def test_the_list_marks_unavailable_runs_and_supports_the_keyboard(pair: Dashboard, visit: Visits) -> None:
    page = visit(pair, "overview", run="after")
    page.get_by_role("button", name="Compare with …").press("Enter")
    blocked = page.get_by_role("option", name="broken")
    expect(blocked).to_contain_text("Cannot be read")
    expect(blocked).to_have_attribute("aria-disabled", "true")
    blocked.click(force=True)
    assert "base" not in address(page)
    expect(page.get_by_role("option", name="after")).to_contain_text("Current run")
    names = page.get_by_role("option").all_inner_texts()
    for _ in range(next(i for i, name in enumerate(names) if name.startswith("before"))):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    table(page, "Slower rows")
    assert address(page)["base"] == "before"


def test_a_run_alone_has_nothing_to_compare_with(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    (tmp_path / "runs" / "alone").mkdir(parents=True)
    (tmp_path / "runs" / "alone" / "trace.json").write_text(steps(BEFORE))
    page = visit(serve(tmp_path / "runs"), "overview", run="alone")
    settled(page)
    expect(page.get_by_text("Compare with")).to_have_count(0)


def test_ranks_of_a_run_are_compared(samples: Dashboard, visit: Visits) -> None:
    run = "synthetic-4gpu"
    page = visit(samples, "distributed", run=run)
    choose(page, run)
    api = samples.get("diff", run=run, base=run, base_worker="rank1", view="distributed", table="rows")
    changed = table(page, "Distributed: changes")
    expect(cell(changed, 0, "Name")).to_have_text(api["columns"]["name"][0])
    expect(page.get_by_role("button", name="Worker: rank1 (rank 1)")).to_be_visible()
    assert (address(page)["base"], address(page)["base_worker"]) == (run, "rank1")


@pytest.mark.parametrize(
    ("name", "run", "base", "label", "query"),
    [
        ("memory", "pytorch-h200/transformer", "pytorch-h200/cnn", "Memory", {"view": "memory", "table": "memory"}),
        ("kernel", "pytorch-h200/transformer", "pytorch-h200/cnn", "Kernels", {"view": "kernel", "table": "rows"}),
        (
            "profile",
            "megengine-inference/resnet18_w16",
            "megengine-inference/transformer_tiny",
            "Static profile",
            {"view": "operator", "table": "rows"},
        ),
    ],
)
def test_every_page_of_tables_shows_base_new_and_change(
    samples: Dashboard, visit: Visits, name: str, run: str, base: str, label: str, query: dict[str, str]
) -> None:
    page = visit(samples, name, language="zh" if name == "memory" else "en", run=run, base=base)
    columns = samples.get("diff", run=run, base=base, **query)["columns"]
    if name == "memory":
        changed, column = table(page, "内存：变化"), "状态"
        word = {"changed": "有变化", "same": "不变", "added": "新增", "removed": "已移除"}[columns["status"][0]]
    else:
        changed, column, word = table(page, f"{label}: changes"), "Status", columns["status"][0]
    expect(cell(changed, 0, column)).to_have_text(word)
    settled(page)
    assert raw_keys(page) == []


def test_two_reports_are_compared_and_swapped(samples: Dashboard, visit: Visits) -> None:
    one, two = "resnet10-sample/ort-1t", "resnet10-sample/ort-2t"
    page = visit(samples, "evaluation", reports=f"{one},{two}")
    panel = page.locator("section", has=page.get_by_role("heading", name="Compared with a base"))
    panel.get_by_role("button", name="Base: None").click()
    page.get_by_role("option", name="ort-1t").click()
    changed = table(page, "Compared with a base")
    columns = samples.get("diff", view="evaluation", run=two, base=one, table="evaluation", limit=1000)["columns"]
    rates = ("qps", "samples_per_s")
    worse = [-r if f in rates else r for f, r in zip(columns["figure"], columns["delta_ratio"], strict=True)]
    first = columns["delta_ratio"][worse.index(max(worse))]
    expect(cell(changed, 0, "Change, %")).to_have_text(f"{'+' if first > 0 else '−'}{abs(first) * 100:.1f}\xa0%")
    assert address(page)["base"] == one
    panel.get_by_role("button", name="Swap reports").click()
    expect(panel.get_by_role("button", name="Base: ort-2t")).to_be_visible()
    assert (address(page)["base"], address(page)["against"]) == (two, one)
