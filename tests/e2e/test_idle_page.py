"""The Idle page: causes, host activity, and links from gaps to the timeline."""

from __future__ import annotations

import re

from tests.e2e import expected_text
from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import address, cell, raw_keys, row, table

RUN = "pytorch-h200/cnn"


def test_the_longest_gap_names_its_cause_and_leads_to_the_timeline(samples: Dashboard, visit: Visits) -> None:
    longest = samples.get("view/idle", run=RUN, worker="cnn", table="longest")["columns"]
    page = visit(samples, "idle", language="zh", run=RUN)
    gaps = table(page, "最长的间隙")
    expect(cell(gaps, 0, "原因")).to_have_text("等待主机")
    expect(gaps).to_contain_text(longest["host"][0])
    assert raw_keys(page) == []
    row(gaps, 0).get_by_role("link").click()
    expect(page).to_have_url(re.compile("area="))
    assert address(page)["area"] == f"{longest['start_ns'][0]}~{longest['end_ns'][0]}"


def test_a_change_is_replayed_and_an_invalid_change_is_explained(samples: Dashboard, visit: Visits) -> None:
    visit.tolerate("status of 400")
    page = visit(samples, "idle", run=RUN)
    changes = table(page, "Largest savings")
    expect(cell(changes, 0, "Change")).to_have_text("The step does not wait for data")
    row(changes, 0).click()
    predicted = samples.get("view/whatif", run=RUN, worker="cnn", change="dataloader=0")["step"]
    expect(page.locator("dl .gain dd")).to_contain_text(expected_text.duration(predicted["gain_ns"]))
    assert address(page)["change"] == "dataloader=0"
    field = page.get_by_role("searchbox", name="Change")
    expect(field).to_have_value("dataloader=0")
    field.fill("gemm is fast")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("is no change")).to_be_visible()


def test_changes_name_kernels_by_their_short_names(samples: Dashboard, visit: Visits) -> None:
    run = "pytorch-h200/transformer"
    proposed = samples.get("view/whatif", run=run, table="changes")
    full = next(text for text in proposed["columns"]["change"] if text.startswith("kernel[") and "(" in text)
    kernel = full.removeprefix("kernel[").rpartition("]")[0]
    short = proposed["short_names"][kernel]
    page = visit(samples, "idle", run=run)
    page.get_by_label("Show changes that save nothing").check()
    changes = table(page, "Largest savings")
    named = changes.get_by_role("row").filter(has_text=short)
    expect(named).to_have_count(1)
    named.click()
    expect(page.get_by_role("searchbox", name="Change")).to_have_value(f"kernel[{short}]*0.5")
    predicted = samples.get("view/whatif", run=run, change=full)["step"]
    expect(page.locator("dl .gain dd")).to_contain_text(expected_text.duration(predicted["gain_ns"]))
